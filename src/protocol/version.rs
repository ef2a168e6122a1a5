//! Versions: the immutable set of SSTs that committed epochs read.

use eddyline_types::{Epoch, TableId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sorted, immutable file of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SstInfo {
    /// Unique object name below the store's root; never overwritten.
    pub object: String,
    /// Size of the object.
    pub size_bytes: u64,
    /// Rows of all tables, tombstones and old versions included.
    pub rows: u64,
    /// Rows that are tombstones or were superseded when written (an estimate for the picker).
    pub tombstones: u64,
    /// Tables inside.
    pub tables: Vec<SstTable>,
    /// Smallest and largest epoch inside.
    pub epochs: (Epoch, Epoch),
}

/// The part of an SST that belongs to one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SstTable {
    /// Which table.
    pub table: TableId,
    /// First key (vnode and memcomparable key).
    pub first_key: Vec<u8>,
    /// Last key.
    pub last_key: Vec<u8>,
    /// Rows.
    pub rows: u64,
}

/// What one commit changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionDelta {
    /// New files, with the level they enter: 0 for uploads.
    pub added: Vec<(u32, SstInfo)>,
    /// Object names that leave (compaction inputs).
    pub removed: Vec<String>,
    /// Tables whose committed epoch advances.
    pub committed: Vec<(TableId, Epoch)>,
    /// Tables that are gone: their rows may be dropped by compaction, files that hold nothing else may go.
    pub dropped: Vec<TableId>,
}

/// The files and committed epochs at one point of the log. Applying the same deltas gives the same version everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Grows with every delta.
    pub id: u64,
    /// `levels[0]` is newest last and may overlap; higher levels are sorted and disjoint per table.
    pub levels: Vec<Vec<Arc<SstInfo>>>,
    /// The newest durable epoch of each table.
    pub committed: BTreeMap<TableId, Epoch>,
    /// Tables that were dropped and may still have rows in files.
    pub dropped: Vec<TableId>,
}

impl Version {
    /// The version after a delta. Files named in `removed` that are not there are an error of the caller (a compaction
    /// that lost a race): `None`, and nothing changes.
    pub fn apply(&self, delta: &VersionDelta) -> Option<Version> {
        let mut next = self.clone();
        next.id += 1;
        for name in &delta.removed {
            let found = next.levels.iter_mut().any(|level| {
                let before = level.len();
                level.retain(|sst| sst.object != *name);
                level.len() != before
            });
            if !found {
                return None;
            }
        }
        for (level, sst) in &delta.added {
            let level = *level as usize;
            if next.levels.len() <= level {
                next.levels.resize(level + 1, Vec::new());
            }
            next.levels[level].push(Arc::new(sst.clone()));
        }
        for (table, epoch) in &delta.committed {
            let slot = next.committed.entry(*table).or_default();
            *slot = (*slot).max(*epoch);
        }
        for table in &delta.dropped {
            next.committed.remove(table);
            if !next.dropped.contains(table) {
                next.dropped.push(*table);
            }
        }
        let live: std::collections::BTreeSet<TableId> = next.files().flat_map(|f| f.tables.iter().map(|t| t.table)).collect();
        next.dropped.retain(|t| live.contains(t));
        Some(next)
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = &Arc<SstInfo>> {
        self.levels.iter().flatten()
    }
}
