//! The small inputs that must be handled: good rows arrive exactly once, bad rows are records, nothing stops.

use crate::harness::{Server, rows, run, shared, until};
use std::path::Path;

/// File, ids of the good rows, lines of the recorded errors.
const CSV: &[(&str, &[&str], &[&str])] = &[
    ("clean.csv", &["1", "2"], &[]),
    ("crlf-bom.csv", &["1", "2"], &[]),
    ("no-final-newline.csv", &["1", "2"], &[]),
    ("quoted-newline.csv", &["1", "2"], &[]),
    ("missing-column.csv", &["1", "3"], &["3"]),
    ("extra-column.csv", &["1", "3"], &["3"]),
    ("bad-values.csv", &["5"], &["2", "3", "4", "5"]),
    ("invalid-utf8.csv", &["1", "3"], &["3"]),
    ("empty.csv", &[], &[]),
    ("header-only.csv", &[], &[]),
    ("reordered-header.csv", &["1"], &[]),
    ("long-line.csv", &["1", "2"], &[]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csv_files_of_all_kinds() {
    let Some(folder) = shared("cases/files") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    for (file, good, bad) in CSV {
        let table = file.trim_end_matches(".csv").replace('-', "_");
        let path = folder.join(file);
        run(
            &client,
            &format!(
                "CREATE TABLE {table} (id INT, name VARCHAR, amount DECIMAL(10,2), at TIMESTAMP) \
                 WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV (header = 'true')",
                path.display()
            ),
        )
        .await;
        check(&client, &table, &path, good, bad).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ndjson_files_of_all_kinds() {
    let Some(folder) = shared("cases/files") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    // A duplicate key takes the last value (docs/connectors.md), as Postgres' jsonb does.
    for (file, mode, good, bad) in
        [("mixed.ndjson", "immutable", vec!["1", "2", "5", "7"], vec!["4", "6", "7"]), ("unterminated.ndjson", "append", vec!["1"], vec![])]
    {
        let table = file.trim_end_matches(".ndjson");
        let path = folder.join(file);
        run(
            &client,
            &format!(
                "CREATE TABLE {table} (id INT, name VARCHAR, amount DECIMAL(10,2), at TIMESTAMP) \
                 WITH (connector = 'file', path = '{}', mode = '{mode}') FORMAT PLAIN ENCODE JSON",
                path.display()
            ),
        )
        .await;
        check(&client, table, &path, &good, &bad).await;
    }
}

async fn check(client: &tokio_postgres::Client, table: &str, path: &Path, good: &[&str], bad: &[&str]) {
    let ids = format!("SELECT id FROM {table} ORDER BY id");
    let wanted: Vec<Vec<String>> = good.iter().map(|id| vec![(*id).to_owned()]).collect();
    until(client, &ids, |r| r == wanted).await;
    let lines = format!("SELECT source_position, message FROM eddy_catalog.errors WHERE source_position LIKE '%{}%'", path.display());
    let errors = until(client, &lines, |r| r.len() == bad.len()).await;
    let mut seen: Vec<String> =
        errors.iter().map(|r| serde_json::from_str::<serde_json::Value>(&r[0]).expect("a JSON position")["line"].to_string()).collect();
    seen.sort();
    assert_eq!(seen, bad, "{table}: {errors:?}");
    // Nothing more comes afterwards.
    assert_eq!(rows(client, &ids).await, wanted);
}
