//! Barriers: the messages that close an epoch on every stream.

use crate::plan::Edge;
use eddyline_types::{DomainId, Epoch, JobId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Whether the epoch's state becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BarrierKind {
    /// The first barrier that a shard sees: it has loaded its state as of `prev` and starts with the next epoch.
    /// Nothing is emitted or written for it.
    Initial,
    /// Results become visible; nothing is uploaded. Operators write only what readers see (materialized tables).
    Plain,
    /// State of all operators is written at this epoch and uploaded.
    Checkpoint,
}

/// A change of the graph that takes effect at a barrier, everywhere at the same epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mutation {
    /// Attach edges to running fragments. The sender adds the edge first and then sends this barrier over it too, so
    /// the barrier is the first message on a new edge.
    Attach {
        /// Edges from running fragments to new ones, with the number of shards of the receiver.
        edges: Vec<(Edge, u32)>,
    },
    /// The jobs end: their shards stop after passing the barrier on; senders remove edges to them after sending it.
    Drop {
        /// All jobs that end (a cascade ends together).
        jobs: Vec<JobId>,
    },
    /// Sources stop producing after the barrier (DML goes on).
    Pause,
    /// Sources go on.
    Resume,
}

/// Closes epoch `epoch`: what a stream carried since the barrier `prev` belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The domain that it belongs to.
    pub domain: DomainId,
    /// The epoch that ends here.
    pub epoch: Epoch,
    /// The barrier before it in this domain.
    pub prev: Epoch,
    /// Raft term of the leader that issued it: fences a deposed one.
    pub term: u64,
    /// See [`BarrierKind`].
    pub kind: BarrierKind,
    /// Change of the graph, if any.
    pub mutation: Option<Arc<Mutation>>,
}

impl Barrier {
    /// Whether all operators write their state.
    pub fn is_checkpoint(&self) -> bool {
        self.kind == BarrierKind::Checkpoint
    }

    /// Whether shards of the job stop after this barrier.
    pub fn drops(&self, job: JobId) -> bool {
        matches!(self.mutation.as_deref(), Some(Mutation::Drop { jobs }) if jobs.contains(&job))
    }
}
