//! What goes into the coordinator and what comes out: clocks, settings, events, effects.
//!
//! Plain data. The driver turns every effect that says so into one event again.

use crate::command::{Change, NewRelation, Outcome};
use eddyline_protocol::control::{BuildJob, ExecutorEvent};
use eddyline_protocol::{Barrier, Catalog, Frontiers, VersionDelta};
use eddyline_types::{DomainId, Epoch, JobId, ObjectId, Result};
use std::sync::Arc;

/// Names a statement that waits for an answer.
pub type Ticket = u64;
/// Names a create or drop in progress.
pub type OpId = u64;

/// The two clocks, read by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of the monotonic clock.
    pub mono_us: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// Intervals and bounds, resolved.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Between plain barriers of a domain with work.
    pub barrier_interval_ms: u64,
    /// Between checkpoints of a domain with changes.
    pub checkpoint_interval_ms: u64,
    /// Checkpoints of one domain that may be uploading or waiting for their commit.
    pub max_checkpoints: usize,
    /// A barrier or an upload that takes longer fails its domain.
    pub barrier_timeout_ms: u64,
    /// How long a DDL statement waits for its domains before it gives up (the backfill itself is not bounded).
    pub ddl_timeout_ms: u64,
    /// Failures in a row after which the culprit and what reads it are cut off.
    pub max_failures: u32,
    /// How long a commit waits for other domains' checkpoints of the same moment.
    pub commit_linger_ms: u64,
    /// Sources start paused.
    pub paused: bool,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        CoordinatorConfig {
            barrier_interval_ms: 100,
            checkpoint_interval_ms: 1000,
            max_checkpoints: 3,
            barrier_timeout_ms: 300_000,
            ddl_timeout_ms: 30_000,
            max_failures: 5,
            commit_linger_ms: 10,
            paused: false,
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// Time passed.
    Tick,
    /// From the executor.
    Executor(ExecutorEvent),
    /// A build ended.
    BuildDone {
        /// Echo of the effect.
        target: BuildTarget,
        /// What it said.
        result: Result<()>,
    },
    /// A reset ended.
    ResetDone {
        /// Echo of the effect.
        target: BuildTarget,
    },
    /// The Raft command was applied; `Err`: it is not known whether, meta must stop.
    Proposed {
        /// One per change.
        result: Result<Vec<Outcome>>,
        /// The catalog after it.
        catalog: Arc<Catalog>,
    },
    /// CREATE.
    Create {
        /// Who waits.
        ticket: Ticket,
        /// What.
        new: Box<NewRelation>,
    },
    /// DROP.
    Drop {
        /// Who waits.
        ticket: Ticket,
        /// What; a cascade is listed in full.
        ids: Vec<ObjectId>,
    },
    /// A compaction is to be committed.
    Compact {
        /// Who waits.
        ticket: Ticket,
        /// Inputs and outputs.
        delta: VersionDelta,
    },
    /// Start a checkpoint of the job's domain as soon as possible.
    RequestCheckpoint {
        /// The job.
        job: JobId,
    },
    /// Answer when the epoch is durable in the job's domain, or lost.
    WaitCommitted {
        /// Who waits.
        ticket: Ticket,
        /// The job that the epoch was handed out for.
        job: JobId,
        /// The epoch.
        epoch: Epoch,
    },
    /// FLUSH: a checkpoint of every running domain.
    Flush {
        /// Who waits.
        ticket: Ticket,
    },
    /// Pause or resume all sources.
    Pause {
        /// Who waits.
        ticket: Ticket,
        /// True: pause.
        paused: bool,
    },
    /// A last checkpoint of all domains, then the end of all shards.
    Shutdown {
        /// Who waits.
        ticket: Ticket,
    },
}

/// What a build or reset is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuildTarget {
    /// All jobs of a domain, in one attempt.
    Domain(DomainId, u64),
    /// One job that joins a running domain.
    Job(OpId),
    /// The end of everything.
    Shutdown,
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Register the jobs' tables with the store and build their shards. Answered by `BuildDone`.
    Build {
        /// To be echoed.
        target: BuildTarget,
        /// The domain.
        domain: DomainId,
        /// Number of the build.
        attempt: u64,
        /// What to build.
        jobs: Vec<BuildJob>,
    },
    /// Send a barrier.
    Inject {
        /// Number of the domain's build.
        attempt: u64,
        /// Into which jobs.
        jobs: Arc<[JobId]>,
        /// What.
        barrier: Barrier,
    },
    /// End shards. Answered by `ResetDone`.
    Reset {
        /// To be echoed.
        target: BuildTarget,
        /// Whose shards.
        jobs: Vec<JobId>,
    },
    /// Write a command to Raft, install the version that results, answer by `Proposed`.
    Propose {
        /// What to write.
        changes: Vec<Change>,
    },
    /// Tell readers how far they may look.
    Publish(Arc<Frontiers>),
    /// Answer a statement.
    Reply {
        /// Which.
        ticket: Ticket,
        /// With what.
        result: Result<Reply>,
    },
    /// A figure for the metrics.
    Observe(Observation),
}

/// Answers to statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// Number of the new relation.
    Created(ObjectId),
    /// Whether the compaction won.
    Compacted(bool),
}

/// Figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Injected to committed. (Injected to collected is the executor's figure.)
    Checkpoint {
        /// Microseconds.
        micros: u64,
    },
    /// A domain was rolled back.
    Rollback,
    /// Jobs were cut off.
    Quarantine,
}

impl Event {
    /// Who waits for an answer.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self {
            Event::Create { ticket, .. }
            | Event::Drop { ticket, .. }
            | Event::Compact { ticket, .. }
            | Event::WaitCommitted { ticket, .. }
            | Event::Flush { ticket }
            | Event::Pause { ticket, .. }
            | Event::Shutdown { ticket } => Some(*ticket),
            Event::Tick
            | Event::Executor(_)
            | Event::BuildDone { .. }
            | Event::ResetDone { .. }
            | Event::Proposed { .. }
            | Event::RequestCheckpoint { .. } => None,
        }
    }
}
