//! Carrying out a compaction: merge the task's files table by table into new ones.
//!
//! Runs on a blocking thread, streaming: a few blocks per input and one output file are in memory. It takes at most a share of one core
//! unless the version is far out of shape: a read pays for every run more than a write saves by waiting.

use crate::block::Block;
use crate::levels::Levels;
use crate::merge::MergeOptions;
use crate::picker::Task;
use crate::source::{FileChain, MergeReader, Source};
use crate::sst::read::SstFile;
use crate::sst::write::{SstBuilder, object_name};
use crate::store::Inner;
use crate::upload::Sizes;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use eddyline_env::{clock, spawn};
use eddyline_protocol::{SstInfo, VersionDelta};
use eddyline_types::{Epoch, Error, Result, TableId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Rows that the merge gathers at once.
const MERGE_ROWS: usize = 4096;
/// Blocks of the first request of an input.
const READ_BLOCKS: usize = 16;
/// Of the time of one core while the version is in shape.
const SHARE: f64 = 0.5;
/// With more runs to read than this, a compaction does not rest.
const URGENT_RUNS: usize = 24;

/// Runs a task; the delta is to be committed.
pub(crate) async fn run(inner: &Inner, levels: Arc<Levels>, task: Task) -> Result<VersionDelta> {
    let start = clock::now();
    let removed = task.deleted.iter().chain(&task.moved).chain(task.merged.iter().flatten());
    let mut delta = VersionDelta { removed: removed.map(|f| f.object.clone()).collect(), ..VersionDelta::default() };
    delta.added.extend(task.moved.iter().map(|f| (task.level, f.as_ref().clone())));
    if !task.merged.is_empty() {
        let inputs: Vec<String> = task.merged.iter().flatten().map(|f| f.object.clone()).collect();
        let read: u64 = task.merged.iter().flatten().map(|f| f.size_bytes).sum();
        let (level, sizes, closing) = (task.level, inner.sizes(), inner.closing.clone());
        let files = inner
            .put_files(inputs, move |files| {
                let compaction = Compaction::new(&levels, task, sizes, closing)?;
                // This is a blocking thread: the runtime's own threads go on with I/O.
                spawn::handle().block_on(compaction.run(files))
            })
            .await?;
        metrics::counter!("eddyline_store_compaction_read_bytes_total").increment(read);
        metrics::counter!("eddyline_store_compaction_written_bytes_total").increment(files.iter().map(|f| f.size_bytes).sum());
        delta.added.extend(files.into_iter().map(|f| (level, f)));
    }
    metrics::histogram!("eddyline_store_compaction_seconds").record(clock::now().duration_since(start).as_secs_f64());
    Ok(delta)
}

/// A task with its files open.
struct Compaction {
    /// Files of each table, by run from the newest to the oldest.
    tables: BTreeMap<TableId, Vec<VecDeque<Arc<SstFile>>>>,
    task: Task,
    sizes: Sizes,
    urgent: bool,
    closing: Arc<AtomicBool>,
}

impl Compaction {
    fn new(levels: &Levels, task: Task, sizes: Sizes, closing: Arc<AtomicBool>) -> Result<Self> {
        let mut tables: BTreeMap<TableId, Vec<VecDeque<Arc<SstFile>>>> = BTreeMap::new();
        for run in &task.merged {
            let mut chains: BTreeMap<TableId, Vec<(&[u8], Arc<SstFile>)>> = BTreeMap::new();
            for info in run {
                let file = levels
                    .file(&info.object)
                    .ok_or_else(|| Error::internal(format!("object \"{}\" is not in the version", info.object)))?;
                for table in &info.tables {
                    chains.entry(table.table).or_default().push((&table.first_key, file.clone()));
                }
            }
            for (table, mut chain) in chains {
                chain.sort_by(|a, b| a.0.cmp(b.0));
                tables.entry(table).or_default().push(chain.into_iter().map(|(_, file)| file).collect());
            }
        }
        for dropped in &levels.version.dropped {
            tables.remove(dropped);
        }
        let runs =
            levels.version.levels.iter().enumerate().map(|(l, files)| if l == 0 { files.len() } else { usize::from(!files.is_empty()) });
        Ok(Compaction { tables, urgent: runs.sum::<usize>() > URGENT_RUNS, task, sizes, closing })
    }

    async fn run(self, files: &mpsc::Sender<(Bytes, SstInfo)>) -> Result<()> {
        let mut output = Output { builder: SstBuilder::new(self.sizes.block_bytes)?, sizes: self.sizes, files };
        for (table, chains) in &self.tables {
            self.table(*table, chains, &mut output).await?;
        }
        output.end().await
    }

    async fn table(&self, table: TableId, chains: &[VecDeque<Arc<SstFile>>], output: &mut Output<'_>) -> Result<()> {
        let (schema, epoch) = self.schema_and_epoch(table, chains).await?;
        let source = |files: &VecDeque<Arc<SstFile>>| {
            Source::Files(Box::new(FileChain {
                table,
                files: files.clone(),
                range: (Bound::Unbounded, Bound::Unbounded),
                columns: None,
                schema: Some(schema.clone()),
                reverse: false,
                ahead: READ_BLOCKS,
                keep: 0,
                ready: VecDeque::new(),
                current: None,
            }))
        };
        let options = MergeOptions {
            visible: Epoch::MAX,
            range: (Bound::Unbounded, Bound::Unbounded),
            keep_tombstones: self.older_has(table),
            reverse: false,
            keys: true,
            batch_rows: MERGE_ROWS,
            slice_rows: 1 << 16,
            epoch,
        };
        let mut reader = MergeReader::new(chains.iter().map(source).collect(), options);
        let mut cuts = self.cuts(table);
        output.start(table, &schema)?;
        let mut worked = clock::now();
        while let Some(block) = reader.next().await? {
            // The node may be ending: reading on would meet a runtime without timer.
            if self.closing.load(Ordering::Relaxed) {
                return Err(Error::cancelled("the compaction was given up"));
            }
            output.add(table, &schema, block, &mut cuts).await?;
            if !self.urgent {
                let rest = clock::now().duration_since(worked).mul_f64(1.0 / SHARE - 1.0);
                if rest > Duration::from_millis(2) {
                    clock::sleep_blocking(rest);
                    worked = clock::now();
                }
            }
        }
        Ok(())
    }

    /// The table's columns, and the newest epoch among its rows: all of them get it. It is committed, so nobody reads below it,
    /// and rows that were written later are newer.
    async fn schema_and_epoch(&self, table: TableId, chains: &[VecDeque<Arc<SstFile>>]) -> Result<(SchemaRef, Epoch)> {
        let (mut schema, mut epoch) = (None, Epoch::ZERO);
        for file in chains.iter().flatten() {
            if let Some(section) = file.section(table).await? {
                epoch = section.index.blocks.iter().map(|b| b.epochs.1).fold(epoch, Epoch::max);
                schema.get_or_insert_with(|| section.schema.clone());
            }
        }
        let schema =
            schema.ok_or_else(|| Error::corruption(format!("no file of table {table} holds it, against what the version says")))?;
        Ok((schema, epoch))
    }

    /// Whether files older than the task's may hold rows that a tombstone of the table must hide.
    fn older_has(&self, table: TableId) -> bool {
        let parts = |f: &Arc<SstInfo>| {
            f.tables.iter().filter(|t| t.table == table).map(|t| (t.first_key.clone(), t.last_key.clone())).collect::<Vec<_>>()
        };
        let merged: Vec<_> = self.task.merged.iter().flatten().flat_map(parts).collect();
        let meets = |(first, last): &(Vec<u8>, Vec<u8>)| merged.iter().any(|(f, l)| f <= last && first <= l);
        self.task.older.iter().flat_map(parts).any(|range| meets(&range))
    }

    /// Where files must end: the first keys of files that stay in or move to the output's level.
    fn cuts(&self, table: TableId) -> VecDeque<Vec<u8>> {
        let beside = self.task.beside.iter().chain(&self.task.moved).flat_map(|f| &f.tables);
        let mut cuts: Vec<Vec<u8>> = beside.filter(|t| t.table == table).map(|t| t.first_key.clone()).collect();
        cuts.sort();
        cuts.into()
    }
}

/// The files being written.
struct Output<'a> {
    builder: SstBuilder,
    sizes: Sizes,
    files: &'a mpsc::Sender<(Bytes, SstInfo)>,
}

