//! A small world for this crate's tests: a store in memory, a catalog and frontiers that a test sets, and queries built without SQL.

use crate::cancel::Cancel;
use crate::engine::{Serving, ServingConfig};
use crate::lookup::PointRead;
use crate::pin::{ClusterView, Freshness, ReadPoint};
use crate::query::QueryRun;
use crate::system::{SystemQuery, SystemState};
use arrow::array::{ArrayRef, AsArray, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::util::pretty::pretty_format_batches;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, col, lit};
use datafusion::scalar::ScalarValue;
use eddyline_expr::bound::{BoundQuery, RelationSource};
use eddyline_protocol::catalog::{Job, JobStatus};
use eddyline_protocol::table::KeyColumn;
use eddyline_protocol::{Catalog, ColumnDef, FragmentGraph, Frontier, Frontiers, Relation, RelationKind, TableDesc};
use eddyline_store::{Store, StoreConfig, TableWrite};
use eddyline_types::{Epoch, JobId, ObjectId, Result, SqlState, TableId};
use futures::TryStreamExt;
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What meta would publish.
#[derive(Default)]
struct View {
    catalog: Mutex<Arc<Catalog>>,
    frontiers: Mutex<Arc<Frontiers>>,
}

impl ClusterView for View {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.lock().clone()
    }

    fn frontiers(&self) -> Arc<Frontiers> {
        self.frontiers.lock().clone()
    }
}

struct Nobody;

impl SystemState for Nobody {}

struct World {
    store: Store,
    view: Arc<View>,
    serving: Serving,
}

/// `t (k bigint, s varchar, v bigint)` with key (k, s), distributed by k; or without a key, with weights.
fn relation(id: u32, name: &str, kind: RelationKind, keyed: bool) -> (Relation, TableDesc) {
    let mut columns = vec![ColumnDef::new("k", DataType::Int64), ColumnDef::new("s", DataType::Utf8), ColumnDef::new("v", DataType::Int64)];
    columns[0].nullable = !keyed;
    columns[1].nullable = !keyed;
    columns[2].default = Some("7".into());
    let mut fields: Vec<Field> = columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable)).collect();
    let key = if keyed { vec![0, 1] } else { vec![0, 1, 2] };
    if !keyed {
        fields.push(Field::new("_weight", DataType::Int64, false));
    }
    let desc = TableDesc {
        id: TableId(id),
        job: JobId(id),
        name: name.into(),
        schema: Arc::new(Schema::new(fields)),
        key: key.iter().map(|c| KeyColumn::ascending(*c)).collect(),
        distribution: 1,
    };
    let relation = Relation {
        id: ObjectId(id),
        schema_name: "public".into(),
        name: name.into(),
        kind,
        columns,
        key: if keyed { key } else { Vec::new() },
        append_only: false,
        spec: None,
        definition: format!("CREATE {name}"),
        query: (kind == RelationKind::MaterializedView).then(|| "SELECT 1".into()),
        depends_on: Vec::new(),
        table: Some(TableId(id)),
        owner: "root".into(),
        created_ms: 1,
    };
    (relation, desc)
}

impl World {
    async fn new() -> World {
        let objects = eddyline_objects::Objects::open("memory://").expect("memory");
        let config =
            StoreConfig { block_size_bytes: 4096, block_cache_bytes: 1 << 20, shared_buffer_bytes: 64 << 20, ..StoreConfig::default() };
        let store = Store::open(objects, config, Arc::default()).await.expect("a store");
        let view = Arc::new(View::default());
        let serving = Serving::new(store.clone(), view.clone(), Arc::new(Nobody), ServingConfig::default()).expect("an engine");
        let world = World { store, view, serving };
        world.create(relation(1, "t", RelationKind::Table, true));
        world.create(relation(2, "bag", RelationKind::MaterializedView, false));
        world
    }

    fn create(&self, (relation, desc): (Relation, TableDesc)) {
        self.store.register(&desc);
        let mut catalog = self.view.catalog.lock();
        let catalog = Arc::make_mut(&mut catalog);
        let graph = FragmentGraph {
            fragments: vec![],
            edges: vec![],
            tables: vec![desc],
            output: None,
            errors_table: TableId(1000 + relation.id.0),
        };
        let errors = TableDesc {
            id: graph.errors_table,
            job: relation.id.into(),
            name: "errors".into(),
            schema: eddyline_protocol::report::errors_schema(),
            key: eddyline_protocol::report::ERRORS_KEY.iter().map(|c| KeyColumn::ascending(*c)).collect(),
            distribution: 0,
        };
        self.store.register(&errors);
        let job = Job { id: relation.id.into(), status: JobStatus::Running, parallelism: 1, graph: Arc::new(graph) };
        catalog.jobs.insert(job.id, Arc::new(job));
        catalog.relations.insert(relation.id, Arc::new(relation));
        catalog.version += 1;
    }

