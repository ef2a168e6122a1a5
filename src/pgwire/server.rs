//! Listening: accepts connections within a bound, and ends them at shutdown.

use crate::client::Engine;
use crate::connection;
use eddyline_env::{clock, spawn};
use eddyline_types::{Error, ErrorKind, Result, SqlState};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// Connections beyond the sessions' bound: those that are starting, and requests to cancel.
const SPARE_CONNECTIONS: usize = 64;
/// How long connections may take to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait after a failed accept (out of file descriptors, mostly).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// A listening server.
pub struct Server {
    address: SocketAddr,
    task: spawn::JoinHandle<()>,
}

impl Server {
    /// Where it listens, with the port that was chosen if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the shutdown is complete.
    pub async fn join(self) {
        let _ = self.task.await;
    }
}

/// Listens on an address (`127.0.0.1:4566`) and serves Postgres clients until `shutdown` completes; then idle clients are told (57P01), statements end,
/// and after some seconds the rest is cut off. Error: the address cannot be listened on.
pub async fn serve<E: Engine>(address: &str, engine: E, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<Server> {
    let listener = TcpListener::bind(address).await.and_then(|l| Ok((l.local_addr()?, l)));
    let (address, listener) = listener.map_err(|e| {
        Error::new(ErrorKind::Unavailable, SqlState::IO_ERROR, format!("cannot listen on {address} for Postgres clients: {e}"))
            .with_hint("Is another server running? Choose another address with --pg-listen.")
    })?;
    let task = spawn::task("pgwire accept", accept(listener, engine, shutdown));
    Ok(Server { address, task })
}

async fn accept<E: Engine>(listener: TcpListener, engine: E, shutdown: impl Future<Output = ()> + Send + 'static) {
    let (stop, stopped) = watch::channel(false);
    let capacity = engine.max_sessions() + SPARE_CONNECTIONS;
    let room = Arc::new(Semaphore::new(capacity));
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                clock::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        metrics::counter!("eddyline_connections_total", "protocol" => "pg").increment(1);
        let Ok(permit) = room.clone().try_acquire_owned() else {
            metrics::counter!("eddyline_connections_refused_total", "protocol" => "pg").increment(1);
            connection::refuse(stream).await;
            continue;
        };
        let (engine, stopped) = (engine.clone(), stopped.clone());
        spawn::task("pgwire connection", async move {
            let open = Open::new();
            connection::serve(stream, peer, engine, stopped).await;
            drop((open, permit));
        });
    }
    drop(listener);
    engine.shutdown();
    let _ = stop.send(true);
    // All permits back: all connections have ended.
    if clock::timeout(SHUTDOWN_TIMEOUT, room.acquire_many(capacity as u32)).await.is_none() {
        tracing::warn!("Postgres clients did not end in time and are cut off");
    }
}

/// Counts a connection while it lives, however it ends.
struct Open;

impl Open {
    fn new() -> Self {
        metrics::gauge!("eddyline_connections", "protocol" => "pg").increment(1.0);
        Open
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics::gauge!("eddyline_connections", "protocol" => "pg").decrement(1.0);
    }
}
