//! The seam to the session crate: what a connection needs of a session, so that it can be tested without an engine.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use eddyline_session::{CancelKey, CopyIn, Frontend, Outcome, Prepared, Session, SessionOptions, Statement, TransactionStatus};
use eddyline_types::{Error, Result, SqlState};
use std::future::Future;
use std::sync::Arc;

/// What opens sessions: [`Frontend`], or a fake.
pub trait Engine: Clone + Send + Sync + 'static {
    /// Its sessions.
    type Client: Client;
    /// Opens a session.
    fn open(&self, options: SessionOptions) -> Result<Self::Client>;
    /// Cancels what a session runs.
    fn cancel(&self, key: CancelKey);
    /// Ends what all sessions run.
    fn shutdown(&self);
    /// Sessions at a time.
    fn max_sessions(&self) -> usize;
}

/// A session: [`Session`], or a fake. Calls mean what they mean there.
pub trait Client: Send + 'static {
    /// A parsed statement.
    type Statement: Clone + Send + Sync + 'static;
    /// A bound statement.
    type Prepared: Bound;

    /// For BackendKeyData.
    fn cancel_key(&self) -> CancelKey;
    /// For ReadyForQuery.
    fn transaction_status(&self) -> TransactionStatus;
    /// A statement failed after it had begun to run: a transaction block fails with it.
    fn statement_failed(&mut self);
    /// For ParameterStatus: what has changed.
    fn reported_variables(&mut self) -> Vec<(&'static str, String)>;
    /// Splits a text into statements.
    fn parse(&self, sql: &str) -> Result<Vec<Self::Statement>>;
    /// Binds a statement.
    fn prepare(
        &mut self,
        statement: &Self::Statement,
        hints: &[Option<DataType>],
    ) -> impl Future<Output = Result<Arc<Self::Prepared>>> + Send;
    /// Runs it.
    fn execute(&mut self, prepared: &Self::Prepared, parameters: &[ArrayRef]) -> impl Future<Output = Result<Outcome>> + Send;
    /// Columns of a cursor that DECLARE opened.
    fn cursor_schema(&self, name: &str) -> Option<SchemaRef>;
    /// Keeps DEALLOCATE informed of the names prepared here.
    fn note_wire_statement(&mut self, name: &str, prepared: bool);
    /// What DEALLOCATE has dropped of them.
    fn take_deallocated(&mut self) -> Vec<String>;
    /// Names and types of the columns that a COPY FROM STDIN is sent.
    fn copy_columns(&self, copy: &CopyIn) -> Result<Vec<(String, DataType)>>;
    /// Writes the rows of a COPY FROM STDIN; gives their number.
    fn copy_in(&mut self, copy: &CopyIn, rows: RecordBatch) -> impl Future<Output = Result<u64>> + Send;
}

/// What a connection must know of a bound statement.
pub trait Bound: Send + Sync + 'static {
    /// Types of the parameters.
    fn parameters(&self) -> &[DataType];
    /// Columns of the result, if any.
    fn result(&self) -> Option<&SchemaRef>;
}

impl Engine for Frontend {
    type Client = Session;

    fn open(&self, options: SessionOptions) -> Result<Session> {
        Frontend::open(self, options)
    }

    fn cancel(&self, key: CancelKey) {
        Frontend::cancel(self, key);
    }

    fn shutdown(&self) {
        Frontend::shutdown(self);
    }

    fn max_sessions(&self) -> usize {
        self.limits().max_sessions
    }
}

impl Client for Session {
    type Statement = Statement;
    type Prepared = Prepared;

    fn cancel_key(&self) -> CancelKey {
        Session::cancel_key(self)
    }

    fn transaction_status(&self) -> TransactionStatus {
        Session::transaction_status(self)
    }

    fn statement_failed(&mut self) {
        Session::statement_failed(self);
    }

    fn reported_variables(&mut self) -> Vec<(&'static str, String)> {
        Session::reported_variables(self)
    }

    fn parse(&self, sql: &str) -> Result<Vec<Statement>> {
        Session::parse(self, sql)
    }

    async fn prepare(&mut self, statement: &Statement, hints: &[Option<DataType>]) -> Result<Arc<Prepared>> {
        Session::prepare(self, statement, hints).await
    }

    async fn execute(&mut self, prepared: &Prepared, parameters: &[ArrayRef]) -> Result<Outcome> {
        Session::execute(self, prepared, parameters).await
    }

    fn cursor_schema(&self, name: &str) -> Option<SchemaRef> {
        Session::cursor_schema(self, name)
    }

    fn note_wire_statement(&mut self, name: &str, prepared: bool) {
        Session::note_wire_statement(self, name, prepared);
    }

    fn take_deallocated(&mut self) -> Vec<String> {
        Session::take_deallocated(self)
    }

    fn copy_columns(&self, copy: &CopyIn) -> Result<Vec<(String, DataType)>> {
        let catalog = self.frontend().catalog();
        let dropped = || Error::user(SqlState::UNDEFINED_TABLE, "the table was dropped meanwhile");
        let relation = catalog.relations.get(&copy.relation).ok_or_else(dropped)?;
        copy.columns.iter().map(|c| relation.columns.get(*c).map(|c| (c.name.clone(), c.data_type.clone())).ok_or_else(dropped)).collect()
    }

    async fn copy_in(&mut self, copy: &CopyIn, rows: RecordBatch) -> Result<u64> {
        Ok(Session::copy_in(self, copy, rows).await?.0)
    }
}

impl Bound for Prepared {
    fn parameters(&self) -> &[DataType] {
        &self.parameters
    }

    fn result(&self) -> Option<&SchemaRef> {
        self.result.as_ref()
    }
}
