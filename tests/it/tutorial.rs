//! The tutorial of the README, verbatim.

use crate::harness::{Server, rows, run, until};

/// The statements between the README's first `sql` fence and its end.
fn readme_statements() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let sql = readme.split("```sql").nth(1).and_then(|rest| rest.split("```").next()).expect("the README has a tutorial");
    sql.split(';').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_grow_and_survive_a_restart() {
    let statements = readme_statements();
    let [source, view, select] = statements.as_slice() else { panic!("three statements, not {statements:?}") };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    // The tutorial's rate with more rows, so that user 42 is seen soon.
    run(&client, &source.replace("WITH (", "WITH (datagen.rows.per.second = '5000', ")).await;
    run(&client, view).await;
    let visits = |rows: &[Vec<String>]| rows.first().map_or(0, |r| r[1].parse::<i64>().expect("a count"));
    let first = until(&client, select, |r| visits(r) > 0).await;
    assert_eq!(first[0][0], "42");
    let second = until(&client, select, |r| visits(r) > visits(&first)).await;
    run(&client, "FLUSH").await;
    let durable = rows(&client, select).await;
    assert!(visits(&durable) >= visits(&second));
    server.kill_hard();

    let server = Server::start(dir.path());
    let client = server.connect().await;
    let after = rows(&client, select).await;
    assert!(visits(&after) >= visits(&durable), "{after:?} after {durable:?}");
    until(&client, select, |r| visits(r) > visits(&after)).await;
    assert_eq!(server.stop(), Some(0));
}
