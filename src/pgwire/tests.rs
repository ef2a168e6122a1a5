//! Real clients against a server whose engine is a fake: the protocol is tested without any SQL.

use crate::client::{Bound, Client, Engine};
use crate::server::{Server, serve};
use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use eddyline_env::{clock, random, spawn};
use eddyline_session::{CancelKey, CopyIn, CopyOptions, Notice, Outcome, SessionOptions, Tag, TransactionStatus};
use eddyline_types::sql_types::parse_name;
use eddyline_types::{Error, ErrorKind, ObjectId, Result, SqlState};
use futures::{SinkExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Understands: `rows N`, `echo TYPE...`, `fail`, `fail after N`, `sleep`, `begin`, `commit`, `notice`, `set`, `copyin`, `copyout N`, nothing else.
#[derive(Clone, Default)]
struct Fake(Arc<Shared>);

#[derive(Default)]
struct Shared {
    next: AtomicI32,
    cancels: Mutex<HashMap<i32, Arc<Notify>>>,
    streams_dropped: AtomicUsize,
    stopped: AtomicBool,
    opened: Mutex<Vec<SessionOptions>>,
    max_sessions: AtomicUsize,
    copied: Mutex<Vec<RecordBatch>>,
}

struct FakeClient {
    shared: Arc<Shared>,
    id: i32,
    cancel: Arc<Notify>,
    status: TransactionStatus,
    reports: Vec<(&'static str, String)>,
    prepared: Vec<String>,
    deallocated: Vec<String>,
}

struct FakePrepared {
    words: Vec<String>,
    parameters: Vec<DataType>,
    result: Option<SchemaRef>,
}

impl Bound for FakePrepared {
    fn parameters(&self) -> &[DataType] {
        &self.parameters
    }

    fn result(&self) -> Option<&SchemaRef> {
        self.result.as_ref()
    }
}

impl Engine for Fake {
    type Client = FakeClient;

    fn open(&self, options: SessionOptions) -> Result<FakeClient> {
        if options.database != "dev" {
            return Err(Error::user(SqlState::INVALID_CATALOG_NAME, format!("database \"{}\" does not exist", options.database)));
        }
        self.0.opened.lock().push(options);
        let id = self.0.next.fetch_add(1, Ordering::Relaxed) + 1;
        let cancel = Arc::new(Notify::new());
        self.0.cancels.lock().insert(id, cancel.clone());
        let reports = vec![("server_version", "15.0".to_owned()), ("client_encoding", "UTF8".to_owned())];
        Ok(FakeClient {
            shared: self.0.clone(),
            id,
            cancel,
            status: TransactionStatus::Idle,
            reports,
            prepared: vec![],
            deallocated: vec![],
        })
    }

    fn cancel(&self, key: CancelKey) {
        if let Some(notify) = self.0.cancels.lock().get(&key.process_id).filter(|_| key.secret == 7) {
            notify.notify_one();
        }
    }

    fn shutdown(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
        self.0.cancels.lock().values().for_each(|n| n.notify_one());
    }

    fn max_sessions(&self) -> usize {
        match self.0.max_sessions.load(Ordering::Relaxed) {
            0 => 100,
            n => n - 1,
        }
    }
}

fn lines() -> CopyOptions {
    CopyOptions { csv: true, header: false, delimiter: ',', null: String::new(), quote: '"', escape: '"' }
}

struct CountDrop(Arc<Shared>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.streams_dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn schema(types: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(
        types.iter().enumerate().map(|(i, t)| Field::new(format!("c{i}"), parse_name(t).unwrap(), true)).collect::<Vec<_>>(),
    ))
}

fn numbered(from: usize, count: usize) -> RecordBatch {
    let ids = Int64Array::from_iter_values((from..from + count).map(|i| i as i64));
    let names = StringArray::from_iter((from..from + count).map(|i| (i % 10 != 0).then(|| format!("name {i}"))));
    RecordBatch::try_new(schema(&["int8", "text"]), vec![Arc::new(ids), Arc::new(names)]).unwrap()
}

impl Client for FakeClient {
    type Statement = String;
    type Prepared = FakePrepared;

    fn cancel_key(&self) -> CancelKey {
        CancelKey { process_id: self.id, secret: 7 }
    }

    fn transaction_status(&self) -> TransactionStatus {
        self.status
    }

    fn statement_failed(&mut self) {
        if self.status != TransactionStatus::Idle {
            self.status = TransactionStatus::Failed;
        }
    }

    fn reported_variables(&mut self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.reports)
    }

    fn parse(&self, sql: &str) -> Result<Vec<String>> {
        if sql.contains("syntax") {
            return Err(Error::user(SqlState::SYNTAX_ERROR, "syntax error at or near \"syntax\"").with_position(3));
        }
        Ok(sql.split(';').map(|s| s.trim().to_lowercase()).filter(|s| !s.is_empty()).collect())
    }

    async fn prepare(&mut self, statement: &String, hints: &[Option<DataType>]) -> Result<Arc<FakePrepared>> {
        let words: Vec<String> = statement.split_whitespace().map(str::to_owned).collect();
        let echoed: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let (parameters, result) = match words[0].as_str() {
            "rows" => (vec![], Some(schema(&["int8", "text"]))),
            "echo" => (echoed.iter().map(|t| parse_name(t).unwrap()).collect(), Some(schema(&echoed))),
            "hinted" => (hints.iter().map(|h| h.clone().unwrap_or(DataType::Utf8)).collect(), None),
            "fail" if words.len() > 1 => (vec![], Some(schema(&["int8", "text"]))),
            _ => (vec![], None),
        };
        Ok(Arc::new(FakePrepared { words, parameters, result }))
    }

    async fn execute(&mut self, prepared: &FakePrepared, parameters: &[ArrayRef]) -> Result<Outcome> {
        let count: usize = prepared.words.last().and_then(|w| w.parse().ok()).unwrap_or(0);
        let rows = move |shared: Arc<Shared>| {
            let guard = CountDrop(shared);
            stream::iter((0..count).step_by(100).map(move |from| {
                let _ = &guard;
                Ok(numbered(from, 100.min(count - from)))
            }))
        };
        Ok(match prepared.words[0].as_str() {
            "rows" => Outcome::rows(Tag::Rows("SELECT"), schema(&["int8", "text"]), rows(self.shared.clone()).boxed()),
            "echo" => {
                let schema = prepared.result.clone().unwrap();
                let batch = RecordBatch::try_new(schema.clone(), parameters.to_vec())?;
                Outcome::rows(Tag::Rows("SELECT"), schema, stream::iter([Ok(batch)]).boxed())
            }
            "fail" if count > 0 => {
                let failure = stream::iter([Err(Error::user(SqlState::DIVISION_BY_ZERO, "division by zero"))]);
                Outcome::rows(Tag::Rows("SELECT"), schema(&["int8", "text"]), rows(self.shared.clone()).chain(failure).boxed())
            }
            "fail" => {
                if self.status == TransactionStatus::Open {
                    self.status = TransactionStatus::Failed;
                }
                let error = Error::user(SqlState::UNDEFINED_TABLE, "relation \"x\" does not exist");
                return Err(error.with_detail("facts").with_hint("advice").with_position(15));
            }
            "sleep" => {
                self.cancel.notified().await;
                if self.shared.stopped.load(Ordering::Relaxed) {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        SqlState::ADMIN_SHUTDOWN,
                        "terminating connection due to administrator command",
                    ));
                }
                return Err(Error::cancelled("canceling statement due to user request"));
            }
            "begin" => {
                self.status = TransactionStatus::Open;
                Outcome::done(Tag::Plain("BEGIN".into()))
            }
            "commit" | "rollback" => {
                self.status = TransactionStatus::Idle;
                Outcome::done(Tag::Plain(prepared.words[0].to_uppercase()))
            }
            "notice" => {
                let mut outcome = Outcome::done(Tag::Plain("CREATE TABLE".into()));
                outcome.notices.push(Notice::notice("relation \"t\" already exists, skipping"));
                outcome
            }
            "deallocate" => {
                self.deallocated = std::mem::take(&mut self.prepared);
                Outcome::done(Tag::Plain("DEALLOCATE ALL".into()))
            }
            "set" => {
                self.reports.push(("TimeZone", "UTC".into()));
                Outcome::done(Tag::Plain("SET".into()))
            }
            "copyin" => {
                let mut outcome = Outcome::done(Tag::Affected("COPY", 0));
                outcome.copy_in = Some(Box::new(CopyIn { relation: ObjectId(1), columns: vec![0, 1], exprs: vec![], options: lines() }));
                outcome
            }
            "copyout" => {
                let mut outcome = Outcome::rows(Tag::Rows("COPY"), schema(&["int8", "text"]), rows(self.shared.clone()).boxed());
                outcome.copy_out = Some(lines());
                outcome
            }
            "insert" => Outcome::done(Tag::Affected("INSERT", count as u64)),
            "hinted" => Outcome::done(Tag::Plain("HINTED".into())),
            other => return Err(Error::unsupported(format!("unknown statement {other}"))),
        })
    }

    fn cursor_schema(&self, name: &str) -> Option<SchemaRef> {
        (name == "declared").then(|| schema(&["int8"]))
    }

    fn note_wire_statement(&mut self, name: &str, prepared: bool) {
        self.prepared.retain(|n| n != name);
        if prepared {
            self.prepared.push(name.to_owned());
        }
    }

    fn take_deallocated(&mut self) -> Vec<String> {
        std::mem::take(&mut self.deallocated)
    }

    fn copy_columns(&self, _: &CopyIn) -> Result<Vec<(String, DataType)>> {
        Ok(vec![("a".into(), DataType::Int64), ("b".into(), DataType::Utf8)])
    }

    async fn copy_in(&mut self, _: &CopyIn, rows: RecordBatch) -> Result<u64> {
        self.shared.copied.lock().push(rows.clone());
        Ok(rows.num_rows() as u64)
    }
}

