//! The arbiters: one thread for each core, under an actix system on a thread of its own. Joined at shutdown.

use crate::host::Host;
use crate::message::{Input, Post};
use crate::shard::ShardActor;
use actix_rt::{Arbiter, ArbiterHandle, System};
use eddyline_env::spawn;
use eddyline_types::{Error, Result};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// See the module's documentation.
pub struct Arbiters {
    handles: Vec<ArbiterHandle>,
    system: Mutex<Option<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>>,
}

impl Arbiters {
    /// Starts so many arbiters.
    pub fn start(count: usize) -> Result<Self> {
        let (tx, rx) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = spawn::thread("actors", move || {
            let system = System::new();
            system.block_on(async move {
                let arbiters: Vec<Arbiter> = (0..count.max(1)).map(|_| Arbiter::new()).collect();
                // The starter waits for this message.
                let _ = tx.send(arbiters.iter().map(Arbiter::handle).collect::<Vec<_>>());
                // An error means that the handle was dropped: stop too.
                let _ = stopped.await;
                for arbiter in arbiters {
                    arbiter.stop();
                    if arbiter.join().is_err() {
                        tracing::error!("an arbiter ended by a panic");
                    }
                }
            });
        })
        .map_err(|e| Error::internal(format!("cannot start the thread of the actors: {e}")))?;
        let handles = rx.recv().map_err(|_| Error::internal("the thread of the actors ended while it started"))?;
        Ok(Arbiters { handles, system: Mutex::new(Some((stop, thread))) })
    }

    /// The arbiter of a placement.
    pub fn arbiter(&self, placement: u32) -> &ArbiterHandle {
        &self.handles[placement as usize % self.handles.len()]
    }

    /// Stops and joins all arbiters; blocks until they have ended.
    pub fn join(&self) {
        let Some((stop, thread)) = self.system.lock().take() else { return };
        drop(stop);
        if thread.join().is_err() {
            tracing::error!("the thread of the actors ended by a panic");
        }
    }
}

impl Host for Arc<Arbiters> {
    fn start(&self, placement: u32, inbox: mpsc::UnboundedSender<Input>, task: BoxFuture<'static, ()>) -> Arc<dyn Post> {
        ShardActor::start(self.arbiter(placement), inbox, task)
    }

    fn io(&self, name: &'static str, work: BoxFuture<'static, ()>) {
        spawn::task(name, work);
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn threads(&self) -> u32 {
        self.handles.len() as u32
    }
}
