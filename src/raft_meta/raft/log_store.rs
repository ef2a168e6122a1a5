//! The Raft log, the vote and the current snapshot in one redb file.
//!
//! All writes go through one thread, in order; each is one redb transaction with one fsync (purges ride along without). Entries
//! are readable from memory as soon as `append` returns. Every stored value carries a checksum: a damaged one is named, not used.
//! The log in memory is bounded by the snapshot policy.

use super::TypeConfig;
use eddyline_protocol::codec;
use eddyline_types::{Error, Result};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, Entry, LogId, LogState, RaftLogReader, StorageError, StorageIOError, Vote};
use parking_lot::Mutex;
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const VOTE: &str = "vote";
const PURGED: &str = "purged";
const SNAPSHOT: &str = "snapshot";
const FORMAT: &str = "format";
/// Version of the file's layout.
const FORMAT_VERSION: &[u8] = b"eddyline-meta-1";
/// redb's page cache; the log is read from memory.
const CACHE_BYTES: usize = 4 << 20;
/// Writes that may wait for the disk.
const QUEUE: usize = 64;

type LogEntry = Entry<TypeConfig>;
type Storage<T> = std::result::Result<T, StorageError<u64>>;

/// What is kept in memory.
#[derive(Default)]
struct Cached {
    entries: BTreeMap<u64, LogEntry>,
    vote: Option<Vote<u64>>,
    purged: Option<LogId<u64>>,
}

enum Write {
    Append { entries: Vec<(u64, Vec<u8>)>, done: LogFlushed<TypeConfig> },
    Truncate { from: u64, done: Done },
    Purge { upto: u64, id: Vec<u8>, done: Done },
    Put { key: &'static str, value: Vec<u8>, done: Done },
    Close { done: Done },
}

type Done = oneshot::Sender<std::io::Result<()>>;

/// The durable log. Clones share it.
#[derive(Clone)]
pub(super) struct LogStore {
    cached: Arc<Mutex<Cached>>,
    writer: Writer,
}

/// The way to the writer thread.
#[derive(Clone)]
pub(super) struct Writer(mpsc::Sender<Write>);

impl LogStore {
    /// Opens or creates the file; returns the log and the bytes of the current snapshot. Blocks.
    pub fn open(path: &Path) -> Result<(Self, Option<Vec<u8>>)> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(|e| Error::unavailable(format!("cannot create {}: {e}", dir.display())))?;
        }
        let damaged = |e: String| Error::corruption(format!("meta file {} is damaged: {e}", path.display()));
        let db = open_database(path)?;
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| load(&db)))
            .unwrap_or_else(|_| Err("it cannot be read".to_owned()))
            .map_err(damaged)?;
        let (cached, snapshot) = read;
        let (sender, receiver) = mpsc::channel(QUEUE);
        eddyline_env::spawn::thread("meta-log", move || write_loop(db, receiver))
            .map_err(|e| Error::internal(format!("cannot start the meta log's thread: {e}")))?;
        Ok((LogStore { cached: Arc::new(Mutex::new(cached)), writer: Writer(sender) }, snapshot))
    }

    /// For the state machine's snapshots.
    pub fn writer(&self) -> Writer {
        self.writer.clone()
    }

    /// Nothing was ever written.
    pub fn is_empty(&self) -> bool {
        let cached = self.cached.lock();
        cached.entries.is_empty() && cached.vote.is_none() && cached.purged.is_none()
    }
}

fn open_database(path: &Path) -> Result<Database> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    // redb trusts the header of the file before it checks the rest: a foreign file may make it panic.
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.create(path)));
    match opened {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(redb::DatabaseError::DatabaseAlreadyOpen)) => {
            Err(Error::unavailable(format!("meta file {} is open in another process", path.display())))
        }
        Ok(Err(redb::DatabaseError::Storage(redb::StorageError::Io(e)))) if e.kind() != std::io::ErrorKind::InvalidData => {
            Err(Error::unavailable(format!("cannot open meta file {}: {e}", path.display())))
        }
        Ok(Err(e)) => Err(Error::corruption(format!("meta file {} is damaged: {e}", path.display()))),
        Err(_) => Err(Error::corruption(format!("meta file {} is damaged: it cannot be read", path.display()))),
    }
}