struct Running {
    fake: Fake,
    server: Server,
    stop: Arc<Notify>,
}

async fn start(fake: Fake) -> Running {
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    let server = serve("127.0.0.1:0", fake.clone(), async move { stopped.notified().await }).await.unwrap();
    Running { fake, server, stop }
}

async fn connect(address: SocketAddr) -> tokio_postgres::Client {
    let config = format!("host={} port={} user=root dbname=dev", address.ip(), address.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    spawn::task("client", async move {
        let _ = connection.await;
    });
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn simple_queries_send_rows_tags_and_errors() {
    let running = start(Fake::default()).await;
    let client = connect(running.server.address()).await;
    let messages = client.simple_query("rows 250; insert 3; notice").await.unwrap();
    let rows: Vec<_> = messages.iter().filter_map(|m| if let SimpleQueryMessage::Row(r) = m { Some(r) } else { None }).collect();
    assert_eq!((rows.len(), rows[249].get(0), rows[249].get(1), rows[240].get(1)), (250, Some("249"), Some("name 249"), None));
    let counts: Vec<u64> =
        messages.iter().filter_map(|m| if let SimpleQueryMessage::CommandComplete(n) = m { Some(*n) } else { None }).collect();
    assert_eq!(counts, [250, 3, 0]);
    let error = client.simple_query("rows 1; fail; rows 1").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.severity(), error.code().code(), error.message()), ("ERROR", "42P01", "relation \"x\" does not exist"));
    assert_eq!((error.detail(), error.hint()), (Some("facts"), Some("advice")));
    assert_eq!(error.position(), Some(&tokio_postgres::error::ErrorPosition::Original(15)));
    let error = client.simple_query("a syntax").await.unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "42601");
    // An error in the middle of rows ends the statement, not the connection.
    assert_eq!(client.simple_query("fail after 150").await.unwrap_err().as_db_error().unwrap().code().code(), "22012");
    assert!(client.simple_query(" ; ").await.unwrap().iter().all(|m| !matches!(m, SimpleQueryMessage::Row(_))));
    let options = running.fake.0.opened.lock()[0].clone();
    assert_eq!((options.user.as_str(), options.database.as_str()), ("root", "dev"));
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_and_results_of_all_types_go_in_binary() {
    let running = start(Fake::default()).await;
    let client = connect(running.server.address()).await;
    let statement = client.prepare("echo bool int2 int4 int8 float4 float8 text bytea timestamp timestamptz date time").await.unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_micros(1_234_567_890_123_456);
    let bytes = vec![0u8, 255];
    let null: Option<i32> = None;
    let row = client
        .query_one(&statement, &[&true, &-2i16, &null, &i64::MIN, &1.5f32, &-0.1f64, &"grüße", &bytes, &time, &time, &NoDate, &NoDate])
        .await
        .unwrap();
    assert!(row.get::<_, bool>(0));
    assert_eq!((row.get::<_, i16>(1), row.get::<_, Option<i32>>(2), row.get::<_, i64>(3)), (-2, None, i64::MIN));
    assert_eq!((row.get::<_, f32>(4), row.get::<_, f64>(5), row.get::<_, &str>(6)), (1.5, -0.1, "grüße"));
    assert_eq!(
        (row.get::<_, Vec<u8>>(7), row.get::<_, std::time::SystemTime>(8), row.get::<_, std::time::SystemTime>(9)),
        (bytes, time, time)
    );
    let statement = client.prepare("echo int4[] text[]").await.unwrap();
    let row = client.query_one(&statement, &[&vec![Some(1), None], &vec!["a", "b c"]]).await.unwrap();
    assert_eq!(
        (row.get::<_, Vec<Option<i32>>>(0), row.get::<_, Vec<String>>(1)),
        (vec![Some(1), None], vec!["a".to_owned(), "b c".to_owned()])
    );
    // Declared types reach the session as hints.
    let statement = client.prepare_typed("hinted", &[tokio_postgres::types::Type::INT4]).await.unwrap();
    assert_eq!(statement.params(), [tokio_postgres::types::Type::INT4]);
    assert_eq!(client.execute(&statement, &[&1i32]).await.unwrap(), 0);
    assert_eq!(client.execute("insert 5", &[]).await.unwrap(), 5);
}

