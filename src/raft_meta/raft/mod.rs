//! The openraft glue: everything generic of the Raft library stays in this module, behind [`RaftNode`].
//!
//! The log is durable before it is acknowledged; the state machine lives in memory and is rebuilt on start from the last
//! snapshot and the log after it. Reading order: this file, `log_store` (redb), `machine` (apply, snapshots), `network` (RPC).

mod log_store;
mod machine;
mod network;
#[cfg(test)]
mod tests;

use crate::command::{Command, Outcome};
use crate::state::MetaState;
use eddyline_types::{Error, ErrorKind, Result, SqlState};
use openraft::error::{ClientWriteError, RaftError};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub use network::RaftService;

/// Bytes of a [`Command`] in the log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommandBytes(pub Vec<u8>);

/// What applying an entry answered: the outcomes of its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Outcomes(pub Vec<Outcome>);

openraft::declare_raft_types!(
    /// The types that openraft is instantiated with.
    pub TypeConfig:
        D = CommandBytes,
        R = Outcomes,
        NodeId = u64,
        Node = BasicNode,
);

/// Settings of the Raft group, resolved.
#[derive(Clone, Debug)]
pub struct RaftSettings {
    /// This node.
    pub node: u64,
    /// Addresses of all voters, this node included, when the group is founded.
    pub voters: BTreeMap<u64, String>,
    /// Entries after which a snapshot is made.
    pub snapshot_after: u64,
    /// Longest wait for a write.
    pub write_timeout: Duration,
    /// Longest wait for a leader at the start.
    pub election_timeout: Duration,
}

impl Default for RaftSettings {
    fn default() -> Self {
        RaftSettings {
            node: 1,
            voters: BTreeMap::from([(1, "127.0.0.1:4568".to_owned())]),
            snapshot_after: 2000,
            write_timeout: Duration::from_secs(30),
            election_timeout: Duration::from_secs(20),
        }
    }
}

/// Figures for the status and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaftFigures {
    /// Term.
    pub term: u64,
    /// Leader, if known.
    pub leader: Option<u64>,
    /// Newest log entry.
    pub last_log: Option<u64>,
    /// Newest applied entry.
    pub last_applied: Option<u64>,
    /// Entries that the last snapshot holds.
    pub snapshot: Option<u64>,
}

/// One member of the Raft group.
pub struct RaftNode {
    raft: Raft<TypeConfig>,
    state: watch::Receiver<Arc<MetaState>>,
    settings: RaftSettings,
    writer: log_store::Writer,
}

