//! What wrong statements get: SQLSTATE and message as Postgres would give them.

use crate::harness::{Server, refused, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_statements_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    run(
        &client,
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR); CREATE MATERIALIZED VIEW v AS SELECT name, count(*) AS n FROM t GROUP BY name",
    )
    .await;
    for (sql, code, words) in [
        ("SELCT 1", "42601", "SELCT"),
        ("SELECT * FROM nowhere", "42P01", "nowhere"),
        ("SELECT nothing FROM t", "42703", "nothing"),
        ("CREATE TABLE t (id INT)", "42P07", "t"),
        ("DROP TABLE t", "2BP01", "depend"),
        ("SELECT 1 / 0", "22012", "division by zero"),
        ("SELECT name, count(*) FROM t", "42803", "name"),
        ("INSERT INTO t VALUES (NULL, 'x')", "23502", "id"),
    ] {
        let (state, message) = refused(&client, sql).await;
        assert_eq!(state, code, "{sql}: {message}");
        assert!(message.contains(words), "{sql}: {message}");
    }
    assert_eq!(server.stop(), Some(0));
}
