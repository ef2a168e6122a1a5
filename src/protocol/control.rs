//! Who tells whom what: meta decides, the executor (the node's actors) executes.
//!
//! Protocol, from meta's side, for one domain:
//! 1. `build` the shards of its jobs; each loads its state as of the committed epoch and waits for its first barrier.
//! 2. `inject` barriers: the first is `Initial`, then `Plain` and `Checkpoint`, in increasing epochs; several may be in flight.
//! 3. The executor answers every injected barrier with `Collected` once, in order; after a `Checkpoint` it uploads what
//!    the epoch and those before it wrote, and answers `Uploaded`, in order. Meta then commits through Raft and hands the new
//!    version to the store.
//! 4. On any failure of a shard the executor answers `Failed` once per build and sends nothing more for that domain's attempt; meta then calls
//!    `reset` for all its jobs (which ends their shards and forgets their uncommitted writes) and starts at 1.
//!
//! New jobs join a running domain with `build` (their shards wait), then a barrier with `Mutation::Attach`, which reaches them over
//! the new edges or, for shards without an attached input, by injection. Jobs leave with `Mutation::Drop`.
//! `attempt` numbers the builds (unique over all domains): events of an earlier attempt are ignored.
//!
//! Domains merge when a job reads several of them and split when a job leaves; both happen only while no barrier is in flight and without
//! a rebuild. So the domain and the attempt of an `inject` may differ from those of a job's `build`: events about a barrier echo its
//! `inject`, and `Failed` names whichever of the two the executor knows. After a merge `Barrier::prev` is the newest of the merged domains.

use crate::barrier::Barrier;
use crate::catalog::Job;
use crate::version::VersionDelta;
use async_trait::async_trait;
use eddyline_types::{Chunk, DomainId, Epoch, Error, JobId, ObjectId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A job to be built, with where its state is.
#[derive(Clone, Debug)]
pub struct BuildJob {
    /// Graph and parallelism.
    pub job: Arc<Job>,
    /// Read state at this epoch; `Epoch::ZERO`: the job is new and has none.
    pub state_epoch: Epoch,
}

/// What the executor tells meta.
#[derive(Clone, Debug)]
pub enum ExecutorEvent {
    /// All shards of the barrier's jobs have passed it. What they wrote is readable at that epoch.
    Collected {
        /// Echo of the barrier.
        domain: DomainId,
        /// Echo of the inject call.
        attempt: u64,
        /// Echo of the barrier.
        epoch: Epoch,
        /// Jobs whose backfills are all complete (sent with every barrier after it happened).
        backfilled: Vec<JobId>,
        /// Rows that entered the domain in this epoch (0: idle).
        rows: u64,
    },
    /// A checkpoint's files are durable in the object store.
    Uploaded {
        /// Echo of the barrier.
        domain: DomainId,
        /// Echo of the inject call.
        attempt: u64,
        /// Echo of the barrier.
        epoch: Epoch,
        /// To be committed through Raft: new files and the committed epochs of the domain's tables.
        delta: VersionDelta,
    },
    /// A shard of the domain failed.
    Failed {
        /// The domain.
        domain: DomainId,
        /// Echo of the inject or build call.
        attempt: u64,
        /// The job that the failure is attributed to.
        job: JobId,
        /// Which operator, with a sample of its input.
        operator: String,
        /// What happened.
        error: Error,
    },
    /// Rows wait in an idle domain: start its barriers again.
    Wake {
        /// The jobs whose sources have rows.
        job: JobId,
    },
}

/// The node's actors, as meta sees them.
#[async_trait]
pub trait Executor: Send + Sync + 'static {
    /// Creates the shards of jobs; returns when all have loaded their state. An error leaves none of them behind.
    async fn build(&self, domain: DomainId, attempt: u64, jobs: Vec<BuildJob>) -> Result<()>;

    /// Sends a barrier into the jobs of a domain: to every source and DML shard, and (for `Initial` and `Attach`) it reaches the rest over edges.
    /// Never waits; answered by events.
    fn inject(&self, attempt: u64, jobs: Arc<[JobId]>, barrier: Barrier);

    /// Ends all shards of the jobs (whatever they are doing) and drops their uncommitted writes. Idempotent.
    async fn reset(&self, jobs: Vec<JobId>);
}

/// The way rows enter tables.
#[async_trait]
pub trait DmlSink: Send + Sync + 'static {
    /// Puts changes into a table; all chunks end up in one epoch, which is returned. The caller waits for its commit.
    /// Chunks have the relation's columns without the hidden row id for inserts into tables without a key; deletes carry the stored row, hidden columns included.
    async fn write(&self, relation: ObjectId, changes: DmlChanges) -> Result<Epoch>;
}

/// What one DML statement does to a table.
#[derive(Clone, Debug, Default)]
pub struct DmlChanges {
    /// New rows: all columns but the hidden row id, weight +1.
    pub inserts: Vec<Chunk>,
    /// Weighted changes with all stored columns, the hidden row id included (deletes, and both halves of updates).
    pub changes: Vec<Chunk>,
}

/// Figures of running jobs, for the system catalog and the metrics; by job.
pub type JobFigures = BTreeMap<JobId, JobFigure>;

/// Figures of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFigure {
    /// Rows that entered it.
    pub rows_in: u64,
    /// Rows that its output emitted.
    pub rows_out: u64,
    /// Rows in error.
    pub errors: u64,
    /// Shards that run.
    pub shards: u32,
}
