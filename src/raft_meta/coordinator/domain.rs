//! State of one domain and of one job: plain data with small questions. Decisions are made in the sibling files.

use super::{OpId, Ticket};
use crate::status::DomainStatus;
use eddyline_protocol::{BarrierKind, Frontier, Job, VersionDelta};
use eddyline_types::{DomainId, Epoch, Error, JobId, TableId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Ranges of lost epochs remembered per job.
const MAX_LOST: usize = 64;

/// Where a domain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No shards; build at the given time.
    Waiting { until_us: u64 },
    /// The executor builds.
    Building,
    /// All shards stand; the first barrier is to go out.
    Built,
    /// The first barrier is out.
    Starting,
    /// Barriers flow.
    Running,
    /// It failed; builds that are still on their way have to end before the reset.
    Failing,
    /// The executor ends the shards.
    Resetting,
    /// No shards; a commit on its way decides where to start again.
    Settling,
}

/// The barrier that is not yet collected.
#[derive(Clone, Debug)]
pub(super) struct Collecting {
    pub epoch: Epoch,
    pub kind: BarrierKind,
    pub injected_us: u64,
    pub injected_ms: u64,
    pub jobs: Arc<[JobId]>,
    /// The job that joins with this barrier.
    pub attaches: Option<OpId>,
    /// Jobs that leave with this barrier.
    pub drops: BTreeSet<JobId>,
    /// Somebody waits for the commit.
    pub urgent: bool,
    pub tickets: Vec<Ticket>,
}

/// A collected checkpoint on its way to the commit.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub epoch: Epoch,
    pub injected_us: u64,
    pub jobs: Arc<[JobId]>,
    /// `None` until uploaded.
    pub delta: Option<VersionDelta>,
    /// It is in the Raft command in flight.
    pub proposed: bool,
    pub urgent: bool,
    pub tickets: Vec<Ticket>,
}

/// One domain.
#[derive(Debug)]
pub(super) struct Domain {
    pub jobs: BTreeSet<JobId>,
    pub phase: Phase,
    /// Number that injects carry.
    pub attempt: u64,
    /// Numbers of all builds whose shards may live in this domain (several after merges).
    pub attempts: BTreeSet<u64>,
    /// Builds that the executor has not answered.
    pub builds: u32,
    /// When the present phase started.
    pub since_us: u64,
    pub last_epoch: Epoch,
    pub collecting: Option<Collecting>,
    pub checkpoints: VecDeque<Checkpoint>,
    /// A create that merges domains or attaches.
    pub locked: Option<OpId>,
    /// No barrier but what drains.
    pub hold: bool,
    /// The job that is built but not attached: no barriers go to it.
    pub joining: Option<JobId>,
    /// Dropped from the catalog; shards still run.
    pub dropping: BTreeSet<JobId>,
    pub dropping_since_us: Option<u64>,
    /// Jobs left: look for components once drained.
    pub split: bool,
    /// Rows entered since the last checkpoint.
    pub dirty: bool,
    /// Barriers in a row without rows.
    pub idle_rounds: u8,
    /// A checkpoint is wanted as soon as possible.
    pub requested: bool,
    pub request_tickets: Vec<Ticket>,
    /// Barriers since a job was attached that still creates.
    pub creating_rounds: u32,
    pub last_barrier_us: u64,
    pub last_checkpoint_us: u64,
    /// What the sources were last told.
    pub paused: bool,
    pub failures: u32,
    /// The job blamed for the last failure, and the error.
    pub last_error: Option<(Option<JobId>, Error)>,
}

/// Barriers without rows after which a domain counts as idle. Two, because rows may arrive between the barrier and its collection.
pub(super) const IDLE_ROUNDS: u8 = 2;

impl Domain {
    pub fn new(jobs: BTreeSet<JobId>) -> Self {
        Domain {
            jobs,
            phase: Phase::Waiting { until_us: 0 },
            attempt: 0,
            attempts: BTreeSet::new(),
            builds: 0,
            since_us: 0,
            last_epoch: Epoch::ZERO,
            collecting: None,
            checkpoints: VecDeque::new(),
            locked: None,
            hold: false,
            joining: None,
            dropping: BTreeSet::new(),
            dropping_since_us: None,
            split: false,
            dirty: false,
            idle_rounds: IDLE_ROUNDS,
            requested: false,
            request_tickets: Vec::new(),
            creating_rounds: 0,
            last_barrier_us: 0,
            last_checkpoint_us: 0,
            paused: false,
            failures: 0,
            last_error: None,
        }
    }

    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Rows flow, or may.
    pub fn active(&self) -> bool {
        self.idle_rounds < IDLE_ROUNDS
    }

    /// Nothing is between a barrier and its commit.
    pub fn drained(&self) -> bool {
        self.collecting.is_none() && self.checkpoints.is_empty()
    }

    /// A checkpoint is between its barrier and its commit.
    pub fn checkpoint_in_flight(&self) -> bool {
        !self.checkpoints.is_empty() || self.collecting.as_ref().is_some_and(|c| c.kind == BarrierKind::Checkpoint)
    }

    /// Jobs that a barrier goes to.
    pub fn barrier_jobs(&self) -> Arc<[JobId]> {
        self.jobs.iter().copied().filter(|j| Some(*j) != self.joining).collect()
    }

    pub fn status(&self, id: DomainId) -> DomainStatus {
        DomainStatus {
            id,
            jobs: self.jobs.iter().copied().collect(),
            phase: match self.phase {
                Phase::Waiting { .. } | Phase::Settling => "waiting",
                Phase::Building | Phase::Built | Phase::Starting => "building",
                Phase::Running => "running",
                Phase::Failing | Phase::Resetting => "resetting",
            },
            attempt: self.attempt,
            epoch: self.last_epoch,
            checkpoints_in_flight: self.checkpoints.len(),
            failures: self.failures,
            last_error: self.last_error.as_ref().map(|(_, e)| e.to_string()),
        }
    }
}

/// One job.
#[derive(Debug)]
pub(super) struct JobState {
    pub job: Arc<Job>,
    pub upstream: BTreeSet<JobId>,
    pub tables: Arc<[TableId]>,
    /// Where its state is durable.
    pub committed: Epoch,
    /// `None`: quarantined, or not placed yet.
    pub domain: Option<DomainId>,
    pub quarantined: Option<String>,
    /// The CREATE that waits for it.
    pub creating: Option<OpId>,
    /// The epoch at which its backfills were complete.
    pub backfilled: Option<Epoch>,
    pub frontier: Frontier,
    /// Epochs in `(after, upto]` were rolled back.
    lost: VecDeque<(Epoch, Epoch)>,
}

impl JobState {
    pub fn new(job: Arc<Job>, upstream: BTreeSet<JobId>, committed: Epoch) -> Self {
        JobState {
            tables: job.graph.tables.iter().map(|t| t.id).collect(),
            job,
            upstream,
            committed,
            domain: None,
            quarantined: None,
            creating: None,
            backfilled: None,
            frontier: Frontier { collected: committed, committed, generation: 0 },
            lost: VecDeque::new(),
        }
    }

    /// Epochs after the committed one, up to `upto`, are gone.
    pub fn lose(&mut self, upto: Epoch) {
        if upto <= self.committed {
            return;
        }
        if self.lost.len() == MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back((self.committed, upto));
    }

    /// Whether an epoch was rolled back.
    pub fn is_lost(&self, epoch: Epoch) -> bool {
        self.lost.iter().any(|(after, upto)| *after < epoch && epoch <= *upto)
    }
}