/// Reads everything; errors are texts for people.
fn load(db: &Database) -> std::result::Result<(Cached, Option<Vec<u8>>), String> {
    let text = |e: redb::Error| e.to_string();
    let txn = db.begin_write().map_err(|e| e.to_string())?;
    {
        let mut meta = txn.open_table(META).map_err(|e| text(e.into()))?;
        let found = meta.get(FORMAT).map_err(|e| text(e.into()))?.map(|v| v.value().to_vec());
        match found {
            None => {
                meta.insert(FORMAT, FORMAT_VERSION).map_err(|e| text(e.into()))?;
            }
            Some(v) if v == FORMAT_VERSION => {}
            Some(v) => return Err(format!("format {:?} is not known to this program", String::from_utf8_lossy(&v))),
        }
        txn.open_table(LOG).map_err(|e| text(e.into()))?;
    }
    txn.commit().map_err(|e| e.to_string())?;
    let txn = db.begin_read().map_err(|e| e.to_string())?;
    let meta = txn.open_table(META).map_err(|e| text(e.into()))?;
    let get = |key: &str| -> std::result::Result<Option<Vec<u8>>, String> {
        match meta.get(key).map_err(|e| text(e.into()))? {
            None => Ok(None),
            Some(v) => unseal(v.value()).map(|b| Some(b.to_vec())).ok_or_else(|| format!("{key} has a wrong checksum")),
        }
    };
    let mut cached = Cached::default();
    if let Some(bytes) = get(VOTE)? {
        cached.vote = Some(codec::decode(&bytes).map_err(|e| format!("vote: {e}"))?);
    }
    if let Some(bytes) = get(PURGED)? {
        cached.purged = Some(codec::decode(&bytes).map_err(|e| format!("purged: {e}"))?);
    }
    let snapshot = get(SNAPSHOT)?;
    let log = txn.open_table(LOG).map_err(|e| text(e.into()))?;
    let mut expected = None;
    for item in log.iter().map_err(|e| text(e.into()))? {
        let (index, value) = item.map_err(|e| text(e.into()))?;
        let index = index.value();
        if expected.is_some_and(|e| e != index) {
            return Err(format!("log entry {} is missing", expected.unwrap_or_default()));
        }
        let bytes = unseal(value.value()).ok_or_else(|| format!("log entry {index} has a wrong checksum"))?;
        let entry: LogEntry = codec::decode(bytes).map_err(|e| format!("log entry {index}: {e}"))?;
        if entry.log_id.index != index {
            return Err(format!("log entry {index} says that it is {}", entry.log_id.index));
        }
        cached.entries.insert(index, entry);
        expected = Some(index + 1);
    }
    Ok((cached, snapshot))
}

/// Bytes with a checksum before them.
fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = crc32fast::hash(bytes).to_le_bytes().to_vec();
    sealed.extend_from_slice(bytes);
    sealed
}

fn unseal(sealed: &[u8]) -> Option<&[u8]> {
    let (sum, bytes) = sealed.split_first_chunk::<4>()?;
    (crc32fast::hash(bytes).to_le_bytes() == *sum).then_some(bytes)
}

/// The writer thread: ends when it is told to or all handles are gone, and closes the file.
fn write_loop(db: Database, mut queue: mpsc::Receiver<Write>) {
    let mut closing = None;
    while let Some(write) = queue.blocking_recv() {
        let db = &db;
        match write {
            Write::Close { done } => {
                queue.close();
                closing = Some(done);
                break;
            }
            Write::Append { entries, done } => {
                if eddyline_env::failpoint::hit("meta.log_append") {
                    done.log_io_completed(Err(std::io::Error::other("fail point meta.log_append")));
                    continue;
                }
                let result = append(db, &entries).map_err(std::io::Error::other);
                // Durable, but nobody knows yet.
                eddyline_env::failpoint::hit("meta.log_appended");
                done.log_io_completed(result);
            }
            Write::Truncate { from, done } => finish(done, transact(db, true, |log, _| log.retain_in(from.., |_, _| false))),
            Write::Purge { upto, id, done } => finish(
                done,
                transact(db, false, |log, meta| {
                    log.retain_in(..=upto, |_, _| false)?;
                    meta.insert(PURGED, seal(&id).as_slice()).map(|_| ())
                }),
            ),
            Write::Put { key, value, done } => {
                finish(done, transact(db, true, |_, meta| meta.insert(key, seal(&value).as_slice()).map(|_| ())));
            }
        }
    }
    drop(db);
    if let Some(done) = closing {
        finish(done, Ok(()));
    }
}

