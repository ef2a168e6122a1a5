//! The plan of a job: fragments, operators and the edges between them.
//!
//! A fragment is a head plus a straight chain: the head is a source, a receiver of streams or the one multi-input
//! operator; what follows is linear. The planner numbers fragments, edges, operators and tables from 1 within one graph;
//! the meta state machine replaces the numbers by cluster-wide ones with [`FragmentGraph::renumber`].
//! Column positions refer to the chunk that enters the operator.

use crate::catalog::SourceSpec;
use crate::table::TableDesc;
use arrow::datatypes::{DataType, Field, SchemaRef};
use eddyline_types::{EdgeId, FragmentId, JobId, ObjectId, OperatorId, TableId};
use serde::{Deserialize, Serialize};

/// A scalar expression over the columns of a chunk: opaque bytes that `eddyline_expr` writes and compiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expr {
    /// Encoded by `eddyline_expr`; columns are referred to by position.
    pub bytes: Vec<u8>,
    /// For people and error records.
    pub text: String,
    /// Type of the result.
    pub data_type: DataType,
    /// Whether the result may be NULL.
    pub nullable: bool,
}

/// Everything that one job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentGraph {
    /// In an order where each fragment comes after the local fragments that feed it.
    pub fragments: Vec<Fragment>,
    /// Streams between fragments, those from other jobs included.
    pub edges: Vec<Edge>,
    /// State tables of all operators.
    pub tables: Vec<TableDesc>,
    /// The fragment whose chain ends in `Materialize`; other jobs attach here. `None` for sinks.
    pub output: Option<FragmentId>,
    /// Rows that failed to evaluate: see [`crate::report`].
    pub errors_table: TableId,
}

/// A subtree of the plan with one hash distribution; runs as shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// Unique in the cluster (after renumbering).
    pub id: FragmentId,
    /// Where chunks come from.
    pub head: Head,
    /// Operator id and name of the head (for sources, joins, backfills).
    pub head_id: OperatorId,
    /// Schema of what the head emits.
    pub head_schema: SchemaRef,
    /// What they go through, in order.
    pub chain: Vec<Node>,
    /// How many shards.
    pub parallelism: Parallelism,
}

impl Fragment {
    /// Schema of what leaves the chain.
    pub fn output_schema(&self) -> SchemaRef {
        self.chain.last().map_or(&self.head_schema, |n| &n.schema).clone()
    }
}

/// How many shards a fragment gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parallelism {
    /// One shard, vnode 0.
    Single,
    /// As many as the job's parallelism setting says; shard i owns vnodes `vnode::range_of_shard(i, n)`.
    Default,
    /// As many as the fragment that feeds edge `EdgeId` (of this graph) has: for `NoShuffle`.
    SameAs(EdgeId),
}

/// The head of a fragment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Head {
    /// Reads an outside source (datagen, nexmark, file). Offsets are state: table `(split utf8 key, offset utf8)`.
    Source { relation: ObjectId, spec: SourceSpec, offsets: TableId },
    /// Takes what INSERT, UPDATE and DELETE send to a table. Singleton or parallel; any shard may take any row.
    Dml { relation: ObjectId },
    /// The union of all edges (one or more), each on port 0.
    Receive { edges: Vec<EdgeId> },
    /// A two-input join; port 0 is left, port 1 is right.
    Join(Box<JoinNode>),
    /// A new job's reader of an existing table: snapshot first, then changes (the cursor rule; see actors::operators::backfill).
    /// `edge` is a `NoShuffle` edge from the upstream's output fragment; `table` is the upstream's table;
    /// `columns` are the columns of the upstream's table that are wanted, in order. `progress` has rows `(vnode int32 key, position binary, done bool)`.
    Backfill { edge: EdgeId, upstream: ObjectId, table: TableId, columns: Vec<usize>, progress: TableId },
}

/// One operator of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Names error records and metrics.
    pub id: OperatorId,
    /// What it does.
    pub kind: NodeKind,
    /// Schema of what it emits.
    pub schema: SchemaRef,
}

