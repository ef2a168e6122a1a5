//! The collector of a domain: which barriers are in flight, which shards have passed them, which uploads are out.
//!
//! Pure bookkeeping, driven under the worker's lock. Invariant: every barrier is answered once, in order; after a failure nothing is.

use crate::message::Issued;
use eddyline_types::{Epoch, JobId};
use std::collections::VecDeque;
use std::sync::Arc;

/// A barrier in flight.
struct Pending {
    issued: Arc<Issued>,
    jobs: Arc<[JobId]>,
    shards: usize,
    rows: u64,
}

/// A barrier that all shards have passed.
pub struct Collected {
    /// The barrier.
    pub issued: Arc<Issued>,
    /// Jobs that it was injected into.
    pub jobs: Arc<[JobId]>,
    /// Rows that entered the domain in its epoch.
    pub rows: u64,
}

/// See the module's documentation.
pub struct Collector {
    /// The build that it belongs to.
    pub attempt: u64,
    failed: bool,
    pending: VecDeque<Pending>,
}

impl Collector {
    /// Nothing in flight.
    pub fn new(attempt: u64) -> Self {
        Collector { attempt, failed: false, pending: VecDeque::new() }
    }

    /// A barrier was injected that so many shards will pass. Gives it back at once if that is none and nothing is before it.
    pub fn expect(&mut self, issued: Arc<Issued>, jobs: Arc<[JobId]>, shards: usize) -> Vec<Collected> {
        self.pending.push_back(Pending { issued, jobs, shards, rows: 0 });
        self.complete()
    }

    /// A shard has passed a barrier.
    pub fn passed(&mut self, epoch: Epoch, rows: u64) -> Vec<Collected> {
        if let Some(pending) = self.pending.iter_mut().find(|p| p.issued.barrier.epoch == epoch) {
            pending.shards = pending.shards.saturating_sub(1);
            pending.rows += rows;
        }
        self.complete()
    }

    /// The domain failed: `true` the first time.
    pub fn fail(&mut self) -> bool {
        self.pending.clear();
        !std::mem::replace(&mut self.failed, true)
    }

    /// Whether it failed.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Barriers that are in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn complete(&mut self) -> Vec<Collected> {
        let mut done = Vec::new();
        while !self.failed && self.pending.front().is_some_and(|p| p.shards == 0) {
            let Some(Pending { issued, jobs, rows, .. }) = self.pending.pop_front() else { break };
            done.push(Collected { issued, jobs, rows });
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eddyline_protocol::{Barrier, BarrierKind};
    use eddyline_types::DomainId;

    fn issued(epoch: u64) -> Arc<Issued> {
        let barrier =
            Barrier { domain: DomainId(1), epoch: Epoch(epoch), prev: Epoch(epoch - 1), term: 1, kind: BarrierKind::Plain, mutation: None };
        Arc::new(Issued { attempt: 1, barrier, issued_nanos: 0 })
    }

    fn epochs(done: Vec<Collected>) -> Vec<(u64, u64)> {
        done.into_iter().map(|c| (c.issued.barrier.epoch.0, c.rows)).collect()
    }

    #[test]
    fn barriers_are_answered_once_in_order_and_never_after_a_failure() {
        let mut c = Collector::new(1);
        let jobs: Arc<[JobId]> = [JobId(1)].into();
        assert!(c.expect(issued(1), jobs.clone(), 2).is_empty());
        assert!(c.expect(issued(2), jobs.clone(), 2).is_empty());
        assert_eq!(epochs(c.passed(Epoch(1), 5)), []);
        assert_eq!(epochs(c.passed(Epoch(2), 1)), []);
        assert_eq!(epochs(c.passed(Epoch(1), 6)), [(1, 11)]);
        assert_eq!(epochs(c.passed(Epoch(2), 0)), [(2, 1)]);
        assert_eq!(epochs(c.expect(issued(3), jobs.clone(), 0)), [(3, 0)], "no shards: nothing to wait for");
        assert!(c.expect(issued(4), jobs, 1).is_empty());
        assert!(c.fail());
        assert!(!c.fail());
        assert_eq!(epochs(c.passed(Epoch(4), 0)), []);
    }
}
