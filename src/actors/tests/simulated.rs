//! The whole engine in the deterministic loop: random schedules, statements, barriers, jobs that join and leave, and rollbacks.
//! At every collected barrier all views equal what a naive model computes.

use super::graphs::{self, AGG_ROWS, AGG_VIEW, JOIN_ROWS, JOIN_VIEW, SOURCE_ROWS, SOURCE_VIEW, TABLE, TABLE_ROWS};
use super::harness::{self, Committed, DOMAIN, KEYS, agg_view, barrier, join_view, read, read_offsets, source_view};
use super::sim::Sim;
use crate::hub::Hub;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use eddyline_protocol::control::{BuildJob, DmlChanges, ExecutorEvent};
use eddyline_protocol::{BarrierKind, Mutation};
use eddyline_store::Store;
use eddyline_types::{Chunk, Epoch, JobId, Result};
use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

const CLIENTS: usize = 3;
const SOURCE_LIMIT: u64 = 60;

/// What one statement does: `Some(v)` puts the key's row, `None` removes it.
type Statement = Vec<(i64, Option<i64>)>;

struct World {
    seed: u64,
    random: SmallRng,
    sim: Sim,
    hub: Arc<Hub>,
    store: Store,
    events: mpsc::UnboundedReceiver<ExecutorEvent>,
    committed: Committed,
    attempt: u64,
    last_epoch: Epoch,
    /// Injected and not collected.
    in_flight: Vec<(Epoch, BarrierKind)>,
    uploading: Vec<Epoch>,
    jobs: Vec<JobId>,
    /// When the aggregate joined, and whether it has read everything.
    agg_since: Option<Epoch>,
    agg_complete: bool,
    parallelism: u32,
    /// Statement in flight of each client, and what succeeded in which epoch. Clients use keys of their own.
    clients: Vec<Option<(Statement, BoxFuture<'static, Result<Epoch>>)>>,
    history: Vec<(Epoch, Statement)>,
    collected: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = eddyline_env::random::seeded(seed);
        let (sim, host) = Sim::new(random.random());
        let store = block_on(harness::open_store());
        let (tx, events) = mpsc::unbounded_channel();
        let config = harness::config(harness::repeating(SOURCE_LIMIT, 3));
        let hub = Hub::new(store.clone(), config, tx, Box::new(host));
        World {
            seed,
            random,
            sim,
            hub,
            store,
            events,
            committed: Committed::default(),
            attempt: 0,
            last_epoch: Epoch(0),
            in_flight: vec![],
            uploading: vec![],
            jobs: vec![TABLE, SOURCE_VIEW, JOIN_VIEW],
            agg_since: None,
            agg_complete: false,
            parallelism: 2,
            clients: (0..CLIENTS).map(|_| None).collect(),
            history: vec![],
            collected: 0,
        }
    }

    fn job(&self, id: JobId) -> BuildJob {
        let job = match id {
            TABLE => graphs::table_job(self.parallelism),
            SOURCE_VIEW => graphs::source_job(self.parallelism),
            AGG_VIEW => graphs::agg_job(self.parallelism, true),
            _ => graphs::join_job(self.parallelism),
        };
        let is_new = id == AGG_VIEW && self.agg_since.is_none_or(|since| since > self.committed.epoch);
        BuildJob { job, state_epoch: if is_new { Epoch::ZERO } else { self.committed.epoch } }
    }

    fn start(&mut self) {
        self.attempt += 1;
        if self.agg_since.is_none() {
            self.parallelism = self.random.random_range(1..4);
        }
        let jobs = self.jobs.iter().map(|j| self.job(*j)).collect();
        let (hub, attempt) = (self.hub.clone(), self.attempt);
        self.sim.block_on(async move { hub.build(DOMAIN, attempt, jobs).await }).unwrap();
        self.inject(BarrierKind::Initial, None);
    }

    fn inject(&mut self, kind: BarrierKind, mutation: Option<Mutation>) {
        let epoch = Epoch(self.last_epoch.0 + self.random.random_range(1..4));
        self.in_flight.push((epoch, kind));
        self.hub.inject(self.attempt, self.jobs.clone().into(), barrier(self.last_epoch, epoch, kind, mutation));
        self.last_epoch = epoch;
    }

