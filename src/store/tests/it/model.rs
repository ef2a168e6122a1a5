//! The store against a naive model: random writes, uploads, commits, rollbacks, compactions, garbage collections, restarts and
//! failures of the object store, with reads of all kinds at every readable epoch. A failure prints its seed; `EDDYLINE_SEED=n` runs it alone.

use crate::common;
use crate::common::{Fixture, Row, table_desc};
use eddyline_env::failpoint::{self, Action};
use eddyline_env::random::seeded;
use eddyline_objects::Objects;
use eddyline_protocol::{Version, VersionDelta};
use eddyline_store::{Snapshot, Store, StoreConfig};
use eddyline_types::{Epoch, TableId};
use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Tables of each domain.
const DOMAINS: [&[u32]; 2] = [&[1, 2], &[3]];

/// All versions of all rows.
type Rows = BTreeMap<(u32, Vec<u8>), Vec<(u64, Option<i64>)>>;

struct World {
    rng: SmallRng,
    fixture: Fixture,
    version: Arc<Version>,
    store: Store,
    rows: Rows,
    /// By domain: epochs written and not committed.
    open: [Vec<u64>; 2],
    committed: [u64; 2],
    sealed: [u64; 2],
    /// By domain: uploads that wait for their commit.
    uploads: [VecDeque<(u64, VersionDelta)>; 2],
    clock: u64,
    /// Snapshots that must not change, with what they show.
    held: Vec<(Snapshot, Rows, [u64; 2], [Vec<u64>; 2])>,
    faulty: bool,
}

