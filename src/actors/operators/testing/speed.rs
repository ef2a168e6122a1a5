//! Micro-benchmarks of operators: `cargo test --release -p eddyline-actors speed -- --ignored --nocapture --test-threads 1`.
//!
//! CPU time of the thread, so a loaded machine matters little. State writes are encoded and sorted, then thrown away.

use super::agg::{self, call};
use super::driver::Tables;
use super::join;
use super::rows::schema;
use crate::operators::agg::HashAgg;
use crate::operators::join::HashJoin;
use crate::operators::{OpContext, Operator, StateRequest, StateRows, Step};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use eddyline_protocol::plan::{AggFunction, JoinKind};
use eddyline_protocol::{Barrier, BarrierKind};
use eddyline_types::{Chunk, DomainId, Epoch};
use rand::RngExt;
use std::sync::Arc;

const INT: DataType = DataType::Int64;
const CHUNK: usize = 4096;

/// CPU time of this thread, in nanoseconds.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

struct Run {
    operator: Box<dyn Operator>,
    tables: Tables,
    cx: OpContext,
    epoch: u64,
    emitted: usize,
    written: usize,
}

impl Run {
    fn new(operator: Box<dyn Operator>, tables: Tables) -> Self {
        let mut run = Run { operator, tables, cx: OpContext::default(), epoch: 1 << 40, emitted: 0, written: 0 };
        run.drain();
        run.barrier(BarrierKind::Initial);
        run
    }

    fn drain(&mut self) {
        loop {
            match self.operator.step(&mut self.cx).unwrap() {
                Step::Done => return,
                Step::Emit(chunk) => self.emitted += chunk.num_rows(),
                Step::Need(requests) => {
                    for request in requests {
                        let StateRequest::Load(table) = request else { panic!("only loads") };
                        let rows = RecordBatch::new_empty(self.tables.desc(table).schema);
                        self.operator.supply(StateRows { table, rows, keys: None, last: true }, &mut self.cx).unwrap();
                    }
                }
            }
        }
    }

    fn push(&mut self, port: usize, chunk: Chunk) {
        self.operator.push(port, chunk, &mut self.cx).unwrap();
        self.drain();
    }

    fn barrier(&mut self, kind: BarrierKind) {
        let prev = Epoch(self.epoch);
        self.epoch += 1;
        let barrier = Barrier { domain: DomainId(1), epoch: Epoch(self.epoch), prev, term: 1, kind, mutation: None };
        self.operator.barrier(&barrier, &mut self.cx).unwrap();
        self.drain();
        self.written += self.cx.writes.drain(..).map(|w| w.rows.num_rows()).sum::<usize>();
    }

    /// Pushes chunks, with a barrier every `per_barrier` chunks and a checkpoint every tenth barrier; prints the cost per row.
    fn measure(&mut self, name: &str, chunks: &[(usize, Chunk)], per_barrier: usize) {
        let (emitted, written) = (self.emitted, self.written);
        let (mut in_push, mut in_barrier, mut in_checkpoint) = (0, 0, 0);
        let mut rows = 0;
        for (i, (port, chunk)) in chunks.iter().enumerate() {
            let start = cpu_nanos();
            self.push(*port, chunk.clone());
            let pushed = cpu_nanos();
            in_push += pushed - start;
            rows += chunk.num_rows();
            if (i + 1) % per_barrier == 0 {
                let checkpoint = (i + 1) % (10 * per_barrier) == 0;
                self.barrier(if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Plain });
                *(if checkpoint { &mut in_checkpoint } else { &mut in_barrier }) += cpu_nanos() - pushed;
            }
        }
        let per_row = |nanos: u64| nanos as f64 / rows as f64;
        let total = per_row(in_push + in_barrier + in_checkpoint);
        println!(
            "{name}: {total:.0} ns/row ({:.2} M rows/s): push {:.0}, plain barriers {:.0}, checkpoints {:.0}; {rows} rows in, {} out, {} written, {} MiB",
            1e3 / total,
            per_row(in_push),
            per_row(in_barrier),
            per_row(in_checkpoint),
            self.emitted - emitted,
            self.written - written,
            self.operator.memory_bytes() >> 20,
        );
    }
}

fn ints(schema: &SchemaRef, columns: Vec<Vec<i64>>) -> Chunk {
    let columns = columns.into_iter().map(|c| Arc::new(Int64Array::from(c)) as ArrayRef).collect();
    Chunk::append_only(RecordBatch::try_new(schema.clone(), columns).unwrap())
}

