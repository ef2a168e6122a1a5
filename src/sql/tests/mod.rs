//! Tests of the front end as a whole: text in, bound statements and EXPLAIN out, over a catalog that the statements themselves build.

mod errors;
mod fuzz;
mod goldens;
mod plans;
mod statements;

use crate::statement::{BindContext, Bound, NoSystemTables, Parsed};
use arrow::datatypes::DataType;
use eddyline_protocol::plan::NextIds;
use eddyline_protocol::{Catalog, Job, JobStatus};
use eddyline_types::{JobId, ObjectId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A session over a catalog, with DDL applied as meta does.
pub(crate) struct Session {
    pub catalog: Catalog,
    next: NextIds,
    next_object: u32,
    path: Vec<String>,
    settings: BTreeMap<String, String>,
}

impl Session {
    pub(crate) fn new() -> Self {
        Session {
            catalog: Catalog::default(),
            next: NextIds { fragment: 101, edge: 101, operator: 101, table: 101 },
            next_object: 1,
            path: vec!["public".into()],
            settings: BTreeMap::new(),
        }
    }

    pub(crate) fn with(setup: &str) -> Self {
        let mut session = Session::new();
        session.run(setup).unwrap_or_else(|e| panic!("{e:?} in {setup}"));
        session
    }

    pub(crate) fn bind_parsed(&self, parsed: &Parsed, types: &[Option<DataType>]) -> Result<Bound> {
        let context = BindContext {
            catalog: &self.catalog,
            search_path: &self.path,
            user: "root",
            database: "dev",
            settings: &self.settings,
            system: &NoSystemTables,
        };
        crate::bind(parsed, &context, types)
    }

    /// Binds a text of one statement.
    pub(crate) fn bind(&self, text: &str) -> Result<Bound> {
        let parsed = crate::parse(text)?;
        assert_eq!(parsed.len(), 1, "{text}");
        self.bind_parsed(&parsed[0], &[])
    }

    /// Binds and applies all statements of a text; gives what they were bound to.
    pub(crate) fn run(&mut self, text: &str) -> Result<Vec<Bound>> {
        let mut all = Vec::new();
        for parsed in crate::parse(text)? {
            let bound = self.bind_parsed(&parsed, &[])?;
            self.apply(&bound);
            all.push(bound);
        }
        Ok(all)
    }

    fn apply(&mut self, bound: &Bound) {
        match bound {
            Bound::CreateRelation(created) if !created.exists => {
                let id = ObjectId(self.next_object);
                self.next_object += 1;
                let mut relation = created.relation.clone();
                relation.id = id;
                if let Some(graph) = &created.graph {
                    let mut graph = graph.clone();
                    let first = self.next.table;
                    check_graph(&graph);
                    let known = graph.renumber(id.into(), &mut self.next, |r| self.catalog.output_of(r));
                    assert!(known, "the graph reads relations that exist");
                    if let Some(table) = &mut relation.table {
                        table.0 += first - 1;
                    }
                    let job = Job { id: JobId(id.0), status: JobStatus::Running, parallelism: 2, graph: Arc::new(graph) };
                    self.catalog.jobs.insert(job.id, Arc::new(job));
                }
                self.catalog.relations.insert(id, Arc::new(relation));
            }
            Bound::Drop(dropped) => {
                for id in &dropped.relations {
                    self.catalog.relations.remove(id);
                    self.catalog.jobs.remove(&(*id).into());
                }
            }
            Bound::CreateSchema { name, .. } => self.catalog.schemas.push(name.clone()),
            _ => {}
        }
    }
}

/// What every graph must keep: positions inside their schemas, expressions that compile, edges that fit, keys that place rows.
pub(crate) fn check_graph(graph: &eddyline_protocol::FragmentGraph) {
    use eddyline_protocol::{Dispatch, EdgeFrom, Head, NodeKind};
    let width = |from: &EdgeFrom| match from {
        EdgeFrom::Fragment(f) => graph.fragments.iter().find(|x| x.id == *f).map(|f| f.output_schema().fields().len()),
        EdgeFrom::Relation(_) => None,
    };
    for edge in &graph.edges {
        if let Some(width) = width(&edge.from) {
            assert!(edge.columns.iter().all(|c| *c < width), "edge {} has columns its sender has", edge.id);
        }
        if let Dispatch::Hash(columns) = &edge.dispatch {
            assert!(columns.iter().all(|c| *c < edge.columns.len()), "edge {} hashes columns it has", edge.id);
        }
        assert!(graph.fragments.iter().any(|f| f.id == edge.to), "edge {} has a receiver", edge.id);
    }
    let mut done = Vec::new();
    for fragment in &graph.fragments {
        for edge in graph.edges.iter().filter(|e| e.to == fragment.id) {
            if let EdgeFrom::Fragment(f) = edge.from {
                assert!(done.contains(&f), "fragment {} comes after what feeds it", fragment.id);
            }
        }
        done.push(fragment.id);
        let mut schema = fragment.head_schema.clone();
        let types = |s: &arrow::datatypes::Schema| s.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
        match &fragment.head {
            Head::Receive { edges } => {
                for id in edges {
                    let edge = graph.edges.iter().find(|e| e.id == *id).expect("the edge exists");
                    if let EdgeFrom::Fragment(f) = edge.from {
                        let sender = graph.fragments.iter().find(|x| x.id == f).expect("the sender exists").output_schema();
                        let sent: Vec<_> = edge.columns.iter().map(|c| sender.field(*c).data_type().clone()).collect();
                        assert_eq!(sent, types(&schema), "types over edge {id}");
                    }
                }
            }
            Head::Join(join) => {
                let both: Vec<_> = join.left.schema.fields().iter().chain(join.right.schema.fields()).cloned().collect();
                let out: Vec<_> = join.output.iter().map(|c| both[*c].data_type().clone()).collect();
                assert_eq!(out, types(&schema), "join output");
                if let Some(residual) = &join.residual {
                    let both = arrow::datatypes::Schema::new(both);
                    let compiled = eddyline_expr::CompiledExpr::compile(&residual.bytes, &both).expect("the residual compiles");
                    assert_eq!(*compiled.data_type(), DataType::Boolean);
                }
                for side in [&join.left, &join.right] {
                    let table = graph.table(side.state).expect("the state table exists");
                    assert_eq!(table.key_columns()[..side.keys.len()], side.keys[..]);
                    assert_eq!(table.schema.fields().len(), side.schema.fields().len() + 1);
                }
            }
            Head::Source { .. } | Head::Dml { .. } | Head::Backfill { .. } => {}
        }
        for node in &fragment.chain {
            match &node.kind {
                NodeKind::Project { exprs } => {
                    assert_eq!(exprs.len(), node.schema.fields().len());
                    for (expr, field) in exprs.iter().zip(node.schema.fields()) {
                        let compiled = eddyline_expr::CompiledExpr::compile(&expr.bytes, &schema).expect("it compiles");
                        assert_eq!(compiled.data_type(), field.data_type(), "{}", expr.text);
                    }
                }
                NodeKind::Filter { predicate } => {
                    let compiled = eddyline_expr::CompiledExpr::compile(&predicate.bytes, &schema).expect("it compiles");
                    assert_eq!(*compiled.data_type(), DataType::Boolean);
                }
                NodeKind::HashAgg(agg) => {
                    let state = graph.table(agg.state).expect("the state table exists");
                    for (i, g) in agg.group.iter().enumerate() {
                        assert_eq!(state.schema.field(i).data_type(), schema.field(*g).data_type());
                        assert_eq!(node.schema.field(i).data_type(), schema.field(*g).data_type());
                    }
                    assert_eq!(node.schema.fields().len(), agg.group.len() + agg.calls.len());
                }
                NodeKind::Materialize(m) => {
                    let table = graph.table(m.table).expect("the table exists");
                    assert!(table.distribution <= table.key.len());
                    for (a, b) in table.schema.fields().iter().zip(schema.fields()) {
                        assert_eq!(a.data_type(), b.data_type());
                    }
                }
                NodeKind::RowId | NodeKind::Sink { .. } => {}
            }
            schema = node.schema.clone();
        }
    }
    for table in &graph.tables {
        assert!(table.key.iter().all(|k| k.column < table.schema.fields().len()));
        table.key_codec().expect("the key has a codec");
    }
}
