//! Which epoch of what a statement reads: one consistent set of catalog, frontiers and store snapshot.
//!
//! Invariant: a [`ReadPoint`]'s snapshot holds every row of its relations at the frontier it gives for them. The store's buffer may lose rows when a
//! domain is rolled back, and superseded rows when a version is installed; in both cases the frontiers change too. So a pin reads the frontiers before
//! and after it takes the snapshot, and starts again if those of the relations that it is for are not the same.

use eddyline_protocol::{Catalog, Frontier, Frontiers, Relation, TableDesc};
use eddyline_store::{Snapshot, Store};
use eddyline_types::{Epoch, Error, JobId, ObjectId, Result};
use std::sync::Arc;

/// How often a pin starts again before it gives up; each attempt takes microseconds, frontiers move a few times a second.
const ATTEMPTS: usize = 1000;

/// What exists and how far it is, as meta publishes it.
pub trait ClusterView: Send + Sync + 'static {
    /// What exists now.
    fn catalog(&self) -> Arc<Catalog>;

    /// How far all jobs are. A rollback must show here before the store forgets the rows that were rolled back, and a newly
    /// collected epoch only after all its rows are in the store.
    fn frontiers(&self) -> Arc<Frontiers>;
}

/// `read_freshness`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// The collected frontier: whole epochs, some of them not yet durable.
    #[default]
    Latest,
    /// Only what survives a crash.
    Committed,
}

/// See the module's documentation. Files and buffers stay readable while it lives.
#[derive(Clone)]
pub struct ReadPoint {
    catalog: Arc<Catalog>,
    frontiers: Arc<Frontiers>,
    snapshot: Snapshot,
    freshness: Freshness,
}

impl ReadPoint {
    /// Pins for statements over the given relations (all others may be read too, if nothing but this statement can tell the difference: system tables).
    pub fn pin(view: &dyn ClusterView, store: &Store, relations: &[ObjectId], freshness: Freshness) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let before = view.frontiers();
            let snapshot = store.snapshot();
            let catalog = view.catalog();
            let after = view.frontiers();
            let same = Arc::ptr_eq(&before, &after)
                || relations.iter().all(|r| before.jobs.get(&JobId::from(*r)) == after.jobs.get(&JobId::from(*r)));
            if same {
                return Ok(ReadPoint { catalog, frontiers: after, snapshot, freshness });
            }
        }
        Err(Error::unavailable("frontiers move too fast to be pinned").with_hint("Run the statement again."))
    }

    /// What existed when the point was pinned.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// How far all jobs were.
    pub fn frontiers(&self) -> &Arc<Frontiers> {
        &self.frontiers
    }

    /// The store's snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The frontier of a relation's job.
    pub fn frontier(&self, relation: ObjectId) -> Option<Frontier> {
        self.frontiers.jobs.get(&JobId::from(relation)).copied()
    }

    /// The epoch at which a relation is read.
    pub fn epoch(&self, relation: ObjectId) -> Result<Epoch> {
        let Some(frontier) = self.frontier(relation) else {
            let name = self.catalog.relations.get(&relation).map_or_else(|| relation.to_string(), |r| r.name.clone());
            return Err(Error::unavailable(format!("\"{name}\" is starting")).with_hint("Run the statement again in a moment."));
        };
        // The snapshot keeps only the newest row of what is committed in it, so nothing below that can be read.
        let committed = self.catalog.relations.get(&relation).and_then(|r| r.table).map_or(Epoch::ZERO, |t| self.snapshot.committed(t));
        Ok(match self.freshness {
            Freshness::Latest => frontier.collected.max(committed),
            Freshness::Committed => committed,
        })
    }

    /// A relation that has rows to read, with the description of its table.
    pub fn relation(&self, id: ObjectId) -> Result<(Arc<Relation>, TableDesc)> {
        let relation = self.catalog.relations.get(&id).ok_or_else(|| {
            Error::new(
                eddyline_types::ErrorKind::Conflict,
                eddyline_types::SqlState::UNDEFINED_TABLE,
                "a relation of the statement was dropped meanwhile",
            )
        })?;
        let table = relation.table.ok_or_else(|| {
            Error::user(
                eddyline_types::SqlState::WRONG_OBJECT_TYPE,
                format!("{} \"{}\" keeps no rows that could be read", relation.kind.name(), relation.name),
            )
            .with_hint("Create a materialized view over it and query that.")
        })?;
        let desc = self.catalog.jobs.get(&JobId::from(id)).and_then(|j| j.graph.table(table)).or_else(|| self.catalog.table(table));
        let desc = desc.ok_or_else(|| Error::internal(format!("table {table} of \"{}\" is not in the catalog", relation.name)))?;
        Ok((relation.clone(), desc.clone()))
    }
}
