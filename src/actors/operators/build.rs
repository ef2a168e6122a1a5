//! From plan to operator: the one place where a task's builder asks for operators.

use super::Operator;
use super::agg::HashAgg;
use super::backfill::{Backfill, BackfillSpec};
use super::join::HashJoin;
use super::linear::{Blackhole, Filter, Project, RowId};
use super::materialize::{Keyed, Multiset, Overwrite};
use arrow::datatypes::SchemaRef;
use eddyline_protocol::plan::MaterializeMode;
use eddyline_protocol::{Fragment, FragmentGraph, Head, Node, NodeKind, TableDesc};
use eddyline_types::{Error, Result, ShardId, TableId, vnode};

/// What an operator may know of the shard that it will run in.
pub struct ShardSpec<'a> {
    /// The job's graph, for the descriptors of its state tables.
    pub graph: &'a FragmentGraph,
    /// Which shard.
    pub shard: ShardId,
    /// How many shards the fragment has; this one owns `vnode::range_of_shard(shard.index, shards)`.
    pub shards: u32,
    /// For a backfill head: the table of the other job that it reads.
    pub upstream: Option<&'a TableDesc>,
}

impl ShardSpec<'_> {
    fn table(&self, id: TableId) -> Result<TableDesc> {
        self.graph.table(id).cloned().ok_or_else(|| Error::internal(format!("the plan has no state table {id}")))
    }
}

/// The operator of a chain node; `input` is the schema of the chunks that enter it (on port 0).
pub fn chain_operator(spec: &ShardSpec<'_>, node: &Node, input: &SchemaRef) -> Result<Box<dyn Operator>> {
    Ok(match &node.kind {
        NodeKind::RowId => Box::new(RowId::new(node.schema.clone(), spec.shard.index, spec.shards)),
        NodeKind::Filter { predicate } => Box::new(Filter::new(predicate, input)?),
        NodeKind::Project { exprs } => Box::new(Project::new(exprs, input, node.schema.clone())?),
        NodeKind::HashAgg(agg) => Box::new(HashAgg::new(agg, input, node.schema.clone(), &|id| spec.table(id))?),
        NodeKind::Materialize(m) => match m.mode {
            MaterializeMode::Keyed => Box::new(Keyed::new(spec.table(m.table)?)?),
            MaterializeMode::Overwrite => Box::new(Overwrite::new(spec.table(m.table)?)?),
            MaterializeMode::Multiset => Box::new(Multiset::new(spec.table(m.table)?)?),
        },
        NodeKind::Sink { relation, connector } if connector == "blackhole" => Box::new(Blackhole::new(*relation)),
        NodeKind::Sink { connector, .. } => return Err(Error::unsupported(format!("connector '{connector}' cannot be a sink"))),
    })
}

/// The operator of a fragment's head (join, backfill); `None` for heads that only let chunks in (source, DML, receive), which the task is itself.
pub fn head_operator(spec: &ShardSpec<'_>, fragment: &Fragment) -> Result<Option<Box<dyn Operator>>> {
    Ok(match &fragment.head {
        Head::Source { .. } | Head::Dml { .. } | Head::Receive { .. } => None,
        Head::Join(join) => Some(Box::new(HashJoin::new(join, fragment.head_schema.clone(), &|id| spec.table(id))?)),
        Head::Backfill { edge, table, columns, progress, .. } => {
            let edge_columns = spec.graph.edges.iter().find(|e| e.id == *edge).map(|e| e.columns.len());
            let upstream = spec.upstream.filter(|t| t.id == *table).cloned();
            Some(Box::new(Backfill::new(BackfillSpec {
                upstream: upstream.ok_or_else(|| Error::internal(format!("the backfilled table {table} is not known")))?,
                edge_columns: edge_columns.ok_or_else(|| Error::internal(format!("the plan has no edge {edge}")))?,
                columns: columns.clone(),
                schema: fragment.head_schema.clone(),
                progress: spec.table(*progress)?,
                vnodes: vnode::range_of_shard(spec.shard.index, spec.shards),
            })?))
        }
    })
}
