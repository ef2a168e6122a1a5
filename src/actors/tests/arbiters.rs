//! The engine on arbiters: the same graphs with real threads, failures, fairness and figures.
#![allow(clippy::disallowed_methods, reason = "the test starts tasks on its own runtime")]

use super::graphs::{self, AGG_ROWS, AGG_VIEW, JOIN_ROWS, JOIN_VIEW, SOURCE_ROWS, SOURCE_VIEW, TABLE, TABLE_ROWS, kv};
use super::harness::{self, Committed, DOMAIN, agg_view, barrier, join_view, read, read_offsets, source_view};
use crate::credit::{Budget, Credits};
use crate::inlet::{OpenSource, SourceOpening};
use crate::message::{Input, Message, Post};
use crate::shard::ShardActor;
use crate::worker::Worker;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use async_trait::async_trait;
use eddyline_connect::{SourceBatch, SourceReader};
use eddyline_env::{clock, spawn};
use eddyline_protocol::control::{BuildJob, DmlChanges, DmlSink, Executor, ExecutorEvent};
use eddyline_protocol::{BarrierKind, Job};
use eddyline_store::Store;
use eddyline_types::{Chunk, Epoch, Error, JobId, Result};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

const DEADLINE: Duration = Duration::from_secs(20);

struct Node {
    worker: Worker,
    store: Store,
    events: mpsc::UnboundedReceiver<ExecutorEvent>,
    jobs: Vec<Arc<Job>>,
    committed: Committed,
    last: Epoch,
    attempt: u64,
}

impl Node {
    async fn start(open: OpenSource, budget: Budget, rows: usize, jobs: Vec<Arc<Job>>) -> Node {
        let store = harness::open_store().await;
        let (tx, events) = mpsc::unbounded_channel();
        let mut config = harness::config(open);
        (config.budget, config.source_rows) = (budget, rows);
        let worker = Worker::start(config, store.clone(), tx).unwrap();
        let mut node = Node { worker, store, events, jobs, committed: Committed::default(), last: Epoch(0), attempt: 0 };
        node.build().await.unwrap();
        node
    }

    async fn build(&mut self) -> Result<()> {
        self.attempt += 1;
        let jobs = self.jobs.iter().map(|j| BuildJob { job: j.clone(), state_epoch: self.committed.epoch }).collect();
        self.worker.build(DOMAIN, self.attempt, jobs).await?;
        self.barrier(BarrierKind::Initial).await;
        Ok(())
    }

    fn ids(&self) -> Vec<JobId> {
        self.jobs.iter().map(|j| j.id).collect()
    }

    fn inject(&mut self, kind: BarrierKind) {
        let epoch = Epoch(self.last.0 + 1);
        self.worker.inject(self.attempt, self.ids().into(), barrier(self.last, epoch, kind, None));
        self.last = epoch;
    }

    /// A barrier, collected (and committed, if it is a checkpoint); gives the rows that entered.
    async fn barrier(&mut self, kind: BarrierKind) -> u64 {
        self.inject(kind);
        let mut rows = 0;
        loop {
            match self.event().await {
                ExecutorEvent::Collected { epoch, rows: entered, .. } => {
                    assert_eq!(epoch, self.last);
                    rows = entered;
                    if kind != BarrierKind::Checkpoint {
                        return rows;
                    }
                }
                ExecutorEvent::Uploaded { epoch, delta, .. } => {
                    self.committed.commit(&self.store, epoch, &delta);
                    return rows;
                }
                ExecutorEvent::Failed { operator, error, .. } => panic!("{operator}: {error}"),
                ExecutorEvent::Wake { .. } => {}
            }
        }
    }

    async fn event(&mut self) -> ExecutorEvent {
        clock::timeout(DEADLINE, self.events.recv()).await.expect("an event within the deadline").expect("the worker lives")
    }

    async fn stop(self) {
        self.worker.reset(self.ids()).await;
        clock::timeout(DEADLINE, self.worker.shutdown()).await.expect("the arbiters are joined within the deadline");
    }
}

fn all_jobs(parallelism: u32) -> Vec<Arc<Job>> {
    vec![
        graphs::table_job(parallelism),
        graphs::source_job(parallelism),
        graphs::agg_job(parallelism, false),
        graphs::join_job(parallelism),
    ]
}

fn insert(rows: &[(i64, i64)]) -> DmlChanges {
    let k = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))) as ArrayRef;
    let v = Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1))) as ArrayRef;
    DmlChanges { inserts: vec![Chunk::append_only(RecordBatch::try_new(kv(), vec![k, v]).unwrap())], changes: vec![] }
}

