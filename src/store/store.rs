//! The store's handle: what operators, readers and meta call.
//!
//! One lock guards the current version and the shared buffer; it is never held over I/O. Readers take both at once as a [`Snapshot`]
//! and then need no lock. The store decides nothing about commits: whoever calls it does.

use crate::block::{self, Block, Epochs};
use crate::buffer::{Buffers, SharedBuffer, TableBuffer};
use crate::cache::Cache;
use crate::levels::Levels;
use crate::pending::Pending;
use crate::upload::{self, Sizes, UploadTable};
use crate::{compact, garbage, picker};
use arrow::array::{BinaryArray, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use eddyline_env::{clock, spawn};
use eddyline_objects::Objects;
use eddyline_protocol::{SstInfo, TableDesc, Version, VersionDelta};
use eddyline_types::{Epoch, Error, Result, TableId};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

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
    /// Bytes of decoded blocks and of file metadata kept in memory.
    pub block_cache_bytes: usize,
    /// Writers wait when the shared buffer holds more.
    pub shared_buffer_bytes: usize,
    /// Files are ended at about this size.
    pub file_size_bytes: usize,
    /// Unreferenced objects that are younger are left alone: another node may be about to commit them.
    pub garbage_age_ms: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            block_size_bytes: 64 << 10,
            block_cache_bytes: 256 << 20,
            shared_buffer_bytes: 512 << 20,
            file_size_bytes: 64 << 20,
            garbage_age_ms: 10 * 60 * 1000,
        }
    }
}

/// The longest that [`Store::admit`] holds a writer: one stuck domain must not stop the others for ever, memory is guarded elsewhere too.
const ADMIT_DEADLINE: Duration = Duration::from_secs(10);

/// See the crate's documentation. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub objects: Objects,
    pub config: StoreConfig,
    pub cache: Cache,
    pub pending: Pending,
    /// Held by the one compaction that runs.
    compacting: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// The buffer shrank.
    admitted: Notify,
    /// The node ends: compactions give up.
    pub closing: Arc<AtomicBool>,
    /// Held by every encoder on a blocking thread.
    encoders: Arc<()>,
}

struct State {
    levels: Arc<Levels>,
    tables: Arc<BTreeMap<TableId, SchemaRef>>,
    buffer: SharedBuffer,
    /// Versions that readers may still hold.
    pins: Vec<Weak<Levels>>,
}

/// A pinned view of the store: a version and the shared buffer at one moment. Files of the version are not deleted while it lives.
#[derive(Clone)]
pub struct Snapshot {
    levels: Arc<Levels>,
    tables: Arc<BTreeMap<TableId, SchemaRef>>,
    buffers: Buffers,
}

impl Store {
    /// Opens a store over an object store, reading `version` (from meta's state). Does no I/O beyond what is needed to use it.
    pub async fn open(objects: Objects, config: StoreConfig, version: Arc<Version>) -> Result<Self> {
        let cache = Cache::new(config.block_cache_bytes);
        let levels = Arc::new(Levels::open(version, None, &objects, &cache));
        let mut buffer = SharedBuffer::default();
        for (table, epoch) in &levels.version.committed {
            buffer.committed(*table, *epoch);
        }
        let state = State { levels, tables: Arc::default(), buffer, pins: vec![] };
        let inner = Inner {
            objects,
            config,
            cache,
            pending: Pending::default(),
            compacting: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
            admitted: Notify::new(),
            closing: Arc::default(),
            encoders: Arc::default(),
        };
        Ok(Store { inner: Arc::new(inner) })
    }

    /// Makes a table known; idempotent. Must come before writes to it and reads of it.
    pub fn register(&self, table: &TableDesc) {
        let mut state = self.inner.state.lock();
        if state.tables.get(&table.id) != Some(&table.schema) {
            Arc::make_mut(&mut state.tables).insert(table.id, table.schema.clone());
        }
    }

