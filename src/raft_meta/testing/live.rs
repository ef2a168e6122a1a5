//! The whole service over a real log in a temporary directory, with an executor without actors.

use super::{FakeExecutor, FakeStore, graph, relation};
use crate::{CoordinatorConfig, Meta, MetaConfig};
use eddyline_protocol::control::ExecutorEvent;
use eddyline_protocol::{BarrierKind, JobStatus, Mutation, VersionDelta};
use eddyline_types::{Epoch, JobId, ObjectId, Result, SqlState};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

async fn start(dir: &Path) -> (Meta, Arc<FakeExecutor>, FakeStore) {
    let meta = Meta::open(dir, MetaConfig::default()).await.unwrap();
    let (executor, events) = FakeExecutor::new(Duration::from_millis(1));
    let store = FakeStore::default();
    meta.start(executor.clone(), events, store.clone()).await.unwrap();
    assert!(meta.wait_ready(LONG).await);
    (meta, executor, store)
}

async fn create(meta: &Meta, name: &str, reads: &[ObjectId]) -> Result<ObjectId> {
    meta.create(relation(name, reads), Some(graph(reads))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ddl_survives_restarts_and_names_are_unique() {
    let dir = tempfile::tempdir().unwrap();
    let (meta, executor, _) = start(dir.path()).await;
    let t = create(&meta, "t", &[]).await.unwrap();
    let u = create(&meta, "u", &[]).await.unwrap();
    let v = create(&meta, "v", &[t, u]).await.unwrap();
    let taken = create(&meta, "v", &[t]).await.unwrap_err();
    assert_eq!((taken.sqlstate(), taken.message()), (SqlState::DUPLICATE_TABLE, "relation \"v\" already exists"));
    let error = meta.drop_relations(vec![t]).await.unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::DEPENDENT_OBJECTS);
    assert_eq!(error.detail(), Some("materialized view v depends on table t"));
    let domains = meta.status().await.unwrap().domains;
    assert_eq!(domains.len(), 1, "the view merged the domains of its tables: {domains:?}");
    let attach = executor
        .calls
        .lock()
        .barriers
        .iter()
        .any(|(b, jobs)| matches!(b.mutation.as_deref(), Some(Mutation::Attach { edges }) if edges.len() == 2) && jobs.len() == 3);
    assert!(attach);
    let before = meta.catalog();
    assert_eq!(before.relations[&t].table.map(|x| x.0), Some(1));
    assert_eq!(before.relations[&u].table.map(|x| x.0), Some(3));
    assert_eq!(before.jobs[&v.into()].status, JobStatus::Running);
    meta.shutdown(LONG).await.unwrap();
    drop(meta);

    let (meta, executor, store) = start(dir.path()).await;
    assert_eq!(meta.catalog().relations, before.relations);
    assert_eq!(executor.calls.lock().running.len(), 3);
    assert!(store.registered.lock().len() >= 7);
    meta.drop_relations(vec![v]).await.unwrap();
    assert_eq!(meta.status().await.unwrap().domains.len(), 2, "the tables are apart again");
    assert!(!executor.calls.lock().running.contains_key(&v.into()));
    meta.drop_relations(vec![t, u]).await.unwrap();
    assert!(meta.catalog().relations.is_empty() && meta.version().committed.is_empty());
    let w = create(&meta, "v", &[]).await.unwrap();
    assert!(w > v, "numbers are never reused");
    meta.shutdown(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_waited_for_and_idle_domains_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (meta, executor, _) = start(dir.path()).await;
    let t = create(&meta, "t", &[]).await.unwrap();
    eddyline_env::clock::sleep(Duration::from_millis(600)).await;
    let idle = executor.calls.lock().barriers.len();
    eddyline_env::clock::sleep(Duration::from_millis(500)).await;
    assert_eq!(executor.calls.lock().barriers.len(), idle, "an idle domain gets no barriers");

    executor.calls.lock().rows = 5;
    meta.request_checkpoint(t.into()).await.unwrap();
    meta.flush(LONG).await.unwrap();
    let epoch = executor.calls.lock().barriers.last().unwrap().0.epoch;
    meta.wait_committed(t.into(), epoch, LONG).await.unwrap();
    assert!(meta.frontiers().jobs[&JobId::from(t)].committed >= epoch);
    assert!(meta.version().committed.values().all(|e| *e >= epoch));

    // Rows alone bring barriers, and within the interval a checkpoint.
    executor.calls.lock().rows = 1;
    let from = executor.calls.lock().barriers.len();
    executor.send(ExecutorEvent::Wake { job: t.into() });
    eddyline_env::clock::sleep(Duration::from_millis(1600)).await;
    let kinds: Vec<BarrierKind> = executor.calls.lock().barriers[from..].iter().map(|(b, _)| b.kind).collect();
    assert!(kinds.contains(&BarrierKind::Plain) && kinds.contains(&BarrierKind::Checkpoint), "{kinds:?}");

    let error = meta.wait_committed(t.into(), Epoch::MAX, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    assert!(!meta.commit_compaction(VersionDelta { removed: vec!["gone".into()], ..VersionDelta::default() }).await.unwrap());
    let history = meta.barriers().await.unwrap();
    assert!(history.windows(2).all(|w| w[0].epoch < w[1].epoch));
    assert!(history.iter().any(|r| r.commit_us.is_some()));
    meta.shutdown(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_roll_back_and_repeated_ones_quarantine_only_what_is_downstream() {
    let dir = tempfile::tempdir().unwrap();
    let config = CoordinatorConfig { max_failures: 2, ..CoordinatorConfig::default() };
    let meta = Meta::open(dir.path(), MetaConfig { coordinator: config, ..MetaConfig::default() }).await.unwrap();
    let (executor, events) = FakeExecutor::new(Duration::from_millis(1));
    meta.start(executor.clone(), events, FakeStore::default()).await.unwrap();
    let t = create(&meta, "t", &[]).await.unwrap();
    let v = create(&meta, "v", &[t]).await.unwrap();
    let w = create(&meta, "w", &[v]).await.unwrap();
    let broken_id = w.0 + 1;
    executor.calls.lock().broken.insert(JobId(broken_id));
    let error = create(&meta, "x", &[t]).await.unwrap_err();
    assert!(error.message().contains("broken job"), "{error}");
    assert!(!meta.catalog().relations.contains_key(&ObjectId(broken_id)));

    for round in 0..2 {
        let generation = meta.frontiers().jobs[&JobId::from(v)].generation;
        assert_eq!(generation, round);
        executor.calls.lock().failing.insert(v.into());
        let flushed = meta.flush(LONG).await.unwrap_err();
        assert_eq!(flushed.sqlstate(), SqlState::SERIALIZATION_FAILURE);
        eddyline_env::clock::sleep(Duration::from_millis(50)).await;
        assert!(meta.wait_ready(LONG).await);
    }
    let status = |id: ObjectId| meta.catalog().jobs[&id.into()].status.clone();
    let mut catalog = meta.watch_catalog();
    tokio::time::timeout(LONG, catalog.wait_for(|c| c.jobs[&w.into()].status != JobStatus::Running)).await.unwrap().unwrap();
    assert!(matches!(status(v), JobStatus::Quarantined { reason } if reason.contains("shard failed")));
    assert_eq!(status(t), JobStatus::Running);
    assert!(meta.wait_ready(LONG).await);
    assert_eq!(executor.calls.lock().running.keys().copied().collect::<Vec<_>>(), [JobId::from(t)]);
    meta.flush(LONG).await.unwrap();
    let error = create(&meta, "y", &[v]).await.unwrap_err();
    assert_eq!(error.sqlstate(), SqlState::NOT_IN_PREREQUISITE_STATE);
    meta.drop_relations(vec![v, w]).await.unwrap();
    meta.shutdown(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_and_damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (meta, ..) = start(dir.path()).await;
    let error = Meta::open(dir.path(), MetaConfig::default()).await.map(|_| ()).unwrap_err();
    assert!(error.message().contains("in use by another process"), "{error}");
    create(&meta, "t", &[]).await.unwrap();
    meta.shutdown(LONG).await.unwrap();
    drop(meta);
    let file = dir.path().join("meta/raft.redb");
    let good = std::fs::read(&file).unwrap();
    let mut worse: Vec<Vec<u8>> = vec![b"not a database".to_vec(), good[..good.len() / 2].to_vec(), vec![0; good.len()]];
    let mut flipped = good.clone();
    for at in (4096..flipped.len()).step_by(97) {
        flipped[at] ^= 0x5a;
    }
    worse.push(flipped);
    for bytes in worse {
        std::fs::write(&file, bytes).unwrap();
        let error = Meta::open(dir.path(), MetaConfig::default()).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), eddyline_types::ErrorKind::Corruption, "{error}");
        assert!(error.message().contains("raft.redb is damaged"), "{error}");
    }
    std::fs::write(&file, good).unwrap();
    let (meta, ..) = start(dir.path()).await;
    assert_eq!(meta.catalog().relations.len(), 1);
    meta.shutdown(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_replace_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = MetaConfig::default();
    config.raft.snapshot_after = 20;
    let meta = Meta::open(dir.path(), config.clone()).await.unwrap();
    let (executor, events) = FakeExecutor::new(Duration::ZERO);
    meta.start(executor, events, FakeStore::default()).await.unwrap();
    let t = create(&meta, "t", &[]).await.unwrap();
    for _ in 0..200 {
        meta.flush(LONG).await.unwrap();
    }
    let committed = meta.version();
    let applied = meta.status().await.unwrap().last_applied;
    meta.shutdown(LONG).await.unwrap();
    drop(meta);
    let meta = Meta::open(dir.path(), config).await.unwrap();
    assert_eq!(meta.version().committed, committed.committed);
    assert_eq!(meta.version().files().count(), committed.files().count());
    assert!(meta.catalog().relations.contains_key(&t) && applied.unwrap() > 200);
    meta.shutdown(LONG).await.unwrap();
}