/// The operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// Appends a unique `Int64` column to append-only input: the key of rows that have none.
    RowId,
    /// Keeps rows where the boolean expression is true.
    Filter { predicate: Expr },
    /// Computes columns.
    Project { exprs: Vec<Expr> },
    /// Groups and aggregates.
    HashAgg(Box<AggNode>),
    /// Writes the table of a relation and passes its changes on.
    Materialize(MaterializeNode),
    /// Ends in a sink. Only `blackhole` so far: counts rows and forgets them.
    Sink { relation: ObjectId, connector: String },
}

impl NodeKind {
    /// The operator's name in plans, metrics and error records.
    pub fn name(&self) -> &'static str {
        match self {
            NodeKind::RowId => "RowId",
            NodeKind::Filter { .. } => "Filter",
            NodeKind::Project { .. } => "Project",
            NodeKind::HashAgg(_) => "HashAgg",
            NodeKind::Materialize(_) => "Materialize",
            NodeKind::Sink { .. } => "Sink",
        }
    }
}

impl Head {
    /// The operator's name in plans, metrics and error records.
    pub fn name(&self) -> &'static str {
        match self {
            Head::Source { .. } => "Source",
            Head::Dml { .. } => "Dml",
            Head::Receive { .. } => "Receive",
            Head::Join(_) => "HashJoin",
            Head::Backfill { .. } => "Backfill",
        }
    }
}

/// Hash aggregate. Output columns: the group columns, then one per call.
/// A group exists while its row count is > 0; without group columns there is always exactly one output row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggNode {
    /// Group columns (positions in the input). Empty: one global group.
    pub group: Vec<usize>,
    /// The aggregates.
    pub calls: Vec<AggCall>,
    /// The input never retracts: min and max need no multiset.
    pub append_only: bool,
    /// Table of groups: the group columns (key, in order), `_count int64` (rows), then the accumulator columns of each
    /// call as [`AggCall::state_fields`] gives them. A row is there while its group has rows (or, for the global group, always).
    pub state: TableId,
}

/// One aggregate of a `HashAgg`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggCall {
    /// The function.
    pub function: AggFunction,
    /// Input column; `None` only for `count(*)`.
    pub argument: Option<usize>,
    /// Count each distinct value once.
    pub distinct: bool,
    /// Boolean column: only rows where it is true count.
    pub filter: Option<usize>,
    /// Type of the result (sum: the argument's wide type; avg: float64 or decimal).
    pub output: DataType,
    /// Multiset of values per group, for DISTINCT and for retractable min/max:
    /// rows `(group columns, value, _weight int64)` keyed by all but the weight, distributed by the group columns. A call without one and with `distinct` is refused (min, max, bool_and and bool_or need no `distinct`).
    pub multiset: Option<TableId>,
}

impl AggCall {
    /// Accumulator columns of this call in the group's state row; `index` is its position among the calls, `argument` the type of its input column.
    /// Sums are exact: 128 bits for integers (as decimal(38,0)), 256 for decimals; float sums keep the compensation and count NaN and infinities apart.
    /// A call with a multiset has none. `None`: the function does not take the type.
    pub fn state_fields(&self, index: usize, argument: Option<&DataType>) -> Option<Vec<Field>> {
        let field = |name: &str, data_type: DataType, nullable: bool| Field::new(format!("_{index}_{name}"), data_type, nullable);
        let int = |name: &str| field(name, DataType::Int64, false);
        let sum = |argument: &DataType| match argument {
            t if t.is_integer() => Some(vec![field("sum", DataType::Decimal128(38, 0), false), int("count")]),
            DataType::Decimal128(_, scale) => Some(vec![field("sum", DataType::Decimal256(76, *scale), false), int("count")]),
            DataType::Float32 | DataType::Float64 => {
                let float = |name: &str| field(name, DataType::Float64, false);
                Some(vec![float("sum"), float("rest"), int("nan"), int("inf"), int("neg_inf"), int("count")])
            }
            _ => None,
        };
        let fields = match self.function {
            AggFunction::Count => vec![int("count")],
            AggFunction::Sum | AggFunction::Avg => sum(argument?)?,
            AggFunction::Min | AggFunction::Max => vec![field("value", self.output.clone(), true)],
            AggFunction::BoolAnd | AggFunction::BoolOr => match argument? {
                DataType::Boolean => vec![int("true"), int("false")],
                _ => return None,
            },
        };
        Some(if self.multiset.is_some() { Vec::new() } else { fields })
    }
}

