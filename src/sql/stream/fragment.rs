//! From the tree to fragments, edges and state tables.
//!
//! A fragment begins at a source, a backfill, an exchange, a union or a join and goes on while operators are linear. Numbers count from 1
//! within the graph; the materialised table has [`MAIN_TABLE`], the errors table [`ERRORS_TABLE`].

use super::plan::{Call, Dist, JoinOp, Op, StreamPlan, column_expr};
use super::{ERRORS_TABLE, MAIN_TABLE};
use crate::statement::NEW_RELATION;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use eddyline_protocol::plan::{AggCall, AggFunction, AggNode, JoinNode, JoinSide, MaterializeMode, MaterializeNode, Parallelism};
use eddyline_protocol::report::{ERRORS_KEY, errors_schema};
use eddyline_protocol::table::KeyColumn;
use eddyline_protocol::{ColumnDef, Dispatch, Edge, EdgeFrom, Fragment, FragmentGraph, Head, Node, NodeKind, Relation, TableDesc};
use eddyline_types::{EdgeId, Error, FragmentId, JobId, OperatorId, Result, TableId};
use std::sync::Arc;

/// A planned job.
pub(crate) struct Job {
    pub graph: FragmentGraph,
    pub columns: Vec<ColumnDef>,
    pub key: Vec<usize>,
    pub append_only: bool,
    /// The tree with what was added to it.
    pub tree: StreamPlan,
}

/// A fragment that is being built.
pub(crate) struct Open {
    fragment: Fragment,
}

/// A finished fragment as an input of others.
struct Feed {
    from: FragmentId,
    /// Columns of its output that travel.
    columns: Vec<usize>,
}

/// Collects the parts of a graph.
pub(crate) struct Builder {
    name: String,
    fragments: Vec<Fragment>,
    edges: Vec<Edge>,
    tables: Vec<TableDesc>,
    next: [u32; 4],
}

impl Builder {
    pub(crate) fn new(relation: &Relation) -> Self {
        Builder { name: relation.name.clone(), fragments: Vec::new(), edges: Vec::new(), tables: Vec::new(), next: [1, 1, 1, 3] }
    }

    fn number(&mut self, kind: usize) -> u32 {
        self.next[kind] += 1;
        self.next[kind] - 1
    }

    fn operator(&mut self) -> OperatorId {
        OperatorId(self.number(2))
    }

    /// A state table; `key` are positions, `distribution` of them place the rows.
    fn table(&mut self, what: &str, fields: Vec<Field>, key: Vec<usize>, distribution: usize) -> TableId {
        let id = TableId(self.number(3));
        let name = format!("{}_{what}_{id}", self.name);
        self.push_table(id, name, Arc::new(Schema::new(fields)), key, distribution);
        id
    }

    pub(crate) fn push_table(&mut self, id: TableId, name: String, schema: SchemaRef, key: Vec<usize>, distribution: usize) {
        let key = key.into_iter().map(KeyColumn::ascending).collect();
        self.tables.push(TableDesc { id, job: JobId(0), name, schema, key, distribution });
    }

    fn edge(&mut self, from: EdgeFrom, to: FragmentId, columns: Vec<usize>, dispatch: Dispatch) -> EdgeId {
        let id = EdgeId(self.number(1));
        self.edges.push(Edge { id, from, to, columns, dispatch });
        id
    }

    /// Begins a fragment; the head is made once its number is known.
    pub(crate) fn begin(
        &mut self,
        schema: SchemaRef,
        parallelism: Parallelism,
        head: impl FnOnce(&mut Self, FragmentId) -> Result<(Head, Option<Parallelism>)>,
    ) -> Result<Open> {
        let id = FragmentId(self.number(0));
        let head_id = self.operator();
        let (head, own) = head(self, id)?;
        let parallelism = own.unwrap_or(parallelism);
        Ok(Open { fragment: Fragment { id, head, head_id, head_schema: schema, chain: Vec::new(), parallelism } })
    }

    pub(crate) fn push(&mut self, open: &mut Open, kind: NodeKind, schema: SchemaRef) {
        let id = self.operator();
        open.fragment.chain.push(Node { id, kind, schema });
    }

    pub(crate) fn close(&mut self, open: Open) -> FragmentId {
        let id = open.fragment.id;
        self.fragments.push(open.fragment);
        id
    }

