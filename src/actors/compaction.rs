//! `CompactionActor`: a shell that runs the store's compactions and garbage collection in the background.
//!
//! Ticks come as messages from a task of the shared runtime, and the work itself runs there too, so the actor never holds its arbiter. At most one compaction
//! runs, and it is followed by a pause in proportion to its length, which bounds its share of a core. What it compacts is committed by the callback.

use crate::shard::post_tick;
use crate::worker::Worker;
use actix::{Actor, Addr, Context, Handler, Message};
use eddyline_env::{clock, spawn};
use eddyline_protocol::VersionDelta;
use eddyline_store::Store;
use eddyline_types::{ErrorKind, Result};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Commits a compaction's delta through meta and installs the version. `false`: another change won, it was not committed; neither was it after an error.
pub type CommitDelta = Arc<dyn Fn(VersionDelta) -> BoxFuture<'static, Result<bool>> + Send + Sync>;

/// Settings, resolved.
#[derive(Clone, Copy, Debug)]
pub struct CompactionConfig {
    /// How often it looks for work.
    pub interval: Duration,
    /// How often it deletes objects that nothing names.
    pub garbage_interval: Duration,
    /// Share of one core, 0 to 1.
    pub cpu_share: f64,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        CompactionConfig { interval: Duration::from_secs(1), garbage_interval: Duration::from_secs(60), cpu_share: 0.5 }
    }
}

struct Tick {
    collect_garbage: bool,
}

impl Message for Tick {
    type Result = ();
}

struct CompactionActor {
    store: Store,
    commit: CommitDelta,
    cpu_share: f64,
    is_running: Arc<AtomicBool>,
}

/// Says that nothing runs any more, also after a panic.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Actor for CompactionActor {
    type Context = Context<Self>;
}

impl Handler<Tick> for CompactionActor {
    type Result = ();

    fn handle(&mut self, tick: Tick, _: &mut Self::Context) {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, commit, share, running) = (self.store.clone(), self.commit.clone(), self.cpu_share, Running(self.is_running.clone()));
        spawn::task("compaction", async move {
            let _running = running;
            compact(&store, &commit, share).await;
            if tick.collect_garbage
                && let Err(error) = store.collect_garbage().await
            {
                tracing::warn!(%error, "garbage collection failed; the next tick tries again");
            }
        });
    }
}

/// Compacts until there is nothing to do or something fails.
async fn compact(store: &Store, commit: &CommitDelta, cpu_share: f64) {
    loop {
        let start = clock::now();
        let result = match store.compact_once().await {
            Ok(Some(delta)) => {
                let committed = commit(delta.clone()).await;
                if !matches!(committed, Ok(true)) {
                    // Until then the store starts no other compaction.
                    store.abandon(&delta);
                }
                committed.map(drop)
            }
            Ok(None) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            if error.kind() == ErrorKind::Cancelled {
                return;
            }
            tracing::warn!(%error, "a compaction failed; the next tick tries again");
            return;
        }
        let took = start.elapsed();
        metrics::counter!("eddyline_compactions_total").increment(1);
        metrics::histogram!("eddyline_compaction_duration_seconds").record(took.as_secs_f64());
        clock::sleep(took.mul_f64((1.0 / cpu_share.clamp(0.05, 1.0)) - 1.0)).await;
    }
}

impl Worker {
    /// Starts compactions in the background, until the returned token is cancelled.
    pub fn start_compaction(&self, config: CompactionConfig, commit: CommitDelta) -> CancellationToken {
        let (store, is_running) = (self.hub().store().clone(), Arc::new(AtomicBool::new(false)));
        let actor = CompactionActor { store, commit, cpu_share: config.cpu_share, is_running };
        let address: Addr<CompactionActor> = Actor::start_in_arbiter(self.arbiters().arbiter(u32::MAX), move |_| actor);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        spawn::task("compaction-ticks", async move {
            let mut last_garbage = clock::now();
            while stopped.run_until_cancelled(clock::sleep(config.interval)).await.is_some() {
                let collect_garbage = last_garbage.elapsed() >= config.garbage_interval;
                if collect_garbage {
                    last_garbage = clock::now();
                }
                post_tick(&address, Tick { collect_garbage });
            }
        });
        stop
    }
}
