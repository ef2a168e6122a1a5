//! `eddyline bench nexmark`: Nexmark queries through the whole engine: source, actors, store, durable checkpoints.
//!
//! One query runs in one process (several are run as children), so that CPU time and peak memory are its own. The clock runs from the
//! statement that creates the query until a checkpoint behind its last row is committed.

use super::process;
use crate::config::Flags;
use crate::{Node, logging, runtime};
use anyhow::{Context, Result, anyhow, bail};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use clap::{Parser, ValueEnum};
use eddyline_connect::nexmark::Kind;
use rand::RngExt;
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

/// How long a run may make no progress before it is given up.
const STALL: Duration = Duration::from_secs(60);

/// Rows of a preloaded chunk.
const CHUNK_ROWS: usize = 4096;

/// Name, tables read, text.
type Query = (&'static str, &'static [&'static str], &'static str);

const QUERIES: &[Query] = &[
    ("q0", &["bid"], include_str!("../../benches/nexmark/q0.sql")),
    ("q1", &["bid"], include_str!("../../benches/nexmark/q1.sql")),
    ("q2", &["bid"], include_str!("../../benches/nexmark/q2.sql")),
    ("q3", &["auction", "person"], include_str!("../../benches/nexmark/q3.sql")),
    ("q4", &["auction", "bid"], include_str!("../../benches/nexmark/q4.sql")),
    ("q8", &["person", "auction"], include_str!("../../benches/nexmark/q8.sql")),
    ("q14", &["bid"], include_str!("../../benches/nexmark/q14.sql")),
    ("q17", &["bid"], include_str!("../../benches/nexmark/q17.sql")),
    ("q20", &["bid", "auction"], include_str!("../../benches/nexmark/q20.sql")),
    ("q22", &["bid"], include_str!("../../benches/nexmark/q22.sql")),
    // Not of Nexmark: many live groups that change all the time.
    ("agg", &[PAIRS], "SELECT k, count(*) AS n, sum(v) AS total FROM pairs GROUP BY k"),
];

/// The input of `agg`: random keys and values.
const PAIRS: &str = "pairs";

/// Columns of the three tables, in the generator's order.
pub const TABLES: [(&str, &str); 3] = [
    (
        "person",
        "id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR, date_time TIMESTAMP, extra VARCHAR",
    ),
    (
        "auction",
        "id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR",
    ),
    ("bid", "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP, extra VARCHAR"),
];

/// What the query's result goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sink {
    /// Counted and forgotten
    Blackhole,
    /// A materialized view
    View,
}

/// Arguments of `eddyline bench nexmark`.
#[derive(Parser)]
pub struct Args {
    /// Queries, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "q0,q1,q2,q3,q4,q8")]
    queries: Vec<String>,
    /// Events of all three kinds together
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// Where the result goes
    #[arg(long, value_enum, default_value = "blackhole")]
    sink: Sink,
    /// A folder with person.parquet, auction.parquet and bid.parquet instead of the generator
    #[arg(long, value_name = "DIR")]
    input: Option<String>,
    /// Generates all events before the clock starts: the figure is the engine's alone
    #[arg(long)]
    preload: bool,
    /// Live groups of `agg`
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// One JSON object per query
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Runs the benchmark.
pub fn run(args: Args) -> Result<()> {
    for name in &args.queries {
        if !QUERIES.iter().any(|(known, ..)| known == name) {
            let known: Vec<&str> = QUERIES.iter().map(|(n, ..)| *n).collect();
            bail!("there is no query {name}; there are {}", known.join(", "));
        }
    }
    if let [only] = args.queries.as_slice() {
        let query = QUERIES.iter().find(|(name, ..)| name == only).expect("checked above");
        return one(&args, query);
    }
    // The same command line once for each query: CPU time and peak memory are then that query's.
    let program = std::env::current_exe()?;
    for name in &args.queries {
        let mut words: Vec<String> = std::env::args().skip(1).collect();
        match words.iter().position(|w| w == "--queries" || w.starts_with("--queries=")) {
            Some(i) if words[i] == "--queries" => words[i + 1] = name.clone(),
            Some(i) => words[i] = format!("--queries={name}"),
            None => words.extend(["--queries".to_owned(), name.clone()]),
        }
        let status = Command::new(&program).args(words).status()?;
        if !status.success() {
            bail!("{name} failed");
        }
    }
    Ok(())
}

fn one(args: &Args, query: &Query) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("eddyline-bench-").tempdir()?;
    let config = args.flags.clone().with_log("warn").with_free_ports().with_data_dir(directory.path()).resolve()?;
    logging::install(&config.log)?;
    runtime()?.block_on(async {
        let node = Node::start(config).await?;
        let url = format!("postgres://root@{}/dev", node.pg_address());
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        let driver = eddyline_env::spawn::task("bench connection", async move {
            let _ = connection.await;
        });
        let line = measure(args, query, &node, &client).await;
        drop(client);
        driver.abort();
        node.shutdown().await?;
        report(args, &line?);
        Ok(())
    })
}

fn report(args: &Args, line: &serde_json::Value) {
    if args.json {
        println!("{line}");
        return;
    }
    let get = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
    println!(
        "{:>4}  {:>9.0} events/s  {:>9.0} events/s per core  {:>7.2} s  {:>7.2} CPU s  {:>6.0} MiB  {} rows",
        line["query"].as_str().unwrap_or(""),
        get("events_per_second"),
        get("events") / get("cpu_seconds"),
        get("seconds"),
        get("cpu_seconds"),
        get("peak_rss_bytes") / (1 << 20) as f64,
        line["result_rows"],
    );
}

