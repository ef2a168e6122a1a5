//! The chain against operators that fail, panic, explode and ask for state.

use super::graphs::{TABLE, kv, table_job};
use super::harness::open_store;
use crate::chain::{Chain, Surroundings};
use crate::dispatch::Outputs;
use crate::figures::{ShardFigures, get};
use crate::operators::{OpContext, Operator, StateRequest, StateRows, Step};
use crate::records::ErrorLog;
use crate::state::StateReader;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use eddyline_protocol::{Barrier, BarrierKind, ErrorRecord, report};
use eddyline_types::{Chunk, DomainId, Epoch, Error, OperatorId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Emits every chunk `times`, one a step; fails on the value 13 and panics on 14.
struct Repeat {
    times: usize,
    left: Vec<Chunk>,
}

impl Operator for Repeat {
    fn push(&mut self, _: usize, chunk: Chunk, cx: &mut OpContext) -> Result<()> {
        assert!(self.left.is_empty(), "pushed while a step is pending");
        for value in chunk.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values() {
            match value {
                13 => return Err(Error::internal("unlucky")),
                14 => panic!("very unlucky"),
                15 => cx.errors.push(ErrorRecord { kind: "evaluate".into(), message: "fifteen".into(), ..ErrorRecord::default() }),
                _ => {}
            }
        }
        self.left = vec![chunk; self.times];
        Ok(())
    }

    fn step(&mut self, _: &mut OpContext) -> Result<Step> {
        Ok(self.left.pop().map_or(Step::Done, Step::Emit))
    }

    fn supply(&mut self, _: StateRows, _: &mut OpContext) -> Result<()> {
        Err(Error::internal("asked for nothing"))
    }

    fn barrier(&mut self, barrier: &Barrier, _: &mut OpContext) -> Result<()> {
        if barrier.kind == BarrierKind::Checkpoint {
            self.left = vec![one(7)];
        }
        Ok(())
    }
}

/// Loads a table at the start.
struct Loading {
    asked: bool,
    parts: usize,
    complete: bool,
}

impl Operator for Loading {
    fn push(&mut self, _: usize, _: Chunk, _: &mut OpContext) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, _: &mut OpContext) -> Result<Step> {
        if std::mem::replace(&mut self.asked, true) {
            assert!(self.complete, "stepped before the answer was complete");
            return Ok(Step::Done);
        }
        Ok(Step::Need(vec![StateRequest::Load(super::graphs::TABLE_ROWS)]))
    }

    fn supply(&mut self, rows: StateRows, _: &mut OpContext) -> Result<()> {
        assert!(!self.complete);
        self.parts += 1;
        self.complete = rows.last;
        Ok(())
    }

    fn barrier(&mut self, _: &Barrier, _: &mut OpContext) -> Result<()> {
        Ok(())
    }
}

fn one(value: i64) -> Chunk {
    let column = Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    Chunk::append_only(RecordBatch::try_new(kv(), vec![column.clone(), column]).unwrap())
}

async fn surroundings() -> Surroundings {
    let job = table_job(1);
    let tables: BTreeMap<_, _> = job.graph.tables.iter().map(|t| (t.id, Arc::new(t.clone()))).collect();
    let store = open_store().await;
    job.graph.tables.iter().for_each(|t| store.register(t));
    Surroundings {
        outputs: Outputs::default(),
        reader: StateReader::new(store, tables, 0..256, true, Epoch::ZERO),
        errors: ErrorLog::new(TABLE, 0, job.graph.table(job.graph.errors_table).cloned()),
        figures: Arc::new(ShardFigures::default()),
        turn_started: 0,
    }
}

fn chain(times: &[usize]) -> Chain {
    let mut chain = Chain::default();
    for (i, times) in times.iter().enumerate() {
        chain.add(Box::new(Repeat { times: *times, left: vec![] }), "Repeat", OperatorId(i as u32 + 1), "1");
    }
    chain
}

fn on_runtime(test: impl Future<Output = ()>) {
    super::runtime().block_on(test);
}

#[test]
fn an_exploding_chain_is_streamed() {
    on_runtime(async {
        let (mut chain, mut around) = (chain(&[10, 10, 10]), surroundings().await);
        chain.load(&mut around).await.unwrap();
        chain.push(0, 0, one(1), &mut around).await.unwrap();
        assert_eq!(get(&around.figures.rows_out), 1000);
        chain.push(2, 0, one(1), &mut around).await.unwrap();
        assert_eq!(get(&around.figures.rows_out), 1010, "a chunk may enter in the middle");
    });
}

#[test]
fn a_barrier_closes_the_levels_in_order() {
    on_runtime(async {
        let (mut chain, mut around) = (chain(&[1, 5]), surroundings().await);
        let barrier =
            Barrier { domain: DomainId(1), epoch: Epoch(2), prev: Epoch(1), term: 1, kind: BarrierKind::Checkpoint, mutation: None };
        chain.barrier(&barrier, &mut around).await.unwrap();
        // The first level's row is repeated five times by the second, which then adds its own.
        assert_eq!(get(&around.figures.rows_out), 6);
    });
}

#[test]
fn failures_and_panics_name_the_operator_and_its_input() {
    on_runtime(async {
        for (value, message) in [(13, "unlucky"), (14, "panic: very unlucky")] {
            let (mut chain, mut around) = (chain(&[1, 1]), surroundings().await);
            let failure = chain.push(0, 0, one(value), &mut around).await.unwrap_err();
            assert!(failure.operator.starts_with("Repeat 1\n"), "{}", failure.operator);
            assert!(failure.operator.contains(&format!("| {value} | {value} |")), "{}", failure.operator);
            assert_eq!(failure.error.message(), message);
        }
    });
}

#[test]
fn state_is_loaded_in_full_before_anything_else() {
    on_runtime(async {
        let (mut chain, mut around) = (Chain::default(), surroundings().await);
        chain.add(Box::new(Loading { asked: false, parts: 0, complete: false }), "Loading", OperatorId(1), "1");
        chain.load(&mut around).await.unwrap();
    });
}

#[test]
fn records_are_written_once_and_bounded() {
    on_runtime(async {
        let (mut chain, mut around) = (chain(&[1]), surroundings().await);
        for _ in 0..3 {
            chain.push(0, 0, one(15), &mut around).await.unwrap();
        }
        assert_eq!(around.errors.total(), 3);
        let write = around.errors.seal(Epoch(5)).unwrap().unwrap();
        assert_eq!(write.rows.num_rows(), 1, "equal failures of an epoch are one record");
        assert_eq!(write.rows.schema(), report::errors_schema());
        assert!(around.errors.seal(Epoch(6)).unwrap().is_none(), "sealed records are gone");
        let name: Arc<str> = "Repeat 1".into();
        for i in 0..report::MAX_RECORDS_PER_EPOCH + 500 {
            around.errors.take(&name, &mut vec![ErrorRecord { message: i.to_string(), ..ErrorRecord::default() }]);
        }
        let write = around.errors.seal(Epoch(7)).unwrap().unwrap();
        assert_eq!(write.rows.num_rows(), report::MAX_RECORDS_PER_EPOCH + 1);
        assert!(write.keys.iter().zip(write.keys.iter().skip(1)).all(|(a, b)| a < b), "keys ascend");
        let text = arrow::util::pretty::pretty_format_batches(&[write.rows]).unwrap().to_string();
        assert!(text.contains("500 more records"), "what was not kept is told");
    });
}
