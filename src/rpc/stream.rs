//! Streams inside a connection: each direction has a window of bytes; the sender waits for credit, the receiver gives it back as it
//! consumes. So a slow receiver stops its sender and nobody else, and what is buffered is bounded by the window.

use crate::frame::{Frame, FrameKind};
use bytes::Bytes;
use eddyline_env::clock;
use eddyline_types::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

/// Bytes that may be on their way in one direction of a stream.
pub const WINDOW_BYTES: usize = 1 << 20;
/// Longest message of a stream: it must fit into the window.
pub const MAX_MESSAGE_BYTES: usize = WINDOW_BYTES / 2;

/// What the connection knows of a stream.
pub(crate) struct Shared {
    /// Bytes that we may send.
    pub credit: Semaphore,
    /// Bytes received and not given back.
    pub received: Mutex<usize>,
}

impl Shared {
    pub fn new() -> Arc<Self> {
        Arc::new(Shared { credit: Semaphore::new(WINDOW_BYTES), received: Mutex::new(0) })
    }

    /// Accounts for bytes that came in; false: the other side ignores its window.
    pub fn accept(&self, bytes: usize) -> bool {
        let mut received = self.received.lock();
        *received += bytes;
        *received <= WINDOW_BYTES
    }

    /// Takes credit that the other side gave back; false: more than it ever got.
    pub fn refund(&self, bytes: usize) -> bool {
        if self.credit.available_permits() + bytes > WINDOW_BYTES {
            return false;
        }
        self.credit.add_permits(bytes);
        true
    }
}

/// One end of a stream. Dropping it ends our direction.
pub struct Stream {
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) out: mpsc::Sender<Frame>,
    /// Credited: the other side cannot put more into it than the window.
    pub(crate) inbox: mpsc::UnboundedReceiver<Result<Bytes>>,
    pub(crate) closed: bool,
}

impl Stream {
    /// Sends a message of at most [`MAX_MESSAGE_BYTES`]; waits for credit, at most `wait`.
    pub async fn send(&mut self, message: Bytes, wait: Duration) -> Result<()> {
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(Error::internal(format!("a stream message of {} bytes", message.len())));
        }
        let work = async {
            let permit = self.shared.credit.acquire_many(message.len() as u32).await.map_err(|_| gone())?;
            permit.forget();
            self.out.send(Frame::new(FrameKind::Data, self.id, message)).await.map_err(|_| gone())
        };
        clock::timeout(wait, work).await.unwrap_or_else(|| Err(Error::unavailable("a node takes nothing more from a stream")))
    }

    /// The next message; `None`: the other side has no more. Waits at most `wait`.
    pub async fn receive(&mut self, wait: Duration) -> Result<Option<Bytes>> {
        let next = clock::timeout(wait, self.inbox.recv()).await.ok_or_else(|| Error::unavailable("a stream is silent"))?;
        let Some(message) = next.transpose()? else { return Ok(None) };
        *self.shared.received.lock() -= message.len();
        let mut credit = Frame::new(FrameKind::Credit, self.id, Bytes::new());
        credit.credit = message.len() as u32;
        // The connection may be gone already; what was received still counts.
        let _ = self.out.send(credit).await;
        Ok(Some(message))
    }

    /// Says that we have no more to send. The other direction goes on.
    pub async fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            let _ = self.out.send(Frame::new(FrameKind::Close, self.id, Bytes::new())).await;
        }
    }
}

impl Stream {
    /// Ends both directions with an error.
    pub(crate) async fn fail(&mut self, error: &Error) {
        self.closed = true;
        let _ = self.out.send(Frame::failure(self.id, error)).await;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.closed {
            let frame = Frame::failure(self.id, &Error::cancelled("the stream was dropped"));
            let _ = self.out.try_send(frame);
        }
    }
}

/// The connection is over.
pub(crate) fn gone() -> Error {
    Error::unavailable("the connection to a node is gone")
}
