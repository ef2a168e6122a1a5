//! Statement execution, shared by the Postgres wire and REST: from text and parameters to a tag, batches and notices.
//!
//! Reading order: [`frontend`] (what all sessions share), [`session`] (one client's variables, transaction and statements),
//! [`outcome`] (what a statement gives back).
//! This crate speaks no protocol: parameters come in as Arrow arrays of one row, results go out as Arrow batches. Layer 5, see
//! docs/decisions/0004-session-crate.md.

pub mod frontend;
pub mod outcome;
pub mod session;

pub use frontend::{Frontend, FrontendParts, Limits, Protocol, SessionInfo, SessionOptions};
pub use outcome::{Notice, Outcome, RowStream, Severity, Tag};
pub use session::{CancelKey, Prepared, Session, Statement, TransactionStatus};
