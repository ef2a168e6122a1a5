//! Dispatch: which shard gets which rows of a fragment's output, and when they are sent.
//!
//! A chunk is split once (vnodes hashed once, counting sort into per-shard selections, `take`); a stream with one receiver passes the
//! reference-counted columns on without a copy. Small pieces wait until about a chunk is together; the task flushes them when it has
//! nothing else to do and before every barrier, so waiting never delays a result.
//! Invariant: nothing is pending when a barrier is posted, and each chunk that is posted holds a permit of its channel.

use crate::credit::Credits;
use crate::message::{Input, Issued, Message, Post};
use arrow::array::UInt32Array;
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::SchemaRef;
use eddyline_env::clock;
use eddyline_protocol::{Dispatch, Edge, Mutation};
use eddyline_types::{Chunk, Error, JobId, Result, vnode};
use std::sync::Arc;

/// Rows that one message should carry under load.
pub const TARGET_ROWS: usize = 4096;

/// Whether shard `from` of `senders` has a channel to shard `to` of `receivers`. Every receiver has at least one channel, or it would see no barrier.
pub fn is_connected(dispatch: &Dispatch, from: u32, senders: u32, to: u32, receivers: u32) -> bool {
    match dispatch {
        Dispatch::Hash(_) | Dispatch::Broadcast | Dispatch::Single => true,
        Dispatch::NoShuffle => from == to,
        Dispatch::Forward => from % receivers == to || to % senders == from,
    }
}

/// The sending end of a channel.
pub struct Outlet {
    /// The receiver's position among its fragment's shards.
    pub shard: u32,
    /// The receiver's number of the channel.
    pub channel: u32,
    /// The receiver.
    pub to: Arc<dyn Post>,
    /// What may be in flight.
    pub credits: Arc<Credits>,
    pending: Vec<Chunk>,
    pending_rows: usize,
}

impl Outlet {
    /// A channel with nothing pending.
    pub fn new(shard: u32, channel: u32, to: Arc<dyn Post>, credits: Arc<Credits>) -> Self {
        Outlet { shard, channel, to, credits, pending: Vec::new(), pending_rows: 0 }
    }

    fn add(&mut self, chunk: Chunk) {
        self.pending_rows += chunk.num_rows();
        self.pending.push(chunk);
    }
}

/// The sending end of an edge.
pub struct EdgeOut {
    edge: Edge,
    /// The job that receives.
    job: JobId,
    /// Columns that travel, if not all in order.
    columns: Option<Vec<usize>>,
    schema: SchemaRef,
    outlets: Vec<Outlet>,
    /// Receiving shard of each vnode, as a position in `outlets`.
    outlet_of_vnode: Vec<u16>,
}

impl EdgeOut {
    /// An edge whose sender emits `schema`; `outlets` are ordered by the receiver's shard. For `Forward`, the first is where the rows go.
    pub fn new(edge: Edge, job: JobId, schema: &SchemaRef, mut outlets: Vec<Outlet>, from: u32, receivers: u32) -> Result<Self> {
        if outlets.is_empty() {
            return Err(Error::internal(format!("edge {} has no receiver", edge.id)));
        }
        if edge.dispatch == Dispatch::Forward {
            outlets.sort_by_key(|o| o.shard != from % receivers);
        }
        let columns = (!edge.columns.iter().copied().eq(0..schema.fields().len())).then(|| edge.columns.clone());
        let schema = match &columns {
            Some(columns) => Arc::new(schema.project(columns)?),
            None => schema.clone(),
        };
        let shards = outlets.len() as u32;
        let outlet_of_vnode = (0..vnode::VNODE_COUNT).map(|v| vnode::shard_of(v as u16, shards) as u16).collect();
        Ok(EdgeOut { edge, job, columns, schema, outlets, outlet_of_vnode })
    }

    /// Puts a chunk into the channels' pending lists.
    fn route(&mut self, chunk: &Chunk) -> Result<()> {
        let chunk = match &self.columns {
            Some(columns) => chunk.project(columns)?,
            None => chunk.clone(),
        };
        match &self.edge.dispatch {
            Dispatch::Hash(columns) if self.outlets.len() > 1 => {
                let columns: Vec<_> = columns.iter().map(|c| chunk.column(*c).clone()).collect();
                let vnodes = vnode::of_columns(&columns, chunk.num_rows())?;
                self.scatter(&chunk, &vnodes)
            }
            Dispatch::Broadcast => {
                self.outlets.iter_mut().for_each(|o| o.add(chunk.clone()));
                Ok(())
            }
            Dispatch::Hash(_) | Dispatch::Single | Dispatch::NoShuffle | Dispatch::Forward => {
                self.outlets[0].add(chunk);
                Ok(())
            }
        }
    }

