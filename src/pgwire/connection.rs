//! One connection: start-up, the message loop, the simple protocol. The extended protocol is in `extended`.
//!
//! Invariant: after an error in the extended protocol everything up to Sync is skipped; every Query and every Sync is answered with exactly one
//! ReadyForQuery.

use crate::client::{Bound, Client, Engine};
use crate::copy::{self, LineWriter};
use crate::encode::{Column, Format, plain};
use crate::extended::Extended;
use crate::message::{self, Malformed, Message, Startup};
use crate::reply::Replies;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::BytesMut;
use eddyline_env::clock;
use eddyline_session::{CancelKey, CopyIn, CopyOptions, Outcome, Protocol, RowStream, SessionOptions, Tag};
use eddyline_types::value_text::TextColumn;
use eddyline_types::{Error, ErrorKind, Result, SqlState};
use futures::{FutureExt, StreamExt};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

/// Replies are written to the socket when so many bytes wait.
const FLUSH_BYTES: usize = 64 << 10;
/// How long a client may take to say who it is.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
/// A client may send so much ahead while a statement runs; then reading waits.
const READ_AHEAD_BYTES: usize = 1 << 20;
/// Rows of one COPY are kept until they are complete, since they are one change.
const MAX_COPY_BYTES: usize = 512 << 20;

/// Why a connection ends.
pub(crate) enum End {
    /// The client has left, or the network has failed: nobody is told.
    Gone,
    /// The client is told, with severity FATAL.
    Fatal(Error),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Gone
    }
}

/// The bytes that come in.
struct Input {
    half: OwnedReadHalf,
    buffer: BytesMut,
}

impl Input {
    /// Waits for more bytes.
    async fn fill(&mut self) -> Result<(), End> {
        if self.half.read_buf(&mut self.buffer).await? == 0 {
            return Err(End::Gone);
        }
        Ok(())
    }

    /// Waits until the client is gone; meanwhile keeps what it sends ahead, up to a bound.
    async fn gone(&mut self) {
        while self.buffer.len() < READ_AHEAD_BYTES {
            if self.fill().await.is_err() {
                return;
            }
        }
        // No deadline: the statement that runs beside this ends the wait.
        std::future::pending::<()>().await;
    }
}

/// The socket of a connection, with what waits on both sides.
pub(crate) struct Wire {
    input: Input,
    output: OwnedWriteHalf,
    pub replies: Replies,
    shutdown: watch::Receiver<bool>,
}

impl Wire {
    pub fn new(stream: TcpStream, shutdown: watch::Receiver<bool>) -> Self {
        let (half, output) = stream.into_split();
        Wire { input: Input { half, buffer: BytesMut::with_capacity(8 << 10) }, output, replies: Replies::default(), shutdown }
    }

    /// Writes what waits. No deadline: a client that does not read holds up only itself, within the bound of the buffer; shutdown ends it.
    pub async fn flush(&mut self) -> Result<(), End> {
        if self.replies.len() > 0 {
            tokio::select! {
                biased;
                written = self.output.write_all(self.replies.bytes()) => written?,
                () = stopped(&mut self.shutdown) => return Err(End::Gone),
            }
            self.replies.clear();
        }
        Ok(())
    }

    /// Writes what waits if it is much.
    async fn flush_if_full(&mut self) -> Result<(), End> {
        if self.replies.len() >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Runs a statement's future, and gives it up when the client leaves.
    pub async fn watch<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::select! {
            biased;
            result = work => Ok(result),
            () = self.input.gone() => Err(End::Gone),
        }
    }

    /// The next message. No deadline: an idle session may be idle; shutdown ends the wait.
    async fn next(&mut self) -> Result<Result<Message, (u8, Error)>, End> {
        loop {
            match message::take(&mut self.input.buffer) {
                Ok(Some(message)) => return Ok(Ok(message)),
                Err(Malformed::Frame(e)) => return Err(End::Fatal(e)),
                Err(Malformed::Body(kind, e)) => return Ok(Err((kind, e))),
                Ok(None) => {}
            }
            self.flush().await?;
            tokio::select! {
                filled = self.input.fill() => filled?,
                () = stopped(&mut self.shutdown) => return Err(End::Fatal(shutting_down())),
            }
        }
    }

