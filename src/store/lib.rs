//! The state store: an LSM of Arrow blocks on an object store.
//!
//! One concrete type, [`Store`], with the object store as the only seam below it. The store decides nothing about commits: it hands
//! out a `VersionDelta` for an upload or a compaction, meta commits it through Raft, and [`Store::install`] makes the new version readable.
//!
//! Reading order: [`store`] (the handle), `block` (sorted rows in memory), `buffer` (what is not committed), `upload` (buffer to files),
//! `sst` (the file format), `levels` (a version, opened), `merge` and `source` (the k-way merge), `scan`, `get`, `cache`, `filter`,
//! `picker` and `compact` (what to merge, and merging it), `pending` (objects between put and commit), `garbage` (objects that nothing names).

mod block;
mod buffer;
mod cache;
mod compact;
mod filter;
mod garbage;
mod get;
mod levels;
mod merge;
mod pending;
mod picker;
mod scan;
mod source;
mod sst;
pub mod store;
mod upload;

pub use store::{ScanOptions, Snapshot, Store, StoreConfig, TableWrite};
