//! The state machine as openraft sees it: applies entries to [`MetaState`], publishes it, makes and installs snapshots.
//!
//! The state lives in memory; snapshots are durable before they count. A snapshot is
//! `codec((last log id, membership, snapshot id, state bytes))`.

use super::log_store::Writer;
use super::{Outcomes, TypeConfig};
use crate::command::Command;
use crate::state::MetaState;
use eddyline_protocol::codec;
use eddyline_types::{Error, Result};
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, BasicNode, Entry, EntryPayload, LogId, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageError, StorageIOError,
    StoredMembership,
};
use parking_lot::Mutex;
use std::io::Cursor;
use std::sync::Arc;
use tokio::sync::watch;

type Storage<T> = std::result::Result<T, StorageError<u64>>;
type Meta = SnapshotMeta<u64, BasicNode>;

/// The newest durable snapshot, with its bytes: what a member that lags too far is sent.
type Current = Arc<Mutex<Option<(Meta, Arc<Vec<u8>>)>>>;

pub(super) struct Machine {
    state: MetaState,
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    current: Current,
    writer: Writer,
    publish: watch::Sender<Arc<MetaState>>,
}

/// A frozen copy of the state, to be written.
pub(super) struct Builder {
    state: MetaState,
    meta: Meta,
    writer: Writer,
    current: Current,
}

impl Machine {
    /// Starts from a snapshot's bytes, or empty.
    pub fn new(writer: Writer, snapshot: Option<Vec<u8>>) -> Result<(Self, watch::Receiver<Arc<MetaState>>)> {
        let (publish, receiver) = watch::channel(Arc::default());
        let mut this = Machine {
            state: MetaState::default(),
            applied: None,
            membership: StoredMembership::default(),
            current: Arc::default(),
            writer,
            publish,
        };
        if let Some(bytes) = snapshot {
            let (meta, state): (Meta, Vec<u8>) =
                codec::decode(&bytes).map_err(|e| Error::corruption(format!("meta snapshot is damaged: {e}")))?;
            this.load(&meta, &state)?;
            *this.current.lock() = Some((meta, Arc::new(state)));
        }
        Ok((this, receiver))
    }

    fn load(&mut self, meta: &Meta, state: &[u8]) -> Result<()> {
        self.state = MetaState::decode(state).map_err(|e| Error::corruption(format!("meta snapshot is damaged: {e}")))?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.publish.send_replace(Arc::new(self.state.clone()));
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Storage<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Storage<Vec<Outcomes>>
    where
        I: IntoIterator<Item = Entry<TypeConfig>> + Send,
        I::IntoIter: Send,
    {
        let mut outcomes = Vec::new();
        for entry in entries {
            self.applied = Some(entry.log_id);
            outcomes.push(match entry.payload {
                EntryPayload::Blank => Outcomes::default(),
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Outcomes::default()
                }
                EntryPayload::Normal(bytes) => {
                    let command = Command::decode(&bytes.0).map_err(|e| StorageIOError::apply(entry.log_id, AnyError::new(&e)))?;
                    Outcomes(self.state.apply(&command, entry.log_id.leader_id.term))
                }
            });
        }
        self.publish.send_replace(Arc::new(self.state.clone()));
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let index = self.applied.map_or(0, |l| l.index);
        let term = self.applied.map_or(0, |l| l.leader_id.term);
        let meta =
            SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone(), snapshot_id: format!("{term}-{index}") };
        Builder { state: self.state.clone(), meta, writer: self.writer.clone(), current: self.current.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Storage<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Box<Cursor<Vec<u8>>>) -> Storage<()> {
        let bytes = snapshot.into_inner();
        let failed = |e: AnyError| StorageError::from(StorageIOError::read_snapshot(Some(meta.signature()), e));
        // Decode before writing: a snapshot that cannot be read must not replace one that can.
        MetaState::decode(&bytes).map_err(|e| failed(AnyError::new(&e)))?;
        store_snapshot(&self.writer, meta, &bytes).await?;
        self.load(meta, &bytes).map_err(|e| failed(AnyError::new(&e)))?;
        *self.current.lock() = Some((meta.clone(), Arc::new(bytes)));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Storage<Option<Snapshot<TypeConfig>>> {
        let current = self.current.lock();
        Ok(current.as_ref().map(|(meta, bytes)| Snapshot { meta: meta.clone(), snapshot: Box::new(Cursor::new(bytes.to_vec())) }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    async fn build_snapshot(&mut self) -> Storage<Snapshot<TypeConfig>> {
        let failed = |e: AnyError| StorageError::from(StorageIOError::write_snapshot(Some(self.meta.signature()), e));
        let bytes = self.state.encode().map_err(|e| failed(AnyError::new(&e)))?;
        store_snapshot(&self.writer, &self.meta, &bytes).await?;
        metrics::gauge!("eddyline_raft_snapshot_bytes").set(bytes.len() as f64);
        let bytes = Arc::new(bytes);
        *self.current.lock() = Some((self.meta.clone(), bytes.clone()));
        Ok(Snapshot { meta: self.meta.clone(), snapshot: Box::new(Cursor::new(bytes.to_vec())) })
    }
}

async fn store_snapshot(writer: &Writer, meta: &Meta, state: &[u8]) -> Storage<()> {
    let failed = |e: AnyError| StorageError::from(StorageIOError::write_snapshot(Some(meta.signature()), e));
    let bytes = codec::encode(&(meta, state)).map_err(|e| failed(AnyError::new(&e)))?;
    writer.put_snapshot(bytes).await.map_err(|e| failed(AnyError::new(&e)))
}
