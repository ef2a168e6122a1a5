//! One client: its variables, its transaction, and the statements that it runs.
//!
//! A protocol calls [`Session::parse`], then for each statement [`Session::prepare`] and [`Session::execute`], or [`Session::run`] for text without parameters.
//! Calls take `&mut self`: a session runs one statement at a time. The rows of an [`Outcome`] do not borrow the session, so a portal may
//! keep them while others run; dropping them ends the query.

use crate::frontend::{Frontend, SessionOptions};
use crate::outcome::Outcome;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use eddyline_types::{Epoch, Error, Result};
use std::sync::Arc;

/// Names a session to somebody who wants to cancel its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelKey {
    /// Process id of BackendKeyData: the session's number, above 0.
    pub process_id: i32,
    /// Random.
    pub secret: i32,
}

/// As ReadyForQuery says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// `I`: outside a transaction block.
    Idle,
    /// `T`: inside one.
    Open,
    /// `E`: inside one that failed: everything but ROLLBACK and COMMIT gets 25P02.
    Failed,
}

/// One statement of a text, parsed but not bound.
#[derive(Clone, Debug)]
pub struct Statement {
    text: Arc<str>,
}

impl Statement {
    /// Its text, without the semicolon.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A bound statement. It may be executed any number of times; when the catalog has changed since, `execute` binds it again.
#[derive(Debug)]
pub struct Prepared {
    /// Types of `$1`, `$2`, ...
    pub parameters: Vec<DataType>,
    /// Columns of the result; `None`: it returns no rows.
    pub result: Option<SchemaRef>,
    /// What was prepared.
    pub statement: Statement,
}

/// See the module's documentation.
pub struct Session {
    frontend: Frontend,
    options: SessionOptions,
}

impl Session {
    pub(crate) fn open(frontend: Frontend, options: SessionOptions) -> Result<Self> {
        Ok(Session { frontend, options })
    }

    /// For BackendKeyData.
    pub fn cancel_key(&self) -> CancelKey {
        CancelKey { process_id: 1, secret: 0 }
    }

    /// For ReadyForQuery.
    pub fn transaction_status(&self) -> TransactionStatus {
        TransactionStatus::Idle
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.options.user
    }

    /// What all sessions share.
    pub fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    /// A variable's value as SHOW gives it; `None`: there is no such variable. Names are not case-sensitive.
    pub fn variable(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Name and value of the variables that Postgres reports with ParameterStatus (`server_version`, `client_encoding`, `TimeZone`, ...)
    /// and that have changed since the last call; the first call gives all of them.
    pub fn reported_variables(&mut self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Splits a text into statements. A syntax error (42601, with the position in `sql`) refuses the whole text. Empty statements
    /// between semicolons are left out; a text without any statement gives none.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>> {
        Ok(vec![Statement { text: sql.into() }])
    }

    /// Binds a statement: types of its parameters and of its result. `hints`: types that the client declared for `$1`, `$2`, ... (`None`: not told).
    pub async fn prepare(&mut self, statement: &Statement, hints: &[Option<DataType>]) -> Result<Arc<Prepared>> {
        let _ = (statement, hints);
        Err(Error::unsupported("statement is not supported"))
    }

    /// Runs a prepared statement. `parameters`: one array of one row for each of `prepared.parameters`, of that type (a NULL array for NULL).
    /// An error inside a transaction block puts it into the failed state.
    pub async fn execute(&mut self, prepared: &Prepared, parameters: &[ArrayRef]) -> Result<Outcome> {
        let _ = (prepared, parameters);
        Err(Error::unsupported("statement is not supported"))
    }

    /// Prepares and runs a statement without parameters: the simple query protocol, statement by statement.
    pub async fn run(&mut self, statement: &Statement) -> Result<Outcome> {
        let prepared = self.prepare(statement, &[]).await?;
        self.execute(&prepared, &[]).await
    }

    /// Inserts rows into a table as INSERT would (defaults, coercion, constraints, commit): for COPY and REST ingestion. `columns` names the target column of each
    /// of the batch's columns. Returns the number of rows and their epoch.
    pub async fn insert(&mut self, table: &str, columns: &[String], rows: RecordBatch) -> Result<(u64, Epoch)> {
        let _ = (table, columns, rows);
        Err(Error::unsupported("statement is not supported"))
    }
}
