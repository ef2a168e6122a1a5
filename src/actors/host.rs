//! Where tasks run: on actix arbiters in the node, in a seeded loop in tests.

use crate::message::{Input, Post};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Runs the tasks of shards and the I/O of the worker.
pub trait Host: Send + Sync {
    /// Starts the task of a shard; what is posted to the result must appear in `inbox`, in order. `placement` is any number; equal ones run on one thread.
    fn start(&self, placement: u32, inbox: mpsc::UnboundedSender<Input>, task: BoxFuture<'static, ()>) -> Arc<dyn Post>;

    /// Runs I/O away from the shards.
    fn io(&self, name: &'static str, work: BoxFuture<'static, ()>);

    /// Whether shards do their I/O inside their tasks instead of on the shared runtime.
    fn is_inline(&self) -> bool;

    /// Threads that run shards.
    fn threads(&self) -> u32;
}
