//! Credits: the bound on what is in flight on one channel, in rows and in bytes.
//!
//! The sender takes a permit before it posts a chunk; the permit travels inside the message and returns when the receiver
//! drops it. A permit is given while less than the budget is in flight, so at most the budget plus one chunk is, and a chunk that is
//! larger than the budget still passes. One sender waits at a time: a channel has exactly one. (Semaphores would do, at twice the atomics and
//! with a cap for oversized chunks.)

use futures::task::AtomicWaker;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// How much may be in flight on one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Rows.
    pub rows: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { rows: 16 * 1024, bytes: 4 << 20 }
    }
}

/// The account of one channel.
#[derive(Debug)]
pub struct Credits {
    budget: Budget,
    rows: AtomicUsize,
    bytes: AtomicUsize,
    sender: AtomicWaker,
}

/// Rows and bytes in flight; returned on drop.
#[derive(Debug)]
pub struct Permit {
    credits: Arc<Credits>,
    rows: usize,
    bytes: usize,
}

impl Credits {
    /// An account with nothing in flight.
    pub fn new(budget: Budget) -> Arc<Self> {
        Arc::new(Credits { budget, rows: AtomicUsize::new(0), bytes: AtomicUsize::new(0), sender: AtomicWaker::new() })
    }

    /// A permit, if less than the budget is in flight. Only the channel's sender may call it.
    pub fn try_take(self: &Arc<Self>, rows: usize, bytes: usize) -> Option<Permit> {
        if self.rows.load(Ordering::Acquire) >= self.budget.rows || self.bytes.load(Ordering::Acquire) >= self.budget.bytes {
            return None;
        }
        // Others only subtract, so the check above still holds.
        self.rows.fetch_add(rows, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Some(Permit { credits: self.clone(), rows, bytes })
    }

    /// Waits for a permit: until the receiver has consumed enough. Ends at the latest when the receiver does, since that drops its messages.
    pub async fn take(self: &Arc<Self>, rows: usize, bytes: usize) -> Permit {
        poll_fn(|cx| {
            if let Some(permit) = self.try_take(rows, bytes) {
                return Poll::Ready(permit);
            }
            self.sender.register(cx.waker());
            // A permit may have returned before the waker was there.
            self.try_take(rows, bytes).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Rows and bytes in flight.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.rows.load(Ordering::Acquire), self.bytes.load(Ordering::Acquire))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.credits.rows.fetch_sub(self.rows, Ordering::AcqRel);
        self.credits.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.credits.sender.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_permit_is_refused_at_the_budget_and_granted_after_a_return() {
        let credits = Credits::new(Budget { rows: 10, bytes: 100 });
        let first = credits.try_take(8, 10).expect("nothing is in flight");
        let second = credits.try_take(8, 10).expect("8 of 10 rows are in flight");
        assert!(credits.try_take(1, 1).is_none(), "16 of 10 rows are in flight");
        assert!(credits.take(1, 1).now_or_never().is_none());
        drop(first);
        assert_eq!(credits.in_flight(), (8, 10));
        let third = credits.take(1, 200).now_or_never().expect("8 of 10 rows are in flight");
        assert!(credits.try_take(1, 1).is_none(), "210 of 100 bytes are in flight");
        drop((second, third));
        assert_eq!(credits.in_flight(), (0, 0));
    }

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn waiting_senders_are_woken_across_threads() {
        let credits = Credits::new(Budget { rows: 4, bytes: 1000 });
        let (tx, rx) = std::sync::mpsc::channel::<Permit>();
        let receiver = std::thread::spawn(move || rx.iter().map(|p| p.rows).sum::<usize>());
        futures::executor::block_on(async {
            for _ in 0..20_000 {
                tx.send(credits.take(2, 1).await).unwrap();
                assert!(credits.in_flight().0 <= 5);
            }
        });
        drop(tx);
        assert_eq!(receiver.join().unwrap(), 40_000);
    }
}
