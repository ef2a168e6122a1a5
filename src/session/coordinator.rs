//! What sessions ask of meta. A trait of this crate, so that sessions are tested without a Raft group.

use async_trait::async_trait;
use eddyline_protocol::{Catalog, FragmentGraph, Frontiers, Relation};
use eddyline_types::{Epoch, JobId, ObjectId, Result};
use std::sync::Arc;

/// Meta, as sessions see it.
///
/// # Contract
/// `create` returns when the relation is visible to every reader of this node (a job has backfilled by then); `drop_relations` when it no longer is. After
/// `wait_collected` and `wait_committed` return, `frontiers` shows at least that epoch. A wait for an epoch that was rolled back ends with an error.
#[async_trait]
pub trait Coordinator: Send + Sync + 'static {
    /// What exists now.
    fn catalog(&self) -> Arc<Catalog>;

    /// How far all jobs are.
    fn frontiers(&self) -> Arc<Frontiers>;

    /// Creates a relation and what it runs. A name that exists is 42P07.
    async fn create(&self, relation: Relation, graph: Option<FragmentGraph>) -> Result<ObjectId>;

    /// Drops relations, dependents first; with `cascade` also what came to depend on them meanwhile.
    async fn drop_relations(&self, relations: Vec<ObjectId>, cascade: bool) -> Result<()>;

    /// Creates a namespace.
    async fn create_schema(&self, name: &str) -> Result<()>;

    /// Drops an empty namespace.
    async fn drop_schema(&self, name: &str) -> Result<()>;

    /// Asks for an early checkpoint of a job's domain; requests that meet one in flight share the next.
    async fn request_checkpoint(&self, job: JobId) -> Result<()>;

    /// Waits until an epoch of the job is visible.
    async fn wait_collected(&self, job: JobId, epoch: Epoch) -> Result<()>;

    /// Waits until an epoch of the job is durable.
    async fn wait_committed(&self, job: JobId, epoch: Epoch) -> Result<()>;

    /// Returns when everything that was written before the call is durable.
    async fn flush(&self) -> Result<()>;
}