    /// A table's own union of its writers: they are spread by the key.
    pub(crate) fn receive(&mut self, feeds: &[FragmentId], schema: SchemaRef, hash: Vec<usize>) -> Result<Open> {
        let parallelism = if hash.is_empty() { Parallelism::Single } else { Parallelism::Default };
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        self.begin(schema, parallelism, |b, id| {
            let dispatch = if hash.is_empty() { Dispatch::Single } else { Dispatch::Hash(hash) };
            let edges = feeds.iter().map(|f| b.edge(EdgeFrom::Fragment(*f), id, columns.clone(), dispatch.clone())).collect();
            Ok((Head::Receive { edges }, None))
        })
    }

    pub(crate) fn finish(mut self, output: Option<FragmentId>) -> FragmentGraph {
        let name = format!("{}_errors", self.name);
        self.push_table(ERRORS_TABLE, name, errors_schema(), ERRORS_KEY.to_vec(), 0);
        self.tables.sort_by_key(|t| t.id);
        FragmentGraph { fragments: self.fragments, edges: self.edges, tables: self.tables, output, errors_table: ERRORS_TABLE }
    }

    fn feed(&mut self, plan: &StreamPlan) -> Result<Feed> {
        if let Op::Select { columns } = &plan.op {
            let inner = self.feed(&plan.inputs[0])?;
            return Ok(Feed { from: inner.from, columns: columns.iter().map(|c| inner.columns[*c]).collect() });
        }
        let open = self.open(plan)?;
        Ok(Feed { from: self.close(open), columns: (0..plan.schema.len()).collect() })
    }

    /// The fragment whose chain ends with the plan's node.
    pub(crate) fn open(&mut self, plan: &StreamPlan) -> Result<Open> {
        let schema = plan.arrow_schema();
        match &plan.op {
            Op::Source { relation, row_id } => self.open_source(relation, *row_id, schema),
            Op::Backfill { relation, columns } => self.open_backfill(relation, columns, schema),
            Op::Filter { predicate } => self.chain(plan, NodeKind::Filter { predicate: predicate.clone() }),
            Op::Project { exprs } => self.chain(plan, NodeKind::Project { exprs: exprs.clone() }),
            Op::Select { columns } => {
                let input = &plan.inputs[0].schema;
                let exprs = columns.iter().map(|c| column_expr(*c, &input[*c])).collect::<Result<_>>()?;
                self.chain(plan, NodeKind::Project { exprs })
            }
            Op::Agg { group, calls } => {
                let node = self.agg(plan, group, calls)?;
                self.chain(plan, NodeKind::HashAgg(Box::new(node)))
            }
            Op::Union => {
                let feeds = plan.inputs.iter().map(|i| self.feed(i)).collect::<Result<Vec<_>>>()?;
                self.open_receive(feeds, Dispatch::Forward, Parallelism::Default, schema)
            }
            Op::Exchange { hash } => {
                let input = &plan.inputs[0];
                let feeds = match &input.op {
                    Op::Union => input.inputs.iter().map(|i| self.feed(i)).collect::<Result<Vec<_>>>()?,
                    _ => vec![self.feed(input)?],
                };
                let parallelism = if hash.is_empty() { Parallelism::Single } else { Parallelism::Default };
                self.open_receive(feeds, dispatch(hash), parallelism, schema)
            }
            Op::Join(join) => self.open_join(plan, join),
        }
    }

    fn chain(&mut self, plan: &StreamPlan, kind: NodeKind) -> Result<Open> {
        let mut open = self.open(&plan.inputs[0])?;
        self.push(&mut open, kind, plan.arrow_schema());
        Ok(open)
    }

    fn open_receive(&mut self, feeds: Vec<Feed>, dispatch: Dispatch, parallelism: Parallelism, schema: SchemaRef) -> Result<Open> {
        self.begin(schema, parallelism, |b, id| {
            let edges = feeds.into_iter().map(|f| b.edge(EdgeFrom::Fragment(f.from), id, f.columns, dispatch.clone())).collect();
            Ok((Head::Receive { edges }, None))
        })
    }

    fn open_source(&mut self, relation: &Relation, row_id: bool, schema: SchemaRef) -> Result<Open> {
        let spec = relation.spec.clone().ok_or_else(|| Error::internal(format!("source {} has no connector", relation.name)))?;
        let fields = vec![Field::new("split", DataType::Utf8, false), Field::new("offset", DataType::Utf8, false)];
        let offsets = self.table("offsets", fields, vec![0], 0);
        let head_schema = eddyline_protocol::catalog::schema_of(&spec.columns);
        let id = relation.id;
        let mut open = self.begin(head_schema, Parallelism::Default, |_, _| Ok((Head::Source { relation: id, spec, offsets }, None)))?;
        if row_id {
            self.push(&mut open, NodeKind::RowId, schema);
        }
        Ok(open)
    }

