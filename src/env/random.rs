//! Randomness. Seeded generators are made here so that a run can be repeated.

use rand::SeedableRng;
use rand::rngs::SmallRng;

/// A generator with a fixed seed: the same seed gives the same numbers in this version of the program.
pub fn seeded(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// A generator with a seed from the operating system.
pub fn from_entropy() -> SmallRng {
    rand::make_rng()
}

/// 64 random bits from the operating system: for unique names and identities.
#[allow(clippy::disallowed_methods)]
pub fn next_u64() -> u64 {
    rand::random()
}
