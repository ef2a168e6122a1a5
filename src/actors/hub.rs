//! The hub: what runs on this node, and the way between its shards and meta.
//!
//! Shards report here (passed barriers, failures, rows in idle domains), connect their edges here, and meta's commands end here. One short lock guards the
//! registry; it is never held across an await, and messages are posted under it only where their order matters (barriers).
//! Invariant: a job's shards are either all registered or none is.

use crate::chain::Failure;
use crate::collector::{Collected, Collector};
use crate::credit::Credits;
use crate::dispatch::{EdgeOut, Outlet, is_connected};
use crate::figures::ShardFigures;
use crate::host::Host;
use crate::inlet::DmlPort;
use crate::message::{Input, Issued, Post};
use crate::uploads::{Checkpoint, Uploads};
use crate::worker::WorkerConfig;
use arrow::datatypes::SchemaRef;
use eddyline_env::clock;
use eddyline_protocol::control::ExecutorEvent;
use eddyline_protocol::{Barrier, Edge, Job, Mutation, VersionDelta};
use eddyline_store::Store;
use eddyline_types::{DomainId, EdgeId, Epoch, Error, FragmentId, JobId, Result, ShardId, TableId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// A shard has passed a barrier.
pub struct Passed {
    /// The barrier's domain.
    pub domain: DomainId,
    /// The build.
    pub attempt: u64,
    /// The barrier's epoch.
    pub epoch: Epoch,
    /// Who.
    pub shard: ShardId,
    /// Rows that entered the domain there.
    pub rows: u64,
    /// It is a backfill and has read all.
    pub is_backfilled: bool,
}

/// What the hub knows of a shard.
pub struct ShardEntry {
    /// Who.
    pub shard: ShardId,
    /// Its mailbox.
    pub post: Arc<dyn Post>,
    /// Its number of each channel, by edge and sending shard.
    pub channels: BTreeMap<(EdgeId, u32), u32>,
    /// Ends it.
    pub stop: CancellationToken,
    /// It has ended and dropped all it had.
    pub ended: CancellationToken,
    /// Counters.
    pub figures: Arc<ShardFigures>,
    /// Where it runs.
    pub arbiter: u32,
    /// For backfills: the epoch by which all was read; 0: not yet.
    pub backfilled_at: AtomicU64,
    /// Why it ended, if it failed.
    pub failure: Arc<Mutex<Option<Failure>>>,
}

/// What the hub knows of a fragment.
pub struct FragmentEntry {
    /// Its job.
    pub job: JobId,
    /// What leaves it.
    pub schema: SchemaRef,
    /// Head and chain, for people.
    pub operators: String,
    /// Whether it reads another job's table.
    pub is_backfill: bool,
    /// Rows enter the job here.
    pub is_entry: bool,
    /// Rows leave the job here.
    pub is_output: bool,
    /// Its shards, by position.
    pub shards: Vec<Arc<ShardEntry>>,
}

/// What the hub knows of a job.
pub struct JobEntry {
    /// Its graph.
    pub job: Arc<Job>,
    /// The domain that it runs in.
    pub domain: DomainId,
    /// The build of the domain.
    pub attempt: u64,
    /// Whether `build` has returned.
    pub is_built: bool,
    /// The queue of a table's statements.
    pub dml: Option<DmlPort>,
}

/// A domain's barriers and uploads.
pub struct DomainEntry {
    /// Barriers in flight.
    pub collector: Collector,
    /// Checkpoints on their way.
    pub uploads: Option<Uploads>,
}

/// All that runs.
#[derive(Default)]
pub struct Registry {
    /// By id.
    pub jobs: BTreeMap<JobId, JobEntry>,
    /// By id.
    pub fragments: BTreeMap<FragmentId, FragmentEntry>,
    /// By id.
    pub domains: BTreeMap<DomainId, DomainEntry>,
}

impl Registry {
    /// The fragments of a job.
    pub fn fragments_of(&self, job: JobId) -> impl Iterator<Item = &FragmentEntry> {
        self.fragments.values().filter(move |f| f.job == job)
    }

    /// Forgets a job; gives back its shards.
    pub fn remove(&mut self, job: JobId) -> Vec<Arc<ShardEntry>> {
        self.jobs.remove(&job);
        let shards = self.fragments_of(job).flat_map(|f| f.shards.clone()).collect();
        self.fragments.retain(|_, f| f.job != job);
        shards
    }

    /// Whether all backfills of a job were complete at an epoch; a job without any is.
    fn is_backfilled(&self, job: JobId, epoch: Epoch) -> bool {
        let mut backfills = self.fragments_of(job).filter(|f| f.is_backfill).flat_map(|f| &f.shards);
        backfills.all(|s| matches!(s.backfilled_at.load(Ordering::Acquire), at if at > 0 && at <= epoch.0))
    }
}

/// See the module's documentation.
pub struct Hub {
    store: Store,
    config: WorkerConfig,
    events: mpsc::UnboundedSender<ExecutorEvent>,
    host: Box<dyn Host>,
    registry: Mutex<Registry>,
    /// Changes whenever jobs were built: DML for a job that is being rebuilt waits for it.
    pub(crate) built: watch::Sender<u64>,
}

impl Hub {
    /// A hub with nothing running. Events are few: a bounded number for each barrier in flight.
    pub fn new(store: Store, config: WorkerConfig, events: mpsc::UnboundedSender<ExecutorEvent>, host: Box<dyn Host>) -> Arc<Self> {
        Arc::new(Hub { store, config, events, host, registry: Mutex::default(), built: watch::channel(0).0 })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The settings.
    pub fn config(&self) -> &WorkerConfig {
        &self.config
    }

    /// Where tasks run.
    pub fn host(&self) -> &dyn Host {
        self.host.as_ref()
    }

    /// The registry, locked.
    pub fn registry(&self) -> parking_lot::MutexGuard<'_, Registry> {
        self.registry.lock()
    }

    fn tell(&self, event: ExecutorEvent) {
        // Nobody listens any more when the node shuts down.
        let _ = self.events.send(event);
    }

    /// Rows wait at a job.
    pub fn wake(&self, job: JobId) {
        self.tell(ExecutorEvent::Wake { job });
    }

    /// The sending end of an edge for one shard; `None` if the receiver is gone (its job was dropped in the same breath).
    pub fn connect(&self, edge: &Edge, from: ShardId, senders: u32) -> Result<Option<EdgeOut>> {
        let registry = self.registry.lock();
        let sender =
            registry.fragments.get(&from.fragment).ok_or_else(|| Error::internal(format!("fragment {} is gone", from.fragment)))?;
        let Some(receiver) = registry.fragments.get(&edge.to) else { return Ok(None) };
        let receivers = receiver.shards.len() as u32;
        let mut outlets = Vec::new();
        for shard in receiver.shards.iter().filter(|s| is_connected(&edge.dispatch, from.index, senders, s.shard.index, receivers)) {
            let channel = shard
                .channels
                .get(&(edge.id, from.index))
                .ok_or_else(|| Error::internal(format!("shard {} does not know edge {} from {from}", shard.shard, edge.id)))?;
            outlets.push(Outlet::new(shard.shard.index, *channel, shard.post.clone(), Credits::new(self.config.budget)));
        }
        EdgeOut::new(edge.clone(), receiver.job, &sender.schema, outlets, from.index, receivers).map(Some)
    }

    /// Sends a barrier into the shards of jobs that have no input channels.
    pub fn inject(self: &Arc<Self>, attempt: u64, jobs: Arc<[JobId]>, barrier: Barrier) {
        let mut registry = self.registry.lock();
        if let Some(missing) = jobs.iter().find(|j| !registry.jobs.get(j).is_some_and(|e| e.is_built)) {
            let (missing, domain) = (*missing, barrier.domain);
            let known = registry.domains.get(&domain).is_some_and(|d| d.collector.attempt == attempt);
            drop(registry);
            if known {
                let error = Error::internal(format!("barrier {} for job {missing}, which is not built", barrier.epoch));
                self.fail_domain(domain, attempt, missing, "Worker".into(), error);
            }
            return;
        }
        let mut moved = false;
        for job in jobs.iter() {
            if let Some(entry) = registry.jobs.get_mut(job) {
                moved |= entry.domain != barrier.domain;
                (entry.domain, entry.attempt) = (barrier.domain, attempt);
            }
        }
        if moved {
            // Domains that were merged into this one had no barrier or upload in flight.
            let Registry { jobs, domains, .. } = &mut *registry;
            domains.retain(|domain, _| jobs.values().any(|e| e.domain == *domain));
        }
        let shards: Vec<_> = registry.fragments.values().filter(|f| jobs.contains(&f.job)).flat_map(|f| f.shards.clone()).collect();
        let domain =
            registry.domains.entry(barrier.domain).or_insert_with(|| DomainEntry { collector: Collector::new(attempt), uploads: None });
        if domain.collector.attempt != attempt {
            *domain = DomainEntry { collector: Collector::new(attempt), uploads: None };
        }
        if domain.collector.is_failed() {
            return;
        }
        let issued = Arc::new(Issued { attempt, barrier, issued_nanos: clock::monotonic_nanos() });
        let done = domain.collector.expect(issued.clone(), jobs, shards.len());
        for root in shards.iter().filter(|s| s.channels.is_empty()) {
            root.post.post(Input::Inject(issued.clone()));
        }
        self.collected(&mut registry, done);
    }

    /// A shard has passed a barrier.
    pub fn passed(self: &Arc<Self>, passed: Passed) {
        let mut registry = self.registry.lock();
        if passed.is_backfilled
            && let Some(shard) = registry.fragments.get(&passed.shard.fragment).and_then(|f| f.shards.get(passed.shard.index as usize))
        {
            let _ = shard.backfilled_at.compare_exchange(0, passed.epoch.0, Ordering::AcqRel, Ordering::Acquire);
        }
        let Some(domain) = registry.domains.get_mut(&passed.domain) else { return };
        if domain.collector.attempt != passed.attempt {
            return;
        }
        let done = domain.collector.passed(passed.epoch, passed.rows);
        self.collected(&mut registry, done);
    }

    fn collected(self: &Arc<Self>, registry: &mut Registry, done: Vec<Collected>) {
        for Collected { issued, jobs, rows } in done {
            let (barrier, attempt) = (&issued.barrier, issued.attempt);
            let seconds = (clock::monotonic_nanos() - issued.issued_nanos) as f64 / 1e9;
            metrics::histogram!("eddyline_barrier_latency_seconds").record(seconds);
            let backfilled = jobs.iter().copied().filter(|j| registry.is_backfilled(*j, barrier.epoch)).collect();
            self.tell(ExecutorEvent::Collected { domain: barrier.domain, attempt, epoch: barrier.epoch, backfilled, rows });
            if let Some(Mutation::Drop { jobs: dropped }) = barrier.mutation.as_deref() {
                // Their shards end by themselves; those that wait for nothing more are let go here.
                dropped.iter().for_each(|job| drop(registry.remove(*job)));
            }
            if !barrier.is_checkpoint() {
                continue;
            }
            let tables: Vec<TableId> =
                jobs.iter().filter_map(|j| registry.jobs.get(j)).flat_map(|e| e.job.graph.tables.iter().map(|t| t.id)).collect();
            let job = jobs.first().copied().unwrap_or_default();
            if let Some(domain) = registry.domains.get_mut(&barrier.domain) {
                let uploads = domain.uploads.get_or_insert_with(|| Uploads::start(self, barrier.domain, attempt));
                uploads.push(Checkpoint { epoch: barrier.epoch, tables, job });
            }
        }
    }

    /// A checkpoint's files are durable.
    pub fn uploaded(&self, domain: DomainId, attempt: u64, epoch: Epoch, delta: VersionDelta) {
        let registry = self.registry.lock();
        if registry.domains.get(&domain).is_some_and(|d| d.collector.attempt == attempt && !d.collector.is_failed()) {
            self.tell(ExecutorEvent::Uploaded { domain, attempt, epoch, delta });
        }
    }

    /// A shard failed. While its job is being built, `build` tells; later meta is told, once for each build of the domain.
    pub fn failed(&self, job: JobId, failure: &Failure) {
        let registry = self.registry.lock();
        let Some(entry) = registry.jobs.get(&job).filter(|e| e.is_built) else { return };
        let (domain, attempt) = (entry.domain, entry.attempt);
        drop(registry);
        self.fail_domain(domain, attempt, job, failure.operator.clone(), failure.error.clone());
    }

    /// Tells meta that a domain failed, unless it was told.
    pub fn fail_domain(&self, domain: DomainId, attempt: u64, job: JobId, operator: String, error: Error) {
        let mut registry = self.registry.lock();
        let Some(entry) = registry.domains.get_mut(&domain) else { return };
        if entry.collector.attempt != attempt || !entry.collector.fail() {
            return;
        }
        tracing::warn!(%domain, attempt, %job, operator, %error, "a domain failed");
        metrics::counter!("eddyline_domain_failures_total").increment(1);
        self.tell(ExecutorEvent::Failed { domain, attempt, job, operator, error });
    }
}
