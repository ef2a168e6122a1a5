//! The chain: drives the operators of a shard as their contract says, with one output chunk at a time.
//!
//! Level 0 is the head operator if the head has one (join, backfill). A chunk that a level emits is pushed into the next and worked off there before
//! the level is stepped again; since the chain is straight, one position is all the bookkeeping. Errors and panics are
//! caught at the call and attributed to the level, with a sample of the input that led to them.

use crate::dispatch::Outputs;
use crate::figures::{ShardFigures, add};
use crate::operators::{OpContext, Operator, Step};
use crate::records::ErrorLog;
use crate::state::StateReader;
use eddyline_env::clock;
use eddyline_protocol::Barrier;
use eddyline_store::TableWrite;
use eddyline_types::{Chunk, Error, OperatorId, Result};
use futures::StreamExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Longest time that a task keeps its arbiter before others on it get a turn.
const TURN_NANOS: u64 = 1_000_000;
/// Rows of the sample in an attribution.
const SAMPLE_ROWS: usize = 3;

/// A failure with whom it is attributed to.
#[derive(Debug)]
pub struct Failure {
    /// Operator, with a sample of its input.
    pub operator: String,
    /// What happened.
    pub error: Error,
}

impl Failure {
    /// A failure outside any operator.
    pub fn of_shard(part: &str) -> impl FnOnce(Error) -> Failure {
        let operator = part.to_owned();
        move |error| Failure { operator, error }
    }
}

/// One operator with what the task keeps for it.
struct Level {
    operator: Box<dyn Operator>,
    name: Arc<str>,
    cx: OpContext,
    /// The chunk that is being worked off.
    sample: Option<Chunk>,
    rows_in: metrics::Counter,
    rows_out: metrics::Counter,
    is_sink: bool,
}

/// Everything around the operators of a shard.
pub struct Surroundings {
    /// Edges that leave.
    pub outputs: Outputs,
    /// State that is read.
    pub reader: StateReader,
    /// Rows in error.
    pub errors: ErrorLog,
    /// Counters.
    pub figures: Arc<ShardFigures>,
    /// Since when the task has its arbiter.
    pub turn_started: u64,
}

impl Surroundings {
    /// Lets other tasks of the arbiter go on, if this one had its turn.
    pub async fn breathe(&mut self) {
        if clock::monotonic_nanos() - self.turn_started > TURN_NANOS {
            yield_once().await;
            self.turn_started = clock::monotonic_nanos();
        }
    }
}

/// Gives way once; needs no runtime.
pub async fn yield_once() {
    let mut yielded = false;
    futures::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await
}

/// See the module's documentation.
#[derive(Default)]
pub struct Chain {
    levels: Vec<Level>,
}

impl Chain {
    /// Adds an operator at the end. `job` labels its metrics.
    pub fn add(&mut self, operator: Box<dyn Operator>, name: &'static str, id: OperatorId, job: &str) {
        let label = format!("{name} {id}");
        let rows_in = metrics::counter!("eddyline_operator_rows_in_total", "job" => job.to_owned(), "operator" => label.clone());
        let rows_out = metrics::counter!("eddyline_operator_rows_out_total", "job" => job.to_owned(), "operator" => label.clone());
        let is_sink = operator.is_sink();
        self.levels.push(Level { operator, name: label.into(), cx: OpContext::default(), sample: None, rows_in, rows_out, is_sink });
    }

    /// Number of operators.
    pub fn len(&self) -> usize {
        self.levels.len()
    }

    /// Whether chunks just pass.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Loads the state of all operators.
    pub async fn load(&mut self, around: &mut Surroundings) -> Result<(), Failure> {
        for level in 0..self.levels.len() {
            loop {
                match self.call(level, around, |operator, cx| operator.step(cx))? {
                    Step::Done => break,
                    Step::Need(requests) => self.supply(level, requests, around).await?,
                    Step::Emit(_) => return Err(self.failure(level, Error::internal("an operator emitted before it was given anything"))),
                }
            }
        }
        Ok(())
    }

    /// Takes a chunk into a level and works it off, output included.
    pub async fn push(&mut self, level: usize, port: usize, chunk: Chunk, around: &mut Surroundings) -> Result<(), Failure> {
        if level >= self.levels.len() {
            return emit(chunk, around).await;
        }
        self.enter(level, port, chunk, around)?;
        self.drain(level, around).await
    }

    /// Closes the epoch in every operator, first to last; what one emits goes through those behind it before they are closed.
    pub async fn barrier(&mut self, barrier: &Barrier, around: &mut Surroundings) -> Result<(), Failure> {
        for level in 0..self.levels.len() {
            self.call(level, around, |operator, cx| operator.barrier(barrier, cx))?;
            self.drain(level, around).await?;
        }
        Ok(())
    }

    /// What the operators wrote in the epoch.
    pub fn take_writes(&mut self) -> Vec<TableWrite> {
        self.levels.iter_mut().flat_map(|l| std::mem::take(&mut l.cx.writes)).collect()
    }