/// Sends NULL for a type that the client library knows only with extra features.
#[derive(Debug)]
struct NoDate;

impl tokio_postgres::types::ToSql for NoDate {
    fn to_sql(
        &self,
        _: &tokio_postgres::types::Type,
        _: &mut bytes::BytesMut,
    ) -> std::result::Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        Ok(tokio_postgres::types::IsNull::Yes)
    }

    fn accepts(_: &tokio_postgres::types::Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_are_suspended_and_go_on() {
    let running = start(Fake::default()).await;
    let mut raw = Raw::connect(running.server.address()).await;
    raw.send(b'Q', b"begin\0").await;
    raw.until(b'Z').await;
    raw.send(b'P', b"s\0rows 250\0\0\0").await;
    raw.send(b'B', b"p\0s\0\0\0\0\0\0\0").await;
    raw.send(b'E', b"p\0\0\0\0\x78").await;
    raw.send(b'S', b"").await;
    let kinds = raw.until(b'Z').await;
    assert_eq!((kinds.iter().filter(|k| **k == b'D').count(), &kinds[..2], &kinds[kinds.len() - 2..]), (120, &b"12"[..], &b"sZ"[..]));
    raw.send(b'E', b"p\0\0\0\0\x78").await;
    raw.send(b'E', b"p\0\0\0\0\x78").await;
    raw.send(b'E', b"p\0\0\0\0\x78").await;
    raw.send(b'S', b"").await;
    let kinds = raw.until(b'Z').await;
    assert_eq!(kinds.iter().filter(|k| **k == b'D').count(), 130);
    assert_eq!(kinds.iter().filter(|k| **k != b'D').collect::<Vec<_>>(), [&b's', &b'C', &b'C', &b'Z']);
    // The portal ends with its transaction.
    raw.send(b'Q', b"commit\0").await;
    raw.until(b'Z').await;
    raw.send(b'S', b"").await;
    raw.until(b'Z').await;
    raw.send(b'E', b"p\0\0\0\0\0").await;
    raw.send(b'E', b"p\0\0\0\0\0").await;
    raw.send(b'S', b"").await;
    assert_eq!(raw.until(b'Z').await, b"EZ", "an error is followed by nothing up to Sync");
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_goes_in_and_out() {
    let running = start(Fake::default()).await;
    let client = connect(running.server.address()).await;
    let sink = client.copy_in("copyin").await.unwrap();
    futures::pin_mut!(sink);
    sink.send(bytes::Bytes::from_static(b"1,one\n2,\"tw")).await.unwrap();
    sink.send(bytes::Bytes::from_static(b"o\"\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 2);
    let batch = running.fake.0.copied.lock()[0].clone();
    assert_eq!(batch.column(1).as_string::<i32>().value(1), "two");
    let out: Vec<bytes::Bytes> = client.copy_out("copyout 250").await.unwrap().try_collect().await.unwrap();
    assert_eq!((out.len(), &out[0][..], &out[249][..]), (250, &b"0,\n"[..], &b"249,name 249\n"[..]));
    // An error ends the COPY; the rest of what the client sends is skipped.
    let sink = client.copy_in("copyin").await.unwrap();
    futures::pin_mut!(sink);
    sink.send(bytes::Bytes::from_static(b"x,one\n")).await.unwrap();
    let error = sink.finish().await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.detail()), ("22P02", Some("COPY, line 1, column a: \"x\"")));
    // A client may give up.
    drop(client.copy_in::<_, bytes::Bytes>("copyin").await.unwrap());
    assert_eq!(client.simple_query("rows 1").await.unwrap().len(), 3);
    let mut raw = Raw::connect(running.server.address()).await;
    for (end, expected) in [((b'f', &b"no more\0"[..]), "57014"), ((b'c', b""), "GCZ"), ((b'Q', b"rows 1\0"), "08P01")] {
        raw.send(b'Q', b"copyin\0").await;
        raw.send(b'd', b"1,a\n").await;
        raw.send(end.0, end.1).await;
        let (kinds, code) = raw.answer().await;
        assert_eq!(code.unwrap_or(String::from_utf8(kinds).unwrap()), expected);
    }
    assert_eq!(running.fake.0.copied.lock().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_checked() {
    let running = start(Fake::default()).await;
    let mut raw = Raw::connect(running.server.address()).await;
    for (message, expected) in [
        ((b'P', &b"s\0rows 1\0\0\0"[..]), "1Z"),
        ((b'P', b"s\0rows 1\0\0\0"), "42P05"),
        ((b'P', b"\0rows 1; rows 2\0\0\0"), "42601"),
        ((b'P', b"\0 \0\0\0"), "1Z"),
        ((b'B', b"\0\0\0\0\0\0\0\0"), "2Z"),
        ((b'B', b"\0gone\0\0\0\0\0\0\0"), "26000"),
        ((b'B', b"\0s\0\0\0\0\x01\0\0\0\x01a\0\0"), "08P01"),
        ((b'E', b"gone\0\0\0\0\0"), "34000"),
        ((b'D', b"Sgone\0"), "26000"),
        ((b'D', b"Ss\0"), "tTZ"),
        ((b'D', b"X\0"), "08P01"),
        ((b'D', b"Pdeclared\0"), "TZ"),
        ((b'P', b"other\0rows 1\0\0\0"), "1Z"),
        ((b'Q', b"deallocate\0"), "CZ"),
        ((b'D', b"Sother\0"), "26000"),
        ((b'P', b"s\0rows 1\0\0\0"), "1Z"),
        ((b'C', b"Sgone\0"), "3Z"),
        ((b'C', b"Ss\0"), "3Z"),
        ((b'D', b"Ss\0"), "26000"),
        ((b'F', b""), "0A000"),
    ] {
        raw.send(message.0, message.1).await;
        if message.0 != b'Q' {
            raw.send(b'S', b"").await;
        }
        let (kinds, code) = raw.answer().await;
        assert_eq!(code.unwrap_or(String::from_utf8(kinds).unwrap()), expected, "{message:?}");
    }
    // A simple query is always answered with ReadyForQuery.
    raw.send(b'Q', b"\xff\0").await;
    assert_eq!(raw.answer().await, (b"EZ".to_vec(), Some("22021".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_cancelled_by_its_key_only() {
    let running = start(Fake::default()).await;
    let client = Arc::new(connect(running.server.address()).await);
    let token = client.cancel_token();
    let sleeper = client.clone();
    let query = spawn::task("sleep", async move { sleeper.simple_query("sleep").await });
    clock::sleep(Duration::from_millis(50)).await;
    // A wrong secret does nothing.
    let mut stranger = TcpStream::connect(running.server.address()).await.unwrap();
    stranger.write_all(&[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 8]).await.unwrap();
    clock::sleep(Duration::from_millis(50)).await;
    assert!(!query.is_finished());
    token.cancel_query(NoTls).await.unwrap();
    let error = query.await.unwrap().unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "57014");
    client.simple_query("rows 1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_its_query() {
    let running = start(Fake::default()).await;
    // In the middle of a statement that never ends.
    let mut raw = Raw::connect(running.server.address()).await;
    raw.send(b'Q', b"sleep\0").await;
    clock::sleep(Duration::from_millis(50)).await;
    drop(raw);
    // In the middle of more rows than the sockets' buffers hold.
    let mut raw = Raw::connect(running.server.address()).await;
    raw.send(b'Q', b"rows 5000000\0").await;
    let mut some = [0; 1000];
    raw.stream.read_exact(&mut some).await.unwrap();
    assert_eq!(running.fake.0.streams_dropped.load(Ordering::Relaxed), 0);
    drop(raw);
    let dropped = async {
        while running.fake.0.streams_dropped.load(Ordering::Relaxed) == 0 {
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    clock::timeout(Duration::from_secs(10), dropped).await.expect("the query ends with its client");
    // Both connections are gone, so shutdown has nothing to wait for.
    running.stop.notify_one();
    clock::timeout(Duration::from_secs(4), running.server.join()).await.expect("no connection is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_tells_idle_and_busy_clients() {
    let running = start(Fake::default()).await;
    let mut idle = Raw::connect(running.server.address()).await;
    let busy = connect(running.server.address()).await;
    let query = spawn::task("sleep", async move { busy.simple_query("sleep").await });
    clock::sleep(Duration::from_millis(50)).await;
    running.stop.notify_one();
    assert_eq!(idle.answer().await.1.as_deref(), Some("57P01"));
    let error = query.await.unwrap().unwrap_err();
    assert_eq!(error.as_db_error().map(|e| e.code().code().to_owned()).as_deref(), Some("57P01"));
    clock::timeout(Duration::from_secs(4), running.server.join()).await.expect("ends in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded_and_start_up_errors_are_fatal() {
    let fake = Fake::default();
    fake.0.max_sessions.store(1, Ordering::Relaxed);
    let running = start(fake).await;
    let address = running.server.address();
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(TcpStream::connect(address).await.unwrap());
    }
    clock::sleep(Duration::from_millis(50)).await;
    let mut one_more = Raw { stream: TcpStream::connect(address).await.unwrap() };
    assert_eq!(one_more.answer().await.1.as_deref(), Some("53300"));
    drop(open);
    clock::sleep(Duration::from_millis(100)).await;
    let config = format!("host={} port={} user=root dbname=other", address.ip(), address.port());
    let error = tokio_postgres::connect(&config, NoTls).await.err().unwrap();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.severity(), error.code().code()), ("FATAL", "3D000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_ends_the_connection_and_nothing_else() {
    let running = start(Fake::default()).await;
    let seed = random::next_u64();
    let mut rng = random::seeded(seed);
    for round in 0..300 {
        let mut bytes: Vec<u8> = (0..rng.random_range(0..300)).map(|_| rng.random()).collect();
        if rng.random() {
            // Into the message loop, with a type that exists.
            let mut raw = Raw::connect(running.server.address()).await;
            if let Some(first) = bytes.first_mut() {
                *first = b"QPBDCESHXdcfFp"[rng.random_range(0..14)];
            }
            if rng.random() && bytes.len() > 5 {
                let length = bytes.len() as u32 - 1;
                bytes[1..5].copy_from_slice(&length.to_be_bytes());
            }
            let _ = raw.stream.write_all(&bytes).await;
        } else {
            let mut stream = TcpStream::connect(running.server.address()).await.unwrap();
            let _ = stream.write_all(&bytes).await;
        }
        if round % 50 == 0 {
            let client = connect(running.server.address()).await;
            assert_eq!(client.simple_query("rows 2").await.unwrap().len(), 4, "seed {seed}");
        }
    }
    // A panic in a connection would show as a lost session of the well-behaved client.
    let client = connect(running.server.address()).await;
    client.simple_query("rows 1").await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    running.stop.notify_one();
    clock::timeout(Duration::from_secs(4), running.server.join()).await.unwrap_or_else(|| panic!("seed {seed}: a connection hangs"));
}

/// A client that speaks in frames.
struct Raw {
    stream: TcpStream,
}

impl Raw {
    async fn connect(address: SocketAddr) -> Self {
        let mut raw = Raw { stream: TcpStream::connect(address).await.unwrap() };
        // First asks for TLS, as psql does.
        raw.stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.unwrap();
        assert_eq!(raw.stream.read_u8().await.unwrap(), b'N');
        raw.stream.write_all(b"\0\0\0\x13\0\x03\0\0user\0root\0\0").await.unwrap();
        let greeting = raw.until(b'Z').await;
        assert_eq!(greeting, b"RSSKZ");
        raw
    }

    async fn send(&mut self, kind: u8, body: &[u8]) {
        let mut frame = vec![kind];
        frame.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        frame.extend_from_slice(body);
        self.stream.write_all(&frame).await.unwrap();
    }

    /// The kinds of the messages up to the given one.
    async fn until(&mut self, last: u8) -> Vec<u8> {
        let mut kinds = Vec::new();
        while kinds.last() != Some(&last) {
            let (kind, _) = self.message().await.expect("the server ended the connection");
            kinds.push(kind);
        }
        kinds
    }

    /// The kinds up to ReadyForQuery or the end, and the SQLSTATE of the first error.
    async fn answer(&mut self) -> (Vec<u8>, Option<String>) {
        let (mut kinds, mut code) = (Vec::new(), None);
        while let Some((kind, body)) = self.message().await {
            kinds.push(kind);
            if kind == b'E' && code.is_none() {
                code = body.split(|b| *b == 0).find_map(|f| f.strip_prefix(b"C")).map(|c| String::from_utf8(c.to_vec()).unwrap());
            }
            if kind == b'Z' {
                break;
            }
        }
        (kinds, code)
    }

    async fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let kind = self.stream.read_u8().await.ok()?;
            let length = self.stream.read_u32().await.ok()?;
            let mut body = vec![0; length as usize - 4];
            self.stream.read_exact(&mut body).await.ok()?;
            Some((kind, body))
        };
        clock::timeout(Duration::from_secs(10), read).await.expect("the server answers")
    }
}
