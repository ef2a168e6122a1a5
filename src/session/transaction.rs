//! Transaction blocks: what BEGIN .. COMMIT promises here.
//!
//! An epoch is a transaction, and a block's changes go into one epoch: they are collected and handed over at COMMIT, all or nothing. So a block
//! changes one table, and does not read what it has changed but not committed; both are refused by name. DDL takes effect at once.

use crate::session::TransactionStatus;
use eddyline_protocol::control::DmlChanges;
use eddyline_protocol::{Catalog, Relation};
use eddyline_types::{Error, ErrorKind, ObjectId, Result, SqlState};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::OwnedMutexGuard;

/// Bytes of changes that a block may collect.
const MAX_BYTES: usize = 256 << 20;

/// The state of a session's transaction.
#[derive(Default)]
pub struct Transaction {
    open: bool,
    failed: AtomicBool,
    read_only: bool,
    pending: Option<Pending>,
}

/// Changes of a block that wait for COMMIT.
pub struct Pending {
    /// The table.
    pub relation: ObjectId,
    /// What is to be written.
    pub changes: DmlChanges,
    /// Held from the first UPDATE or DELETE on, so that what was read stays true.
    pub lock: Option<OwnedMutexGuard<()>>,
    bytes: usize,
}

impl Transaction {
    /// As ReadyForQuery says it.
    pub fn status(&self) -> TransactionStatus {
        match (self.open, self.has_failed()) {
            (true, true) => TransactionStatus::Failed,
            (true, false) => TransactionStatus::Open,
            (false, _) => TransactionStatus::Idle,
        }
    }

    /// BEGIN. `false`: a block is open already.
    pub fn begin(&mut self, read_only: bool) -> bool {
        let fresh = !self.open;
        self.open = true;
        self.read_only |= read_only;
        fresh
    }

    /// Whether a block is open (failed or not).
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// A statement failed: the block will be rolled back.
    pub fn fail(&self) {
        self.failed.fetch_or(self.open, Ordering::AcqRel);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The block ends; what was collected, and whether it had failed (then nothing is to be written).
    pub fn end(&mut self) -> (Option<Pending>, bool) {
        let ended = std::mem::take(self);
        let failed = ended.has_failed();
        (ended.pending.filter(|_| !failed), failed)
    }

    /// Refuses everything in a failed block.
    pub fn check_alive(&self) -> Result<()> {
        if self.has_failed() {
            return Err(Error::user(
                SqlState::IN_FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        Ok(())
    }

    /// Refuses changes in a read-only block.
    pub fn check_writable(&self, command: &str) -> Result<()> {
        if self.read_only {
            return Err(Error::user(SqlState::READ_ONLY_TRANSACTION, format!("cannot execute {command} in a read-only transaction")));
        }
        Ok(())
    }

    /// Refuses to read what the block has changed, directly or through views.
    pub fn check_reads(&self, catalog: &Catalog, reads: &[ObjectId]) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let Some(name) = reads.iter().find_map(|r| reaches(catalog, *r, pending.relation)) else { return Ok(()) };
        Err(Error::unsupported(format!("\"{name}\" cannot be read before COMMIT: the transaction has changed a table that it depends on"))
            .with_hint("COMMIT first, or run the statements outside a transaction block."))
    }

    /// Refuses a change that could not be in one epoch with what was collected.
    pub fn check_change(&self, relation: &Relation) -> Result<()> {
        match &self.pending {
            Some(pending) if pending.relation != relation.id => Err(Error::unsupported("a transaction block can change one table only")
                .with_detail(format!("The block has changed another table than \"{}\".", relation.name))
                .with_hint("COMMIT after the changes of each table.")),
            _ => Ok(()),
        }
    }

    /// Collects a statement's changes.
    pub fn collect(&mut self, relation: ObjectId, changes: DmlChanges, lock: Option<OwnedMutexGuard<()>>) -> Result<()> {
        let added: usize = changes.inserts.iter().chain(&changes.changes).map(|c| c.size_bytes()).sum();
        let pending = self.pending.get_or_insert_with(|| Pending { relation, changes: DmlChanges::default(), lock: None, bytes: 0 });
        pending.bytes += added;
        if pending.bytes > MAX_BYTES {
            return Err(
                Error::new(ErrorKind::User, SqlState::OUT_OF_MEMORY, "transaction changes too many rows").with_hint("COMMIT more often.")
            );
        }
        pending.changes.inserts.extend(changes.inserts);
        pending.changes.changes.extend(changes.changes);
        if pending.lock.is_none() {
            pending.lock = lock;
        }
        Ok(())
    }
}

/// The name of `from` if it is, or depends on, `target`.
fn reaches(catalog: &Catalog, from: ObjectId, target: ObjectId) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        if id == target {
            return Some(catalog.relations.get(&from).map_or_else(|| from.to_string(), |r| r.name.clone()));
        }
        if seen.insert(id)
            && let Some(relation) = catalog.relations.get(&id)
        {
            open.extend(&relation.depends_on);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use eddyline_protocol::RelationKind;
    use std::sync::Arc;

    fn relation(id: u32, depends_on: &[u32]) -> Relation {
        Relation {
            id: ObjectId(id),
            schema_name: "public".into(),
            name: format!("r{id}"),
            kind: RelationKind::Table,
            columns: Vec::new(),
            key: Vec::new(),
            append_only: false,
            spec: None,
            definition: String::new(),
            query: None,
            depends_on: depends_on.iter().map(|d| ObjectId(*d)).collect(),
            table: None,
            owner: "root".into(),
            created_ms: 0,
        }
    }

    fn catalog() -> Catalog {
        let relations = [relation(1, &[]), relation(2, &[]), relation(3, &[1]), relation(4, &[3, 2])];
        Catalog { relations: relations.into_iter().map(|r| (r.id, Arc::new(r))).collect(), ..Default::default() }
    }

    #[test]
    fn a_block_does_not_read_what_it_changed() {
        let (catalog, mut block) = (catalog(), Transaction::default());
        assert!(block.begin(false));
        assert!(!block.begin(false));
        block.collect(ObjectId(1), DmlChanges::default(), None).expect("room");
        assert!(block.check_reads(&catalog, &[ObjectId(2)]).is_ok());
        let refused = block.check_reads(&catalog, &[ObjectId(2), ObjectId(4)]).expect_err("4 depends on 1");
        assert!(refused.message().contains("r4"), "{refused}");
        assert!(block.check_change(&relation(1, &[])).is_ok());
        assert_eq!(block.check_change(&relation(2, &[])).expect_err("another table").sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
    }

    #[test]
    fn a_failed_block_forgets_its_changes() {
        let mut block = Transaction::default();
        block.fail();
        assert_eq!(block.status(), TransactionStatus::Idle, "a statement outside a block fails alone");
        block.begin(true);
        assert_eq!(block.check_writable("INSERT").expect_err("read only").sqlstate(), SqlState::READ_ONLY_TRANSACTION);
        block.collect(ObjectId(1), DmlChanges::default(), None).expect("room");
        block.fail();
        assert_eq!(block.check_alive().expect_err("failed").sqlstate(), SqlState::IN_FAILED_TRANSACTION);
        let (pending, failed) = block.end();
        assert!(pending.is_none() && failed);
        assert_eq!(block.status(), TransactionStatus::Idle);
        assert!(block.check_writable("INSERT").is_ok());
    }
}