    fn rollback(&mut self) {
        let (hub, jobs) = (self.hub.clone(), self.jobs.clone());
        self.sim.block_on(async move { hub.reset(jobs).await });
        // Replies that were sent before the end count, as do their epochs if they were committed.
        self.poll_clients();
        assert!(self.clients.iter().all(Option::is_none), "seed {}: a statement outlived its table's shards", self.seed);
        while self.events.try_recv().is_ok() {}
        self.in_flight.clear();
        self.uploading.clear();
        self.history.retain(|(epoch, _)| *epoch <= self.committed.epoch);
        if self.agg_since.is_some_and(|since| since > self.committed.epoch) {
            // Joined after the last commit: its CREATE is rolled back, too.
            self.agg_since = None;
            self.jobs.retain(|j| *j != AGG_VIEW);
        }
        self.agg_complete = false;
        self.start();
    }

    fn attach(&mut self) {
        let job = self.job(AGG_VIEW);
        let edge = job.job.graph.edges[0].clone();
        let (hub, attempt) = (self.hub.clone(), self.attempt);
        self.sim.block_on(async move { hub.build(DOMAIN, attempt, vec![job]).await }).unwrap();
        self.jobs.push(AGG_VIEW);
        let kind = if self.random.random() { BarrierKind::Plain } else { BarrierKind::Checkpoint };
        self.inject(kind, Some(Mutation::Attach { edges: vec![(edge, self.parallelism)] }));
        self.agg_since = Some(self.last_epoch);
    }

