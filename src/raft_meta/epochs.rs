//! Handing out epochs from ranges that were reserved through Raft.
//!
//! Invariant: every epoch is above all earlier ones, those of earlier leaders and of the time before a restart included,
//! whatever the wall clock does. Pure: the caller brings the clock and carries reservations to Raft.

use eddyline_types::Epoch;

/// How far ahead a reservation reaches.
const AHEAD_MS: u64 = 5_000;
/// Reserve again when less than this is left.
const LOW_MS: u64 = 2_000;

/// Hands out epochs.
#[derive(Clone, Debug)]
pub struct EpochAllocator {
    last: Epoch,
    reserved: Epoch,
}

impl EpochAllocator {
    /// Starts above everything that was ever reserved.
    pub fn new(reserved: Epoch) -> Self {
        EpochAllocator { last: reserved, reserved }
    }

    /// The next epoch, or `None` until a larger range is reserved.
    pub fn next(&mut self, now_ms: u64) -> Option<Epoch> {
        let next = self.last.next(now_ms);
        if next > self.reserved {
            return None;
        }
        self.last = next;
        Some(next)
    }

    /// The newest epoch handed out (or the end of the last range before this start).
    pub fn last(&self) -> Epoch {
        self.last
    }

    /// The end of a range worth reserving now, if the present one is about to run out.
    pub fn wanted(&self, now_ms: u64) -> Option<Epoch> {
        let base = self.last.millis().max(now_ms);
        (self.reserved < Epoch::from_millis(base + LOW_MS)).then(|| Epoch::from_millis(base + AHEAD_MS))
    }

    /// A reservation was committed.
    pub fn reserved(&mut self, upto: Epoch) {
        self.reserved = self.reserved.max(upto);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_grow_over_restarts_and_backward_clocks_and_need_reservations() {
        let mut a = EpochAllocator::new(Epoch::ZERO);
        assert_eq!(a.next(1000), None);
        let upto = a.wanted(1000).unwrap();
        a.reserved(upto);
        assert_eq!(a.wanted(1000), None);
        let first = a.next(1000).unwrap();
        let second = a.next(500).unwrap();
        assert!(second > first);
        assert_eq!(a.next(1_000_000), None, "outside the range");
        // A restart loses `last`, not the range; the clock went back.
        let mut b = EpochAllocator::new(upto);
        assert_eq!(b.next(10), None);
        b.reserved(b.wanted(10).unwrap());
        assert!(b.next(10).unwrap() > upto);
        assert!(b.next(10).unwrap() > second);
    }
}
