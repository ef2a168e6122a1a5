//! One client: its variables, its transaction, and the statements that it runs.
//!
//! A protocol calls [`Session::parse`], then for each statement [`Session::prepare`] and [`Session::execute`], or [`Session::run`] for text without parameters.
//! Calls take `&mut self`: a session runs one statement at a time. The rows of an [`Outcome`] do not borrow the session, so a portal may
//! keep them while others run; dropping them ends the query.

use crate::frontend::{DATABASE, Frontend, SessionOptions};
use crate::outcome::Outcome;
use crate::prepared::{Binder, Named};
use crate::registry::Entry;
use crate::run::cursor::{Cursor, WireStatements};
use crate::transaction::Transaction;
use crate::variables::Variables;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use eddyline_env::clock;
use eddyline_protocol::frontier::Frontier;
use eddyline_serving::{Cancel, CancelReason};
use eddyline_sql::statement::Parsed;
use eddyline_types::{Epoch, Error, JobId, Result, SqlState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use crate::prepared::Prepared;

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
pub struct Statement(Arc<Parsed>);

impl Statement {
    /// Its text, without the semicolon.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    pub(crate) fn parsed(&self) -> &Parsed {
        &self.0
    }

    pub(crate) fn of(parsed: Parsed) -> Self {
        Statement(Arc::new(parsed))
    }
}

/// See the module's documentation.
pub struct Session {
    pub(crate) frontend: Frontend,
    pub(crate) entry: Arc<Entry>,
    pub(crate) variables: Variables,
    pub(crate) transaction: Transaction,
    /// PREPARE name AS ...
    pub(crate) named: BTreeMap<String, Named>,
    pub(crate) cursors: BTreeMap<String, Cursor>,
    pub(crate) wire_statements: WireStatements,
    /// The newest write of each job that the session has not waited for.
    pub(crate) unseen_writes: BTreeMap<JobId, Epoch>,
    /// What the session has read: it must not step back behind it silently.
    pub(crate) seen: BTreeMap<JobId, Frontier>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.frontend.registry().close(self.entry.key().process_id);
    }
}

impl Session {
    pub(crate) fn open(frontend: Frontend, options: SessionOptions) -> Result<Self> {
        if options.database != DATABASE {
            return Err(Error::user(SqlState::INVALID_CATALOG_NAME, format!("database \"{}\" does not exist", options.database))
                .with_hint(format!("There is one database, \"{DATABASE}\".")));
        }
        let variables = Variables::new(&options.user, &options.settings)?;
        let entry = frontend.registry().open(options, frontend.limits().max_sessions)?;
        Ok(Session {
            frontend,
            entry,
            variables,
            transaction: Transaction::default(),
            named: BTreeMap::new(),
            cursors: BTreeMap::new(),
            wire_statements: WireStatements::default(),
            unseen_writes: BTreeMap::new(),
            seen: BTreeMap::new(),
        })
    }

    /// For BackendKeyData.
    pub fn cancel_key(&self) -> CancelKey {
        self.entry.key()
    }

