//! `eddyline bench latency`: what one statement after the other costs on a server with durable state on the local disk, and what an idle
//! server costs. Everything goes over the Postgres wire.

use super::process;
use crate::config::Flags;
use crate::{Node, logging, runtime};
use anyhow::{Result, bail};
use clap::Parser;
use eddyline_env::clock;
use serde_json::json;
use std::time::Duration;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Arguments of `eddyline bench latency`.
#[derive(Parser)]
pub struct Args {
    /// Statements of each kind
    #[arg(long, default_value_t = 500)]
    statements: usize,
    /// How long to watch the idle server, in seconds
    #[arg(long, default_value_t = 10)]
    idle: u64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Runs the benchmark.
pub fn run(args: &Args) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("eddyline-bench-").tempdir()?;
    let config = args.flags.clone().with_log("warn").with_free_ports().with_data_dir(directory.path()).resolve()?;
    logging::install(&config.log)?;
    runtime()?.block_on(async {
        let node = Node::start(config).await?;
        let url = format!("postgres://root@{}/dev", node.pg_address());
        let (writer, reader) = (connect(&url).await?, connect(&url).await?);
        let done = measure(args, &writer, &reader).await;
        drop((writer, reader));
        node.shutdown().await?;
        done
    })
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    eddyline_env::spawn::task("bench connection", async move {
        let _ = connection.await;
    });
    Ok(client)
}

async fn measure(args: &Args, writer: &Client, reader: &Client) -> Result<()> {
    let mut times = Vec::new();
    for n in 0..args.statements.div_ceil(10) {
        writer.batch_execute(&format!("CREATE TABLE empty{n} (k BIGINT PRIMARY KEY, v BIGINT)")).await?;
        let start = clock::now();
        writer.batch_execute(&format!("CREATE MATERIALIZED VIEW of_empty{n} AS SELECT v, count(*) AS n FROM empty{n} GROUP BY v")).await?;
        times.push(start.elapsed());
        writer.batch_execute(&format!("DROP TABLE empty{n} CASCADE")).await?;
    }
    report(args, "CREATE MATERIALIZED VIEW on an empty table", times);

    writer.batch_execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)").await?;
    writer.batch_execute("CREATE MATERIALIZED VIEW v AS SELECT v, count(*) AS n FROM t GROUP BY v").await?;
    let (mut answered, mut visible) = (Vec::new(), Vec::new());
    for n in 0..args.statements {
        let start = clock::now();
        writer.batch_execute(&format!("INSERT INTO t VALUES ({n}, 1)")).await?;
        answered.push(start.elapsed());
        // Another session, so no read waits for its own write; the view, so the whole way counts.
        loop {
            let rows = reader.simple_query("SELECT n FROM v WHERE v = 1").await?;
            let seen =
                rows.iter().find_map(|m| if let SimpleQueryMessage::Row(row) = m { row.get(0)?.parse::<usize>().ok() } else { None });
            match seen {
                Some(seen) if seen == n + 1 => break,
                Some(seen) if seen > n + 1 => bail!("{seen} rows are visible after {} inserts", n + 1),
                Some(_) | None => {}
            }
        }
        visible.push(start.elapsed());
    }
    report(args, "INSERT until answered (durable)", answered);
    report(args, "INSERT until visible in a view to others", visible);

    let mut times = Vec::new();
    for _ in 0..args.statements {
        let start = clock::now();
        reader.simple_query("SELECT * FROM t WHERE k = 7").await?;
        times.push(start.elapsed());
    }
    report(args, "SELECT by key", times);

    clock::sleep(Duration::from_secs(2)).await;
    let cpu = process::cpu_seconds();
    clock::sleep(Duration::from_secs(args.idle)).await;
    let share = (process::cpu_seconds() - cpu) / args.idle as f64 * 100.0;
    if args.json {
        println!("{}", json!({"bench": "idle", "percent_of_a_core": share, "rss_bytes": process::rss_bytes()}));
    } else {
        println!("idle: {share:.2} % of a core, {} MiB resident", process::rss_bytes() >> 20);
    }
    Ok(())
}

fn report(args: &Args, what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    if args.json {
        println!("{}", json!({"bench": "latency", "what": what, "statements": times.len(), "p50_ms": p50, "p99_ms": p99, "max_ms": max}));
    } else {
        println!("{what}: p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms, {} statements", times.len());
    }
}
