//! Plans by hand: a table, a view over a source, an aggregate over the table and a join of the two.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use eddyline_protocol::plan::{AggCall, AggFunction, AggNode, JoinKind, JoinNode, JoinSide, MaterializeMode, MaterializeNode, Parallelism};
use eddyline_protocol::table::KeyColumn;
use eddyline_protocol::{
    Dispatch, Edge, EdgeFrom, Fragment, FragmentGraph, Head, Job, JobStatus, Node, NodeKind, SourceSpec, TableDesc, report,
};
use eddyline_types::{EdgeId, FragmentId, JobId, ObjectId, OperatorId, TableId};
use std::sync::Arc;

pub const TABLE: JobId = JobId(1);
pub const SOURCE_VIEW: JobId = JobId(2);
pub const AGG_VIEW: JobId = JobId(3);
pub const JOIN_VIEW: JobId = JobId(4);

/// Tables that readers scan: `(k, v)`, `(k, count, sum)`, `(v, count, sum)`, `(k, v, count)`.
pub const TABLE_ROWS: TableId = TableId(10);
pub const SOURCE_ROWS: TableId = TableId(20);
pub const SOURCE_OFFSETS: TableId = TableId(21);
pub const AGG_ROWS: TableId = TableId(30);
pub const JOIN_ROWS: TableId = TableId(40);

pub fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
}

pub fn kv() -> SchemaRef {
    schema(&[("k", DataType::Int64), ("v", DataType::Int64)])
}

fn table(id: TableId, job: JobId, schema: SchemaRef, key: &[usize], distribution: usize) -> TableDesc {
    let key = key.iter().map(|k| KeyColumn::ascending(*k)).collect();
    TableDesc { id, job, name: format!("table {id}"), schema, key, distribution }
}

fn errors(id: u32, job: JobId) -> TableDesc {
    table(TableId(id), job, report::errors_schema(), &report::ERRORS_KEY, 0)
}

fn edge(id: u32, from: u32, to: u32, columns: usize, dispatch: Dispatch) -> Edge {
    let columns = (0..columns).collect();
    Edge { id: EdgeId(id), from: EdgeFrom::Fragment(FragmentId(from)), to: FragmentId(to), columns, dispatch }
}

fn fragment(id: u32, head: Head, head_schema: SchemaRef, chain: Vec<Node>, parallelism: Parallelism) -> Fragment {
    Fragment { id: FragmentId(id), head, head_id: OperatorId(id * 10), head_schema, chain, parallelism }
}

fn materialize(id: u32, relation: JobId, table: TableId, mode: MaterializeMode, schema: &SchemaRef) -> Node {
    let node = MaterializeNode { relation: relation.into(), table, mode };
    Node { id: OperatorId(id), kind: NodeKind::Materialize(node), schema: schema.clone() }
}

fn job(id: JobId, parallelism: u32, graph: FragmentGraph) -> Arc<Job> {
    Arc::new(Job { id, status: JobStatus::Running, parallelism, graph: Arc::new(graph) })
}

/// `CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)`
pub fn table_job(parallelism: u32) -> Arc<Job> {
    let head = fragment(1, Head::Dml { relation: TABLE.into() }, kv(), vec![], Parallelism::Single);
    let writer = vec![materialize(11, TABLE, TABLE_ROWS, MaterializeMode::Overwrite, &kv())];
    let body = fragment(2, Head::Receive { edges: vec![EdgeId(1)] }, kv(), writer, Parallelism::Default);
    let graph = FragmentGraph {
        fragments: vec![head, body],
        edges: vec![edge(1, 1, 2, 2, Dispatch::Hash(vec![0]))],
        tables: vec![table(TABLE_ROWS, TABLE, kv(), &[0], 1), errors(11, TABLE)],
        output: Some(FragmentId(2)),
        errors_table: TableId(11),
    };
    job(TABLE, parallelism, graph)
}

fn call(function: AggFunction, argument: Option<usize>, output: DataType) -> AggCall {
    AggCall { function, argument, distinct: false, filter: None, output, multiset: None }
}

/// `count(*)` and `sum(other)` by one of two columns; the node, its state table and its output schema.
fn count_and_sum(operator: u32, state: u32, job: JobId, group: usize, append_only: bool) -> (Node, TableDesc, SchemaRef) {
    let sum = DataType::Decimal128(38, 0);
    let calls = vec![call(AggFunction::Count, None, DataType::Int64), call(AggFunction::Sum, Some(1 - group), sum.clone())];
    let output = schema(&[("g", DataType::Int64), ("count", DataType::Int64), ("sum", sum)]);
    let mut fields = vec![Field::new("g", DataType::Int64, true), Field::new("_count", DataType::Int64, false)];
    for (index, call) in calls.iter().enumerate() {
        fields.extend(call.state_fields(index, Some(&DataType::Int64)).unwrap());
    }
    let desc = table(TableId(state), job, Arc::new(Schema::new(fields)), &[0], 1);
    let node = AggNode { group: vec![group], calls, append_only, state: desc.id };
    (Node { id: OperatorId(operator), kind: NodeKind::HashAgg(Box::new(node)), schema: output.clone() }, desc, output)
}

