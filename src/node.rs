//! A node: meta, store, worker, sessions and the two ways in, in one process.
//!
//! Start: meta first (it knows the committed version), then the store over that version, then the worker, then meta's loops, then the listeners.
//! Stop: the listeners first, then meta's last checkpoint, then the shards.

use crate::config::Config;
use crate::system::NodeSystem;
use anyhow::{Context, Result, anyhow};
use eddyline_actors::{CompactionConfig, Worker, WorkerConfig};
use eddyline_env::{clock, spawn};
use eddyline_objects::Objects;
use eddyline_protocol::control::JobFigures;
use eddyline_raft_meta::{CoordinatorConfig, Meta, MetaConfig};
use eddyline_session::{Frontend, FrontendParts, Limits, MetaCoordinator};
use eddyline_store::{Store, StoreConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long the last checkpoint of a shutdown may take.
const LAST_CHECKPOINT: Duration = Duration::from_secs(30);
/// How long a compaction may take to notice that the node ends.
const CLOSE_WAIT: Duration = Duration::from_secs(10);
/// The longest wait of a session for a commit.
const COMMIT_WAIT: Duration = Duration::from_secs(300);
/// How long a start waits for its jobs before it serves without them.
const JOBS_READY: Duration = Duration::from_secs(30);

/// A running node.
pub struct Node {
    config: Config,
    meta: Meta,
    worker: Worker,
    store: Store,
    frontend: Frontend,
    system: Arc<NodeSystem>,
    compaction: CancellationToken,
    stop: CancellationToken,
    pgwire: eddyline_pgwire::Server,
    http: eddyline_http::Server,
}

/// Figures of a domain's barriers since the start, for benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BarrierFigures {
    /// Committed checkpoints among the newest barriers.
    pub checkpoints: usize,
    /// 99th percentile of injected to collected, milliseconds.
    pub p99_ms: f64,
}

/// The process's runtime for I/O and everything that is not a shard.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("eddyline-io").enable_all().build()?;
    spawn::install(runtime.handle().clone());
    Ok(runtime)
}

