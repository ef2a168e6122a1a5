//! How a task answers its operators' requests for state: scans and point reads of the store, within the shard's vnodes.
//!
//! On arbiters the I/O runs on the shared runtime, a few batches ahead, so that neither waiting nor decoding holds the arbiter;
//! in the deterministic loop it runs in the task itself.

use crate::operators::{StateRequest, StateRows};
use arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch, UInt64Array};
use arrow::compute;
use eddyline_env::spawn;
use eddyline_protocol::TableDesc;
use eddyline_store::{ScanOptions, Store};
use eddyline_types::{Epoch, Error, Result, TableId, VNode};
use futures::stream::{BoxStream, StreamExt};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Batches that a scan on the shared runtime may be ahead.
const SCAN_AHEAD: usize = 4;

/// Reads the state of one shard.
pub struct StateReader {
    store: Store,
    tables: BTreeMap<TableId, Arc<TableDesc>>,
    vnodes: Range<VNode>,
    inline: bool,
    /// The epoch that the shard started from.
    pub base: Epoch,
    /// The last barrier that the shard passed.
    pub last_barrier: Epoch,
    /// The last checkpoint that the shard passed.
    pub last_checkpoint: Epoch,
}

impl StateReader {
    /// A reader of `tables` for the shard that owns `vnodes`, starting from `base`. `inline`: no I/O on the shared runtime.
    pub fn new(store: Store, tables: BTreeMap<TableId, Arc<TableDesc>>, vnodes: Range<VNode>, inline: bool, base: Epoch) -> Self {
        StateReader { store, tables, vnodes, inline, base, last_barrier: base, last_checkpoint: base }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A table that the shard knows.
    pub fn table(&self, id: TableId) -> Result<&Arc<TableDesc>> {
        self.tables.get(&id).ok_or_else(|| Error::internal(format!("table {id} is not a table of this job")))
    }

    /// The answer to a request, in one or more parts; the last one says so.
    pub async fn answer(&self, request: StateRequest) -> Result<BoxStream<'static, Result<StateRows>>> {
        match request {
            StateRequest::Load(table) => self.load(table),
            StateRequest::Read { table, position, limit } => {
                let rows = self.read(table, position, limit).await?;
                Ok(futures::stream::once(async { Ok(rows) }).boxed())
            }
            StateRequest::Get { table, keys } => {
                let rows = self.get(table, keys).await?;
                Ok(futures::stream::once(async { Ok(rows) }).boxed())
            }
        }
    }

    fn load(&self, table: TableId) -> Result<BoxStream<'static, Result<StateRows>>> {
        let desc = self.table(table)?;
        let end = StateRows { table, rows: RecordBatch::new_empty(desc.schema.clone()), keys: None, last: true };
        let end = futures::stream::once(async { Ok(end) });
        if self.base == Epoch::ZERO {
            return Ok(end.boxed());
        }
        let rows = self.scan(table, self.base, ScanOptions { range: self.range(None), ..ScanOptions::default() });
        Ok(rows.map(move |batch| batch.map(|rows| StateRows { table, rows, keys: None, last: false })).chain(end).boxed())
    }

    async fn read(&self, table: TableId, position: Option<Vec<u8>>, limit: usize) -> Result<StateRows> {
        let desc = self.table(table)?.clone();
        let options = ScanOptions { range: self.range(position), limit: Some(limit), with_keys: true, ..ScanOptions::default() };
        let mut scan = self.scan(table, self.last_barrier, options);
        let (mut batches, mut keys) = (Vec::new(), Vec::new());
        while let Some(batch) = scan.next().await {
            let batch = batch?;
            let columns = batch.num_columns() - 1;
            keys.push(batch.column(columns).clone());
            batches.push(batch.project(&(0..columns).collect::<Vec<_>>())?.with_schema(desc.schema.clone())?);
        }
        let rows = compute::concat_batches(&desc.schema, &batches)?;
        let keys = match keys.as_slice() {
            [] => BinaryArray::from_iter_values(std::iter::empty::<&[u8]>()),
            keys => binary(compute::concat(&keys.iter().map(|k| k.as_ref() as &dyn Array).collect::<Vec<_>>())?)?,
        };
        let last = rows.num_rows() < limit;
        Ok(StateRows { table, rows, keys: Some(keys), last })
    }

    async fn get(&self, table: TableId, keys: BinaryArray) -> Result<StateRows> {
        let desc = self.table(table)?;
        if self.last_checkpoint == Epoch::ZERO || keys.is_empty() {
            let none = BinaryArray::from_iter_values(std::iter::empty::<&[u8]>());
            return Ok(StateRows { table, rows: RecordBatch::new_empty(desc.schema.clone()), keys: Some(none), last: true });
        }
        let (snapshot, epoch) = (self.store.snapshot(), self.last_checkpoint);
        let read = async move {
            let (found, rows) = snapshot.get(table, epoch, &keys, None).await?;
            let found = UInt64Array::from_iter_values(found.into_iter().map(|p| p as u64));
            Ok::<_, Error>((binary(compute::take(&keys, &found, None)?)?, rows))
        };
        let (keys, rows) = if self.inline {
            read.await?
        } else {
            spawn::task("state-get", read).await.map_err(|e| Error::internal(format!("a state read ended: {e}")))??
        };
        Ok(StateRows { table, rows, keys: Some(keys), last: true })
    }

    /// All rows of a table of this job, whatever vnode they are on (source offsets).
    pub fn scan_all(&self, table: TableId) -> BoxStream<'static, Result<RecordBatch>> {
        if self.base == Epoch::ZERO {
            return futures::stream::empty().boxed();
        }
        self.scan(table, self.base, ScanOptions::default())
    }

    fn range(&self, position: Option<Vec<u8>>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let start = match position {
            Some(position) => Bound::Excluded(position),
            None => Bound::Included(self.vnodes.start.to_be_bytes().to_vec()),
        };
        (start, Bound::Excluded(self.vnodes.end.to_be_bytes().to_vec()))
    }

    fn scan(&self, table: TableId, epoch: Epoch, options: ScanOptions) -> BoxStream<'static, Result<RecordBatch>> {
        let mut scan = self.store.snapshot().scan(table, epoch, options);
        if self.inline {
            return scan;
        }
        let (tx, rx) = tokio::sync::mpsc::channel(SCAN_AHEAD);
        // Ends when the scan does, or when the task no longer listens.
        spawn::task("state-scan", async move {
            while let Some(batch) = scan.next().await {
                if tx.send(batch).await.is_err() {
                    return;
                }
            }
        });
        futures::stream::unfold(rx, |mut rx| async { rx.recv().await.map(|batch| (batch, rx)) }).boxed()
    }
}

fn binary(array: ArrayRef) -> Result<BinaryArray> {
    array.as_any().downcast_ref::<BinaryArray>().cloned().ok_or_else(|| Error::internal("keys are not binary"))
}
