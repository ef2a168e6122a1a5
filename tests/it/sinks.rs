//! Sinks: rows go out, nothing can be read from them, and they come and go like other relations.

use crate::harness::{Server, refused, rows, run, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blackhole_sinks_take_rows_and_survive_a_kill() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (k INT PRIMARY KEY, v INT)").await;
    run(&client, "CREATE SINK every FROM t WITH (connector = 'blackhole')").await;
    run(&client, "CREATE SINK some AS SELECT v, count(*) AS n FROM t WHERE k > 1 GROUP BY v WITH (connector = 'blackhole')").await;
    run(&client, "INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)").await;
    let taken = |name: &str| format!("SELECT rows_in FROM eddy_catalog.jobs WHERE name = '{name}'");
    until(&client, &taken("every"), |r| r == [["3"]]).await;
    until(&client, "SELECT rows_out FROM eddy_catalog.jobs WHERE name = 'every'", |r| r == [["3"]]).await;
    let error = refused(&client, "SELECT * FROM every").await.1;
    assert!(error.contains("every"), "{error}");
    let error = refused(&client, "DROP TABLE t").await.1;
    assert!(error.contains("every") || error.contains("depend"), "{error}");
    let error = refused(&client, "CREATE SINK other FROM t WITH (connector = 'nowhere')").await.1;
    assert!(error.contains("nowhere"), "{error}");
    drop(client);
    server.kill_hard();
    let server = Server::start(dir.path());
    let client = server.connect().await;
    run(&client, "INSERT INTO t VALUES (4, 2)").await;
    until(&client, &taken("every"), |r| r == [["1"]]).await;
    run(&client, "DROP SINK some").await;
    run(&client, "DROP TABLE t CASCADE").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM eddy_catalog.jobs").await, [["0"]]);
}
