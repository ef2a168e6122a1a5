//! COPY, and rows that come without SQL (REST ingestion): both end as an INSERT would.

use crate::outcome::{Outcome, Tag};
use crate::prepared::Binder;
use crate::run::{dml, query};
use crate::session::{Session, Statement};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema};
use eddyline_expr::CompiledExpr;
use eddyline_serving::{Cancel, DmlKind};
use eddyline_sql::statement::{Bound, CopyIn, CopyOptions, SelectQuery};
use eddyline_types::{Epoch, Error, Result, SqlState};
use std::sync::Arc;

/// COPY table FROM STDIN: asks the protocol for the rows.
pub(crate) fn start_in(session: &mut Session, copy: &CopyIn) -> Result<Outcome> {
    session.transaction.check_writable("COPY FROM")?;
    Ok(Outcome { copy_in: Some(Box::new(copy.clone())), ..Outcome::done(Tag::Affected("COPY", 0)) })
}

/// COPY (query) TO STDOUT.
pub(crate) async fn out(session: &mut Session, select: &SelectQuery, options: &CopyOptions, cancel: &Cancel) -> Result<Outcome> {
    let outcome = query::select(session, select, &[], cancel).await?;
    Ok(Outcome { tag: Tag::Rows("COPY"), copy_out: Some(options.clone()), ..outcome })
}

/// The rows of a COPY: `rows` has one column for each of `copy.columns`.
pub(crate) async fn copy_in(session: &mut Session, copy: &CopyIn, rows: RecordBatch, cancel: &Cancel) -> Result<(u64, Epoch)> {
    session.transaction.check_alive()?;
    session.transaction.check_writable("COPY FROM")?;
    let catalog = session.frontend.catalog();
    let relation =
        catalog.relations.get(&copy.relation).ok_or_else(|| Error::user(SqlState::UNDEFINED_TABLE, "the table was dropped meanwhile"))?;
    session.transaction.check_change(relation)?;
    if rows.num_columns() != copy.columns.len() {
        return Err(Error::user(SqlState::BAD_COPY_FORMAT, format!("{} columns were sent for {}", rows.num_columns(), copy.columns.len())));
    }
    let fields: Vec<Field> =
        copy.columns.iter().map(|c| Field::new(&relation.columns[*c].name, relation.columns[*c].data_type.clone(), true)).collect();
    let sent: Vec<ArrayRef> = rows.columns().iter().zip(&fields).map(|(a, f)| Ok(cast(a, f.data_type())?)).collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let sent = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), sent, &options)?;
    let mut columns = Vec::with_capacity(copy.exprs.len());
    for expr in &copy.exprs {
        columns.push(CompiledExpr::compile(&expr.bytes, sent.schema_ref())?.evaluate_strict(&sent)?);
    }
    let schema =
        Schema::new(columns.iter().enumerate().map(|(i, c)| Field::new(format!("c{i}"), c.data_type().clone(), true)).collect::<Vec<_>>());
    let full = RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?;
    let changes = eddyline_serving::dml::from_rows(relation, DmlKind::Insert, full, None)?;
    let epoch = dml::write(session, copy.relation, changes.changes, None, cancel).await?;
    Ok((changes.affected, epoch.unwrap_or_default()))
}

/// Rows for a table by the names of their columns.
pub(crate) async fn insert(
    session: &mut Session,
    table: &str,
    columns: &[String],
    rows: RecordBatch,
    cancel: &Cancel,
) -> Result<(u64, Epoch)> {
    // COPY binds to exactly what is needed: an expression for each column over those that are given.
    let text = format!("COPY {table} ({}) FROM STDIN", columns.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(", "));
    let parsed = eddyline_sql::parse(&text)?;
    let statement = parsed.into_iter().next().map(Statement::of).ok_or_else(|| Error::internal("COPY was not parsed"))?;
    let bound = Binder::of(session).bind(&statement)?;
    match &*bound {
        Bound::CopyIn(copy) => copy_in(session, copy, rows, cancel).await,
        _ => Err(Error::user(SqlState::WRONG_OBJECT_TYPE, format!("\"{table}\" is not a table"))),
    }
}

/// An identifier in double quotes.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