#[test]
fn views_follow_and_survive_a_restart() {
    super::runtime().block_on(async {
        let budget = Budget { rows: 64, bytes: 1 << 20 };
        let mut node = Node::start(harness::repeating(2000, 3), budget, 4, all_jobs(2)).await;
        for round in 0..6i64 {
            let writer = node.worker.clone();
            let rows: Vec<(i64, i64)> = (0..17).map(|k| (k, k % 3 + round)).collect();
            let write = spawn::task("statement", async move { writer.write(TABLE.into(), insert(&rows)).await });
            while !matches!(node.event().await, ExecutorEvent::Wake { job: TABLE }) {}
            node.barrier(if round % 2 == 0 { BarrierKind::Plain } else { BarrierKind::Checkpoint }).await;
            assert_eq!(write.await.unwrap().unwrap(), node.last, "the statement is in the epoch that was open");
            let table = read(&node.store, TABLE_ROWS, node.last).await;
            assert_eq!(table, (0..17).map(|k| (k, vec![k % 3 + round])).collect());
            assert_eq!(read(&node.store, AGG_ROWS, node.last).await, agg_view(&table));
            let source = read(&node.store, SOURCE_ROWS, node.last).await;
            assert_eq!(read(&node.store, JOIN_ROWS, node.last).await, join_view(&table, &source));
            if round == 3 {
                node.worker.reset(node.ids()).await;
                node.worker.reset(node.ids()).await;
                while node.events.try_recv().is_ok() {}
                node.build().await.unwrap();
            }
        }
        // Until the source is at its end.
        while !(node.barrier(BarrierKind::Checkpoint).await == 0 && node.barrier(BarrierKind::Checkpoint).await == 0) {}
        let offsets = read_offsets(&node.store, node.last).await;
        assert_eq!(offsets.values().sum::<u64>(), 4000);
        assert_eq!(read(&node.store, SOURCE_ROWS, node.last).await, source_view(&offsets));
        let figures = node.worker.figures();
        assert_eq!(figures[&TABLE].shards, 3);
        assert!(figures[&SOURCE_VIEW].rows_in > 0 && figures[&SOURCE_VIEW].errors == 0);
        assert_eq!(node.worker.shards().len(), 3 + 4 + 2 + 2);
        node.stop().await;
    });
}

/// Gives `good` batches, then waits for its permit and fails, or panics.
struct Failing {
    good: u32,
    panics: bool,
    permit: Arc<Semaphore>,
}

#[async_trait]
impl SourceReader for Failing {
    async fn next(&mut self, _: usize) -> Result<Option<SourceBatch>> {
        if self.good == 0 {
            self.permit.acquire().await.expect("nobody closes it").forget();
            assert!(!self.panics, "the reader panics");
            return Err(Error::unavailable("the source is gone"));
        }
        self.good -= 1;
        let rows = RecordBatch::new_empty(kv());
        Ok(Some(SourceBatch { rows, errors: vec![], offsets: Default::default() }))
    }
}

#[test]
fn a_failure_is_told_once_and_a_restart_helps() {
    super::runtime().block_on(async {
        for panics in [false, true] {
            // The readers may fail only after the first barrier: else the start itself fails, which is another story.
            let permit = Arc::new(Semaphore::new(0));
            let reader = permit.clone();
            let open: OpenSource = Arc::new(move |_: SourceOpening| {
                let reader = Failing { good: 3, panics, permit: reader.clone() };
                async move { Ok(Box::new(reader) as Box<dyn SourceReader>) }.boxed()
            });
            let mut node = Node::start(open, Budget::default(), 4096, all_jobs(2)).await;
            permit.add_permits(2);
            let (mut failures, mut last) = (0, None);
            while let Some(Some(event)) = clock::timeout(Duration::from_millis(300), node.events.recv()).await {
                if let ExecutorEvent::Failed { job, operator, attempt, .. } = event {
                    failures += 1;
                    last = Some((job, operator, attempt));
                }
            }
            assert_eq!(failures, 1, "two shards failed, one report");
            assert_eq!(last, Some((SOURCE_VIEW, "Source 30".to_owned(), 1)));
            node.inject(BarrierKind::Plain);
            let silent = clock::timeout(Duration::from_millis(100), node.events.recv()).await;
            assert!(silent.is_none(), "nothing more of a failed attempt");
            // A statement that waits at a failed table learns that it was not stored.
            let writer = node.worker.clone();
            let write = spawn::task("statement", async move { writer.write(TABLE.into(), insert(&[(1, 1)])).await });
            clock::sleep(Duration::from_millis(50)).await;
            node.worker.reset(node.ids()).await;
            let error = write.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), eddyline_types::ErrorKind::Unavailable);
            node.jobs.retain(|j| j.id == TABLE || j.id == AGG_VIEW);
            node.build().await.unwrap();
            node.barrier(BarrierKind::Checkpoint).await;
            node.stop().await;
        }
    });
}

#[test]
fn a_job_whose_build_fails_leaves_nothing() {
    super::runtime().block_on(async {
        let mut node = Node::start(harness::repeating(0, 1), Budget::default(), 4096, all_jobs(2)).await;
        let twice = vec![BuildJob { job: graphs::join_job(2), state_epoch: Epoch::ZERO }];
        let shards = node.worker.shards().len();
        // The join is there already; its running shards must not be touched by the failed build.
        assert!(node.worker.build(DOMAIN, 1, twice).await.is_err());
        assert_eq!(node.worker.shards().len(), shards);
        node.barrier(BarrierKind::Checkpoint).await;
        node.worker.reset(vec![JOIN_VIEW]).await;
        node.jobs.retain(|j| j.id != JOIN_VIEW);
        node.stop().await;
    });
}

