//! The state store: an LSM of Arrow blocks on an object store.
//!
//! One concrete type, [`Store`], with the object store as the only seam below it. The store decides nothing about commits: it hands
//! out a `VersionDelta` for an upload or a compaction, meta commits it through Raft, and [`Store::install`] makes the new version readable.

pub mod store;

pub use store::{ScanOptions, Snapshot, Store, StoreConfig, TableWrite};
