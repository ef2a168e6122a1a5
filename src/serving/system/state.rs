//! What a node tells about itself, for `eddy_catalog`. Implemented by `Node`, which knows every engine.

use eddyline_protocol::Version;
use eddyline_protocol::control::JobFigures;
use eddyline_types::{DomainId, Epoch, JobId};
use std::sync::Arc;

/// Figures of a node. Every method answers from memory and at once; what a node does not know is empty.
pub trait SystemState: Send + Sync + 'static {
    /// Figures of running jobs.
    fn job_figures(&self) -> JobFigures {
        JobFigures::new()
    }

    /// Domains with their jobs.
    fn domains(&self) -> Vec<DomainRow> {
        Vec::new()
    }

    /// The newest barriers of all domains.
    fn barriers(&self) -> Vec<BarrierRow> {
        Vec::new()
    }

    /// The files that committed epochs read.
    fn version(&self) -> Arc<Version> {
        Arc::default()
    }

    /// The newest compactions.
    fn compactions(&self) -> Vec<CompactionRow> {
        Vec::new()
    }

    /// Nodes of the cluster.
    fn nodes(&self) -> Vec<NodeRow> {
        Vec::new()
    }

    /// Effective settings of the node.
    fn settings(&self) -> Vec<SettingRow> {
        Vec::new()
    }

    /// Connected sessions; the frontend puts its own here.
    fn sessions(&self) -> Vec<SessionRow> {
        Vec::new()
    }
}

/// One domain.
#[derive(Clone, Debug, Default)]
pub struct DomainRow {
    /// Its number.
    pub id: DomainId,
    /// Its jobs.
    pub jobs: Vec<JobId>,
    /// `building`, `running`, `resetting`, `waiting`, ...
    pub phase: String,
    /// Failures since the last commit.
    pub failures: u32,
    /// What ended the last attempt.
    pub last_error: Option<String>,
}

/// One barrier.
#[derive(Clone, Debug, Default)]
pub struct BarrierRow {
    /// Its domain.
    pub domain: DomainId,
    /// Its epoch.
    pub epoch: Epoch,
    /// `initial`, `plain`, `checkpoint`.
    pub kind: String,
    /// Milliseconds since the Unix epoch when it went out.
    pub injected_ms: u64,
    /// Rows that entered the domain in its epoch.
    pub rows: u64,
    /// Injected to collected, microseconds; `None`: not yet.
    pub collect_us: Option<u64>,
    /// Injected to uploaded.
    pub upload_us: Option<u64>,
    /// Injected to committed.
    pub commit_us: Option<u64>,
}

/// One compaction.
#[derive(Clone, Debug, Default)]
pub struct CompactionRow {
    /// Milliseconds since the Unix epoch when it ended.
    pub finished_ms: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Level that it wrote.
    pub level: u32,
    /// Files read.
    pub input_files: u64,
    /// Files written.
    pub output_files: u64,
    /// Bytes read.
    pub input_bytes: u64,
    /// Bytes written.
    pub output_bytes: u64,
}

/// One node.
#[derive(Clone, Debug, Default)]
pub struct NodeRow {
    /// Its number.
    pub id: u64,
    /// Where it listens.
    pub address: String,
    /// `meta,compute,...`.
    pub roles: String,
    /// `leader`, `follower`, `running`, ...
    pub state: String,
    /// Milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Program version.
    pub version: String,
}

/// One setting of the node.
#[derive(Clone, Debug, Default)]
pub struct SettingRow {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// `flag`, `environment`, `file`, `default`.
    pub source: String,
}

/// One connected client.
#[derive(Clone, Debug, Default)]
pub struct SessionRow {
    /// Its number.
    pub id: i32,
    /// `pg` or `http`.
    pub protocol: String,
    /// User.
    pub user: String,
    /// Database.
    pub database: String,
    /// Peer address.
    pub peer: String,
    /// Milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// As in `pg_stat_activity`.
    pub state: String,
    /// The statement that runs, or the last one.
    pub statement: String,
}
