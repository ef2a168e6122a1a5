//! SQL scalar expressions: DataFusion's functions and ours, encoded in plans, compiled over chunks, evaluated so that a poison row harms only itself.
//!
//! Reading order: [`bound`] (what the SQL front end hands to the serving engine), [`encode`] (bytes in plans), [`compiled`]
//! (evaluation over batches), [`registry`] (which functions exist), [`checked`] and [`functions`] (those that are ours),
//! [`pg_types`] (Arrow types by their Postgres names), [`errors`] (failures by SQLSTATE).
//! This crate does no I/O and parses no SQL.

pub mod bound;
pub mod checked;
pub mod compiled;
pub mod encode;
pub mod errors;
pub mod functions;
pub mod pg_types;
pub mod registry;

pub use compiled::{CompiledExpr, RowError};
