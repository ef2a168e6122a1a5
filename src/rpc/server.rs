//! Accepts connections of other nodes.

use crate::connection::{Connection, Handler};
use crate::handshake::Hello;
use eddyline_env::spawn;
use eddyline_types::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// Connections at once, those that have not shaken hands included.
pub const MAX_CONNECTIONS: usize = 256;

/// A listening server. Dropping it stops accepting and ends its connections.
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens and serves with `handler`.
    pub async fn start(address: &str, own: Hello, handler: Arc<dyn Handler>) -> Result<Self> {
        let failed = |e: std::io::Error| Error::unavailable(format!("cannot listen on {address}: {e}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        spawn::task("rpc-server", accept_loop(listener, own, handler, stopped));
        Ok(Server { address: bound, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn accept_loop(listener: TcpListener, own: Hello, handler: Arc<dyn Handler>, mut stopped: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|s| *s) => return,
        };
        let (socket, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file handles, mostly: wait for some to come back.
                tracing::warn!(%error, "cannot accept a node's connection");
                eddyline_env::clock::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let (own, handler, mut stopped) = (own.clone(), handler.clone(), stopped.clone());
        spawn::task("rpc-accept", async move {
            let _slot = slot;
            let _ = socket.set_nodelay(true);
            match Connection::start(socket, &own, false, handler).await {
                Ok(connection) => {
                    tokio::select! {
                        error = connection.wait_ended() => tracing::debug!(%from, %error, "a node's connection ended"),
                        _ = stopped.wait_for(|s| *s) => connection.close(),
                    }
                }
                Err(error) => tracing::warn!(%from, %error, "a connection was refused"),
            }
        });
    }
}