impl Output<'_> {
    fn start(&mut self, table: TableId, schema: &SchemaRef) -> Result<()> {
        // A file beside may hold several tables: an output that spans it in the order of tables is fine, per table it is not.
        self.builder.start_table(table, schema)
    }

    /// Adds rows; a file ends at each cut that they pass, and when it is large enough.
    async fn add(&mut self, table: TableId, schema: &SchemaRef, mut block: Block, cuts: &mut VecDeque<Vec<u8>>) -> Result<()> {
        while let Some(cut) = cuts.front() {
            let before = block.seek(0, cut, false);
            if before == block.len() {
                break;
            }
            self.builder.add(block.slice(0, before))?;
            block = block.slice(before, block.len() - before);
            cuts.pop_front();
            self.next(table, schema).await?;
        }
        self.builder.add(block)?;
        if self.builder.size() >= self.sizes.file_bytes {
            self.next(table, schema).await?;
        }
        Ok(())
    }

    async fn next(&mut self, table: TableId, schema: &SchemaRef) -> Result<()> {
        let empty = SstBuilder::new(self.sizes.block_bytes)?;
        send(std::mem::replace(&mut self.builder, empty), self.files).await?;
        self.builder.start_table(table, schema)
    }

    async fn end(self) -> Result<()> {
        send(self.builder, self.files).await
    }
}

/// Hands a finished file over. Waits while earlier ones are still being put: so few are in memory at once.
async fn send(builder: SstBuilder, files: &mpsc::Sender<(Bytes, SstInfo)>) -> Result<()> {
    if let Some(file) = builder.finish(object_name())? {
        // A receiver that is gone has failed already and says why.
        let _ = files.send(file).await;
    }
    Ok(())
}