    fn desc(&self, id: u32) -> TableDesc {
        self.view.catalog().table(TableId(id)).expect("the table").clone()
    }

    /// Writes rows at an epoch; `deleted` rows are tombstones.
    fn write(&self, id: u32, epoch: u64, columns: Vec<ArrayRef>, deleted: &[bool]) {
        let desc = self.desc(id);
        let rows = RecordBatch::try_new(desc.schema.clone(), columns).expect("rows");
        let key: Vec<ArrayRef> = desc.key_columns().iter().map(|c| rows.column(*c).clone()).collect();
        let keys = desc.key_codec().expect("a codec").encode(&key, rows.num_rows()).expect("keys");
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        order.sort_by(|a, b| keys.value(*a as usize).cmp(keys.value(*b as usize)));
        let sorted = BinaryArray::from_iter_values(order.iter().map(|i| keys.value(*i as usize)));
        let tombstones = (!deleted.is_empty()).then(|| BooleanArray::from_iter(order.iter().map(|i| Some(deleted[*i as usize]))));
        let rows = arrow::compute::take_record_batch(&rows, &arrow::array::UInt32Array::from(order)).expect("rows");
        self.store.write(Epoch(epoch), TableWrite { table: desc.id, keys: sorted, rows, tombstones }).expect("a write");
    }

    fn set(&self, id: u32, rows: &[(i64, &str, i64)], epoch: u64) {
        self.write(id, epoch, columns(rows), &[]);
    }

    fn frontier(&self, collected: u64, committed: u64, generation: u64) {
        let frontier = Frontier { collected: Epoch(collected), committed: Epoch(committed), generation };
        let jobs: BTreeMap<JobId, Frontier> = [1, 2].map(|j| (JobId(j), frontier)).into();
        *self.view.frontiers.lock() = Arc::new(Frontiers { jobs });
    }

    fn pin(&self) -> ReadPoint {
        self.serving.pin(&[ObjectId(1), ObjectId(2)], Freshness::Latest).expect("a read point")
    }

    async fn rows(&self, plan: LogicalPlan) -> Result<Vec<RecordBatch>> {
        let output = Arc::new(plan.schema().as_arrow().clone());
        let query = BoundQuery { plan, output };
        let run = QueryRun { query: &query, parameters: &[], cancel: &Cancel::default() };
        self.serving.query(&self.pin(), run).await?.rows.try_collect().await
    }

    async fn text(&self, plan: LogicalPlan) -> String {
        let batches = self.rows(plan).await.expect("a result");
        pretty_format_batches(&batches).expect("text").to_string()
    }

    async fn system(&self, text: &str) -> Result<String> {
        let settings = Arc::new(BTreeMap::from([("search_path".to_owned(), "public".to_owned())]));
        let query = SystemQuery {
            text,
            user: "root",
            database: "dev",
            session_id: 3,
            search_path: &["public".to_owned()],
            settings: &settings,
            hints: &[],
        };
        let plan = self.serving.system().plan(query).await?;
        let rows = self.serving.system().run(&plan, &[], &Cancel::default()).await?;
        let batches: Vec<RecordBatch> = rows.rows.try_collect().await?;
        Ok(if batches.is_empty() { String::new() } else { pretty_format_batches(&batches).expect("text").to_string() })
    }
}

fn columns(rows: &[(i64, &str, i64)]) -> Vec<ArrayRef> {
    vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.2))),
    ]
}

fn schema(nullable: bool) -> SchemaRef {
    let field = |name: &str, data_type, key: bool| Field::new(name, data_type, nullable || !key);
    Arc::new(Schema::new(vec![field("k", DataType::Int64, true), field("s", DataType::Utf8, true), field("v", DataType::Int64, false)]))
}

fn scan(id: u32) -> LogicalPlanBuilder {
    let source = RelationSource { relation: ObjectId(id), schema: schema(id == 2) };
    LogicalPlanBuilder::scan(if id == 1 { "t" } else { "bag" }, Arc::new(source), None).expect("a scan")
}

