//! `eddyline_raft_meta::Meta` as sessions ask it.

use crate::coordinator::Coordinator;
use async_trait::async_trait;
use eddyline_protocol::{Catalog, FragmentGraph, Frontiers, Relation};
use eddyline_raft_meta::Meta;
use eddyline_types::{Epoch, Error, ErrorKind, JobId, ObjectId, Result, SqlState};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How often DROP .. CASCADE starts again when something new came to depend on what goes.
const CASCADE_ATTEMPTS: usize = 10;

/// Meta's handle with the deadline of its waits.
pub struct MetaCoordinator {
    meta: Meta,
    /// Sessions give up earlier by themselves; this bounds what is left behind then.
    wait: Duration,
}

impl MetaCoordinator {
    /// `wait`: the longest wait for a commit.
    pub fn new(meta: Meta, wait: Duration) -> Self {
        MetaCoordinator { meta, wait }
    }
}

#[async_trait]
impl Coordinator for MetaCoordinator {
    fn catalog(&self) -> Arc<Catalog> {
        self.meta.catalog()
    }

    fn frontiers(&self) -> Arc<Frontiers> {
        self.meta.frontiers()
    }

    async fn create(&self, relation: Relation, graph: Option<FragmentGraph>) -> Result<ObjectId> {
        self.meta.create(relation, graph).await
    }

    async fn drop_relations(&self, relations: Vec<ObjectId>, cascade: bool) -> Result<()> {
        let mut relations = relations;
        for _ in 0..CASCADE_ATTEMPTS {
            match self.meta.drop_relations(relations.clone()).await {
                Err(e) if cascade && e.sqlstate() == SqlState::DEPENDENT_OBJECTS => {
                    relations = with_dependents(&self.meta.catalog(), &relations)
                }
                other => return other,
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            SqlState::DEPENDENT_OBJECTS,
            "relations that depend on what is to be dropped are created all the time",
        ))
    }

    async fn create_schema(&self, name: &str) -> Result<()> {
        Err(Error::unsupported(format!("schema \"{name}\" cannot be created: schemas are not supported yet"))
            .with_hint("Put the relations into \"public\", with a prefix in their names."))
    }

    async fn drop_schema(&self, name: &str) -> Result<()> {
        Err(Error::unsupported(format!("schema \"{name}\" cannot be dropped: schemas are not supported yet")))
    }

    async fn request_checkpoint(&self, job: JobId) -> Result<()> {
        self.meta.request_checkpoint(job).await
    }

    async fn wait_collected(&self, job: JobId, epoch: Epoch) -> Result<()> {
        let mut frontiers = self.meta.watch_frontiers();
        let generation = frontiers.borrow_and_update().jobs.get(&job).map(|f| f.generation);
        loop {
            match frontiers.borrow_and_update().jobs.get(&job) {
                None => return Err(Error::user(SqlState::UNDEFINED_TABLE, "the table was dropped meanwhile")),
                Some(frontier) if Some(frontier.generation) != generation => return Err(rolled_back()),
                Some(frontier) if frontier.collected >= epoch => return Ok(()),
                Some(_) => {}
            }
            // Bounded by the caller's deadline; the sender lives as long as meta does.
            if frontiers.changed().await.is_err() {
                return Err(Error::new(ErrorKind::Unavailable, SqlState::ADMIN_SHUTDOWN, "the server is shutting down"));
            }
        }
    }

    async fn wait_committed(&self, job: JobId, epoch: Epoch) -> Result<()> {
        self.meta.wait_committed(job, epoch, self.wait).await
    }

    async fn flush(&self) -> Result<()> {
        self.meta.flush(self.wait).await
    }
}

fn rolled_back() -> Error {
    Error::new(ErrorKind::Conflict, SqlState::SERIALIZATION_FAILURE, "the change was rolled back by a recovery")
        .with_hint("Run the statement again.")
}

/// The relations and all that depend on them, dependents first.
fn with_dependents(catalog: &Catalog, relations: &[ObjectId]) -> Vec<ObjectId> {
    let mut found: BTreeSet<ObjectId> = relations.iter().copied().collect();
    let mut order: Vec<ObjectId> = relations.to_vec();
    let mut next = 0;
    while next < order.len() {
        for dependent in catalog.dependents(order[next]) {
            if found.insert(dependent.id) {
                order.push(dependent.id);
            }
        }
        next += 1;
    }
    // What depends on others was created after them, so it has the larger number.
    order.sort_unstable_by(|a, b| b.cmp(a));
    order
}
