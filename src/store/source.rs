//! Where a merge's blocks come from: the shared buffer or a chain of files; and the loop that feeds the merge.

use crate::block::Block;
use crate::merge::{Merge, MergeOptions, Step};
use crate::sst::read::{Section, SstFile};
use arrow::datatypes::SchemaRef;
use eddyline_types::{Error, Result, TableId};
use std::collections::VecDeque;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Bytes that one request of a long scan reads.
const READ_BYTES: u64 = 1 << 20;
/// Blocks of one request at most.
const MOST_BLOCKS: usize = 256;
/// Blocks of one chain that a scan puts into the cache.
pub(crate) const KEEP_BLOCKS: usize = 16;

/// One sorted input of a merge.
pub(crate) enum Source {
    /// Blocks in memory, in order of reading.
    Memory(VecDeque<Arc<Block>>),
    /// Files of one table that follow each other.
    Files(Box<FileChain>),
}

impl Source {
    async fn next(&mut self) -> Result<Option<Arc<Block>>> {
        match self {
            Source::Memory(blocks) => Ok(blocks.pop_front()),
            Source::Files(chain) => chain.next().await,
        }
    }
}

/// Blocks of one table in files whose keys follow each other.
pub(crate) struct FileChain {
    pub table: TableId,
    /// In order of reading.
    pub files: VecDeque<Arc<SstFile>>,
    pub range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Positions in the table's schema; `None`: all.
    pub columns: Option<Arc<[usize]>>,
    /// What the table's columns must be; `None`: whatever the file says.
    pub schema: Option<SchemaRef>,
    pub reverse: bool,
    /// Blocks of the next request, doubled each time.
    pub ahead: usize,
    /// So many blocks go whole into the cache; the rest of a long scan streams past it, wanted columns only, and pushes nothing out.
    pub keep: usize,
    pub ready: VecDeque<Arc<Block>>,
    pub current: Option<(Arc<SstFile>, Arc<Section>, Range<usize>)>,
}

impl FileChain {
    async fn next(&mut self) -> Result<Option<Arc<Block>>> {
        loop {
            if let Some(block) = self.ready.pop_front() {
                return Ok(Some(block));
            }
            if self.current.as_ref().is_none_or(|(_, _, left)| left.is_empty()) {
                let Some(file) = self.files.pop_front() else { return Ok(None) };
                self.current = self.open(file).await?;
                continue;
            }
            self.fill().await?;
        }
    }

    async fn open(&self, file: Arc<SstFile>) -> Result<Option<(Arc<SstFile>, Arc<Section>, Range<usize>)>> {
        let Some(section) = file.section(self.table).await? else { return Ok(None) };
        if let Some(schema) = &self.schema {
            check_schema(self.table, &file, &section, schema)?;
        }
        let blocks = section.blocks_in(&self.range.0, &self.range.1);
        Ok(Some((file, section, blocks)))
    }

    /// Reads the next one or more blocks into `ready`.
    async fn fill(&mut self) -> Result<()> {
        let Some((file, section, left)) = &mut self.current else { return Ok(()) };
        let wanted = |block: Arc<Block>| match &self.columns {
            None => Ok(block),
            Some(columns) => project(&block, columns).map(Arc::new),
        };
        let first = if self.reverse { left.end - 1 } else { left.start };
        if let Some(block) = file.cached_block(section, first) {
            *left = if self.reverse { left.start..first } else { first + 1..left.end };
            self.keep = self.keep.saturating_sub(1);
            self.ready.push_back(wanted(block)?);
            return Ok(());
        }
        let mut total = 0;
        let mut fits = |n: &usize| {
            total += u64::from(section.index.blocks[*n].part.len);
            total <= READ_BYTES
        };
        let most = self.ahead.min(left.len());
        let count = match self.reverse {
            false => left.clone().take(most).take_while(&mut fits).count().max(1),
            true => left.clone().rev().take(most).take_while(&mut fits).count().max(1),
        };
        let numbers = if self.reverse { left.end - count..left.end } else { left.start..left.start + count };
        *left = if self.reverse { left.start..numbers.start } else { numbers.end..left.end };
        self.ahead = (self.ahead * 2).min(MOST_BLOCKS);
        let mut blocks = vec![];
        if self.keep > 0 {
            self.keep = self.keep.saturating_sub(count);
            for block in file.blocks_to_keep(self.table, section, numbers).await? {
                blocks.push(wanted(block)?);
            }
        } else {
            blocks.extend(file.blocks(self.table, section, numbers, self.columns.as_deref()).await?.into_iter().map(Arc::new));
        }
        if self.reverse {
            blocks.reverse();
        }
        self.ready.extend(blocks);
        Ok(())
    }
}

/// The wanted columns of a block.
pub(crate) fn project(block: &Block, columns: &[usize]) -> Result<Block> {
    let rows = block.rows.project(columns)?;
    Ok(Block { keys: block.keys.clone(), epochs: block.epochs.clone(), tombstones: block.tombstones.clone(), rows })
}

/// A file that has other columns than the table is not the table's.
pub(crate) fn check_schema(table: TableId, file: &SstFile, section: &Section, schema: &SchemaRef) -> Result<()> {
    let types = |s: &SchemaRef| s.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
    if section.schema.fields() != schema.fields() && types(&section.schema) != types(schema) {
        return Err(Error::corruption(format!("object \"{}\" has other columns for table {table} than its definition", file.info.object)));
    }
    Ok(())
}

/// A merge with its sources.
pub(crate) struct MergeReader {
    merge: Merge,
    sources: Vec<Source>,
}

impl MergeReader {
    pub(crate) fn new(sources: Vec<Source>, options: MergeOptions) -> Self {
        MergeReader { merge: Merge::new(sources.len(), options), sources }
    }

    /// The next rows, not empty; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Block>> {
        loop {
            match self.merge.step()? {
                Step::Out(block) => return Ok(Some(block)),
                Step::Done => return Ok(None),
                Step::Need => self.feed().await?,
            }
        }
    }

    async fn feed(&mut self) -> Result<()> {
        let needed = self.merge.take_needed();
        if let [input] = needed[..] {
            let block = self.sources[input].next().await?;
            self.merge.feed(input, block);
            return Ok(());
        }
        // At the start every input needs a block: read them side by side.
        let mut wanted: Vec<(usize, &mut Source)> = self.sources.iter_mut().enumerate().filter(|(i, _)| needed.contains(i)).collect();
        let blocks = futures::future::join_all(wanted.iter_mut().map(|(_, source)| source.next())).await;
        let inputs: Vec<usize> = wanted.iter().map(|(i, _)| *i).collect();
        for (input, block) in inputs.into_iter().zip(blocks) {
            self.merge.feed(input, block?);
        }
        Ok(())
    }
}