fn counted(plan: LogicalPlanBuilder) -> LogicalPlan {
    plan.aggregate(Vec::<Expr>::new(), vec![count(lit(1i64)), sum(col("v"))]).and_then(|b| b.build()).expect("a plan")
}

/// Without the padding that depends on the names of columns.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_query_reads_whole_epochs_up_to_the_frontier() {
    let world = World::new().await;
    world.set(1, &[(1, "a", 10), (2, "b", 20)], 5);
    world.set(1, &[(2, "b", 21), (3, "c", 30)], 6);
    world.frontier(5, 0, 0);
    let shown = world.text(counted(scan(1))).await;
    assert!(squeezed(&shown).contains("| 2 | 30 |"), "{shown}");
    world.frontier(6, 0, 0);
    let shown = world.text(counted(scan(1))).await;
    assert!(squeezed(&shown).contains("| 3 | 61 |"), "{shown}");
    let filtered = scan(1).filter(col("k").eq(lit(2i64)).and(col("s").eq(lit("b")))).expect("a filter");
    let shown = world.text(filtered.project([col("v"), col("k")]).expect("columns").build().expect("a plan")).await;
    assert!(shown.contains("| 21 | 2 |"), "{shown}");
}

#[tokio::test]
async fn committed_reads_see_only_what_was_installed() {
    let world = World::new().await;
    world.set(1, &[(1, "a", 1)], 5);
    let delta = world.store.upload(&[TableId(1)], Epoch(5)).await.expect("an upload");
    world.store.install(Arc::new(eddyline_protocol::Version::default().apply(&delta).expect("a version")));
    world.set(1, &[(2, "b", 2)], 6);
    world.frontier(6, 5, 0);
    let read = |freshness| world.serving.pin(&[ObjectId(1)], freshness).and_then(|p| p.epoch(ObjectId(1))).expect("an epoch");
    assert_eq!((read(Freshness::Committed), read(Freshness::Latest)), (Epoch(5), Epoch(6)));
}

#[tokio::test]
async fn point_reads_find_keys_and_prefixes() {
    let world = World::new().await;
    world.set(1, &[(1, "a", 10), (1, "b", 11), (2, "a", 20), (i64::MAX, "z", 9)], 5);
    world.write(1, 6, columns(&[(2, "a", 0)]), &[true]);
    world.frontier(6, 0, 0);
    let point = world.pin();
    let read = |key: Vec<ScalarValue>, whole_key, limit| {
        let (serving, point) = (world.serving.clone(), point.clone());
        async move {
            let read = PointRead { relation: ObjectId(1), key, whole_key, columns: &[2], limit };
            serving.read_point(&point, &read).await.expect("rows").column(0).as_primitive::<Int64Type>().values().to_vec()
        }
    };
    let (k, s) = (|v: i64| ScalarValue::Int64(Some(v)), |v: &str| ScalarValue::Utf8(Some(v.into())));
    assert_eq!(read(vec![k(1), s("b")], true, None).await, [11]);
    assert_eq!(read(vec![k(1)], false, None).await, [10, 11]);
    assert_eq!(read(vec![k(1)], false, Some(1)).await, [10]);
    assert_eq!(read(vec![k(i64::MAX)], false, None).await, [9]);
    assert!(read(vec![k(2), s("a")], true, None).await.is_empty(), "it was deleted");
    assert!(read(vec![k(1), ScalarValue::Utf8(None)], true, None).await.is_empty(), "NULL equals nothing");
}

#[tokio::test]
async fn rows_without_a_key_come_as_often_as_they_are_there() {
    let world = World::new().await;
    let mut all = columns(&[(1, "a", 1), (2, "b", 5)]);
    all.push(Arc::new(Int64Array::from(vec![3, 1])));
    world.write(2, 5, all, &[]);
    world.frontier(5, 0, 0);
    let shown = world.text(counted(scan(2))).await;
    assert!(squeezed(&shown).contains("| 4 | 8 |"), "{shown}");
    let limited = scan(2).limit(0, Some(2)).and_then(|b| b.build()).expect("a plan");
    assert_eq!(world.rows(limited).await.expect("rows").iter().map(|b| b.num_rows()).sum::<usize>(), 2);
    let starred = world.text(scan(2).build().expect("a plan")).await;
    assert!(!starred.contains("_weight"), "{starred}");
}

