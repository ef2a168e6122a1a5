//! The operator trait: what every operator promises, and what the task that drives it promises in return.

use arrow::array::{BinaryArray, RecordBatch};
use eddyline_protocol::{Barrier, ErrorRecord};
use eddyline_store::TableWrite;
use eddyline_types::{Chunk, Result, TableId};

/// What `step` gives.
#[derive(Debug)]
pub enum Step {
    /// Nothing is left to do for what was pushed.
    Done,
    /// One output chunk (not empty); call `step` again.
    Emit(Chunk),
    /// State is missing: answer every request with `supply`, then call `step` again.
    Need(Vec<StateRequest>),
}

/// State that an operator asks its task for.
#[derive(Clone, Debug)]
pub enum StateRequest {
    /// All rows of a table in the shard's vnodes, at the epoch that the shard started from. Answered by one or more `supply` calls, the last with `last`.
    Load(TableId),
    /// Rows of a table in the shard's vnodes after `position` (a table key, `None`: from the start), at most `limit`, in key order with their keys, at the last
    /// barrier's epoch. For backfill: the table is another job's. Answered by one `supply`; `last` = the end of the table was reached.
    Read {
        /// Which table.
        table: TableId,
        /// Exclusive lower bound.
        position: Option<Vec<u8>>,
        /// At most so many rows.
        limit: usize,
    },
    /// Rows of these table keys, at the last checkpoint's epoch (the operator knows what it changed since).
    Get {
        /// Which table.
        table: TableId,
        /// Table keys, ascending, without duplicates.
        keys: BinaryArray,
    },
}

/// The answer to a `StateRequest`.
#[derive(Clone, Debug)]
pub struct StateRows {
    /// Of which table.
    pub table: TableId,
    /// Rows with the table's schema.
    pub rows: RecordBatch,
    /// Their table keys (for `Read` and `Get`).
    pub keys: Option<BinaryArray>,
    /// Nothing follows.
    pub last: bool,
}

/// What an operator can tell its task while it works.
#[derive(Debug, Default)]
pub struct OpContext {
    /// State changes of the epoch that is being closed; the task writes them at the barrier's epoch.
    pub writes: Vec<TableWrite>,
    /// Rows that failed to evaluate, in this epoch.
    pub errors: Vec<ErrorRecord>,
}

/// One operator of one shard.
///
/// # Contract
/// The task: first calls `step` until `Done` (the operator asks for its state with `Need`); then, for every message, calls one of
/// `push`, `watermark` or `barrier` and then `step` until `Done` before anything else. A chunk given by `Emit` is fully processed downstream before the next `step`.
/// Input is a bag with weights: within an epoch any order, splitting or merging of chunks leads to the same state and the same sum of deltas at the barrier.
/// Rows may arrive retracted before they are inserted: state must hold negative multiplicities.
/// The first barrier is `Initial` when the domain starts, or any kind when the job joins a running domain; before it come only
/// chunks of a backfill upstream that has passed its own first barrier.
/// The task puts `cx.writes` into the store before it passes the barrier on, so what is upstream of a barrier is readable at its epoch.
///
/// The operator: does no I/O and reads no clock; holds at most the output of one step; never panics on data (overflow and failed expressions are errors or records).
/// At a barrier it emits what is still to be emitted for the epoch (`step` after `barrier`); at a checkpoint it also pushes its state changes since the last checkpoint to `cx.writes`
/// (keys ascending), before it returns `Done`. `Initial` barriers emit and write nothing.
/// After `Load`ing what it wrote at a checkpoint, an operator behaves as the one that wrote it.
pub trait Operator: Send {
    /// Takes a chunk on an input port. Not called while a `step` is pending.
    fn push(&mut self, port: usize, chunk: Chunk, cx: &mut OpContext) -> Result<()>;

    /// Does a bounded piece of work.
    fn step(&mut self, cx: &mut OpContext) -> Result<Step>;

    /// Takes state that was asked for.
    fn supply(&mut self, rows: StateRows, cx: &mut OpContext) -> Result<()>;

    /// Closes an epoch. All input of the epoch was pushed.
    fn barrier(&mut self, barrier: &Barrier, cx: &mut OpContext) -> Result<()>;

    /// Whether there is work to do without input (a backfill's snapshot). While it is true and no message waits, the task calls `step` until
    /// one `Emit` or `Done`; a message may enter right after that, so work of this kind is never in the way of a barrier.
    fn has_background_work(&self) -> bool {
        false
    }

    /// Whether a backfill is complete: all rows of the upstream's snapshot were emitted and changes just pass. `true` for all other operators.
    fn is_backfilled(&self) -> bool {
        true
    }

    /// Whether rows leave the engine here: they count as the job's output.
    fn is_sink(&self) -> bool {
        false
    }

    /// Bytes of memory that the operator's state holds, for the memory controller.
    fn memory_bytes(&self) -> usize {
        0
    }
}