    fn open_backfill(&mut self, relation: &Relation, columns: &[usize], schema: SchemaRef) -> Result<Open> {
        let fields = vec![
            Field::new("vnode", DataType::Int32, false),
            Field::new("position", DataType::Binary, true),
            Field::new("done", DataType::Boolean, false),
        ];
        let progress = self.table("progress", fields, vec![0], 1);
        let table = relation.table.ok_or_else(|| Error::internal(format!("relation {} has no table", relation.name)))?;
        let (upstream, all, columns) = (relation.id, (0..relation.columns.len()).collect(), columns.to_vec());
        self.begin(schema, Parallelism::Single, |b, id| {
            let edge = b.edge(EdgeFrom::Relation(upstream), id, all, Dispatch::NoShuffle);
            Ok((Head::Backfill { edge, upstream, table, columns, progress }, Some(Parallelism::SameAs(edge))))
        })
    }

    fn agg(&mut self, plan: &StreamPlan, group: &[usize], calls: &[Call]) -> Result<AggNode> {
        let input = &plan.inputs[0];
        let distribution = match &plan.dist {
            Dist::Hash(hash) => hash.len(),
            Dist::Single | Dist::Any => 0,
        };
        let groups: Vec<Field> = group.iter().map(|g| input.schema[*g].clone()).collect();
        let key: Vec<usize> = (0..group.len()).collect();
        let mut fields = groups.clone();
        fields.push(Field::new("_count", DataType::Int64, false));
        let mut nodes = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            let extreme = matches!(call.function, AggFunction::Min | AggFunction::Max) && !input.append_only;
            let argument = call.argument.map(|a| &input.schema[a]);
            let multiset = match argument {
                Some(value) if call.distinct || extreme => {
                    let mut fields = groups.clone();
                    fields.push(value.clone().with_name("value"));
                    fields.push(Field::new("_weight", DataType::Int64, false));
                    Some(self.table("agg_values", fields, (0..=group.len()).collect(), distribution))
                }
                _ => None,
            };
            let node = AggCall {
                function: call.function,
                argument: call.argument,
                distinct: call.distinct,
                filter: call.filter,
                output: plan.schema[group.len() + index].data_type().clone(),
                multiset,
            };
            fields.extend(node.state_fields(index, argument.map(|f| f.data_type())).ok_or_else(|| {
                let shown = argument.map_or("*".to_string(), |f| eddyline_expr::pg_types::name(f.data_type()));
                Error::unsupported(format!("{:?}({shown}) in a materialized view or sink is not supported", call.function).to_lowercase())
            })?);
            nodes.push(node);
        }
        let state = self.table("agg", fields, key, distribution);
        Ok(AggNode { group: group.to_vec(), calls: nodes, append_only: input.append_only, state })
    }

    fn open_join(&mut self, plan: &StreamPlan, join: &JoinOp) -> Result<Open> {
        let mut feeds = Vec::new();
        for input in &plan.inputs {
            let Op::Exchange { hash } = &input.op else { return Err(Error::internal("a join's input is not spread")) };
            feeds.push((self.feed(&input.inputs[0])?, hash.clone()));
        }
        let single = feeds.iter().all(|(_, hash)| hash.is_empty());
        let keys = [&join.left_keys, &join.right_keys];
        let parallelism = if single { Parallelism::Single } else { Parallelism::Default };
        self.begin(plan.arrow_schema(), parallelism, |b, id| {
            let mut sides = Vec::new();
            for ((feed, hash), (input, keys)) in feeds.into_iter().zip(plan.inputs.iter().zip(keys)) {
                let edge = b.edge(EdgeFrom::Fragment(feed.from), id, feed.columns, dispatch(&hash));
                let stream_key = input.key.clone().unwrap_or_default();
                let mut fields = input.schema.clone();
                let mut state_key = keys.clone();
                let rest: Vec<usize> = if stream_key.is_empty() { (0..fields.len()).collect() } else { stream_key.clone() };
                state_key.extend(rest.into_iter().filter(|c| !keys.contains(c)));
                fields.push(Field::new("_weight", DataType::Int64, false));
                let state = b.table("join", fields, state_key, if single { 0 } else { keys.len() });
                let schema = input.arrow_schema();
                sides.push(JoinSide { edge, schema, keys: keys.clone(), stream_key, append_only: input.append_only, state });
            }
            let right = sides.pop().ok_or_else(|| Error::internal("a join needs two inputs"))?;
            let left = sides.pop().ok_or_else(|| Error::internal("a join needs two inputs"))?;
            let node = JoinNode {
                kind: join.kind,
                left,
                right,
                null_equal: join.null_equal,
                residual: join.residual.clone(),
                output: join.output.clone(),
            };
            Ok((Head::Join(Box::new(node)), None))
        })
    }
}

