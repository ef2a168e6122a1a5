//! What all sessions of a node share: the engines' handles, the limits, and who is connected.

use crate::session::{CancelKey, Session};
use eddyline_protocol::{Catalog, Frontiers};
use eddyline_types::Result;
use std::sync::Arc;
use std::time::Duration;

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
    inner: Arc<FrontendParts>,
}

impl Frontend {
    /// Puts a frontend together.
    pub fn new(parts: FrontendParts) -> Self {
        Frontend { inner: Arc::new(parts) }
    }

    /// Opens a session. Errors: unknown database (3D000), too many sessions (53300), an invalid setting (22023).
    pub fn open(&self, options: SessionOptions) -> Result<Session> {
        Session::open(self.clone(), options)
    }

    /// Cancels what the session with this key is running: it ends with SQLSTATE 57014. `false`: there is no such session (a wrong
    /// secret says the same). As in Postgres, nothing is told to the one who asks.
    pub fn cancel(&self, key: CancelKey) -> bool {
        let _ = key;
        false
    }

    /// Ends all sessions' statements at shutdown: they get 57P01.
    pub fn shutdown(&self) {}

    /// Who is connected.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        Vec::new()
    }

    /// What exists now.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::default()
    }

    /// How far all jobs are.
    pub fn frontiers(&self) -> Arc<Frontiers> {
        Arc::default()
    }

    /// The bounds.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }
}
