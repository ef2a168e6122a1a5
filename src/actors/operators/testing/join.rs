//! Hash join against a nested loop: after every barrier, what was emitted sums to the join of all input.

use super::driver::{Driver, Tables};
use super::rows::{Bag, Row, TextBag, accumulate, add, chunk, random_changes, schema, table, text};
use crate::operators::join::HashJoin;
use arrow::datatypes::DataType;
use datafusion::prelude::col;
use eddyline_protocol::plan::{JoinKind, JoinNode, JoinSide};
use eddyline_protocol::{BarrierKind, Expr};
use eddyline_types::{EdgeId, TableId};
use rand::RngExt;

const INT: DataType = DataType::Int64;

/// A test's join.
pub struct Case {
    pub columns: [Vec<(&'static str, DataType)>; 2],
    pub node: JoinNode,
    /// The residual in words of the model: positions in left then right columns, `a < b`.
    pub less: Option<(usize, usize)>,
}

impl Case {
    pub fn new(kind: JoinKind, columns: [Vec<(&'static str, DataType)>; 2], keys: [&[usize]; 2]) -> Self {
        let side = |port: usize| JoinSide {
            edge: EdgeId(port as u32),
            schema: schema(&columns[port]),
            keys: keys[port].to_vec(),
            stream_key: Vec::new(),
            append_only: false,
            state: TableId(1 + port as u32),
        };
        let output = (0..columns[0].len() + columns[1].len()).collect();
        let node = JoinNode { kind, left: side(0), right: side(1), null_equal: false, residual: None, output };
        Case { columns, node, less: None }
    }

    pub fn less(mut self, a: usize, b: usize) -> Self {
        let expr = col(format!("c{a}")).lt(col(format!("c{b}")));
        let bytes = eddyline_expr::encode::encode_positional(&expr).unwrap();
        self.node.residual = Some(Expr { bytes, text: format!("c{a} < c{b}"), data_type: DataType::Boolean, nullable: true });
        self.less = Some((a, b));
        self
    }

    pub fn tables(&self) -> Tables {
        Tables::new([&self.node.left, &self.node.right].into_iter().zip(&self.columns).map(|(side, columns)| {
            let mut columns = columns.clone();
            let rest = if side.stream_key.is_empty() { (0..columns.len()).collect() } else { side.stream_key.clone() };
            let mut key = side.keys.clone();
            key.extend(rest.into_iter().filter(|c| !side.keys.contains(c)));
            columns.push(("_weight", INT));
            table(side.state.0, "side", &columns, &key, side.keys.len())
        }))
    }

    pub fn driver(&self) -> Driver {
        let all: Vec<_> = self.columns[0].iter().chain(&self.columns[1]).cloned().collect();
        let output: Vec<_> = self.node.output.iter().map(|c| all[*c].clone()).collect();
        let (node, output) = (self.node.clone(), schema(&output));
        Driver::started(self.tables(), move |tables| Box::new(HashJoin::new(&node, output.clone(), &|id| Ok(tables.desc(id))).unwrap()))
    }

    fn matches(&self, left: &Row, right: &Row) -> bool {
        let keys = self.node.left.keys.iter().zip(&self.node.right.keys);
        let equal = keys.into_iter().all(|(l, r)| left[*l] == right[*r] && (self.node.null_equal || left[*l].is_some()));
        let both: Vec<Option<i64>> = left.iter().chain(right).copied().collect();
        equal && self.less.is_none_or(|(a, b)| both[a].is_some() && both[b].is_some() && both[a] < both[b])
    }

    fn model(&self, bags: &[Bag; 2]) -> TextBag {
        let mut result = TextBag::new();
        let width = [self.columns[0].len(), self.columns[1].len()];
        let mut emit = |left: &Row, right: &Row, weight: i64| {
            let types = self.columns[0].iter().chain(&self.columns[1]);
            let all: Vec<String> = left.iter().chain(right).zip(types).map(|(v, (_, t))| text(t, *v)).collect();
            add(&mut result, self.node.output.iter().map(|c| all[*c].clone()).collect(), weight);
        };
        for (left, lw) in &bags[0] {
            let mut count = 0;
            for (right, rw) in bags[1].iter().filter(|(r, _)| self.matches(left, r)) {
                emit(left, right, lw * rw);
                count += rw;
            }
            if count == 0 && matches!(self.node.kind, JoinKind::Left | JoinKind::Full) {
                emit(left, &vec![None; width[1]], *lw);
            }
        }
        for (right, rw) in &bags[1] {
            let count = bags[0].keys().filter(|l| self.matches(l, right)).count();
            if count == 0 && matches!(self.node.kind, JoinKind::Right | JoinKind::Full) {
                emit(&vec![None; width[0]], right, *rw);
            }
        }
        result
    }
}

fn check(case: &Case, seeds: std::ops::Range<u64>, ranges: [&[i64]; 2]) {
    let inputs = [schema(&case.columns[0]), schema(&case.columns[1])];
    let sides = [&case.node.left, &case.node.right];
    for seed in seeds {
        let mut random = eddyline_env::random::seeded(seed);
        let mut driver = case.driver();
        let (mut bags, mut output) = ([Bag::new(), Bag::new()], TextBag::new());
        let mut saved = (bags.clone(), output.clone());
        for epoch in 0..12 {
            for _ in 0..random.random_range(0..5) {
                let port = random.random_range(0..2);
                let count = random.random_range(1..12);
                let mut changes = random_changes(&mut random, &mut bags[port], ranges[port], count, sides[port].append_only);
                if !sides[port].stream_key.is_empty() {
                    // Unique rows: the last column is a counter.
                    for (row, _) in &mut changes {
                        add(&mut bags[port], row.clone(), -1);
                        *row.last_mut().unwrap() = Some(random.random::<u32>() as i64);
                        add(&mut bags[port], row.clone(), 1);
                    }
                }
                // A chunk may come in pieces.
                let cut = random.random_range(0..=changes.len());
                for part in [&changes[..cut], &changes[cut..]].into_iter().filter(|p| !p.is_empty()) {
                    driver.push(port, chunk(&inputs[port], part)).iter().for_each(|c| accumulate(&mut output, c));
                }
            }
            let kind = if random.random_range(0..3) == 0 { BarrierKind::Checkpoint } else { BarrierKind::Plain };
            driver.barrier(kind).iter().for_each(|c| accumulate(&mut output, c));
            assert_eq!(output, case.model(&bags), "{:?}, seed {seed}, epoch {epoch}", case.node.kind);
            if kind == BarrierKind::Checkpoint {
                saved = (bags.clone(), output.clone());
            } else if random.random_range(0..4) == 0 {
                driver.recover();
                (bags, output) = saved.clone();
            }
        }
    }
}

const KINDS: [JoinKind; 4] = [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full];

fn two_columns() -> [Vec<(&'static str, DataType)>; 2] {
    [vec![("k", INT), ("a", DataType::Utf8)], vec![("j", INT), ("b", INT)]]
}

#[test]
fn all_kinds_by_one_integer_key() {
    for kind in KINDS {
        check(&Case::new(kind, two_columns(), [&[0], &[0]]), 0..40, [&[4, 3], &[4, 3]]);
    }
}

#[test]
fn all_kinds_with_a_residual() {
    for kind in KINDS {
        let columns = [vec![("k", INT), ("a", INT)], vec![("j", INT), ("b", INT)]];
        check(&Case::new(kind, columns, [&[0], &[0]]).less(1, 3), 0..40, [&[3, 5], &[3, 5]]);
    }
}

#[test]
fn two_keys_that_may_be_null_on_both_sides() {
    for kind in KINDS {
        let columns = [vec![("k", INT), ("t", DataType::Utf8), ("a", INT)], vec![("u", DataType::Utf8), ("j", INT)]];
        let mut case = Case::new(kind, columns, [&[0, 1], &[1, 0]]);
        case.node.null_equal = true;
        case.node.output = vec![4, 2, 3];
        check(&case, 0..40, [&[2, 2, 3], &[2, 2]]);
    }
}

#[test]
fn append_only_sides_with_a_stream_key() {
    for kind in KINDS {
        let columns = [vec![("k", INT), ("a", INT), ("id", INT)], vec![("j", DataType::Int64), ("id", INT)]];
        let mut case = Case::new(kind, columns, [&[0], &[0]]);
        for side in [&mut case.node.left, &mut case.node.right] {
            side.append_only = true;
            side.stream_key = vec![side.schema.fields().len() - 1];
        }
        check(&case, 0..40, [&[4, 3, 1], &[4, 1]]);
    }
}

#[test]
fn a_join_that_explodes_is_streamed() {
    let case = Case::new(JoinKind::Full, [vec![("k", INT), ("a", INT)], vec![("j", INT), ("b", INT)]], [&[0], &[0]]);
    let mut driver = case.driver();
    let rows = |n: i64| -> Vec<(Row, i64)> { (0..n).map(|i| (vec![Some(1), Some(i)], 1)).collect() };
    let (left, right) = (schema(&case.columns[0]), schema(&case.columns[1]));
    assert_eq!(driver.push(0, chunk(&left, &rows(1000))).iter().map(|c| c.num_rows()).sum::<usize>(), 1000);
    let out = driver.push(1, chunk(&right, &rows(100)));
    assert!(out.iter().all(|c| c.num_rows() <= 4096) && out.len() > 25);
    assert_eq!(out.iter().map(|c| c.num_rows()).sum::<usize>(), 100 * 1000 + 1000);
}

#[test]
fn memory_follows_live_rows() {
    let case = Case::new(JoinKind::Full, two_columns(), [&[0], &[0]]);
    let input = schema(&case.columns[0]);
    let mut driver = case.driver();
    let mut peak = 0;
    for round in 0..40 {
        let rows: Vec<(Row, i64)> = (0..2000).map(|i| (vec![Some(round * 2000 + i), Some(i)], 1)).collect();
        driver.push(0, chunk(&input, &rows));
        driver.barrier(BarrierKind::Checkpoint);
        driver.push(0, chunk(&input, &rows.into_iter().map(|(r, _)| (r, -1)).collect::<Vec<_>>()));
        driver.barrier(BarrierKind::Checkpoint);
        if round == 10 {
            peak = driver.memory_bytes();
        }
    }
    assert!(driver.memory_bytes() <= peak + (3 << 20), "{} after {peak}", driver.memory_bytes());
}
