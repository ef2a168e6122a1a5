//! EXPLAIN: the logical plan, the stream plan with keys and distribution, the fragments with their state tables.

use super::aggregate::call_name;
use super::plan::{Dist, JoinOp, Op, StreamPlan};
use super::{MAIN_TABLE, StreamJob};
use crate::bind::{Binder, bind};
use crate::parse::Tree;
use crate::statement::{BindContext, Bound, Lookup, LookupValue, Parsed};
use eddyline_expr::pg_types;
use eddyline_protocol::plan::{JoinKind, Parallelism};
use eddyline_protocol::{Catalog, Dispatch, EdgeFrom, FragmentGraph, Head, NodeKind};
use eddyline_types::{Error, Result};

/// Binds EXPLAIN statement.
pub(crate) fn bind_explain(inner: &Parsed, context: &BindContext<'_>) -> Result<Bound> {
    let mut lines = Vec::new();
    match bind(inner, context, &[])? {
        Bound::Query(select) => {
            lines.push("Logical plan:".to_string());
            logical(&select.query.plan, 1, &mut lines);
            if let Some(found) = &select.lookup {
                lines.push(String::new());
                lines.push(lookup(found, context.catalog));
            }
        }
        Bound::Dml(dml) => {
            lines.push(format!("{:?} of {}", dml.kind, relation_name(context.catalog, dml.relation)));
            logical(&dml.rows.plan, 1, &mut lines);
        }
        Bound::CreateRelation(created) => match &created.graph {
            None => lines.push(format!("{} {}: runs nothing by itself", created.relation.kind.name(), created.relation.name)),
            Some(graph) => {
                if matches!(inner.tree, Tree::CreateView(_) | Tree::Create(_))
                    && let Some(job) = Binder::new(inner, context, &[], false).stream_job()?
                {
                    stream(&job, &mut lines);
                    lines.push(String::new());
                }
                fragments(graph, context.catalog, &mut lines);
            }
        },
        _ => {
            return Err(Error::unsupported("EXPLAIN of this statement is not supported")
                .with_hint("It takes SELECT, INSERT, UPDATE, DELETE and CREATE."));
        }
    }
    Ok(Bound::Explain(lines))
}

fn relation_name(catalog: &Catalog, id: eddyline_types::ObjectId) -> String {
    catalog.relations.get(&id).map_or_else(|| "(this)".to_string(), |r| r.name.clone())
}

fn lookup(lookup: &Lookup, catalog: &Catalog) -> String {
    let relation = catalog.relations.get(&lookup.relation);
    let column = |c: usize| relation.and_then(|r| r.columns.get(c)).map_or("?", |c| c.name.as_str());
    let table = relation.and_then(|r| r.table).and_then(|t| catalog.table(t));
    let key: Vec<String> = lookup
        .key
        .iter()
        .zip(table.map(|t| t.key_columns()).unwrap_or_default())
        .map(|(value, c)| match value {
            LookupValue::Constant(v) => format!("{} = {v}", column(c)),
            LookupValue::Parameter(n) => format!("{} = ${}", column(c), n + 1),
        })
        .collect();
    let what = if lookup.whole_key { "Point lookup" } else { "Prefix lookup" };
    format!("{what}: {} by {}", relation_name(catalog, lookup.relation), key.join(", "))
}

/// DataFusion's plan without the marks of unique names.
fn logical(plan: &datafusion::logical_expr::LogicalPlan, depth: usize, lines: &mut Vec<String>) {
    for line in plan.display_indent().to_string().lines() {
        let mut clean = String::new();
        let mut skipping = false;
        for c in line.chars() {
            match c {
                '\u{1}' => skipping = true,
                c if skipping && c.is_ascii_digit() => {}
                c => {
                    skipping = false;
                    clean.push(c);
                }
            }
        }
        lines.push(format!("{}{clean}", "  ".repeat(depth)));
    }
}

