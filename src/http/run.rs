//! Statements made by handlers: one text with parameters given as texts, run in a session.

use crate::failure::Failure;
use arrow::array::ArrayRef;
use eddyline_session::{Outcome, Prepared, Session, Statement};
use eddyline_types::value_parse::parse_column;
use eddyline_types::{Error, SqlState};

/// The statements of a text; a syntax error names it.
pub(crate) fn parse(session: &Session, sql: &str) -> Result<Vec<Statement>, Failure> {
    session.parse(sql).map_err(|e| Failure::of(e, sql))
}

/// The one statement of a text.
pub(crate) fn parse_one(session: &Session, sql: &str) -> Result<Statement, Failure> {
    let mut statements = parse(session, sql)?;
    match statements.len() {
        1 => Ok(statements.remove(0)),
        n => Err(Failure::of(Error::user(SqlState::SYNTAX_ERROR, format!("expected one statement, found {n}")), sql)),
    }
}

/// Runs the one statement of a text.
pub(crate) async fn one(session: &mut Session, sql: &str, parameters: &[Option<String>]) -> Result<Outcome, Failure> {
    let statement = parse_one(session, sql)?;
    statement_with(session, &statement, parameters).await
}

/// Runs a statement.
pub(crate) async fn statement_with(
    session: &mut Session,
    statement: &Statement,
    parameters: &[Option<String>],
) -> Result<Outcome, Failure> {
    let of = |e: Error| Failure::of(e, statement.text());
    let prepared = session.prepare(statement, &[]).await.map_err(of)?;
    let arrays = bind(&prepared, parameters).map_err(of)?;
    let outcome = session.execute(&prepared, &arrays).await.map_err(of)?;
    if outcome.copy_in.is_some() {
        let error = Error::unsupported("COPY FROM STDIN needs a connection of the Postgres wire");
        return Err(of(error.with_hint("POST the rows to /v1/tables/<name>/rows.")));
    }
    Ok(outcome)
}

/// Parameters in the types that the statement wants.
fn bind(prepared: &Prepared, parameters: &[Option<String>]) -> Result<Vec<ArrayRef>, Error> {
    let wanted = prepared.parameters.len();
    if wanted != parameters.len() {
        return Err(Error::user(
            SqlState::PROTOCOL_VIOLATION,
            format!("the statement has {wanted} parameters, but {} were given", parameters.len()),
        ));
    }
    let array = |(i, text): (usize, &Option<String>)| {
        parse_column(&prepared.parameters[i], &[text.as_deref()]).map_err(|e| e.context(format_args!("parameter ${}", i + 1)))
    };
    parameters.iter().enumerate().map(array).collect()
}
