//! The promises of `Store` one by one.

use crate::common;
use crate::common::{Fixture, table_desc};
use eddyline_env::failpoint::Action;
use eddyline_protocol::{Version, VersionDelta};
use eddyline_store::{ScanOptions, Store, StoreConfig};
use eddyline_types::{Epoch, ErrorKind, TableId};
use std::sync::Arc;

const T: TableId = TableId(1);

fn fixture(name: &str) -> Fixture {
    let config = StoreConfig { garbage_age_ms: 0, ..StoreConfig::default() };
    Fixture::new(&format!("memory://{name}"), config, vec![table_desc(1), table_desc(2)])
}

fn put(store: &Store, epoch: u64, key: u8, value: Option<i64>) {
    store.write(Epoch(epoch), common::write(1, &[(vec![0, 0, key], value)])).unwrap();
}

async fn all(store: &Store, epoch: u64) -> Vec<i64> {
    common::scan(&store.snapshot(), 1, epoch, ScanOptions::default()).await.unwrap().into_iter().map(|(_, v)| v).collect()
}

fn commit(store: &Store, version: &mut Arc<Version>, delta: &VersionDelta) {
    *version = Arc::new(version.apply(delta).unwrap());
    store.install(version.clone());
}

#[tokio::test]
async fn writes_are_readable_at_their_epoch_and_survive_their_commit() {
    let fixture = fixture("survive");
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    put(&store, 10, 1, Some(1));
    put(&store, 11, 1, Some(2));
    put(&store, 11, 2, Some(3));
    assert_eq!((all(&store, 9).await, all(&store, 10).await, all(&store, 11).await), (vec![], vec![1], vec![2, 3]));
    let delta = store.upload(&[T], Epoch(11)).await.unwrap();
    assert_eq!(delta.committed, [(T, Epoch(11))]);
    assert!(store.buffered_bytes() > 0, "readable until it is installed");
    commit(&store, &mut version, &delta);
    assert_eq!(store.buffered_bytes(), 0);
    assert_eq!(all(&store, 11).await, [2, 3]);
    put(&store, 12, 1, None);
    assert_eq!(all(&fixture.open(version.clone()).await, 11).await, [2, 3]);
    assert_eq!(all(&store, 12).await, [3]);
}

