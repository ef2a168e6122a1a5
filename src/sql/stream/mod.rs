//! The stream planner: from a query to the fragments that keep its result up to date.
//!
//! Reading order: [`optimize`] (DataFusion's rules that we want), [`plan`] (our operators as a tree, with keys and distribution),
//! [`lower`], [`aggregate`] and [`join`] (from logical plans to that tree), [`fragment`] (from the tree to fragments, edges and state
//! tables), [`table`] (the job of a base table), [`explain`].
//!
//! Invariant of the tree: a node's columns begin with those of the logical plan that it stands for, in order; hidden key columns follow.

pub(crate) mod aggregate;
pub(crate) mod explain;
pub(crate) mod fragment;
pub(crate) mod join;
pub(crate) mod lower;
pub(crate) mod optimize;
pub(crate) mod plan;
pub(crate) mod table;

use crate::bind::{Binder, Planned};
use eddyline_protocol::{ColumnDef, FragmentGraph, Relation, RelationKind};
use eddyline_types::{Error, Result, SqlState, TableId};

/// The number of the materialised table within its graph.
pub(crate) const MAIN_TABLE: TableId = TableId(1);

/// The number of the errors table within its graph.
pub(crate) const ERRORS_TABLE: TableId = TableId(2);

/// What a view or sink runs.
pub(crate) struct StreamJob {
    pub graph: FragmentGraph,
    /// All columns of the materialised table, hidden ones last (empty for sinks).
    pub columns: Vec<ColumnDef>,
    /// Key of the materialised table; empty: rows may repeat.
    pub key: Vec<usize>,
    pub append_only: bool,
    pub notices: Vec<String>,
    /// For EXPLAIN.
    pub logical: datafusion::logical_expr::LogicalPlan,
    /// For EXPLAIN.
    pub tree: plan::StreamPlan,
}

/// Plans the query of a materialised view or sink.
pub(crate) fn plan_query(binder: &Binder<'_>, planned: Planned, relation: &Relation) -> Result<StreamJob> {
    let names = planned.names.clone();
    let mut notices = Vec::new();
    let logical = optimize::optimize(planned.plan).map_err(|e| binder.failure(e))?;
    let is_sink = relation.kind == RelationKind::Sink;
    let mut lower = lower::Lower { catalog: binder.context.catalog, notices: &mut notices };
    let tree = lower.lower(&logical, !is_sink)?;
    if tree.schema.len() < names.len() {
        return Err(Error::internal("the stream plan lost columns"));
    }
    let job = if is_sink { fragment::sink_job(&tree, names.len(), relation)? } else { fragment::view_job(tree, &names, relation)? };
    let fragment::Job { graph, columns, key, append_only, tree } = job;
    if columns.len() > 1600 {
        return Err(Error::user(SqlState::LIMIT_EXCEEDED, "views can have at most 1600 columns"));
    }
    Ok(StreamJob { graph, columns, key, append_only, notices, logical, tree })
}