/// Random rows and predicates: what is pushed into key ranges finds the same rows as evaluating the predicate on all of them.
#[tokio::test]
async fn pushed_predicates_find_what_filters_find() {
    let seed = eddyline_env::random::next_u64();
    let mut rng = eddyline_env::random::seeded(seed);
    let world = World::new().await;
    let mut model: BTreeMap<(i64, String), i64> = BTreeMap::new();
    for epoch in 1..20u64 {
        let mut changes: BTreeMap<(i64, String), Option<i64>> = BTreeMap::new();
        for _ in 0..30 {
            let key = (rng.random_range(-5..15i64), format!("s{}", rng.random_range(0..4u8)));
            changes.insert(key, rng.random_bool(0.8).then(|| rng.random_range(0..100)));
        }
        let rows: Vec<(i64, &str, i64)> = changes.iter().map(|((k, s), v)| (*k, s.as_str(), v.unwrap_or(0))).collect();
        world.write(1, epoch, columns(&rows), &changes.values().map(Option::is_none).collect::<Vec<_>>());
        for (key, value) in changes {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
    }
    world.frontier(19, 0, 0);
    type Test = Box<dyn Fn(i64, &str) -> bool>;
    for round in 0..150 {
        let (a, b, s) = (rng.random_range(-6..16i64), rng.random_range(-6..16i64), format!("s{}", rng.random_range(0..5u8)));
        let text = s.clone();
        let (predicate, test): (Expr, Test) = match rng.random_range(0..7u8) {
            0 => (col("k").eq(lit(a)), Box::new(move |k, _| k == a)),
            1 => (col("k").eq(lit(a)).and(col("s").gt(lit(s))), Box::new(move |k, x| k == a && x > text.as_str())),
            2 => (col("k").between(lit(a), lit(b)), Box::new(move |k, _| (a..=b).contains(&k))),
            3 => (col("k").in_list(vec![lit(a), lit(b)], false), Box::new(move |k, _| k == a || k == b)),
            4 => (col("k").gt_eq(lit(a)).and(col("k").lt(lit(b))), Box::new(move |k, _| (a..b).contains(&k))),
            5 => (col("k").eq(lit(a)).or(col("s").eq(lit(s))), Box::new(move |k, x| k == a || x == text)),
            _ => (col("s").lt_eq(lit(s)).and(col("k").lt(lit(a))), Box::new(move |k, x| x <= text.as_str() && k < a)),
        };
        let plan = scan(1).filter(predicate.clone()).and_then(|b| b.build()).expect("a plan");
        let mut found = Vec::new();
        for batch in world.rows(plan).await.expect("rows") {
            let (k, s, v) = (
                batch.column(0).as_primitive::<Int64Type>(),
                batch.column(1).as_string::<i32>(),
                batch.column(2).as_primitive::<Int64Type>(),
            );
            found.extend((0..batch.num_rows()).map(|i| ((k.value(i), s.value(i).to_owned()), v.value(i))));
        }
        found.sort();
        let expected: Vec<_> = model.iter().filter(|((k, s), _)| test(*k, s)).map(|(k, v)| (k.clone(), *v)).collect();
        assert_eq!(found, expected, "seed {seed}, round {round}: {predicate}");
    }
}

#[tokio::test]
async fn a_rolled_back_frontier_is_never_pinned_with_newer_rows() {
    let world = World::new().await;
    world.set(1, &[(1, "a", 1)], 5);
    world.frontier(5, 0, 0);
    let point = world.pin();
    assert_eq!(point.frontier(ObjectId(1)).map(|f| f.generation), Some(0));
    world.frontier(4, 4, 1);
    world.store.discard(&[TableId(1)]);
    let after = world.pin();
    assert_eq!((after.frontier(ObjectId(1)).map(|f| f.generation), after.epoch(ObjectId(1)).expect("an epoch")), (Some(1), Epoch(4)));
    assert_eq!(point.epoch(ObjectId(1)).expect("an epoch"), Epoch(5), "a pinned point stays what it was");
}

#[tokio::test]
async fn a_query_beyond_its_memory_is_refused_by_name() {
    let world = World::new().await;
    let rows: Vec<(i64, String, i64)> = (0..20_000).map(|i| (i, format!("{i:0200}"), i)).collect();
    let rows: Vec<(i64, &str, i64)> = rows.iter().map(|r| (r.0, r.1.as_str(), r.2)).collect();
    world.set(1, &rows, 5);
    world.frontier(5, 0, 0);
    let config = ServingConfig { memory_bytes: 200_000, ..ServingConfig::default() };
    let small = Serving::new(world.store.clone(), world.view.clone(), Arc::new(Nobody), config).expect("an engine");
    let plan = scan(1).aggregate(vec![col("s")], vec![count(lit(1i64))]).and_then(|b| b.build()).expect("a plan");
    let query = BoundQuery { output: Arc::new(plan.schema().as_arrow().clone()), plan };
    let run = QueryRun { query: &query, parameters: &[], cancel: &Cancel::default() };
    let rows = small.query(&world.pin(), run).await.expect("a start");
    match rows.rows.try_collect::<Vec<_>>().await {
        Err(e) => assert_eq!(e.sqlstate(), SqlState::OUT_OF_MEMORY, "{e}"),
        // Where spilling gets by with less, the result must be whole.
        Ok(batches) => assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 20_000),
    }
}