/// `SELECT k, count(*), sum(v) FROM source GROUP BY k`
pub fn source_job(parallelism: u32) -> Arc<Job> {
    let text = schema(&[("split", DataType::Utf8), ("offset", DataType::Utf8)]);
    let (agg, state, output) = count_and_sum(25, 22, SOURCE_VIEW, 0, true);
    let head = Head::Source { relation: ObjectId(9), spec: SourceSpec::default(), offsets: SOURCE_OFFSETS };
    let writer = materialize(26, SOURCE_VIEW, SOURCE_ROWS, MaterializeMode::Keyed, &output);
    let fragments = vec![
        fragment(3, head, kv(), vec![], Parallelism::Default),
        fragment(4, Head::Receive { edges: vec![EdgeId(2)] }, kv(), vec![agg, writer], Parallelism::Default),
    ];
    let graph = FragmentGraph {
        fragments,
        edges: vec![edge(2, 3, 4, 2, Dispatch::Hash(vec![0]))],
        tables: vec![
            table(SOURCE_ROWS, SOURCE_VIEW, output, &[0], 1),
            table(SOURCE_OFFSETS, SOURCE_VIEW, text, &[0], 0),
            state,
            errors(23, SOURCE_VIEW),
        ],
        output: Some(FragmentId(4)),
        errors_table: TableId(23),
    };
    job(SOURCE_VIEW, parallelism, graph)
}

/// `SELECT v, count(*), sum(k) FROM t GROUP BY v`, built together with the table (`backfill: None`) or later, reading what is there.
pub fn agg_job(parallelism: u32, backfill: bool) -> Arc<Job> {
    let (agg, state, output) = count_and_sum(35, 31, AGG_VIEW, 1, false);
    let writer = materialize(36, AGG_VIEW, AGG_ROWS, MaterializeMode::Keyed, &output);
    let mut tables = vec![table(AGG_ROWS, AGG_VIEW, output, &[0], 1), state, errors(32, AGG_VIEW)];
    let (mut fragments, mut edges) = (Vec::new(), Vec::new());
    if backfill {
        let progress = schema(&[("vnode", DataType::Int32), ("position", DataType::Binary), ("done", DataType::Boolean)]);
        tables.push(table(TableId(33), AGG_VIEW, progress, &[0], 1));
        let head =
            Head::Backfill { edge: EdgeId(3), upstream: TABLE.into(), table: TABLE_ROWS, columns: vec![0, 1], progress: TableId(33) };
        fragments.push(fragment(5, head, kv(), vec![], Parallelism::SameAs(EdgeId(3))));
        edges.push(edge(3, 2, 5, 2, Dispatch::NoShuffle));
        edges.push(edge(4, 5, 6, 2, Dispatch::Hash(vec![1])));
    } else {
        edges.push(edge(4, 2, 6, 2, Dispatch::Hash(vec![1])));
    }
    fragments.push(fragment(6, Head::Receive { edges: vec![EdgeId(4)] }, kv(), vec![agg, writer], Parallelism::Default));
    job(AGG_VIEW, parallelism, FragmentGraph { fragments, edges, tables, output: Some(FragmentId(6)), errors_table: TableId(32) })
}

/// `SELECT t.k, t.v, s.count FROM t JOIN source_view s ON t.k = s.k`
pub fn join_job(parallelism: u32) -> Arc<Job> {
    let right = source_job(1).graph.fragments[1].output_schema();
    let side = |edge: u32, schema: &SchemaRef, state: u32| JoinSide {
        edge: EdgeId(edge),
        schema: schema.clone(),
        keys: vec![0],
        stream_key: vec![0],
        append_only: false,
        state: TableId(state),
    };
    let state = |id: u32, schema: &SchemaRef| {
        let mut fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        fields.push(Field::new("_weight", DataType::Int64, false));
        table(TableId(id), JOIN_VIEW, Arc::new(Schema::new(fields)), &[0], 1)
    };
    let node = JoinNode {
        kind: JoinKind::Inner,
        left: side(5, &kv(), 41),
        right: side(6, &right, 42),
        null_equal: false,
        residual: None,
        output: vec![0, 1, 3],
    };
    let output = schema(&[("k", DataType::Int64), ("v", DataType::Int64), ("count", DataType::Int64)]);
    let writer = materialize(46, JOIN_VIEW, JOIN_ROWS, MaterializeMode::Keyed, &output);
    let graph = FragmentGraph {
        fragments: vec![fragment(7, Head::Join(Box::new(node)), output.clone(), vec![writer], Parallelism::Default)],
        edges: vec![edge(5, 2, 7, 2, Dispatch::Hash(vec![0])), edge(6, 4, 7, 3, Dispatch::Hash(vec![0]))],
        tables: vec![table(JOIN_ROWS, JOIN_VIEW, output, &[0], 1), state(41, &kv()), state(42, &right), errors(43, JOIN_VIEW)],
        output: Some(FragmentId(7)),
        errors_table: TableId(43),
    };
    job(JOIN_VIEW, parallelism, graph)
}
