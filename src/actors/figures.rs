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

/// The part of a shard's figures that goes into its job's metrics, at every barrier.
pub struct JobMetrics {
    busy: metrics::Gauge,
    blocked: metrics::Gauge,
    alignment: metrics::Gauge,
    state: metrics::Gauge,
    errors: metrics::Counter,
    /// What was added so far: busy, blocked, alignment, state, errors.
    told: [u64; 5],
}

impl JobMetrics {
    /// Metrics of a job; its shards share them.
    pub fn new(job: &str) -> Self {
        let job = job.to_owned();
        JobMetrics {
            busy: metrics::gauge!("eddyline_job_busy_seconds_total", "job" => job.clone()),
            blocked: metrics::gauge!("eddyline_job_credit_wait_seconds_total", "job" => job.clone()),
            alignment: metrics::gauge!("eddyline_job_alignment_seconds_total", "job" => job.clone()),
            state: metrics::gauge!("eddyline_job_state_bytes", "job" => job.clone()),
            errors: metrics::counter!("eddyline_job_error_rows_total", "job" => job),
            told: [0; 5],
        }
    }

    /// Adds what changed since the last call.
    pub fn tell(&mut self, figures: &ShardFigures) {
        let now = [&figures.busy_nanos, &figures.blocked_nanos, &figures.alignment_nanos, &figures.state_bytes, &figures.errors].map(get);
        let grown = |i: usize| now[i].saturating_sub(self.told[i]);
        self.busy.increment(grown(0) as f64 / 1e9);
        self.blocked.increment(grown(1) as f64 / 1e9);
        self.alignment.increment(grown(2) as f64 / 1e9);
        self.state.increment(now[3] as f64 - self.told[3] as f64);
        self.errors.increment(grown(4));
        self.told = now;
    }
}

impl Drop for JobMetrics {
    fn drop(&mut self) {
        // The state is gone with its shard.
        self.state.decrement(self.told[3] as f64);
    }
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
