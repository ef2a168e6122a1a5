//! What one statement gives back to the protocol that asked.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use eddyline_sql::statement::{CopyIn, CopyOptions};
use eddyline_types::{Epoch, Result};
use futures::stream::{BoxStream, StreamExt};

/// Result rows as they come. Dropping the stream ends the query. An error ends the stream.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

/// The result of one statement.
pub struct Outcome {
    /// The command tag.
    pub tag: Tag,
    /// Columns of the result; `None`: the statement returns no rows (and `rows` is empty).
    pub schema: Option<SchemaRef>,
    /// The rows, every batch with exactly `schema`.
    pub rows: RowStream,
    /// The epoch that was read (SELECT) or that the change belongs to (DML).
    pub epoch: Option<Epoch>,
    /// To be sent to the client before the result.
    pub notices: Vec<Notice>,
    /// COPY FROM STDIN: the client sends rows, to be given to `Session::copy_in`.
    pub copy_in: Option<Box<CopyIn>>,
    /// COPY TO STDOUT: the rows are to be sent in this form.
    pub copy_out: Option<CopyOptions>,
}

impl Outcome {
    /// A statement without rows.
    pub fn done(tag: Tag) -> Self {
        Outcome {
            tag,
            schema: None,
            rows: Box::pin(futures::stream::empty()),
            epoch: None,
            notices: Vec::new(),
            copy_in: None,
            copy_out: None,
        }
    }

    /// A statement with rows.
    pub fn rows(tag: Tag, schema: SchemaRef, rows: RowStream) -> Self {
        Outcome { schema: Some(schema), rows, ..Outcome::done(tag) }
    }

    /// A statement whose rows are all there.
    pub fn batch(tag: Tag, batch: RecordBatch) -> Self {
        Outcome::rows(tag, batch.schema(), futures::stream::once(async move { Ok(batch) }).boxed())
    }

    /// With notices.
    pub fn with_notices(mut self, notices: impl IntoIterator<Item = Notice>) -> Self {
        self.notices.extend(notices);
        self
    }

    /// With the epoch that was read or written.
    pub fn at(mut self, epoch: Option<Epoch>) -> Self {
        self.epoch = epoch;
        self
    }

    /// Keeps something alive until the rows have ended.
    pub(crate) fn guarded_by<T: Send + 'static>(mut self, guard: T) -> Self {
        if self.schema.is_some() {
            let rows = std::mem::replace(&mut self.rows, Box::pin(futures::stream::empty()));
            self.rows = futures::stream::unfold((rows, guard), |(mut rows, guard)| async move {
                let next = rows.next().await?;
                Some((next, (rows, guard)))
            })
            .boxed();
        }
        self
    }
}

/// The command tag, as in Postgres' CommandComplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The text is complete: `CREATE TABLE`, `SET`, `BEGIN`.
    Plain(String),
    /// `SELECT n`, `FETCH n`, `SHOW`: n is the number of rows that were sent, known when the stream has ended.
    Rows(&'static str),
    /// `INSERT 0 n`, `UPDATE n`, `DELETE n`: n is known, whatever RETURNING sends.
    Affected(&'static str, u64),
    /// The statement was empty (EmptyQueryResponse).
    Empty,
}

impl Tag {
    /// The tag's text after `sent` rows were sent.
    pub fn text(&self, sent: u64) -> String {
        match self {
            Tag::Plain(text) => text.clone(),
            Tag::Rows(command @ ("SELECT" | "FETCH" | "COPY")) => format!("{command} {sent}"),
            Tag::Rows(command) => (*command).to_owned(),
            Tag::Affected("INSERT", rows) => format!("INSERT 0 {rows}"),
            Tag::Affected(command, rows) => format!("{command} {rows}"),
            Tag::Empty => String::new(),
        }
    }

    /// The number of rows that the statement changed, or that were sent.
    pub fn count(&self, sent: u64) -> u64 {
        match self {
            Tag::Affected(_, rows) => *rows,
            Tag::Rows(_) => sent,
            Tag::Plain(_) | Tag::Empty => 0,
        }
    }
}

/// How serious a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Severity {
    Notice,
    Warning,
}

/// A message beside the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// NOTICE or WARNING.
    pub severity: Severity,
    /// SQLSTATE; `00000` for plain notices.
    pub sqlstate: &'static str,
    /// What is to be told.
    pub message: String,
}

impl Notice {
    /// A NOTICE.
    pub fn notice(message: impl Into<String>) -> Self {
        Notice { severity: Severity::Notice, sqlstate: "00000", message: message.into() }
    }

    /// A WARNING with its SQLSTATE.
    pub fn warning(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Notice { severity: Severity::Warning, sqlstate, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_read_as_postgres_writes_them() {
        assert_eq!(Tag::Affected("INSERT", 3).text(0), "INSERT 0 3");
        assert_eq!(Tag::Affected("DELETE", 3).text(9), "DELETE 3");
        assert_eq!(Tag::Rows("SELECT").text(7), "SELECT 7");
        assert_eq!(Tag::Rows("SHOW").text(7), "SHOW");
        assert_eq!(Tag::Plain("CREATE TABLE".into()).text(1), "CREATE TABLE");
    }

    #[tokio::test]
    async fn a_guard_lives_as_long_as_the_rows() {
        let guard = std::sync::Arc::new(());
        let batch = RecordBatch::new_empty(std::sync::Arc::new(arrow::datatypes::Schema::empty()));
        let outcome = Outcome::batch(Tag::Rows("SELECT"), batch).guarded_by(guard.clone());
        assert_eq!(std::sync::Arc::strong_count(&guard), 2);
        let mut rows = outcome.rows;
        while rows.next().await.is_some() {}
        drop(rows);
        assert_eq!(std::sync::Arc::strong_count(&guard), 1);
    }
}
