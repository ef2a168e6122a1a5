//! Meta: decides, durably. Catalog, DDL, barrier coordination, commits.
//!
//! Reading order: [`command`] and [`state`] (the replicated state machine, pure), [`epochs`] and [`placement`] (pure helpers),
//! [`coordinator`] (the barrier loops and DDL as `step(event) -> effects`, pure), `driver` (performs effects), `raft` (the sole home
//! of openraft: log, snapshots, network), `lock`, and [`meta`], the handle that everybody else uses.
//!
//! Invariants: plain barriers cost no Raft write; one Raft command packs everything that waits; no I/O and no clock in a decision;
//! what was acknowledged survives a crash at any moment.

pub mod command;
pub mod coordinator;
mod driver;
pub mod epochs;
mod lock;
pub mod meta;
pub mod placement;
mod raft;
pub mod state;
pub mod status;
#[cfg(test)]
mod testing;

pub use coordinator::CoordinatorConfig;
pub use driver::VersionSink;
pub use meta::{Meta, MetaConfig};
pub use raft::{RaftService, RaftSettings};
pub use status::{BarrierRecord, DomainStatus, MetaStatus};