    fn statement(&mut self, client: usize) {
        let mut statement = Statement::new();
        for _ in 0..self.random.random_range(1..6) {
            let key = self.random.random_range(0..KEYS) / CLIENTS as i64 * CLIENTS as i64 + client as i64;
            if !statement.iter().any(|(k, _)| *k == key) {
                statement.push((key, self.random.random_bool(0.7).then(|| self.random.random_range(0..4))));
            }
        }
        let (puts, removals): (Statement, Statement) = statement.iter().partition(|(_, v)| v.is_some());
        let chunk = |rows: &Statement, weight: i64| {
            let k = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))) as ArrayRef;
            let v = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1.unwrap_or(0)))) as ArrayRef;
            let batch = RecordBatch::try_new(graphs::kv(), vec![k, v]).unwrap();
            Chunk::new(batch, Int64Array::from(vec![weight; rows.len()])).unwrap()
        };
        let mut changes = DmlChanges::default();
        if !puts.is_empty() {
            changes.inserts.push(chunk(&puts, 1));
        }
        if !removals.is_empty() {
            changes.changes.push(chunk(&removals, -1));
        }
        let hub = self.hub.clone();
        self.clients[client] = Some((statement, async move { hub.write(TABLE.into(), changes).await }.boxed()));
    }

    fn poll_clients(&mut self) {
        for client in &mut self.clients {
            let Some((statement, future)) = client else { continue };
            if let Some(result) = future.now_or_never() {
                if let Ok(epoch) = result {
                    self.history.push((epoch, std::mem::take(statement)));
                }
                *client = None;
            }
        }
    }

    fn model(&self, epoch: Epoch) -> BTreeMap<i64, Vec<i64>> {
        let mut table = BTreeMap::new();
        for (_, statement) in self.history.iter().filter(|(e, _)| *e <= epoch) {
            for (k, v) in statement {
                match v {
                    Some(v) => table.insert(*k, vec![*v]),
                    None => table.remove(k),
                };
            }
        }
        table
    }

    fn verify(&self, epoch: Epoch, kind: BarrierKind) {
        let what = format!("seed {}, epoch {epoch} ({kind:?})", self.seed);
        let table = block_on(read(&self.store, TABLE_ROWS, epoch));
        assert_eq!(table, self.model(epoch), "{what}: the table");
        let source = block_on(read(&self.store, SOURCE_ROWS, epoch));
        if kind == BarrierKind::Checkpoint {
            let offsets = block_on(read_offsets(&self.store, epoch));
            assert_eq!(source, source_view(&offsets), "{what}: the view over the source");
        }
        if self.jobs.contains(&JOIN_VIEW) {
            assert_eq!(block_on(read(&self.store, JOIN_ROWS, epoch)), join_view(&table, &source), "{what}: the join");
        }
        if self.agg_complete && self.jobs.contains(&AGG_VIEW) {
            assert_eq!(block_on(read(&self.store, AGG_ROWS, epoch)), agg_view(&table), "{what}: the aggregate");
        }
    }

    fn handle_events(&mut self) {
        self.poll_clients();
        while let Ok(event) = self.events.try_recv() {
            match event {
                ExecutorEvent::Collected { domain, attempt, epoch, backfilled, .. } => {
                    assert_eq!((domain, attempt), (DOMAIN, self.attempt));
                    let (expected, kind) = self.in_flight.remove(0);
                    assert_eq!(epoch, expected, "seed {}: barriers are collected in order", self.seed);
                    if self.agg_since.is_some() {
                        self.agg_complete |= backfilled.contains(&AGG_VIEW);
                    }
                    if kind == BarrierKind::Checkpoint {
                        self.uploading.push(epoch);
                    }
                    self.collected += 1;
                    self.verify(epoch, kind);
                }
                ExecutorEvent::Uploaded { epoch, delta, .. } => {
                    assert_eq!(epoch, self.uploading.remove(0), "seed {}: uploads are answered in order", self.seed);
                    let tables: Vec<_> = self.jobs.iter().flat_map(|j| self.job(*j).job.graph.tables.clone()).map(|t| t.id).collect();
                    let named = |t| delta.committed.contains(&(t, epoch));
                    let missing = tables.iter().filter(|t| !named(**t)).count();
                    assert!(missing == 0 || self.agg_since.is_some(), "seed {}: {missing} tables are not named", self.seed);
                    self.committed.commit(&self.store, epoch, &delta);
                }
                ExecutorEvent::Failed { operator, error, .. } => panic!("seed {}: {operator} failed: {error}", self.seed),
                ExecutorEvent::Wake { .. } => {}
            }
        }
    }

    fn run(&mut self, steps: usize) {
        self.start();
        for step in 0..steps {
            match self.random.random_range(0..1000) {
                0..60 => {
                    let client = self.random.random_range(0..CLIENTS);
                    if self.clients[client].is_none() {
                        self.statement(client);
                    }
                }
                60..90 if self.in_flight.len() < 3 => {
                    let checkpoint = self.random.random_bool(0.4) && self.uploading.len() < 3;
                    self.inject(if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Plain }, None);
                }
                90..92 => self.rollback(),
                92..95 if self.agg_since.is_none() && self.in_flight.is_empty() && step > 200 => self.attach(),
                _ => {
                    if !self.sim.is_idle() {
                        self.sim.step();
                    }
                }
            }
            self.handle_events();
        }
        self.settle(None);
        self.settle(None);
        if self.jobs.contains(&AGG_VIEW) {
            assert!(self.agg_complete, "seed {}: the backfill does not end", self.seed);
        }
        let rows: u64 = block_on(read_offsets(&self.store, self.last_epoch)).values().sum();
        assert!(rows >= SOURCE_LIMIT, "seed {}: the source was read to its end, not {rows} rows", self.seed);
        // The join leaves; the others go on.
        self.settle(Some(Mutation::Drop { jobs: vec![JOIN_VIEW] }));
        assert!(!self.hub.figures().contains_key(&JOIN_VIEW));
        self.settle(None);
        let (hub, jobs) = (self.hub.clone(), self.jobs.clone());
        self.sim.block_on(async move { hub.reset(jobs).await });
        assert!(self.hub.figures().is_empty());
    }

    /// Waits until nothing moves, then for a checkpoint and its commit.
    fn settle(&mut self, mutation: Option<Mutation>) {
        while !self.sim.is_idle() {
            self.sim.step();
            self.handle_events();
        }
        let dropped = matches!(mutation, Some(Mutation::Drop { .. }));
        self.inject(BarrierKind::Checkpoint, mutation);
        if dropped {
            self.jobs.retain(|j| *j != JOIN_VIEW);
        }
        while self.committed.epoch < self.last_epoch {
            assert!(self.sim.step(), "seed {}: nothing runs, but the checkpoint is not there", self.seed);
            self.handle_events();
        }
        assert!(self.clients.iter().all(Option::is_none), "seed {}: a statement was not answered by a barrier", self.seed);
    }
}

#[test]
fn views_equal_the_model_at_every_barrier_for_random_schedules() {
    let _context = super::runtime().enter();
    let first: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let count: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(40);
    let mut collected = 0;
    for seed in first..first + count {
        let mut world = World::new(seed);
        world.run(3000);
        collected += world.collected;
    }
    assert!(collected as u64 > count * 20, "only {collected} barriers");
}