/// The aggregate functions that have their own incremental form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum AggFunction {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BoolAnd,
    BoolOr,
}

/// Hash join. Output: `output` picks from the left columns followed by the right columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinNode {
    /// Which unmatched rows are padded with NULLs.
    pub kind: JoinKind,
    /// The two inputs.
    pub left: JoinSide,
    /// See `left`.
    pub right: JoinSide,
    /// NULL = NULL when true (IS NOT DISTINCT FROM), else NULL keys match nothing.
    pub null_equal: bool,
    /// A further condition over left columns followed by right columns.
    pub residual: Option<Expr>,
    /// Columns of the output, as positions in left columns followed by right columns.
    pub output: Vec<usize>,
}

/// One input of a join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSide {
    /// Where its chunks come from.
    pub edge: EdgeId,
    /// Their schema.
    pub schema: SchemaRef,
    /// Join key columns; the edge is hashed by them.
    pub keys: Vec<usize>,
    /// Columns that, with the join key, are unique per row; empty = none known, the whole row and its weight are the key.
    pub stream_key: Vec<usize>,
    /// Never retracts.
    pub append_only: bool,
    /// Rows of this side: its columns, then `_weight int64`; keyed by join key, then stream key (or all columns).
    pub state: TableId,
}

/// Join types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

/// The writer of a relation's table. Emits the changes of the table downstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaterializeNode {
    /// The table or view.
    pub relation: ObjectId,
    /// Its table. Schema: the input columns (Multiset: and `_weight int64`, keyed by all columns but that).
    pub table: TableId,
    /// What happens to rows with equal keys.
    pub mode: MaterializeMode,
}

/// How rows with equal keys are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaterializeMode {
    /// The plan proves that, once an epoch is consolidated, at most one row per key remains. A violation fails the job.
    Keyed,
    /// A base table: a new row replaces an older one with its key, a delete of a missing key is ignored, a delete removes
    /// whatever row has the key. Emits consistent -old +new.
    Overwrite,
    /// No key: the whole row is the key and its multiplicity is stored.
    Multiset,
}

/// A stream from one fragment to an input of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Unique in the cluster (after renumbering).
    pub id: EdgeId,
    /// Who sends.
    pub from: EdgeFrom,
    /// Who receives.
    pub to: FragmentId,
    /// Columns of the sender's output that travel, in order.
    pub columns: Vec<usize>,
    /// Which shard gets which row.
    pub dispatch: Dispatch,
}

/// The sender of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeFrom {
    /// A fragment of this graph, or any fragment after renumbering.
    Fragment(FragmentId),
    /// The output fragment of another job; replaced by its fragment on renumbering.
    Relation(ObjectId),
}

/// How rows are spread over the receiver's shards. Barriers and watermarks go to all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dispatch {
    /// By the vnode of these columns (positions in the edge's `columns`).
    Hash(Vec<usize>),
    /// To every shard.
    Broadcast,
    /// To the only shard.
    Single,
    /// From shard i to shard i (both fragments have equally many).
    NoShuffle,
    /// Shard i of the sender to shard `i mod n`, whatever the rows.
    Forward,
}

/// First free numbers of each kind, from 1; see [`FragmentGraph::renumber`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextIds {
    /// Next fragment.
    pub fragment: u32,
    /// Next edge.
    pub edge: u32,
    /// Next operator.
    pub operator: u32,
    /// Next table.
    pub table: u32,
}

impl Default for NextIds {
    fn default() -> Self {
        NextIds { fragment: 1, edge: 1, operator: 1, table: 1 }
    }
}

