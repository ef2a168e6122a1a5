//! A small meta: commits uploads, restarts domains; and a source that repeats itself.

use super::graphs::{self, SOURCE_OFFSETS};
use crate::credit::Budget;
use crate::inlet::{OpenSource, SourceOpening};
use crate::worker::WorkerConfig;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Decimal128Type, Int64Type};
use async_trait::async_trait;
use eddyline_connect::{SourceBatch, SourceReader};
use eddyline_protocol::{Barrier, BarrierKind, Mutation, Version, VersionDelta};
use eddyline_store::{ScanOptions, Store, StoreConfig};
use eddyline_types::{DomainId, Epoch, Result, TableId};
use futures::{FutureExt, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const DOMAIN: DomainId = DomainId(7);
/// Keys of all generated rows are below this.
pub const KEYS: i64 = 17;

/// Row `i` of every split.
pub fn source_row(i: u64) -> (i64, i64) {
    ((i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as i64 % KEYS, i as i64 % 5)
}

/// One split for each shard; batches of three rows; ends after `limit` rows of each split.
struct Repeating {
    split: String,
    next: u64,
    limit: u64,
    batch: u64,
}

#[async_trait]
impl SourceReader for Repeating {
    async fn next(&mut self, _max_rows: usize) -> Result<Option<SourceBatch>> {
        let end = (self.next + self.batch).min(self.limit);
        if self.next == end {
            return Ok(None);
        }
        let (k, v): (Vec<i64>, Vec<i64>) = (self.next..end).map(source_row).unzip();
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(k)), Arc::new(Int64Array::from(v))];
        let rows = RecordBatch::try_new(graphs::kv(), columns)?;
        self.next = end;
        Ok(Some(SourceBatch { rows, errors: vec![], offsets: BTreeMap::from([(self.split.clone(), end.to_string())]) }))
    }
}

/// Opens the source above. There are always two splits, whatever the number of shards: shard `i` reads `i` and, alone, both in turn.
pub fn repeating(limit: u64, batch: u64) -> OpenSource {
    Arc::new(move |o: SourceOpening| {
        async move {
            let split = format!("split-{}", o.index);
            let next = o.offsets.get(&split).map_or(0, |o| o.parse().unwrap());
            Ok(Box::new(Repeating { split, next, limit, batch }) as Box<dyn SourceReader>)
        }
        .boxed()
    })
}

pub fn config(open_source: OpenSource) -> WorkerConfig {
    WorkerConfig {
        arbiters: 2,
        budget: Budget { rows: 8, bytes: 1 << 20 },
        source_rows: 4,
        dml_queue_bytes: 1 << 20,
        dml_wait: Duration::from_secs(5),
        uploads_in_flight: 2,
        open_source,
    }
}

pub async fn open_store() -> Store {
    let objects = eddyline_objects::Objects::open("memory://").unwrap();
    let config =
        StoreConfig { block_size_bytes: 4096, block_cache_bytes: 8 << 20, shared_buffer_bytes: 256 << 20, ..StoreConfig::default() };
    Store::open(objects, config, Arc::new(Version::default())).await.unwrap()
}

/// The versions that meta would keep.
#[derive(Default)]
pub struct Committed {
    version: Arc<Version>,
    pub epoch: Epoch,
}

impl Committed {
    pub fn commit(&mut self, store: &Store, epoch: Epoch, delta: &VersionDelta) {
        assert!(epoch > self.epoch, "commits come in order");
        self.epoch = epoch;
        self.version = Arc::new(self.version.apply(delta).expect("an upload removes nothing"));
        store.install(self.version.clone());
    }
}

pub fn barrier(prev: Epoch, epoch: Epoch, kind: BarrierKind, mutation: Option<Mutation>) -> Barrier {
    Barrier { domain: DOMAIN, epoch, prev, term: 1, kind, mutation: mutation.map(Arc::new) }
}

/// All rows of a table at an epoch as numbers, first column as key.
pub async fn read(store: &Store, table: TableId, epoch: Epoch) -> BTreeMap<i64, Vec<i64>> {
    let mut rows = BTreeMap::new();
    let mut scan = store.snapshot().scan(table, epoch, ScanOptions::default());
    while let Some(batch) = scan.next().await {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let mut values = batch.columns().iter().map(|c| number(c, row));
            let key = values.next().unwrap();
            assert!(rows.insert(key, values.collect()).is_none(), "key {key} is there twice in table {table}");
        }
    }
    rows
}

/// Offsets of the source at a checkpoint's epoch.
pub async fn read_offsets(store: &Store, epoch: Epoch) -> BTreeMap<String, u64> {
    let mut offsets = BTreeMap::new();
    let mut scan = store.snapshot().scan(SOURCE_OFFSETS, epoch, ScanOptions::default());
    while let Some(batch) = scan.next().await {
        let batch = batch.unwrap();
        let (splits, values) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        offsets.extend((0..batch.num_rows()).map(|i| (splits.value(i).to_owned(), values.value(i).parse::<u64>().unwrap())));
    }
    offsets
}

fn number(column: &ArrayRef, row: usize) -> i64 {
    assert!(column.is_valid(row));
    match column.data_type() {
        arrow::datatypes::DataType::Int64 => column.as_primitive::<Int64Type>().value(row),
        arrow::datatypes::DataType::Decimal128(_, 0) => column.as_primitive::<Decimal128Type>().value(row) as i64,
        other => panic!("column of type {other}"),
    }
}

/// What the source view must be, from its offsets.
pub fn source_view(offsets: &BTreeMap<String, u64>) -> BTreeMap<i64, Vec<i64>> {
    let mut view: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (k, v) in offsets.values().flat_map(|end| (0..*end).map(source_row)) {
        let row = view.entry(k).or_insert_with(|| vec![0, 0]);
        row[0] += 1;
        row[1] += v;
    }
    view
}

/// `SELECT v, count(*), sum(k) GROUP BY v` of a table.
pub fn agg_view(table: &BTreeMap<i64, Vec<i64>>) -> BTreeMap<i64, Vec<i64>> {
    let mut view: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (k, v) in table {
        let row = view.entry(v[0]).or_insert_with(|| vec![0, 0]);
        row[0] += 1;
        row[1] += k;
    }
    view
}

/// The join of the table with the source view.
pub fn join_view(table: &BTreeMap<i64, Vec<i64>>, source: &BTreeMap<i64, Vec<i64>>) -> BTreeMap<i64, Vec<i64>> {
    table.iter().filter_map(|(k, v)| source.get(k).map(|s| (*k, vec![v[0], s[0]]))).collect()
}
