//! Golden files: what an earlier version of the program wrote must open for ever. `EDDYLINE_BLESS=1` writes the file of a new format version.

use super::read::SstFile;
use super::write::SstBuilder;
use crate::block::{Block, Epochs};
use crate::cache::Cache;
use crate::merge::MergeOptions;
use crate::source::{FileChain, MergeReader, Source};
use arrow::array::*;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};
use bytes::Bytes;
use eddyline_objects::Objects;
use eddyline_protocol::SstInfo;
use eddyline_types::{Epoch, TableId};
use std::collections::VecDeque;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/sst-v1.sst")
}

/// Table 3: keys of one length, one epoch, a column of every kind. Table 8: keys of many lengths, many versions, tombstones.
fn blocks() -> Vec<(TableId, Block)> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("int", Arc::new(Int64Array::from(vec![Some(1), None, Some(-3)]))),
        ("small", Arc::new(Int16Array::from(vec![1, 2, 3]))),
        ("float", Arc::new(Float64Array::from(vec![0.5, f64::INFINITY, -0.0]))),
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("text", Arc::new(StringArray::from(vec![Some("a"), Some(""), None]))),
        ("bytes", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\0x"), None, Some(b"")]))),
        ("numeric", Arc::new(Decimal128Array::from(vec![Some(12345), None, Some(-1)]).with_precision_and_scale(38, 10).unwrap())),
        ("time", Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3]).with_timezone("UTC"))),
        ("date", Arc::new(Date32Array::from(vec![1, 2, 3]))),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None, Some(vec![])]))),
        (
            "struct",
            Arc::new(StructArray::from(vec![(
                Arc::new(Field::new("x", DataType::Int32, true)),
                Arc::new(Int32Array::from(vec![7, 8, 9])) as ArrayRef,
            )])),
        ),
    ];
    let wide = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let first = Block {
        keys: BinaryArray::from_iter_values([[0u8, 1], [0, 2], [1, 0]]),
        epochs: Epochs::Same(Epoch(77)),
        tombstones: None,
        rows: wide,
    };
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Timestamp(TimeUnit::Microsecond, None), false)]));
    let values: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![10, 11, 12, 13, 14]));
    let second = Block {
        keys: BinaryArray::from_iter_values([&b""[..], b"a", b"a", b"a", b"much longer key"]),
        epochs: Epochs::Each(vec![5u64, 9, 7, 2, 4].into()),
        tombstones: Some(vec![false, true, false, false, false].into()),
        rows: RecordBatch::try_new(schema, vec![values]).unwrap(),
    };
    vec![(TableId(3), first), (TableId(8), second)]
}

fn build() -> (Bytes, SstInfo) {
    let mut builder = SstBuilder::new(64).unwrap();
    for (table, block) in blocks() {
        builder.start_table(table, &block.rows.schema()).unwrap();
        builder.add(block).unwrap();
    }
    builder.finish("sst/golden".into()).unwrap().unwrap()
}

async fn open(bytes: Bytes, info: SstInfo) -> Arc<SstFile> {
    let objects = Objects::open("memory://").unwrap();
    objects.put("sst/golden", bytes).await.unwrap();
    Arc::new(SstFile::new(Arc::new(info), objects, Cache::new(1 << 20)))
}

async fn values_at(file: &Arc<SstFile>, epoch: u64, reverse: bool, keep_tombstones: bool) -> Vec<(Vec<u8>, i64, bool)> {
    let range = (Bound::Unbounded, Bound::Unbounded);
    let chain = FileChain {
        table: TableId(8),
        files: VecDeque::from([file.clone()]),
        range: range.clone(),
        columns: None,
        schema: None,
        reverse,
        ahead: 1,
        keep: 1,
        ready: VecDeque::new(),
        current: None,
    };
    let visible = Epoch(epoch);
    let options = MergeOptions { visible, range, keep_tombstones, reverse, keys: true, batch_rows: 2, slice_rows: 2, epoch: visible };
    let mut reader = MergeReader::new(vec![Source::Files(Box::new(chain))], options);
    let mut rows = vec![];
    while let Some(block) = reader.next().await.unwrap() {
        let values: &TimestampMicrosecondArray = block.rows.column(0).as_primitive();
        rows.extend((0..block.len()).map(|r| (block.key(r).to_vec(), values.value(r), block.is_tombstone(r))));
    }
    rows
}

async fn check(file: Arc<SstFile>) {
    let expected = &blocks()[0].1;
    let section = file.section(TableId(3)).await.unwrap().unwrap();
    assert_eq!(section.schema, expected.rows.schema());
    let numbers = 0..section.index.blocks.len();
    let read = file.blocks(TableId(3), &section, numbers, None).await.unwrap();
    let read = super::write::join(&read).unwrap();
    assert_eq!((&read.keys, &read.rows), (&expected.keys, &expected.rows));
    assert_eq!(read.epoch_range(), (Epoch(77), Epoch(77)));
    let projected = file.blocks(TableId(3), &section, 0..1, Some(&[10, 0])).await.unwrap();
    assert_eq!(projected[0].rows, expected.rows.slice(0, projected[0].len()).project(&[10, 0]).unwrap());
    assert!(file.section(TableId(4)).await.unwrap().is_none());

    let row = |key: &[u8], value| (key.to_vec(), value, false);
    let (empty, a, long) = (row(b"", 10), |v| row(b"a", v), row(b"much longer key", 14));
    for (epoch, shown) in [
        (u64::MAX, vec![empty.clone(), long.clone()]),
        (9, vec![empty.clone(), long.clone()]),
        (8, vec![empty.clone(), a(12), long.clone()]),
        (6, vec![empty.clone(), a(13), long.clone()]),
        (4, vec![a(13), long.clone()]),
        (2, vec![a(13)]),
        (1, vec![]),
    ] {
        assert_eq!(values_at(&file, epoch, false, false).await, shown, "at {epoch}");
        let mut back = values_at(&file, epoch, true, false).await;
        back.reverse();
        assert_eq!(back, shown, "at {epoch}, backwards");
    }
    assert!(values_at(&file, 9, false, true).await.contains(&(b"a".to_vec(), 11, true)));
}

#[tokio::test]
async fn what_is_written_is_read() {
    let (bytes, info) = build();
    assert_eq!((info.rows, info.tombstones, info.epochs), (8, 1, (Epoch(2), Epoch(77))));
    check(open(bytes, info).await).await;
}

#[tokio::test]
async fn the_golden_file_of_version_1_opens() {
    if std::env::var_os("EDDYLINE_BLESS").is_some() && !path().exists() {
        std::fs::write(path(), build().0).unwrap();
    }
    let bytes = Bytes::from(std::fs::read(path()).unwrap());
    let info = SstInfo { size_bytes: bytes.len() as u64, ..build().1 };
    check(open(bytes, info).await).await;
}
