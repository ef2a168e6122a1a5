//! kill -9 between any two steps of a write: a child process works on a directory and dies at a fail point; what it had been told to be
//! done must be there afterwards, and what is there must be whole.

use super::{FakeExecutor, FakeStore, graph, relation};
use crate::{Meta, MetaConfig};
use eddyline_protocol::JobStatus;
use eddyline_types::{Epoch, ObjectId};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const DIR: &str = "EDDYLINE_CRASH_DIR";
const WAIT: Duration = Duration::from_secs(20);

fn config() -> MetaConfig {
    let mut config = MetaConfig::default();
    config.raft.snapshot_after = 8;
    config
}

async fn start(dir: &Path) -> Meta {
    let meta = Meta::open(dir, config()).await.unwrap();
    let (executor, events) = FakeExecutor::new(Duration::from_millis(1));
    meta.start(executor, events, FakeStore::default()).await.unwrap();
    assert!(meta.wait_ready(WAIT).await);
    meta
}

/// Creates, flushes and drops until it is killed; writes down every answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "only run by its parent"]
async fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    eddyline_env::failpoint::install_from_env().unwrap();
    let dir = Path::new(&dir);
    let mut answers = OpenOptions::new().create(true).append(true).open(dir.join("answers")).unwrap();
    let meta = start(dir).await;
    let mut tables: Vec<ObjectId> = meta.catalog().relations.keys().copied().collect();
    for n in 0.. {
        let id = meta.create(relation(&format!("t{}-{n}", std::process::id()), &[]), Some(graph(&[]))).await.unwrap();
        writeln!(answers, "created {id}").unwrap();
        tables.push(id);
        meta.flush(WAIT).await.unwrap();
        let epoch = meta.frontiers().jobs[&id.into()].committed;
        writeln!(answers, "committed {id} {epoch}").unwrap();
        if n % 3 == 2 {
            let id = tables.remove(0);
            writeln!(answers, "dropping {id}").unwrap();
            meta.drop_relations(vec![id]).await.unwrap();
            writeln!(answers, "dropped {id}").unwrap();
        }
        assert!(n < 1000, "the fail point was never hit");
    }
}

/// Compares what the child was told with what is there.
async fn check(dir: &Path, newest: &mut Epoch) {
    let meta = Meta::open(dir, config()).await.unwrap();
    let catalog = meta.catalog();
    let text = std::fs::read_to_string(dir.join("answers")).unwrap_or_default();
    let (mut created, mut dropping, mut dropped) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let id = ObjectId(words[1].parse().unwrap());
        match words[0] {
            "created" => drop(created.insert(id)),
            "dropping" => drop(dropping.insert(id)),
            "dropped" => drop(dropped.insert(id)),
            "committed" => {
                let epoch = Epoch(words[2].parse().unwrap());
                *newest = (*newest).max(epoch);
                if let Some(job) = catalog.jobs.get(&id.into()) {
                    let durable = meta.version().committed[&job.graph.tables[0].id];
                    assert!(durable >= epoch, "table {id}: {epoch} was acknowledged, {durable} is there");
                }
            }
            other => panic!("{other}"),
        }
    }
    for id in created.difference(&dropping) {
        assert_eq!(catalog.jobs.get(&(*id).into()).map(|j| &j.status), Some(&JobStatus::Running), "created {id}");
    }
    for id in dropped {
        assert!(!catalog.relations.contains_key(&id), "dropped {id}");
    }
    meta.shutdown(WAIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_wherever_the_process_dies() {
    let dir = tempfile::tempdir().unwrap();
    let mut newest = Epoch::ZERO;
    let points = ["meta.before_write", "meta.log_append", "meta.log_appended", "meta.after_write", "meta.snapshot"];
    for round in 0..3 {
        for (n, point) in points.iter().enumerate() {
            let hits = if *point == "meta.snapshot" { 1 + round } else { 2 + 5 * round + n };
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "testing::crash::child", "--ignored", "--nocapture"])
                .env(DIR, dir.path())
                .env("EDDYLINE_FAILPOINTS", format!("{point}=exit({hits})"))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .output()
                .unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            // Aborted, not failed: a failed test has an exit code.
            assert_eq!(output.status.code(), None, "{point}={hits}: {} {stderr}", output.status);
            check(dir.path(), &mut newest).await;
        }
    }
    // Epochs go on above all that was ever acknowledged.
    let meta = start(dir.path()).await;
    let id = meta.create(relation("last", &[]), Some(graph(&[]))).await.unwrap();
    assert!(meta.frontiers().jobs[&id.into()].collected > newest && newest > Epoch::ZERO);
    meta.shutdown(WAIT).await.unwrap();
}
