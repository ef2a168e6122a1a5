//! SELECT: waits for what the session itself wrote, pins a read point, and goes to the point read or to the query engine.

use crate::outcome::{Outcome, Tag};
use crate::session::Session;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use eddyline_protocol::Catalog;
use eddyline_protocol::frontier::Frontier;
use eddyline_serving::query::scalars;
use eddyline_serving::system::SystemPlan;
use eddyline_serving::{Cancel, Freshness, PointRead, QueryRun, ReadPoint};
use eddyline_sql::statement::{Lookup, LookupValue, SelectQuery};
use eddyline_types::{Epoch, Error, ErrorKind, JobId, ObjectId, Result, SqlState};

/// Runs a SELECT.
pub(crate) async fn select(session: &mut Session, select: &SelectQuery, parameters: &[ArrayRef], cancel: &Cancel) -> Result<Outcome> {
    session.transaction.check_reads(&session.frontend.catalog(), &select.reads)?;
    let point = pin(session, &select.reads, cancel).await?;
    let epoch = epoch_of(&point, &select.reads);
    if let Some(lookup) = &select.lookup {
        let batch = cancel.race(point_read(session, &point, lookup, parameters)).await?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(select.query.output.clone(), batch.columns().to_vec(), &options)?;
        return Ok(Outcome::batch(Tag::Rows(select.tag), batch).at(epoch));
    }
    let run = QueryRun { query: &select.query, parameters, cancel };
    let rows = session.frontend.serving().query(&point, run).await?;
    Ok(Outcome::rows(Tag::Rows(select.tag), rows.schema, rows.rows).at(epoch))
}

/// Runs a query over the system catalog.
pub(crate) async fn system(session: &mut Session, plan: &SystemPlan, parameters: &[ArrayRef], cancel: &Cancel) -> Result<Outcome> {
    let rows = session.frontend.serving().system().run(plan, parameters, cancel).await?;
    Ok(Outcome::rows(Tag::Rows("SELECT"), rows.schema, rows.rows))
}

async fn point_read(session: &Session, point: &ReadPoint, lookup: &Lookup, parameters: &[ArrayRef]) -> Result<RecordBatch> {
    let mut key = Vec::with_capacity(lookup.key.len());
    for value in &lookup.key {
        match value {
            LookupValue::Constant(value) => key.push(value.clone()),
            LookupValue::Parameter(index) => {
                let given =
                    parameters.get(*index..index + 1).ok_or_else(|| Error::internal("a lookup refers to a parameter that is not there"))?;
                key.extend(scalars(given)?);
            }
        }
    }
    let read = PointRead { relation: lookup.relation, key, whole_key: lookup.whole_key, columns: &lookup.columns, limit: lookup.limit };
    session.frontend.serving().read_point(point, &read).await
}

/// Which frontier the session reads.
pub(crate) fn freshness(session: &Session) -> Freshness {
    let committed =
        session.variables.get("read_freshness") == Some("committed") || session.variables.get("visibility_mode") == Some("checkpoint");
    if committed { Freshness::Committed } else { Freshness::Latest }
}

/// Pins a read point for relations (views among them have been expanded): never behind the session's own writes, never silently behind what it has read.
pub(crate) async fn pin(session: &mut Session, reads: &[ObjectId], cancel: &Cancel) -> Result<ReadPoint> {
    await_own_writes(session, reads, cancel).await?;
    let point = session.frontend.serving().pin(reads, freshness(session))?;
    for id in reads {
        let Some(frontier) = point.frontier(*id) else { continue };
        let job = JobId::from(*id);
        let read = Frontier { collected: point.epoch(*id)?, ..frontier };
        let before = session.seen.insert(job, read);
        if before.is_some_and(|b| b.generation != frontier.generation && b.collected > b.committed) {
            return Err(rolled_back());
        }
    }
    Ok(point)
}

/// 40001: what the session has read may be gone.
fn rolled_back() -> Error {
    Error::new(ErrorKind::Conflict, SqlState::SERIALIZATION_FAILURE, "results that this session has read were rolled back by a recovery")
        .with_hint("Run the statement again; SET read_freshness = committed reads only what survives a recovery.")
}

/// Waits until writes that returned before their commit are visible in what is read.
async fn await_own_writes(session: &mut Session, reads: &[ObjectId], cancel: &Cancel) -> Result<()> {
    if session.unseen_writes.is_empty() {
        return Ok(());
    }
    let catalog = session.frontend.catalog();
    let writes: Vec<(JobId, Epoch)> = session.unseen_writes.iter().map(|(job, epoch)| (*job, *epoch)).collect();
    let coordinator = session.frontend.coordinator().clone();
    for (job, epoch) in writes {
        if !catalog.relations.contains_key(&job.into()) {
            session.unseen_writes.remove(&job);
        } else if reads.iter().any(|r| depends_on(&catalog, *r, job.into())) {
            cancel.race(coordinator.wait_collected(job, epoch)).await?;
            session.unseen_writes.remove(&job);
        }
    }
    Ok(())
}

/// Whether `from` is `target` or is computed from it.
fn depends_on(catalog: &Catalog, from: ObjectId, target: ObjectId) -> bool {
    let mut open = vec![from];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(id) = open.pop() {
        if id == target {
            return true;
        }
        if seen.insert(id)
            && let Some(relation) = catalog.relations.get(&id)
        {
            open.extend(&relation.depends_on);
        }
    }
    false
}

/// The newest epoch among what is read.
fn epoch_of(point: &ReadPoint, reads: &[ObjectId]) -> Option<Epoch> {
    reads.iter().filter_map(|r| point.epoch(*r).ok()).max()
}