fn stream(job: &StreamJob, lines: &mut Vec<String>) {
    lines.push("Logical plan:".to_string());
    logical(&job.logical, 1, lines);
    lines.push(String::new());
    lines.push("Stream plan:".to_string());
    let visible: Vec<&str> = job.columns.iter().filter(|c| !c.hidden).map(|c| c.name.as_str()).collect();
    if job.columns.is_empty() {
        lines.push("  Sink".to_string());
    } else {
        let key: Vec<&str> = job.key.iter().map(|k| job.columns[*k].name.as_str()).collect();
        let key = if job.key.is_empty() && job.columns.len() == visible.len() && job.tree.key.is_none() {
            "rows may repeat".to_string()
        } else {
            format!("key ({})", key.join(", "))
        };
        lines.push(format!("  Materialize ({}), {key}", visible.join(", ")));
    }
    node(&job.tree, 2, lines);
}

fn names(plan: &StreamPlan, columns: &[usize]) -> String {
    columns.iter().map(|c| name(plan, *c)).collect::<Vec<_>>().join(", ")
}

fn name(plan: &StreamPlan, column: usize) -> String {
    plan.schema.get(column).map_or_else(|| format!("?{column}"), |f| crate::bind_output_name(f.name()).to_string())
}

fn node(plan: &StreamPlan, depth: usize, lines: &mut Vec<String>) {
    let what = match &plan.op {
        Op::Source { relation, row_id } => format!("Source {}{}", relation.name, if *row_id { " with row id" } else { "" }),
        Op::Backfill { relation, columns } => {
            let columns: Vec<&str> = columns.iter().map(|c| relation.columns[*c].name.as_str()).collect();
            format!("Backfill {} ({})", relation.name, columns.join(", "))
        }
        Op::Filter { predicate } => format!("Filter {}", predicate.text),
        Op::Project { exprs } => {
            let items: Vec<String> = exprs
                .iter()
                .enumerate()
                .map(|(i, e)| if e.text == name(plan, i) { e.text.clone() } else { format!("{} AS {}", e.text, name(plan, i)) })
                .collect();
            format!("Project {}", items.join(", "))
        }
        Op::Select { columns } => format!("Select {}", names(&plan.inputs[0], columns)),
        Op::Agg { group, calls } => {
            let calls: Vec<String> = calls.iter().map(|c| call_name(c, &plan.inputs[0])).collect();
            let group = if group.is_empty() { String::new() } else { format!(" by {}", names(&plan.inputs[0], group)) };
            format!("HashAgg {}{group}", if calls.is_empty() { "distinct".to_string() } else { calls.join(", ") })
        }
        Op::Join(j) => join(j, plan),
        Op::Union => "Union".to_string(),
        Op::Exchange { hash } if hash.is_empty() => "Exchange to one shard".to_string(),
        Op::Exchange { hash } => format!("Exchange by {}", names(plan, hash)),
    };
    let mut notes = vec![match &plan.key {
        None => "no key".to_string(),
        Some(key) if key.is_empty() => "one row".to_string(),
        Some(key) => format!("key ({})", names(plan, key)),
    }];
    if plan.append_only {
        notes.push("append only".to_string());
    }
    notes.push(match &plan.dist {
        Dist::Single => "single".to_string(),
        Dist::Hash(hash) => format!("by ({})", names(plan, hash)),
        Dist::Any => "anywhere".to_string(),
    });
    lines.push(format!("{}{what}  [{}]", "  ".repeat(depth), notes.join("; ")));
    for input in &plan.inputs {
        node(input, depth + 1, lines);
    }
}

fn join(join: &JoinOp, plan: &StreamPlan) -> String {
    let kind = match join.kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
    };
    let (left, right) = (&plan.inputs[0], &plan.inputs[1]);
    let op = if join.null_equal { "IS NOT DISTINCT FROM" } else { "=" };
    let keys: Vec<String> =
        join.left_keys.iter().zip(&join.right_keys).map(|(l, r)| format!("{} {op} {}", name(left, *l), name(right, *r))).collect();
    let residual = join.residual.as_ref().map_or(String::new(), |r| format!(" and {}", r.text));
    let output: Vec<String> = (0..plan.schema.len()).map(|c| name(plan, c)).collect();
    format!("HashJoin {kind} on {}{residual} -> {}", keys.join(" and "), output.join(", "))
}