#[tokio::test]
async fn psql_finds_relations_and_columns() {
    let world = World::new().await;
    world.frontier(5, 0, 0);
    let list = "SELECT n.nspname as \"Schema\", c.relname as \"Name\",
          CASE c.relkind WHEN 'r' THEN 'table' WHEN 'm' THEN 'materialized view' END as \"Type\",
          pg_catalog.pg_get_userbyid(c.relowner) as \"Owner\"
        FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
        WHERE c.relkind IN ('r','p','m','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
          AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2";
    let shown = world.system(list).await.expect("a list");
    assert!(
        shown.contains("| public | bag  | materialized view | root  |") && shown.contains("| public | t    | table             | root  |"),
        "{shown}"
    );
    let find = "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3";
    assert!(world.system(find).await.expect("a relation").contains("| 16385 | public  | t       |"));
    let describe = "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
          (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d
           WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = '16385' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    let shown = world.system(describe).await.expect("columns");
    assert!(shown.contains("bigint") && shown.contains("character varying") && shown.contains("true"), "{shown}");
    let indexes = "SELECT c2.relname, i.indisprimary, i.indisunique, i.indisclustered, i.indisvalid, pg_catalog.pg_get_indexdef(i.indexrelid, 0, true),
          pg_catalog.pg_get_constraintdef(con.oid, true), contype, condeferrable, condeferred, i.indisreplident, c2.reltablespace
        FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i
          LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid AND conindid = i.indexrelid AND contype IN ('p','u','x'))
        WHERE c.oid = '16385' AND c.oid = i.indrelid AND i.indexrelid = c2.oid ORDER BY i.indisprimary DESC, c2.relname";
    let shown = world.system(indexes).await.expect("an index");
    assert!(shown.contains("USING btree (k, s)") && shown.contains("PRIMARY KEY (k, s)"), "{shown}");
}

#[tokio::test]
async fn clients_learn_about_server_and_session() {
    let world = World::new().await;
    world.frontier(5, 0, 0);
    assert!(world.system("SELECT version()").await.expect("a version").contains("PostgreSQL 15"));
    let shown =
        world.system("SELECT current_database(), current_schema(), current_user, pg_backend_pid(), current_setting('search_path')").await;
    let shown = shown.expect("facts");
    assert!(
        shown.contains("| current_database | current_schema |") && shown.contains("| dev              | public         | root"),
        "{shown}"
    );
    let shown = world.system("SELECT datname FROM pg_catalog.pg_database").await.expect("databases");
    assert!(shown.contains("| dev     |"), "{shown}");
    let shown = world.system("SELECT 'public.t'::regclass::oid, count(*), count(*) FROM pg_catalog.pg_type").await.expect("an oid");
    assert!(shown.contains("16385") && shown.contains("| count |"), "{shown}");
    let shown = world
        .system("SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_name = 't'")
        .await
        .expect("columns");
    assert!(shown.contains("| t          | s           | character varying |"), "{shown}");
    let shown = world.system("SELECT name, status FROM eddy_catalog.jobs WHERE id = 2").await.expect("jobs");
    assert!(shown.contains("| bag  | running |"), "{shown}");
    let shown = world.system("SELECT count(*) AS n FROM eddy_catalog.errors").await.expect("errors");
    assert!(shown.contains("| 0 |"), "{shown}");
}

#[tokio::test]
async fn every_system_table_can_be_read() {
    let world = World::new().await;
    world.frontier(5, 0, 0);
    for schema in crate::system::SystemSchemas::NAMES {
        for name in world.serving.system().table_names(schema) {
            let read = world.system(&format!("SELECT * FROM {schema}.{name}")).await;
            assert!(read.is_ok(), "{schema}.{name}: {:?}", read.err());
        }
    }
}
