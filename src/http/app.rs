//! What handlers share: the frontend, admission of requests, deadlines, bodies.
//!
//! A request's work runs as a task of the shared runtime and ends when the client goes away; the server's own threads only move bytes.

use crate::failure::Failure;
use crate::server::Options;
use actix_web::{HttpRequest, web};
use bytes::{Bytes, BytesMut};
use eddyline_env::{clock, spawn};
use eddyline_session::{Frontend, Protocol, Session, SessionOptions};
use eddyline_types::{Error, ErrorKind, SqlState};
use futures::StreamExt;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Shared by all handlers.
pub(crate) struct App {
    pub(crate) frontend: Frontend,
    pub(crate) options: Options,
    slots: Arc<Semaphore>,
}

/// The right to work; held until the answer is sent.
pub(crate) type Slot = OwnedSemaphorePermit;

impl App {
    pub(crate) fn new(frontend: Frontend, options: Options) -> Self {
        let slots = Arc::new(Semaphore::new(options.max_requests.max(1)));
        App { frontend, options, slots }
    }

    /// Waits for a slot.
    pub(crate) async fn admit(&self) -> Result<Slot, Failure> {
        match clock::timeout(self.options.admission_wait, self.slots.clone().acquire_owned()).await {
            Some(Ok(slot)) => Ok(slot),
            Some(Err(_)) | None => {
                let error = Error::new(ErrorKind::Unavailable, SqlState::TOO_MANY_CONNECTIONS, "too many requests at a time");
                Err(error.with_hint("Try again later.").into())
            }
        }
    }

    /// Opens a session for one request.
    pub(crate) fn session(&self, peer: &str, database: Option<String>, settings: Vec<(String, String)>) -> Result<Session, Failure> {
        let options = SessionOptions {
            protocol: Protocol::Http,
            user: "root".into(),
            database: database.unwrap_or_else(|| "dev".into()),
            peer: peer.to_owned(),
            settings,
        };
        Ok(self.frontend.open(options)?)
    }

    /// Runs a request's work on the shared runtime, until the deadline. Dropping the call ends the work.
    pub(crate) async fn work<T, F>(&self, future: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut task = AbortOnDrop(spawn::task("http request", future));
        match clock::timeout(self.options.deadline, &mut task.0).await {
            Some(Ok(answer)) => answer,
            Some(Err(e)) if e.is_panic() => Err(Error::internal("the request ended with a bug; see the log").into()),
            Some(Err(_)) => Err(Error::new(ErrorKind::Unavailable, SqlState::ADMIN_SHUTDOWN, "the server is shutting down").into()),
            None => Err(Error::cancelled(format!("the request took longer than {} s", self.options.deadline.as_secs())).into()),
        }
    }

    /// The whole body, up to the limit.
    pub(crate) async fn body(&self, mut payload: web::Payload) -> Result<Bytes, Failure> {
        let mut body = BytesMut::new();
        let read = async {
            while let Some(part) = payload.next().await {
                let part =
                    part.map_err(|e| Error::user(SqlState::PROTOCOL_VIOLATION, format!("the request's body cannot be read: {e}")))?;
                if body.len() + part.len() > self.options.max_body_bytes {
                    let message = format!("the request's body is larger than {} bytes", self.options.max_body_bytes);
                    return Err(Failure::from(Error::user(SqlState::LIMIT_EXCEEDED, message)));
                }
                body.extend_from_slice(&part);
            }
            Ok(())
        };
        match clock::timeout(self.options.deadline, read).await {
            Some(done) => done?,
            None => return Err(Error::cancelled("the request's body did not arrive in time").into()),
        }
        Ok(body.freeze())
    }
}

/// The client's address.
pub(crate) fn peer(request: &HttpRequest) -> String {
    request.peer_addr().map_or_else(String::new, |a| a.to_string())
}

struct AbortOnDrop<T>(spawn::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
