//! What people may see of meta: plain records for the system catalog, REST and tests.

use eddyline_protocol::BarrierKind;
use eddyline_types::{DomainId, Epoch, JobId};

/// One barrier, for `eddy_catalog.barriers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierRecord {
    /// Its domain.
    pub domain: DomainId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its kind.
    pub kind: BarrierKind,
    /// Milliseconds since the Unix epoch when it went out.
    pub injected_ms: u64,
    /// Rows that entered the domain in its epoch.
    pub rows: u64,
    /// Injected to collected, microseconds.
    pub collect_us: u64,
    /// Injected to uploaded; `None` for barriers that are no checkpoint.
    pub upload_us: Option<u64>,
    /// Injected to committed; `None` until then.
    pub commit_us: Option<u64>,
}

/// One domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// Its number, since the start of this process.
    pub id: DomainId,
    /// Its jobs.
    pub jobs: Vec<JobId>,
    /// `building`, `running`, `resetting`, `waiting`.
    pub phase: &'static str,
    /// Number of its build.
    pub attempt: u64,
    /// Its newest barrier.
    pub epoch: Epoch,
    /// Checkpoints between barrier and commit.
    pub checkpoints_in_flight: usize,
    /// Failures since the last commit.
    pub failures: u32,
    /// What ended the last attempt.
    pub last_error: Option<String>,
}

/// The whole of meta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaStatus {
    /// This node's number in the Raft group.
    pub node: u64,
    /// Raft term.
    pub term: u64,
    /// Who leads.
    pub leader: Option<u64>,
    /// Index of the newest log entry.
    pub last_log: Option<u64>,
    /// Index of the newest applied entry.
    pub last_applied: Option<u64>,
    /// All domains.
    pub domains: Vec<DomainStatus>,
    /// Every job that is to run runs.
    pub ready: bool,
    /// Why nothing is decided any more, if so.
    pub halted: Option<String>,
}