    /// Puts an operator's changes of an epoch into the shared buffer, readable at once at `epoch` and later.
    /// Several writes of one table and epoch are allowed if their keys are disjoint (shards own different vnodes).
    pub fn write(&self, epoch: Epoch, write: TableWrite) -> Result<()> {
        block::check_write(&write.keys, &write.rows, write.tombstones.as_ref())?;
        if write.rows.num_rows() == 0 {
            return Ok(());
        }
        let tombstones = write.tombstones.map(|t| t.values().clone()).filter(|t| t.count_set_bits() > 0);
        let block = Block { keys: write.keys, epochs: Epochs::Same(epoch), tombstones, rows: write.rows };
        let mut state = self.inner.state.lock();
        let schema = state.tables.get(&write.table).ok_or_else(|| unknown(write.table))?;
        if schema.fields() != block.rows.schema().fields() {
            return Err(Error::internal(format!("a write to table {} has other columns than the table", write.table)));
        }
        state.buffer.write(write.table, epoch, block)?;
        metrics::gauge!("eddyline_store_buffer_bytes").set(state.buffer.bytes as f64);
        Ok(())
    }

    /// Makes compactions give up and waits until no file is being encoded, so that the runtime may end; `false`: not within `wait`.
    pub async fn close(&self, wait: Duration) -> bool {
        self.inner.closing.store(true, Ordering::Relaxed);
        let deadline = clock::now() + wait;
        while Arc::strong_count(&self.inner.encoders) > 1 {
            if clock::now() >= deadline {
                return false;
            }
            clock::sleep(Duration::from_millis(5)).await;
        }
        true
    }

    /// Waits while the shared buffer is over its limit (operators call it between epochs, never within), at most some seconds.
    pub async fn admit(&self) {
        let deadline = clock::now() + ADMIT_DEADLINE;
        loop {
            let freed = self.inner.admitted.notified();
            if self.inner.state.lock().buffer.bytes <= self.inner.config.shared_buffer_bytes {
                return;
            }
            metrics::counter!("eddyline_store_write_stalls_total").increment(1);
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() || clock::timeout(left, freed).await.is_none() {
                tracing::warn!("the shared buffer is over its limit for {ADMIT_DEADLINE:?}; writers go on");
                return;
            }
        }
    }

    /// Writes all that the tables have buffered up to `epoch` into SSTs, durably. Rows of one key are merged: only the newest at or
    /// below `epoch` is kept. The buffer stays readable until the delta is installed. Nothing buffered: a delta without files.
    ///
    /// Several uploads of a table may run at once, in increasing epochs; their deltas must be committed in that order. When one fails,
    /// those after it fail too, and a later one takes the rows of all of them.
    pub async fn upload(&self, tables: &[TableId], epoch: Epoch) -> Result<VersionDelta> {
        let start = clock::now();
        let (shares, levels) = {
            let mut state = self.inner.state.lock();
            (state.buffer.seal(tables, epoch)?, state.levels.clone())
        };
        let tickets: Vec<_> = shares.iter().map(|s| s.ticket()).collect();
        let committed = shares.iter().map(|s| (s.table, epoch)).collect();
        let shares = shares.into_iter().map(|s| {
            let has_files = levels.table(s.table).is_some();
            UploadTable::new(s, has_files)
        });
        let shares: Vec<_> = shares.filter(|s| !s.blocks.is_empty()).collect();
        let mut guard = UploadGuard { store: self, tickets: Some(&tickets) };
        let files = if shares.is_empty() { vec![] } else { self.put_upload(shares, epoch).await? };
        guard.tickets = None;
        if let Err(error) = self.inner.state.lock().buffer.uploaded(&tickets, epoch) {
            self.inner.pending.forget(files.iter().map(|f| f.object.as_str()));
            return Err(error);
        }
        metrics::histogram!("eddyline_store_upload_seconds").record(clock::now().duration_since(start).as_secs_f64());
        Ok(VersionDelta { added: files.into_iter().map(|f| (0, f)).collect(), committed, ..VersionDelta::default() })
    }

    async fn put_upload(&self, shares: Vec<UploadTable>, epoch: Epoch) -> Result<Vec<SstInfo>> {
        let sizes = self.inner.sizes();
        self.inner.put_files(vec![], move |files| upload::encode(shares, epoch, sizes, files)).await
    }

