//! Plays the task of one operator: answers its requests from tables in memory, keeps what was durable at the last checkpoint, and can crash.

use crate::operators::{OpContext, Operator, StateRequest, StateRows, Step};
use arrow::array::{Array, BinaryArray, RecordBatch};
use arrow::compute;
use eddyline_protocol::{Barrier, BarrierKind, ErrorRecord, TableDesc};
use eddyline_store::TableWrite;
use eddyline_types::{Chunk, DomainId, Epoch, TableId};
use std::collections::BTreeMap;

/// Rows by table key.
pub type Rows = BTreeMap<Vec<u8>, RecordBatch>;

/// Tables in memory.
#[derive(Clone, Default)]
pub struct Tables {
    descs: BTreeMap<TableId, TableDesc>,
    rows: BTreeMap<TableId, Rows>,
}

impl Tables {
    pub fn new(descs: impl IntoIterator<Item = TableDesc>) -> Self {
        Tables { descs: descs.into_iter().map(|d| (d.id, d)).collect(), rows: BTreeMap::new() }
    }

    pub fn desc(&self, id: TableId) -> TableDesc {
        self.descs[&id].clone()
    }

    pub fn apply(&mut self, write: &TableWrite) {
        let desc = &self.descs[&write.table];
        assert_eq!(write.rows.schema(), desc.schema, "rows of {} have its schema", desc.name);
        assert_eq!(write.keys.len(), write.rows.num_rows());
        let rows = self.rows.entry(write.table).or_default();
        for i in 0..write.keys.len() {
            assert!(i == 0 || write.keys.value(i - 1) < write.keys.value(i), "keys written to {} ascend", desc.name);
            if write.tombstones.as_ref().is_some_and(|t| t.value(i)) {
                rows.remove(write.keys.value(i));
            } else {
                rows.insert(write.keys.value(i).to_vec(), write.rows.slice(i, 1));
            }
        }
    }

    pub fn batch(&self, id: TableId) -> RecordBatch {
        self.page(id, None, usize::MAX).rows
    }

    pub fn page(&self, id: TableId, position: Option<&[u8]>, limit: usize) -> StateRows {
        let empty = Rows::new();
        let rows = self.rows.get(&id).unwrap_or(&empty);
        let after: Vec<_> = rows.iter().filter(|(k, _)| position.is_none_or(|p| k.as_slice() > p)).collect();
        let last = after.len() <= limit;
        let taken: Vec<_> = after.into_iter().take(limit).collect();
        let batch = compute::concat_batches(&self.descs[&id].schema, taken.iter().map(|(_, r)| *r)).unwrap();
        let keys = BinaryArray::from_iter_values(taken.iter().map(|(k, _)| k.as_slice()));
        StateRows { table: id, rows: batch, keys: Some(keys), last }
    }
}

/// See the module's documentation.
pub struct Driver {
    make: Box<dyn Fn(&Tables) -> Box<dyn Operator>>,
    operator: Box<dyn Operator>,
    pub tables: Tables,
    durable: Tables,
    pub errors: Vec<ErrorRecord>,
    pub writes: Vec<TableWrite>,
    epoch: u64,
    /// Rows of a backfill's page, whatever it asks for.
    pub page_rows: usize,
}

impl Driver {
    /// Builds the operator and lets it load; the first barrier is still to come.
    pub fn new(tables: Tables, make: impl Fn(&Tables) -> Box<dyn Operator> + 'static) -> Self {
        let operator = make(&tables);
        let durable = tables.clone();
        let make = Box::new(make);
        let mut driver = Driver {
            make,
            operator,
            tables,
            durable,
            errors: Vec::new(),
            writes: Vec::new(),
            epoch: Epoch::from_millis(1_800_000_000_000).0,
            page_rows: 3,
        };
        let out = driver.run();
        assert!(out.is_empty(), "nothing is emitted while loading");
        driver
    }

