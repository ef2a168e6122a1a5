//! CPU per row of the write and read paths. `cargo test --release -p eddyline-store bench -- --ignored --nocapture`.
//! CPU time of all threads of the process is counted: wall time on a shared machine says little.

use arrow::array::Array;
use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use eddyline_objects::Objects;
use eddyline_protocol::{TableDesc, Version};
use eddyline_store::{ScanOptions, Store, StoreConfig, TableWrite};
use eddyline_types::{Epoch, JobId, TableId};
use futures::TryStreamExt;
use rand::RngExt;
use std::sync::Arc;

fn desc() -> TableDesc {
    let schema = Schema::new((0..3).map(|i| Field::new(format!("c{i}"), DataType::Int64, true)).collect::<Vec<_>>());
    TableDesc { id: TableId(1), job: JobId(1), name: "t".into(), schema: Arc::new(schema), key: vec![], distribution: 0 }
}

/// 11-byte keys as the key codec gives for one BIGINT column: vnode, null tag, value.
fn key(id: u64) -> [u8; 11] {
    let vnode = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u16;
    let mut key = [0; 11];
    key[..2].copy_from_slice(&vnode.to_be_bytes());
    key[2] = 1;
    key[3..].copy_from_slice(&(id | 1 << 63).to_be_bytes());
    key
}

fn write(ids: &mut Vec<u64>, epoch: u64) -> TableWrite {
    ids.sort_by_key(|id| key(*id));
    ids.dedup();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| *id as i64))),
        Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| (id % 1000 + epoch) as i64))),
        Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| (id.wrapping_mul(epoch * 7919) >> 20) as i64))),
    ];
    TableWrite {
        table: TableId(1),
        keys: BinaryArray::from_iter_values(ids.iter().map(|id| key(*id))),
        rows: RecordBatch::try_new(desc().schema, columns).unwrap(),
        tombstones: None,
    }
}

/// Nanoseconds of CPU that all threads of the process have used, ended ones included; in steps of a tick (10 ms).
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name in parentheses: user time is field 12, system time 13 from there.
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().unwrap() * 10_000_000).sum()
}

struct Bench {
    store: Store,
    version: Arc<Version>,
}

impl Bench {
    async fn new(url: &str) -> Self {
        let version = Arc::new(Version::default());
        let store = Store::open(Objects::open(url).unwrap(), StoreConfig::default(), version.clone()).await.unwrap();
        store.register(&desc());
        Bench { store, version }
    }

    fn install(&mut self, delta: &eddyline_protocol::VersionDelta) {
        self.version = Arc::new(self.version.apply(delta).unwrap());
        self.store.install(self.version.clone());
    }
}

fn say(what: &str, rows: usize, nanos: u64) {
    println!(
        "{what:<44} {rows:>9} rows {:>8.1} ns CPU/row {:>9.0} k rows per CPU-second",
        nanos as f64 / rows as f64,
        rows as f64 * 1e6 / nanos as f64
    );
}

#[test]
#[ignore = "a benchmark: minutes, and only figures to look at"]
fn upload_compaction_scan_and_get() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let mut rng = eddyline_env::random::seeded(1);
        let mut bench = Bench::new(dir.path().to_str().unwrap()).await;
        let (mut rows, mut upload, mut compact, mut put) = (0, 0, 0, 0);
        let epochs = 24;
        for epoch in 1..=epochs {
            // 600,000 of 1,000,000 keys a second, from two shards.
            let mut ids: Vec<u64> = (0..900_000).map(|_| rng.random_range(0..1_000_000)).collect();
            let write = write(&mut ids, epoch);
            rows += write.keys.len();
            let middle = write.keys.len() / 2;
            let start = cpu_nanos();
            for (from, len) in [(0, middle), (middle, write.keys.len() - middle)] {
                let part = TableWrite { keys: write.keys.slice(from, len), rows: write.rows.slice(from, len), ..write.clone() };
                bench.store.write(Epoch(epoch), part).unwrap();
            }
            put += cpu_nanos() - start;
            let start = cpu_nanos();
            let delta = bench.store.upload(&[TableId(1)], Epoch(epoch)).await.unwrap();
            bench.install(&delta);
            upload += cpu_nanos() - start;
            let start = cpu_nanos();
            while let Some(delta) = bench.store.compact_once().await.unwrap() {
                bench.install(&delta);
            }
            compact += cpu_nanos() - start;
            bench.store.collect_garbage().await.unwrap();
        }
        say("write", rows, put);
        say("upload", rows, upload);
        say("compaction, per row uploaded", rows, compact);
        let size: u64 = bench.version.files().map(|f| f.size_bytes).sum();
        println!(
            "{} files, {} MB, levels {:?}",
            bench.version.files().count(),
            size >> 20,
            bench.version.levels.iter().map(Vec::len).collect::<Vec<_>>()
        );

        let snapshot = bench.store.snapshot();
        for (what, columns) in [("scan of several runs, 3 columns", None), ("scan of several runs, 1 column", Some(vec![1]))] {
            let start = cpu_nanos();
            let options = ScanOptions { columns, ..ScanOptions::default() };
            let batches: Vec<RecordBatch> = snapshot.scan(TableId(1), Epoch::MAX, options).try_collect().await.unwrap();
            say(what, batches.iter().map(|b| b.num_rows()).sum(), cpu_nanos() - start);
        }
        for (what, batch, hit) in
            [("get, batches of 1000, hit", 1000, true), ("get, one by one, hit", 1, true), ("get, batches of 1000, miss", 1000, false)]
        {
            let wanted = |rng: &mut rand::rngs::SmallRng| {
                let id = rng.random_range(0..1_000_000);
                key(if hit { id } else { id + 5_000_000 })
            };
            for warm in [true, false] {
                let count = 100_000;
                let keys: Vec<BinaryArray> =
                    (0..count / batch).map(|_| BinaryArray::from_iter_values((0..batch).map(|_| wanted(&mut rng)))).collect();
                let start = cpu_nanos();
                for keys in &keys {
                    snapshot.get(TableId(1), Epoch::MAX, keys, None).await.unwrap();
                }
                if !warm {
                    say(what, count, cpu_nanos() - start);
                }
            }
        }
    });
}

#[test]
#[ignore = "a benchmark: minutes, and only figures to look at"]
fn scan_of_one_run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut bench = Bench::new("memory://").await;
        let write = write(&mut (0..4_000_000).collect(), 1);
        bench.store.write(Epoch(1), write).unwrap();
        let delta = bench.store.upload(&[TableId(1)], Epoch(1)).await.unwrap();
        bench.install(&delta);
        let snapshot = bench.store.snapshot();
        for columns in [None, Some(vec![1])] {
            let start = cpu_nanos();
            let mut rows = 0;
            let mut stream = snapshot.scan(TableId(1), Epoch::MAX, ScanOptions { columns: columns.clone(), ..ScanOptions::default() });
            while let Some(batch) = stream.try_next().await.unwrap() {
                rows += batch.num_rows();
            }
            say(&format!("scan of one run, columns {columns:?}"), rows, cpu_nanos() - start);
        }
    });
}