    /// Makes a committed version readable and forgets buffered writes that it covers. Versions come in increasing ids.
    pub fn install(&self, version: Arc<Version>) {
        let previous = self.inner.state.lock().levels.clone();
        if version.id <= previous.version.id && version.id != 0 {
            return;
        }
        let levels = Arc::new(Levels::open(version.clone(), Some(&previous), &self.inner.objects, &self.inner.cache));
        let mut state = self.inner.state.lock();
        // Another install may have come in between.
        if version.id <= state.levels.version.id && version.id != 0 {
            return;
        }
        for (table, epoch) in &version.committed {
            state.buffer.committed(*table, *epoch);
        }
        state.pins.retain(|pin| pin.strong_count() > 0);
        let old = std::mem::replace(&mut state.levels, levels);
        state.pins.push(Arc::downgrade(&old));
        metrics::gauge!("eddyline_store_buffer_bytes").set(state.buffer.bytes as f64);
        drop(state);
        self.inner.pending.installed(&version);
        self.inner.admitted.notify_waiters();
        observe_version(&version);
    }

    /// Forgets what the tables have buffered and not committed (their domain was rolled back). Uploads of them that still run will fail.
    pub fn discard(&self, tables: &[TableId]) {
        {
            let mut state = self.inner.state.lock();
            for table in tables {
                state.buffer.discard(*table);
            }
            metrics::gauge!("eddyline_store_buffer_bytes").set(state.buffer.bytes as f64);
        }
        self.inner.pending.discarded(tables);
        self.inner.admitted.notify_waiters();
    }

    /// Pins the current version and buffer.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.inner.state.lock();
        Snapshot { levels: state.levels.clone(), tables: state.tables.clone(), buffers: state.buffer.buffers.clone() }
    }

    /// Bytes in the shared buffer.
    pub fn buffered_bytes(&self) -> usize {
        self.inner.state.lock().buffer.bytes
    }

    /// Bytes of decoded blocks and metadata in memory.
    pub fn cached_bytes(&self) -> usize {
        self.inner.cache.usage_bytes()
    }

    /// Does one compaction if the picker finds one; `None`: nothing to do. The delta is to be committed and installed.
    /// Superseded versions are dropped below the oldest epoch that a reader or a table's committed epoch needs.
    ///
    /// One compaction runs at a time, and the next starts when its delta was installed or [`abandoned`](Store::abandon).
    pub async fn compact_once(&self) -> Result<Option<VersionDelta>> {
        let Ok(_running) = self.inner.compacting.try_lock() else { return Ok(None) };
        if self.inner.pending.compacting() {
            return Ok(None);
        }
        let levels = self.inner.state.lock().levels.clone();
        match picker::pick(&levels.version, self.inner.config.file_size_bytes as u64) {
            None => Ok(None),
            Some(task) => compact::run(&self.inner, levels, task).await.map(Some),
        }
    }

    /// A delta of this store will not be committed (it lost a race): its files are garbage, and their inputs may be compacted again.
    pub fn abandon(&self, delta: &VersionDelta) {
        self.inner.pending.forget(delta.added.iter().map(|(_, f)| f.object.as_str()));
    }

    /// Deletes objects that no version since the oldest pin, no buffer and no running task names, and that are older than an age floor.
    /// Returns how many.
    pub async fn collect_garbage(&self) -> Result<usize> {
        garbage::collect(&self.inner).await
    }
}

/// Takes an upload back if it fails or is dropped half-way.
struct UploadGuard<'a> {
    store: &'a Store,
    tickets: Option<&'a [(TableId, u64)]>,
}

impl Drop for UploadGuard<'_> {
    fn drop(&mut self) {
        if let Some(tickets) = self.tickets {
            self.store.inner.state.lock().buffer.failed(tickets);
        }
    }
}

/// Files put by a task that has not succeeded yet: if it fails or is dropped, they are garbage.
struct Written<'a> {
    pending: &'a Pending,
    files: Vec<SstInfo>,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        self.pending.forget(self.files.iter().map(|f| f.object.as_str()));
    }
}

