//! The handle of the meta service: plain async methods, no Raft or channel types.

use crate::command::NewRelation;
use crate::coordinator::{Coordinator, CoordinatorConfig, Event, Now, Reply, Ticket};
use crate::driver::{Driver, Request, VersionSink};
use crate::lock::DirectoryLock;
use crate::raft::{RaftNode, RaftService, RaftSettings};
use crate::state::MetaState;
use crate::status::{BarrierRecord, MetaStatus};
use eddyline_env::{clock, spawn};
use eddyline_protocol::control::{Executor, ExecutorEvent};
use eddyline_protocol::{Catalog, FragmentGraph, Frontiers, Relation, Version, VersionDelta};
use eddyline_types::{Epoch, Error, ErrorKind, JobId, ObjectId, Result, SqlState};
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that may wait for the coordinator.
const REQUESTS: usize = 1024;
/// Longest wait for answers that need no work of a domain.
const SHORT: Duration = Duration::from_secs(30);

/// Settings of the meta service, resolved.
#[derive(Clone, Debug)]
pub struct MetaConfig {
    /// Barriers, checkpoints, failures.
    pub coordinator: CoordinatorConfig,
    /// The Raft group.
    pub raft: RaftSettings,
    /// Shards of parallel fragments of new jobs.
    pub parallelism: u32,
}

impl Default for MetaConfig {
    fn default() -> Self {
        MetaConfig { coordinator: CoordinatorConfig::default(), raft: RaftSettings::default(), parallelism: 1 }
    }
}

/// See the crate's documentation. Cheap to clone.
#[derive(Clone)]
pub struct Meta {
    inner: Arc<Inner>,
}

struct Inner {
    raft: Arc<RaftNode>,
    config: MetaConfig,
    requests: mpsc::Sender<Request>,
    unstarted: Mutex<Option<mpsc::Receiver<Request>>>,
    frontiers: watch::Sender<Arc<Frontiers>>,
    catalog: watch::Receiver<Arc<Catalog>>,
    ready: watch::Sender<bool>,
    halted: watch::Sender<Option<Error>>,
    _lock: DirectoryLock,
}

impl Meta {
    /// Locks the data directory, opens log and snapshot below it and waits until this node leads. A second process on the same directory,
    /// a directory that cannot be written and damaged files are errors that say so in one line.
    pub async fn open(dir: &Path, config: MetaConfig) -> Result<Meta> {
        let lock = DirectoryLock::acquire(dir)?;
        let raft = Arc::new(RaftNode::open(&dir.join("meta"), config.raft.clone()).await?);
        raft.await_leadership().await?;
        let (requests, unstarted) = mpsc::channel(REQUESTS);
        let inner = Inner {
            catalog: watch_catalog(raft.state()),
            raft,
            config,
            requests,
            unstarted: Mutex::new(Some(unstarted)),
            frontiers: watch::channel(Arc::default()).0,
            ready: watch::channel(false).0,
            halted: watch::channel(None).0,
            _lock: lock,
        };
        Ok(Meta { inner: Arc::new(inner) })
    }

    /// Starts deciding: builds the jobs that exist and lets barriers flow. `store` must have been opened with [`Meta::version`].
    /// The events need no bound: they are few for each barrier in flight. To be called once.
    pub async fn start(
        &self,
        executor: Arc<dyn Executor>,
        events: mpsc::UnboundedReceiver<ExecutorEvent>,
        store: impl VersionSink,
    ) -> Result<()> {
        let requests = self.inner.unstarted.lock().take().ok_or_else(|| Error::internal("meta was started twice"))?;
        let term = self.inner.raft.await_leadership().await?;
        let state = self.state();
        // Readers may scan the tables of jobs that do not run.
        for table in state.catalog.jobs.values().flat_map(|j| &j.graph.tables) {
            store.register(table);
        }
        let now = Now { mono_us: clock::monotonic_nanos() / 1000, unix_ms: clock::unix_millis() };
        let driver = Driver {
            coordinator: Coordinator::new(self.inner.config.coordinator.clone(), term, &state, now),
            term,
            raft: self.inner.raft.clone(),
            executor,
            store: Arc::new(store),
            events,
            requests,
            frontiers: self.inner.frontiers.clone(),
            ready: self.inner.ready.clone(),
            halted: self.inner.halted.clone(),
            answers: BTreeMap::new(),
            next_ticket: 0,
            work: FuturesUnordered::new(),
        };
        spawn::task("coordinator", driver.run());
        Ok(())
    }

    fn state(&self) -> Arc<MetaState> {
        self.inner.raft.state().borrow().clone()
    }

    /// The newest committed version.
    pub fn version(&self) -> Arc<Version> {
        self.state().version.clone()
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.state().catalog.clone()
    }

