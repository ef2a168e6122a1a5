//! Range scans of a snapshot: which blocks take part, and the merge over them as a stream of batches.

use crate::block::Block;
use crate::merge::MergeOptions;
use crate::source::{FileChain, KEEP_BLOCKS, MergeReader, Source, project};
use crate::store::{ScanOptions, Snapshot};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use eddyline_types::{Epoch, Error, Result, TableId};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Rows of a batch, about.
const BATCH_ROWS: usize = 4096;

/// See [`Snapshot::scan`].
pub(crate) fn scan(snapshot: Snapshot, table: TableId, epoch: Epoch, options: ScanOptions) -> BoxStream<'static, Result<RecordBatch>> {
    let scan = match Scan::start(&snapshot, table, epoch, options) {
        Ok(Some(scan)) => scan,
        Ok(None) => return Box::pin(futures::stream::empty()),
        Err(error) => return Box::pin(futures::stream::once(std::future::ready(Err(error)))),
    };
    // The snapshot lives as long as the stream: its files must not be deleted meanwhile.
    let stream = futures::stream::unfold(Some((scan, snapshot)), |state| async move {
        let (mut scan, snapshot) = state?;
        match scan.next().await {
            Ok(Some(batch)) => Some((Ok(batch), Some((scan, snapshot)))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    stream.boxed()
}

struct Scan {
    reader: MergeReader,
    schema: SchemaRef,
    with_keys: bool,
    left: usize,
}

impl Scan {
    /// `None`: nothing can be there.
    fn start(snapshot: &Snapshot, table: TableId, epoch: Epoch, options: ScanOptions) -> Result<Option<Scan>> {
        let stored = snapshot.check(table, epoch)?;
        let mut shown = match &options.columns {
            None => stored.clone(),
            Some(columns) => Arc::new(stored.project(columns)?),
        };
        if is_empty(&options.range) || options.limit == Some(0) {
            return Ok(None);
        }
        if options.with_keys {
            let fields: Vec<_> = shown.fields().iter().cloned().chain([Arc::new(Field::new("_key", DataType::Binary, false))]).collect();
            shown = Arc::new(Schema::new(fields));
        }
        let mut sources = memory_sources(snapshot, table, epoch, &options)?;
        sources.extend(file_sources(snapshot, table, &stored, &options));
        let left = options.limit.unwrap_or(usize::MAX);
        let merge = MergeOptions {
            visible: epoch,
            range: options.range,
            keep_tombstones: false,
            reverse: options.reverse,
            keys: options.with_keys,
            batch_rows: BATCH_ROWS.min(left),
            slice_rows: BATCH_ROWS.min(left),
            epoch,
        };
        Ok(Some(Scan { reader: MergeReader::new(sources, merge), schema: shown, with_keys: options.with_keys, left }))
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(block) = self.reader.next().await? else { return Ok(None) };
        let rows = block.rows.num_rows().min(self.left);
        self.left -= rows;
        let mut columns = block.rows.columns().to_vec();
        if self.with_keys {
            columns.push(Arc::new(block.keys));
        }
        let batch = crate::block::batch(self.schema.clone(), columns, block.rows.num_rows())?;
        Ok(Some(batch.slice(0, rows)))
    }
}

fn memory_sources(snapshot: &Snapshot, table: TableId, epoch: Epoch, options: &ScanOptions) -> Result<Vec<Source>> {
    let Some(buffer) = snapshot.buffer(table) else { return Ok(vec![]) };
    let mut sources = vec![];
    for (_, blocks) in buffer.epochs.range(..=epoch).rev() {
        for mut chain in chains(blocks) {
            if options.reverse {
                chain.reverse();
            }
            let mut ready = VecDeque::with_capacity(chain.len());
            for block in chain {
                let rows = block.range(&options.range.0, &options.range.1);
                if rows.is_empty() {
                    continue;
                }
                ready.push_back(match &options.columns {
                    None => block,
                    Some(columns) => Arc::new(project(&block, columns)?),
                });
            }
            if !ready.is_empty() {
                sources.push(Source::Memory(ready));
            }
        }
    }
    Ok(sources)
}

/// Puts blocks of one epoch that follow each other (shards own ranges of vnodes) into one chain: fewer competitors.
pub(crate) fn chains(blocks: &[Arc<Block>]) -> Vec<Vec<Arc<Block>>> {
    let mut sorted: Vec<&Arc<Block>> = blocks.iter().filter(|b| b.len() > 0).collect();
    sorted.sort_by(|a, b| a.key(0).cmp(b.key(0)));
    let mut chains: Vec<Vec<Arc<Block>>> = vec![];
    for block in sorted {
        let fits = chains.iter_mut().find(|chain| chain.last().is_some_and(|last| last.key(last.len() - 1) < block.key(0)));
        match fits {
            Some(chain) => chain.push(block.clone()),
            None => chains.push(vec![block.clone()]),
        }
    }
    chains
}

fn file_sources(snapshot: &Snapshot, table: TableId, stored: &SchemaRef, options: &ScanOptions) -> Vec<Source> {
    let Some(files) = snapshot.levels().table(table) else { return vec![] };
    let columns: Option<Arc<[usize]>> = options.columns.as_deref().map(Arc::from);
    let mut sources = vec![];
    for chain in &files.chains {
        let mut files: VecDeque<_> = chain.iter().filter(|part| part.overlaps(&options.range)).map(|part| part.file.clone()).collect();
        if files.is_empty() {
            continue;
        }
        if options.reverse {
            files.make_contiguous().reverse();
        }
        sources.push(Source::Files(Box::new(FileChain {
            table,
            files,
            range: options.range.clone(),
            columns: columns.clone(),
            schema: Some(stored.clone()),
            reverse: options.reverse,
            ahead: 1,
            keep: KEEP_BLOCKS,
            ready: VecDeque::new(),
            current: None,
        })));
    }
    sources
}

fn is_empty(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match range {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high)) | (Bound::Excluded(low), Bound::Included(high)) => low >= high,
        _ => false,
    }
}

/// A read below what uploads have merged away cannot be answered right.
pub(crate) fn too_old(table: TableId, epoch: Epoch, committed: Epoch) -> Error {
    use eddyline_types::{ErrorKind, SqlState};
    Error::new(ErrorKind::Conflict, SqlState::SERIALIZATION_FAILURE, format!("epoch {epoch} of table {table} can no longer be read"))
        .with_detail(format!("The table is committed at epoch {committed}."))
        .with_hint("Read the frontier again and take a new snapshot.")
}