fn fragments(graph: &FragmentGraph, catalog: &Catalog, lines: &mut Vec<String>) {
    lines.push("Fragments:".to_string());
    for fragment in &graph.fragments {
        let parallelism = match fragment.parallelism {
            Parallelism::Single => "1 shard".to_string(),
            Parallelism::Default => "n shards".to_string(),
            Parallelism::SameAs(edge) => format!("as the sender of edge {edge}"),
        };
        let output = if graph.output == Some(fragment.id) { ", output" } else { "" };
        lines.push(format!("  Fragment {} ({parallelism}{output})", fragment.id));
        lines.push(format!("    {}", head(&fragment.head, catalog)));
        for node in &fragment.chain {
            let state = match &node.kind {
                NodeKind::HashAgg(agg) => {
                    let mut tables = vec![format!("state table {}", agg.state)];
                    tables.extend(agg.calls.iter().filter_map(|c| c.multiset).map(|t| format!("values table {t}")));
                    format!("  [{}{}]", tables.join(", "), if agg.append_only { "; append only" } else { "" })
                }
                NodeKind::Materialize(m) => format!("  [table {}; {:?}]", m.table, m.mode),
                NodeKind::RowId | NodeKind::Filter { .. } | NodeKind::Project { .. } | NodeKind::Sink { .. } => String::new(),
            };
            lines.push(format!("    {}{state}", node.kind.name()));
        }
    }
    lines.push("Edges:".to_string());
    for edge in &graph.edges {
        let from = match edge.from {
            EdgeFrom::Fragment(f) => format!("fragment {f}"),
            EdgeFrom::Relation(r) => relation_name(catalog, r),
        };
        let how = match &edge.dispatch {
            Dispatch::Hash(columns) => format!("hash {columns:?}"),
            Dispatch::Broadcast => "broadcast".into(),
            Dispatch::Single => "single".into(),
            Dispatch::NoShuffle => "no shuffle".into(),
            Dispatch::Forward => "forward".into(),
        };
        lines.push(format!("  {}: {from} -> fragment {}, columns {:?}, {how}", edge.id, edge.to, edge.columns));
    }
    lines.push("State tables:".to_string());
    for table in graph.tables.iter().filter(|t| t.id != graph.errors_table) {
        let columns: Vec<String> = table
            .schema
            .fields()
            .iter()
            .map(|f| format!("{} {}", crate::bind_output_name(f.name()), pg_types::name(f.data_type())))
            .collect();
        let keys: Vec<&str> = table.key.iter().map(|k| crate::bind_output_name(table.schema.field(k.column).name())).collect();
        let main = if table.id == MAIN_TABLE { " (materialized)" } else { "" };
        lines.push(format!("  {}{main}: ({}) key ({}) distribution {}", table.id, columns.join(", "), keys.join(", "), table.distribution));
    }
}

fn head(head: &Head, catalog: &Catalog) -> String {
    match head {
        Head::Source { relation, spec, offsets } => {
            format!("Source {} ({})  [offsets table {offsets}]", relation_name(catalog, *relation), spec.connector)
        }
        Head::Dml { .. } => "Dml".to_string(),
        Head::Receive { edges } => format!("Receive edges {}", edges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        Head::Join(join) => format!(
            "HashJoin of edges {} and {}  [state tables {}, {}]",
            join.left.edge, join.right.edge, join.left.state, join.right.state
        ),
        Head::Backfill { edge, upstream, columns, progress, .. } => {
            format!("Backfill {} over edge {edge}, columns {columns:?}  [progress table {progress}]", relation_name(catalog, *upstream))
        }
    }
}