    /// For ReadyForQuery.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.transaction.status()
    }

    /// A result that was being read failed: a transaction block is aborted.
    pub fn statement_failed(&self) {
        self.transaction.fail();
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.entry.options().user
    }

    /// What all sessions share.
    pub fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    /// A variable's value as SHOW gives it; `None`: there is no such variable. Names are not case-sensitive.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(str::to_owned)
    }

    /// Name and value of the variables that Postgres reports with ParameterStatus (`server_version`, `client_encoding`, `TimeZone`, ...)
    /// and that have changed since the last call; the first call gives all of them.
    pub fn reported_variables(&mut self) -> Vec<(&'static str, String)> {
        self.variables.take_reported()
    }

    /// Columns of a cursor that DECLARE opened: to the protocol it is a portal too.
    pub fn cursor_schema(&self, name: &str) -> Option<SchemaRef> {
        self.cursors.get(name).map(|c| c.schema().clone())
    }

    /// Tells that the protocol keeps, or no longer keeps, a prepared statement of this name, so that DEALLOCATE finds it.
    pub fn note_wire_statement(&mut self, name: &str, prepared: bool) {
        self.wire_statements.set(name, prepared);
    }

    /// The protocol's prepared statements that DEALLOCATE has dropped since the last call.
    pub fn take_deallocated(&mut self) -> Vec<String> {
        self.wire_statements.take_dropped()
    }

    /// Splits a text into statements. A syntax error (42601, with the position in `sql`) refuses the whole text. Empty statements
    /// between semicolons are left out; a text without any statement gives none. An error inside a transaction block fails the block.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>> {
        match eddyline_sql::parse(sql) {
            Ok(parsed) => Ok(parsed.into_iter().map(Statement::of).collect()),
            Err(e) => {
                self.transaction.fail();
                Err(e)
            }
        }
    }

    /// Binds a statement: types of its parameters and of its result. `hints`: types that the client declared for `$1`, `$2`, ... (`None`: not told).
    /// An error inside a transaction block fails the block.
    pub async fn prepare(&mut self, statement: &Statement, hints: &[Option<DataType>]) -> Result<Arc<Prepared>> {
        let prepared = Binder::of(self).prepare(statement, hints).await;
        if prepared.is_err() {
            self.transaction.fail();
        }
        prepared.map(Arc::new)
    }

    /// Runs a prepared statement. `parameters`: one array of one row for each of `prepared.parameters`, of that type (a NULL array for NULL).
    /// An error inside a transaction block puts it into the failed state.
    pub async fn execute(&mut self, prepared: &Prepared, parameters: &[ArrayRef]) -> Result<Outcome> {
        let timer = Timer::start(self.entry.options().protocol.name(), prepared.kind());
        let cancel = self.entry.start(prepared.statement.text());
        let deadline = Deadline::start(self.variables.millis("statement_timeout"), &cancel);
        let outcome = match cancel.check() {
            Ok(()) => crate::run::run(self, prepared, parameters, &cancel).await,
            Err(e) => Err(e),
        };
        if outcome.is_err() {
            self.transaction.fail();
        }
        self.entry.finish(self.transaction.status());
        outcome.map(|outcome| outcome.guarded_by((timer, deadline)))
    }

    /// Prepares and runs a statement without parameters: the simple query protocol, statement by statement.
    pub async fn run(&mut self, statement: &Statement) -> Result<Outcome> {
        let prepared = self.prepare(statement, &[]).await?;
        self.execute(&prepared, &[]).await
    }

    /// Inserts rows into a table as INSERT would (defaults, coercion, constraints, commit): for REST ingestion. `columns` names the target column of each
    /// of the batch's columns. Returns the number of rows and their epoch.
    pub async fn insert(&mut self, table: &str, columns: &[String], rows: RecordBatch) -> Result<(u64, Epoch)> {
        let cancel = self.entry.start(&format!("INSERT INTO {table}"));
        let _timer = Timer::start(self.entry.options().protocol.name(), "insert");
        let result = crate::run::copy::insert(self, table, columns, rows, &cancel).await;
        self.entry.finish(self.transaction.status());
        result
    }

    /// Takes rows of a COPY FROM STDIN ([`Outcome::copy_in`]), one array for each of the columns that are sent. All rows of the COPY are to be given in one call.
    /// An error inside a transaction block fails the block.
    pub async fn copy_in(&mut self, copy: &eddyline_sql::statement::CopyIn, rows: RecordBatch) -> Result<(u64, Epoch)> {
        let cancel = self.entry.start("COPY");
        let result = crate::run::copy::copy_in(self, copy, rows, &cancel).await;
        if result.is_err() {
            self.transaction.fail();
        }
        self.entry.finish(self.transaction.status());
        result
    }
}

/// Measures a statement until its last row is sent.
pub(crate) struct Timer {
    start: clock::Instant,
    protocol: &'static str,
    kind: &'static str,
}

impl Timer {
    fn start(protocol: &'static str, kind: &'static str) -> Self {
        Timer { start: clock::now(), protocol, kind }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        metrics::histogram!("eddyline_sql_seconds", "protocol" => self.protocol, "kind" => self.kind)
            .record(self.start.elapsed().as_secs_f64());
    }
}

/// Cancels a statement that runs too long, its rows included.
pub(crate) struct Deadline(Option<eddyline_env::spawn::JoinHandle<()>>);

impl Deadline {
    fn start(millis: u64, cancel: &Cancel) -> Self {
        if millis == 0 {
            return Deadline(None);
        }
        let cancel = cancel.clone();
        Deadline(Some(eddyline_env::spawn::task("statement deadline", async move {
            clock::sleep(Duration::from_millis(millis)).await;
            cancel.cancel(CancelReason::Timeout);
        })))
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
