//! In-memory state: hash tables over keys, columnar row arenas, and the way they are written to state tables.
//!
//! Reading order: [`keys`] (key -> record of words), [`arena`] (rows by number, columnar), [`hash`] (whole columns to hashes), [`mod@write`] (sorted table writes).
//! Nothing here knows operators or SQL.

pub mod arena;
pub mod column;
pub mod hash;
pub mod index;
pub mod keys;
pub mod write;
