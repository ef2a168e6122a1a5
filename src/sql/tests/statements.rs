//! What good statements are bound to.

use super::Session;
use crate::statement::{Bound, DmlKind, LookupValue, ROW_ID};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::scalar::ScalarValue;
use eddyline_protocol::RelationKind;

const SETUP: &str = "
    CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR NOT NULL DEFAULT 'nobody', age INT, twice INT GENERATED ALWAYS AS (age * 2) STORED);
    CREATE TABLE log (at TIMESTAMP, line VARCHAR);
    CREATE MATERIALIZED VIEW ages AS SELECT age, count(*) AS n, min(name) AS first FROM users GROUP BY age;
    CREATE VIEW adults AS SELECT id, name FROM users WHERE age >= 18;";

fn query(session: &Session, sql: &str) -> crate::statement::SelectQuery {
    match session.bind(sql).unwrap_or_else(|e| panic!("{e:?} in {sql}")) {
        Bound::Query(q) => *q,
        other => panic!("{other:?}"),
    }
}

fn names(session: &Session, sql: &str) -> Vec<String> {
    query(session, sql).query.output.fields().iter().map(|f| f.name().clone()).collect()
}

#[test]
fn output_names_are_those_of_postgres() {
    let session = Session::with(SETUP);
    for (sql, expected) in [
        ("SELECT 1, 'a', 1 + 1", vec!["?column?", "?column?", "?column?"]),
        ("SELECT count(*), sum(age), max(name) FROM users", vec!["count", "sum", "max"]),
        ("SELECT id, id, users.id FROM users", vec!["id", "id", "id"]),
        ("SELECT CAST(age AS BIGINT), '1'::int, age::text FROM users", vec!["age", "int4", "age"]),
        (
            "SELECT CASE WHEN age > 1 THEN 1 END, coalesce(age, 1), \"Lower\".x FROM (SELECT age, age AS x FROM users) \"Lower\"",
            vec!["case", "coalesce", "x"],
        ),
        ("SELECT upper(name) AS \"Big Name\", extract(year FROM at) FROM users, log", vec!["Big Name", "extract"]),
        ("SELECT * FROM users", vec!["id", "name", "age", "twice"]),
        ("SELECT * FROM log", vec!["at", "line"]),
        ("SELECT a.*, b.id FROM users a JOIN users b ON a.id = b.id", vec!["id", "name", "age", "twice", "id"]),
        ("SELECT EXISTS (SELECT 1), (SELECT max(age) FROM users), true", vec!["exists", "max", "bool"]),
        ("VALUES (1, 2)", vec!["column1", "column2"]),
        ("SELECT * FROM adults", vec!["id", "name"]),
        ("SELECT count FROM (SELECT count(*) FROM users) x", vec!["count"]),
    ] {
        assert_eq!(names(&session, sql), expected, "{sql}");
    }
}

#[test]
fn key_equality_is_a_lookup() {
    let session = Session::with(SETUP);
    let found = query(&session, "SELECT name, id FROM users WHERE id = 42").lookup.expect("a lookup");
    assert!(found.whole_key);
    assert_eq!(found.key, vec![LookupValue::Constant(ScalarValue::Int32(Some(42)))]);
    assert_eq!(found.columns, vec![1, 0]);
    assert_eq!(query(&session, "SELECT * FROM ages WHERE age = 3 LIMIT 5").lookup.expect("a lookup").limit, Some(5));
    let parameter = query(&session, "SELECT * FROM users WHERE id = $1");
    assert_eq!(parameter.parameters, vec![DataType::Int32]);
    assert_eq!(parameter.lookup.expect("a lookup").key, vec![LookupValue::Parameter(0)]);
    for none in [
        "SELECT * FROM users WHERE id > 3",
        "SELECT * FROM users WHERE id = 3 AND age = 4",
        "SELECT * FROM users WHERE name = 'x'",
        "SELECT id + 1 FROM users WHERE id = 3",
        "SELECT count(*) FROM users WHERE id = 3",
        "SELECT * FROM users WHERE id = 3 OR id = 4",
        "SELECT * FROM users WHERE id = 9999999999",
        "SELECT * FROM log WHERE line = 'x'",
        "SELECT * FROM users",
    ] {
        assert_eq!(query(&session, none).lookup, None, "{none}");
    }
}