fn append(db: &Database, entries: &[(u64, Vec<u8>)]) -> std::result::Result<(), redb::Error> {
    let started = eddyline_env::clock::monotonic_nanos();
    let result =
        transact(db, true, |log, _| entries.iter().try_for_each(|(index, bytes)| log.insert(index, seal(bytes).as_slice()).map(|_| ())));
    let seconds = (eddyline_env::clock::monotonic_nanos() - started) as f64 / 1e9;
    metrics::histogram!("eddyline_raft_log_append_seconds").record(seconds);
    result
}

fn finish(done: Done, result: std::result::Result<(), redb::Error>) {
    // The receiver may have given up; the write stands.
    let _ = done.send(result.map_err(std::io::Error::other));
}

type LogTable<'t> = redb::Table<'t, u64, &'static [u8]>;
type MetaTable<'t> = redb::Table<'t, &'static str, &'static [u8]>;

fn transact(
    db: &Database,
    durable: bool,
    work: impl FnOnce(&mut LogTable<'_>, &mut MetaTable<'_>) -> std::result::Result<(), redb::StorageError>,
) -> std::result::Result<(), redb::Error> {
    let mut txn = db.begin_write()?;
    if !durable {
        txn.set_durability(Durability::None)?;
    }
    {
        let mut log = txn.open_table(LOG)?;
        let mut meta = txn.open_table(META)?;
        work(&mut log, &mut meta)?;
    }
    txn.commit()?;
    Ok(())
}

impl Writer {
    async fn run(&self, write: impl FnOnce(Done) -> Write) -> std::io::Result<()> {
        let (done, wait) = oneshot::channel();
        let gone = || std::io::Error::other("the meta log's thread has ended");
        self.0.send(write(done)).await.map_err(|_| gone())?;
        // The disk answers or fails; there is nothing else to do meanwhile.
        wait.await.map_err(|_| gone())?
    }

    /// Closes the file; later writes fail.
    pub async fn close(&self) {
        if let Err(error) = self.run(|done| Write::Close { done }).await {
            tracing::debug!(%error, "the meta log was closed already");
        }
    }

    /// Makes a snapshot the current one, durably.
    pub async fn put_snapshot(&self, bytes: Vec<u8>) -> std::io::Result<()> {
        if eddyline_env::failpoint::hit("meta.snapshot") {
            return Err(std::io::Error::other("fail point meta.snapshot"));
        }
        self.run(|done| Write::Put { key: SNAPSHOT, value: bytes, done }).await
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(&mut self, range: RB) -> Storage<Vec<LogEntry>> {
        Ok(self.cached.lock().entries.range(range).map(|(_, e)| e.clone()).collect())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Storage<LogState<TypeConfig>> {
        let cached = self.cached.lock();
        let last = cached.entries.last_key_value().map(|(_, e)| e.log_id).or(cached.purged);
        Ok(LogState { last_purged_log_id: cached.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Storage<()> {
        let value = codec::encode(vote).map_err(|e| StorageIOError::write_vote(AnyError::new(&e)))?;
        self.writer.run(|done| Write::Put { key: VOTE, value, done }).await.map_err(|e| StorageIOError::write_vote(AnyError::new(&e)))?;
        self.cached.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Storage<Option<Vote<u64>>> {
        Ok(self.cached.lock().vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Storage<()>
    where
        I: IntoIterator<Item = LogEntry> + Send,
        I::IntoIter: Send,
    {
        let mut encoded = Vec::new();
        {
            let mut cached = self.cached.lock();
            for entry in entries {
                let bytes = codec::encode(&entry).map_err(|e| StorageIOError::write_log_entry(entry.log_id, AnyError::new(&e)))?;
                encoded.push((entry.log_id.index, bytes));
                cached.entries.insert(entry.log_id.index, entry);
            }
        }
        let sent = self.writer.0.send(Write::Append { entries: encoded, done: callback }).await;
        sent.map_err(|_| StorageIOError::write_logs(AnyError::error("the meta log's thread has ended")).into())
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Storage<()> {
        self.cached.lock().entries.split_off(&log_id.index);
        self.writer
            .run(|done| Write::Truncate { from: log_id.index, done })
            .await
            .map_err(|e| StorageIOError::write_logs(AnyError::new(&e)).into())
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Storage<()> {
        {
            let mut cached = self.cached.lock();
            cached.entries = cached.entries.split_off(&(log_id.index + 1));
            cached.purged = Some(log_id);
        }
        let id = codec::encode(&log_id).map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?;
        self.writer
            .run(|done| Write::Purge { upto: log_id.index, id, done })
            .await
            .map_err(|e| StorageIOError::write_logs(AnyError::new(&e)).into())
    }
}
