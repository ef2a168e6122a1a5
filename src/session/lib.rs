//! Statement execution, shared by the Postgres wire and REST: from text and parameters to a tag, batches and notices.
//!
//! Reading order: [`frontend`] (what all sessions share), [`session`] (one client), [`prepared`] (text to bound statements), [`run`] (bound statements to
//! outcomes, a file for each kind), [`transaction`], [`variables`], [`outcome`] (what a statement gives back), [`coordinator`] (what is asked of meta),
//! [`registry`] (who is connected).
//! This crate speaks no protocol: parameters come in as Arrow arrays of one row, results go out as Arrow batches. Layer 5, see
//! docs/decisions/0004-session-crate.md.

pub mod coordinator;
pub mod frontend;
pub mod meta;
pub mod outcome;
pub mod prepared;
mod registry;
pub mod run;
pub mod session;
#[cfg(test)]
mod testing;
pub mod transaction;
pub mod variables;

pub use coordinator::Coordinator;
pub use eddyline_serving::system::SystemState;
pub use eddyline_sql::statement::{CopyIn, CopyOptions};
pub use frontend::{DATABASE, Frontend, FrontendParts, Limits, Protocol, SessionInfo, SessionOptions};
pub use meta::MetaCoordinator;
pub use outcome::{Notice, Outcome, RowStream, Severity, Tag};
pub use prepared::Prepared;
pub use session::{CancelKey, Session, Statement, TransactionStatus};
