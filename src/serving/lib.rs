//! Serving: SELECT over pinned snapshots, point reads, the rows of DML statements, and the system's tables.
//!
//! Reading order: [`engine`] (the handle), [`pin`] (which epoch of what is read), [`reader`] (rows of one relation at that epoch),
//! [`key_range`] (which part of a table a predicate needs), [`provider`] and [`query`] (DataFusion over it), [`lookup`] (point reads
//! around DataFusion), [`dml`] (what INSERT, UPDATE and DELETE write), [`cancel`], [`failure`], [`system`] (pg_catalog and friends).
//! This crate knows no SQL text of the user, sends nothing to the actors and waits for no commit: `session` does.

pub mod cancel;
pub mod dml;
pub mod engine;
pub mod failure;
pub mod key_range;
pub mod lookup;
pub mod pin;
pub mod provider;
pub mod query;
pub mod reader;
pub mod system;
#[cfg(test)]
mod testing;

pub use cancel::{Cancel, CancelReason};
pub use dml::{DmlKind, DmlRequest, DmlRows};
pub use engine::{Serving, ServingConfig};
pub use lookup::PointRead;
pub use pin::{ClusterView, Freshness, ReadPoint};
pub use query::{QueryRows, QueryRun};