    /// Counting sort of the rows by receiver, then one `take` for each.
    fn scatter(&mut self, chunk: &Chunk, vnodes: &[u16]) -> Result<()> {
        let mut ends = vec![0u32; self.outlets.len() + 1];
        for v in vnodes {
            ends[self.outlet_of_vnode[*v as usize] as usize + 1] += 1;
        }
        if let Some(only) = ends[1..].iter().position(|n| *n as usize == vnodes.len()) {
            self.outlets[only].add(chunk.clone());
            return Ok(());
        }
        for i in 1..ends.len() {
            ends[i] += ends[i - 1];
        }
        let starts = ends.clone();
        let mut rows = vec![0u32; vnodes.len()];
        for (row, v) in vnodes.iter().enumerate() {
            let end = &mut ends[self.outlet_of_vnode[*v as usize] as usize];
            rows[*end as usize] = row as u32;
            *end += 1;
        }
        let rows = ScalarBuffer::from(rows);
        for (i, outlet) in self.outlets.iter_mut().enumerate() {
            let (start, count) = (starts[i] as usize, (starts[i + 1] - starts[i]) as usize);
            if count > 0 {
                outlet.add(chunk.take(&UInt32Array::new(rows.slice(start, count), None))?);
            }
        }
        Ok(())
    }
}

/// All edges that leave a shard.
#[derive(Default)]
pub struct Outputs {
    edges: Vec<EdgeOut>,
    /// Nanoseconds spent waiting for credits.
    pub blocked_nanos: u64,
    /// Rows posted, counted once for each edge.
    pub rows: u64,
}

impl Outputs {
    /// Adds an edge.
    pub fn attach(&mut self, edge: EdgeOut) {
        self.edges.push(edge);
    }

    /// Removes the edges to jobs that a barrier drops; to be called after that barrier was sent.
    pub fn detach(&mut self, mutation: &Mutation) {
        if let Mutation::Drop { jobs } = mutation {
            self.edges.retain(|e| !jobs.contains(&e.job));
        }
    }

    /// Routes a chunk over all edges and sends what is large enough.
    pub async fn send(&mut self, chunk: Chunk) -> Result<()> {
        for edge in &mut self.edges {
            edge.route(&chunk)?;
        }
        // At half a chunk: a 4096-row chunk that is split over two shards goes on as it is instead of being copied together.
        self.post_pending(TARGET_ROWS / 2).await
    }

    /// Whether small pieces wait.
    pub fn has_pending(&self) -> bool {
        self.edges.iter().any(|e| e.outlets.iter().any(|o| o.pending_rows > 0))
    }

    /// Sends what waits.
    pub async fn flush(&mut self) -> Result<()> {
        self.post_pending(1).await
    }

    async fn post_pending(&mut self, at_least: usize) -> Result<()> {
        for edge in &mut self.edges {
            for outlet in &mut edge.outlets {
                if outlet.pending_rows < at_least.max(1) {
                    continue;
                }
                let chunk = Chunk::concat(&edge.schema, &outlet.pending)?;
                outlet.pending.clear();
                outlet.pending_rows = 0;
                let (rows, bytes) = (chunk.num_rows(), chunk.size_bytes());
                let permit = match outlet.credits.try_take(rows, bytes) {
                    Some(permit) => permit,
                    None => {
                        let start = clock::monotonic_nanos();
                        let permit = outlet.credits.take(rows, bytes).await;
                        self.blocked_nanos += clock::monotonic_nanos() - start;
                        permit
                    }
                };
                self.rows += rows as u64;
                outlet.to.post(Input::Deliver { channel: outlet.channel, message: Message::Chunk(chunk, permit) });
            }
        }
        Ok(())
    }

    /// Sends a barrier over every channel. Everything must have been flushed.
    pub fn barrier(&self, issued: &Arc<Issued>) {
        assert!(!self.has_pending(), "rows of an epoch must leave before its barrier");
        for outlet in self.edges.iter().flat_map(|e| &e.outlets) {
            outlet.to.post(Input::Deliver { channel: outlet.channel, message: Message::Barrier(issued.clone()) });
        }
    }
}
