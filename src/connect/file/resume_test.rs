//! A reader that is stopped and resumed anywhere gives the rows and errors of one that never stopped: checked on random files.

use super::cases_test::{errors, read_all, rows, spec};
use crate::{Offsets, SourceBatch};
use arrow::array::{Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use eddyline_env::random::seeded;
use eddyline_protocol::SourceSpec;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Reads with a new reader after random batches, drops calls in the middle, forgets batches that were not "committed".
async fn read_with_stops(spec: &SourceSpec, shards: u32, rng: &mut SmallRng) -> Vec<SourceBatch> {
    let (mut batches, mut offsets) = (vec![], Offsets::new());
    let mut unfinished: Vec<u32> = (0..shards).collect();
    while !unfinished.is_empty() {
        let at = rng.random_range(0..unfinished.len());
        let mut reader = crate::open(spec, unfinished[at], shards, offsets.clone()).await.unwrap();
        for _ in 0..rng.random_range(1..8) {
            if rng.random_range(0..4) == 0 {
                // A call that is dropped before it answers.
                let _ = eddyline_env::clock::timeout(Duration::ZERO, async { reader.next(7).await.is_ok() && std::future::pending().await })
                    .await as Option<bool>;
                // What it may have read is lost with it: as after a crash, a new reader goes on at the offsets.
                reader = crate::open(spec, unfinished[at], shards, offsets.clone()).await.unwrap();
            }
            match reader.next(rng.random_range(1..50)).await.unwrap() {
                None => {
                    unfinished.remove(at);
                    break;
                }
                Some(batch) => {
                    offsets.extend(batch.offsets.clone());
                    batches.push(batch);
                }
            }
        }
    }
    batches
}

fn sorted(batches: &[SourceBatch]) -> (Vec<String>, Vec<String>) {
    let mut rows = rows(batches);
    rows.sort();
    let mut errors: Vec<_> =
        errors(batches).into_iter().map(|e| format!("{:?} {} {:?}", e.source_position, e.message, e.payload)).collect();
    errors.sort();
    (rows, errors)
}

fn random_csv(rng: &mut SmallRng) -> String {
    let end = if rng.random() { "\r\n" } else { "\n" };
    let mut text = format!("{}id,name,amount,at{end}", if rng.random() { "\u{feff}" } else { "" });
    for i in 0..rng.random_range(0..200) {
        text += &match rng.random_range(0..14) {
            0 => format!("{i},\"a\n{}\"\"b\",1.5,2024-01-01 00:00:00", "x".repeat(rng.random_range(0..90))),
            1 => format!("{i},too,few"),
            2 => format!("x{i},bad,1,"),
            3 => format!("{i},\"q\"z,1,"),
            4 => String::new(),
            5 => format!("{i},{},1,", "long".repeat(rng.random_range(0..80))),
            6 if rng.random_range(0..3) == 0 => format!("{i},\"open,1,"),
            _ => format!("{i},né{i},{}.25,2024-02-0{} 10:00:00", rng.random_range(0..1000), rng.random_range(1..9)),
        };
        text += end;
    }
    if rng.random() {
        text.truncate(text.trim_end().len());
    }
    text
}

fn random_ndjson(rng: &mut SmallRng) -> String {
    let mut text = String::new();
    for i in 0..rng.random_range(0..200) {
        text += &match rng.random_range(0..8) {
            0 => "{\"id\":".to_owned(),
            1 => String::new(),
            2 => format!("{{\"name\":\"{}\"}}", "y".repeat(rng.random_range(0..400))),
            _ => format!("{{\"id\":{i},\"name\":\"n\\u00e9\",\"amount\":{}.5}}", rng.random_range(0..100)),
        };
        text.push('\n');
    }
    text
}

fn write_parquet(path: &Path, rng: &mut SmallRng) {
    let schema = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, true), Field::new("id", DataType::Int32, true)]));
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rng.random_range(10..100))).build();
    let mut writer = ArrowWriter::try_new(std::fs::File::create(path).unwrap(), schema.clone(), Some(properties)).unwrap();
    let n = rng.random_range(0..500);
    let names: StringArray = (0..n).map(|i| Some(format!("n{i}"))).collect();
    let ids: Int32Array = (0..n).map(|i| (i % 7 != 0).then_some(i)).collect();
    writer.write(&RecordBatch::try_new(schema, vec![Arc::new(names), Arc::new(ids)]).unwrap()).unwrap();
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stops_lose_and_repeat_nothing() {
    let base = eddyline_env::random::next_u64() % 1_000_000;
    for seed in base..base + 60 {
        let mut rng = seeded(seed);
        let folder = tempfile::tempdir().unwrap();
        let kind = ["csv", "json", "parquet"][(seed % 3) as usize];
        for n in 0..rng.random_range(1..4) {
            let path = folder.path().join(format!("part-{n}.{kind}"));
            match kind {
                "csv" => std::fs::write(&path, random_csv(&mut rng)).unwrap(),
                "json" => std::fs::write(&path, random_ndjson(&mut rng)).unwrap(),
                _ => write_parquet(&path, &mut rng),
            }
        }
        let path = folder.path().join("part-*");
        let spec = spec(path.to_str().unwrap(), kind, &[("bounded", "true"), ("max_record_bytes", "250")], &[]);
        let (whole, _) = read_all(&spec, Offsets::new()).await;
        let shards = rng.random_range(1..3);
        let parts = read_with_stops(&spec, shards, &mut rng).await;
        assert_eq!(sorted(&parts), sorted(&whole), "seed {seed}, {kind}");
    }
}