/// Returns at Ctrl-C or SIGTERM.
pub async fn wait_for_signal() {
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(signal) => signal,
        Err(error) => {
            tracing::error!(%error, "cannot listen for SIGTERM");
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

impl Node {
    /// Starts everything; returns when the node answers. The error is one line for the user.
    pub async fn start(config: Config) -> Result<Node> {
        eddyline_env::metrics::install();
        std::fs::create_dir_all(&config.data_dir)
            .with_context(|| format!("cannot create the data directory {}", config.data_dir.display()))?;
        let objects = Objects::open(&config.store_url).map_err(|e| anyhow!("{e}"))?;
        let meta = Meta::open(&config.data_dir, meta_config(&config)).await.map_err(|e| anyhow!("{e}"))?;
        let store = Store::open(objects, store_config(&config), meta.version()).await.map_err(|e| anyhow!("{e}"))?;
        // The worker never waits for meta; what is in flight is bounded by the barriers in flight.
        let (events, for_meta) = mpsc::unbounded_channel();
        let worker_config = WorkerConfig { arbiters: config.parallelism.min(cores()) as usize, ..WorkerConfig::default() };
        let worker = Worker::start(worker_config, store.clone(), events).map_err(|e| anyhow!("{e}"))?;
        let compaction = start_compaction(&worker, &meta);
        meta.start(Arc::new(worker.clone()), for_meta, store.clone()).await.map_err(|e| anyhow!("{e}"))?;
        let system = Arc::new(NodeSystem::new(&config, meta.clone(), worker.clone()));
        let limits = Limits { query_memory_bytes: (config.memory_limit_bytes / 4) as usize, ..Limits::default() };
        let frontend = Frontend::new(FrontendParts {
            limits,
            coordinator: Arc::new(MetaCoordinator::new(meta.clone(), COMMIT_WAIT)),
            store: store.clone(),
            dml: Arc::new(worker.clone()),
            system: system.clone(),
        })
        .map_err(|e| anyhow!("{e}"))?;
        let stop = CancellationToken::new();
        let pgwire = eddyline_pgwire::serve(&config.pg_listen.to_string(), frontend.clone(), stop.clone().cancelled_owned())
            .await
            .map_err(|e| anyhow!("{e}"))?;
        let http = eddyline_http::serve(config.http_listen, frontend.clone()).await.map_err(|e| anyhow!("{e}"))?;
        if !meta.wait_ready(JOBS_READY).await {
            tracing::warn!("some jobs do not run yet; see eddy_catalog.jobs");
        }
        Ok(Node { config, meta, worker, store, frontend, system, compaction, stop, pgwire, http })
    }

    /// Address of the Postgres wire.
    pub fn pg_address(&self) -> SocketAddr {
        self.pgwire.address()
    }

    /// Address of HTTP.
    pub fn http_address(&self) -> SocketAddr {
        self.http.address()
    }

    /// What all sessions of the node share.
    pub fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    /// Figures by job.
    pub fn figures(&self) -> JobFigures {
        self.worker.figures()
    }

    /// Figures of the newest barriers.
    pub async fn barrier_figures(&self) -> BarrierFigures {
        let barriers = self.meta.barriers().await.unwrap_or_default();
        let mut collect_us: Vec<u64> = barriers.iter().map(|b| b.collect_us).collect();
        collect_us.sort_unstable();
        let at = collect_us.len().saturating_sub(1) * 99 / 100;
        BarrierFigures {
            checkpoints: barriers.iter().filter(|b| b.commit_us.is_some()).count(),
            p99_ms: collect_us.get(at).map_or(0.0, |us| *us as f64 / 1000.0),
        }
    }

    /// Tells where the node is, with a line to paste.
    pub fn greet(&self) {
        let pg = self.pg_address();
        println!("eddyline {} is ready; data in {}", env!("CARGO_PKG_VERSION"), self.config.data_dir.display());
        println!("  Postgres  postgres://root@{pg}/dev");
        println!("  HTTP      http://{}", self.http_address());
        println!("  psql -h {} -p {} -d dev -U root", pg.ip(), pg.port());
    }

    /// Stops listening, makes everything durable and ends all shards. An error: the last checkpoint did not come about (nothing
    /// acknowledged is lost).
    pub async fn shutdown(self) -> Result<()> {
        self.stop.cancel();
        self.frontend.shutdown();
        self.pgwire.join().await;
        self.http.stop().await;
        self.compaction.cancel();
        self.system.stop();
        let last = self.meta.shutdown(LAST_CHECKPOINT).await;
        self.worker.shutdown().await;
        if !self.store.close(CLOSE_WAIT).await {
            tracing::warn!("a compaction did not end in time; its files are garbage that a later start deletes");
        }
        last.map_err(|e| anyhow!("the last checkpoint failed: {e}"))
    }
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

fn meta_config(config: &Config) -> MetaConfig {
    let coordinator = CoordinatorConfig {
        barrier_interval_ms: config.barrier_interval.as_millis() as u64,
        checkpoint_interval_ms: config.checkpoint_interval.as_millis() as u64,
        paused: config.paused,
        ..CoordinatorConfig::default()
    };
    MetaConfig { coordinator, parallelism: config.parallelism, ..MetaConfig::default() }
}

/// Shares of the memory limit: an eighth each for the block cache and the shared buffer.
fn store_config(config: &Config) -> StoreConfig {
    let part = (config.memory_limit_bytes / 8) as usize;
    StoreConfig { block_cache_bytes: part, shared_buffer_bytes: part, ..StoreConfig::default() }
}

fn start_compaction(worker: &Worker, meta: &Meta) -> CancellationToken {
    let meta = meta.clone();
    worker.start_compaction(
        CompactionConfig::default(),
        Arc::new(move |delta| {
            let meta = meta.clone();
            Box::pin(async move { meta.commit_compaction(delta).await })
        }),
    )
}

/// Milliseconds since the Unix epoch.
pub(crate) fn started_ms() -> u64 {
    clock::unix_millis()
}
