//! An executor without actors: answers barriers at once, in order, from a task; and a store that only checks the order of versions.

use crate::driver::VersionSink;
use async_trait::async_trait;
use eddyline_protocol::control::{BuildJob, Executor, ExecutorEvent};
use eddyline_protocol::{Barrier, BarrierKind, SstInfo, TableDesc, Version, VersionDelta};
use eddyline_types::{DomainId, Epoch, Error, JobId, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(Default)]
pub(crate) struct Calls {
    /// Jobs with shards, with the attempt of their build.
    pub running: BTreeMap<JobId, u64>,
    pub barriers: Vec<(Barrier, Vec<JobId>)>,
    pub builds: Vec<(DomainId, u64, Vec<(JobId, Epoch)>)>,
    /// Builds of these jobs fail.
    pub broken: BTreeSet<JobId>,
    /// Fail the next barrier of these jobs.
    pub failing: BTreeSet<JobId>,
    /// Do not answer barriers.
    pub stuck: bool,
    /// Rows that the next barrier reports.
    pub rows: u64,
}

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct FakeExecutor {
    pub calls: Arc<Mutex<Calls>>,
    events: mpsc::UnboundedSender<ExecutorEvent>,
    upload_delay: Duration,
}

static OBJECTS: AtomicU64 = AtomicU64::new(0);

impl FakeExecutor {
    pub fn new(upload_delay: Duration) -> (Arc<Self>, mpsc::UnboundedReceiver<ExecutorEvent>) {
        let (events, receiver) = mpsc::unbounded_channel();
        (Arc::new(FakeExecutor { calls: Arc::default(), events, upload_delay }), receiver)
    }

    /// What a source does.
    pub fn send(&self, event: ExecutorEvent) {
        self.events.send(event).unwrap();
    }
}

#[async_trait]
impl Executor for FakeExecutor {
    async fn build(&self, domain: DomainId, attempt: u64, jobs: Vec<BuildJob>) -> Result<()> {
        let mut calls = self.calls.lock();
        calls.builds.push((domain, attempt, jobs.iter().map(|j| (j.job.id, j.state_epoch)).collect()));
        if jobs.iter().any(|j| calls.broken.contains(&j.job.id)) {
            return Err(Error::internal("broken job"));
        }
        for job in jobs {
            assert!(calls.running.insert(job.job.id, attempt).is_none(), "job {} is built twice", job.job.id);
        }
        Ok(())
    }

    fn inject(&self, attempt: u64, jobs: Arc<[JobId]>, barrier: Barrier) {
        let mut calls = self.calls.lock();
        for job in jobs.iter() {
            assert!(calls.running.contains_key(job), "barrier for job {job} that has no shards");
        }
        calls.barriers.push((barrier.clone(), jobs.to_vec()));
        if calls.stuck {
            return;
        }
        for job in jobs.iter().filter(|j| barrier.drops(**j)) {
            calls.running.remove(job);
        }
        let failing = jobs.iter().copied().find(|j| calls.failing.remove(j));
        let rows = std::mem::take(&mut calls.rows);
        drop(calls);
        let (events, delay) = (self.events.clone(), self.upload_delay);
        eddyline_env::spawn::task("fake-executor", async move {
            let (domain, epoch) = (barrier.domain, barrier.epoch);
            if let Some(job) = failing {
                let error = Error::internal("shard failed");
                let _ = events.send(ExecutorEvent::Failed { domain, attempt, job, operator: "Fake".into(), error });
                return;
            }
            let backfilled = jobs.to_vec();
            let _ = events.send(ExecutorEvent::Collected { domain, attempt, epoch, backfilled, rows });
            if barrier.kind == BarrierKind::Checkpoint {
                eddyline_env::clock::sleep(delay).await;
                let _ = events.send(ExecutorEvent::Uploaded { domain, attempt, epoch, delta: upload(epoch) });
            }
        });
    }

    async fn reset(&self, jobs: Vec<JobId>) {
        let mut calls = self.calls.lock();
        for job in jobs {
            calls.running.remove(&job);
        }
    }
}

/// A delta with one file.
pub(crate) fn upload(epoch: Epoch) -> VersionDelta {
    let object = format!("sst-{}", OBJECTS.fetch_add(1, Ordering::Relaxed));
    let sst = SstInfo { object, size_bytes: 1, rows: 1, tombstones: 0, tables: vec![], epochs: (epoch, epoch) };
    VersionDelta { added: vec![(0, sst)], ..VersionDelta::default() }
}

/// Checks that versions come in order.
#[derive(Clone, Default)]
pub(crate) struct FakeStore {
    pub installed: Arc<AtomicU64>,
    pub registered: Arc<Mutex<BTreeSet<u32>>>,
}

impl VersionSink for FakeStore {
    fn register(&self, table: &TableDesc) {
        self.registered.lock().insert(table.id.0);
    }

    fn install(&self, version: Arc<Version>) {
        let before = self.installed.swap(version.id, Ordering::SeqCst);
        assert!(before <= version.id, "version {} after {before}", version.id);
    }
}
