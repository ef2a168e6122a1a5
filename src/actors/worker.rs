//! The worker: the handle of a node's stream engine. Meta commands it as an `Executor`, statements enter it as a `DmlSink`.

use crate::arbiters::Arbiters;
use crate::credit::Budget;
use crate::figures::{ShardDetail, add_to_job, get};
use crate::hub::Hub;
use crate::inlet::{OpenSource, connectors};
use async_trait::async_trait;
use eddyline_env::{clock, spawn};
use eddyline_protocol::Barrier;
use eddyline_protocol::control::{BuildJob, DmlChanges, DmlSink, Executor, ExecutorEvent, JobFigures};
use eddyline_store::Store;
use eddyline_types::{DomainId, Epoch, Error, JobId, ObjectId, Result, TableId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Settings, resolved.
#[derive(Clone)]
pub struct WorkerConfig {
    /// Threads that run shards: one for each core.
    pub arbiters: usize,
    /// What may be in flight on one channel.
    pub budget: Budget,
    /// Rows of a source's batches.
    pub source_rows: usize,
    /// Bytes of statements that may wait at one table.
    pub dml_queue_bytes: usize,
    /// How long a statement waits for a table whose job is being rebuilt.
    pub dml_wait: Duration,
    /// Checkpoints of one domain that may be uploading at once.
    pub uploads_in_flight: usize,
    /// Opens the readers of sources.
    pub open_source: OpenSource,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            arbiters: std::thread::available_parallelism().map_or(2, |n| n.get()),
            budget: Budget::default(),
            source_rows: 4096,
            dml_queue_bytes: 16 << 20,
            dml_wait: Duration::from_secs(10),
            uploads_in_flight: 4,
            open_source: connectors(),
        }
    }
}

/// The handle. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    hub: Arc<Hub>,
    arbiters: Arc<Arbiters>,
}

impl Worker {
    /// Starts the threads; nothing is built yet. `events` is how meta hears of it. Must be called where `eddyline_env::spawn` finds a runtime.
    pub fn start(config: WorkerConfig, store: Store, events: mpsc::UnboundedSender<ExecutorEvent>) -> Result<Worker> {
        // Arbiters have no runtime for I/O of their own: they use the caller's.
        spawn::install(spawn::handle());
        let arbiters = Arc::new(Arbiters::start(config.arbiters)?);
        let hub = Hub::new(store, config, events, Box::new(arbiters.clone()));
        Ok(Worker { hub, arbiters })
    }

    /// Ends all shards, then the threads. What is not committed is lost, as in a crash.
    pub async fn shutdown(&self) {
        let jobs: Vec<JobId> = self.hub.registry().jobs.keys().copied().collect();
        self.hub.reset(jobs).await;
        let arbiters = self.arbiters.clone();
        if spawn::blocking(move || arbiters.join()).await.is_err() {
            tracing::error!("the arbiters could not be joined");
        }
    }

    /// Figures by job.
    pub fn figures(&self) -> JobFigures {
        self.hub.figures()
    }

    /// All shards, for the system catalog.
    pub fn shards(&self) -> Vec<ShardDetail> {
        self.hub.shards()
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub(crate) fn arbiters(&self) -> &Arbiters {
        &self.arbiters
    }
}

#[async_trait]
impl Executor for Worker {
    async fn build(&self, domain: DomainId, attempt: u64, jobs: Vec<BuildJob>) -> Result<()> {
        self.hub.build(domain, attempt, jobs).await
    }

    fn inject(&self, attempt: u64, jobs: Arc<[JobId]>, barrier: Barrier) {
        self.hub.inject(attempt, jobs, barrier);
    }

    async fn reset(&self, jobs: Vec<JobId>) {
        self.hub.reset(jobs).await;
    }
}

#[async_trait]
impl DmlSink for Worker {
    async fn write(&self, relation: ObjectId, changes: DmlChanges) -> Result<Epoch> {
        self.hub.write(relation, changes).await
    }
}

impl Hub {
    /// Ends all shards of jobs and drops their uncommitted writes. Idempotent.
    pub async fn reset(&self, jobs: Vec<JobId>) {
        let (tables, uploads) = {
            let mut registry = self.registry();
            let tables: Vec<TableId> =
                jobs.iter().filter_map(|j| registry.jobs.get(j)).flat_map(|e| e.job.graph.tables.iter().map(|t| t.id)).collect();
            let domains: Vec<DomainId> = jobs.iter().filter_map(|j| registry.jobs.get(j)).map(|e| e.domain).collect();
            // Uploads of the domain would commit what is being dropped. A domain goes on if only a job that waits to be attached leaves.
            let is_over = |d: &DomainId| !registry.jobs.iter().any(|(id, e)| e.domain == *d && !jobs.contains(id));
            let domains: Vec<DomainId> = domains.into_iter().filter(is_over).collect();
            let uploads: Vec<_> =
                domains.iter().filter_map(|d| registry.domains.remove(d)).filter_map(|d| d.uploads.map(|u| u.stop())).collect();
            (tables, uploads)
        };
        self.abandon(&jobs).await;
        for ended in uploads {
            // Ends at its next await.
            ended.cancelled().await;
        }
        self.store().discard(&tables);
    }

    /// Puts a statement's changes into a table's job, waiting for the job while it is being rebuilt.
    pub async fn write(&self, relation: ObjectId, changes: DmlChanges) -> Result<Epoch> {
        let mut built = self.built.subscribe();
        let find = async {
            loop {
                let port = self.registry().jobs.get(&relation.into()).filter(|e| e.is_built).and_then(|e| e.dml.clone());
                match port {
                    Some(port) => return Some(port),
                    None => built.changed().await.ok()?,
                }
            }
        };
        let port = clock::timeout(self.config().dml_wait, find).await.flatten();
        let port = port.ok_or_else(|| {
            Error::unavailable(format!("table {relation} takes no changes at the moment"))
                .with_hint("Its job is starting or failing: see eddy_catalog.jobs.")
        })?;
        port.write(changes).await
    }

    /// Figures by job.
    pub fn figures(&self) -> JobFigures {
        let registry = self.registry();
        let mut figures = JobFigures::new();
        for fragment in registry.fragments.values() {
            let job = figures.entry(fragment.job).or_default();
            fragment.shards.iter().for_each(|s| add_to_job(job, &s.figures, fragment.is_entry, fragment.is_output));
        }
        figures
    }

    /// All shards.
    pub fn shards(&self) -> Vec<ShardDetail> {
        let registry = self.registry();
        let mut details = Vec::new();
        for fragment in registry.fragments.values() {
            details.extend(fragment.shards.iter().map(|s| ShardDetail {
                job: fragment.job,
                shard: s.shard,
                operators: fragment.operators.clone(),
                arbiter: s.arbiter,
                rows_in: get(&s.figures.rows_in),
                rows_out: get(&s.figures.rows_out),
                busy_micros: get(&s.figures.busy_nanos) / 1000,
                blocked_micros: get(&s.figures.blocked_nanos) / 1000,
                queued: get(&s.figures.queued),
                state_bytes: get(&s.figures.state_bytes),
                epoch: Epoch(get(&s.figures.epoch)),
            }));
        }
        details
    }
}