    /// Sends rows of a stream until it ends or `limit` rows were sent; `rest` keeps what is left of a batch. `true`: the stream has ended.
    pub async fn send_rows(&mut self, rows: &mut Rows, limit: Option<u64>, format: impl Fn(usize) -> Format) -> Result<Result<bool>, End> {
        let mut left = limit.unwrap_or(u64::MAX);
        loop {
            if let Some(batch) = rows.rest.take() {
                let count = left.min(batch.num_rows() as u64) as usize;
                match self.send_batch(&batch.slice(0, count), &format).await? {
                    Ok(()) => {}
                    Err(e) => return Ok(Err(e)),
                }
                rows.sent += count as u64;
                left -= count as u64;
                if count < batch.num_rows() {
                    rows.rest = Some(batch.slice(count, batch.num_rows() - count));
                    return Ok(Ok(false));
                }
            }
            if left == 0 && limit.is_some() {
                return Ok(Ok(false));
            }
            // Take what is ready without looking at the socket: a small result needs no system call for it.
            let next = match rows.stream.next().now_or_never() {
                Some(next) => next,
                None => self.watch(rows.stream.next()).await?,
            };
            match next {
                Some(Ok(batch)) => rows.rest = Some(batch),
                Some(Err(e)) => return Ok(Err(e)),
                None => return Ok(Ok(true)),
            }
        }
    }

    /// Sends the rows of a COPY TO STDOUT.
    async fn copy_out(&mut self, options: &CopyOptions, schema: &SchemaRef, rows: &mut Rows) -> Result<Result<()>, End> {
        let mut writer = LineWriter::new(options);
        self.replies.copy_response(b'H', schema.fields().len());
        if options.header {
            self.replies.copy_data(|out| writer.header(schema, out));
        }
        while let Some(batch) = self.watch(rows.stream.next()).await? {
            let arrays = match batch.and_then(|b| b.columns().iter().map(plain).collect::<Result<Vec<_>>>()) {
                Ok(arrays) => arrays,
                Err(e) => return Ok(Err(e)),
            };
            let columns: Vec<TextColumn<'_>> = arrays.iter().map(|a| TextColumn::new(a.as_ref())).collect();
            let count = arrays.first().map_or(0, |a| a.len());
            for row in 0..count {
                self.replies.copy_data(|out| writer.row(&arrays, &columns, row, out));
                self.flush_if_full().await?;
            }
            rows.sent += count as u64;
        }
        self.replies.bare(b'c');
        Ok(Ok(()))
    }

    async fn send_batch(&mut self, batch: &RecordBatch, format: impl Fn(usize) -> Format) -> Result<Result<()>, End> {
        let arrays = match batch.columns().iter().map(plain).collect::<Result<Vec<_>>>() {
            Ok(arrays) => arrays,
            Err(e) => return Ok(Err(e)),
        };
        let columns: Vec<Column<'_>> = arrays.iter().enumerate().map(|(i, a)| Column::new(a.as_ref(), format(i))).collect();
        for row in 0..batch.num_rows() {
            if let Err(e) = self.replies.data_row(&columns, row) {
                return Ok(Err(e));
            }
            self.flush_if_full().await?;
        }
        Ok(Ok(()))
    }
}

/// The rows of a statement and how many were sent.
pub(crate) struct Rows {
    pub stream: RowStream,
    pub rest: Option<RecordBatch>,
    pub sent: u64,
}

impl Rows {
    pub fn new(stream: RowStream) -> Self {
        Rows { stream, rest: None, sent: 0 }
    }
}

