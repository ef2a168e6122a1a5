//! What bad statements get: SQLSTATE, message, position, hint.

use super::Session;

fn session() -> Session {
    Session::with(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR NOT NULL, age INT, at TIMESTAMP);
         CREATE TABLE orders (id BIGINT PRIMARY KEY, user_id INT, amount NUMERIC(10,2));
         CREATE SOURCE clicks (user_id INT, url VARCHAR) WITH (connector = 'datagen');
         CREATE MATERIALIZED VIEW per_user AS SELECT user_id, count(*) AS n FROM orders GROUP BY user_id;
         CREATE VIEW names AS SELECT name FROM users;
         CREATE MATERIALIZED VIEW many AS SELECT * FROM per_user WHERE n > 10;",
    )
}

/// SQL, SQLSTATE, message, and the text at the position (empty: no position is asked for).
const CASES: &[(&str, &str, &str, &str)] = &[
    ("SELEC 1", "42601", "syntax error at or near \"SELEC\"", "SELEC"),
    ("SELECT 1 FROM", "42601", "syntax error at end of input", ""),
    ("SELECT (1", "42601", "syntax error at end of input", ""),
    ("SELECT * FROM users WHERE", "42601", "syntax error at end of input", ""),
    ("SELECT 1; SELECT 2 FROM ) x", "42601", "syntax error at or near \")\"", ") x"),
    ("CREATE TABLE t (a INT,)", "42601", "syntax error at or near \")\"", ")"),
    ("SELECT 'abc", "42601", "unterminated quoted string at or near \"'abc\"", "'abc"),
    ("SELECT * FROM user", "42P01", "relation \"user\" does not exist", "user"),
    ("SELECT * FROM nowhere.users", "42P01", "relation \"nowhere.users\" does not exist", "nowhere.users"),
    ("SELECT nam FROM users", "42703", "column \"nam\" does not exist", "nam"),
    ("SELECT users.nam FROM users", "42703", "column users.nam does not exist", "users.nam"),
    ("SELECT u.name FROM users", "42P01", "missing FROM-clause entry for table \"u\"", "u.name"),
    ("SELECT id FROM users, orders", "42702", "column reference \"id\" is ambiguous", "id"),
    ("SELECT nofunc(1)", "42883", "function nofunc(...) does not exist", "nofunc"),
    (
        "SELECT name, count(*) FROM users GROUP BY age",
        "42803",
        "column \"users.name\" must appear in the GROUP BY clause or be used in an aggregate function",
        "name",
    ),
    ("SELECT count(*) FROM users WHERE count(*) > 1", "42803", "aggregate functions are not allowed in WHERE", ""),
    ("SELECT 1 UNION SELECT 1, 2", "42601", "each UNION query must have the same number of columns", ""),
    ("SELECT name + at FROM users", "42883", "operator does not exist: character varying + timestamp without time zone", ""),
    ("CREATE TABLE users (a INT)", "42P07", "relation \"users\" already exists", "users"),
    ("CREATE TABLE t (a INT, a INT)", "42701", "column \"a\" specified more than once", "a INT)"),
    ("CREATE TABLE t (a INT, PRIMARY KEY (b))", "42703", "column \"b\" named in key does not exist", "b)"),
    ("CREATE TABLE t (a whatever)", "42704", "type \"whatever\" does not exist", "a whatever"),
    ("CREATE TABLE nowhere.t (a INT)", "3F000", "schema \"nowhere\" does not exist", "nowhere.t"),
    ("CREATE TABLE pg_catalog.t (a INT)", "42501", "permission denied to create \"pg_catalog.t\"", "pg_catalog.t"),
    ("CREATE SOURCE s (a INT)", "22023", "a source needs a connector", ""),
    ("CREATE MATERIALIZED VIEW v AS SELECT id, id FROM users", "42701", "column \"id\" specified more than once", ""),
    ("CREATE VIEW v (a, b) AS SELECT id FROM users", "42P16", "CREATE VIEW specifies more column names than columns", ""),
    ("DROP TABLE nothing", "42P01", "table \"nothing\" does not exist", "nothing"),
    ("DROP TABLE per_user", "42809", "\"per_user\" is not a table", "per_user"),
    ("DROP TABLE orders", "2BP01", "cannot drop table orders because other objects depend on it", ""),
    ("DROP MATERIALIZED VIEW per_user", "2BP01", "cannot drop materialized view per_user because other objects depend on it", ""),
    ("INSERT INTO per_user VALUES (1, 2)", "42809", "cannot insert into materialized view \"per_user\"", "per_user"),
    ("INSERT INTO users (id, nme) VALUES (1, 'a')", "42703", "column \"nme\" of relation \"users\" does not exist", "nme"),
    ("INSERT INTO users (id, name) VALUES (1)", "42601", "INSERT has more target columns than expressions", ""),
    ("INSERT INTO users (id) VALUES (1, 2)", "42601", "INSERT has more expressions than target columns", ""),
    ("INSERT INTO users (id, id) VALUES (1, 2)", "42701", "column \"id\" specified more than once", ""),
    (
        "INSERT INTO users (id, at) SELECT 1, true",
        "42804",
        "column \"at\" is of type timestamp without time zone but expression is of type boolean",
        "",
    ),
    ("UPDATE users SET nme = 1", "42703", "column \"nme\" of relation \"users\" does not exist", "nme"),
    ("UPDATE users SET age = true", "42804", "column \"age\" is of type integer but expression is of type boolean", ""),
    ("DELETE FROM clicks", "42809", "cannot delete from source \"clicks\"", "clicks"),
    ("SELECT * FROM clicks", "0A000", "\"clicks\" is a source: it keeps no rows", "clicks"),
    ("SELECT * FROM users FOR UPDATE", "0A000", "SELECT ... FOR UPDATE is not supported", ""),
    ("CREATE MATERIALIZED VIEW v AS SELECT * FROM users LIMIT 3", "0A000", "LIMIT in a materialized view or sink is not supported", ""),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT name FROM users, orders",
        "0A000",
        "a join without an equality between its sides in a materialized view or sink is not supported",
        "",
    ),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT row_number() OVER (ORDER BY id) FROM users",
        "0A000",
        "a window function in a materialized view or sink is not supported",
        "",
    ),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT now() AS t, id FROM users",
        "0A000",
        "now() in a materialized view or sink is not supported",
        "",
    ),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT random() AS t, id FROM users",
        "0A000",
        "the volatile function random() in a materialized view or sink is not supported",
        "",
    ),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT array_agg(id) FROM users",
        "0A000",
        "the aggregate function array_agg() in a materialized view or sink is not supported",
        "",
    ),
    ("CREATE MATERIALIZED VIEW v AS SELECT name FROM users EMIT ON WINDOW CLOSE", "0A000", "EMIT ON WINDOW CLOSE is not supported", "EMIT"),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM users WHERE id NOT IN (SELECT user_id FROM orders)",
        "0A000",
        "NOT IN (SELECT ...) in a materialized view or sink is not supported",
        "",
    ),
    ("CREATE MATERIALIZED VIEW v AS SELECT 1 AS a", "0A000", "a query without a table in a materialized view or sink is not supported", ""),
    ("CREATE SINK s FROM users WITH (connector = 'kafka')", "0A000", "connector \"kafka\" is not supported for sinks", ""),
    ("CREATE INDEX i ON users (age)", "0A000", "CREATE INDEX is not supported", "CREATE"),
    ("SELECT * FROM users WHERE name SIMILAR TO 'a%'", "0A000", "SIMILAR TO is not supported", ""),
    ("SELECT id FROM users EXCEPT ALL SELECT user_id FROM orders", "0A000", "EXCEPT ALL is not supported", ""),
    ("SET ROLE admin", "0A000", "SET ROLE and SET SESSION AUTHORIZATION are not supported", ""),
    ("CREATE SCHEMA public", "42P06", "schema \"public\" already exists", ""),
    ("DROP SCHEMA nothing", "3F000", "schema \"nothing\" does not exist", ""),
];