fn dispatch(hash: &[usize]) -> Dispatch {
    if hash.is_empty() { Dispatch::Single } else { Dispatch::Hash(hash.to_vec()) }
}

/// The job of a materialised view: the tree, spread by its key, and the table.
pub(crate) fn view_job(tree: StreamPlan, names: &[String], relation: &Relation) -> Result<Job> {
    let visible = names.len();
    // Hidden columns that are no part of the key are of no use here.
    let mut kept: Vec<usize> = (0..visible).collect();
    kept.extend(tree.key.iter().flatten().filter(|k| **k >= visible));
    kept.dedup();
    let mut tree = tree.select(kept);
    let multiset = tree.key.is_none();
    let key: Vec<usize> = tree.key.clone().unwrap_or_else(|| (0..tree.schema.len()).collect());
    let placed = match &tree.dist {
        Dist::Single => Some(Vec::new()),
        Dist::Hash(hash) if hash.iter().all(|h| key.contains(h)) => Some(hash.clone()),
        Dist::Hash(_) | Dist::Any => None,
    };
    let first = match placed {
        Some(hash) => hash,
        None => {
            tree = tree.exchange(key.clone());
            key.clone()
        }
    };
    let mut ordered = first.clone();
    ordered.extend(key.iter().filter(|k| !first.contains(k)));
    for (position, field) in tree.schema.iter_mut().enumerate() {
        let name = names.get(position).cloned().unwrap_or_else(|| hidden_name(names, position - visible, field.name()));
        *field = field.clone().with_name(name);
    }
    let mut builder = Builder::new(relation);
    let mut open = builder.open(&tree)?;
    let mut fields = tree.schema.clone();
    if multiset {
        fields.push(Field::new("_weight", DataType::Int64, false));
    }
    builder.push_table(MAIN_TABLE, relation.name.clone(), Arc::new(Schema::new(fields)), ordered.clone(), first.len());
    let mode = if multiset { MaterializeMode::Multiset } else { MaterializeMode::Keyed };
    let node = MaterializeNode { relation: NEW_RELATION, table: MAIN_TABLE, mode };
    builder.push(&mut open, NodeKind::Materialize(node), tree.arrow_schema());
    let output = builder.close(open);
    let columns = tree
        .schema
        .iter()
        .enumerate()
        .map(|(i, f)| ColumnDef { nullable: f.is_nullable(), hidden: i >= visible, ..ColumnDef::new(f.name(), f.data_type().clone()) })
        .collect();
    let append_only = tree.append_only;
    let key = if multiset { Vec::new() } else { ordered };
    Ok(Job { graph: builder.finish(Some(output)), columns, key, append_only, tree })
}

/// A name for a hidden column that no visible one has.
fn hidden_name(names: &[String], number: usize, wish: &str) -> String {
    let wish = crate::bind_output_name(wish);
    let plain = wish.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let base = if !plain {
        "_key".to_string()
    } else if wish.starts_with('_') {
        wish.to_string()
    } else {
        format!("_{wish}")
    };
    if number == 0 && !names.contains(&base) {
        return base;
    }
    (number..).map(|n| format!("{base}_{n}")).find(|n| !names.contains(n)).expect("there are finitely many names")
}

/// The job of a sink.
pub(crate) fn sink_job(tree: &StreamPlan, visible: usize, relation: &Relation) -> Result<Job> {
    let tree = tree.clone().select((0..visible).collect());
    let mut builder = Builder::new(relation);
    let mut open = builder.open(&tree)?;
    let connector = relation.spec.as_ref().map(|s| s.connector.clone()).unwrap_or_default();
    builder.push(&mut open, NodeKind::Sink { relation: NEW_RELATION, connector }, tree.arrow_schema());
    builder.close(open);
    let append_only = tree.append_only;
    Ok(Job { graph: builder.finish(None), columns: Vec::new(), key: Vec::new(), append_only, tree })
}