/// An independent reading of simple files: every line split at commas, no quotes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_gives_every_line_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.csv");
    let mut text = String::from("id,name,amount,at\n");
    let mut wanted = vec![];
    for i in 0..150_000 {
        text += &format!("{i},some name of row {i} that takes a little room,{i}.50,2024-01-01 00:00:{:02}\n", i % 60);
        wanted.push(format!("{i}|some name of row {i} that takes a little room|{i}.50|2024-01-01 00:00:{:02}", i % 60));
    }
    assert!(text.len() > 2 * (4 << 20), "several ranges are read");
    std::fs::write(&path, &text).unwrap();
    let spec = spec(path.to_str().unwrap(), "csv", &[("bounded", "true")], &[]);
    let mut rng = seeded(7);
    let (mut batches, mut offsets, mut done) = (vec![], Offsets::new(), false);
    while !done {
        let mut reader = crate::open(&spec, 0, 1, offsets.clone()).await.unwrap();
        for _ in 0..rng.random_range(5..30) {
            let Some(batch) = reader.next(4096).await.unwrap() else {
                done = true;
                break;
            };
            offsets.extend(batch.offsets.clone());
            batches.push(batch);
        }
    }
    assert_eq!(rows(&batches), wanted);
    assert!(errors(&batches).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_loses_no_row_of_the_same_reader() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..20 {
        std::fs::write(folder.path().join(format!("{n:02}.csv")), format!("id,name,amount,at\n{n},a,1,\n{n},b,1,\n")).unwrap();
    }
    let path = folder.path().join("*.csv");
    let spec = spec(path.to_str().unwrap(), "csv", &[("bounded", "true")], &[]);
    let mut reader = crate::open(&spec, 0, 1, Offsets::new()).await.unwrap();
    let mut batches = vec![];
    loop {
        // Most calls are dropped while a request is in flight.
        match eddyline_env::clock::timeout(Duration::from_micros(20), reader.next(1)).await {
            None => {}
            Some(batch) => match batch.unwrap() {
                Some(batch) => batches.push(batch),
                None => break,
            },
        }
    }
    let wanted: Vec<_> = (0..20).flat_map(|n| [format!("{n}|a|1.00|NULL"), format!("{n}|b|1.00|NULL")]).collect();
    assert_eq!(rows(&batches), wanted);
}