#[tokio::test]
async fn reads_below_the_committed_epoch_are_refused() {
    let fixture = fixture("below");
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    put(&store, 10, 1, Some(1));
    let before = store.snapshot();
    let delta = store.upload(&[T], Epoch(10)).await.unwrap();
    commit(&store, &mut version, &delta);
    let error = common::scan(&store.snapshot(), 1, 9, ScanOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(common::scan(&before, 1, 9, ScanOptions::default()).await.unwrap(), []);
}

#[tokio::test]
async fn writes_into_closed_epochs_and_wrong_writes_are_errors() {
    let fixture = fixture("closed");
    let store = fixture.open(Arc::default()).await;
    put(&store, 10, 1, Some(1));
    store.upload(&[T], Epoch(10)).await.unwrap();
    assert!(store.write(Epoch(10), common::write(1, &[(vec![0, 0, 9], Some(1))])).is_err());
    assert!(store.write(Epoch(11), common::write(9, &[(vec![0, 0, 9], Some(1))])).is_err(), "not registered");
    assert!(store.write(Epoch(11), common::write(1, &[(vec![2], Some(1)), (vec![1], Some(1))])).is_err(), "not ascending");
    assert!(store.write(Epoch(11), common::write(1, &[(vec![1], Some(1)), (vec![1], Some(1))])).is_err(), "twice");
    assert!(store.upload(&[T], Epoch(10)).await.is_err(), "uploaded before");
    // A key twice in one epoch by two writes is found when they meet.
    put(&store, 12, 1, Some(1));
    put(&store, 12, 1, Some(2));
    assert_eq!(store.upload(&[T], Epoch(12)).await.unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn an_idle_upload_writes_nothing() {
    let fixture = fixture("idle");
    let store = fixture.open(Arc::default()).await;
    let delta = store.upload(&[T], Epoch(10)).await.unwrap();
    assert!(delta.added.is_empty());
    assert_eq!(delta.committed, [(T, Epoch(10))]);
    assert!(fixture.objects.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn deletes_reach_below_and_leave_nothing_where_nothing_is_below() {
    let fixture = fixture("deletes");
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    put(&store, 1, 1, None);
    let delta = store.upload(&[T], Epoch(1)).await.unwrap();
    assert!(delta.added.is_empty(), "a tombstone above nothing is not written");
    commit(&store, &mut version, &delta);
    for epoch in 2..10 {
        put(&store, epoch, 1, Some(1));
        put(&store, epoch, epoch as u8 + 10, Some(epoch as i64));
        let delta = store.upload(&[T], Epoch(epoch)).await.unwrap();
        commit(&store, &mut version, &delta);
    }
    put(&store, 10, 1, None);
    let delta = store.upload(&[T], Epoch(10)).await.unwrap();
    assert_eq!(delta.added[0].1.tombstones, 1);
    commit(&store, &mut version, &delta);
    assert_eq!(all(&store, 10).await, (2..10).collect::<Vec<i64>>());
    let delta = store.compact_once().await.unwrap().expect("nine small files");
    commit(&store, &mut version, &delta);
    let files: Vec<_> = version.files().collect();
    assert_eq!((files.len(), files[0].tombstones, files[0].rows), (1, 0, 8));
    assert_eq!(all(&store, 10).await, (2..10).collect::<Vec<i64>>());
    assert!(store.compact_once().await.unwrap().is_none());
}

#[tokio::test]
async fn uploads_run_side_by_side_and_fail_together() {
    let fixture = fixture("together");
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    put(&store, 1, 1, Some(1));
    let first = store.upload(&[T], Epoch(1)).await.unwrap();
    put(&store, 2, 2, Some(2));
    let second = store.upload(&[T], Epoch(2)).await.unwrap();
    assert_eq!((first.added[0].1.rows, second.added[0].1.rows), (1, 1));
    put(&store, 3, 3, Some(3));
    fixture.fail("objects.put", Some(Action::Error(1)));
    assert_eq!(store.upload(&[T], Epoch(3)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    // The next one takes the rows of the one that failed, and not those of the ones that did not.
    put(&store, 4, 4, Some(4));
    let fourth = store.upload(&[T], Epoch(4)).await.unwrap();
    assert_eq!(fourth.added[0].1.rows, 2);
    for delta in [first, second, fourth] {
        commit(&store, &mut version, &delta);
    }
    assert_eq!(all(&fixture.open(version).await, 4).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_rollback_forgets_what_is_not_committed() {
    let fixture = fixture("rollback");
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    put(&store, 1, 1, Some(1));
    let delta = store.upload(&[T], Epoch(1)).await.unwrap();
    commit(&store, &mut version, &delta);
    put(&store, 2, 1, Some(2));
    store.upload(&[T], Epoch(2)).await.unwrap();
    put(&store, 3, 1, Some(3));
    store.discard(&[T]);
    assert_eq!((all(&store, 9).await, store.buffered_bytes()), (vec![1], 0));
    assert_eq!(store.collect_garbage().await.unwrap(), 1, "the upload that will not be committed");
    put(&store, 2, 2, Some(5));
    let delta = store.upload(&[T], Epoch(2)).await.unwrap();
    commit(&store, &mut version, &delta);
    assert_eq!(all(&store, 2).await, [1, 5]);
}

#[tokio::test]
async fn garbage_waits_for_readers_and_for_the_age_floor() {
    let fixture = fixture("garbage");
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    for epoch in 1..=8 {
        put(&store, epoch, epoch as u8, Some(epoch as i64));
        let delta = store.upload(&[T], Epoch(epoch)).await.unwrap();
        assert_eq!(store.collect_garbage().await.unwrap(), 0, "uploaded, not committed");
        commit(&store, &mut version, &delta);
    }
    let reader = store.snapshot();
    let delta = store.compact_once().await.unwrap().unwrap();
    assert_eq!(store.collect_garbage().await.unwrap(), 0, "compacted, not committed");
    assert!(store.compact_once().await.unwrap().is_none(), "one at a time");
    commit(&store, &mut version, &delta);
    assert_eq!(store.collect_garbage().await.unwrap(), 0, "a reader holds the old version");
    assert_eq!(common::scan(&reader, 1, 8, ScanOptions::default()).await.unwrap().len(), 8);
    drop(reader);
    assert_eq!(store.collect_garbage().await.unwrap(), 8);
    let young = StoreConfig { garbage_age_ms: 60_000, ..StoreConfig::default() };
    fixture.objects.put("sst/orphan", bytes::Bytes::new()).await.unwrap();
    let other = Store::open(fixture.objects.clone(), young, version.clone()).await.unwrap();
    // The memory store tells no age and the name neither: only the floor of a store without one takes it.
    let _ = other.collect_garbage().await.unwrap();
    store.collect_garbage().await.unwrap();
    assert_eq!(fixture.objects.list("sst/").await.unwrap().len(), 1);
    assert_eq!(all(&store, 8).await.len(), 8);
}

#[tokio::test]
async fn dropped_tables_leave_their_files() {
    let fixture = fixture("dropped");
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    put(&store, 1, 1, Some(1));
    let delta = store.upload(&[T], Epoch(1)).await.unwrap();
    commit(&store, &mut version, &delta);
    commit(&store, &mut version, &VersionDelta { dropped: vec![T], ..Default::default() });
    let delta = store.compact_once().await.unwrap().unwrap();
    assert!(delta.added.is_empty());
    commit(&store, &mut version, &delta);
    assert!(version.dropped.is_empty() && version.files().next().is_none());
    assert_eq!(store.collect_garbage().await.unwrap(), 1);
}

#[tokio::test]
async fn a_full_buffer_holds_writers_until_a_commit() {
    let config = StoreConfig { shared_buffer_bytes: 1, ..StoreConfig::default() };
    let fixture = Fixture::new("memory://full", config, vec![table_desc(1)]);
    let (store, mut version) = (fixture.open(Arc::default()).await, Arc::default());
    store.admit().await;
    put(&store, 1, 1, Some(1));
    let waits = store.admit();
    tokio::pin!(waits);
    assert!(futures::poll!(&mut waits).is_pending());
    let delta = store.upload(&[T], Epoch(1)).await.unwrap();
    assert!(futures::poll!(&mut waits).is_pending());
    commit(&store, &mut version, &delta);
    waits.await;
}

#[tokio::test]
async fn an_upload_that_is_dropped_half_way_is_taken_back() {
    let fixture = fixture("half");
    let store = fixture.open(Arc::default()).await;
    put(&store, 1, 1, Some(1));
    {
        let upload = store.upload(&[T], Epoch(1));
        tokio::pin!(upload);
        assert!(futures::poll!(&mut upload).is_pending());
    }
    assert_eq!(store.upload(&[T], Epoch(1)).await.unwrap().added[0].1.rows, 1);
}
