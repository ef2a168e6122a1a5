//! The shell around the coordinator: one task that turns effects into calls and their results into events.
//!
//! Decides nothing. Order that others rely on: a version is installed in the store before the frontiers that need it are
//! published, and frontiers are published before a statement is answered.

use crate::command::Command;
use crate::coordinator::{BuildTarget, Coordinator, Effect, Event, Now, Observation, Reply, Ticket};
use crate::raft::RaftNode;
use crate::status::{BarrierRecord, MetaStatus};
use eddyline_env::{clock, spawn};
use eddyline_protocol::control::{BuildJob, Executor, ExecutorEvent};
use eddyline_protocol::{Frontiers, TableDesc, Version};
use eddyline_types::{DomainId, Error, JobId, Result};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Longest wait for a build; the executor loads state in it.
const BUILD_TIMEOUT: Duration = Duration::from_secs(120);
/// After so long a reset is reported and tried again: shards that may still write forbid a rebuild.
const RESET_TIMEOUT: Duration = Duration::from_secs(30);
/// Shortest sleep, so that a deadline in the past cannot make the task spin.
const SHORTEST_SLEEP_US: u64 = 200;

/// The part of the store that meta drives.
pub trait VersionSink: Send + Sync + 'static {
    /// Makes a table known; comes before writes to it and reads of it.
    fn register(&self, table: &TableDesc);
    /// Makes a committed version readable; versions come in increasing ids.
    fn install(&self, version: Arc<Version>);
}

impl VersionSink for eddyline_store::Store {
    fn register(&self, table: &TableDesc) {
        eddyline_store::Store::register(self, table);
    }

    fn install(&self, version: Arc<Version>) {
        eddyline_store::Store::install(self, version);
    }
}

/// What the handle asks of the driver.
pub(crate) enum Request {
    /// Something for the coordinator, whose answer is awaited.
    Ask { make: Box<dyn FnOnce(Ticket) -> Event + Send>, answer: oneshot::Sender<Result<Reply>> },
    /// Something without an answer.
    Tell(Event),
    /// The state of affairs.
    Status(oneshot::Sender<MetaStatus>),
    /// The newest barriers.
    Barriers(oneshot::Sender<Vec<BarrierRecord>>),
}

/// Everything that the task owns.
pub(crate) struct Driver {
    pub coordinator: Coordinator,
    pub term: u64,
    pub raft: Arc<RaftNode>,
    pub executor: Arc<dyn Executor>,
    pub store: Arc<dyn VersionSink>,
    pub events: mpsc::UnboundedReceiver<ExecutorEvent>,
    pub requests: mpsc::Receiver<Request>,
    pub frontiers: watch::Sender<Arc<Frontiers>>,
    pub ready: watch::Sender<bool>,
    pub halted: watch::Sender<Option<Error>>,
    pub answers: BTreeMap<Ticket, oneshot::Sender<Result<Reply>>>,
    pub next_ticket: Ticket,
    /// Builds, resets and writes on their way; as many as the coordinator asked for.
    pub work: FuturesUnordered<BoxFuture<'static, Event>>,
}

fn now() -> Now {
    Now { mono_us: clock::monotonic_nanos() / 1000, unix_ms: clock::unix_millis() }
}

impl Driver {
    /// Runs until the coordinator has stopped, or every handle is gone.
    pub async fn run(mut self) {
        self.step(Event::Tick);
        while !self.coordinator.is_stopped() {
            let sleep = self.coordinator.next_deadline_us().map(|due| {
                let wait = due.saturating_sub(now().mono_us).max(SHORTEST_SLEEP_US);
                clock::now() + Duration::from_micros(wait)
            });
            tokio::select! {
                Some(event) = self.work.next(), if !self.work.is_empty() => self.step(event),
                Some(event) = self.events.recv() => self.step(Event::Executor(event)),
                request = self.requests.recv() => match request {
                    Some(request) => self.request(request),
                    None => break,
                },
                () = clock::sleep_until(sleep.unwrap_or_else(clock::now)), if sleep.is_some() => self.step(Event::Tick),
            }
        }
        self.ready.send_replace(false);
        tracing::debug!("the coordinator has stopped");
    }

    fn request(&mut self, request: Request) {
        match request {
            Request::Ask { make, answer } => {
                self.next_ticket += 1;
                self.answers.insert(self.next_ticket, answer);
                self.step(make(self.next_ticket));
            }
            Request::Tell(event) => self.step(event),
            Request::Status(answer) => {
                let _ = answer.send(self.status());
            }
            Request::Barriers(answer) => {
                let _ = answer.send(self.coordinator.history());
            }
        }
    }

    fn status(&self) -> MetaStatus {
        let figures = self.raft.figures();
        MetaStatus {
            node: self.raft.node(),
            term: figures.term,
            leader: figures.leader,
            last_log: figures.last_log,
            last_applied: figures.last_applied,
            domains: self.coordinator.domains(),
            ready: self.coordinator.is_ready(),
            halted: self.coordinator.halted().map(Error::to_string),
        }
    }