    /// The same, after an initial barrier.
    pub fn started(tables: Tables, make: impl Fn(&Tables) -> Box<dyn Operator> + 'static) -> Self {
        let mut driver = Self::new(tables, make);
        driver.initial();
        driver
    }

    pub fn initial(&mut self) {
        let out = self.barrier(BarrierKind::Initial);
        assert!(out.is_empty() && self.writes.is_empty(), "an initial barrier emits and writes nothing");
    }

    fn run(&mut self) -> Vec<Chunk> {
        let mut out = Vec::new();
        let mut cx = OpContext::default();
        loop {
            match self.operator.step(&mut cx).unwrap() {
                Step::Done => break,
                Step::Emit(chunk) => {
                    assert!(!chunk.is_empty() && chunk.num_rows() <= 8192, "chunks are bounded");
                    out.push(chunk);
                }
                Step::Need(requests) => {
                    for request in requests {
                        self.answer(request, &mut cx);
                    }
                }
            }
        }
        self.take(cx);
        out
    }

    fn take(&mut self, cx: OpContext) {
        self.errors.extend(cx.errors);
        for write in cx.writes {
            self.tables.apply(&write);
            self.writes.push(write);
        }
    }

    fn answer(&mut self, request: StateRequest, cx: &mut OpContext) {
        match request {
            StateRequest::Load(table) => {
                // In two parts, to see that an operator takes several.
                let rows = self.tables.batch(table);
                let half = rows.num_rows() / 2;
                let part = |from: usize, len: usize, last: bool| StateRows { table, rows: rows.slice(from, len), keys: None, last };
                self.operator.supply(part(0, half, false), cx).unwrap();
                self.operator.supply(part(half, rows.num_rows() - half, true), cx).unwrap();
            }
            StateRequest::Read { table, position, limit } => {
                let page = self.tables.page(table, position.as_deref(), limit.min(self.page_rows));
                self.operator.supply(page, cx).unwrap();
            }
            StateRequest::Get { .. } => panic!("resident operators do not get single rows"),
        }
    }

    pub fn push(&mut self, port: usize, chunk: Chunk) -> Vec<Chunk> {
        let mut cx = OpContext::default();
        self.operator.push(port, chunk, &mut cx).unwrap();
        self.take(cx);
        self.run()
    }

    /// Errors of the operator, for tests of refusals.
    pub fn try_barrier(&mut self, kind: BarrierKind) -> eddyline_types::Result<()> {
        let barrier = self.next_barrier(kind);
        let mut cx = OpContext::default();
        self.operator.barrier(&barrier, &mut cx)
    }

    fn next_barrier(&mut self, kind: BarrierKind) -> Barrier {
        let prev = Epoch(self.epoch);
        self.epoch += 1 << 16;
        Barrier { domain: DomainId(1), epoch: Epoch(self.epoch), prev, term: 1, kind, mutation: None }
    }

    pub fn barrier(&mut self, kind: BarrierKind) -> Vec<Chunk> {
        let barrier = self.next_barrier(kind);
        self.writes.clear();
        let mut cx = OpContext::default();
        self.operator.barrier(&barrier, &mut cx).unwrap();
        self.take(cx);
        let out = self.run();
        if kind == BarrierKind::Checkpoint {
            self.durable = self.tables.clone();
        }
        out
    }

    /// One round of background work, if there is any.
    pub fn background(&mut self) -> Vec<Chunk> {
        if self.operator.has_background_work() { self.run() } else { Vec::new() }
    }

    pub fn is_backfilled(&self) -> bool {
        self.operator.is_backfilled()
    }

    pub fn memory_bytes(&self) -> usize {
        self.operator.memory_bytes()
    }

    /// Loses everything since the last checkpoint and starts again.
    pub fn recover(&mut self) {
        self.tables = self.durable.clone();
        self.operator = (self.make)(&self.tables);
        let out = self.run();
        assert!(out.is_empty(), "nothing is emitted while loading");
        self.initial();
    }
}
