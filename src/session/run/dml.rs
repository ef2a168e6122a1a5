//! INSERT, UPDATE, DELETE, FLUSH and COMMIT: rows are computed by the serving engine, handed to the table's shards, and waited for.

use crate::outcome::{Notice, Outcome, Tag};
use crate::run::query;
use crate::session::Session;
use arrow::array::ArrayRef;
use eddyline_env::clock;
use eddyline_protocol::control::DmlChanges;
use eddyline_serving::{Cancel, DmlRequest, Freshness};
use eddyline_sql::statement::{Dml, DmlKind};
use eddyline_types::{Epoch, Error, JobId, ObjectId, Result, SqlState};
use tokio::sync::OwnedMutexGuard;

/// The command tag of a statement.
fn command(kind: DmlKind) -> &'static str {
    match kind {
        DmlKind::Insert => "INSERT",
        DmlKind::Update => "UPDATE",
        DmlKind::Delete => "DELETE",
    }
}

/// Runs a DML statement.
pub(crate) async fn run(session: &mut Session, dml: &Dml, parameters: &[ArrayRef], cancel: &Cancel) -> Result<Outcome> {
    let command = command(dml.kind);
    session.transaction.check_writable(command)?;
    let catalog = session.frontend.catalog();
    let relation = catalog.relations.get(&dml.relation).cloned().ok_or_else(gone)?;
    session.transaction.check_change(&relation)?;
    session.transaction.check_reads(&catalog, &dml.reads)?;

    // UPDATE and DELETE write what they have read: nobody else may change it between the two.
    let lock = match dml.kind {
        DmlKind::Insert => None,
        DmlKind::Update | DmlKind::Delete => {
            let serving = session.frontend.serving().clone();
            Some(cancel.race(async { Ok(serving.lock_table(dml.relation).await) }).await?)
        }
    };
    let mut reads = dml.reads.clone();
    if lock.is_some() && !reads.contains(&dml.relation) {
        reads.push(dml.relation);
    }
    let point = match lock {
        // A change is computed from the newest rows, whatever the session's freshness is.
        Some(_) => {
            query::pin(session, &reads, cancel).await?;
            session.frontend.serving().pin(&reads, Freshness::Latest)?
        }
        None => query::pin(session, &reads, cancel).await?,
    };
    let request = DmlRequest {
        relation: dml.relation,
        kind: match dml.kind {
            DmlKind::Insert => eddyline_serving::DmlKind::Insert,
            DmlKind::Update => eddyline_serving::DmlKind::Update,
            DmlKind::Delete => eddyline_serving::DmlKind::Delete,
        },
        rows: &dml.rows,
        parameters,
        returning: dml.returning.as_ref().map(|r| (r.exprs.as_slice(), &r.output)),
        cancel,
    };
    let serving = session.frontend.serving().clone();
    let rows = cancel.race(serving.compute_dml(&point, request)).await?;
    let epoch = write(session, dml.relation, rows.changes, lock, cancel).await?;
    let tag = Tag::Affected(command, rows.affected);
    Ok(match rows.returning {
        Some(batch) => Outcome::batch(tag, batch),
        None => Outcome::done(tag),
    }
    .at(epoch))
}

/// Writes changes, or collects them for COMMIT. The lock is held until the change is visible.
pub(crate) async fn write(
    session: &mut Session,
    relation: ObjectId,
    changes: DmlChanges,
    lock: Option<OwnedMutexGuard<()>>,
    cancel: &Cancel,
) -> Result<Option<Epoch>> {
    if changes.inserts.is_empty() && changes.changes.is_empty() {
        return Ok(None);
    }
    if session.transaction.is_open() {
        session.transaction.collect(relation, changes, lock)?;
        return Ok(None);
    }
    apply(session, relation, changes, lock, cancel).await.map(Some)
}

/// Sends changes to the table's shards and waits as `synchronous_commit` says. Once sent, a change is no longer cancelled: only the waiting for it is.
async fn apply(
    session: &mut Session,
    relation: ObjectId,
    changes: DmlChanges,
    lock: Option<OwnedMutexGuard<()>>,
    cancel: &Cancel,
) -> Result<Epoch> {
    let job = JobId::from(relation);
    let coordinator = session.frontend.coordinator().clone();
    let timeout = session.frontend.limits().commit_timeout;
    let dml = session.frontend.dml().clone();
    let epoch = cancel.race(dml.write(relation, changes)).await?;
    session.unseen_writes.insert(job, epoch);
    let synchronous = session.variables.get("synchronous_commit") != Some("off");
    let flush = session.variables.is_on("implicit_flush") || session.variables.is_on("rw_implicit_flush");
    // Meta starts a checkpoint for statements by itself: when their rows wake the table, else when their commit is waited for.
    if synchronous || flush || lock.is_some() {
        let visible = async {
            coordinator.wait_collected(job, epoch).await?;
            drop(lock);
            if synchronous { coordinator.wait_committed(job, epoch).await } else { Ok(()) }
        };
        match cancel.race(async { clock::timeout(timeout, visible).await.unwrap_or_else(|| Err(slow_commit(timeout))) }).await {
            Ok(()) => session.unseen_writes.remove(&job),
            Err(e) => return Err(e),
        };
    }
    Ok(epoch)
}

/// COMMIT: writes what the block has collected.
pub(crate) async fn commit(session: &mut Session, cancel: &Cancel) -> Result<Outcome> {
    let open = session.transaction.is_open();
    let (pending, failed) = session.transaction.end();
    session.variables.end(!failed);
    session.cursors.retain(|_, cursor| cursor.is_held());
    if failed {
        return Ok(Outcome::done(Tag::Plain("ROLLBACK".into())));
    }
    let done = Outcome::done(Tag::Plain("COMMIT".into()));
    if !open {
        return Ok(done.with_notices([no_transaction()]));
    }
    let Some(pending) = pending else { return Ok(done) };
    let relation = session.frontend.catalog().relations.get(&pending.relation).cloned().ok_or_else(gone)?;
    let changes = eddyline_serving::dml::merge(&relation, pending.changes)?;
    let epoch = apply(session, pending.relation, changes, pending.lock, cancel).await?;
    Ok(done.at(Some(epoch)))
}

/// FLUSH.
pub(crate) async fn flush(session: &mut Session, cancel: &Cancel) -> Result<Outcome> {
    let coordinator = session.frontend.coordinator().clone();
    let timeout = session.frontend.limits().commit_timeout;
    cancel.race(async { clock::timeout(timeout, coordinator.flush()).await.unwrap_or_else(|| Err(slow_commit(timeout))) }).await?;
    session.unseen_writes.clear();
    Ok(Outcome::done(Tag::Plain("FLUSH".into())))
}

/// 25P01, as a warning.
pub(crate) fn no_transaction() -> Notice {
    Notice::warning("25P01", "there is no transaction in progress")
}

fn slow_commit(timeout: std::time::Duration) -> Error {
    Error::cancelled(format!("the change was not committed within {} s", timeout.as_secs()))
        .with_detail("It may still be committed.")
        .with_hint("eddy_catalog.barriers shows what the checkpoints wait for.")
}

fn gone() -> Error {
    Error::user(SqlState::UNDEFINED_TABLE, "the table was dropped meanwhile")
}