fn shutting_down() -> Error {
    Error::new(ErrorKind::Unavailable, SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

/// Waits for the shutdown of the server.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is as final.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

/// Serves one connection to its end.
pub(crate) async fn serve<E: Engine>(stream: TcpStream, peer: SocketAddr, engine: E, shutdown: watch::Receiver<bool>) {
    // Without it a reply may wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let mut wire = Wire::new(stream, shutdown);
    if let Err(End::Fatal(error)) = run(&mut wire, peer, engine).await {
        tracing::debug!(%peer, %error, "connection ends");
        wire.replies.error("FATAL", &error);
        let _ = clock::timeout(Duration::from_secs(5), wire.output.write_all(wire.replies.bytes())).await;
        let _ = clock::timeout(Duration::from_secs(5), wire.output.shutdown()).await;
    }
}

/// Tells a client that there is no room, without waiting for what it has to say.
pub(crate) async fn refuse(mut stream: TcpStream) {
    let mut replies = Replies::default();
    replies.error("FATAL", &Error::new(ErrorKind::Unavailable, SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
    let _ = clock::timeout(Duration::from_secs(5), stream.write_all(replies.bytes())).await;
}

async fn run<E: Engine>(wire: &mut Wire, peer: SocketAddr, engine: E) -> Result<(), End> {
    let startup = clock::timeout(STARTUP_TIMEOUT, start(wire)).await;
    let (minor, parameters) =
        match startup.unwrap_or_else(|| Err(End::Fatal(message::violation("canceling authentication due to timeout"))))? {
            Startup::Session { minor, parameters } => (minor, parameters),
            Startup::Cancel { process_id, secret } => {
                engine.cancel(CancelKey { process_id, secret });
                return Ok(());
            }
            Startup::Encryption => return Ok(()),
        };
    let unknown: Vec<String> = parameters.iter().filter(|(name, _)| name.starts_with("_pq_.")).map(|(name, _)| name.clone()).collect();
    if minor > 0 || !unknown.is_empty() {
        wire.replies.negotiate_version(&unknown);
    }
    let client = engine.open(options(peer, parameters)).map_err(End::Fatal)?;
    let mut connection = Connection { wire, client, extended: Extended::default(), skipping: false };
    connection.wire.replies.authentication_ok();
    connection.report_variables();
    let key = connection.client.cancel_key();
    connection.wire.replies.backend_key(key.process_id, key.secret);
    connection.ready();
    connection.messages().await
}

/// Reads start-up packets up to one that is not about encryption.
async fn start(wire: &mut Wire) -> Result<Startup, End> {
    loop {
        match message::take_startup(&mut wire.input.buffer).map_err(End::Fatal)? {
            Some(Startup::Encryption) => {
                wire.replies.refuse_encryption();
                wire.flush().await?;
            }
            Some(other) => return Ok(other),
            None => wire.input.fill().await?,
        }
    }
}

/// What the start-up parameters say about the session.
fn options(peer: SocketAddr, parameters: Vec<(String, String)>) -> SessionOptions {
    let mut options = SessionOptions {
        protocol: Protocol::Postgres,
        user: "root".into(),
        database: "dev".into(),
        peer: peer.to_string(),
        settings: Vec::new(),
    };
    for (name, value) in parameters {
        match name.as_str() {
            "user" => options.user = value,
            "database" => options.database = value,
            "options" => options.settings.extend(command_line_settings(&value)),
            // Replication is another protocol; saying no to it is what an ordinary session does.
            "replication" => {}
            name if name.starts_with("_pq_.") => {}
            _ => options.settings.push((name, value)),
        }
    }
    options
}

/// `-c name=value --other=value`; backslashes escape blanks.
fn command_line_settings(options: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        let word = words.last_mut().expect("never empty");
        match c {
            '\\' => word.extend(chars.next()),
            c if c.is_whitespace() => words.push(String::new()),
            c => word.push(c),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.iter().filter(|w| !w.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next().map(String::as_str),
            Some(rest) => Some(rest),
            None => word.strip_prefix("--"),
        };
        if let Some((name, value)) = setting.and_then(|s| s.split_once('=')) {
            settings.push((name.to_lowercase().replace('-', "_"), value.to_owned()));
        }
    }
    settings
}

/// A connection with its session.
pub(crate) struct Connection<'a, C: Client> {
    pub wire: &'a mut Wire,
    pub client: C,
    pub extended: Extended<C>,
    /// After an error in the extended protocol, up to Sync.
    skipping: bool,
}

impl<C: Client> Connection<'_, C> {
    async fn messages(&mut self) -> Result<(), End> {
        loop {
            let message = match self.wire.next().await? {
                Ok(message) => message,
                // A body that cannot be read is an error of its statement, in the protocol that is spoken.
                Err((b'Q', e)) => {
                    self.fail(&e);
                    self.skipping = false;
                    self.ready();
                    continue;
                }
                Err((_, e)) => {
                    if !self.skipping {
                        self.failed(e);
                    }
                    continue;
                }
            };
            match message {
                Message::Terminate => return Ok(()),
                Message::Sync => {
                    self.skipping = false;
                    self.extended.end_of_pipeline(self.client.transaction_status());
                    self.report_variables();
                    self.ready();
                }
                Message::Query(sql) => {
                    self.skipping = false;
                    self.simple(&sql).await?;
                    self.report_variables();
                    self.ready();
                }
                _ if self.skipping => {}
                Message::Flush => self.wire.flush().await?,
                // What a client had sent of a COPY that has failed meanwhile.
                Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => {}
                Message::Unsupported(b'F') => self.failed(Error::unsupported("fastpath function calls are not supported")),
                Message::Unsupported(_) => return Err(End::Fatal(message::violation("unexpected message"))),
                Message::Parse { name, sql, types } => {
                    let result = self.parse(name, &sql, types).await?;
                    self.note(result);
                }
                Message::Bind(bind) => {
                    let result = self.bind(bind);
                    self.note(result);
                }
                Message::Describe(target) => {
                    let result = self.describe(&target);
                    self.note(result);
                }
                Message::Execute { portal, max_rows } => {
                    let result = self.execute(&portal, max_rows).await?;
                    self.note(result);
                }
                Message::Close(target) => self.close(&target),
            }
            self.wire.flush_if_full().await?;
        }
    }

    fn note(&mut self, result: Result<()>) {
        if let Err(e) = result {
            self.failed(e);
        }
    }

    /// An error in the extended protocol.
    fn failed(&mut self, error: Error) {
        self.fail(&error);
        self.skipping = true;
    }

    fn fail(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Internal || error.kind() == ErrorKind::Corruption {
            tracing::error!(%error, sqlstate = error.sqlstate().0, "statement failed");
        }
        self.client.statement_failed();
        self.wire.replies.error("ERROR", error);
    }

    fn ready(&mut self) {
        self.wire.replies.ready_for_query(self.client.transaction_status());
    }

    fn report_variables(&mut self) {
        for (name, value) in self.client.reported_variables() {
            self.wire.replies.parameter_status(name, &value);
        }
    }

    /// The simple protocol: all statements of a text, up to the first error.
    async fn simple(&mut self, sql: &str) -> Result<(), End> {
        // As in Postgres, a simple query replaces the unnamed statement and ends the unnamed portal.
        self.extended.drop_unnamed();
        let statements = match self.client.parse(sql) {
            Ok(statements) => statements,
            Err(e) => {
                self.fail(&e);
                return Ok(());
            }
        };
        if statements.is_empty() {
            self.wire.replies.bare(b'I');
        }
        for statement in statements {
            match self.simple_statement(&statement).await? {
                Ok(()) => {}
                Err(e) => {
                    self.fail(&e);
                    break;
                }
            }
            self.report_variables();
        }
        Ok(())
    }

    async fn simple_statement(&mut self, statement: &C::Statement) -> Result<Result<()>, End> {
        let prepared = match self.wire.watch(self.client.prepare(statement, &[])).await? {
            Ok(prepared) => prepared,
            Err(e) => return Ok(Err(e)),
        };
        if !prepared.parameters().is_empty() {
            return Ok(Err(Error::user(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1")));
        }
        let outcome = match self.wire.watch(self.client.execute(&prepared, &[])).await? {
            Ok(outcome) => outcome,
            Err(e) => return Ok(Err(e)),
        };
        let outcome = match self.special(outcome).await? {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(Ok(())),
            Err(e) => return Ok(Err(e)),
        };
        let mut rows = Rows::new(outcome.rows);
        if let Some(schema) = &outcome.schema {
            self.wire.replies.row_description(schema, |_| Format::Text);
            if let Err(e) = self.wire.send_rows(&mut rows, None, |_| Format::Text).await? {
                return Ok(Err(e));
            }
        }
        self.complete(&outcome.tag, rows.sent);
        Ok(Ok(()))
    }

    /// Sends the notices of a statement, and carries out a COPY. What is left to be sent as rows comes back.
    pub async fn special(&mut self, outcome: Outcome) -> Result<Result<Option<Outcome>>, End> {
        outcome.notices.iter().for_each(|n| self.wire.replies.notice(n));
        let copied = if let Some(copy) = &outcome.copy_in {
            self.copy_in(copy).await?.map(|rows| Tag::Affected("COPY", rows).text(rows))
        } else if let Some(options) = &outcome.copy_out {
            let mut rows = Rows::new(outcome.rows);
            match &outcome.schema {
                Some(schema) => self.wire.copy_out(options, schema, &mut rows).await?.map(|()| outcome.tag.text(rows.sent)),
                None => Err(Error::internal("COPY TO without columns")),
            }
        } else {
            return Ok(Ok(Some(outcome)));
        };
        Ok(copied.map(|tag| {
            self.wire.replies.command_complete(&tag);
            None
        }))
    }

    /// Takes the rows of a COPY FROM STDIN and writes them as one change.
    async fn copy_in(&mut self, copy: &CopyIn) -> Result<Result<u64>, End> {
        let columns = match self.client.copy_columns(copy) {
            Ok(columns) => columns,
            Err(e) => return Ok(Err(e)),
        };
        self.wire.replies.copy_response(b'G', columns.len());
        let mut data = Vec::new();
        loop {
            match self.wire.next().await? {
                Ok(Message::CopyData(bytes)) => data.extend_from_slice(&bytes),
                Ok(Message::CopyDone) => break,
                Ok(Message::CopyFail(reason)) => return Ok(Err(Error::cancelled(format!("COPY from stdin failed: {reason}")))),
                // As in Postgres: clients send them without looking.
                Ok(Message::Flush | Message::Sync) => {}
                Ok(Message::Terminate) => return Err(End::Gone),
                Ok(_) => return Ok(Err(message::violation("unexpected message type during COPY from stdin"))),
                Err((_, e)) => return Ok(Err(e)),
            }
            if data.len() > MAX_COPY_BYTES {
                let error =
                    Error::user(SqlState::LIMIT_EXCEEDED, format!("a COPY of more than {} MiB is not possible", MAX_COPY_BYTES >> 20));
                return Ok(Err(error.with_hint("Send the rows with several COPY statements.")));
            }
        }
        let rows = match copy::read(&copy.options, &columns, &data) {
            Ok(rows) => rows,
            Err(e) => return Ok(Err(e)),
        };
        drop(data);
        self.wire.watch(self.client.copy_in(copy, rows)).await
    }

    pub fn complete(&mut self, tag: &Tag, sent: u64) {
        // DEALLOCATE and DISCARD mean the statements of the protocol too.
        for name in self.client.take_deallocated() {
            self.extended.close_statement(&name);
        }
        match tag {
            Tag::Empty => self.wire.replies.bare(b'I'),
            tag => self.wire.replies.command_complete(&tag.text(sent)),
        }
    }
}

/// Whether two results look the same to a client that was told the first.
pub(crate) fn same_columns(told: &SchemaRef, got: &SchemaRef) -> bool {
    told.fields().len() == got.fields().len() && told.fields().iter().zip(got.fields()).all(|(a, b)| a.data_type() == b.data_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_command_line() {
        let settings = command_line_settings(r"-c a=1 -cB-c=x\ y  --d=2 -e f");
        let expected = [("a", "1"), ("b_c", "x y"), ("d", "2")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(settings, expected);
    }
}