impl RaftNode {
    /// Opens log and snapshot in `dir`, founds the group if they are new. Damaged files are an error of kind `Corruption`.
    pub async fn open(dir: &Path, settings: RaftSettings) -> Result<Self> {
        let path = dir.join("raft.redb");
        let opened = eddyline_env::spawn::blocking(move || log_store::LogStore::open(&path)).await;
        let (log, snapshot) = opened.map_err(|e| Error::internal(format!("opening the meta log failed: {e}")))??;
        let (machine, state) = machine::Machine::new(log.writer(), snapshot)?;
        let writer = log.writer();
        let fresh = log.is_empty() && state.borrow().catalog.version == 0;
        let config = Config {
            cluster_name: "eddyline".into(),
            heartbeat_interval: 250,
            election_timeout_min: 1000,
            election_timeout_max: 2000,
            install_snapshot_timeout: 10_000,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_after),
            max_in_snapshot_log_to_keep: 100,
            purge_batch_size: 64,
            // A group of one does not need heartbeats: an idle server shall sleep.
            enable_heartbeat: settings.voters.len() > 1,
            ..Config::default()
        };
        let config = Arc::new(config.validate().map_err(|e| Error::internal(format!("raft settings: {e}")))?);
        let network = network::Network::new(settings.node);
        let raft = Raft::new(settings.node, config, network, log, machine).await.map_err(|e| fatal(&e))?;
        if fresh {
            let voters: BTreeMap<u64, BasicNode> = settings.voters.iter().map(|(id, a)| (*id, BasicNode::new(a))).collect();
            match raft.initialize(voters).await {
                Ok(()) | Err(RaftError::APIError(openraft::error::InitializeError::NotAllowed(_))) => {}
                Err(e) => return Err(Error::internal(format!("cannot found the meta group: {e}"))),
            }
        }
        Ok(RaftNode { raft, state, settings, writer })
    }

    /// Waits until this node leads and has applied all that was committed; returns the term.
    pub async fn await_leadership(&self) -> Result<u64> {
        let lead = async {
            let mut metrics = self.raft.metrics();
            loop {
                {
                    let m = metrics.borrow_and_update();
                    m.running_state.clone().map_err(|e| fatal(&e))?;
                    if m.state.is_leader() {
                        break;
                    }
                }
                metrics.changed().await.map_err(|_| Error::unavailable("the meta service ended"))?;
            }
            self.raft.ensure_linearizable().await.map_err(|e| Error::unavailable(format!("meta cannot confirm its leadership: {e}")))?;
            Ok(self.figures().term)
        };
        eddyline_env::clock::timeout(self.settings.election_timeout, lead)
            .await
            .unwrap_or_else(|| Err(Error::unavailable("no meta leader was elected in time")))
    }

    /// Writes a command; returns its outcomes when it is durable and applied here.
    pub async fn write(&self, command: &Command) -> Result<Vec<Outcome>> {
        if eddyline_env::failpoint::hit("meta.before_write") {
            return Err(Error::unavailable("fail point meta.before_write"));
        }
        let bytes = CommandBytes(command.encode()?);
        let written = eddyline_env::clock::timeout(self.settings.write_timeout, self.raft.client_write(bytes)).await;
        if eddyline_env::failpoint::hit("meta.after_write") {
            return Err(Error::unavailable("fail point meta.after_write"));
        }
        match written {
            Some(Ok(response)) => Ok(response.data.0),
            Some(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to)))) => {
                let leader = to.leader_node.map_or_else(|| "unknown".to_owned(), |n| n.addr);
                Err(Error::new(ErrorKind::Unavailable, SqlState::CANNOT_CONNECT_NOW, "this node does not lead the meta group")
                    .with_detail(format!("The leader is {leader}.")))
            }
            Some(Err(e)) => Err(Error::unavailable(format!("meta cannot write its log: {e}"))),
            None => Err(Error::unavailable("meta cannot write its log: no answer in time")),
        }
    }

    /// The state after the newest applied entry; changes are seen by all receivers.
    pub fn state(&self) -> watch::Receiver<Arc<MetaState>> {
        self.state.clone()
    }

    /// Figures now.
    pub fn figures(&self) -> RaftFigures {
        let metrics = self.raft.metrics();
        let m = metrics.borrow();
        RaftFigures {
            term: m.current_term,
            leader: m.current_leader,
            last_log: m.last_log_index,
            last_applied: m.last_applied.map(|l| l.index),
            snapshot: m.snapshot.map(|l| l.index),
        }
    }

    /// Answers the group's messages; to be served by the node's RPC server.
    pub fn service(&self) -> RaftService {
        RaftService::new(self.raft.clone())
    }

    /// This node's number.
    pub fn node(&self) -> u64 {
        self.settings.node
    }

    /// Stops the Raft task and closes the files.
    pub async fn shutdown(&self) {
        if let Err(e) = self.raft.shutdown().await {
            tracing::warn!(error = %e, "the raft task ended badly");
        }
        self.writer.close().await;
    }

    /// Makes a snapshot now and waits for it. For tests and backups.
    pub async fn snapshot(&self, wait: Duration) -> Result<()> {
        let applied = self.figures().last_applied.unwrap_or(0);
        self.raft.trigger().snapshot().await.map_err(|e| fatal(&e))?;
        let mut metrics = self.raft.metrics();
        let done = async {
            while metrics.borrow_and_update().snapshot.is_none_or(|l| l.index < applied) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        eddyline_env::clock::timeout(wait, done).await.ok_or_else(|| Error::unavailable("the snapshot was not made in time"))
    }
}

/// Errors after which Raft does nothing any more. The library wraps storage errors; their text is kept.
fn fatal(error: &openraft::error::Fatal<u64>) -> Error {
    use openraft::error::Fatal;
    match error {
        Fatal::StorageError(e) => Error::corruption(format!("meta storage failed: {e}")),
        Fatal::Panicked | Fatal::Stopped => Error::internal(format!("the meta service ended: {error}")),
    }
}
