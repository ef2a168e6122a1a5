//! The nouns that the engines share: what exists, what runs, how an epoch is closed, which files make a version.
//!
//! Reading order: [`catalog`] (what exists), [`plan`] (fragments and operators of a job), [`table`] (state tables),
//! [`barrier`] (how an epoch closes), [`version`] (files of a committed epoch), [`frontier`] (how far a reader may look),
//! [`control`] (who tells whom what: meta and the executor), [`report`] (poison rows), [`codec`] (bytes of all this).
//! This crate does no I/O and knows no planner: scalar expressions are opaque bytes here.

pub mod barrier;
pub mod catalog;
pub mod codec;
pub mod control;
pub mod frontier;
pub mod plan;
pub mod report;
pub mod table;
pub mod version;

pub use barrier::{Barrier, BarrierKind, Mutation};
pub use catalog::{Catalog, ColumnDef, Job, JobStatus, Relation, RelationKind, SourceSpec};
pub use frontier::{Frontier, Frontiers};
pub use plan::{Dispatch, Edge, EdgeFrom, Expr, Fragment, FragmentGraph, Head, Node, NodeKind};
pub use report::ErrorRecord;
pub use table::TableDesc;
pub use version::{SstInfo, Version, VersionDelta};