    /// Whether the head operator has work that waits for no input.
    pub fn has_background_work(&self) -> bool {
        self.levels.first().is_some_and(|l| l.operator.has_background_work())
    }

    /// Whether the head operator has emitted all of the snapshot that it reads.
    pub fn is_backfilled(&self) -> bool {
        self.levels.first().is_none_or(|l| l.operator.is_backfilled())
    }

    /// One piece of the head operator's background work; returns how many rows it gave.
    pub async fn background(&mut self, around: &mut Surroundings) -> Result<usize, Failure> {
        loop {
            match self.call(0, around, |operator, cx| operator.step(cx))? {
                Step::Done => return Ok(0),
                Step::Need(requests) => self.supply(0, requests, around).await?,
                Step::Emit(chunk) => {
                    let rows = chunk.num_rows();
                    self.levels[0].rows_out.increment(rows as u64);
                    self.push(1, 0, chunk, around).await?;
                    return Ok(rows);
                }
            }
        }
    }

    /// Bytes of state in memory.
    pub fn memory_bytes(&self) -> usize {
        self.levels.iter().map(|l| l.operator.memory_bytes()).sum()
    }

    fn enter(&mut self, level: usize, port: usize, chunk: Chunk, around: &mut Surroundings) -> Result<(), Failure> {
        let slot = &mut self.levels[level];
        slot.rows_in.increment(chunk.num_rows() as u64);
        if slot.is_sink {
            add(&around.figures.rows_out, chunk.num_rows() as u64);
        }
        slot.sample = Some(chunk.clone());
        self.call(level, around, |operator, cx| operator.push(port, chunk, cx))
    }

    async fn drain(&mut self, from: usize, around: &mut Surroundings) -> Result<(), Failure> {
        let mut level = from;
        loop {
            match self.call(level, around, |operator, cx| operator.step(cx))? {
                Step::Need(requests) => self.supply(level, requests, around).await?,
                Step::Emit(chunk) => {
                    self.levels[level].rows_out.increment(chunk.num_rows() as u64);
                    if level + 1 == self.levels.len() {
                        emit(chunk, around).await?;
                    } else {
                        level += 1;
                        self.enter(level, 0, chunk, around)?;
                    }
                }
                Step::Done => {
                    self.levels[level].sample = None;
                    if level == from {
                        return Ok(());
                    }
                    level -= 1;
                }
            }
        }
    }

    async fn supply(
        &mut self,
        level: usize,
        requests: Vec<crate::operators::StateRequest>,
        around: &mut Surroundings,
    ) -> Result<(), Failure> {
        for request in requests {
            let mut parts = around.reader.answer(request).await.map_err(|e| self.failure(level, e))?;
            while let Some(rows) = parts.next().await {
                let rows = rows.map_err(|e| self.failure(level, e))?;
                self.call(level, around, |operator, cx| operator.supply(rows, cx))?;
                around.breathe().await;
            }
        }
        Ok(())
    }

    /// Calls an operator; an error or a panic is attributed to it. Its error records go to the log at once, so that they are bounded.
    fn call<T>(
        &mut self,
        level: usize,
        around: &mut Surroundings,
        call: impl FnOnce(&mut dyn Operator, &mut OpContext) -> Result<T>,
    ) -> Result<T, Failure> {
        let slot = &mut self.levels[level];
        let result = catch_unwind(AssertUnwindSafe(|| call(slot.operator.as_mut(), &mut slot.cx)));
        if !slot.cx.errors.is_empty() {
            around.errors.take(&slot.name, &mut slot.cx.errors);
        }
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.failure(level, error)),
            Err(panic) => Err(self.failure(level, panic_error(panic.as_ref()))),
        }
    }

    fn failure(&self, level: usize, error: Error) -> Failure {
        let slot = &self.levels[level];
        let sample = match &slot.sample {
            Some(chunk) => {
                let head = chunk.slice(0, chunk.num_rows().min(SAMPLE_ROWS));
                match arrow::util::pretty::pretty_format_batches(&[head.batch().clone()]) {
                    Ok(text) => format!("\ninput ({} rows, weights {:?}):\n{text}", chunk.num_rows(), head.weights()),
                    Err(_) => format!("\ninput: {} rows", chunk.num_rows()),
                }
            }
            None => String::new(),
        };
        Failure { operator: format!("{}{sample}", slot.name), error }
    }
}

/// Sends what leaves the chain.
async fn emit(chunk: Chunk, around: &mut Surroundings) -> Result<(), Failure> {
    add(&around.figures.rows_out, chunk.num_rows() as u64);
    around.outputs.send(chunk).await.map_err(Failure::of_shard("Dispatch"))?;
    around.breathe().await;
    Ok(())
}

/// The error of a caught panic.
pub fn panic_error(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    Error::internal(format!("panic: {}", text.unwrap_or_else(|| "of unknown kind".to_owned())))
}
