//! Wall clock, monotonic clock, waiting and deadlines. All waiting goes through tokio's timer, so paused time in tests works.
#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::time::Duration;

/// A point of the monotonic clock.
pub use tokio::time::Instant;

/// The monotonic clock.
pub fn now() -> Instant {
    Instant::now()
}

/// The monotonic clock for code outside any runtime (operators, arbiters): nanoseconds since an arbitrary start.
pub fn monotonic_nanos() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// Microseconds since the Unix epoch.
pub fn unix_micros() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// Milliseconds since the Unix epoch.
pub fn unix_millis() -> u64 {
    unix_micros() / 1000
}

/// Waits.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Holds this thread up: for work on blocking threads, which may outlive the runtime's timer.
pub fn sleep_blocking(duration: Duration) {
    std::thread::sleep(duration);
}

/// Waits until a point in time.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline).await;
}

/// Runs a future for at most `duration`; `None` when the time is up (the future is dropped).
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(duration, future).await.ok()
}
