//! SQL-level prepared statements and cursors: PREPARE, EXECUTE, DEALLOCATE, DECLARE, FETCH, CLOSE.

use crate::outcome::{Outcome, RowStream, Tag};
use crate::prepared::{Named, Plan, unknown_statement};
use crate::run::query;
use crate::session::{Session, Statement};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, SchemaRef};
use eddyline_serving::Cancel;
use eddyline_sql::statement::{Parsed, SelectQuery};
use eddyline_types::{Error, Result, SqlState};
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// PREPARE name AS statement.
pub(crate) async fn prepare(session: &mut Session, name: &str, types: &[DataType], parsed: &Parsed) -> Result<Outcome> {
    if session.named.contains_key(name) {
        return Err(Error::user(SqlState::DUPLICATE_PREPARED, format!("prepared statement \"{name}\" already exists")));
    }
    let statement = Statement::of(parsed.clone());
    let hints: Vec<Option<DataType>> = types.iter().cloned().map(Some).collect();
    // Bound now for its errors, and again by EXECUTE.
    session.prepare(&statement, &hints).await?;
    session.named.insert(name.to_owned(), Named { statement, hints });
    Ok(Outcome::done(Tag::Plain("PREPARE".into())))
}

/// EXECUTE name (values).
pub(crate) async fn execute(session: &mut Session, name: &str, values: Vec<ArrayRef>, cancel: &Cancel) -> Result<Outcome> {
    let named = session.named.get(name).cloned().ok_or_else(|| unknown_statement(name))?;
    let prepared = session.prepare(&named.statement, &named.hints).await?;
    if values.len() != prepared.parameters.len() {
        return Err(Error::user(SqlState::SYNTAX_ERROR, format!("wrong number of parameters for prepared statement \"{name}\""))
            .with_detail(format!("Expected {} parameters but got {}.", prepared.parameters.len(), values.len())));
    }
    let parameters: Vec<ArrayRef> = values.iter().zip(&prepared.parameters).map(|(v, t)| Ok(cast(v, t)?)).collect::<Result<_>>()?;
    match prepared.current_plan(session).await? {
        Plan::System(plan) => query::system(session, &plan, &parameters, cancel).await,
        Plan::Bound(bound) => crate::run::dispatch(session, &bound, &parameters, cancel).await,
    }
}

/// DEALLOCATE name; `None`: ALL.
pub(crate) fn deallocate(session: &mut Session, name: Option<&str>) -> Result<Outcome> {
    match name {
        None => {
            session.named.clear();
            session.wire_statements.drop_all();
        }
        Some(name) => {
            if session.named.remove(name).is_none() && !session.wire_statements.drop_one(name) {
                return Err(unknown_statement(name));
            }
        }
    }
    Ok(Outcome::done(Tag::Plain(if name.is_none() { "DEALLOCATE ALL" } else { "DEALLOCATE" }.into())))
}

/// Names of the statements that the protocol has prepared on its own: DEALLOCATE knows them too, as in Postgres.
#[derive(Default)]
pub(crate) struct WireStatements {
    known: BTreeSet<String>,
    dropped: Vec<String>,
}

impl WireStatements {
    /// The protocol has prepared or closed a statement.
    pub fn set(&mut self, name: &str, prepared: bool) {
        if prepared {
            self.known.insert(name.to_owned());
        } else {
            self.known.remove(name);
        }
    }

    fn drop_one(&mut self, name: &str) -> bool {
        let known = self.known.remove(name);
        if known {
            self.dropped.push(name.to_owned());
        }
        known
    }

    /// DEALLOCATE ALL, DISCARD ALL.
    pub fn drop_all(&mut self) {
        self.dropped.extend(std::mem::take(&mut self.known));
    }

    /// What was deallocated since the last call.
    pub fn take_dropped(&mut self) -> Vec<String> {
        std::mem::take(&mut self.dropped)
    }
}

/// An open cursor: a query at one read point, and what was read of it but not fetched.
pub struct Cursor {
    schema: SchemaRef,
    /// Never locked: the mutex only makes the session shareable between threads, which a stream alone is not.
    rows: Mutex<RowStream>,
    left: Option<RecordBatch>,
    hold: bool,
}

impl Cursor {
    /// Columns of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether it outlives its transaction.
    pub fn is_held(&self) -> bool {
        self.hold
    }

    /// At most `count` rows.
    async fn fetch(&mut self, count: usize) -> Result<RecordBatch> {
        let (mut batches, mut rows) = (Vec::new(), 0);
        while rows < count {
            let batch = match self.left.take() {
                Some(batch) => batch,
                None => match self.rows.get_mut().next().await {
                    Some(batch) => batch?,
                    None => break,
                },
            };
            let wanted = batch.num_rows().min(count - rows);
            if wanted < batch.num_rows() {
                self.left = Some(batch.slice(wanted, batch.num_rows() - wanted));
            }
            rows += wanted;
            batches.push(batch.slice(0, wanted));
        }
        Ok(concat_batches(&self.schema, &batches)?)
    }
}

/// DECLARE name CURSOR FOR query.
pub(crate) async fn declare(session: &mut Session, name: &str, select: &SelectQuery, hold: bool, cancel: &Cancel) -> Result<Outcome> {
    if !session.transaction.is_open() && !hold {
        return Err(Error::user(SqlState::NO_ACTIVE_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks")
            .with_hint("BEGIN first, or declare it WITH HOLD."));
    }
    if session.cursors.contains_key(name) {
        return Err(Error::user(SqlState("42P03"), format!("cursor \"{name}\" already exists")));
    }
    // The cursor lives longer than the statement: a later cancel request must not end it.
    let outcome = query::select(session, select, &[], &Cancel::default()).await?;
    cancel.check()?;
    let schema = outcome.schema.ok_or_else(|| Error::internal("a query has no columns"))?;
    session.cursors.insert(name.to_owned(), Cursor { schema, rows: Mutex::new(outcome.rows), left: None, hold });
    Ok(Outcome::done(Tag::Plain("DECLARE CURSOR".into())))
}

/// FETCH count FROM name; `None`: all.
pub(crate) async fn fetch(session: &mut Session, name: &str, count: Option<u64>) -> Result<Outcome> {
    let cursor = session.cursors.get_mut(name).ok_or_else(|| unknown_cursor(name))?;
    let batch = cursor.fetch(count.map_or(usize::MAX, |c| c as usize)).await?;
    Ok(Outcome::batch(Tag::Rows("FETCH"), batch))
}

/// CLOSE name; `None`: ALL.
pub(crate) fn close(session: &mut Session, name: Option<&str>) -> Result<Outcome> {
    match name {
        None => session.cursors.clear(),
        Some(name) => {
            session.cursors.remove(name).ok_or_else(|| unknown_cursor(name))?;
        }
    }
    Ok(Outcome::done(Tag::Plain(if name.is_none() { "CLOSE CURSOR ALL" } else { "CLOSE CURSOR" }.into())))
}

fn unknown_cursor(name: &str) -> Error {
    Error::user(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}
