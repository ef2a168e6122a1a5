//! Inlets: how rows enter the shards that have no input channels, from a source's reader or from DML statements.
//!
//! A source's reader runs on the shared runtime a few batches ahead of the shard; its offsets are state, written at checkpoints in the
//! epoch of the rows that they stand for. DML statements wait in a queue that is bounded by the bytes in it; each statement's chunks go
//! through the chain without a barrier in between, and its caller learns the epoch when that barrier passes.

use crate::records::sorted_write;
use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use eddyline_connect::{Offsets, SourceBatch, SourceReader};
use eddyline_env::spawn;
use eddyline_protocol::control::DmlChanges;
use eddyline_protocol::{SourceSpec, TableDesc};
use eddyline_store::{Store, TableWrite};
use eddyline_types::{Epoch, Error, ObjectId, Result, TableId};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Batches that a reader may be ahead of its shard.
const BATCHES_AHEAD: usize = 2;
/// Statements that are worked off in one go.
const STATEMENTS_TOGETHER: usize = 256;

/// What is needed to open a reader.
#[derive(Clone, Debug)]
pub struct SourceOpening {
    /// The source or table.
    pub relation: ObjectId,
    /// Its connector.
    pub spec: SourceSpec,
    /// Position of the shard.
    pub index: u32,
    /// Number of shards.
    pub count: u32,
    /// Offsets of all splits at the epoch that the shard starts from.
    pub offsets: Offsets,
}

/// Opens readers; `eddyline_connect::open` unless a test or a benchmark brings its own.
pub type OpenSource = Arc<dyn Fn(SourceOpening) -> BoxFuture<'static, Result<Box<dyn SourceReader>>> + Send + Sync>;

/// Opens readers with the connectors of `eddyline_connect`.
pub fn connectors() -> OpenSource {
    Arc::new(|o: SourceOpening| async move { eddyline_connect::open(&o.spec, o.index, o.count, o.offsets).await }.boxed())
}

/// What an inlet gave.
pub enum Inflow {
    /// From a source's reader.
    Batch(SourceBatch),
    /// Statements, in order.
    Statements(Vec<DmlRequest>),
}

/// See the module's documentation.
pub enum Inlet {
    /// Input comes over channels.
    Channels,
    /// Input comes from a reader.
    Source(Box<SourceInlet>),
    /// Input comes from statements.
    Dml(DmlInlet),
}

impl Inlet {
    /// What is there now. Cancel-safe.
    pub fn poll_now(&mut self, store: &Store) -> Result<Option<Inflow>> {
        match self {
            Inlet::Channels => Ok(None),
            Inlet::Source(_) | Inlet::Dml(_) => self.wait(store).now_or_never().transpose(),
        }
    }

    /// Waits for input; for ever if there will be none. Cancel-safe.
    pub async fn wait(&mut self, store: &Store) -> Result<Inflow> {
        match self {
            Inlet::Channels => std::future::pending().await,
            Inlet::Source(source) => source.wait(store).await.map(Inflow::Batch),
            Inlet::Dml(dml) => dml.wait(store).await,
        }
    }
}

enum Feed {
    Closed,
    Ahead(mpsc::Receiver<Result<SourceBatch>>, spawn::JoinHandle<()>),
    Inline(Box<dyn SourceReader>),
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Feed::Ahead(_, task) = self {
            task.abort();
        }
    }
}

/// The reader of a source.
pub struct SourceInlet {
    opening: SourceOpening,
    open: OpenSource,
    offsets_table: TableId,
    max_rows: usize,
    inline: bool,
    feed: Feed,
    /// Offsets that changed since the last checkpoint.
    changed: Offsets,
    /// No rows until `Resume`.
    pub paused: bool,
    admitted: bool,
}

impl SourceInlet {
    /// A reader that is not open yet.
    pub fn new(opening: SourceOpening, open: OpenSource, offsets_table: TableId, max_rows: usize, inline: bool) -> Self {
        let changed = Offsets::new();
        SourceInlet { opening, open, offsets_table, max_rows, inline, feed: Feed::Closed, changed, paused: false, admitted: true }
    }

    /// The table of offsets: `(split utf8, offset utf8)`, a singleton that every shard reads and in which it writes its own splits.
    pub fn offsets_table(&self) -> TableId {
        self.offsets_table
    }

    /// Takes stored offsets, before `start`.
    pub fn restore(&mut self, rows: &RecordBatch) -> Result<()> {
        let (splits, offsets) = (text(rows, 0)?, text(rows, 1)?);
        for row in 0..rows.num_rows() {
            self.opening.offsets.insert(splits.value(row).to_owned(), offsets.value(row).to_owned());
        }
        Ok(())
    }

    /// Opens the reader.
    pub async fn start(&mut self) -> Result<()> {
        let open = (self.open)(self.opening.clone());
        let max_rows = self.max_rows;
        if self.inline {
            self.feed = Feed::Inline(open.await?);
            return Ok(());
        }
        let (tx, rx) = mpsc::channel(BATCHES_AHEAD);
        // Ends with the source, an error, or the shard (which aborts it).
        let task = spawn::task("source", async move {
            let mut reader = match open.await {
                Ok(reader) => reader,
                Err(error) => return drop(tx.send(Err(error)).await),
            };
            loop {
                let message = match reader.next(max_rows).await {
                    Ok(Some(batch)) => Ok(batch),
                    Ok(None) => return std::future::pending().await,
                    Err(error) => Err(error),
                };
                let failed = message.is_err();
                if tx.send(message).await.is_err() || failed {
                    return;
                }
            }
        });
        self.feed = Feed::Ahead(rx, task);
        Ok(())
    }

