//! Figures of a shard: what it did and how it spent its time. Written by its task, read by the system catalog and the metrics.

use eddyline_protocol::control::JobFigure;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one shard since it was built. All durations in nanoseconds.
#[derive(Debug, Default)]
pub struct ShardFigures {
    /// Rows that entered from a source, from DML, from the backfilled table or from channels.
    pub rows_in: AtomicU64,
    /// Rows that left the chain.
    pub rows_out: AtomicU64,
    /// Error records.
    pub errors: AtomicU64,
    /// Time in operators and dispatch.
    pub busy_nanos: AtomicU64,
    /// Time waiting for credits of receivers.
    pub blocked_nanos: AtomicU64,
    /// Time between the first and the last channel's barrier.
    pub alignment_nanos: AtomicU64,
    /// Messages that wait for the task.
    pub queued: AtomicU64,
    /// Bytes of operator state, at the last barrier.
    pub state_bytes: AtomicU64,
    /// The last barrier that it passed.
    pub epoch: AtomicU64,
}

/// One shard, as the system catalog shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardDetail {
    /// The job.
    pub job: eddyline_types::JobId,
    /// Fragment and position.
    pub shard: eddyline_types::ShardId,
    /// Head and chain, e.g. `Receive > HashAgg > Materialize`.
    pub operators: String,
    /// Which arbiter runs it.
    pub arbiter: u32,
    /// See [`ShardFigures`]; durations in microseconds.
    pub rows_in: u64,
    #[allow(missing_docs)]
    pub rows_out: u64,
    #[allow(missing_docs)]
    pub busy_micros: u64,
    #[allow(missing_docs)]
    pub blocked_micros: u64,
    #[allow(missing_docs)]
    pub queued: u64,
    #[allow(missing_docs)]
    pub state_bytes: u64,
    /// The last barrier that it passed.
    pub epoch: eddyline_types::Epoch,
}

pub(crate) fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// What one shard adds to its job's figures. Rows that travel between fragments of the job do not count.
pub(crate) fn add_to_job(job: &mut JobFigure, shard: &ShardFigures, is_entry: bool, is_output: bool) {
    job.shards += 1;
    job.errors += get(&shard.errors);
    if is_entry {
        job.rows_in += get(&shard.rows_in);
    }
    if is_output {
        job.rows_out += get(&shard.rows_out);
    }
}
