//! The store's handle: what operators, readers and meta call.

use arrow::array::{BinaryArray, BooleanArray, RecordBatch};
use eddyline_protocol::{TableDesc, Version, VersionDelta};
use eddyline_types::{Epoch, Result, TableId};
use futures::stream::BoxStream;
use std::ops::Bound;
use std::sync::Arc;

/// What one operator changed in one table in one epoch.
#[derive(Clone, Debug)]
pub struct TableWrite {
    /// Which table; it must have been registered.
    pub table: TableId,
    /// Table keys (vnode and memcomparable key), strictly ascending.
    pub keys: BinaryArray,
    /// The new row of each key, with the table's schema. Of a tombstone only the length counts (columns may be anything, e.g. the old row).
    pub rows: RecordBatch,
    /// True where the row is deleted; `None`: no deletes.
    pub tombstones: Option<BooleanArray>,
}

/// How to read.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Range of table keys (vnode and memcomparable key).
    pub range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Columns wanted (positions in the table's schema); `None`: all.
    pub columns: Option<Vec<usize>>,
    /// Descending key order.
    pub reverse: bool,
    /// Stop after so many rows.
    pub limit: Option<usize>,
    /// Also return the table keys, as a last column `_key` of type Binary.
    pub with_keys: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        ScanOptions { range: (Bound::Unbounded, Bound::Unbounded), columns: None, reverse: false, limit: None, with_keys: false }
    }
}

/// Settings, resolved.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Uncompressed size of a block.
    pub block_size_bytes: usize,
    /// Bytes of decoded blocks kept in memory.
    pub block_cache_bytes: usize,
    /// Writers wait when the shared buffer holds more.
    pub shared_buffer_bytes: usize,
}

/// See the crate's documentation. Cheap to clone.
#[derive(Clone)]
pub struct Store;

/// A pinned view of the store: a version and the shared buffer at one moment. Files of the version are not deleted while it lives.
#[derive(Clone)]
pub struct Snapshot;

#[allow(unused_variables)]
impl Store {
    /// Opens a store over an object store, reading `version` (from meta's state). Does no I/O beyond what is needed to use it.
    pub async fn open(objects: eddyline_objects::Objects, config: StoreConfig, version: Arc<Version>) -> Result<Self> {
        Err(eddyline_types::Error::internal("not written yet"))
    }

    /// Makes a table known; idempotent. Must come before writes to it and reads of it.
    pub fn register(&self, table: &TableDesc) {}

    /// Puts an operator's changes of an epoch into the shared buffer, readable at once at `epoch` and later.
    /// Several writes of one table and epoch are allowed if their keys are disjoint (shards own different vnodes).
    pub fn write(&self, epoch: Epoch, write: TableWrite) -> Result<()> {
        Ok(())
    }

    /// Waits while the shared buffer is over its limit (operators call it between epochs, never within).
    pub async fn admit(&self) {}

    /// Writes all that the tables have buffered up to `epoch` into SSTs, durably. Rows of one key are merged: only the newest at or
    /// below `epoch` is kept. The buffer stays readable until the delta is installed. Nothing buffered: a delta without files.
    pub async fn upload(&self, tables: &[TableId], epoch: Epoch) -> Result<VersionDelta> {
        Err(eddyline_types::Error::internal("not written yet"))
    }

    /// Makes a committed version readable and forgets buffered writes that it covers. Versions come in increasing ids.
    pub fn install(&self, version: Arc<Version>) {}

    /// Forgets what the tables have buffered and not committed (their domain was rolled back).
    pub fn discard(&self, tables: &[TableId]) {}

    /// Pins the current version and buffer.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot
    }

    /// Does one compaction if the picker finds one; `None`: nothing to do. The delta is to be committed and installed.
    /// Superseded versions are dropped below the oldest epoch that a reader or a table's committed epoch needs.
    pub async fn compact_once(&self) -> Result<Option<VersionDelta>> {
        Ok(None)
    }

    /// Deletes objects that no version since the oldest pin, no buffer and no running task names, and that are older than an age floor.
    /// Returns how many.
    pub async fn collect_garbage(&self) -> Result<usize> {
        Ok(0)
    }
}

#[allow(unused_variables)]
impl Snapshot {
    /// Rows of a table at an epoch, in key order, as batches of up to a few thousand rows. Tombstones and newer rows are not shown.
    pub fn scan(&self, table: TableId, epoch: Epoch, options: ScanOptions) -> BoxStream<'static, Result<RecordBatch>> {
        Box::pin(futures::stream::empty())
    }

    /// Rows of the given table keys at an epoch (any order, duplicates allowed): for each found key its position in `keys`, and its row. Positions ascend.
    pub async fn get(
        &self,
        table: TableId,
        epoch: Epoch,
        keys: &BinaryArray,
        columns: Option<&[usize]>,
    ) -> Result<(Vec<usize>, RecordBatch)> {
        Err(eddyline_types::Error::internal("not written yet"))
    }
}