/// As many rows as wanted, at once.
struct Flood {
    rows: u64,
    chunk: RecordBatch,
}

#[async_trait]
impl SourceReader for Flood {
    async fn next(&mut self, _: usize) -> Result<Option<SourceBatch>> {
        if self.rows == 0 {
            return Ok(None);
        }
        self.rows = self.rows.saturating_sub(self.chunk.num_rows() as u64);
        Ok(Some(SourceBatch { rows: self.chunk.clone(), errors: vec![], offsets: Default::default() }))
    }
}

fn flood(rows: u64, keys: i64) -> OpenSource {
    let k = Arc::new(Int64Array::from_iter_values((0..4096).map(|i| i * 7919 % keys))) as ArrayRef;
    let v = Arc::new(Int64Array::from_iter_values(0..4096)) as ArrayRef;
    let chunk = RecordBatch::try_new(kv(), vec![k, v]).unwrap();
    Arc::new(move |_: SourceOpening| {
        let chunk = chunk.clone();
        async move { Ok(Box::new(Flood { rows, chunk }) as Box<dyn SourceReader>) }.boxed()
    })
}

#[test]
fn barriers_pass_under_load() {
    super::runtime().block_on(async {
        const ROWS: u64 = 4_000_000;
        let jobs = vec![graphs::table_job(2), graphs::source_job(2)];
        let start = clock::monotonic_nanos();
        let mut node = Node::start(flood(ROWS / 2, 4096), Budget::default(), 4096, jobs).await;
        let (mut rows, mut latencies) = (0, Vec::new());
        while rows < ROWS {
            clock::sleep(Duration::from_millis(20)).await;
            let injected = clock::monotonic_nanos();
            rows += node.barrier(BarrierKind::Plain).await;
            latencies.push((clock::monotonic_nanos() - injected) / 1000);
        }
        let seconds = (clock::monotonic_nanos() - start) as f64 / 1e9;
        latencies.sort();
        println!(
            "{rows} rows through source, shuffle, aggregate and materialize in {seconds:.2} s: {:.2} M rows/s; barrier latency under load: median {} us, max {} us of {}",
            rows as f64 / seconds / 1e6,
            latencies[latencies.len() / 2],
            latencies[latencies.len() - 1],
            latencies.len()
        );
        assert!(latencies[latencies.len() / 2] < 500_000, "a barrier waits for bounded data only: {latencies:?} us");
        let view = read(&node.store, SOURCE_ROWS, node.last).await;
        assert_eq!(view.values().map(|v| v[0]).sum::<i64>(), rows as i64);
        node.stop().await;
    });
}

#[test]
fn a_hop_with_credits_is_cheap() {
    super::runtime().block_on(async {
        let arbiters = Arc::new(crate::arbiters::Arbiters::start(2).unwrap());
        const MESSAGES: u64 = 200_000;
        let (inbox, mut messages) = mpsc::unbounded_channel::<Input>();
        let (done, finished) = tokio::sync::oneshot::channel();
        let receiver = async move {
            let mut rows = 0;
            for _ in 0..MESSAGES {
                let Some(Input::Deliver { message: Message::Chunk(chunk, permit), .. }) = messages.recv().await else { break };
                rows += chunk.num_rows() as u64;
                drop(permit);
            }
            let _ = done.send(rows);
        };
        let to: Arc<dyn Post> = ShardActor::start(arbiters.arbiter(0), inbox, receiver.boxed());
        let batch = RecordBatch::try_from_iter([("k", Arc::new(Int64Array::from_iter_values(0..1024)) as ArrayRef)]).unwrap();
        let (chunk, credits) = (Chunk::append_only(batch), Credits::new(Budget::default()));
        let sender = async move {
            for _ in 0..MESSAGES {
                let permit = credits.take(chunk.num_rows(), 8192).await;
                to.post(Input::Deliver { channel: 0, message: Message::Chunk(chunk.clone(), permit) });
            }
        };
        let (nothing, _keep) = mpsc::unbounded_channel();
        let start = clock::monotonic_nanos();
        ShardActor::start(arbiters.arbiter(1), nothing, sender.boxed());
        assert_eq!(clock::timeout(DEADLINE, finished).await.unwrap().unwrap(), MESSAGES * 1024);
        let nanos = (clock::monotonic_nanos() - start) / MESSAGES;
        println!("a hop between arbiters with credits: {nanos} ns");
        assert!(nanos < 20_000, "{nanos} ns a hop; the budget is 2,000 on an idle machine");
        spawn::blocking(move || arbiters.join()).await.unwrap();
    });
}