impl World {
    async fn new(seed: u64, fixture: Fixture, faulty: bool) -> Self {
        let version = Arc::new(Version::default());
        let store = fixture.open(version.clone()).await;
        World {
            rng: seeded(seed),
            fixture,
            version,
            store,
            rows: Rows::new(),
            open: Default::default(),
            committed: [0; 2],
            sealed: [0; 2],
            uploads: Default::default(),
            clock: 10,
            held: vec![],
            faulty,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// One random step.
    async fn step(&mut self) {
        let domain = self.rng.random_range(0..2usize);
        let fails = self.faulty && self.chance(10);
        if fails {
            let point =
                ["objects.put", "objects.put.done", "objects.get", "objects.list", "objects.delete"][self.rng.random_range(0..5usize)];
            let times = self.rng.random_range(1..4);
            self.fixture.fail(point, Some(Action::Error(times)));
        }
        match self.rng.random_range(0..100) {
            0..40 => self.write(domain),
            40..55 => self.upload(domain).await,
            55..72 => self.commit(domain),
            72..76 => self.discard(domain),
            76..86 => self.compact().await,
            86..89 => self.reopen().await,
            89..92 => {
                let _ = self.store.collect_garbage().await;
            }
            92..95 => self.hold(),
            95..97 => {
                self.fixture.clear();
                self.check_held().await;
            }
            _ => {}
        }
        self.fixture.clear();
        for _ in 0..2 {
            let (domain, table) = [(0, 1), (0, 2), (1, 3)][self.rng.random_range(0..3usize)];
            self.check(domain, table).await;
        }
    }

    fn write(&mut self, domain: usize) {
        self.clock += self.rng.random_range(1..4);
        let epoch = self.clock;
        let style = self.rng.random_range(0..4);
        for table in DOMAINS[domain] {
            let count = [1, 5, 30, 120][style];
            let mut rows: BTreeMap<Vec<u8>, Option<i64>> = BTreeMap::new();
            for _ in 0..self.rng.random_range(0..=count) {
                let key = random_key(&mut self.rng);
                let value = if self.chance(25) { None } else { Some(self.rng.random_range(0..1000)) };
                rows.insert(key, value);
            }
            // Two shards: the vnode (the first two bytes) decides.
            let (low, high): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|(key, _)| key[1] < 2);
            for part in [high, low] {
                self.store.write(Epoch(epoch), common::write(*table, &part)).unwrap();
                for (key, value) in part {
                    self.rows.entry((*table, key)).or_default().push((epoch, value));
                }
            }
        }
        self.open[domain].push(epoch);
    }

    async fn upload(&mut self, domain: usize) {
        let Some(epoch) = self.open[domain].last().copied().filter(|e| *e > self.sealed[domain]) else { return };
        let tables: Vec<TableId> = DOMAINS[domain].iter().map(|t| TableId(*t)).collect();
        match self.store.upload(&tables, Epoch(epoch)).await {
            Ok(delta) => {
                self.sealed[domain] = epoch;
                self.uploads[domain].push_back((epoch, delta));
            }
            Err(e) => assert!(self.faulty, "{e}"),
        }
    }

    fn commit(&mut self, domain: usize) {
        let Some((epoch, delta)) = self.uploads[domain].pop_front() else { return };
        self.version = Arc::new(self.version.apply(&delta).expect("uploads remove nothing"));
        self.committed[domain] = epoch;
        self.open[domain].retain(|e| *e > epoch);
        self.store.install(self.version.clone());
    }

    fn forget_uncommitted(&mut self, domain: usize) {
        let committed = self.committed[domain];
        for ((table, _), versions) in &mut self.rows {
            if DOMAINS[domain].contains(table) {
                versions.retain(|(epoch, _)| *epoch <= committed);
            }
        }
        self.open[domain].clear();
        self.uploads[domain].clear();
        self.sealed[domain] = committed;
    }

    fn discard(&mut self, domain: usize) {
        let tables: Vec<TableId> = DOMAINS[domain].iter().map(|t| TableId(*t)).collect();
        self.store.discard(&tables);
        self.forget_uncommitted(domain);
    }

    async fn compact(&mut self) {
        match self.store.compact_once().await {
            Ok(Some(delta)) if self.chance(15) => self.store.abandon(&delta),
            Ok(Some(delta)) => {
                self.version = Arc::new(self.version.apply(&delta).expect("only compactions remove files, and one runs at a time"));
                self.store.install(self.version.clone());
            }
            Ok(None) => {}
            Err(e) => assert!(self.faulty, "{e}"),
        }
    }

    async fn reopen(&mut self) {
        // What is on disk must be enough: the version goes through its bytes' equal.
        self.version = Arc::new(self.version.as_ref().clone());
        self.held.clear();
        self.store = self.fixture.open(self.version.clone()).await;
        self.forget_uncommitted(0);
        self.forget_uncommitted(1);
    }

    fn hold(&mut self) {
        if self.held.len() < 3 {
            self.held.push((self.store.snapshot(), self.rows.clone(), self.committed, self.open.clone()));
        }
    }

    async fn check_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        for (snapshot, rows, committed, open) in held {
            let (domain, table) = [(0, 1), (1, 3)][self.rng.random_range(0..2usize)];
            let epoch = pick_epoch(&mut self.rng, committed[domain], &open[domain]);
            check_read(&mut self.rng, &snapshot, &rows, table, epoch).await;
        }
    }

    async fn check(&mut self, domain: usize, table: u32) {
        let epoch = pick_epoch(&mut self.rng, self.committed[domain], &self.open[domain]);
        let snapshot = self.store.snapshot();
        check_read(&mut self.rng, &snapshot, &self.rows, table, epoch).await;
        if self.committed[domain] > 0 {
            let old = snapshot.get(TableId(table), Epoch(self.committed[domain] - 1), &common::keys(&[]), None).await;
            assert_eq!(old.unwrap_err().kind(), eddyline_types::ErrorKind::Conflict);
        }
    }
}

fn random_key(rng: &mut SmallRng) -> Vec<u8> {
    let mut key = vec![0, rng.random_range(0..4)];
    match rng.random_range(0..3) {
        0 => key.extend_from_slice(&[1, rng.random_range(0..40)]),
        1 => key.extend_from_slice(format!("some-long-prefix-{}", rng.random_range(0..40)).as_bytes()),
        _ => key.extend_from_slice(&vec![0; rng.random_range(0..20)]),
    }
    key
}

/// A readable epoch: the committed one, one that was written later, or all.
fn pick_epoch(rng: &mut SmallRng, committed: u64, open: &[u64]) -> u64 {
    match rng.random_range(0..3) {
        0 => committed,
        1 => u64::MAX,
        _ => open.get(rng.random_range(0..open.len().max(1))).copied().unwrap_or(committed),
    }
}

