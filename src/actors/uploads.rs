//! Uploads of one domain's checkpoints: several at once, answered in order.
//!
//! One task on the shared runtime for each build of a domain. It starts uploads in the order of their epochs (the store gives each the rows that no earlier one
//! took) and answers in that order. It ends when its queue is closed or it is told to stop; a failed upload fails the domain.

use crate::hub::Hub;
use eddyline_env::{clock, failpoint};
use eddyline_types::{DomainId, Epoch, Error, JobId, Result, TableId};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A checkpoint that all shards have passed.
pub struct Checkpoint {
    /// Its epoch.
    pub epoch: Epoch,
    /// All tables of the domain's jobs.
    pub tables: Vec<TableId>,
    /// Who is named if it fails.
    pub job: JobId,
}

/// The handle of the task.
pub struct Uploads {
    queue: mpsc::UnboundedSender<Checkpoint>,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Uploads {
    /// Starts the task.
    pub fn start(hub: &Arc<Hub>, domain: DomainId, attempt: u64) -> Self {
        let (queue, checkpoints) = mpsc::unbounded_channel();
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let (stopped, guard, owner) = (stop.clone(), ended.clone().drop_guard(), hub.clone());
        let work = async move {
            let _ended = guard;
            // Cancelled in the middle: files may be left that nothing names; garbage collection finds them.
            stopped.run_until_cancelled(run(&owner, domain, attempt, checkpoints)).await;
        };
        hub.host().io("uploads", Box::pin(work));
        Uploads { queue, stop, ended }
    }

    /// Queues a checkpoint. Checkpoints in flight are bounded by the barriers that meta lets be in flight.
    pub fn push(&self, checkpoint: Checkpoint) {
        // A task that has failed has told so.
        let _ = self.queue.send(checkpoint);
    }

    /// Makes the task end; `ended` tells when it has.
    pub fn stop(&self) -> CancellationToken {
        self.stop.cancel();
        self.ended.clone()
    }
}

async fn run(hub: &Arc<Hub>, domain: DomainId, attempt: u64, mut checkpoints: mpsc::UnboundedReceiver<Checkpoint>) {
    let mut running = FuturesOrdered::new();
    loop {
        tokio::select! {
            biased;
            Some((checkpoint, result)) = running.next(), if !running.is_empty() => {
                let (checkpoint, result): (Checkpoint, Result<_>) = (checkpoint, result);
                match result {
                    Ok(delta) => hub.uploaded(domain, attempt, checkpoint.epoch, delta),
                    Err(error) => return hub.fail_domain(domain, attempt, checkpoint.job, "Upload".into(), error),
                }
            }
            next = checkpoints.recv(), if running.len() < hub.config().uploads_in_flight => match next {
                Some(checkpoint) => running.push_back(upload(hub, checkpoint)),
                None if running.is_empty() => return,
                None => while let Some((checkpoint, result)) = running.next().await {
                    match result {
                        Ok(delta) => hub.uploaded(domain, attempt, checkpoint.epoch, delta),
                        Err(error) => return hub.fail_domain(domain, attempt, checkpoint.job, "Upload".into(), error),
                    }
                },
            }
        }
    }
}

async fn upload(hub: &Arc<Hub>, checkpoint: Checkpoint) -> (Checkpoint, Result<eddyline_protocol::VersionDelta>) {
    let start = clock::monotonic_nanos();
    if failpoint::hit("actors_upload") {
        return (checkpoint, Err(Error::unavailable("fail point actors_upload")));
    }
    let result = hub.store().upload(&checkpoint.tables, checkpoint.epoch).await.map(|mut delta| {
        // Meta moves the committed epoch of every table of the domain, also of those that had nothing to write.
        delta.committed = checkpoint.tables.iter().map(|t| (*t, checkpoint.epoch)).collect();
        delta
    });
    metrics::histogram!("eddyline_upload_duration_seconds").record((clock::monotonic_nanos() - start) as f64 / 1e9);
    (checkpoint, result)
}
