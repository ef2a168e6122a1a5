//! From plan to operator: the one place where a task's builder asks for operators.

use super::Operator;
use arrow::datatypes::SchemaRef;
use eddyline_protocol::{Fragment, FragmentGraph, Node, TableDesc};
use eddyline_types::{Error, Result, ShardId};

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

/// The operator of a chain node; `input` is the schema of the chunks that enter it (on port 0).
pub fn chain_operator(spec: &ShardSpec<'_>, node: &Node, input: &SchemaRef) -> Result<Box<dyn Operator>> {
    let _ = (spec, input);
    Err(Error::unsupported(format!("operator {} does not run yet", node.kind.name())))
}

/// The operator of a fragment's head (join, backfill); `None` for heads that only let chunks in (source, DML, receive), which the task is itself.
pub fn head_operator(spec: &ShardSpec<'_>, fragment: &Fragment) -> Result<Option<Box<dyn Operator>>> {
    use eddyline_protocol::Head;
    let _ = spec;
    match &fragment.head {
        Head::Source { .. } | Head::Dml { .. } | Head::Receive { .. } => Ok(None),
        head @ (Head::Join(_) | Head::Backfill { .. }) => Err(Error::unsupported(format!("operator {} does not run yet", head.name()))),
    }
}
