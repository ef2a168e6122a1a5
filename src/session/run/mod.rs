//! Carries out bound statements: one file for each kind.
//!
//! [`query`] (SELECT), [`dml`] (INSERT, UPDATE, DELETE), [`ddl`] (CREATE, DROP), [`copy`], [`settings`] (SET, SHOW, EXPLAIN, BEGIN and its kin),
//! [`cursor`] (DECLARE, FETCH, PREPARE, EXECUTE).

pub mod copy;
pub mod cursor;
pub mod ddl;
pub mod dml;
pub mod query;
pub mod settings;

use crate::outcome::{Outcome, Tag};
use crate::prepared::{Plan, Prepared};
use crate::session::Session;
use arrow::array::ArrayRef;
use eddyline_serving::Cancel;
use eddyline_sql::statement::Bound;
use eddyline_types::{Error, Result, SqlState};
use futures::future::BoxFuture;

/// Runs a prepared statement.
pub(crate) async fn run(session: &mut Session, prepared: &Prepared, parameters: &[ArrayRef], cancel: &Cancel) -> Result<Outcome> {
    check_parameters(prepared, parameters)?;
    let plan = match prepared.current_plan(session).await {
        Ok(plan) => plan,
        // COMMIT and ROLLBACK must work in a failed block; binding them needs nothing that could have failed.
        Err(e) => return Err(session.transaction.check_alive().err().unwrap_or(e)),
    };
    match plan {
        Plan::System(plan) => {
            session.transaction.check_alive()?;
            query::system(session, &plan, parameters, cancel).await
        }
        Plan::Bound(bound) => {
            if !matches!(*bound, Bound::Commit | Bound::Rollback) {
                session.transaction.check_alive()?;
            }
            dispatch(session, &bound, parameters, cancel).await
        }
    }
}

/// Boxed, because EXECUTE runs another statement.
pub(crate) fn dispatch<'a>(
    session: &'a mut Session,
    bound: &'a Bound,
    parameters: &'a [ArrayRef],
    cancel: &'a Cancel,
) -> BoxFuture<'a, Result<Outcome>> {
    Box::pin(async move {
        match bound {
            Bound::Query(select) => query::select(session, select, parameters, cancel).await,
            Bound::Dml(statement) => dml::run(session, statement, parameters, cancel).await,
            Bound::CreateRelation(create) => ddl::create(session, create, cancel).await,
            Bound::Drop(drop) => ddl::drop_relations(session, drop, cancel).await,
            Bound::CreateSchema { name, if_not_exists } => ddl::create_schema(session, name, *if_not_exists).await,
            Bound::DropSchema { name, relations } => ddl::drop_schema(session, name, relations, cancel).await,
            Bound::CopyIn(copy) => copy::start_in(session, copy),
            Bound::CopyOut { query, options } => copy::out(session, query, options, cancel).await,
            Bound::Explain(lines) => settings::explain(lines),
            Bound::SetVariable { name, value, local } => settings::set(session, name, value.as_deref(), *local),
            Bound::ShowVariable { name } => settings::show(session, name),
            Bound::ResetVariable { name } => settings::reset(session, name.as_deref()),
            Bound::Flush => dml::flush(session, cancel).await,
            Bound::Begin { read_only } => settings::begin(session, *read_only),
            Bound::Commit => dml::commit(session, cancel).await,
            Bound::Rollback => settings::rollback(session),
            Bound::Prepare { name, types, statement } => cursor::prepare(session, name, types, statement).await,
            Bound::Execute { name, values } => {
                let arrays =
                    values.iter().map(|v| v.to_array().map_err(eddyline_expr::errors::from_datafusion)).collect::<Result<Vec<_>>>()?;
                cursor::execute(session, name, arrays, cancel).await
            }
            Bound::Deallocate { name } => cursor::deallocate(session, name.as_deref()),
            Bound::Declare { name, query, hold } => cursor::declare(session, name, query, *hold, cancel).await,
            Bound::Fetch { name, count } => cursor::fetch(session, name, *count).await,
            Bound::Close { name } => cursor::close(session, name.as_deref()),
            Bound::Discard => settings::discard(session),
            Bound::Nothing { tag } => Ok(Outcome::done(Tag::Plain((*tag).to_owned()))),
        }
    })
}

fn check_parameters(prepared: &Prepared, parameters: &[ArrayRef]) -> Result<()> {
    if parameters.len() != prepared.parameters.len() {
        return Err(Error::user(
            SqlState::PROTOCOL_VIOLATION,
            format!("bind message supplies {} parameters, but prepared statement requires {}", parameters.len(), prepared.parameters.len()),
        ));
    }
    for (i, (array, expected)) in parameters.iter().zip(&prepared.parameters).enumerate() {
        if array.len() != 1 || array.data_type() != expected {
            return Err(Error::internal(format!("parameter ${} is {} x {}, not one {expected}", i + 1, array.len(), array.data_type())));
        }
    }
    Ok(())
}
