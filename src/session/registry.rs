//! Who is connected: numbers, cancel keys and what each session is doing.

use crate::frontend::{SessionInfo, SessionOptions};
use crate::session::{CancelKey, TransactionStatus};
use eddyline_env::{clock, random};
use eddyline_serving::{Cancel, CancelReason};
use eddyline_types::{Error, ErrorKind, Result, SqlState};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Characters of a statement that are kept for `eddy_catalog.sessions`.
const SHOWN_STATEMENT: usize = 1024;

/// All sessions of a node.
#[derive(Default)]
pub struct Registry(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    last_id: i32,
    by_id: BTreeMap<i32, Arc<Entry>>,
    closed: bool,
}

/// One session, as others may see it.
pub struct Entry {
    key: CancelKey,
    options: SessionOptions,
    started_ms: u64,
    activity: Mutex<Activity>,
}

struct Activity {
    cancel: Cancel,
    running: bool,
    status: TransactionStatus,
    statement: String,
}

impl Registry {
    /// A new session.
    pub fn open(&self, options: SessionOptions, limit: usize) -> Result<Arc<Entry>> {
        let mut sessions = self.0.lock();
        if sessions.closed {
            return Err(CancelReason::Shutdown.error());
        }
        if sessions.by_id.len() >= limit {
            return Err(Error::new(ErrorKind::Unavailable, SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        let id = loop {
            sessions.last_id = sessions.last_id.checked_add(1).unwrap_or(1);
            if !sessions.by_id.contains_key(&sessions.last_id) {
                break sessions.last_id;
            }
        };
        let key = CancelKey { process_id: id, secret: random::next_u64() as i32 };
        let activity = Activity { cancel: Cancel::default(), running: false, status: TransactionStatus::Idle, statement: String::new() };
        let entry = Arc::new(Entry { key, options, started_ms: clock::unix_millis(), activity: Mutex::new(activity) });
        sessions.by_id.insert(id, entry.clone());
        metrics::gauge!("eddyline_sessions").set(sessions.by_id.len() as f64);
        Ok(entry)
    }

    /// A session ended.
    pub fn close(&self, id: i32) {
        let mut sessions = self.0.lock();
        sessions.by_id.remove(&id);
        metrics::gauge!("eddyline_sessions").set(sessions.by_id.len() as f64);
    }

    /// Cancels what a session runs.
    pub fn cancel(&self, key: CancelKey) -> bool {
        let entry = self.0.lock().by_id.get(&key.process_id).cloned();
        match entry {
            Some(entry) if entry.key == key => {
                entry.activity.lock().cancel.cancel(CancelReason::User);
                true
            }
            _ => false,
        }
    }

    /// Cancels everything and takes no new sessions.
    pub fn shutdown(&self) {
        let entries: Vec<Arc<Entry>> = {
            let mut sessions = self.0.lock();
            sessions.closed = true;
            sessions.by_id.values().cloned().collect()
        };
        entries.iter().for_each(|e| e.activity.lock().cancel.cancel(CancelReason::Shutdown));
    }

    /// All sessions, by number.
    pub fn list(&self) -> Vec<SessionInfo> {
        let entries: Vec<Arc<Entry>> = self.0.lock().by_id.values().cloned().collect();
        entries.iter().map(|e| e.info()).collect()
    }
}

impl Entry {
    /// Number and secret.
    pub fn key(&self) -> CancelKey {
        self.key
    }

    /// How the session was opened.
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// A statement starts; it is ended by the handle that is returned.
    pub fn start(&self, statement: &str) -> Cancel {
        let mut activity = self.activity.lock();
        // A shutdown outlives the statement; a cancel request that came too late does not hit the next one.
        if activity.cancel.reason() != Some(CancelReason::Shutdown) {
            activity.cancel = Cancel::default();
        }
        activity.running = true;
        activity.statement = statement.chars().take(SHOWN_STATEMENT).collect();
        activity.cancel.clone()
    }

    /// The statement has ended.
    pub fn finish(&self, status: TransactionStatus) {
        let mut activity = self.activity.lock();
        activity.running = false;
        activity.status = status;
    }

    fn info(&self) -> SessionInfo {
        let activity = self.activity.lock();
        SessionInfo {
            id: self.key.process_id,
            protocol: self.options.protocol.name(),
            user: self.options.user.clone(),
            database: self.options.database.clone(),
            peer: self.options.peer.clone(),
            started_ms: self.started_ms,
            state: match (activity.running, activity.status) {
                (true, _) => "active",
                (false, TransactionStatus::Idle) => "idle",
                (false, TransactionStatus::Open) => "idle in transaction",
                (false, TransactionStatus::Failed) => "idle in transaction (aborted)",
            },
            statement: activity.statement.clone(),
        }
    }
}
