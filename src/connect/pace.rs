//! Rows per second by the clock: how many rows are due, and when the next ones are.

use eddyline_env::clock::{self, Instant};
use std::time::Duration;

/// Rows that were due longer ago are not caught up with: a source that was held back goes on at its rate.
const MOST_BEHIND_SECONDS: f64 = 1.0;
/// At high rates rows are given in groups this far apart.
const GROUP_SECONDS: f64 = 0.01;

/// Paces a generator.
pub(crate) struct Pace {
    start: Instant,
    meter: Meter,
}

/// The arithmetic, without a clock.
struct Meter {
    /// `None`: as fast as it is asked.
    per_second: Option<f64>,
    given: u64,
}

impl Pace {
    /// Starts now; at once one group is due.
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        Pace { start: clock::now(), meter: Meter { per_second, given: 0 } }
    }

    /// Waits until rows are due: how many, at most `max_rows`. They count as given only when [`Pace::give`] is called.
    pub(crate) async fn due(&mut self, max_rows: usize) -> usize {
        loop {
            match self.meter.due(self.start.elapsed(), max_rows) {
                Ok(rows) => return rows,
                Err(at) => clock::sleep_until(self.start + at).await,
            }
        }
    }

    /// Rows were given.
    pub(crate) fn give(&mut self, rows: usize) {
        self.meter.given += rows as u64;
    }
}

impl Meter {
    /// Rows due after so long, or when the next ones are.
    fn due(&mut self, elapsed: Duration, max_rows: usize) -> Result<usize, Duration> {
        let max_rows = max_rows.max(1);
        let Some(rate) = self.per_second else { return Ok(max_rows) };
        let group = ((rate * GROUP_SECONDS) as u64).clamp(1, max_rows as u64);
        let scheduled = (elapsed.as_secs_f64() * rate + 1e-6) as u64 + group;
        let most_behind = ((rate * MOST_BEHIND_SECONDS) as u64).max(group);
        self.given = self.given.max(scheduled.saturating_sub(most_behind));
        let due = scheduled.saturating_sub(self.given);
        if due >= group {
            return Ok((due as usize).min(max_rows));
        }
        Err(Duration::try_from_secs_f64(self.given as f64 / rate).unwrap_or(Duration::from_secs(86_400)).max(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_at_the_rate_and_are_not_caught_up_for_ever() {
        let mut meter = Meter { per_second: Some(10.0), given: 0 };
        let mut now = Duration::ZERO;
        for _ in 0..21 {
            match meter.due(now, 100) {
                Ok(rows) => assert_eq!(rows, 1),
                Err(at) => {
                    assert!(at > now);
                    now = at;
                    assert_eq!(meter.due(now, 100), Ok(1));
                }
            }
            meter.given += 1;
        }
        assert_eq!(now, Duration::from_secs(2));
        assert_eq!(meter.due(now + Duration::from_secs(3600), 100), Ok(10));
        let mut fast = Meter { per_second: Some(1_000_000.0), given: 0 };
        assert_eq!(fast.due(Duration::ZERO, 4096), Ok(4096));
        fast.given += 4096;
        assert!(fast.due(Duration::from_millis(2), 4096).is_err());
        assert_eq!(fast.due(Duration::from_millis(5), 4096), Ok(4096));
        assert_eq!(Meter { per_second: None, given: 7 }.due(now, 5), Ok(5));
    }
}
