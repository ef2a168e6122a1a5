//! One connection: a task that reads frames, a task that writes them, calls and streams in between.
//!
//! The reader never waits for anything but the socket, so that credits and answers always get through; the writer gives up on a
//! peer that takes no bytes for [`WRITE_TIMEOUT`].

use crate::frame::{Frame, FrameKind, protocol_error};
use crate::handshake::{HANDSHAKE_TIMEOUT, Hello, greet};
use crate::stream::{Shared, Stream, gone};
use async_trait::async_trait;
use bytes::Bytes;
use eddyline_env::{clock, spawn};
use eddyline_types::{Error, Result};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Frames that may wait for the socket.
const QUEUE: usize = 256;
/// Calls of the other side that are worked on at once; more are refused.
pub const MAX_CALLS: usize = 256;
/// Streams that the other side may have open.
pub const MAX_STREAMS: usize = 1024;
/// A peer that takes nothing for so long is given up.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 20 });

/// Answers what the other side asks.
///
/// # Contract
/// Calls and streams run concurrently and in no order. A handler that takes long is its own problem: the caller has a deadline.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers a call.
    async fn call(&self, method: u32, payload: Bytes) -> Result<Bytes>;

    /// Serves a stream until it returns; an error is sent to the other side.
    async fn stream(&self, method: u32, _opening: Bytes, _stream: &mut Stream) -> Result<()> {
        Err(Error::internal(format!("no stream {method} is served here")))
    }
}

/// A live connection. Cheap to clone; it ends when the socket breaks or by [`Connection::close`].
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    other: Hello,
    out: mpsc::Sender<Frame>,
    table: Mutex<Table>,
    calls: Arc<Semaphore>,
    handler: Arc<dyn Handler>,
    /// Why it ended.
    end: watch::Sender<Option<Error>>,
    accepts: u64,
}

#[derive(Default)]
struct Table {
    next: u64,
    calls: BTreeMap<u64, oneshot::Sender<Result<Bytes>>>,
    streams: BTreeMap<u64, Entry>,
    over: bool,
}

struct Entry {
    shared: Arc<Shared>,
    inbox: Option<mpsc::UnboundedSender<Result<Bytes>>>,
}

