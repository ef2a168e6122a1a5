//! Cancellation of one statement: by the client, by its deadline, or by shutdown.
//!
//! A [`Cancel`] is set once and stays set; the session makes a new one for every statement.

use eddyline_types::{Error, ErrorKind, Result, SqlState};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// Why a statement ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The client asked.
    User,
    /// `statement_timeout` ran out.
    Timeout,
    /// The node stops.
    Shutdown,
}

impl CancelReason {
    /// As Postgres says it.
    pub fn error(self) -> Error {
        match self {
            CancelReason::User => Error::cancelled("canceling statement due to user request"),
            CancelReason::Timeout => Error::cancelled("canceling statement due to statement timeout"),
            CancelReason::Shutdown => {
                Error::new(ErrorKind::Cancelled, SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
            }
        }
    }
}

/// A handle that ends a statement. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<watch::Sender<Option<CancelReason>>>);

impl Default for Cancel {
    fn default() -> Self {
        Cancel(Arc::new(watch::channel(None).0))
    }
}

impl Cancel {
    /// Ends the statement; the first reason counts.
    pub fn cancel(&self, reason: CancelReason) {
        self.0.send_if_modified(|slot| {
            let first = slot.is_none();
            if first {
                *slot = Some(reason);
            }
            first
        });
    }

    /// The reason, if it was set.
    pub fn reason(&self) -> Option<CancelReason> {
        *self.0.borrow()
    }

    /// An error if it was set.
    pub fn check(&self) -> Result<()> {
        self.reason().map_or(Ok(()), |r| Err(r.error()))
    }

    /// Resolves when it is set. Waits without a deadline: it is only ever raced against the work.
    pub async fn cancelled(&self) -> CancelReason {
        let mut receiver = self.0.subscribe();
        loop {
            if let Some(reason) = *receiver.borrow_and_update() {
                return reason;
            }
            // The sender lives as long as `self`, so an error cannot happen.
            if receiver.changed().await.is_err() {
                return CancelReason::Shutdown;
            }
        }
    }

    /// Runs a future until it is done or the handle is set; the future is then dropped.
    pub async fn race<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            reason = self.cancelled() => Err(reason.error()),
            result = work => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_ends_the_work() {
        let cancel = Cancel::default();
        assert_eq!(cancel.race(async { Ok(1) }).await.ok(), Some(1));
        cancel.cancel(CancelReason::Timeout);
        cancel.cancel(CancelReason::User);
        let error = cancel.race(std::future::pending::<Result<()>>()).await.expect_err("cancelled");
        assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
        assert!(error.message().contains("timeout"));
    }
}
