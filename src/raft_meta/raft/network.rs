//! Messages between the members of the Raft group, over the node-to-node RPC.

use super::TypeConfig;
use async_trait::async_trait;
use bytes::Bytes;
use eddyline_protocol::codec;
use eddyline_rpc::{Handler, Hello};
use eddyline_types::{Error, Result};
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Raft};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

type RpcResult<T, E = RaftError<u64>> = std::result::Result<T, RPCError<u64, BasicNode, E>>;

/// Method numbers of the Raft group; never reused.
pub mod method {
    /// Append entries, heartbeats.
    pub const APPEND: u32 = 0x100;
    /// Request a vote.
    pub const VOTE: u32 = 0x101;
    /// One piece of a snapshot.
    pub const SNAPSHOT: u32 = 0x102;
}

/// Name of the cluster in the handshake.
pub const CLUSTER: &str = "eddyline";

/// Makes a peer per member.
#[derive(Clone)]
pub(super) struct Network {
    own: u64,
}

impl Network {
    pub fn new(own: u64) -> Self {
        Network { own }
    }
}

/// The way to one member.
pub(super) struct Member {
    target: u64,
    peer: eddyline_rpc::Peer,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Member;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Member {
        let own = Hello::new(CLUSTER, self.own);
        Member { target, peer: eddyline_rpc::Peer::new(&node.addr, own, Arc::new(NothingServed)) }
    }
}

/// Members ask over connections that they opened themselves.
struct NothingServed;

#[async_trait]
impl Handler for NothingServed {
    async fn call(&self, method: u32, _payload: Bytes) -> Result<Bytes> {
        Err(Error::internal(format!("method {method} is not served over this connection")))
    }
}

impl Member {
    async fn ask<Q, A, E>(&self, method: u32, request: &Q, wait: Duration) -> RpcResult<A, E>
    where
        Q: Serialize,
        A: DeserializeOwned,
        E: DeserializeOwned + std::error::Error,
    {
        let bytes = codec::encode(request).map_err(|e| RPCError::Network(NetworkError::new(&e)))?;
        let answer = self.peer.call(method, bytes.into(), wait).await.map_err(|e| RPCError::Unreachable(Unreachable::new(&e)))?;
        let answer: std::result::Result<A, E> = codec::decode(&answer).map_err(|e| RPCError::Network(NetworkError::new(&e)))?;
        answer.map_err(|e| RPCError::RemoteError(RemoteError::new(self.target, e)))
    }
}

impl RaftNetwork<TypeConfig> for Member {
    async fn append_entries(&mut self, rpc: AppendEntriesRequest<TypeConfig>, option: RPCOption) -> RpcResult<AppendEntriesResponse<u64>> {
        self.ask(method::APPEND, &rpc, option.hard_ttl()).await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>> {
        self.ask(method::SNAPSHOT, &rpc, option.hard_ttl()).await
    }

    async fn vote(&mut self, rpc: VoteRequest<u64>, option: RPCOption) -> RpcResult<VoteResponse<u64>> {
        self.ask(method::VOTE, &rpc, option.hard_ttl()).await
    }
}

/// Answers the group's messages: the node's RPC server hands it the calls with a method of [`method`].
#[derive(Clone)]
pub struct RaftService {
    raft: Raft<TypeConfig>,
}

impl RaftService {
    pub(super) fn new(raft: Raft<TypeConfig>) -> Self {
        RaftService { raft }
    }
}

#[async_trait]
impl Handler for RaftService {
    async fn call(&self, method: u32, payload: Bytes) -> Result<Bytes> {
        let answer = match method {
            method::APPEND => codec::encode(&self.raft.append_entries(codec::decode(&payload)?).await)?,
            method::VOTE => codec::encode(&self.raft.vote(codec::decode(&payload)?).await)?,
            method::SNAPSHOT => codec::encode(&self.raft.install_snapshot(codec::decode(&payload)?).await)?,
            other => return Err(Error::internal(format!("the meta group has no method {other}"))),
        };
        Ok(answer.into())
    }
}
