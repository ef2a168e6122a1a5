//! Which file next: lists the folder, picks up new and grown files in the order of their names, reads one at a time.

use super::fetch::{Pending, patiently};
use super::offset::FileOffset;
use super::open::{OpenFile, Opened, Opener};
use super::place::Place;
use super::spec::{FileSpec, Mode};
use crate::{Offsets, SourceBatch, SourceReader, is_split_of};
use arrow::array::RecordBatch;
use async_trait::async_trait;
use eddyline_env::clock::{self, Instant};
use eddyline_objects::{ObjectInfo, Objects};
use eddyline_protocol::ColumnDef;
use eddyline_protocol::catalog::schema_of;
use eddyline_types::Result;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Reads the files that belong to one shard.
pub(crate) struct FileReader {
    objects: Objects,
    spec: Arc<FileSpec>,
    columns: Arc<Vec<ColumnDef>>,
    index: u32,
    count: u32,
    /// Files read or begun, by split name.
    states: BTreeMap<String, FileOffset>,
    /// Size and age of files when they were looked at last, to tell growth (append) and files still being written.
    seen: BTreeMap<String, ObjectInfo>,
    queue: VecDeque<ObjectInfo>,
    opening: Pending<Result<Opened>>,
    current: Option<OpenFile>,
    listing: Pending<Result<Vec<ObjectInfo>>>,
    next_listing: Option<Instant>,
    /// Files that were listed and are too young to be read.
    unsettled: bool,
}

impl FileReader {
    /// A reader that goes on at the saved offsets.
    pub(crate) fn new(spec: FileSpec, columns: Vec<ColumnDef>, index: u32, count: u32, offsets: Offsets) -> Result<Self> {
        let objects = Objects::open_to_read(&spec.place.store_url)?;
        let mut states = BTreeMap::new();
        for (split, text) in offsets.iter().filter(|(split, _)| is_split_of(split, index, count)) {
            states.insert(split.clone(), FileOffset::parse(split, text)?);
        }
        Ok(FileReader {
            objects,
            spec: Arc::new(spec),
            columns: Arc::new(columns),
            index,
            count,
            states,
            seen: BTreeMap::new(),
            queue: VecDeque::new(),
            opening: Pending::idle(),
            current: None,
            listing: Pending::idle(),
            next_listing: None,
            unsettled: false,
        })
    }

    /// Queues the files of a listing that have something to read.
    fn consider(&mut self, listing: Vec<ObjectInfo>) {
        self.unsettled = false;
        for info in listing {
            let split = self.spec.place.shown(&info.name);
            if !is_split_of(&split, self.index, self.count) {
                continue;
            }
            let before = self.seen.insert(info.name.clone(), info.clone());
            let unchanged = before.as_ref() == Some(&info);
            let wanted = match (self.states.get(&split), self.spec.mode) {
                (Some(state), _) if state.abandoned => false,
                (Some(state), Mode::Immutable) => !(state.is_same(&info) && state.done),
                (Some(state), Mode::Append) => !unchanged && !(state.is_same(&info) && state.at == info.size_bytes),
                (None, Mode::Append) => !unchanged,
                (None, Mode::Immutable) => {
                    let settled = unchanged || self.is_settled(&info);
                    self.unsettled |= !settled;
                    settled
                }
            };
            if wanted {
                self.queue.push_back(info);
            }
        }
    }

    /// Whether nobody can still be writing the file.
    fn is_settled(&self, info: &ObjectInfo) -> bool {
        let settle_ms = self.spec.settle.as_millis() as u64;
        info.modified_ms == 0 || settle_ms == 0 || clock::unix_millis().saturating_sub(info.modified_ms) >= settle_ms
    }

    /// The next batch of the file that is open; its offsets are remembered.
    async fn read_current(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        let Some(file) = &mut self.current else { return Ok(None) };
        let batch = file.next(max_rows).await?;
        match &batch {
            None => self.current = None,
            Some(batch) => {
                for (split, text) in &batch.offsets {
                    self.states.insert(split.clone(), FileOffset::parse(split, text)?);
                }
            }
        }
        Ok(batch)
    }

    /// Opens the first file of the queue; a batch if it turns out that it cannot be read.
    async fn open_next(&mut self) -> Result<Option<SourceBatch>> {
        let Some(info) = self.queue.front() else { return Ok(None) };
        let split = self.spec.place.shown(&info.name);
        let opener = || Opener {
            objects: self.objects.clone(),
            spec: self.spec.clone(),
            columns: self.columns.clone(),
            name: info.name.clone(),
            saved: self.states.get(&split).cloned(),
        };
        self.opening.start("open a file", || opener().open());
        let opened = self.opening.wait().await??;
        self.queue.pop_front();
        match opened {
            Opened::Nothing => Ok(None),
            Opened::File(file) => {
                self.current = Some(file);
                Ok(None)
            }
            Opened::Abandoned(state, error) => {
                let offsets = Offsets::from([(split.clone(), state.to_text())]);
                self.states.insert(split, state);
                let rows = RecordBatch::new_empty(schema_of(&self.columns));
                Ok(Some(SourceBatch { rows, errors: vec![error], offsets }))
            }
        }
    }

    /// Waits for the next listing and takes it in. Files that wait to settle are looked at again soon.
    async fn look_again(&mut self) -> Result<()> {
        if let Some(at) = self.next_listing {
            clock::sleep_until(at).await;
        }
        let (objects, spec) = (self.objects.clone(), self.spec.clone());
        self.listing.start("list files", || async move { patiently("listing files", || list(&objects, &spec.place)).await });
        let listing = self.listing.wait().await??;
        self.consider(listing);
        let pause = if self.unsettled {
            self.spec.poll_interval.min(self.spec.settle.max(Duration::from_millis(1)))
        } else {
            self.spec.poll_interval
        };
        self.next_listing = Some(clock::now() + pause);
        Ok(())
    }
}

/// The objects that the pattern takes, by name.
async fn list(objects: &Objects, place: &Place) -> Result<Vec<ObjectInfo>> {
    let pattern = &place.pattern;
    if let Some(name) = &pattern.exact {
        return Ok(objects.stat(name).await?.into_iter().collect());
    }
    let mut found = if pattern.recursive { objects.list(&pattern.folder).await? } else { objects.list_folder(&pattern.folder).await? };
    found.retain(|info| pattern.matches(&info.name));
    Ok(found)
}

#[async_trait]
impl SourceReader for FileReader {
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        loop {
            if let Some(batch) = self.read_current(max_rows).await? {
                return Ok(Some(batch));
            }
            if !self.queue.is_empty() {
                if let Some(batch) = self.open_next().await? {
                    return Ok(Some(batch));
                }
                continue;
            }
            if self.spec.bounded && self.next_listing.is_some() && !self.unsettled {
                return Ok(None);
            }
            self.look_again().await?;
        }
    }
}
