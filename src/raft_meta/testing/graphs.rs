//! Small relations and graphs.

use arrow::datatypes::{DataType, Field, Schema};
use eddyline_protocol::plan::{EdgeFrom, FragmentGraph, Head, MaterializeMode, MaterializeNode, Node, NodeKind, Parallelism};
use eddyline_protocol::table::KeyColumn;
use eddyline_protocol::{ColumnDef, Dispatch, Edge, Fragment, Relation, RelationKind, TableDesc};
use eddyline_types::{EdgeId, FragmentId, JobId, ObjectId, OperatorId, TableId};
use std::sync::Arc;

/// A table (reads nothing) or a materialized view over others.
pub(crate) fn relation(name: &str, reads: &[ObjectId]) -> Relation {
    Relation {
        id: ObjectId(0),
        schema_name: "public".into(),
        name: name.into(),
        kind: if reads.is_empty() { RelationKind::Table } else { RelationKind::MaterializedView },
        columns: vec![ColumnDef::new("v", DataType::Int64)],
        key: vec![0],
        append_only: false,
        spec: None,
        definition: format!("CREATE {name}"),
        query: None,
        depends_on: reads.to_vec(),
        table: Some(TableId(1)),
        owner: "root".into(),
        created_ms: 0,
    }
}

/// Its graph: one head per relation that it reads, the first of which materializes.
pub(crate) fn graph(reads: &[ObjectId]) -> FragmentGraph {
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
    let table = |id: u32| TableDesc {
        id: TableId(id),
        job: JobId(0),
        name: format!("t{id}"),
        schema: schema.clone(),
        key: vec![KeyColumn::ascending(0)],
        distribution: 0,
    };
    let mut edges = Vec::new();
    let mut heads = Vec::new();
    if reads.is_empty() {
        heads.push(Head::Dml { relation: ObjectId(0) });
    }
    for (n, upstream) in reads.iter().enumerate() {
        let edge = EdgeId(n as u32 + 1);
        let to = FragmentId(n as u32 + 1);
        edges.push(Edge { id: edge, from: EdgeFrom::Relation(*upstream), to, columns: vec![0], dispatch: Dispatch::NoShuffle });
        let progress = TableId(n as u32 + 3);
        heads.push(Head::Backfill { edge, upstream: *upstream, table: TableId(1), columns: vec![0], progress });
    }
    let fragments = heads
        .into_iter()
        .enumerate()
        .map(|(n, head)| {
            let materialize = MaterializeNode { relation: ObjectId(0), table: TableId(1), mode: MaterializeMode::Keyed };
            let node = Node { id: OperatorId(n as u32 * 2 + 2), kind: NodeKind::Materialize(materialize), schema: schema.clone() };
            Fragment {
                id: FragmentId(n as u32 + 1),
                parallelism: match &head {
                    Head::Backfill { edge, .. } => Parallelism::SameAs(*edge),
                    Head::Source { .. } | Head::Dml { .. } | Head::Receive { .. } | Head::Join(_) => Parallelism::Default,
                },
                head,
                head_id: OperatorId(n as u32 * 2 + 1),
                head_schema: schema.clone(),
                chain: if n == 0 { vec![node] } else { vec![] },
            }
        })
        .collect();
    let tables = (1..=2 + reads.len() as u32).map(table).collect();
    FragmentGraph { fragments, edges, tables, output: Some(FragmentId(1)), errors_table: TableId(2) }
}
