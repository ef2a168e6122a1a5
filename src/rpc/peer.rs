//! The way to one node: connects when needed, keeps the connection, gives it up when it breaks or falls silent.

use crate::connection::{Connection, Handler};
use crate::handshake::Hello;
use bytes::Bytes;
use eddyline_env::clock;
use eddyline_types::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// Longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    address: String,
    own: Hello,
    handler: Arc<dyn Handler>,
    connection: Mutex<Option<Connection>>,
}

impl Peer {
    /// Nothing is connected yet. `handler` answers what the other side asks over this connection.
    pub fn new(address: impl Into<String>, own: Hello, handler: Arc<dyn Handler>) -> Self {
        Peer { inner: Arc::new(Inner { address: address.into(), own, handler, connection: Mutex::new(None) }) }
    }

    /// The connection, made if there is none. At most one attempt is under way; others wait for it.
    pub async fn connection(&self) -> Result<Connection> {
        let mut slot = self.inner.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|c| c.ended().is_none()) {
            return Ok(connection.clone());
        }
        let away = |why: &dyn std::fmt::Display| Error::unavailable(format!("cannot connect to node at {}: {why}", self.inner.address));
        let socket = clock::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.inner.address))
            .await
            .ok_or_else(|| away(&"no answer in time"))?
            .map_err(|e| away(&e))?;
        socket.set_nodelay(true).map_err(|e| away(&e))?;
        let connection = Connection::start(socket, &self.inner.own, true, self.inner.handler.clone()).await?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Calls over the connection. After a deadline the connection is given up, so that the next call makes a new one.
    pub async fn call(&self, method: u32, payload: Bytes, wait: Duration) -> Result<Bytes> {
        let started = clock::now();
        let connection = clock::timeout(wait, self.connection())
            .await
            .unwrap_or_else(|| Err(Error::unavailable(format!("node at {} cannot be reached in time", self.inner.address))))?;
        let result = connection.call(method, payload, wait.saturating_sub(started.elapsed())).await;
        if result.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unavailable) && started.elapsed() >= wait {
            connection.close();
        }
        result
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.inner.address
    }
}
