//! The shared buffer: what operators wrote and no installed version covers yet.
//!
//! Pure bookkeeping, driven under the store's lock: which epochs of a table wait, which are being uploaded, which uploads succeeded.
//! Invariant: uploads of a table cover disjoint, increasing spans of epochs, and one that fails takes all later ones of the table with it.

use crate::block::Block;
use eddyline_types::{Epoch, Error, ErrorKind, Result, SqlState, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The buffered blocks of one table, by epoch. Blocks of one epoch have disjoint keys.
#[derive(Clone, Default)]
pub(crate) struct TableBuffer {
    pub epochs: BTreeMap<Epoch, Vec<Arc<Block>>>,
}

impl TableBuffer {
    /// Blocks at or below an epoch, newest first.
    pub(crate) fn newest_first(&self, epoch: Epoch) -> impl Iterator<Item = &Arc<Block>> {
        self.epochs.range(..=epoch).rev().flat_map(|(_, blocks)| blocks)
    }

    fn bytes(&self) -> usize {
        self.epochs.values().flatten().map(|b| b.memory_bytes()).sum()
    }
}

/// All tables' buffers; shared with snapshots and copied when one is alive.
pub(crate) type Buffers = Arc<BTreeMap<TableId, Arc<TableBuffer>>>;

/// How far the uploads of one table are.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Covered by the installed version.
    committed: Epoch,
    /// Covered by uploads that succeeded.
    uploaded: Epoch,
    /// Given to uploads, finished or not.
    sealed: Epoch,
    /// Uploads above `uploaded`, in order; true: it succeeded but one before it has not.
    running: Vec<(Epoch, bool)>,
    /// Grows with every failure and discard: an upload of an earlier generation is void.
    generation: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct SharedBuffer {
    pub buffers: Buffers,
    progress: BTreeMap<TableId, Progress>,
    pub bytes: usize,
}

/// A table's share of an upload.
pub(crate) struct Sealed {
    pub table: TableId,
    /// Oldest epoch first.
    pub blocks: Vec<Arc<Block>>,
    /// An earlier upload of the table has not been installed yet.
    pub behind: bool,
    generation: u64,
}

impl SharedBuffer {
    /// Takes a write. Its epoch must be above what is committed or being uploaded.
    pub(crate) fn write(&mut self, table: TableId, epoch: Epoch, block: Block) -> Result<()> {
        let progress = self.progress.entry(table).or_default();
        if epoch <= progress.committed || epoch <= progress.sealed {
            let closed = progress.committed.max(progress.sealed);
            return Err(Error::internal(format!("table {table} was written at epoch {epoch}, but {closed} is closed")));
        }
        self.bytes += block.memory_bytes();
        let buffers = Arc::make_mut(&mut self.buffers);
        let buffer = Arc::make_mut(buffers.entry(table).or_default());
        buffer.epochs.entry(epoch).or_default().push(Arc::new(block));
        Ok(())
    }

    /// Gives an upload what the tables have up to `epoch` and no earlier upload has. Ascending table ids, each once.
    pub(crate) fn seal(&mut self, tables: &[TableId], epoch: Epoch) -> Result<Vec<Sealed>> {
        let mut tables = tables.to_vec();
        tables.sort_unstable();
        tables.dedup();
        for table in &tables {
            let progress = self.progress.entry(*table).or_default();
            if epoch <= progress.committed || epoch <= progress.sealed {
                return Err(Error::internal(format!("epoch {epoch} of table {table} was uploaded before")));
            }
        }
        Ok(tables.into_iter().map(|table| self.seal_table(table, epoch)).collect())
    }

    fn seal_table(&mut self, table: TableId, epoch: Epoch) -> Sealed {
        let progress = self.progress.entry(table).or_default();
        let from = progress.sealed.max(progress.committed);
        let behind = from > progress.committed;
        progress.sealed = epoch;
        progress.running.push((epoch, false));
        let range = (std::ops::Bound::Excluded(from), std::ops::Bound::Included(epoch));
        let blocks = self.buffers.get(&table).map(|b| b.epochs.range(range).flat_map(|(_, blocks)| blocks.clone()).collect());
        Sealed { table, blocks: blocks.unwrap_or_default(), behind, generation: progress.generation }
    }

    /// An upload succeeded. An error if it was made void meanwhile.
    pub(crate) fn uploaded(&mut self, sealed: &[(TableId, u64)], epoch: Epoch) -> Result<()> {
        if sealed.iter().any(|(table, generation)| self.progress.get(table).is_none_or(|p| p.generation != *generation)) {
            return Err(Error::new(
                ErrorKind::Conflict,
                SqlState::SERIALIZATION_FAILURE,
                "the upload was overtaken by a rollback or an earlier upload's failure",
            ));
        }
        for (table, _) in sealed {
            let Some(progress) = self.progress.get_mut(table) else { continue };
            if let Some(run) = progress.running.iter_mut().find(|(e, _)| *e == epoch) {
                run.1 = true;
            }
            while progress.running.first().is_some_and(|(_, done)| *done) {
                progress.uploaded = progress.running.remove(0).0;
            }
        }
        Ok(())
    }

    /// An upload failed: it and all later ones of its tables are void, and the next one takes their rows.
    pub(crate) fn failed(&mut self, sealed: &[(TableId, u64)]) {
        for (table, generation) in sealed {
            if let Some(progress) = self.progress.get_mut(table).filter(|p| p.generation == *generation) {
                progress.generation += 1;
                progress.running.clear();
                progress.sealed = progress.uploaded.max(progress.committed);
            }
        }
    }

    /// A version is installed: forgets what it covers.
    pub(crate) fn committed(&mut self, table: TableId, epoch: Epoch) {
        let progress = self.progress.entry(table).or_default();
        if epoch <= progress.committed {
            return;
        }
        progress.committed = epoch;
        progress.uploaded = progress.uploaded.max(epoch);
        progress.sealed = progress.sealed.max(epoch);
        progress.running.retain(|(e, _)| *e > epoch);
        if self.buffers.get(&table).is_none_or(|b| b.epochs.first_key_value().is_none_or(|(first, _)| *first > epoch)) {
            return;
        }
        let buffers = Arc::make_mut(&mut self.buffers);
        if let Some(buffer) = buffers.get_mut(&table) {
            let buffer = Arc::make_mut(buffer);
            let kept = buffer.epochs.split_off(&Epoch(epoch.0.saturating_add(1)));
            self.bytes -= std::mem::replace(buffer, TableBuffer { epochs: kept }).bytes();
            if buffer.epochs.is_empty() {
                buffers.remove(&table);
            }
        }
    }

    /// A table was rolled back: forgets all that is not committed.
    pub(crate) fn discard(&mut self, table: TableId) {
        if let Some(progress) = self.progress.get_mut(&table) {
            progress.generation += 1;
            progress.running.clear();
            progress.uploaded = progress.committed;
            progress.sealed = progress.committed;
        }
        if self.buffers.contains_key(&table)
            && let Some(buffer) = Arc::make_mut(&mut self.buffers).remove(&table)
        {
            self.bytes -= buffer.bytes();
        }
    }
}

impl Sealed {
    /// What names this share when the upload ends.
    pub(crate) fn ticket(&self) -> (TableId, u64) {
        (self.table, self.generation)
    }
}