impl Inner {
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { block_bytes: self.config.block_size_bytes, file_bytes: self.config.file_size_bytes }
    }

    /// Runs an encoder on a blocking thread and puts its files as they come. Few are in memory at once. `inputs`: files they replace.
    pub(crate) async fn put_files(
        &self,
        inputs: Vec<String>,
        encode: impl FnOnce(&mpsc::Sender<(Bytes, SstInfo)>) -> Result<()> + Send + 'static,
    ) -> Result<Vec<SstInfo>> {
        let (sender, mut receiver) = mpsc::channel(1);
        let running = self.encoders.clone();
        let encoder = spawn::blocking(move || {
            let _running = running;
            encode(&sender)
        });
        let mut written = Written { pending: &self.pending, files: vec![] };
        let put = async {
            while let Some((bytes, info)) = receiver.recv().await {
                self.pending.add(&info, &inputs);
                metrics::counter!("eddyline_store_written_bytes_total").increment(info.size_bytes);
                metrics::counter!("eddyline_store_written_rows_total").increment(info.rows);
                let object = info.object.clone();
                written.files.push(info);
                self.objects.put(&object, bytes).await?;
            }
            Ok(())
        }
        .await;
        drop(receiver);
        let encoded = encoder.await.unwrap_or_else(|e| Err(Error::internal(format!("the encoder of a file ended: {e}"))));
        put.and(encoded)?;
        Ok(std::mem::take(&mut written.files))
    }

    /// The current version, and those that readers hold.
    pub(crate) fn live_levels(&self) -> Vec<Arc<Levels>> {
        let state = self.state.lock();
        state.pins.iter().filter_map(Weak::upgrade).chain([state.levels.clone()]).collect()
    }
}

impl Snapshot {
    /// Rows of a table at an epoch, in key order, as batches of up to a few thousand rows. Tombstones and newer rows are not shown.
    /// An epoch below the table's committed one (a commit came in between) is an error of kind `Conflict`: read the frontier again.
    pub fn scan(&self, table: TableId, epoch: Epoch, options: ScanOptions) -> BoxStream<'static, Result<RecordBatch>> {
        crate::scan::scan(self.clone(), table, epoch, options)
    }

    /// Rows of the given table keys at an epoch (any order, duplicates allowed): for each found key its position in `keys`, and its row. Positions ascend.
    pub async fn get(
        &self,
        table: TableId,
        epoch: Epoch,
        keys: &BinaryArray,
        columns: Option<&[usize]>,
    ) -> Result<(Vec<usize>, RecordBatch)> {
        crate::get::get(self, table, epoch, keys, columns).await
    }

    /// The version that is pinned.
    pub fn version(&self) -> &Arc<Version> {
        &self.levels.version
    }

    /// The newest durable epoch of a table in this snapshot; zero if it has none. Reads must be at or above it.
    pub fn committed(&self, table: TableId) -> Epoch {
        self.levels.committed(table)
    }

    pub(crate) fn levels(&self) -> &Levels {
        &self.levels
    }

    pub(crate) fn buffer(&self, table: TableId) -> Option<&Arc<TableBuffer>> {
        self.buffers.get(&table)
    }

    /// The table's schema, if it can be read at the epoch.
    pub(crate) fn check(&self, table: TableId, epoch: Epoch) -> Result<SchemaRef> {
        let committed = self.committed(table);
        if epoch < committed {
            return Err(crate::scan::too_old(table, epoch, committed));
        }
        self.tables.get(&table).cloned().ok_or_else(|| unknown(table))
    }
}

fn unknown(table: TableId) -> Error {
    Error::internal(format!("table {table} was not registered with the store"))
}

fn observe_version(version: &Version) {
    for (level, files) in version.levels.iter().enumerate() {
        let bytes: u64 = files.iter().map(|f| f.size_bytes).sum();
        metrics::gauge!("eddyline_store_files", "level" => level.to_string()).set(files.len() as f64);
        metrics::gauge!("eddyline_store_bytes", "level" => level.to_string()).set(bytes as f64);
    }
}