    async fn wait(&mut self, store: &Store) -> Result<SourceBatch> {
        if self.paused {
            return std::future::pending().await;
        }
        if !self.admitted {
            store.admit().await;
            self.admitted = true;
        }
        let batch = match &mut self.feed {
            Feed::Closed => return std::future::pending().await,
            Feed::Ahead(batches, _) => batches.recv().await.unwrap_or_else(|| Err(Error::internal("the reader of a source ended")))?,
            Feed::Inline(reader) => match reader.next(self.max_rows).await? {
                Some(batch) => batch,
                None => {
                    self.feed = Feed::Closed;
                    return std::future::pending().await;
                }
            },
        };
        Ok(batch)
    }

    /// Notes where a batch ended; its rows are in the current epoch.
    pub fn advance(&mut self, offsets: Offsets) {
        self.changed.extend(offsets);
    }

    /// The offsets of a checkpoint.
    pub fn seal(&mut self, table: &TableDesc) -> Result<Option<TableWrite>> {
        if self.changed.is_empty() {
            return Ok(None);
        }
        let changed = std::mem::take(&mut self.changed);
        let splits = Arc::new(StringArray::from_iter_values(changed.keys())) as ArrayRef;
        let offsets = Arc::new(StringArray::from_iter_values(changed.values())) as ArrayRef;
        sorted_write(table, RecordBatch::try_new(table.schema.clone(), vec![splits, offsets])?, None).map(Some)
    }

    /// A new epoch: the store must admit its first rows.
    pub fn next_epoch(&mut self) {
        self.admitted = false;
    }
}

fn text(rows: &RecordBatch, column: usize) -> Result<&StringArray> {
    rows.column(column).as_any().downcast_ref().ok_or_else(|| Error::corruption("a table of source offsets has a column that is not text"))
}

/// One statement's changes on their way to the shard.
pub struct DmlRequest {
    /// The rows.
    pub changes: DmlChanges,
    /// Learns the epoch, or why there is none.
    pub reply: oneshot::Sender<Result<Epoch>>,
    /// Room in the queue; free when the rows were consumed.
    pub room: OwnedSemaphorePermit,
}

/// The sending end of the queue of statements.
#[derive(Clone)]
pub struct DmlPort {
    queue: mpsc::UnboundedSender<DmlRequest>,
    room: Arc<Semaphore>,
    room_kib: u32,
}

impl DmlPort {
    /// A queue that holds about `bytes`.
    pub fn new(bytes: usize) -> (DmlPort, DmlInlet) {
        let (tx, queue) = mpsc::unbounded_channel();
        let room_kib = (bytes / 1024).clamp(1, u32::MAX as usize >> 4) as u32;
        let port = DmlPort { queue: tx, room: Arc::new(Semaphore::new(room_kib as usize)), room_kib };
        (port, DmlInlet { queue, replies: Vec::new(), admitted: true })
    }

    /// Queues a statement and waits for its epoch. Waits while the queue is full: the caller's statement timeout is the deadline.
    pub async fn write(&self, changes: DmlChanges) -> Result<Epoch> {
        let bytes: usize = changes.inserts.iter().chain(&changes.changes).map(|c| c.size_bytes()).sum();
        let kib = (bytes / 1024 + 1).min(self.room_kib as usize) as u32;
        let room = self.room.clone().acquire_many_owned(kib).await.map_err(|_| restarted())?;
        let (reply, answer) = oneshot::channel();
        self.queue.send(DmlRequest { changes, reply, room }).map_err(|_| restarted())?;
        answer.await.unwrap_or_else(|_| Err(restarted()))
    }
}

fn restarted() -> Error {
    Error::unavailable("the table's job was restarted before the statement's epoch was complete")
        .with_hint("Nothing of the statement was stored. Run it again.")
}

/// The statements of a table.
pub struct DmlInlet {
    queue: mpsc::UnboundedReceiver<DmlRequest>,
    /// Callers whose rows are in the current epoch.
    replies: Vec<oneshot::Sender<Result<Epoch>>>,
    admitted: bool,
}

impl DmlInlet {
    async fn wait(&mut self, store: &Store) -> Result<Inflow> {
        if !self.admitted {
            store.admit().await;
            self.admitted = true;
        }
        // Without senders the job is being dropped: no more statements.
        let Some(first) = self.queue.recv().await else { return std::future::pending().await };
        let mut statements = vec![first];
        while statements.len() < STATEMENTS_TOGETHER {
            match self.queue.try_recv() {
                Ok(next) => statements.push(next),
                Err(_) => break,
            }
        }
        Ok(Inflow::Statements(statements))
    }

    /// Notes a caller whose rows are in the current epoch.
    pub fn remember(&mut self, reply: oneshot::Sender<Result<Epoch>>) {
        self.replies.push(reply);
    }

    /// Tells the callers their epoch.
    pub fn end_epoch(&mut self, epoch: Epoch) {
        self.admitted = false;
        for reply in self.replies.drain(..) {
            // A caller that gave up is not interested.
            let _ = reply.send(Ok(epoch));
        }
    }
}
