//! The three writers against maps: after every barrier the table is what the model says, and so is the sum of what was passed on.

use super::driver::{Driver, Tables};
use super::rows::{Bag, Row, TextBag, accumulate, chunk, random_changes, random_row, schema, table};
use crate::operators::materialize::{Keyed, Multiset, Overwrite};
use arrow::array::Array;
use arrow::datatypes::DataType;
use eddyline_protocol::BarrierKind;
use eddyline_types::{Chunk, TableId};
use rand::RngExt;
use std::collections::BTreeMap;

const COLUMNS: [(&str, DataType); 2] = [("k", DataType::Int64), ("v", DataType::Utf8)];
const T: TableId = TableId(1);

fn random_kind(random: &mut rand::rngs::SmallRng) -> BarrierKind {
    if random.random_range(0..3) == 0 { BarrierKind::Checkpoint } else { BarrierKind::Plain }
}

/// A table's rows as a bag, with the weights of its last column if it has them.
fn stored(driver: &Driver, weighted: bool) -> TextBag {
    let mut bag = TextBag::new();
    let batch = driver.tables.batch(T);
    let chunk = if weighted {
        let (_, weights) = crate::operators::state::arena::split_weights(&batch).unwrap();
        Chunk::compacted(batch.project(&[0, 1]).unwrap(), weights).unwrap()
    } else {
        Chunk::append_only(batch)
    };
    accumulate(&mut bag, &chunk);
    bag
}

fn model(rows: impl IntoIterator<Item = (Row, i64)>) -> TextBag {
    let mut bag = TextBag::new();
    accumulate(&mut bag, &chunk(&schema(&COLUMNS), &rows.into_iter().collect::<Vec<_>>()));
    bag
}

fn keyed() -> Driver {
    Driver::started(Tables::new([table(1, "view", &COLUMNS, &[0], 1)]), |tables| Box::new(Keyed::new(tables.desc(T)).unwrap()))
}

#[test]
fn keyed_writes_the_net_change_of_each_key() {
    for seed in 0..200 {
        let mut random = eddyline_env::random::seeded(seed);
        let mut driver = keyed();
        let (mut rows, mut output): (BTreeMap<Option<i64>, Row>, TextBag) = Default::default();
        let mut saved = (rows.clone(), output.clone());
        for epoch in 0..12 {
            let mut changes: Vec<(Row, i64)> = Vec::new();
            let before = rows.clone();
            for _ in 0..random.random_range(0..20) {
                let row = random_row(&mut random, &[6, 3]);
                if let Some(old) = rows.remove(&row[0]) {
                    changes.push((old, -1));
                }
                if random.random_range(0..3) > 0 {
                    rows.insert(row[0], row.clone());
                    changes.push((row, 1));
                }
            }
            for i in (1..changes.len()).rev() {
                changes.swap(i, random.random_range(0..=i));
            }
            for part in changes.chunks(5) {
                driver.push(0, chunk(&schema(&COLUMNS), part)).iter().for_each(|c| accumulate(&mut output, c));
            }
            let kind = random_kind(&mut random);
            driver.barrier(kind);
            let expected = model(rows.values().map(|r| (r.clone(), 1)));
            assert_eq!(stored(&driver, false), expected, "seed {seed}, epoch {epoch}");
            assert_eq!(output, expected, "seed {seed}, epoch {epoch}");
            let changed = (0..6).map(Some).chain([None]).filter(|k| before.get(k) != rows.get(k)).count();
            assert_eq!(driver.writes.iter().map(|w| w.keys.len()).sum::<usize>(), changed, "only changed keys are written");
            if kind == BarrierKind::Checkpoint {
                saved = (rows.clone(), output.clone());
            } else if random.random_range(0..4) == 0 {
                driver.recover();
                (rows, output) = saved.clone();
            }
        }
    }
}

#[test]
fn keyed_refuses_two_rows_of_a_key() {
    let mut driver = keyed();
    driver.push(0, chunk(&schema(&COLUMNS), &[(vec![Some(1), Some(1)], 1), (vec![Some(1), Some(2)], 1)]));
    let error = driver.try_barrier(BarrierKind::Plain).unwrap_err();
    assert!(error.to_string().contains("more than one row of a key"), "{error}");
    let mut driver = keyed();
    driver.push(0, chunk(&schema(&COLUMNS), &[(vec![Some(1), Some(1)], 2)]));
    assert!(driver.try_barrier(BarrierKind::Plain).is_err());
}

#[test]
fn overwrite_keeps_the_last_row_of_a_key() {
    for seed in 0..200 {
        let mut random = eddyline_env::random::seeded(seed);
        let tables = Tables::new([table(1, "t", &COLUMNS, &[0], 1)]);
        let mut driver = Driver::started(tables, |tables| Box::new(Overwrite::new(tables.desc(T)).unwrap()));
        let (mut rows, mut output): (BTreeMap<Option<i64>, Row>, TextBag) = Default::default();
        let mut saved = (rows.clone(), output.clone());
        for epoch in 0..12 {
            for _ in 0..random.random_range(0..4) {
                let mut changes = Vec::new();
                for _ in 0..random.random_range(1..8) {
                    let row = random_row(&mut random, &[6, 3]);
                    if random.random_range(0..3) > 0 {
                        rows.insert(row[0], row.clone());
                        changes.push((row, 1));
                    } else {
                        rows.remove(&row[0]);
                        changes.push((row, -1));
                    }
                }
                driver.push(0, chunk(&schema(&COLUMNS), &changes)).iter().for_each(|c| accumulate(&mut output, c));
            }
            let kind = random_kind(&mut random);
            driver.barrier(kind).iter().for_each(|c| accumulate(&mut output, c));
            let expected = model(rows.values().map(|r| (r.clone(), 1)));
            assert_eq!(stored(&driver, false), expected, "seed {seed}, epoch {epoch}");
            assert_eq!(output, expected, "seed {seed}, epoch {epoch}");
            if kind == BarrierKind::Checkpoint {
                saved = (rows.clone(), output.clone());
            } else if random.random_range(0..4) == 0 {
                driver.recover();
                (rows, output) = saved.clone();
            }
        }
    }
}

#[test]
fn multiset_stores_multiplicities() {
    for seed in 0..200 {
        let mut random = eddyline_env::random::seeded(seed);
        let mut columns = COLUMNS.to_vec();
        columns.push(("_weight", DataType::Int64));
        let tables = Tables::new([table(1, "view", &columns, &[0, 1], 2)]);
        let mut driver = Driver::started(tables, |tables| Box::new(Multiset::new(tables.desc(T)).unwrap()));
        let (mut bag, mut output): (Bag, TextBag) = Default::default();
        let mut saved = (bag.clone(), output.clone());
        for epoch in 0..12 {
            for _ in 0..random.random_range(0..3) {
                let count = random.random_range(1..10);
                let changes = random_changes(&mut random, &mut bag, &[3, 3], count, false);
                driver.push(0, chunk(&schema(&COLUMNS), &changes)).iter().for_each(|c| accumulate(&mut output, c));
            }
            let kind = random_kind(&mut random);
            driver.barrier(kind);
            assert_eq!(stored(&driver, true), model(bag.clone()), "seed {seed}, epoch {epoch}");
            assert_eq!(output, model(bag.clone()), "seed {seed}, epoch {epoch}");
            if kind == BarrierKind::Checkpoint {
                saved = (bag.clone(), output.clone());
            } else if random.random_range(0..4) == 0 {
                driver.recover();
                (bag, output) = saved.clone();
            }
        }
    }
}
