//! What travels between shards: chunks with their credit, and barriers. One queue and one order per channel.
//!
//! A channel is one (edge, sending shard) pair as one receiving shard sees it; it is numbered when the receiver is built.
//! Invariant: what was posted on a channel arrives in the order of posting, and chunks never arrive without a credit.

use crate::credit::Permit;
use eddyline_protocol::Barrier;
use eddyline_types::Chunk;
use std::sync::Arc;

/// A barrier with the numbers that its answers must carry.
#[derive(Debug)]
pub struct Issued {
    /// The build of the domain that it was injected into.
    pub attempt: u64,
    /// The barrier.
    pub barrier: Barrier,
    /// When it was injected, by the monotonic clock.
    pub issued_nanos: u64,
}

/// One message of a channel.
#[derive(Debug)]
pub enum Message {
    /// Rows. The permit returns to the sender when the chunk was consumed.
    Chunk(Chunk, Permit),
    /// The end of an epoch. Needs no credit, stays behind the chunks before it.
    Barrier(Arc<Issued>),
}

/// What is put into a shard's mailbox.
#[derive(Debug)]
pub enum Input {
    /// From another shard.
    Deliver {
        /// The receiver's number of the channel.
        channel: u32,
        /// The message.
        message: Message,
    },
    /// A barrier for a shard without input channels, from the worker.
    Inject(Arc<Issued>),
}

/// The address of a shard. Posting never waits; a message to a shard that ended is dropped (its permit returns).
pub trait Post: Send + Sync {
    /// Puts a message into the shard's mailbox.
    fn post(&self, input: Input);
}
