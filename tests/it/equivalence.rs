//! Incremental = batch, through the whole engine: random tables, changes, views and moments of creation; after every change each view must
//! equal its query, run by the batch engine on the same snapshot. A failure prints its seed: `EDDYLINE_SEED=n` repeats it alone and
//! prints its statements.

mod generator;

use crate::harness::{Server, nightly, rows, tell};
use generator::{Generator, View};
use tokio_postgres::Client;

/// Views (cases) that a quick run checks.
const QUICK_CASES: usize = 2000;
const VIEWS_PER_SEED: usize = 8;
const STEPS_PER_SEED: usize = 10;

/// Runs one seed; gives how many comparisons were made, or what went wrong.
async fn one_seed(client: &Client, seed: u64, trace: bool) -> Result<usize, String> {
    let mut generator = Generator::new(seed);
    let execute = async |sql: &str| {
        if trace {
            println!("{sql};");
        }
        client.batch_execute(sql).await.map_err(|e| format!("seed {seed}: {sql}\n{}", tell(&e)))
    };
    for sql in generator.tables() {
        execute(&sql).await?;
    }
    let mut views: Vec<View> = Vec::new();
    let mut compared = 0;
    let mut step = 0;
    while step < STEPS_PER_SEED || views.len() < VIEWS_PER_SEED {
        step += 1;
        // Views come before, between and after the data.
        if views.len() < VIEWS_PER_SEED && generator.chance(70) {
            let view = generator.view(&views);
            execute(&format!("CREATE MATERIALIZED VIEW {} AS {}", view.name, view.query)).await?;
            views.push(view);
        }
        for sql in generator.changes() {
            execute(&sql).await?;
        }
        for view in &views {
            let sorted = async |sql: &str| {
                let mut all = rows(client, sql).await;
                all.sort();
                all
            };
            let incremental = sorted(&format!("SELECT * FROM {}", view.name)).await;
            let batch = sorted(&view.query).await;
            if incremental != batch {
                let missing: Vec<_> = batch.iter().filter(|r| !incremental.contains(r)).take(5).collect();
                let extra: Vec<_> = incremental.iter().filter(|r| !batch.contains(r)).take(5).collect();
                return Err(format!(
                    "seed {seed}, step {step}: {} AS {}\nview has {} rows, batch {}; missing {missing:?}, wrong {extra:?}",
                    view.name,
                    view.query,
                    incremental.len(),
                    batch.len()
                ));
            }
            compared += 1;
        }
    }
    for name in views.iter().rev().map(|v| &v.name) {
        execute(&format!("DROP MATERIALIZED VIEW {name}")).await?;
    }
    for sql in generator.drops() {
        execute(&sql).await?;
    }
    Ok(compared)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_their_batch_answers() {
    // The property is about results, not about disks: memory-backed files make fsync cheap.
    let fast = std::path::Path::new("/dev/shm");
    let dir = if fast.is_dir() { tempfile::tempdir_in(fast) } else { tempfile::tempdir() }.expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    let only = std::env::var("EDDYLINE_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..(QUICK_CASES / VIEWS_PER_SEED) as u64 * if nightly() { 10 } else { 1 },
    };
    let mut cases = 0;
    let mut compared = 0;
    let mut failures = Vec::new();
    for seed in seeds {
        match one_seed(&client, seed, only.is_some()).await {
            Ok(n) => compared += n,
            Err(failure) => {
                failures.push(failure);
                // The next seed starts with clean tables on a new server only if this one's can be dropped.
                break;
            }
        }
        cases += VIEWS_PER_SEED;
    }
    println!("{cases} views, {compared} comparisons");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(only.is_some() || cases >= QUICK_CASES);
}
