//! The server: its own threads, its limits, how it starts and stops.

use crate::app::App;
use crate::failure::Failure;
use crate::routes;
use actix_web::dev::ServerHandle;
use actix_web::{App as WebApp, HttpServer, middleware, web};
use eddyline_env::{clock, spawn};
use eddyline_session::Frontend;
use eddyline_types::{Error, ErrorKind, Result, SqlState};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long open requests may go on after a stop.
const STOP_SECONDS: u64 = 5;

/// Bounds of what clients may use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests that work at a time; more wait [`Options::admission_wait`] and then get 53300.
    pub max_requests: usize,
    /// How long a request waits for its turn.
    pub admission_wait: Duration,
    /// Connections at a time, for each of the two workers.
    pub max_connections: usize,
    /// How long a request may work until its first answer byte.
    pub deadline: Duration,
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// Bytes of a JSON answer, which is put together in memory; other formats are streamed.
    pub max_json_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_requests: 256,
            admission_wait: Duration::from_secs(5),
            max_connections: 2000,
            deadline: Duration::from_secs(120),
            max_body_bytes: 64 << 20,
            max_json_bytes: 64 << 20,
        }
    }
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    handle: ServerHandle,
    ended: oneshot::Receiver<()>,
}

/// Starts a server with the usual limits. Errors name the address.
pub async fn serve(address: SocketAddr, frontend: Frontend) -> Result<Server> {
    serve_with(address, frontend, Options::default()).await
}

/// Starts a server on threads of its own.
pub async fn serve_with(address: SocketAddr, frontend: Frontend, options: Options) -> Result<Server> {
    let failed = |e: std::io::Error| {
        Error::new(ErrorKind::User, SqlState::IO_ERROR, format!("cannot listen for HTTP on {address}: {e}"))
            .with_hint("Choose another address with --http-listen.")
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (started, start) = oneshot::channel();
    let (ending, ended) = oneshot::channel();
    spawn::thread("eddyline-http", move || {
        actix_web::rt::System::new().block_on(async move {
            match listen(listener, frontend, options) {
                Ok(server) => {
                    // The receiver waits; if it is gone, nobody wants the server.
                    let _ = started.send(Ok(server.handle()));
                    if let Err(error) = server.await {
                        tracing::error!(%error, "the HTTP server ended");
                    }
                }
                Err(e) => drop(started.send(Err(e))),
            }
        });
        let _ = ending.send(());
    })
    .map_err(failed)?;
    let handle = start.await.map_err(|_| Error::internal("the HTTP server's thread ended at its start"))?.map_err(failed)?;
    Ok(Server { address, handle, ended })
}

fn listen(listener: TcpListener, frontend: Frontend, options: Options) -> std::io::Result<actix_web::dev::Server> {
    let app = web::Data::new(App::new(frontend, options.clone()));
    let factory = move || {
        WebApp::new()
            .app_data(app.clone())
            .app_data(web::PathConfig::default().error_handler(|e, _| Failure::bad_request(format!("the path cannot be read: {e}")).into()))
            .wrap(middleware::from_fn(routes::same_origin))
            .wrap(middleware::Compress::default())
            .wrap(middleware::from_fn(routes::observe))
            .configure(routes::configure)
            .default_service(web::to(routes::unknown))
    };
    Ok(HttpServer::new(factory)
        .workers(2)
        .max_connections(options.max_connections)
        .client_request_timeout(Duration::from_secs(15))
        .keep_alive(Duration::from_secs(75))
        .shutdown_timeout(STOP_SECONDS)
        .disable_signals()
        .listen(listener)?
        .run())
}

impl Server {
    /// Where it listens; the port is the real one if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening, lets open requests finish for some seconds, and ends the threads.
    pub async fn stop(self) {
        let bound = Duration::from_secs(STOP_SECONDS + 2);
        if clock::timeout(bound, self.handle.stop(true)).await.is_none() || clock::timeout(bound, self.ended).await.is_none() {
            tracing::warn!("the HTTP server did not end in time");
        }
    }
}