#[test]
#[ignore = "prints figures, checks nothing"]
fn speed_of_hash_aggregate() {
    for (name, text_key) in [("int64 key", false), ("text key", true)] {
        for keys in [1_000i64, 1_000_000] {
            let key = if text_key { DataType::Utf8 } else { INT };
            let case = agg::Case::new(
                &[("k", key), ("v", INT)],
                &[0],
                vec![call(AggFunction::Count, None, INT), call(AggFunction::Sum, Some(1), INT)],
                false,
            );
            let input = schema(&case.columns);
            let tables = case.tables();
            let output = schema(&[case.columns[0].clone(), ("n", INT), ("s", INT)]);
            let operator = HashAgg::new(&case.node, &input, output, &|id| Ok(tables.desc(id))).unwrap();
            let mut run = Run::new(Box::new(operator), tables);
            let mut random = eddyline_env::random::seeded(1);
            let chunks: Vec<(usize, Chunk)> = (0..1000)
                .map(|_| {
                    let k: Vec<i64> = (0..CHUNK).map(|_| random.random_range(0..keys)).collect();
                    let v: Vec<i64> = (0..CHUNK).map(|_| random.random_range(0..1000)).collect();
                    let k: ArrayRef = if text_key {
                        Arc::new(StringArray::from_iter_values(k.iter().map(|k| format!("user-{k}"))))
                    } else {
                        Arc::new(Int64Array::from(k))
                    };
                    (0, Chunk::append_only(RecordBatch::try_new(input.clone(), vec![k, Arc::new(Int64Array::from(v))]).unwrap()))
                })
                .collect();
            run.measure(&format!("{name}, {keys} keys, cold"), &chunks[..500], 24);
            run.measure(&format!("{name}, {keys} keys, warm"), &chunks[500..], 24);
        }
    }
}

fn join_run(case: &join::Case) -> Run {
    let tables = case.tables();
    let all: Vec<_> = case.columns[0].iter().chain(&case.columns[1]).cloned().collect();
    let output: Vec<_> = case.node.output.iter().map(|c| all[*c].clone()).collect();
    let operator = HashJoin::new(&case.node, schema(&output), &|id| Ok(tables.desc(id))).unwrap();
    Run::new(Box::new(operator), tables)
}

/// Auctions and 15 times as many bids on recent auctions, joined on the auction's number (as in Nexmark q4 and q9).
fn auctions_and_bids(schemas: &[SchemaRef; 2], rounds: i64, unique: bool) -> Vec<(usize, Chunk)> {
    let mut random = eddyline_env::random::seeded(1);
    let mut chunks = Vec::new();
    let per_round = 1024;
    for round in 0..rounds {
        let ids: Vec<i64> = (0..per_round).map(|i| round * per_round + i).collect();
        let time: Vec<i64> = ids.iter().map(|i| i * 1000).collect();
        let expires: Vec<i64> = time.iter().map(|t| t + 500_000).collect();
        let category: Vec<i64> = ids.iter().map(|i| i % 5).collect();
        chunks.push((0, ints(&schemas[0], vec![ids, category, time, expires])));
        for part in 0..4 {
            let rows: Vec<i64> = (0..per_round * 15 / 4).collect();
            let auction = rows.iter().map(|_| (round * per_round + random.random_range(-200..per_round)).max(0)).collect();
            let price = rows.iter().map(|_| random.random_range(1..100_000)).collect();
            let time: Vec<i64> = rows.iter().map(|i| (round * per_round) * 1000 + i * 60).collect();
            let mut columns = vec![auction, price, time];
            if unique {
                columns.push(rows.iter().map(|i| (round * 4 + part) * 100_000 + i).collect());
            }
            chunks.push((1, ints(&schemas[1], columns)));
        }
    }
    chunks
}

#[test]
#[ignore = "prints figures, checks nothing"]
fn speed_of_hash_join() {
    let auction = vec![("id", INT), ("category", INT), ("date_time", INT), ("expires", INT)];
    let bid = [("auction", INT), ("price", INT), ("time", INT), ("row_id", INT)];
    for (name, unique, residual) in
        [("bids with stream keys", true, false), ("bids with stream keys, residual", true, true), ("bids without keys", false, false)]
    {
        let mut case = join::Case::new(JoinKind::Inner, [auction.clone(), bid[..if unique { 4 } else { 3 }].to_vec()], [&[0], &[0]]);
        case.node.output = vec![0, 1, 5, 6];
        if residual {
            case = case.less(6, 3);
        }
        for (side, key) in [(&mut case.node.left, 0), (&mut case.node.right, 3)] {
            side.append_only = true;
            side.stream_key = if unique || key == 0 { vec![key] } else { Vec::new() };
        }
        let mut run = join_run(&case);
        let schemas = [schema(&case.columns[0]), schema(&case.columns[1])];
        let chunks = auctions_and_bids(&schemas, 200, unique);
        run.measure(&format!("auctions x bids, {name}"), &chunks, 24);
    }
}