impl Connection {
    /// Shakes hands over a socket and starts the two tasks. `connected`: this side opened the socket.
    pub async fn start<T>(socket: T, own: &Hello, connected: bool, handler: Arc<dyn Handler>) -> Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (framed, other) = greet(socket, own, HANDSHAKE_TIMEOUT).await?;
        let (sink, source) = framed.split();
        let (out, queue) = mpsc::channel(QUEUE);
        let table = Table { next: if connected { 1 } else { 2 }, ..Table::default() };
        let inner = Arc::new(Inner {
            other,
            out,
            table: Mutex::new(table),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            handler,
            end: watch::channel(None).0,
            accepts: if connected { 0 } else { 1 },
        });
        let this = Connection { inner };
        spawn::task("rpc-writer", this.clone().write_loop(sink, queue));
        spawn::task("rpc-reader", this.clone().read_loop(source));
        Ok(this)
    }

    /// Who is on the other side.
    pub fn other(&self) -> &Hello {
        &self.inner.other
    }

    /// Why it ended, if it did.
    pub fn ended(&self) -> Option<Error> {
        self.inner.end.borrow().clone()
    }

    /// Waits for its end.
    pub async fn wait_ended(&self) -> Error {
        let mut end = self.inner.end.subscribe();
        // Lives as long as we do: the sender is in `inner`.
        match end.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or_else(gone),
            Err(_) => gone(),
        }
    }

    /// Asks and waits for the answer, at most `wait`. An error of kind `Unavailable` may mean that the other side did it all the same.
    pub async fn call(&self, method: u32, payload: Bytes, wait: Duration) -> Result<Bytes> {
        let (sender, answer) = oneshot::channel();
        let id = self.register(|table, id| {
            table.calls.insert(id, sender);
        })?;
        let mut frame = Frame::new(FrameKind::Call, id, payload);
        frame.method = method;
        let work = async {
            self.inner.out.send(frame).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        };
        let result = clock::timeout(wait, work).await;
        self.inner.table.lock().calls.remove(&id);
        result.unwrap_or_else(|| {
            Err(Error::unavailable(format!("node {} did not answer within {} ms", self.inner.other.node, wait.as_millis())))
        })
    }

    /// Opens a stream.
    pub async fn open(&self, method: u32, opening: Bytes, wait: Duration) -> Result<Stream> {
        let shared = Shared::new();
        let (sender, inbox) = mpsc::unbounded_channel();
        let entry = Entry { shared: shared.clone(), inbox: Some(sender) };
        let id = self.register(|table, id| {
            table.streams.insert(id, entry);
        })?;
        let mut frame = Frame::new(FrameKind::Open, id, opening);
        frame.method = method;
        let sent = clock::timeout(wait, self.inner.out.send(frame)).await;
        sent.ok_or_else(|| Error::unavailable("a node takes no more frames"))?.map_err(|_| gone())?;
        Ok(Stream { id, shared, out: self.inner.out.clone(), inbox, closed: false })
    }

    /// Ends it; everybody who waits gets an error.
    pub fn close(&self) {
        self.finish(gone());
    }

    fn register(&self, enter: impl FnOnce(&mut Table, u64)) -> Result<u64> {
        let mut table = self.inner.table.lock();
        if table.over {
            return Err(self.ended().unwrap_or_else(gone));
        }
        let id = table.next;
        table.next += 2;
        enter(&mut table, id);
        Ok(id)
    }

    fn finish(&self, error: Error) {
        {
            let mut table = self.inner.table.lock();
            if table.over {
                return;
            }
            table.over = true;
            for (_, call) in std::mem::take(&mut table.calls) {
                let _ = call.send(Err(error.clone()));
            }
            for (_, entry) in std::mem::take(&mut table.streams) {
                entry.shared.credit.close();
                if let Some(inbox) = entry.inbox {
                    let _ = inbox.send(Err(error.clone()));
                }
            }
        }
        self.inner.end.send_replace(Some(error));
    }

    async fn write_loop<T>(self, mut sink: SplitSink<Framed<T, LengthDelimitedCodec>, Bytes>, mut queue: mpsc::Receiver<Frame>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut end = self.inner.end.subscribe();
        loop {
            let frame = tokio::select! {
                frame = queue.recv() => frame,
                _ = end.wait_for(Option::is_some) => None,
            };
            let Some(frame) = frame else { break };
            let write = async {
                sink.feed(Bytes::from(frame.encode_to_vec())).await?;
                // Whatever waits goes into the same write.
                while let Ok(frame) = queue.try_recv() {
                    sink.feed(Bytes::from(frame.encode_to_vec())).await?;
                }
                sink.flush().await
            };
            match clock::timeout(WRITE_TIMEOUT, write).await {
                Some(Ok(())) => {}
                Some(Err(e)) => {
                    self.finish(Error::unavailable(format!("the connection to node {} broke: {e}", self.inner.other.node)));
                    break;
                }
                None => {
                    self.finish(Error::unavailable(format!("node {} takes no bytes", self.inner.other.node)));
                    break;
                }
            }
        }
        let _ = clock::timeout(Duration::from_secs(1), sink.close()).await;
    }

    async fn read_loop<T>(self, mut source: SplitStream<Framed<T, LengthDelimitedCodec>>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut end = self.inner.end.subscribe();
        loop {
            let next = tokio::select! {
                next = source.next() => next,
                _ = end.wait_for(Option::is_some) => return,
            };
            let taken = match next {
                Some(Ok(bytes)) => Frame::read(bytes.freeze()).and_then(|frame| self.take(frame)),
                Some(Err(e)) => Err(Error::unavailable(format!("the connection to node {} broke: {e}", self.inner.other.node))),
                None => Err(Error::unavailable(format!("node {} hung up", self.inner.other.node))),
            };
            if let Err(error) = taken {
                return self.finish(error);
            }
        }
    }

    /// Deals with one frame without waiting; an error ends the connection.
    fn take(&self, frame: Frame) -> Result<()> {
        let kind = FrameKind::try_from(frame.kind).unwrap_or(FrameKind::Unknown);
        match kind {
            FrameKind::Unknown => Err(protocol_error(format!("a frame of kind {}", frame.kind))),
            FrameKind::Call => self.serve_call(frame),
            FrameKind::Answer => {
                // A late answer to a call that was given up is dropped.
                if let Some(call) = self.inner.table.lock().calls.remove(&frame.stream) {
                    let _ = call.send(Ok(frame.payload));
                }
                Ok(())
            }
            FrameKind::Failure => {
                let mut table = self.inner.table.lock();
                if let Some(call) = table.calls.remove(&frame.stream) {
                    let _ = call.send(Err(frame.to_error()));
                } else if let Some(entry) = table.streams.remove(&frame.stream) {
                    entry.shared.credit.close();
                    if let Some(inbox) = entry.inbox {
                        let _ = inbox.send(Err(frame.to_error()));
                    }
                }
                Ok(())
            }
            FrameKind::Open => self.serve_stream(frame),
            FrameKind::Data => {
                let table = self.inner.table.lock();
                let Some(entry) = table.streams.get(&frame.stream) else { return Ok(()) };
                if !entry.shared.accept(frame.payload.len()) {
                    return Err(protocol_error("more than a stream's window"));
                }
                match &entry.inbox {
                    Some(inbox) => {
                        let _ = inbox.send(Ok(frame.payload));
                        Ok(())
                    }
                    None => Err(protocol_error("data after the end of a stream")),
                }
            }
            FrameKind::Credit => {
                let table = self.inner.table.lock();
                let fits = table.streams.get(&frame.stream).is_none_or(|e| e.shared.refund(frame.credit as usize));
                if fits { Ok(()) } else { Err(protocol_error("more credit than it was given")) }
            }
            FrameKind::Close => {
                if let Some(entry) = self.inner.table.lock().streams.get_mut(&frame.stream) {
                    entry.inbox = None;
                }
                Ok(())
            }
        }
    }

    fn check_number(&self, frame: &Frame) -> Result<()> {
        if frame.stream % 2 == self.inner.accepts { Ok(()) } else { Err(protocol_error("a stream number of the wrong side")) }
    }

    fn serve_call(&self, frame: Frame) -> Result<()> {
        self.check_number(&frame)?;
        let id = frame.stream;
        let Ok(permit) = self.inner.calls.clone().try_acquire_owned() else {
            let busy = Frame::failure(id, &Error::unavailable("the node is busy"));
            return self.inner.out.try_send(busy).map_err(|_| Error::unavailable("a node asks more than it takes answers"));
        };
        let this = self.clone();
        spawn::task("rpc-call", async move {
            let answer = match this.inner.handler.call(frame.method, frame.payload).await {
                Ok(payload) => Frame::new(FrameKind::Answer, id, payload),
                Err(error) => Frame::failure(id, &error),
            };
            let _ = this.inner.out.send(answer).await;
            drop(permit);
        });
        Ok(())
    }

    fn serve_stream(&self, frame: Frame) -> Result<()> {
        self.check_number(&frame)?;
        let id = frame.stream;
        let shared = Shared::new();
        let (sender, inbox) = mpsc::unbounded_channel();
        {
            let mut table = self.inner.table.lock();
            if table.streams.len() >= MAX_STREAMS {
                return Err(protocol_error("more streams than it may open"));
            }
            if table.streams.insert(id, Entry { shared: shared.clone(), inbox: Some(sender) }).is_some() {
                return Err(protocol_error("a stream number twice"));
            }
        }
        let mut stream = Stream { id, shared, out: self.inner.out.clone(), inbox, closed: false };
        let this = self.clone();
        spawn::task("rpc-stream", async move {
            match this.inner.handler.stream(frame.method, frame.payload, &mut stream).await {
                Ok(()) => stream.close().await,
                Err(error) => stream.fail(&error).await,
            }
            this.inner.table.lock().streams.remove(&id);
        });
        Ok(())
    }
}