impl FragmentGraph {
    /// Replaces local numbers (from 1) by `next.x + local - 1`, advances `next` past them, sets the job of every table,
    /// replaces relation 0 (which stands for the relation being created, whose number the planner cannot know) by the job's, and
    /// resolves `EdgeFrom::Relation` with `output_of`. Returns `false` if a relation is unknown (nothing is then to be used).
    pub fn renumber(&mut self, job: JobId, next: &mut NextIds, output_of: impl Fn(ObjectId) -> Option<FragmentId>) -> bool {
        let base = *next;
        let fragment = |id: &mut FragmentId| id.0 += base.fragment - 1;
        let edge = |id: &mut EdgeId| id.0 += base.edge - 1;
        let operator = |id: &mut OperatorId| id.0 += base.operator - 1;
        let table = |id: &mut TableId| id.0 += base.table - 1;
        let own = |id: &mut ObjectId| {
            if *id == ObjectId(0) {
                *id = job.into();
            }
        };
        let own_tables: Vec<TableId> = self.tables.iter().map(|t| t.id).collect();
        let mut max = NextIds { fragment: 0, edge: 0, operator: 0, table: 0 };
        for f in &mut self.fragments {
            max.fragment = max.fragment.max(f.id.0);
            max.operator = max.operator.max(f.head_id.0);
            fragment(&mut f.id);
            operator(&mut f.head_id);
            if let Parallelism::SameAs(e) = &mut f.parallelism {
                edge(e);
            }
            match &mut f.head {
                Head::Source { relation, offsets, .. } => {
                    own(relation);
                    table(offsets);
                }
                Head::Dml { relation } => own(relation),
                Head::Receive { edges } => edges.iter_mut().for_each(edge),
                Head::Join(join) => {
                    for side in [&mut join.left, &mut join.right] {
                        edge(&mut side.edge);
                        table(&mut side.state);
                    }
                }
                // `table` is the upstream's and has its final number already.
                Head::Backfill { edge: e, progress, .. } => {
                    edge(e);
                    table(progress);
                }
            }
            for node in &mut f.chain {
                max.operator = max.operator.max(node.id.0);
                operator(&mut node.id);
                match &mut node.kind {
                    NodeKind::HashAgg(agg) => {
                        table(&mut agg.state);
                        agg.calls.iter_mut().filter_map(|c| c.multiset.as_mut()).for_each(table);
                    }
                    NodeKind::Materialize(m) => {
                        own(&mut m.relation);
                        table(&mut m.table);
                    }
                    NodeKind::Sink { relation, .. } => own(relation),
                    NodeKind::RowId | NodeKind::Filter { .. } | NodeKind::Project { .. } => {}
                }
            }
        }
        for e in &mut self.edges {
            max.edge = max.edge.max(e.id.0);
            edge(&mut e.id);
            fragment(&mut e.to);
            match &mut e.from {
                EdgeFrom::Fragment(f) => fragment(f),
                EdgeFrom::Relation(relation) => match output_of(*relation) {
                    Some(f) => e.from = EdgeFrom::Fragment(f),
                    None => return false,
                },
            }
        }
        for t in &mut self.tables {
            t.id.0 += base.table - 1;
            t.job = job;
        }
        max.table = own_tables.iter().map(|t| t.0).max().unwrap_or(0);
        if let Some(f) = &mut self.output {
            fragment(f);
        }
        table(&mut self.errors_table);
        next.fragment += max.fragment;
        next.edge += max.edge;
        next.operator += max.operator;
        next.table += max.table;
        true
    }

    /// A state table of this graph.
    pub fn table(&self, id: TableId) -> Option<&TableDesc> {
        self.tables.iter().find(|t| t.id == id)
    }

    /// The relation that an object's job must wait for in backfills: all upstream relations read by this graph.
    pub fn backfills(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.fragments.iter().filter_map(|f| match &f.head {
            Head::Backfill { upstream, .. } => Some(*upstream),
            Head::Source { .. } | Head::Dml { .. } | Head::Receive { .. } | Head::Join(_) => None,
        })
    }
}
