//! What the system catalog shows of this node: figures, domains, barriers, files.
//!
//! The catalog's tables are read synchronously, meta answers asynchronously: a task keeps a copy that is at most a second old.

use crate::config::Config;
use crate::node::started_ms;
use eddyline_actors::Worker;
use eddyline_env::{clock, spawn};
use eddyline_protocol::control::JobFigures;
use eddyline_protocol::{BarrierKind, Version};
use eddyline_raft_meta::{BarrierRecord, Meta, MetaStatus};
use eddyline_serving::system::{BarrierRow, DomainRow, NodeRow, SettingRow, SystemState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Age of what is shown of meta.
const REFRESH: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Copy {
    status: Option<MetaStatus>,
    barriers: Vec<BarrierRecord>,
}

/// See the module's documentation.
pub struct NodeSystem {
    meta: Meta,
    worker: Worker,
    copy: Arc<Mutex<Copy>>,
    settings: Vec<SettingRow>,
    address: String,
    started_ms: u64,
    stop: CancellationToken,
}

impl NodeSystem {
    /// Starts the task that keeps the copy.
    pub fn new(config: &Config, meta: Meta, worker: Worker) -> Self {
        let copy = Arc::new(Mutex::new(Copy::default()));
        let stop = CancellationToken::new();
        spawn::task("system-state", refresh(meta.clone(), copy.clone(), stop.clone()));
        let settings = config.rows().into_iter().map(|(name, value)| SettingRow { name, value, source: String::new() }).collect();
        NodeSystem { meta, worker, copy, settings, address: config.pg_listen.to_string(), started_ms: started_ms(), stop }
    }

    /// Ends the task.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    fn with<T>(&self, read: impl FnOnce(&Copy) -> T) -> T {
        read(&self.copy.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn refresh(meta: Meta, copy: Arc<Mutex<Copy>>, stop: CancellationToken) {
    loop {
        let (status, barriers) = (meta.status().await, meta.barriers().await);
        {
            let mut copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
            copy.status = status.ok();
            copy.barriers = barriers.unwrap_or_default();
        }
        if stop.run_until_cancelled(clock::sleep(REFRESH)).await.is_none() {
            return;
        }
    }
}

impl SystemState for NodeSystem {
    fn job_figures(&self) -> JobFigures {
        self.worker.figures()
    }

    fn domains(&self) -> Vec<DomainRow> {
        self.with(|copy| {
            let domains = copy.status.iter().flat_map(|s| &s.domains);
            domains
                .map(|d| DomainRow {
                    id: d.id,
                    jobs: d.jobs.clone(),
                    phase: d.phase.into(),
                    failures: d.failures,
                    last_error: d.last_error.clone(),
                })
                .collect()
        })
    }

    fn barriers(&self) -> Vec<BarrierRow> {
        let kind = |k: BarrierKind| match k {
            BarrierKind::Initial => "initial",
            BarrierKind::Plain => "plain",
            BarrierKind::Checkpoint => "checkpoint",
        };
        self.with(|copy| {
            copy.barriers
                .iter()
                .map(|b| BarrierRow {
                    domain: b.domain,
                    epoch: b.epoch,
                    kind: kind(b.kind).into(),
                    injected_ms: b.injected_ms,
                    rows: b.rows,
                    collect_us: Some(b.collect_us),
                    upload_us: b.upload_us,
                    commit_us: b.commit_us,
                })
                .collect()
        })
    }

    fn version(&self) -> Arc<Version> {
        self.meta.version()
    }

    fn nodes(&self) -> Vec<NodeRow> {
        let (id, state) = self.with(|copy| match &copy.status {
            Some(status) if status.leader == Some(status.node) => (status.node, "leader"),
            Some(status) => (status.node, "follower"),
            None => (0, "starting"),
        });
        vec![NodeRow {
            id,
            address: self.address.clone(),
            roles: "meta,compute,compactor,frontend".into(),
            state: state.into(),
            started_ms: self.started_ms,
            version: env!("CARGO_PKG_VERSION").into(),
        }]
    }

    fn settings(&self) -> Vec<SettingRow> {
        self.settings.clone()
    }
}
