//! Nexmark through the whole engine, against checksums that another engine computed over the same events.

use crate::harness::{Server, rows, run, shared, until};
use md5::{Digest, Md5};
use serde_json::Value;

const EVENTS: u64 = 100_000;

const TABLES: [(&str, u64, &str); 3] = [
    (
        "person",
        2_000,
        "id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR, date_time TIMESTAMP, extra VARCHAR",
    ),
    (
        "auction",
        6_000,
        "id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR",
    ),
    ("bid", 92_000, "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP, extra VARCHAR"),
];

const QUERIES: &[(&str, &str)] = &[
    ("q0", include_str!("../../benches/nexmark/q0.sql")),
    ("q1", include_str!("../../benches/nexmark/q1.sql")),
    ("q2", include_str!("../../benches/nexmark/q2.sql")),
    ("q3", include_str!("../../benches/nexmark/q3.sql")),
    ("q4", include_str!("../../benches/nexmark/q4.sql")),
    ("q8", include_str!("../../benches/nexmark/q8.sql")),
    ("q14", include_str!("../../benches/nexmark/q14.sql")),
    ("q17", include_str!("../../benches/nexmark/q17.sql")),
    ("q20", include_str!("../../benches/nexmark/q20.sql")),
    ("q22", include_str!("../../benches/nexmark/q22.sql")),
];

/// Rows and the sum of the first 15 hex digits of each row's MD5, as the oracle computes it.
fn checksum(rows: &[Vec<String>]) -> (usize, String) {
    let mut sum: u128 = 0;
    for row in rows {
        let cells: Vec<&str> = row.iter().map(|c| if c == "NULL" { "" } else { c.as_str() }).collect();
        let digest = Md5::digest(cells.join("|").as_bytes());
        let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        sum += u128::from_str_radix(&hex[..15], 16).expect("hex digits");
    }
    (rows.len(), sum.to_string())
}

/// The oracle's columns as expressions: times as milliseconds since the Unix epoch.
fn expressions(columns: &str) -> String {
    let one = |c: &str| match c.strip_suffix(":ms") {
        Some(time) => format!("CAST(date_part('epoch', {time}) * 1000 AS BIGINT)"),
        None => c.to_owned(),
    };
    columns.split_whitespace().map(one).collect::<Vec<_>>().join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_have_the_oracles_checksums() {
    let Some(oracle) = shared("bench/nexmark/nexmark-100000.json") else { return };
    let oracle: Value = serde_json::from_str(&std::fs::read_to_string(oracle).expect("readable")).expect("JSON");
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    for (table, _, columns) in TABLES {
        run(
            &client,
            &format!(
                "CREATE SOURCE {table} ({columns}) WITH (connector = 'nexmark', nexmark.table.type = '{table}', nexmark.event.num = '{EVENTS}') \
                 FORMAT PLAIN ENCODE NATIVE"
            ),
        )
        .await;
    }
    // One counting view per table tells when all events have arrived.
    for (table, count, _) in TABLES {
        run(&client, &format!("CREATE MATERIALIZED VIEW {table}_count AS SELECT count(*) AS n FROM {table}")).await;
        until(&client, &format!("SELECT n FROM {table}_count"), |r| r == [[count.to_string()]]).await;
    }
    for (name, query) in QUERIES {
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
        let wanted = &oracle["queries"][name];
        let select = format!("SELECT {} FROM {name}", expressions(wanted["columns"].as_str().expect("columns")));
        let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
        loop {
            let (count, sum) = checksum(&rows(&client, &select).await);
            if count as u64 == wanted["rows"] && sum == wanted["sum"] {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{name}: {count} rows with checksum {sum}, the oracle says {wanted}");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        run(&client, &format!("DROP MATERIALIZED VIEW {name}")).await;
    }
    assert_eq!(server.stop(), Some(0));
}