#[test]
fn dml_gives_rows_in_storage_order() {
    let session = Session::with(SETUP);
    let dml = |sql: &str| match session.bind(sql).unwrap_or_else(|e| panic!("{e:?} in {sql}")) {
        Bound::Dml(d) => *d,
        other => panic!("{other:?}"),
    };
    let types = |d: &crate::statement::Dml| d.rows.plan.schema().fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
    let users = vec![DataType::Int32, DataType::Utf8, DataType::Int32, DataType::Int32];
    let insert = dml("INSERT INTO users (age, id) VALUES (1, 2), (NULL, 3) RETURNING *, id + 1 AS next, twice");
    assert_eq!(insert.kind, DmlKind::Insert);
    assert_eq!(types(&insert), users);
    let returning = insert.returning.expect("RETURNING");
    assert_eq!(
        returning.output.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(),
        ["id", "name", "age", "twice", "next", "twice"]
    );
    assert_eq!(types(&dml("INSERT INTO users VALUES (1, DEFAULT, 3)")), users);
    assert_eq!(types(&dml("INSERT INTO users SELECT id, line, 3 FROM log, users")), users);
    assert_eq!(
        types(&dml("INSERT INTO log VALUES ('2020-01-01 10:00', 'x')")),
        [DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Utf8]
    );
    assert_eq!(dml("INSERT INTO users (id, name) VALUES ($1, $2)").parameters, [DataType::Int32, DataType::Utf8]);
    let update = dml("UPDATE users SET age = age + 1, name = 'x' WHERE id = 1");
    assert_eq!(types(&update), [users.clone(), users.clone()].concat());
    assert_eq!(dml("UPDATE users SET age = $2 WHERE id = $1").parameters, [DataType::Int32, DataType::Int32]);
    let delete = dml("DELETE FROM log WHERE line LIKE 'x%'");
    assert_eq!(types(&delete), [DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Utf8, DataType::Int64]);
    assert_eq!(delete.rows.output.field(2).name(), ROW_ID);
    assert!(session.bind("UPDATE users SET twice = 3").unwrap_err().message().contains("DEFAULT"));
}

#[test]
fn parameters_are_inferred() {
    let session = Session::with(SETUP);
    let q = |sql: &str| query(&session, sql).parameters;
    assert_eq!(q("SELECT $1"), [DataType::Utf8]);
    assert_eq!(q("SELECT $1::bigint + $2"), [DataType::Int64, DataType::Int64]);
    assert_eq!(q("SELECT * FROM log WHERE at > $1 AND line = $2"), [DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Utf8]);
    assert_eq!(q("SELECT 1"), Vec::<DataType>::new());
}

#[test]
fn views_record_what_they_read_and_how_they_are_keyed() {
    let mut session = Session::with(SETUP);
    let made = session.run("CREATE MATERIALIZED VIEW v AS SELECT name, 1 AS one FROM adults").unwrap();
    let Bound::CreateRelation(created) = &made[0] else { panic!() };
    let relation = &created.relation;
    let names: Vec<_> = relation.columns.iter().map(|c| (c.name.as_str(), c.hidden)).collect();
    assert_eq!(names, [("name", false), ("one", false), ("_id", true)]);
    assert_eq!(relation.key, [2]);
    assert_eq!(relation.depends_on.len(), 2, "the view and the table below it");
    let ages = session.catalog.find("public", "ages").unwrap();
    assert_eq!(ages.kind, RelationKind::MaterializedView);
    assert_eq!(ages.key, [0]);
    assert!(matches!(session.bind("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1"), Ok(Bound::CreateRelation(c)) if c.exists));
}

