//! Sorted string tables: the immutable files of the store. docs/FORMAT.md gives them byte by byte.
//!
//! Reading order: [`mod@format`] (footer and index as bytes), [`encode`] (blocks to and from Arrow IPC), [`mod@write`] (building a file),
//! [`read`] (opening one). Every part has a checksum, and every read verifies it before it trusts a byte.

pub(crate) mod encode;
pub(crate) mod format;
pub(crate) mod read;
pub(crate) mod write;

#[cfg(test)]
mod golden;