fn kind(table: &str) -> Kind {
    match table {
        "person" => Kind::Person,
        "auction" => Kind::Auction,
        _ => Kind::Bid,
    }
}

/// Creates the sources; gives the rows that the query will read.
async fn sources(args: &Args, query: &Query, client: &Client) -> Result<u64> {
    let mut rows = 0;
    let splits = args.flags.resolve()?.parallelism;
    if query.1 == [PAIRS] {
        eddyline_connect::preload::put(PAIRS, pairs(args.events, args.keys));
        let options = format!("connector = 'preload', preload.name = '{PAIRS}', preload.split.num = '{splits}'");
        client.batch_execute(&format!("CREATE SOURCE {PAIRS} (k BIGINT, v BIGINT) WITH ({options}) FORMAT PLAIN ENCODE NATIVE")).await?;
        return Ok(args.events);
    }
    for (table, columns) in TABLES.iter().filter(|(t, _)| query.1.contains(t)) {
        let options = if let Some(folder) = &args.input {
            format!("connector = 'file', path = '{folder}/{table}.parquet') FORMAT PLAIN ENCODE PARQUET")
        } else if args.preload {
            let kind = kind(table);
            let chunks = eddyline_connect::nexmark::chunks(kind, args.events, CHUNK_ROWS).map_err(|e| anyhow!("{e}"))?;
            rows += kind.count_in(args.events);
            eddyline_connect::preload::put(table, chunks);
            format!("connector = 'preload', preload.name = '{table}', preload.split.num = '{splits}') FORMAT PLAIN ENCODE NATIVE")
        } else {
            rows += kind(table).count_in(args.events);
            format!(
                "connector = 'nexmark', nexmark.table.type = '{table}', nexmark.event.num = '{}', nexmark.split.num = '{splits}') FORMAT PLAIN ENCODE NATIVE",
                args.events
            )
        };
        client
            .batch_execute(&format!("CREATE SOURCE {table} ({columns}) WITH ({options}"))
            .await
            .with_context(|| format!("source {table}"))?;
    }
    Ok(rows)
}

/// Chunks of (k, v): every key comes once before the first comes again, then in random order.
fn pairs(rows: u64, keys: u64) -> Vec<RecordBatch> {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("v", DataType::Int64, true)]));
    let mut random = eddyline_env::random::seeded(1);
    let mut row = 0;
    let mut chunks = Vec::new();
    while row < rows {
        let numbers: Vec<u64> = (row..rows.min(row + CHUNK_ROWS as u64)).collect();
        row += numbers.len() as u64;
        // Multiplying by an odd number permutes the numbers below a power of two; as keys they only have to be different and spread.
        let key = |n: u64, r: u64| (if n < keys { n } else { r % keys }).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        let k: Int64Array = numbers.iter().map(|n| Some(key(*n, random.random()))).collect();
        let v: Int64Array = numbers.iter().map(|n| Some((n % 1000) as i64)).collect();
        chunks.push(RecordBatch::try_new(schema.clone(), vec![Arc::new(k) as ArrayRef, Arc::new(v)]).expect("columns of one length"));
    }
    chunks
}

async fn measure(args: &Args, query: &Query, node: &Node, client: &Client) -> Result<serde_json::Value> {
    let (name, _, text) = query;
    let mut wanted = sources(args, query, client).await?;
    if args.input.is_some() {
        wanted = u64::MAX;
    }
    let cpu = process::cpu_seconds();
    let started = eddyline_env::clock::now();
    let create = match args.sink {
        Sink::Blackhole => format!("CREATE SINK result AS {text} WITH (connector = 'blackhole')"),
        Sink::View => format!("CREATE MATERIALIZED VIEW result AS {text}"),
    };
    client.batch_execute(&create).await.with_context(|| format!("{name}: {create}"))?;
    let rows = until_read(node, wanted).await?;
    client.batch_execute("FLUSH").await?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = process::cpu_seconds() - cpu;
    let figures = node.figures();
    let result_rows = figures.values().map(|f| f.rows_out).sum::<u64>();
    let events = if args.input.is_some() { rows } else { args.events };
    let barriers = node.barrier_figures().await;
    Ok(json!({
        "bench": "nexmark", "query": name, "events": events, "seconds": seconds,
        "events_per_second": events as f64 / seconds, "cpu_seconds": cpu_seconds,
        "peak_rss_bytes": process::peak_rss_bytes(), "rss_bytes": process::rss_bytes(), "result_rows": result_rows,
        "checkpoints": barriers.checkpoints, "barrier_p99_ms": barriers.p99_ms,
    }))
}

/// Waits until the job has taken all rows (or, where their number is not known, takes no more).
async fn until_read(node: &Node, wanted: u64) -> Result<u64> {
    let mut last = (0, eddyline_env::clock::now());
    loop {
        let read = node.figures().values().map(|f| f.rows_in).sum::<u64>();
        if read >= wanted {
            return Ok(read);
        }
        if read != last.0 {
            last = (read, eddyline_env::clock::now());
        } else if wanted == u64::MAX && read > 0 && last.1.elapsed() > Duration::from_secs(2) {
            return Ok(read);
        } else if last.1.elapsed() > STALL {
            bail!("no row was read for {} s: {read} of {wanted}", STALL.as_secs());
        }
        eddyline_env::clock::sleep(Duration::from_millis(5)).await;
    }
}
