//! Sessions over a store in memory, with a fake in the place of meta and actors: it writes what DML gives it into the table at once.

use crate::coordinator::Coordinator;
use crate::frontend::{Frontend, FrontendParts, Limits, Protocol, SessionOptions};
use crate::outcome::{Outcome, Severity};
use crate::session::{Session, TransactionStatus};
use arrow::array::{ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use eddyline_protocol::catalog::{Job, JobStatus};
use eddyline_protocol::control::{DmlChanges, DmlSink};
use eddyline_protocol::plan::NextIds;
use eddyline_protocol::{Catalog, FragmentGraph, Frontier, Frontiers, Relation};
use eddyline_serving::system::SystemState;
use eddyline_store::{Store, StoreConfig, TableWrite};
use eddyline_types::{Epoch, Error, JobId, ObjectId, Result, SqlState, TableId};
use futures::TryStreamExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Meta, actors and their clock in one.
struct Cluster {
    store: Store,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    catalog: Arc<Catalog>,
    frontiers: Arc<Frontiers>,
    next: NextIds,
    epoch: u64,
    row_id: i64,
}

impl State {
    fn advance(&mut self) -> Epoch {
        self.epoch += 1;
        let (epoch, catalog) = (Epoch(self.epoch), self.catalog.clone());
        let frontiers = Arc::make_mut(&mut self.frontiers);
        for job in catalog.jobs.keys() {
            let frontier = frontiers.jobs.entry(*job).or_default();
            *frontier = Frontier { collected: epoch, committed: epoch, ..*frontier };
        }
        epoch
    }
}

#[async_trait]
impl Coordinator for Cluster {
    fn catalog(&self) -> Arc<Catalog> {
        self.state.lock().catalog.clone()
    }

    fn frontiers(&self) -> Arc<Frontiers> {
        self.state.lock().frontiers.clone()
    }

    async fn create(&self, relation: Relation, graph: Option<FragmentGraph>) -> Result<ObjectId> {
        let mut state = self.state.lock();
        let id = ObjectId(state.catalog.relations.len() as u32 + 1);
        let (mut relation, before) = (relation, state.next);
        relation.id = id;
        relation.table = relation.table.map(|t| TableId(t.0 + before.table));
        let mut next =
            NextIds { fragment: before.fragment + 1, edge: before.edge + 1, operator: before.operator + 1, table: before.table + 1 };
        let mut catalog = (*state.catalog).clone();
        if let Some(mut graph) = graph {
            assert!(graph.renumber(id.into(), &mut next, |r| catalog.output_of(r)), "the graph reads known relations");
            graph.tables.iter().for_each(|t| self.store.register(t));
            catalog
                .jobs
                .insert(id.into(), Arc::new(Job { id: id.into(), status: JobStatus::Running, parallelism: 1, graph: Arc::new(graph) }));
        }
        state.next = NextIds { fragment: next.fragment - 1, edge: next.edge - 1, operator: next.operator - 1, table: next.table - 1 };
        catalog.relations.insert(id, Arc::new(relation));
        catalog.version += 1;
        state.catalog = Arc::new(catalog);
        state.advance();
        Ok(id)
    }

    async fn drop_relations(&self, relations: Vec<ObjectId>, _: bool) -> Result<()> {
        let mut state = self.state.lock();
        let catalog = Arc::make_mut(&mut state.catalog);
        relations.iter().for_each(|r| {
            catalog.relations.remove(r);
            catalog.jobs.remove(&JobId::from(*r));
        });
        catalog.version += 1;
        Ok(())
    }

    async fn create_schema(&self, _: &str) -> Result<()> {
        Err(Error::unsupported("no schemas here"))
    }

    async fn drop_schema(&self, _: &str) -> Result<()> {
        Err(Error::unsupported("no schemas here"))
    }

    async fn request_checkpoint(&self, _: JobId) -> Result<()> {
        Ok(())
    }

    async fn wait_collected(&self, _: JobId, _: Epoch) -> Result<()> {
        Ok(())
    }

    async fn wait_committed(&self, _: JobId, _: Epoch) -> Result<()> {
        Ok(())
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl DmlSink for Cluster {
    async fn write(&self, relation: ObjectId, changes: DmlChanges) -> Result<Epoch> {
        let mut state = self.state.lock();
        let catalog = state.catalog.clone();
        let relation = &catalog.relations[&relation];
        let desc = catalog.table(relation.table.expect("a table has rows")).expect("its description");
        let mut after: BTreeMap<Vec<u8>, (RecordBatch, bool)> = BTreeMap::new();
        let mut put = |batch: &RecordBatch, delete: bool| {
            let columns: Vec<ArrayRef> = desc.key_columns().iter().map(|c| batch.column(*c).clone()).collect();
            let keys = desc.key_codec().expect("a codec").encode(&columns, batch.num_rows()).expect("keys");
            for i in 0..batch.num_rows() {
                after.insert(keys.value(i).to_vec(), (batch.slice(i, 1), delete));
            }
        };
        for chunk in &changes.changes {
            let batch = RecordBatch::try_new(desc.schema.clone(), chunk.batch().columns().to_vec()).expect("stored rows");
            put(&batch, chunk.weight(0) < 0);
        }
        for chunk in &changes.inserts {
            let mut columns = chunk.batch().columns().to_vec();
            if let Some(position) = relation.columns.iter().position(|c| c.hidden) {
                let from = state.row_id;
                state.row_id += chunk.num_rows() as i64;
                columns.insert(position, Arc::new(Int64Array::from_iter_values(from..state.row_id)));
            }
            put(&RecordBatch::try_new(desc.schema.clone(), columns).expect("new rows"), false);
        }
        state.epoch += 1;
        let keys = BinaryArray::from_iter_values(after.keys());
        let tombstones = BooleanArray::from_iter(after.values().map(|(_, deleted)| Some(*deleted)));
        let rows = concat_batches(&desc.schema, after.values().map(|(row, _)| row))?;
        self.store.write(Epoch(state.epoch), TableWrite { table: desc.id, keys, rows, tombstones: Some(tombstones) })?;
        Ok(state.advance())
    }
}

struct Nothing;

impl SystemState for Nothing {}

async fn frontend() -> (Frontend, Arc<Cluster>) {
    let objects = eddyline_objects::Objects::open("memory://").expect("memory");
    let config =
        StoreConfig { block_size_bytes: 4096, block_cache_bytes: 1 << 20, shared_buffer_bytes: 64 << 20, ..StoreConfig::default() };
    let store = Store::open(objects, config, Arc::default()).await.expect("a store");
    let cluster = Arc::new(Cluster { store: store.clone(), state: Mutex::default() });
    let parts = FrontendParts {
        limits: Limits { max_sessions: 3, ..Limits::default() },
        coordinator: cluster.clone(),
        store,
        dml: cluster.clone(),
        system: Arc::new(Nothing),
    };
    (Frontend::new(parts).expect("a frontend"), cluster)
}

fn options() -> SessionOptions {
    SessionOptions { protocol: Protocol::Postgres, user: "root".into(), database: "dev".into(), peer: "here".into(), settings: Vec::new() }
}

async fn session() -> (Session, Arc<Cluster>) {
    let (frontend, cluster) = frontend().await;
    (frontend.open(options()).expect("a session"), cluster)
}

/// The rows as text: columns by `|`, rows by lines.
async fn shown(outcome: Outcome) -> Result<String> {
    let batches: Vec<RecordBatch> = outcome.rows.try_collect().await?;
    let options = FormatOptions::new().with_null("NULL");
    let mut lines = Vec::new();
    for batch in &batches {
        let columns: Vec<_> = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).expect("text")).collect();
        lines.extend((0..batch.num_rows()).map(|i| columns.iter().map(|c| c.value(i).to_string()).collect::<Vec<_>>().join("|")));
    }
    Ok(lines.join("\n"))
}

/// Runs all statements of a text; the last one's tag and rows.
async fn run(session: &mut Session, sql: &str) -> Result<(String, String)> {
    let mut last = (String::new(), String::new());
    for statement in session.parse(sql)? {
        let outcome = session.run(&statement).await?;
        let tag = outcome.tag.clone();
        let rows = shown(outcome).await?;
        last = (tag.text(if rows.is_empty() { 0 } else { rows.lines().count() as u64 }), rows);
    }
    Ok(last)
}

async fn ok(session: &mut Session, sql: &str) -> (String, String) {
    run(session, sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"))
}

async fn rows(session: &mut Session, sql: &str) -> String {
    ok(session, sql).await.1
}

async fn fails(session: &mut Session, sql: &str) -> Error {
    run(session, sql).await.expect_err(sql)
}

#[tokio::test]
async fn rows_are_inserted_changed_and_deleted() {
    let (mut s, _) = session().await;
    assert_eq!(ok(&mut s, "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, n INT DEFAULT 7)").await.0, "CREATE TABLE");
    assert_eq!(ok(&mut s, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)").await.0, "INSERT 0 2");
    assert_eq!(rows(&mut s, "INSERT INTO t (id, name) VALUES (3, 'c') RETURNING id, n + 1").await, "3|8");
    assert_eq!(rows(&mut s, "SELECT * FROM t ORDER BY id").await, "1|a|1\n2|b|2\n3|c|7");
    assert_eq!(ok(&mut s, "INSERT INTO t VALUES (1, 'z', 9)").await.0, "INSERT 0 1");
    assert_eq!(rows(&mut s, "SELECT name FROM t WHERE id = 1").await, "z", "an existing key is overwritten");
    assert_eq!(ok(&mut s, "UPDATE t SET n = n * 10 WHERE id > 1").await.0, "UPDATE 2");
    assert_eq!(rows(&mut s, "UPDATE t SET name = 'y' WHERE id = 2 RETURNING *").await, "2|y|20");
    assert_eq!(ok(&mut s, "DELETE FROM t WHERE n = 70").await.0, "DELETE 1");
    assert_eq!(rows(&mut s, "SELECT id, n FROM t ORDER BY 1").await, "1|9\n2|20");
    assert_eq!(fails(&mut s, "INSERT INTO t VALUES (NULL, 'x', 1)").await.sqlstate(), SqlState::NOT_NULL_VIOLATION);
    assert_eq!(fails(&mut s, "UPDATE t SET id = 1 WHERE id = 2").await.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(ok(&mut s, "UPDATE t SET id = 5 WHERE id = 2").await.0, "UPDATE 1");
    assert_eq!(rows(&mut s, "SELECT id FROM t ORDER BY 1").await, "1\n5");
    assert_eq!(ok(&mut s, "DROP TABLE t").await.0, "DROP TABLE");
    assert_eq!(fails(&mut s, "SELECT * FROM t").await.sqlstate(), SqlState::UNDEFINED_TABLE);
}

#[tokio::test]
async fn a_table_without_a_key_keeps_equal_rows_apart() {
    let (mut s, _) = session().await;
    ok(&mut s, "CREATE TABLE log (x INT, y VARCHAR); INSERT INTO log VALUES (1, 'a'), (1, 'a'), (2, 'b')").await;
    assert_eq!(rows(&mut s, "SELECT * FROM log ORDER BY x").await, "1|a\n1|a\n2|b");
    assert_eq!(ok(&mut s, "DELETE FROM log WHERE x = 1").await.0, "DELETE 2");
    assert_eq!(rows(&mut s, "SELECT count(*) FROM log").await, "1");
}

#[tokio::test]
async fn prepared_statements_follow_the_catalog() {
    let (mut s, _) = session().await;
    ok(&mut s, "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR); INSERT INTO t VALUES (42, 'x'), (43, 'y')").await;
    let statement = s.parse("SELECT v FROM t WHERE id = $1").expect("a statement").remove(0);
    let prepared = s.prepare(&statement, &[]).await.expect("bound");
    assert_eq!((prepared.parameters.as_slice(), prepared.kind()), (&[DataType::Int64][..], "lookup"));
    for (id, v) in [(42, "x"), (43, "y"), (44, "")] {
        let parameters: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![id]))];
        let outcome = s.execute(&prepared, &parameters).await.expect("rows");
        assert!(outcome.epoch.is_some());
        assert_eq!(shown(outcome).await.expect("rows"), v);
    }
    assert_eq!(s.execute(&prepared, &[]).await.err().map(|e| e.sqlstate()), Some(SqlState::PROTOCOL_VIOLATION));
    ok(&mut s, "CREATE TABLE other (id BIGINT)").await;
    let parameters: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![42]))];
    assert!(s.execute(&prepared, &parameters).await.is_ok(), "another relation changes nothing");
    ok(&mut s, "DROP TABLE t; CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)").await;
    let changed = s.execute(&prepared, &parameters).await.err().expect("v is no text any more");
    assert_eq!((changed.sqlstate(), changed.message()), (SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"));
}

#[tokio::test]
async fn sql_level_statements_and_cursors() {
    let (mut s, _) = session().await;
    ok(&mut s, "CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 10)").await;
    ok(&mut s, "PREPARE more AS SELECT id FROM t WHERE id > $1 ORDER BY id").await;
    assert_eq!(rows(&mut s, "EXECUTE more (8)").await, "9\n10");
    assert_eq!(fails(&mut s, "PREPARE more AS SELECT 1").await.sqlstate(), SqlState::DUPLICATE_PREPARED);
    ok(&mut s, "DEALLOCATE more").await;
    assert_eq!(fails(&mut s, "EXECUTE more (8)").await.sqlstate(), SqlState::INVALID_STATEMENT_NAME);
    assert_eq!(fails(&mut s, "DECLARE c CURSOR FOR SELECT id FROM t").await.sqlstate(), SqlState::NO_ACTIVE_TRANSACTION);
    ok(&mut s, "BEGIN; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id").await;
    assert_eq!(ok(&mut s, "FETCH 2 FROM c").await, ("FETCH 2".into(), "1\n2".into()));
    assert_eq!(rows(&mut s, "FETCH 3 FROM c").await, "3\n4\n5");
    ok(&mut s, "COMMIT").await;
    assert_eq!(fails(&mut s, "FETCH 1 FROM c").await.sqlstate(), SqlState::INVALID_CURSOR_NAME);
}

#[tokio::test]
async fn a_block_is_written_at_commit_or_not_at_all() {
    let (mut s, cluster) = session().await;
    ok(&mut s, "CREATE TABLE t (id BIGINT PRIMARY KEY, v INT); CREATE TABLE u (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1, 1)").await;
    let epoch = cluster.state.lock().epoch;
    ok(&mut s, "BEGIN; INSERT INTO t VALUES (2, 2); INSERT INTO t VALUES (2, 3), (3, 3)").await;
    assert_eq!(s.transaction_status(), TransactionStatus::Open);
    assert_eq!(cluster.state.lock().epoch, epoch, "nothing is written before COMMIT");
    assert_eq!(fails(&mut s, "SELECT * FROM t").await.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
    assert_eq!(s.transaction_status(), TransactionStatus::Failed);
    assert_eq!(fails(&mut s, "SELECT 1").await.sqlstate(), SqlState::IN_FAILED_TRANSACTION);
    assert_eq!(ok(&mut s, "COMMIT").await.0, "ROLLBACK");
    assert_eq!(rows(&mut s, "SELECT * FROM t").await, "1|1");

    ok(&mut s, "BEGIN; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (1, 9), (2, 2)").await;
    assert_eq!(fails(&mut s, "INSERT INTO u VALUES (1)").await.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
    ok(&mut s, "ROLLBACK; BEGIN; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (1, 9), (2, 2)").await;
    assert_eq!(ok(&mut s, "COMMIT").await.0, "COMMIT");
    assert_eq!(rows(&mut s, "SELECT * FROM t ORDER BY id").await, "1|9\n2|2");

    ok(&mut s, "BEGIN; INSERT INTO t VALUES (7, 7)").await;
    assert!(s.parse("SELEC 1").is_err());
    assert_eq!(s.transaction_status(), TransactionStatus::Failed, "a syntax error fails the block too");
    ok(&mut s, "ROLLBACK").await;
    assert_eq!(s.transaction_status(), TransactionStatus::Idle);
    assert_eq!(rows(&mut s, "SELECT count(*) FROM t").await, "2");
    ok(&mut s, "START TRANSACTION READ ONLY").await;
    assert_eq!(fails(&mut s, "DELETE FROM t").await.sqlstate(), SqlState::READ_ONLY_TRANSACTION);
}

#[tokio::test]
async fn variables_are_set_shown_and_reset() {
    let (mut s, _) = session().await;
    assert_eq!(rows(&mut s, "SHOW read_freshness").await, "latest");
    assert_eq!(ok(&mut s, "SET read_freshness = committed").await.0, "SET");
    assert_eq!(ok(&mut s, "SHOW read_freshness").await, ("SHOW".into(), "committed".into()));
    ok(&mut s, "RESET read_freshness").await;
    assert_eq!(rows(&mut s, "SHOW read_freshness").await, "latest");
    assert_eq!(fails(&mut s, "SHOW nonsense").await.sqlstate(), SqlState::UNDEFINED_OBJECT);
    assert!(rows(&mut s, "SHOW ALL").await.lines().any(|l| l.starts_with("search_path|\"$user\", public|")));
    let statement = s.parse("COMMIT").expect("a statement").remove(0);
    let outcome = s.run(&statement).await.expect("a warning only");
    assert_eq!((outcome.notices[0].severity, outcome.notices[0].sqlstate), (Severity::Warning, "25P01"));
    assert!(s.reported_variables().iter().any(|(name, value)| *name == "session_authorization" && value == "root"));
    assert!(rows(&mut s, "EXPLAIN SELECT 1").await.lines().count() > 0);
}

#[tokio::test]
async fn sessions_are_counted_listed_and_cancelled() {
    let (frontend, _) = frontend().await;
    let mut all: Vec<Session> = (0..3).map(|_| frontend.open(options()).expect("room")).collect();
    assert_eq!(frontend.open(options()).err().map(|e| e.sqlstate()), Some(SqlState::TOO_MANY_CONNECTIONS));
    assert_eq!(
        frontend.open(SessionOptions { database: "x".into(), ..options() }).err().map(|e| e.sqlstate()),
        Some(SqlState::INVALID_CATALOG_NAME)
    );
    assert_eq!(rows(&mut all[0], "SELECT count(*) FROM eddy_catalog.sessions").await, "3");
    let mut key = all[1].cancel_key();
    assert!(frontend.cancel(key));
    key.secret ^= 1;
    assert!(!frontend.cancel(key));
    assert_eq!(rows(&mut all[1], "SELECT 1").await, "1", "a cancel that comes too early hits nothing");
    all.clear();
    assert!(frontend.sessions().is_empty());
}

#[tokio::test]
async fn a_statement_ends_at_its_deadline() {
    let (mut s, _) = session().await;
    ok(&mut s, "SET statement_timeout = 50").await;
    let slow = "SELECT count(*) FROM generate_series(1, 100000000) a(x), generate_series(1, 1000) b(y) WHERE x + y < 0";
    let error =
        tokio::time::timeout(std::time::Duration::from_secs(20), run(&mut s, slow)).await.expect("it ends").expect_err("it is cancelled");
    assert_eq!((error.sqlstate(), error.message()), (SqlState::QUERY_CANCELED, "canceling statement due to statement timeout"));
    assert_eq!(rows(&mut s, "SELECT 1").await, "1");
}

#[tokio::test]
async fn a_reader_is_told_once_when_what_it_saw_was_rolled_back() {
    let (mut s, cluster) = session().await;
    ok(&mut s, "CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let set = |committed, generation| {
        let mut state = cluster.state.lock();
        let epoch = Epoch(state.epoch);
        for frontier in Arc::make_mut(&mut state.frontiers).jobs.values_mut() {
            *frontier = Frontier { collected: epoch, committed: Epoch(committed), generation };
        }
    };
    set(1, 0);
    assert_eq!(rows(&mut s, "SELECT * FROM t").await, "1");
    set(1, 1);
    assert_eq!(fails(&mut s, "SELECT * FROM t").await.sqlstate(), SqlState::SERIALIZATION_FAILURE);
    assert_eq!(rows(&mut s, "SELECT * FROM t").await, "1");
}

#[tokio::test]
async fn rows_come_in_without_sql_too() {
    let (mut s, _) = session().await;
    ok(&mut s, "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR DEFAULT 'none')").await;
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Utf8, true)]));
    let batch = RecordBatch::try_new(schema, vec![Arc::new(StringArray::from(vec!["1", "2"])) as ArrayRef]).expect("rows");
    let (count, epoch) = s.insert("t", &["id".into()], batch).await.expect("inserted");
    assert_eq!((count, epoch > Epoch::ZERO), (2, true));
    assert_eq!(rows(&mut s, "SELECT * FROM t ORDER BY 1").await, "1|none\n2|none");
    let copy = s.parse("COPY t (v, id) FROM STDIN").expect("a statement").remove(0);
    let outcome = s.run(&copy).await.expect("COPY starts");
    let copy = outcome.copy_in.expect("rows are asked for");
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, true), Field::new("id", DataType::Int64, true)]));
    let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec![Some("x"), None])), Arc::new(Int64Array::from(vec![3, 4]))];
    let batch = RecordBatch::try_new(schema, columns).expect("rows");
    assert_eq!(s.copy_in(&copy, batch).await.expect("copied").0, 2);
    assert_eq!(rows(&mut s, "SELECT v FROM t WHERE id > 2 ORDER BY id").await, "x\nNULL");
}

#[tokio::test]
async fn psql_and_drivers_are_answered() {
    let (mut s, _) = session().await;
    ok(&mut s, "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)").await;
    assert!(rows(&mut s, "SELECT version()").await.starts_with("PostgreSQL 15"));
    assert_eq!(rows(&mut s, "SELECT current_schema(), current_user, current_database()").await, "public|root|dev");
    assert_eq!(rows(&mut s, "SELECT relname, relkind FROM pg_catalog.pg_class WHERE relname = 't'").await, "t|r");
    assert_eq!(
        rows(&mut s, "SELECT column_name FROM information_schema.columns WHERE table_name = 't' ORDER BY ordinal_position").await,
        "id\nv"
    );
    assert_eq!(rows(&mut s, "SELECT name, kind FROM eddy_catalog.jobs").await, "t|table");
    let statement = s.parse("SELECT oid::bigint FROM pg_class WHERE relname = $1").expect("a statement").remove(0);
    let prepared = s.prepare(&statement, &[]).await.expect("bound");
    let parameters: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec!["t"]))];
    assert_eq!(shown(s.execute(&prepared, &parameters).await.expect("rows")).await.expect("rows"), "16385");
}