/// What the model shows of a table at an epoch.
fn shown(rows: &Rows, table: u32, epoch: u64) -> Vec<(Vec<u8>, i64)> {
    let visible = |versions: &Vec<(u64, Option<i64>)>| versions.iter().rev().find(|(e, _)| *e <= epoch).and_then(|(_, value)| *value);
    let of_table = rows.range((table, vec![])..(table + 1, vec![]));
    of_table.filter_map(|((_, key), versions)| visible(versions).map(|v| (key.clone(), v))).collect()
}

async fn check_read(rng: &mut SmallRng, snapshot: &Snapshot, rows: &Rows, table: u32, epoch: u64) {
    let all = shown(rows, table, epoch);
    let (options, expected) = common::random_scan(rng, &all, random_key);
    let got = common::scan(snapshot, table, epoch, options.clone()).await.unwrap();
    assert_eq!(got, expected, "scan of table {table} at {epoch}: {options:?}");

    let mut wanted: Vec<Vec<u8>> = (0..rng.random_range(0..20)).map(|_| random_key(rng)).collect();
    if rng.random_range(0..2) == 0 {
        wanted.sort();
        wanted.dedup();
    }
    let expected: Vec<(usize, i64)> =
        wanted.iter().enumerate().filter_map(|(i, key)| all.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| (i, all[at].1))).collect();
    let got = common::get(snapshot, table, epoch, &wanted).await.unwrap();
    assert_eq!(got, expected, "get from table {table} at {epoch}");
}

async fn run(seed: u64, steps: usize, fixture: Fixture, faulty: bool) {
    let mut world = World::new(seed, fixture, faulty).await;
    for _ in 0..steps {
        world.step().await;
    }
    // In the end: no garbage but what is pending, and every file of the version is there.
    world.held.clear();
    world.discard(0);
    world.discard(1);
    world.store.collect_garbage().await.unwrap();
    let on_disk: BTreeSet<String> = world.fixture.objects.list("sst/").await.unwrap().into_iter().map(|o| o.name).collect();
    let named: BTreeSet<String> = world.version.files().map(|f| f.object.clone()).collect();
    if !faulty {
        assert_eq!(on_disk, named);
    }
    assert!(named.is_subset(&on_disk));
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("EDDYLINE_SEED") {
        Ok(seed) => vec![seed.parse().expect("EDDYLINE_SEED is a number")],
        Err(_) => (0..std::env::var("EDDYLINE_CASES").ok().and_then(|c| c.parse().ok()).unwrap_or(count)).collect(),
    }
}

fn all_seeds(name: &str, count: u64, steps: usize, faulty: bool, fixture: impl Fn(u64) -> Fixture) {
    for seed in seeds(count) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fixture = fixture(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(seed, steps, fixture, faulty))));
        if let Err(panic) = result {
            eprintln!("{name}: failed with EDDYLINE_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn config() -> StoreConfig {
    StoreConfig {
        block_size_bytes: 700,
        block_cache_bytes: 40_000,
        shared_buffer_bytes: 1 << 20,
        file_size_bytes: 2_500,
        garbage_age_ms: 0,
    }
}

#[test]
fn agrees_with_the_model_in_memory() {
    all_seeds("memory", 60, 150, false, |seed| {
        Fixture::new(&format!("memory://model-{seed}"), config(), vec![table_desc(1), table_desc(2), table_desc(3)])
    });
}

#[test]
fn agrees_with_the_model_when_the_object_store_fails() {
    all_seeds("faulty", 60, 150, true, |seed| {
        Fixture::new(&format!("memory://faulty-{seed}"), config(), vec![table_desc(1), table_desc(2), table_desc(3)])
    });
}

#[test]
fn agrees_with_the_model_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    all_seeds("disk", 4, 80, false, |seed| {
        Fixture::new(dir.path().join(seed.to_string()).to_str().unwrap(), config(), vec![table_desc(1), table_desc(2), table_desc(3)])
    });
}

#[test]
fn fail_points_are_set_for_one_store_only() {
    // The model's faults rely on it.
    failpoint::set("objects.put@elsewhere", Some(Action::Error(1)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let objects = Objects::open("memory://here").unwrap();
    runtime.block_on(objects.put("a", bytes::Bytes::new())).unwrap();
    failpoint::set("objects.put@elsewhere", None);
}
