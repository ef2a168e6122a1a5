//! SET, SHOW, RESET, EXPLAIN, BEGIN, ROLLBACK, DISCARD: what only concerns the session.

use crate::outcome::{Notice, Outcome, Tag};
use crate::prepared::text_columns;
use crate::run::dml::no_transaction;
use crate::session::Session;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use eddyline_types::{Error, Result, SqlState};
use std::sync::Arc;

/// SET name = value; `None`: DEFAULT.
pub(crate) fn set(session: &mut Session, name: &str, value: Option<&str>, local: bool) -> Result<Outcome> {
    let done = Outcome::done(Tag::Plain("SET".into()));
    match value {
        None => session.variables.reset(Some(name))?,
        Some(value) if local && session.transaction.is_open() => session.variables.set_local(name, value)?,
        Some(_) if local => {
            return Ok(done.with_notices([Notice::warning("25P01", "SET LOCAL can only be used in transaction blocks")]));
        }
        Some(value) => session.variables.set(name, value)?,
    }
    Ok(done)
}

/// RESET name; `None`: ALL.
pub(crate) fn reset(session: &mut Session, name: Option<&str>) -> Result<Outcome> {
    session.variables.reset(name)?;
    Ok(Outcome::done(Tag::Plain("RESET".into())))
}

/// SHOW name.
pub(crate) fn show(session: &mut Session, name: &str) -> Result<Outcome> {
    if name == "all" {
        let all = session.variables.show_all();
        let columns = [
            all.iter().map(|v| v.0.to_owned()).collect(),
            all.iter().map(|v| v.1.clone()).collect(),
            all.iter().map(|v| v.2.to_owned()).collect(),
        ];
        return texts("SHOW", &["name", "setting", "description"], columns.into());
    }
    let value = session.variables.get(name).ok_or_else(|| {
        Error::user(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
            .with_hint("SHOW ALL lists the parameters.")
    })?;
    texts("SHOW", &[name], vec![vec![value.to_owned()]])
}

/// EXPLAIN: one line a row.
pub(crate) fn explain(lines: &[String]) -> Result<Outcome> {
    texts("EXPLAIN", &["QUERY PLAN"], vec![lines.to_vec()])
}

/// A result of text columns.
fn texts(tag: &'static str, names: &[&str], columns: Vec<Vec<String>>) -> Result<Outcome> {
    let arrays: Vec<ArrayRef> = columns.into_iter().map(|c| Arc::new(StringArray::from(c)) as ArrayRef).collect();
    Ok(Outcome::batch(Tag::Rows(tag), RecordBatch::try_new(text_columns(names), arrays)?))
}

/// BEGIN.
pub(crate) fn begin(session: &mut Session, read_only: bool) -> Result<Outcome> {
    let read_only = read_only || session.variables.is_on("default_transaction_read_only");
    let done = Outcome::done(Tag::Plain("BEGIN".into()));
    if session.transaction.begin(read_only) {
        session.variables.begin();
        return Ok(done);
    }
    Ok(done.with_notices([Notice::warning("25001", "there is already a transaction in progress")]))
}

/// ROLLBACK: forgets what the block has collected.
pub(crate) fn rollback(session: &mut Session) -> Result<Outcome> {
    let open = session.transaction.is_open();
    session.transaction.end();
    session.variables.end(false);
    session.cursors.retain(|_, cursor| cursor.is_held());
    let done = Outcome::done(Tag::Plain("ROLLBACK".into()));
    Ok(if open { done } else { done.with_notices([no_transaction()]) })
}

/// DISCARD ALL: the session is as new.
pub(crate) fn discard(session: &mut Session) -> Result<Outcome> {
    if session.transaction.is_open() {
        return Err(Error::user(SqlState::ACTIVE_TRANSACTION, "DISCARD ALL cannot run inside a transaction block"));
    }
    session.variables.reset(None)?;
    session.named.clear();
    session.wire_statements.drop_all();
    session.cursors.clear();
    Ok(Outcome::done(Tag::Plain("DISCARD ALL".into())))
}
