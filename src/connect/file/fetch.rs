//! Requests to the object store that survive a dropped call and a store that is away.
//!
//! A [`Pending`] request runs as a task of its own on the shared runtime, so a reader whose `next` is dropped loses neither
//! the request nor its answer.

use bytes::Bytes;
use eddyline_env::{clock, spawn};
use eddyline_objects::Objects;
use eddyline_types::{Error, ErrorKind, Result};
use std::future::Future;
use std::ops::Range;
use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// At most one request in flight.
pub(crate) struct Pending<T>(Option<spawn::JoinHandle<T>>);

impl<T: Send + 'static> Pending<T> {
    pub(crate) fn idle() -> Self {
        Pending(None)
    }

    /// Starts the request unless one is running.
    pub(crate) fn start<F: Future<Output = T> + Send + 'static>(&mut self, name: &'static str, request: impl FnOnce() -> F) {
        if self.0.is_none() {
            self.0 = Some(spawn::task(name, request()));
        }
    }

    /// The answer of the request that was started. May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> Result<T> {
        let handle = self.0.as_mut().expect("a request is started before it is waited for");
        let answer = handle.await;
        self.0 = None;
        answer.map_err(|e| Error::internal(format!("a request to an object store ended: {e}")))
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.abort();
        }
    }
}

/// Repeats a request while the store is away, for as long as it takes: the caller's progress is its sign of life.
pub(crate) async fn patiently<T, F: Future<Output = Result<T>>>(what: &str, mut request: impl FnMut() -> F) -> Result<T> {
    let mut pause = FIRST_PAUSE;
    loop {
        match request().await {
            Err(e) if e.kind() == ErrorKind::Unavailable => {
                tracing::warn!(error = %e, "{what}: the object store is away, trying again");
                clock::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            answer => return answer,
        }
    }
}

/// A part of an object, or why it is not there any more.
pub(crate) enum Fetched {
    Bytes(Bytes),
    Gone(&'static str),
}

/// Reads a range of an object that was this long when it was listed.
pub(crate) async fn fetch(objects: &Objects, name: &str, range: Range<u64>) -> Result<Fetched> {
    if range.is_empty() {
        return Ok(Fetched::Bytes(Bytes::new()));
    }
    patiently("reading a file", || async {
        match objects.get_range(name, range.clone()).await {
            Ok(bytes) => Ok(Fetched::Bytes(bytes)),
            Err(e) => match objects.stat(name).await? {
                None => Ok(Fetched::Gone("the file vanished while it was read")),
                Some(info) if info.size_bytes < range.end => Ok(Fetched::Gone("the file became shorter while it was read")),
                Some(_) => Err(e),
            },
        }
    })
    .await
}
