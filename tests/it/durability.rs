//! Acknowledged means durable and visible: writers and readers while the process is killed again and again.

use crate::harness::{Server, nightly, rows, run, value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio_postgres::Client;

const WRITERS: i64 = 4;

/// What the writers were promised: acknowledged ids with their values, and ids whose fate is open (the connection broke before the answer).
#[derive(Default)]
struct Promises {
    kept: BTreeMap<i64, i64>,
    open: BTreeMap<i64, i64>,
}

async fn writer(client: Client, writer: i64, next: Arc<AtomicI64>, stop: Arc<AtomicBool>) -> Promises {
    let mut promises = Promises::default();
    while !stop.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed) * WRITERS + writer;
        let amount = id % 97;
        match client.batch_execute(&format!("INSERT INTO orders VALUES ({id}, {}, {amount})", id % 10)).await {
            Ok(()) => {
                promises.kept.insert(id, amount);
                // Read-your-writes, in the table and in the view downstream, on the same session.
                let Ok(row) = client.simple_query(&format!("SELECT amount FROM orders WHERE id = {id}")).await else { continue };
                let found =
                    row.iter().any(|m| matches!(m, tokio_postgres::SimpleQueryMessage::Row(r) if r.get(0) == Some(&amount.to_string())));
                assert!(found, "acknowledged row {id} is not visible");
            }
            Err(_) => {
                promises.open.insert(id, amount);
                break;
            }
        }
    }
    promises
}

async fn verify(client: &Client, promises: &mut Promises) {
    let table: BTreeMap<i64, i64> = rows(client, "SELECT id, amount FROM orders")
        .await
        .iter()
        .map(|r| (r[0].parse().expect("an id"), r[1].parse().expect("an amount")))
        .collect();
    assert_eq!(value(client, "SELECT count(*) FROM orders").await, table.len().to_string(), "a row appears twice");
    for (id, amount) in &promises.kept {
        assert_eq!(table.get(id), Some(amount), "acknowledged row {id} is lost");
    }
    // What was open is now decided: it is there or it is not, for good.
    for (id, amount) in std::mem::take(&mut promises.open) {
        if table.get(&id) == Some(&amount) {
            promises.kept.insert(id, amount);
        }
    }
    assert_eq!(table.len(), promises.kept.len(), "a row that nobody wrote");
    let mut view = rows(client, "SELECT customer, orders, total FROM per_customer").await;
    let mut batch = rows(client, "SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer").await;
    view.sort();
    batch.sort();
    assert_eq!(view, batch, "the view differs from its batch answer");
    let total: i64 = table.values().sum();
    assert_eq!(value(client, "SELECT coalesce(sum(total), 0) FROM per_customer").await, total.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_kills() {
    let kills = if nightly() { 50 } else { 8 };
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(dir.path());
    let client = server.connect().await;
    run(&client, "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, amount BIGINT)").await;
    run(
        &client,
        "CREATE MATERIALIZED VIEW per_customer AS SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer",
    )
    .await;
    let next = Arc::new(AtomicI64::new(0));
    let mut promises = Promises::default();
    for round in 0..kills {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for w in 0..WRITERS {
            tasks.push(tokio::spawn(writer(server.connect().await, w, next.clone(), stop.clone())));
        }
        tokio::time::sleep(Duration::from_millis(37 + (round * 211) % 900)).await;
        server.kill_hard();
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            let mut told = task.await.expect("a writer's assertions hold");
            promises.kept.append(&mut told.kept);
            promises.open.append(&mut told.open);
        }
        server = Server::start(dir.path());
        verify(&server.connect().await, &mut promises).await;
    }
    assert!(promises.kept.len() > kills as usize, "only {} rows were acknowledged", promises.kept.len());
    assert_eq!(server.stop(), Some(0));
}
