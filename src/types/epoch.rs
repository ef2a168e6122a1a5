//! The logical clock: one tick is one transaction of a domain.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bits of an epoch that count within one millisecond.
const SEQUENCE_BITS: u32 = 16;

/// One tick of the logical clock: milliseconds since the Unix epoch in the upper 48 bits, a sequence number below.
///
/// All domains draw from one increasing series, so epochs of different domains compare; 0 is "before everything".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before every real epoch.
    pub const ZERO: Epoch = Epoch(0);
    /// After every real epoch: reading at `MAX` sees the newest of everything.
    pub const MAX: Epoch = Epoch(u64::MAX);

    /// The first epoch of a millisecond.
    pub fn from_millis(millis: u64) -> Self {
        Epoch(millis << SEQUENCE_BITS)
    }

    /// Milliseconds since the Unix epoch.
    pub fn millis(self) -> u64 {
        self.0 >> SEQUENCE_BITS
    }

    /// The smallest epoch that is larger than `self` and not before the given time.
    pub fn next(self, now_millis: u64) -> Self {
        Epoch::from_millis(now_millis).max(Epoch(self.0 + 1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_moves_on_when_the_clock_stands_still_or_goes_back() {
        let e = Epoch::from_millis(1000);
        assert_eq!(e.next(1000), Epoch(e.0 + 1));
        assert_eq!(e.next(10), Epoch(e.0 + 1));
        assert_eq!(e.next(1001), Epoch::from_millis(1001));
        assert_eq!(e.next(1001).millis(), 1001);
    }
}