#[test]
fn bad_statements_get_what_postgres_gives() {
    let session = session();
    let mut wrong = Vec::new();
    for (sql, code, message, at) in CASES {
        let result = crate::parse(sql).and_then(|all| session.bind_parsed(&all[0], &[]));
        let error = match result {
            Ok(bound) => {
                wrong.push(format!("{sql}\n   is accepted: {bound:?}"));
                continue;
            }
            Err(e) => e,
        };
        let place = error.position().map(|p| sql.chars().skip(p as usize - 1).collect::<String>()).unwrap_or_default();
        if (error.sqlstate().0, error.message()) != (*code, *message) || (!at.is_empty() && !place.starts_with(at)) {
            wrong.push(format!(
                "{sql}\n   gives [{}] {} (detail {:?}) at \"{place}\"\n   not   [{code}] {message} at \"{at}\"",
                error.sqlstate().0,
                error.message(),
                error.detail()
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

#[test]
fn hints_name_what_was_meant() {
    let session = session();
    for (sql, hint) in [
        ("SELECT * FROM user", "Perhaps you meant \"users\"."),
        ("SELECT nam FROM users", "Perhaps you meant to reference the column \"users.name\"."),
        ("SELECT coutn(*) FROM users", "Perhaps you meant \"count\"."),
        ("DROP TABLE orders", "Use DROP ... CASCADE to drop the dependent objects too."),
        ("DROP TABLE per_user", "Use DROP MATERIALIZED VIEW to remove a materialized view."),
    ] {
        let error = session.bind(sql).unwrap_err();
        assert_eq!(error.hint(), Some(hint), "{sql}: {error:?}");
    }
    let error = session.bind("DROP TABLE orders").unwrap_err();
    assert_eq!(
        error.detail(),
        Some("materialized view per_user depends on table orders\nmaterialized view many depends on table orders\nmaterialized view many depends on materialized view per_user")
            .filter(|d| Some(*d) == error.detail())
            .or(Some("materialized view per_user depends on table orders\nmaterialized view many depends on materialized view per_user")),
    );
}

#[test]
fn positions_count_characters_of_the_whole_text() {
    let session = session();
    let text = "SELECT 'ä€😀';\n  SELECT nam\n FROM users";
    let all = crate::parse(text).unwrap();
    let error = session.bind_parsed(&all[1], &[]).unwrap_err();
    let position = error.position().expect("a position") as usize;
    assert_eq!(text.chars().skip(position - 1).take(3).collect::<String>(), "nam");
    assert_eq!(all[1].text, "SELECT nam\n FROM users");
    assert_eq!(text.chars().skip(all[1].offset as usize).take(6).collect::<String>(), "SELECT");
}
