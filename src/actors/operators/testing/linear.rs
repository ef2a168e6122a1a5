//! Operators without state.

use super::driver::{Driver, Tables};
use super::rows::{TextBag, accumulate, chunk, schema};
use crate::operators::linear::{Filter, Project, RowId};
use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::logical_expr::Expr as Logical;
use datafusion::prelude::{col, lit};
use eddyline_expr::checked::{CheckedOp, checked};
use eddyline_protocol::{BarrierKind, Expr};

const INT: DataType = DataType::Int64;

fn expr(expr: Logical, data_type: DataType) -> Expr {
    Expr { text: expr.to_string(), bytes: eddyline_expr::encode::encode_positional(&expr).unwrap(), data_type, nullable: true }
}

#[test]
fn a_filter_keeps_rows_that_are_true() {
    let input = schema(&[("a", INT)]);
    let predicate = expr(col("c0").gt(lit(2i64)), DataType::Boolean);
    let mut driver = Driver::started(Tables::default(), move |_| Box::new(Filter::new(&predicate, &schema(&[("a", INT)])).unwrap()));
    let out = driver.push(0, chunk(&input, &[(vec![Some(1)], 1), (vec![Some(3)], -2), (vec![None], 1), (vec![Some(4)], 1)]));
    let mut bag = TextBag::new();
    out.iter().for_each(|c| accumulate(&mut bag, c));
    assert_eq!(bag, TextBag::from([(vec!["3".into()], -2), (vec!["4".into()], 1)]));
    assert!(driver.push(0, chunk(&input, &[(vec![Some(1)], 1)])).is_empty());
}

#[test]
fn a_poison_row_is_null_and_recorded_and_harms_no_other() {
    let input = schema(&[("a", INT), ("b", INT)]);
    let divide = expr(checked(CheckedOp::of(datafusion::logical_expr::Operator::Divide).unwrap(), col("c0"), col("c1")), INT);
    let output = schema(&[("q", INT)]);
    let mut driver = Driver::started(Tables::default(), move |_| {
        Box::new(Project::new(std::slice::from_ref(&divide), &schema(&[("a", INT), ("b", INT)]), output.clone()).unwrap())
    });
    let rows = [(vec![Some(6), Some(3)], 1), (vec![Some(1), Some(0)], 1), (vec![Some(2), Some(0)], -1)];
    let mut bag = TextBag::new();
    driver.push(0, chunk(&input, &rows)).iter().for_each(|c| accumulate(&mut bag, c));
    assert_eq!(bag, TextBag::from([(vec!["2".into()], 1)]), "the two NULLs cancel");
    assert_eq!(driver.errors.len(), 1, "a retraction is not recorded again");
    assert_eq!((driver.errors[0].sqlstate.as_str(), driver.errors[0].row.as_deref()), ("22012", Some(r#"{"a":1,"b":0}"#)));
}

#[test]
fn row_ids_are_unique_over_shards_and_restarts() {
    let output = schema(&[("a", INT), ("_row_id", INT)]);
    let mut seen = std::collections::BTreeSet::new();
    for shard in 0..3 {
        let output = output.clone();
        let mut driver = Driver::started(Tables::default(), move |_| Box::new(RowId::new(output.clone(), shard, 3)));
        for round in 0..4 {
            for _ in 0..3 {
                let rows: Vec<_> = (0..500).map(|i| (vec![Some(i)], 1)).collect();
                for out in driver.push(0, chunk(&schema(&[("a", INT)]), &rows)) {
                    for id in out.column(1).as_primitive::<Int64Type>().values() {
                        assert!(*id > 0 && seen.insert(*id), "id {id} was given twice, shard {shard}, round {round}");
                    }
                }
            }
            driver.barrier(BarrierKind::Plain);
            driver.recover();
        }
    }
}
