//! Hash aggregate against a naive model: after every barrier, what was emitted sums to the aggregate of all input.

use super::driver::{Driver, Tables};
use super::rows::{Bag, Row, TextBag, accumulate, add, chunk, random_changes, schema, table, text};
use crate::operators::agg::HashAgg;
use arrow::datatypes::DataType;
use eddyline_protocol::BarrierKind;
use eddyline_protocol::TableDesc;
use eddyline_protocol::plan::{AggCall, AggFunction, AggNode};
use eddyline_protocol::table::KeyColumn;
use eddyline_types::TableId;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A test's aggregate over `columns`.
pub struct Case {
    pub columns: Vec<(&'static str, DataType)>,
    pub node: AggNode,
}

pub fn call(function: AggFunction, argument: Option<usize>, output: DataType) -> AggCall {
    AggCall { function, argument, distinct: false, filter: None, output, multiset: None }
}

impl Case {
    /// Gives every call that needs one a multiset table.
    pub fn new(columns: &[(&'static str, DataType)], group: &[usize], mut calls: Vec<AggCall>, append_only: bool) -> Self {
        for (i, call) in calls.iter_mut().enumerate() {
            let extreme = matches!(call.function, AggFunction::Min | AggFunction::Max);
            if call.distinct || extreme && !append_only {
                call.multiset = Some(TableId(2 + i as u32));
            }
        }
        Case { columns: columns.to_vec(), node: AggNode { group: group.to_vec(), calls, append_only, state: TableId(1) } }
    }

    pub fn tables(&self) -> Tables {
        let keys = self.node.group.len();
        let mut columns: Vec<arrow::datatypes::Field> = self.node.group.iter().map(|c| self.field(*c)).collect();
        let mut tables = Vec::new();
        for (i, call) in self.node.calls.iter().enumerate() {
            if let (Some(id), Some(argument)) = (call.multiset, call.argument) {
                let mut fields = columns.clone();
                fields.push(self.field(argument).with_name("value"));
                fields.push(arrow::datatypes::Field::new("_weight", DataType::Int64, false));
                tables.push(desc(id, &format!("values_{i}"), fields, keys + 1, keys));
            }
        }
        columns.push(arrow::datatypes::Field::new("_count", DataType::Int64, false));
        for (i, call) in self.node.calls.iter().enumerate() {
            let argument = call.argument.map(|c| self.columns[c].1.clone());
            columns.extend(call.state_fields(i, argument.as_ref()).unwrap());
        }
        tables.push(desc(self.node.state, "groups", columns, keys, keys));
        Tables::new(tables)
    }

    fn field(&self, column: usize) -> arrow::datatypes::Field {
        arrow::datatypes::Field::new(self.columns[column].0, self.columns[column].1.clone(), true)
    }

    pub fn driver(&self) -> Driver {
        let mut output: Vec<(&str, DataType)> = self.node.group.iter().map(|c| self.columns[*c].clone()).collect();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        output.extend(self.node.calls.iter().zip(names).map(|(c, n)| (n, c.output.clone())));
        let (input, output, node) = (schema(&self.columns), schema(&output), self.node.clone());
        Driver::started(self.tables(), move |tables| {
            Box::new(HashAgg::new(&node, &input, output.clone(), &|id| Ok(tables.desc(id))).unwrap())
        })
    }

    /// The aggregate of a bag.
    fn model(&self, bag: &Bag) -> TextBag {
        let mut groups: BTreeMap<Row, Vec<(&Row, i64)>> = BTreeMap::new();
        if self.node.group.is_empty() {
            groups.insert(Vec::new(), Vec::new());
        }
        for (row, weight) in bag {
            groups.entry(self.node.group.iter().map(|c| row[*c]).collect()).or_default().push((row, *weight));
        }
        let mut result = TextBag::new();
        for (key, rows) in groups {
            let mut cells: Vec<String> = self.node.group.iter().zip(&key).map(|(c, v)| text(&self.columns[*c].1, *v)).collect();
            cells.extend(self.node.calls.iter().map(|call| self.value(call, &rows)));
            add(&mut result, cells, 1);
        }
        result
    }

    fn value(&self, call: &AggCall, rows: &[(&Row, i64)]) -> String {
        let mut values: Vec<i64> = Vec::new();
        for (row, weight) in rows {
            if call.filter.is_some_and(|f| row[f].is_none_or(|v| v % 2 != 0)) {
                continue;
            }
            let value = match call.argument {
                None => Some(0),
                Some(argument) => row[argument],
            };
            values.extend(value.iter().flat_map(|v| std::iter::repeat_n(*v, *weight as usize)));
        }
        if call.distinct {
            values.sort();
            values.dedup();
        }
        let data_type = call.argument.map_or(DataType::Int64, |c| self.columns[c].1.clone());
        let sum: i64 = values.iter().sum();
        let float = |v: f64| if data_type == DataType::Float64 { v / 2.0 } else { v };
        match call.function {
            AggFunction::Count => values.len().to_string(),
            _ if values.is_empty() => "NULL".into(),
            AggFunction::Sum => text(&data_type, Some(sum)),
            AggFunction::Avg => format!("{:?}", float(sum as f64) / values.len() as f64),
            AggFunction::Min if data_type == DataType::Utf8 => values.iter().map(|v| text(&data_type, Some(*v))).min().unwrap(),
            AggFunction::Max if data_type == DataType::Utf8 => values.iter().map(|v| text(&data_type, Some(*v))).max().unwrap(),
            AggFunction::Min => text(&data_type, values.iter().min().copied()),
            AggFunction::Max => text(&data_type, values.iter().max().copied()),
            AggFunction::BoolAnd => values.iter().all(|v| v % 2 == 0).to_string(),
            AggFunction::BoolOr => values.iter().any(|v| v % 2 == 0).to_string(),
        }
    }
}

fn desc(id: TableId, name: &str, fields: Vec<arrow::datatypes::Field>, keys: usize, distribution: usize) -> TableDesc {
    let mut desc = table(id.0, name, &[], &[], 0);
    desc.schema = Arc::new(arrow::datatypes::Schema::new(fields));
    desc.key = (0..keys).map(KeyColumn::ascending).collect();
    desc.distribution = distribution;
    desc
}

/// Random histories with barriers, checkpoints and crashes.
fn check(case: &Case, seeds: std::ops::Range<u64>) {
    let input = schema(&case.columns);
    for seed in seeds {
        let mut random = eddyline_env::random::seeded(seed);
        let mut driver = case.driver();
        let (mut bag, mut output) = (Bag::new(), TextBag::new());
        let mut saved = (bag.clone(), output.clone());
        let ranges: Vec<i64> = case.columns.iter().enumerate().map(|(c, _)| if case.node.group.contains(&c) { 4 } else { 6 }).collect();
        for epoch in 0..12 {
            for _ in 0..random.random_range(0..3) {
                let count = random.random_range(1..20);
                let changes = random_changes(&mut random, &mut bag, &ranges, count, case.node.append_only);
                assert!(driver.push(0, chunk(&input, &changes)).is_empty());
            }
            let kind = if random.random_range(0..3) == 0 { BarrierKind::Checkpoint } else { BarrierKind::Plain };
            driver.barrier(kind).iter().for_each(|c| accumulate(&mut output, c));
            assert_eq!(output, case.model(&bag), "seed {seed}, epoch {epoch}");
            if kind == BarrierKind::Checkpoint {
                saved = (bag.clone(), output.clone());
            } else if random.random_range(0..4) == 0 {
                driver.recover();
                (bag, output) = saved.clone();
            }
        }
    }
}

const INT: DataType = DataType::Int64;

fn every_call(value: usize, data_type: DataType, flag: usize) -> Vec<AggCall> {
    let filtered = |call: AggCall| AggCall { filter: Some(flag), ..call };
    let distinct = |call: AggCall| AggCall { distinct: true, ..call };
    vec![
        call(AggFunction::Count, None, INT),
        filtered(call(AggFunction::Count, None, INT)),
        filtered(call(AggFunction::Sum, Some(value), data_type.clone())),
        distinct(call(AggFunction::Sum, Some(value), data_type.clone())),
        call(AggFunction::Min, Some(value), data_type.clone()),
        filtered(call(AggFunction::Max, Some(value), data_type)),
        distinct(filtered(call(AggFunction::Count, Some(value), INT))),
        call(AggFunction::Avg, Some(value), DataType::Float64),
    ]
}

#[test]
fn numbers_by_one_integer_key() {
    for data_type in [INT, DataType::Float64, DataType::Decimal128(12, 2)] {
        let columns = [("k", INT), ("v", data_type.clone()), ("f", DataType::Boolean)];
        let mut calls = every_call(1, data_type.clone(), 2);
        if matches!(data_type, DataType::Decimal128(_, _)) {
            calls.pop();
        }
        check(&Case::new(&columns, &[0], calls, false), 0..60);
    }
}

#[test]
fn append_only_extremes_need_no_multiset() {
    let columns = [("k", DataType::Int32), ("v", INT), ("s", DataType::Utf8)];
    let calls = vec![
        call(AggFunction::Min, Some(1), INT),
        call(AggFunction::Max, Some(1), INT),
        call(AggFunction::Min, Some(2), DataType::Utf8),
        call(AggFunction::Max, Some(2), DataType::Utf8),
    ];
    check(&Case::new(&columns, &[0], calls, true), 0..60);
}

#[test]
fn text_and_boolean_by_two_keys() {
    let columns = [("a", DataType::Utf8), ("b", INT), ("s", DataType::Utf8), ("f", DataType::Boolean)];
    let calls = vec![
        call(AggFunction::Min, Some(2), DataType::Utf8),
        call(AggFunction::Max, Some(2), DataType::Utf8),
        AggCall { distinct: true, ..call(AggFunction::Count, Some(2), INT) },
        call(AggFunction::BoolAnd, Some(3), DataType::Boolean),
        call(AggFunction::BoolOr, Some(3), DataType::Boolean),
    ];
    check(&Case::new(&columns, &[0, 1], calls, false), 0..60);
}

#[test]
fn a_global_aggregate_always_has_one_row() {
    let columns = [("v", INT), ("f", DataType::Boolean)];
    check(&Case::new(&columns, &[], every_call(0, INT, 1), false), 0..60);
    let mut driver = Case::new(&columns, &[], vec![call(AggFunction::Count, None, INT)], false).driver();
    assert_eq!(driver.barrier(BarrierKind::Plain).len(), 1);
    assert!(driver.barrier(BarrierKind::Checkpoint).is_empty());
}

#[test]
fn distinct_rows_have_no_calls() {
    check(&Case::new(&[("a", INT), ("b", DataType::Utf8)], &[0, 1], Vec::new(), false), 0..60);
}

#[test]
fn a_sum_out_of_range_is_null_and_recorded_once() {
    let case = Case::new(&[("k", INT), ("v", INT)], &[0], vec![call(AggFunction::Sum, Some(1), INT)], false);
    let input = schema(&case.columns);
    let mut driver = case.driver();
    let mut output = TextBag::new();
    let mut epoch = |driver: &mut Driver, rows: &[(Row, i64)]| {
        driver.push(0, chunk(&input, rows));
        driver.barrier(BarrierKind::Checkpoint).iter().for_each(|c| accumulate(&mut output, c));
        output.keys().map(|k| k.join(",")).collect::<Vec<_>>()
    };
    let big = vec![Some(1), Some(i64::MAX)];
    assert_eq!(epoch(&mut driver, &[(big.clone(), 1)]), [format!("1,{}", i64::MAX)]);
    assert_eq!(epoch(&mut driver, &[(big.clone(), 1)]), ["1,NULL"]);
    assert_eq!(epoch(&mut driver, &[(big.clone(), 1)]), ["1,NULL"]);
    assert_eq!(driver.errors.len(), 1);
    assert_eq!(driver.errors[0].sqlstate, "22003");
    assert_eq!(driver.errors[0].row.as_deref(), Some(r#"{"k":1}"#));
    assert_eq!(epoch(&mut driver, &[(big, -2)]), [format!("1,{}", i64::MAX)]);
}

#[test]
fn float_sums_forget_what_was_retracted() {
    use arrow::array::{Float64Array, Int64Array, RecordBatch};
    let case = Case::new(&[("k", INT), ("v", DataType::Float64)], &[0], vec![call(AggFunction::Sum, Some(1), DataType::Float64)], false);
    let input = schema(&case.columns);
    let mut driver = case.driver();
    let mut output = TextBag::new();
    let mut epoch = |driver: &mut Driver, values: &[f64], weight: i64| {
        let keys = Int64Array::from(vec![1; values.len()]);
        let batch = RecordBatch::try_new(input.clone(), vec![Arc::new(keys), Arc::new(Float64Array::from(values.to_vec()))]).unwrap();
        driver.push(0, eddyline_types::Chunk::compacted(batch, vec![weight; values.len()]).unwrap());
        driver.barrier(BarrierKind::Plain).iter().for_each(|c| accumulate(&mut output, c));
        output.keys().map(|k| k[1].clone()).collect::<Vec<_>>()
    };
    assert_eq!(epoch(&mut driver, &[1e20, 0.5, f64::NAN, f64::INFINITY], 1), ["NaN"]);
    assert_eq!(epoch(&mut driver, &[f64::NAN], -1), ["inf"]);
    assert_eq!(epoch(&mut driver, &[f64::INFINITY, 1e20], -1), ["0.5"]);
}

#[test]
fn memory_follows_live_groups() {
    let case = Case::new(&[("k", DataType::Utf8), ("v", INT)], &[0], vec![call(AggFunction::Count, None, INT)], false);
    let input = schema(&case.columns);
    let mut driver = case.driver();
    let mut peak = 0;
    for round in 0..40 {
        let rows: Vec<(Row, i64)> = (0..2000).map(|i| (vec![Some(round * 2000 + i), Some(1)], 1)).collect();
        driver.push(0, chunk(&input, &rows));
        driver.barrier(BarrierKind::Checkpoint);
        let gone: Vec<(Row, i64)> = rows.into_iter().map(|(r, _)| (r, -1)).collect();
        driver.push(0, chunk(&input, &gone));
        driver.barrier(BarrierKind::Checkpoint);
        if round == 10 {
            peak = driver.memory_bytes();
        }
    }
    assert!(driver.memory_bytes() <= peak + (3 << 20), "{} after {peak}", driver.memory_bytes());
    assert_eq!(driver.tables.batch(TableId(1)).num_rows(), 0);
}
