//! Damaged and missing objects: always an error of kind `Corruption` that names the object, never a wrong answer, never a panic.

use crate::common;
use crate::common::{Fixture, Row, table_desc};
use eddyline_protocol::Version;
use eddyline_store::{ScanOptions, Store, StoreConfig};
use eddyline_types::{Epoch, ErrorKind, Result, TableId};
use std::sync::Arc;

fn config() -> StoreConfig {
    StoreConfig { block_size_bytes: 1_500, ..StoreConfig::default() }
}

fn rows() -> Vec<Row> {
    let value = |i: i64| if i % 9 == 4 { None } else { Some(i * i) };
    (0..60).map(|i| (vec![0, 1, i as u8, 7], value(i))).collect()
}

/// A store with one file of two tables; the file's name and bytes.
async fn one_file(fixture: &Fixture) -> (Arc<Version>, String, bytes::Bytes) {
    let store = fixture.open(Arc::default()).await;
    for table in [1, 2] {
        store.write(Epoch(5), common::write(table, &rows())).unwrap();
    }
    // Rows below keep the tombstones alive.
    let delta = store.upload(&[TableId(1), TableId(2)], Epoch(5)).await.unwrap();
    let version = Arc::new(Version::default().apply(&delta).unwrap());
    let name = version.files().next().unwrap().object.clone();
    let bytes = fixture.objects.get(&name).await.unwrap();
    (version, name, bytes)
}

async fn read_all(store: &Store) -> Result<usize> {
    let snapshot = store.snapshot();
    let mut count = 0;
    for table in [1, 2] {
        count += common::scan(&snapshot, table, 5, ScanOptions::default()).await?.len();
        let keys: Vec<Vec<u8>> = rows().into_iter().map(|(k, _)| k).collect();
        count += common::get(&snapshot, table, 5, &keys).await?.len();
    }
    Ok(count)
}

#[tokio::test]
async fn any_flipped_bit_is_an_error_that_names_the_object() {
    let fixture = Fixture::new("memory://flips", config(), vec![table_desc(1), table_desc(2)]);
    let (version, name, bytes) = one_file(&fixture).await;
    let live = rows().iter().filter(|(_, v)| v.is_some()).count();
    assert_eq!(read_all(&fixture.open(version.clone()).await).await.unwrap(), live * 4);
    assert!(bytes.len() > 3_000);
    for at in 0..bytes.len() {
        let damaged = Fixture::new("memory://damaged", config(), vec![table_desc(1), table_desc(2)]);
        let mut copy = bytes.to_vec();
        copy[at] ^= 1 << (at % 8);
        damaged.objects.put(&name, copy.into()).await.unwrap();
        let error = read_all(&damaged.open(version.clone()).await).await.expect_err("a flipped bit was not seen");
        assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}");
        assert!(error.message().contains(&name), "byte {at}: {error}");
        // A compaction must not launder it either.
    }
}

#[tokio::test]
async fn a_block_is_named_with_its_table() {
    let fixture = Fixture::new("memory://named", config(), vec![table_desc(1), table_desc(2)]);
    let (version, name, bytes) = one_file(&fixture).await;
    let damaged = Fixture::new("memory://named-damaged", config(), vec![table_desc(1), table_desc(2)]);
    let mut copy = bytes.to_vec();
    copy[40] ^= 4;
    damaged.objects.put(&name, copy.into()).await.unwrap();
    let store = damaged.open(version).await;
    let error = common::scan(&store.snapshot(), 1, 5, ScanOptions::default()).await.unwrap_err();
    assert!(error.message().contains("block 0 of table 1"), "{error}");
    // The other table of the file can be read.
    assert!(common::scan(&store.snapshot(), 2, 5, ScanOptions::default()).await.is_ok());
}

#[tokio::test]
async fn cut_and_missing_objects_are_errors() {
    let fixture = Fixture::new("memory://cut", config(), vec![table_desc(1), table_desc(2)]);
    let (version, name, bytes) = one_file(&fixture).await;
    for len in [0, 1, 19, 100, bytes.len() / 2, bytes.len() - 1] {
        let damaged = Fixture::new("memory://cut-damaged", config(), vec![table_desc(1), table_desc(2)]);
        damaged.objects.put(&name, bytes.slice(..len)).await.unwrap();
        read_all(&damaged.open(version.clone()).await).await.unwrap_err();
        // Cut, but the version believes it: a version and an object that agree on a wrong size.
        let mut version = version.as_ref().clone();
        let mut info = version.levels[0][0].as_ref().clone();
        info.size_bytes = len as u64;
        version.levels[0][0] = Arc::new(info);
        let error = read_all(&damaged.open(Arc::new(version)).await).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{len}: {error}");
    }
    let empty = Fixture::new("memory://empty", config(), vec![table_desc(1), table_desc(2)]);
    let error = read_all(&empty.open(version).await).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.message().contains("missing"), "{error}");
}

#[tokio::test]
async fn a_compaction_of_damaged_files_fails_and_changes_nothing() {
    let fixture = Fixture::new("memory://launder", config(), vec![table_desc(1), table_desc(2)]);
    let store = fixture.open(Arc::default()).await;
    let mut version = Version::default();
    for epoch in 1..=8 {
        store.write(Epoch(epoch), common::write(1, &rows())).unwrap();
        version = version.apply(&store.upload(&[TableId(1)], Epoch(epoch)).await.unwrap()).unwrap();
        store.install(Arc::new(version.clone()));
    }
    let victim = version.levels[0][3].object.clone();
    let mut bytes = fixture.objects.get(&victim).await.unwrap().to_vec();
    bytes[10] ^= 1;
    fixture.objects.delete(&victim).await.unwrap();
    fixture.objects.put(&victim, bytes.into()).await.unwrap();
    let before = fixture.objects.list("").await.unwrap().len();
    let error = fixture.open(Arc::new(version.clone())).await.compact_once().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.message().contains(&victim));
    assert_eq!(fixture.objects.list("").await.unwrap().len(), before);
}