    fn step(&mut self, event: Event) {
        let effects = self.coordinator.step(event, now());
        // Answers last: whoever gets one must find the frontiers that belong to it.
        let (answers, rest): (Vec<Effect>, Vec<Effect>) = effects.into_iter().partition(|e| matches!(e, Effect::Reply { .. }));
        for effect in rest.into_iter().chain(answers) {
            self.perform(effect);
        }
        let ready = self.coordinator.is_ready();
        self.ready.send_if_modified(|old| std::mem::replace(old, ready) != ready);
        if let Some(error) = self.coordinator.halted().filter(|_| self.halted.borrow().is_none()) {
            self.halted.send_replace(Some(error.clone()));
        }
        // Statements whose client gave up are forgotten; their effects stand.
        self.answers.retain(|_, answer| !answer.is_closed());
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Build { target, domain, attempt, jobs } => self.build(target, domain, attempt, jobs),
            Effect::Inject { attempt, jobs, barrier } => self.executor.inject(attempt, jobs, barrier),
            Effect::Reset { target, jobs } => self.reset(target, jobs),
            Effect::Propose { changes } => self.propose(changes),
            Effect::Publish(frontiers) => {
                record_freshness(&self.frontiers.borrow(), &frontiers);
                self.frontiers.send_replace(frontiers);
            }
            Effect::Reply { ticket, result } => {
                if let Some(answer) = self.answers.remove(&ticket) {
                    let _ = answer.send(result);
                }
            }
            Effect::Observe(observation) => observe(observation),
        }
    }

    fn build(&mut self, target: BuildTarget, domain: DomainId, attempt: u64, jobs: Vec<BuildJob>) {
        for table in jobs.iter().flat_map(|j| &j.job.graph.tables) {
            self.store.register(table);
        }
        let executor = self.executor.clone();
        let task = spawn::task("build", async move {
            clock::timeout(BUILD_TIMEOUT, executor.build(domain, attempt, jobs))
                .await
                .unwrap_or_else(|| Err(Error::unavailable("the shards were not built in time")))
        });
        self.work.push(Box::pin(async move {
            let result = task.await.unwrap_or_else(|e| Err(Error::internal(format!("building shards failed: {e}"))));
            Event::BuildDone { target, result }
        }));
    }

    fn reset(&mut self, target: BuildTarget, jobs: Vec<JobId>) {
        let executor = self.executor.clone();
        let task = spawn::task("reset", async move {
            while clock::timeout(RESET_TIMEOUT, executor.reset(jobs.clone())).await.is_none() {
                tracing::error!(?jobs, "shards do not end");
            }
        });
        self.work.push(Box::pin(async move {
            if let Err(e) = task.await {
                tracing::error!(error = %e, "ending shards failed");
            }
            Event::ResetDone { target }
        }));
    }

    fn propose(&mut self, changes: Vec<crate::command::Change>) {
        let command = Command { term: self.term, changes };
        let (raft, store) = (self.raft.clone(), self.store.clone());
        let task = spawn::task("propose", async move {
            let started = clock::monotonic_nanos();
            let result = raft.write(&command).await;
            let state = raft.state().borrow().clone();
            if result.is_ok() {
                // One command at a time is in flight, so versions come in order.
                store.install(state.version.clone());
            }
            metrics::histogram!("eddyline_raft_commit_seconds").record((clock::monotonic_nanos() - started) as f64 / 1e9);
            let figures = raft.figures();
            metrics::gauge!("eddyline_raft_term").set(figures.term as f64);
            metrics::gauge!("eddyline_raft_log_index").set(figures.last_log.unwrap_or(0) as f64);
            metrics::gauge!("eddyline_raft_applied_index").set(figures.last_applied.unwrap_or(0) as f64);
            (result, state.catalog.clone())
        });
        let raft = self.raft.clone();
        self.work.push(Box::pin(async move {
            match task.await {
                Ok((result, catalog)) => Event::Proposed { result, catalog },
                Err(e) => Event::Proposed {
                    result: Err(Error::internal(format!("writing the meta log failed: {e}"))),
                    catalog: raft.state().borrow().catalog.clone(),
                },
            }
        }));
    }
}

fn observe(observation: Observation) {
    match observation {
        Observation::Checkpoint { micros } => metrics::histogram!("eddyline_checkpoint_duration_seconds").record(micros as f64 / 1e6),
        Observation::Rollback => metrics::counter!("eddyline_domain_rollbacks_total").increment(1),
        Observation::Quarantine => metrics::counter!("eddyline_domain_quarantines_total").increment(1),
    }
}

/// How old the newest visible epoch of a job is when it becomes visible.
fn record_freshness(old: &Frontiers, new: &Frontiers) {
    let now_ms = clock::unix_millis();
    for (job, frontier) in &new.jobs {
        if old.jobs.get(job).is_none_or(|f| f.collected != frontier.collected) && frontier.collected.0 > 0 {
            let seconds = now_ms.saturating_sub(frontier.collected.millis()) as f64 / 1e3;
            metrics::gauge!("eddyline_freshness_seconds", "job" => job.to_string()).set(seconds);
        }
    }
}
