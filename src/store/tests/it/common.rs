//! What the store's tests share: a table of (key bytes, value, text), a store that can be reopened, reads as plain vectors.

use arrow::array::{ArrayRef, AsArray, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use eddyline_env::failpoint::{self, Action};
use eddyline_objects::Objects;
use eddyline_protocol::{TableDesc, Version};
use eddyline_store::{ScanOptions, Snapshot, Store, StoreConfig, TableWrite};
use eddyline_types::{Epoch, JobId, Result, TableId};
use futures::TryStreamExt;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::ops::Bound;
use std::sync::Arc;

/// A key and its value; `None`: deleted.
pub type Row = (Vec<u8>, Option<i64>);

/// A table with the columns `value` and `text` (which is made from the value).
pub fn table_desc(id: u32) -> TableDesc {
    let schema = Schema::new(vec![Field::new("value", DataType::Int64, true), Field::new("text", DataType::Utf8, true)]);
    TableDesc { id: TableId(id), job: JobId(1), name: format!("t{id}"), schema: Arc::new(schema), key: vec![], distribution: 0 }
}

pub fn text(value: i64) -> String {
    format!("text of {value}")
}

pub fn keys(keys: &[Vec<u8>]) -> BinaryArray {
    BinaryArray::from_iter_values(keys)
}

/// A write of rows in key order.
pub fn write(table: u32, rows: &[Row]) -> TableWrite {
    let values: Int64Array = rows.iter().map(|(_, v)| *v).collect();
    let texts: StringArray = rows.iter().map(|(_, v)| v.map(text)).collect();
    let deleted: BooleanArray = rows.iter().map(|(_, v)| Some(v.is_none())).collect();
    TableWrite {
        table: TableId(table),
        keys: BinaryArray::from_iter_values(rows.iter().map(|(k, _)| k)),
        rows: RecordBatch::try_new(table_desc(table).schema, vec![Arc::new(values) as ArrayRef, Arc::new(texts)]).unwrap(),
        tombstones: (deleted.true_count() > 0).then_some(deleted),
    }
}

/// An object store and the settings of the stores on it.
pub struct Fixture {
    pub objects: Objects,
    label: String,
    config: StoreConfig,
    tables: Vec<TableDesc>,
}

const POINTS: [&str; 5] = ["objects.put", "objects.put.done", "objects.get", "objects.list", "objects.delete"];

impl Fixture {
    pub fn new(url: &str, config: StoreConfig, tables: Vec<TableDesc>) -> Self {
        let label = url.strip_prefix("memory://").unwrap_or_default().to_owned();
        Fixture { objects: Objects::open(url).unwrap(), label, config, tables }
    }

    pub async fn open(&self, version: Arc<Version>) -> Store {
        let store = Store::open(self.objects.clone(), self.config.clone(), version).await.unwrap();
        self.tables.iter().for_each(|t| store.register(t));
        store
    }

    pub fn fail(&self, point: &str, action: Option<Action>) {
        assert!(POINTS.contains(&point));
        failpoint::set(&format!("{point}@{}", self.label), action);
    }

    pub fn clear(&self) {
        POINTS.iter().for_each(|p| self.fail(p, None));
    }
}

/// Scans; the key is empty where the options do not ask for it, the value 0 where the column is not wanted.
pub async fn scan(snapshot: &Snapshot, table: u32, epoch: u64, options: ScanOptions) -> Result<Vec<(Vec<u8>, i64)>> {
    let columns = options.columns.clone().unwrap_or(vec![0, 1]);
    let with_keys = options.with_keys;
    let batches: Vec<RecordBatch> = snapshot.scan(TableId(table), Epoch(epoch), options).try_collect().await?;
    let mut rows = vec![];
    for batch in batches {
        assert!(batch.num_rows() > 0);
        assert_eq!(batch.num_columns(), columns.len() + usize::from(with_keys));
        for row in 0..batch.num_rows() {
            let at = |column| columns.iter().position(|c| *c == column);
            let value = at(0).map(|c| batch.column(c).as_primitive::<Int64Type>().value(row));
            if let (Some(value), Some(column)) = (value, at(1)) {
                assert_eq!(batch.column(column).as_string::<i32>().value(row), text(value));
            }
            let key = with_keys.then(|| batch.column(columns.len()).as_binary::<i32>().value(row).to_vec());
            rows.push((key.unwrap_or_default(), value.unwrap_or_default()));
        }
    }
    Ok(rows)
}

/// Gets; checks the text column on the way.
pub async fn get(snapshot: &Snapshot, table: u32, epoch: u64, wanted: &[Vec<u8>]) -> Result<Vec<(usize, i64)>> {
    let (positions, rows) = snapshot.get(TableId(table), Epoch(epoch), &keys(wanted), Some(&[1, 0])).await?;
    assert_eq!(positions.len(), rows.num_rows());
    let values = rows.column(1).as_primitive::<Int64Type>();
    for row in 0..rows.num_rows() {
        assert_eq!(rows.column(0).as_string::<i32>().value(row), text(values.value(row)));
    }
    Ok(positions.into_iter().zip(values.values().iter().copied()).collect())
}

/// A random scan and what it must give of the rows `all`.
pub fn random_scan(
    rng: &mut SmallRng,
    all: &[(Vec<u8>, i64)],
    key: impl Fn(&mut SmallRng) -> Vec<u8>,
) -> (ScanOptions, Vec<(Vec<u8>, i64)>) {
    let bound = |rng: &mut SmallRng| match rng.random_range(0..4) {
        0 => Bound::Included(key(rng)),
        1 => Bound::Excluded(key(rng)),
        _ => Bound::Unbounded,
    };
    let mut range = (bound(rng), bound(rng));
    if rng.random_range(0..5) == 0 {
        // A prefix.
        let prefix = vec![0, rng.random_range(0..4)];
        range = (Bound::Included(prefix.clone()), Bound::Excluded(vec![0, prefix[1] + 1]));
    }
    let options = ScanOptions {
        range,
        columns: [None, Some(vec![1]), Some(vec![1, 0]), Some(vec![]), Some(vec![0])][rng.random_range(0..5usize)].clone(),
        reverse: rng.random_range(0..2) == 0,
        limit: [None, None, Some(rng.random_range(0..30))][rng.random_range(0..3usize)],
        with_keys: rng.random_range(0..2) == 0,
    };
    let low = |key: &Vec<u8>| match &options.range.0 {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
    };
    let high = |key: &Vec<u8>| match &options.range.1 {
        Bound::Unbounded => true,
        Bound::Included(high) => key <= high,
        Bound::Excluded(high) => key < high,
    };
    let mut expected: Vec<(Vec<u8>, i64)> = all.iter().filter(|(k, _)| low(k) && high(k)).cloned().collect();
    if options.reverse {
        expected.reverse();
    }
    expected.truncate(options.limit.unwrap_or(usize::MAX));
    let has_value = options.columns.as_ref().is_none_or(|c| c.contains(&0));
    for (key, value) in &mut expected {
        if !options.with_keys {
            key.clear();
        }
        if !has_value {
            *value = 0;
        }
    }
    (options, expected)
}
