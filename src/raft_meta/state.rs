//! The replicated state machine: catalog, version, allocators.
//!
//! `apply` is a pure function of state and command: no I/O, no clock, no randomness, ordered maps only. Replicas that
//! applied the same log are equal byte by byte. Every refusal leaves the state as it was.

use crate::command::{Change, Command, EpochCommit, NewRelation, Outcome, Refusal, RefusalCode};
use eddyline_protocol::plan::NextIds;
use eddyline_protocol::{Catalog, Job, JobStatus, Relation, Version, VersionDelta, catalog::DEFAULT_SCHEMA, codec};
use eddyline_types::{Epoch, JobId, ObjectId, Result, TableId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that Raft replicates. Clones share the catalog and the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaState {
    /// What exists.
    pub catalog: Arc<Catalog>,
    /// Files and committed epochs.
    pub version: Arc<Version>,
    /// First free numbers of fragments, edges, operators and tables.
    pub next: NextIds,
    /// First free number of relations.
    pub next_object: u32,
    /// Epochs up to this one may have been handed out: a new leader starts above.
    pub reserved: Epoch,
    /// Compute nodes by number, with their address (one process so far: empty).
    pub workers: BTreeMap<u64, String>,
}

impl Default for MetaState {
    fn default() -> Self {
        MetaState {
            catalog: Arc::new(Catalog { schemas: vec![DEFAULT_SCHEMA.to_owned()], ..Catalog::default() }),
            version: Arc::default(),
            next: NextIds::default(),
            next_object: 1,
            reserved: Epoch::ZERO,
            workers: BTreeMap::new(),
        }
    }
}

impl MetaState {
    /// Bytes of a snapshot.
    pub fn encode(&self) -> Result<Vec<u8>> {
        codec::encode(self)
    }

    /// Reads a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        codec::decode(bytes)
    }

    /// Applies a command; `term` is that of its log entry. One outcome per change.
    pub fn apply(&mut self, command: &Command, term: u64) -> Vec<Outcome> {
        command.changes.iter().map(|change| self.apply_change(change, command.term == term).unwrap_or_else(Outcome::Refused)).collect()
    }

    fn apply_change(&mut self, change: &Change, same_term: bool) -> Result<Outcome, Refusal> {
        match change {
            Change::CreateRelation(new) => self.create(new),
            Change::SetJobStatus { jobs, status } => {
                self.set_status(jobs, status);
                Ok(Outcome::Done)
            }
            Change::DropRelations { ids } => self.drop_relations(ids),
            Change::CommitEpoch(_) if !same_term => Err(Refusal::new(RefusalCode::Stale, "the commit was decided by a deposed leader")),
            Change::CommitEpoch(commit) => self.commit_epoch(commit),
            Change::CommitCompaction { delta } => self.commit_compaction(delta),
            Change::ReserveEpochs { upto } => {
                self.reserved = self.reserved.max(*upto);
                Ok(Outcome::Done)
            }
        }
    }

    fn create(&mut self, new: &NewRelation) -> Result<Outcome, Refusal> {
        let mut relation = new.relation.clone();
        if !self.catalog.schemas.contains(&relation.schema_name) {
            return Err(Refusal::new(RefusalCode::UndefinedSchema, format!("schema \"{}\" does not exist", relation.schema_name)));
        }
        if self.catalog.find_any(&relation.schema_name, &relation.name).is_some() {
            return Err(Refusal::new(RefusalCode::DuplicateTable, format!("relation \"{}\" already exists", relation.name)));
        }
        for id in &relation.depends_on {
            self.check_readable(*id)?;
        }
        let id = ObjectId(self.next_object);
        relation.id = id;
        let mut job = None;
        if let Some(graph) = &new.graph {
            let first_table = self.next.table;
            let mut next = self.next;
            let mut graph = graph.clone();
            if !graph.renumber(id.into(), &mut next, |upstream| self.catalog.output_of(upstream)) {
                return Err(Refusal::new(RefusalCode::BrokenGraph, "the plan reads a relation that does not exist"));
            }
            if let Some(table) = &mut relation.table {
                table.0 += first_table - 1;
            }
            self.next = next;
            job = Some(Job { id: id.into(), status: JobStatus::Creating, parallelism: new.parallelism.max(1), graph: Arc::new(graph) });
        }
        self.next_object += 1;
        let catalog = self.change_catalog();
        catalog.relations.insert(id, Arc::new(relation));
        if let Some(job) = job {
            catalog.jobs.insert(job.id, Arc::new(job));
        }
        Ok(Outcome::Created(id))
    }

    /// Whether a new relation may read this one.
    fn check_readable(&self, id: ObjectId) -> Result<(), Refusal> {
        let Some(relation) = self.catalog.relations.get(&id).filter(|r| self.catalog.is_visible(r.id)) else {
            let message = format!("relation with number {id} does not exist");
            let mut refusal = Refusal::new(RefusalCode::UndefinedTable, message);
            refusal.detail = Some("It was dropped while the statement was being planned.".into());
            return Err(refusal);
        };
        match self.catalog.jobs.get(&id.into()).map(|j| &j.status) {
            Some(JobStatus::Quarantined { reason }) => {
                let message = format!("{} \"{}\" is quarantined", relation.kind.name(), relation.name);
                let mut refusal = Refusal::new(RefusalCode::NotReady, message);
                refusal.detail = Some(reason.clone());
                refusal.hint = Some("Drop and create it again.".into());
                Err(refusal)
            }
            Some(JobStatus::Running | JobStatus::Creating) | None => Ok(()),
        }
    }

    fn set_status(&mut self, jobs: &[JobId], status: &JobStatus) {
        let changed: Vec<JobId> =
            jobs.iter().copied().filter(|id| self.catalog.jobs.get(id).is_some_and(|j| j.status != *status)).collect();
        if changed.is_empty() {
            return;
        }
        let catalog = self.change_catalog();
        for id in changed {
            if let Some(job) = catalog.jobs.get_mut(&id) {
                Arc::make_mut(job).status = status.clone();
            }
        }
    }

    fn drop_relations(&mut self, ids: &[ObjectId]) -> Result<Outcome, Refusal> {
        let ids: BTreeSet<ObjectId> = ids.iter().copied().collect();
        for id in &ids {
            let Some(relation) = self.catalog.relations.get(id) else {
                return Err(Refusal::new(RefusalCode::UndefinedTable, format!("relation with number {id} does not exist")));
            };
            let dependents: Vec<&Arc<Relation>> = self.catalog.dependents(*id).filter(|d| !ids.contains(&d.id)).collect();
            if !dependents.is_empty() {
                return Err(dependents_refusal(relation, &dependents));
            }
        }
        let catalog = self.change_catalog();
        let mut tables = Vec::new();
        for id in &ids {
            catalog.relations.remove(id);
            if let Some(job) = catalog.jobs.remove(&JobId::from(*id)) {
                tables.extend(job.graph.tables.iter().map(|t| t.id));
            }
        }
        if !tables.is_empty() {
            self.change_version(&VersionDelta { dropped: tables, ..VersionDelta::default() });
        }
        Ok(Outcome::Done)
    }

    fn commit_epoch(&mut self, commit: &EpochCommit) -> Result<Outcome, Refusal> {
        let live = self.live_tables();
        let mut delta = commit.delta.clone();
        // Jobs may have been dropped while their last checkpoint was on its way.
        delta.committed.retain(|(table, _)| live.contains(table));
        delta.dropped = delta
            .added
            .iter()
            .flat_map(|(_, sst)| sst.tables.iter().map(|t| t.table))
            .filter(|table| !live.contains(table))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        if let Some((table, _)) = delta.committed.iter().find(|(table, epoch)| *epoch <= self.committed(*table)) {
            return Err(Refusal::new(
                RefusalCode::Stale,
                format!(
                    "epoch {} of domain {} is not after the committed epoch {} of table {table}",
                    commit.epoch,
                    commit.domain,
                    self.committed(*table)
                ),
            ));
        }
        if !self.change_version(&delta) {
            return Err(Refusal::new(RefusalCode::Stale, "the checkpoint removes files that are not there"));
        }
        let ready: Vec<JobId> =
            commit.ready.iter().copied().filter(|id| self.catalog.jobs.get(id).is_some_and(|j| j.status == JobStatus::Creating)).collect();
        self.set_status(&ready, &JobStatus::Running);
        Ok(Outcome::Done)
    }

    fn commit_compaction(&mut self, delta: &VersionDelta) -> Result<Outcome, Refusal> {
        let live = self.live_tables();
        let mut delta = delta.clone();
        delta.committed.clear();
        delta.dropped =
            delta.added.iter().flat_map(|(_, sst)| sst.tables.iter().map(|t| t.table)).filter(|table| !live.contains(table)).collect();
        if self.change_version(&delta) {
            Ok(Outcome::Done)
        } else {
            Err(Refusal::new(RefusalCode::Stale, "an input of the compaction is gone"))
        }
    }

    fn committed(&self, table: TableId) -> Epoch {
        self.version.committed.get(&table).copied().unwrap_or(Epoch::ZERO)
    }

    fn live_tables(&self) -> BTreeSet<TableId> {
        self.catalog.jobs.values().flat_map(|j| j.graph.tables.iter().map(|t| t.id)).collect()
    }

    fn change_catalog(&mut self) -> &mut Catalog {
        let catalog = Arc::make_mut(&mut self.catalog);
        catalog.version += 1;
        catalog
    }

    fn change_version(&mut self, delta: &VersionDelta) -> bool {
        match self.version.apply(delta) {
            Some(next) => {
                self.version = Arc::new(next);
                true
            }
            None => false,
        }
    }
}

fn dependents_refusal(relation: &Relation, dependents: &[&Arc<Relation>]) -> Refusal {
    let what = format!("{} {}", relation.kind.name(), relation.name);
    let mut refusal = Refusal::new(RefusalCode::DependentObjects, format!("cannot drop {what} because other objects depend on it"));
    let lines: Vec<String> = dependents.iter().map(|d| format!("{} {} depends on {what}", d.kind.name(), d.name)).collect();
    refusal.detail = Some(lines.join("\n"));
    refusal.hint = Some("Use DROP ... CASCADE to drop the dependent objects too.".into());
    refusal
}
