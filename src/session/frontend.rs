//! What all sessions of a node share: the engines' handles, the limits, and who is connected.

use crate::coordinator::Coordinator;
use crate::registry::Registry;
use crate::session::{CancelKey, Session};
use eddyline_protocol::control::{DmlSink, JobFigures};
use eddyline_protocol::{Catalog, Frontiers};
use eddyline_serving::system::{SessionRow, SystemState};
use eddyline_serving::{ClusterView, Serving, ServingConfig};
use eddyline_store::Store;
use eddyline_types::Result;
use std::sync::Arc;
use std::time::Duration;

/// The name of the only database.
pub const DATABASE: &str = "dev";

/// How a client is connected: a label of metrics and of `eddy_catalog.sessions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Protocol {
    Postgres,
    Http,
}

impl Protocol {
    /// As in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Postgres => "pg",
            Protocol::Http => "http",
        }
    }
}

/// Bounds of what clients may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions at a time; one more gets SQLSTATE 53300.
    pub max_sessions: usize,
    /// Memory of all running queries together, in bytes; a query that needs more gets 53200.
    pub query_memory_bytes: usize,
    /// Parallelism of one query.
    pub query_threads: usize,
    /// How long a statement waits for its commit before it gives up with 57014 (the change may still be committed).
    pub commit_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_sessions: 1000, query_memory_bytes: 512 << 20, query_threads: 2, commit_timeout: Duration::from_secs(60) }
    }
}

/// What a frontend is made of; put together by `Node`.
pub struct FrontendParts {
    /// Bounds.
    pub limits: Limits,
    /// Meta: a [`crate::MetaCoordinator`] around `eddyline_raft_meta::Meta`.
    pub coordinator: Arc<dyn Coordinator>,
    /// Where rows are read.
    pub store: Store,
    /// Where INSERT, UPDATE and DELETE go.
    pub dml: Arc<dyn DmlSink>,
    /// What `eddy_catalog` shows of the node; its `sessions` are taken from the frontend itself.
    pub system: Arc<dyn SystemState>,
}

/// What a client says when it connects.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How it is connected.
    pub protocol: Protocol,
    /// User name; any is accepted for now, `root` is the default.
    pub user: String,
    /// Database; `dev` is the one that exists, another gets 3D000.
    pub database: String,
    /// Peer address, for `eddy_catalog.sessions`.
    pub peer: String,
    /// Variables of the start-up message or of the request's `settings`, by lower-case name.
    pub settings: Vec<(String, String)>,
}

/// One connected client, as `eddy_catalog.sessions` shows it.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Number of the session: the process id of the cancel key.
    pub id: i32,
    /// `pg` or `http`.
    pub protocol: &'static str,
    /// User name.
    pub user: String,
    /// Database.
    pub database: String,
    /// Peer address.
    pub peer: String,
    /// Milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// `idle`, `active`, `idle in transaction`, `idle in transaction (aborted)`.
    pub state: &'static str,
    /// The statement that runs, or the last one.
    pub statement: String,
}

/// Shared by all sessions. Cheap to clone.
#[derive(Clone)]
pub struct Frontend {
    inner: Arc<Inner>,
}

struct Inner {
    limits: Limits,
    coordinator: Arc<dyn Coordinator>,
    serving: Serving,
    dml: Arc<dyn DmlSink>,
    registry: Arc<Registry>,
}

impl Frontend {
    /// Puts a frontend together.
    pub fn new(parts: FrontendParts) -> Result<Self> {
        let config = ServingConfig {
            memory_bytes: parts.limits.query_memory_bytes,
            threads: parts.limits.query_threads,
            ..ServingConfig::default()
        };
        let registry = Arc::new(Registry::default());
        let view = Arc::new(View(parts.coordinator.clone()));
        let system = Arc::new(WithSessions { system: parts.system, registry: registry.clone() });
        let serving = Serving::new(parts.store, view, system, config)?;
        let inner = Inner { limits: parts.limits, coordinator: parts.coordinator, serving, dml: parts.dml, registry };
        Ok(Frontend { inner: Arc::new(inner) })
    }

    /// Opens a session. Errors: unknown database (3D000), too many sessions (53300), an invalid setting (22023).
    pub fn open(&self, options: SessionOptions) -> Result<Session> {
        Session::open(self.clone(), options)
    }

    /// Cancels what the session with this key is running: it ends with SQLSTATE 57014. `false`: there is no such session (a wrong
    /// secret says the same). As in Postgres, nothing is told to the one who asks.
    pub fn cancel(&self, key: CancelKey) -> bool {
        self.inner.registry.cancel(key)
    }

    /// Ends all sessions' statements at shutdown: they get 57P01, and so does who connects later.
    pub fn shutdown(&self) {
        self.inner.registry.shutdown();
    }

    /// Who is connected.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.inner.registry.list()
    }

    /// What exists now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.coordinator.catalog()
    }

    /// How far all jobs are.
    pub fn frontiers(&self) -> Arc<Frontiers> {
        self.inner.coordinator.frontiers()
    }

    /// The bounds.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// The serving engine.
    pub fn serving(&self) -> &Serving {
        &self.inner.serving
    }

    pub(crate) fn coordinator(&self) -> &Arc<dyn Coordinator> {
        &self.inner.coordinator
    }

    pub(crate) fn dml(&self) -> &Arc<dyn DmlSink> {
        &self.inner.dml
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.inner.registry
    }
}

/// The coordinator as the serving engine sees it.
struct View(Arc<dyn Coordinator>);

impl ClusterView for View {
    fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog()
    }

    fn frontiers(&self) -> Arc<Frontiers> {
        self.0.frontiers()
    }
}

/// The node's state with this frontend's sessions.
struct WithSessions {
    system: Arc<dyn SystemState>,
    registry: Arc<Registry>,
}

impl SystemState for WithSessions {
    fn job_figures(&self) -> JobFigures {
        self.system.job_figures()
    }

    fn domains(&self) -> Vec<eddyline_serving::system::DomainRow> {
        self.system.domains()
    }

    fn barriers(&self) -> Vec<eddyline_serving::system::BarrierRow> {
        self.system.barriers()
    }

    fn version(&self) -> Arc<eddyline_protocol::Version> {
        self.system.version()
    }

    fn compactions(&self) -> Vec<eddyline_serving::system::CompactionRow> {
        self.system.compactions()
    }

    fn nodes(&self) -> Vec<eddyline_serving::system::NodeRow> {
        self.system.nodes()
    }

    fn settings(&self) -> Vec<eddyline_serving::system::SettingRow> {
        self.system.settings()
    }

    fn sessions(&self) -> Vec<SessionRow> {
        let row = |s: SessionInfo| SessionRow {
            id: s.id,
            protocol: s.protocol.to_owned(),
            user: s.user,
            database: s.database,
            peer: s.peer,
            started_ms: s.started_ms,
            state: s.state.to_owned(),
            statement: s.statement,
        };
        self.registry.list().into_iter().map(row).collect()
    }
}