#[test]
fn drop_takes_dependents_first() {
    let mut session = Session::with(SETUP);
    session.run("CREATE MATERIALIZED VIEW top AS SELECT * FROM ages").unwrap();
    let Bound::Drop(dropped) = session.bind("DROP TABLE users CASCADE").unwrap() else { panic!() };
    let names: Vec<_> = dropped.relations.iter().map(|id| session.catalog.relations[id].name.as_str()).collect();
    assert_eq!(names.len(), 4);
    let at = |n: &str| names.iter().position(|x| *x == n).unwrap();
    assert!(at("top") < at("ages") && at("ages") < at("users") && at("adults") < at("users"));
    assert_eq!(dropped.notices, ["drop cascades to 3 other objects"]);
    let Bound::Drop(none) = session.bind("DROP TABLE IF EXISTS nothing").unwrap() else { panic!() };
    assert_eq!(none.notices, ["table \"nothing\" does not exist, skipping"]);
}

#[test]
fn session_statements_are_recognised() {
    let session = Session::with(SETUP);
    let set = |sql: &str| match session.bind(sql).unwrap() {
        Bound::SetVariable { name, value, local } => (name, value, local),
        other => panic!("{other:?}"),
    };
    assert_eq!(set("SET search_path TO a, b"), ("search_path".into(), Some("a, b".into()), false));
    assert_eq!(set("SET LOCAL statement_timeout = '5s'"), ("statement_timeout".into(), Some("5s".into()), true));
    assert_eq!(set("SET x.y = DEFAULT"), ("x.y".into(), None, false));
    assert_eq!(set("SET TIME ZONE 'UTC'"), ("timezone".into(), Some("UTC".into()), false));
    assert!(matches!(session.bind("SHOW search_path").unwrap(), Bound::ShowVariable { name } if name == "search_path"));
    assert!(
        matches!(session.bind("SHOW TRANSACTION ISOLATION LEVEL").unwrap(), Bound::ShowVariable { name } if name == "transaction_isolation")
    );
    assert!(matches!(session.bind("RESET ALL").unwrap(), Bound::ResetVariable { name: None }));
    assert!(matches!(session.bind("FLUSH").unwrap(), Bound::Flush));
    assert!(matches!(session.bind("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY").unwrap(), Bound::Begin { read_only: true }));
    assert!(matches!(session.bind("BEGIN").unwrap(), Bound::Begin { read_only: false }));
    assert!(matches!(session.bind("END").unwrap(), Bound::Commit));
    assert!(matches!(session.bind("ABORT").unwrap_or(Bound::Rollback), Bound::Rollback));
    assert!(matches!(session.bind("PREPARE p (int) AS SELECT * FROM users WHERE id = $1").unwrap(), Bound::Prepare { .. }));
    assert!(matches!(session.bind("EXECUTE p (1 + 2)").unwrap(), Bound::Execute { values, .. } if values == [ScalarValue::Int64(Some(3))]));
    assert!(matches!(session.bind("DECLARE c CURSOR FOR SELECT 1").unwrap(), Bound::Declare { .. }));
    assert!(matches!(session.bind("FETCH 10 FROM c").unwrap(), Bound::Fetch { count: Some(10), .. }));
    assert!(matches!(session.bind("FETCH ALL FROM c").unwrap(), Bound::Fetch { count: None, .. }));
    assert!(
        matches!(session.bind("COPY log (line) FROM STDIN WITH (FORMAT csv, HEADER true)").unwrap(), Bound::CopyIn(c) if c.columns == [1] && c.options.csv && c.options.header)
    );
    assert!(matches!(session.bind("COPY users TO STDOUT CSV HEADER").unwrap(), Bound::CopyOut { .. }));
    assert!(matches!(session.bind("CREATE SCHEMA IF NOT EXISTS s").unwrap(), Bound::CreateSchema { .. }));
    for show in
        ["SHOW TABLES", "SHOW MATERIALIZED VIEWS", "SHOW SOURCES", "SHOW JOBS", "DESCRIBE users", "SHOW CREATE MATERIALIZED VIEW ages"]
    {
        assert!(matches!(session.bind(show).unwrap(), Bound::Query(q) if q.tag == "SHOW"), "{show}");
    }
}
