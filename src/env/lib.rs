//! Every source of nondeterminism: clock, randomness, tasks and threads, metrics registry, fail points.
//!
//! The rest of the program may not call the standard library's or tokio's versions (clippy.toml bans them), so that a
//! simulation can put a virtual clock and a seed behind these functions.

pub mod clock;
pub mod failpoint;
pub mod metrics;
pub mod random;
pub mod spawn;