    /// Tells when the catalog changes.
    pub fn watch_catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.inner.catalog.clone()
    }

    /// How far readers may look.
    pub fn frontiers(&self) -> Arc<Frontiers> {
        self.inner.frontiers.borrow().clone()
    }

    /// Tells when a frontier moves.
    pub fn watch_frontiers(&self) -> watch::Receiver<Arc<Frontiers>> {
        self.inner.frontiers.subscribe()
    }

    /// Creates a relation and, with a graph, its job; returns when it is durable and readable (a backfill may take long; who stops waiting does
    /// not stop the job). The relation's number is ignored; its `table` and all numbers in the graph are local, relation 0 is the new one.
    /// Errors: 42P07 for a taken name, 42P01 if something it reads is gone, or what made the job fail.
    pub async fn create(&self, relation: Relation, graph: Option<FragmentGraph>) -> Result<ObjectId> {
        let new = Box::new(NewRelation { relation, graph, parallelism: self.inner.config.parallelism });
        match self.ask(None, move |ticket| Event::Create { ticket, new }).await? {
            Reply::Created(id) => Ok(id),
            Reply::Done | Reply::Compacted(_) => Err(Error::internal("CREATE got no number")),
        }
    }

    /// Drops relations, all or none; returns when they are gone from the catalog and their shards have ended. Relations that depend on them
    /// and are not listed: 2BP01.
    pub async fn drop_relations(&self, ids: Vec<ObjectId>) -> Result<()> {
        self.ask(Some(Duration::from_secs(60)), move |ticket| Event::Drop { ticket, ids }).await.map(|_| ())
    }

    /// Starts a checkpoint of the job's domain as soon as possible: at once, or when the one on its way is committed.
    pub async fn request_checkpoint(&self, job: JobId) -> Result<()> {
        self.inner.requests.send(Request::Tell(Event::RequestCheckpoint { job })).await.map_err(|_| stopped())
    }

    /// Waits until an epoch that DML of the job was given is durable. 40001: a failure rolled it back.
    pub async fn wait_committed(&self, job: JobId, epoch: Epoch, wait: Duration) -> Result<()> {
        self.ask(Some(wait), move |ticket| Event::WaitCommitted { ticket, job, epoch }).await.map(|_| ())
    }

    /// A checkpoint of every running domain; returns when all are durable.
    pub async fn flush(&self, wait: Duration) -> Result<()> {
        self.ask(Some(wait), |ticket| Event::Flush { ticket }).await.map(|_| ())
    }

    /// Commits a compaction; false: an input is gone, the outputs are garbage.
    pub async fn commit_compaction(&self, delta: VersionDelta) -> Result<bool> {
        match self.ask(Some(SHORT), move |ticket| Event::Compact { ticket, delta }).await? {
            Reply::Compacted(won) => Ok(won),
            Reply::Done | Reply::Created(_) => Err(Error::internal("a compaction got a wrong answer")),
        }
    }

    /// Pauses or resumes all sources, with their next barrier.
    pub async fn pause(&self, paused: bool) -> Result<()> {
        self.ask(Some(SHORT), move |ticket| Event::Pause { ticket, paused }).await.map(|_| ())
    }

    /// The state of affairs.
    pub async fn status(&self) -> Result<MetaStatus> {
        let (answer, wait) = oneshot::channel();
        self.send_and_wait(Request::Status(answer), wait, Some(SHORT)).await
    }

    /// The newest barriers, oldest first.
    pub async fn barriers(&self) -> Result<Vec<BarrierRecord>> {
        let (answer, wait) = oneshot::channel();
        self.send_and_wait(Request::Barriers(answer), wait, Some(SHORT)).await
    }

    /// Waits until every job that is to run runs; false when the time is up.
    pub async fn wait_ready(&self, wait: Duration) -> bool {
        let mut ready = self.inner.ready.subscribe();
        clock::timeout(wait, async move { ready.wait_for(|r| *r).await.is_ok() }).await.unwrap_or(false)
    }

    /// Waits until meta can decide nothing any more because its log cannot be written: the process should end. Normally never returns.
    pub async fn wait_halted(&self) -> Error {
        let mut halted = self.inner.halted.subscribe();
        match halted.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or_else(stopped),
            // The sender lives in `inner`, as long as we do.
            Err(_) => stopped(),
        }
    }

    /// Whether every job that is to run runs.
    pub fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// Makes a snapshot of the state machine now and waits until it is durable.
    pub async fn snapshot(&self, wait: Duration) -> Result<()> {
        self.inner.raft.snapshot(wait).await
    }

    /// Answers the Raft group's messages; to be served by the node's RPC server.
    pub fn service(&self) -> RaftService {
        self.inner.raft.service()
    }

    /// A last checkpoint of all domains, then the end of all shards and of Raft. An error says that the last checkpoint did not come about
    /// in time; nothing acknowledged is lost by that.
    pub async fn shutdown(&self, wait: Duration) -> Result<()> {
        let result = if self.inner.unstarted.lock().is_some() {
            Ok(())
        } else {
            self.ask(Some(wait), |ticket| Event::Shutdown { ticket }).await.map(|_| ())
        };
        self.inner.raft.shutdown().await;
        result
    }

    async fn ask(&self, wait: Option<Duration>, make: impl FnOnce(Ticket) -> Event + Send + 'static) -> Result<Reply> {
        let (answer, receiver) = oneshot::channel();
        self.send_and_wait(Request::Ask { make: Box::new(make), answer }, receiver, wait).await?
    }

    async fn send_and_wait<T>(&self, request: Request, answer: oneshot::Receiver<T>, wait: Option<Duration>) -> Result<T> {
        let work = async {
            self.inner.requests.send(request).await.map_err(|_| stopped())?;
            answer.await.map_err(|_| stopped())
        };
        match wait {
            Some(wait) => clock::timeout(wait, work).await.unwrap_or_else(|| Err(late(wait))),
            // Only CREATE: its backfill takes as long as the data need.
            None => work.await,
        }
    }
}

fn watch_catalog(mut state: watch::Receiver<Arc<MetaState>>) -> watch::Receiver<Arc<Catalog>> {
    let (sender, receiver) = watch::channel(state.borrow_and_update().catalog.clone());
    spawn::task("catalog-watch", async move {
        while state.changed().await.is_ok() {
            let next = state.borrow_and_update().catalog.clone();
            sender.send_if_modified(|old| {
                let changed = !Arc::ptr_eq(old, &next);
                *old = next;
                changed
            });
        }
    });
    receiver
}

fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, SqlState::ADMIN_SHUTDOWN, "the server is shutting down")
}

fn late(wait: Duration) -> Error {
    Error::cancelled(format!("no answer within {} ms", wait.as_millis())).with_hint("The work may still be done.")
}
