//! The stream engine: operators, the task of a shard, its actor shell, dispatch and the worker that builds domains. The sole home of actix.
//!
//! Reading order: [`operators`] (what happens to rows; knows no actors); [`message`], [`credit`], [`aligner`], [`dispatch`] (how rows travel); [`chain`],
//! [`inlet`], [`state`], [`records`] and [`task`] (the loop of one shard); [`hub`], [`collector`], [`uploads`], [`builder`] and [`worker`] (all shards of a node, and meta);
//! [`host`], `shard` and `arbiters` (where it runs); [`compaction`] (the store's background work).
//! Actix is known to `shard`, `arbiters` and `compaction` only.

pub mod aligner;
mod arbiters;
pub mod builder;
pub mod chain;
pub mod collector;
pub mod compaction;
pub mod credit;
pub mod dispatch;
pub mod figures;
pub mod host;
pub mod hub;
pub mod inlet;
pub mod message;
pub mod operators;
pub mod records;
mod shard;
pub mod state;
pub mod task;
pub mod uploads;
pub mod worker;

pub use compaction::{CommitDelta, CompactionConfig};
pub use credit::Budget;
pub use figures::ShardDetail;
pub use inlet::{OpenSource, SourceOpening};
pub use worker::{Worker, WorkerConfig};

#[cfg(test)]
mod tests;
