//! Rows of tests: made from small numbers, read back as text.

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use eddyline_protocol::TableDesc;
use eddyline_protocol::table::KeyColumn;
use eddyline_types::{Chunk, JobId, TableId};
use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row of a test: each number stands for a value of the column's type.
pub type Row = Vec<Option<i64>>;
/// A bag of rows.
pub type Bag = BTreeMap<Row, i64>;
/// A bag of rows as text.
pub type TextBag = BTreeMap<Vec<String>, i64>;

pub fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

/// The value that a number stands for, as text.
pub fn text(data_type: &DataType, value: Option<i64>) -> String {
    let Some(v) = value else { return "NULL".into() };
    match data_type {
        DataType::Utf8 => format!("text {v}"),
        DataType::Boolean => (v % 2 == 0).to_string(),
        DataType::Float64 => format!("{:?}", v as f64 / 2.0),
        DataType::Decimal128(_, 2) => format!("{}{}.{:02}", if v < 0 { "-" } else { "" }, v.abs() / 100, v.abs() % 100),
        _ => v.to_string(),
    }
}

pub fn column(data_type: &DataType, values: Vec<Option<i64>>) -> ArrayRef {
    match data_type {
        DataType::Int64 => Arc::new(Int64Array::from(values)),
        DataType::Int32 => Arc::new(values.into_iter().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        DataType::Utf8 => Arc::new(values.into_iter().map(|v| v.map(|_| text(data_type, v))).collect::<StringArray>()),
        DataType::Boolean => Arc::new(values.into_iter().map(|v| v.map(|v| v % 2 == 0)).collect::<BooleanArray>()),
        DataType::Float64 => Arc::new(values.into_iter().map(|v| v.map(|v| v as f64 / 2.0)).collect::<Float64Array>()),
        DataType::Decimal128(_, _) => {
            let array: Decimal128Array = values.into_iter().map(|v| v.map(i128::from)).collect();
            Arc::new(array.with_data_type(data_type.clone()))
        }
        other => panic!("no test values of type {other}"),
    }
}

pub fn batch(schema: &SchemaRef, rows: &[Row]) -> RecordBatch {
    let columns = schema.fields().iter().enumerate().map(|(c, f)| column(f.data_type(), rows.iter().map(|r| r[c]).collect())).collect();
    RecordBatch::try_new_with_options(schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows.len()))).unwrap()
}

pub fn chunk(schema: &SchemaRef, rows: &[(Row, i64)]) -> Chunk {
    let plain: Vec<Row> = rows.iter().map(|(r, _)| r.clone()).collect();
    Chunk::compacted(batch(schema, &plain), rows.iter().map(|(_, w)| *w).collect()).unwrap()
}

/// Adds a chunk's rows to a bag.
pub fn accumulate(bag: &mut TextBag, chunk: &Chunk) {
    let options = FormatOptions::new().with_null("NULL");
    let formatters: Vec<_> = chunk.batch().columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    for row in 0..chunk.num_rows() {
        let cells: Vec<String> = formatters.iter().map(|f| f.value(row).to_string()).collect();
        add(bag, cells, chunk.weight(row));
    }
}

/// Adds to a bag; what comes to 0 is not in it.
pub fn add<K: Ord + Clone>(bag: &mut BTreeMap<K, i64>, row: K, weight: i64) {
    let count = bag.entry(row.clone()).or_insert(0);
    *count += weight;
    if *count == 0 {
        bag.remove(&row);
    }
}

pub fn table(id: u32, name: &str, columns: &[(&str, DataType)], key: &[usize], distribution: usize) -> TableDesc {
    TableDesc {
        id: TableId(id),
        job: JobId(1),
        name: name.into(),
        schema: schema(columns),
        key: key.iter().map(|c| KeyColumn::ascending(*c)).collect(),
        distribution,
    }
}

pub fn random_row(random: &mut SmallRng, ranges: &[i64]) -> Row {
    ranges.iter().map(|n| if random.random_range(0..8) == 0 { None } else { Some(random.random_range(0..*n)) }).collect()
}

/// Random changes that leave no row of `bag` with a negative count, in random order (so that a row may be retracted before it is inserted).
pub fn random_changes(random: &mut SmallRng, bag: &mut Bag, ranges: &[i64], count: usize, append_only: bool) -> Vec<(Row, i64)> {
    let mut changes = Vec::new();
    for _ in 0..count {
        let present = if bag.is_empty() { 0 } else { bag.values().sum::<i64>() };
        if !append_only && present > 0 && random.random_range(0..5) < 2 {
            let pick = random.random_range(0..bag.len());
            let (row, have) = bag.iter().nth(pick).map(|(r, w)| (r.clone(), *w)).unwrap();
            let weight = random.random_range(1..=have);
            add(bag, row.clone(), -weight);
            changes.push((row, -weight));
        } else {
            let row = random_row(random, ranges);
            let weight = if append_only { 1 } else { random.random_range(1..=2) };
            add(bag, row.clone(), weight);
            changes.push((row, weight));
        }
    }
    for i in (1..changes.len()).rev() {
        changes.swap(i, random.random_range(0..=i));
    }
    changes
}
