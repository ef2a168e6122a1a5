//! From logical plans to stream plans: the linear operators and the leaves. What cannot be maintained is refused by name.

use super::plan::{Dist, Op, StreamPlan, column_expr};
use super::table::source_plan;
use crate::encode::encode_expr;
use arrow::datatypes::Field;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Distinct, Expr as Logical, LogicalPlan, Projection, TableScan, Volatility};
use eddyline_expr::bound::RelationSource;
use eddyline_expr::errors::from_datafusion;
use eddyline_protocol::plan::Expr;
use eddyline_protocol::{Catalog, RelationKind};
use eddyline_types::{Error, Result};

/// Lowers one query.
pub(crate) struct Lower<'a> {
    pub catalog: &'a Catalog,
    pub notices: &'a mut Vec<String>,
}

impl Lower<'_> {
    /// `need_key`: hidden key columns are to be carried along.
    pub(crate) fn lower(&mut self, plan: &LogicalPlan, need_key: bool) -> Result<StreamPlan> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan, need_key),
            LogicalPlan::SubqueryAlias(alias) => self.lower(&alias.input, need_key),
            LogicalPlan::Filter(filter) if matches!(filter.predicate, Logical::Literal(ScalarValue::Boolean(Some(true)), _)) => {
                self.lower(&filter.input, need_key)
            }
            LogicalPlan::Filter(filter) => {
                let input = self.lower(&filter.input, need_key)?;
                let predicate = expression(&filter.predicate, filter.input.schema())?;
                Ok(filter_plan(input, predicate))
            }
            LogicalPlan::Projection(projection) => self.project(projection, need_key),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Join(join) => self.join(join, need_key),
            LogicalPlan::Union(union) => {
                let width = union.schema.fields().len();
                let inputs =
                    union.inputs.iter().map(|i| Ok(self.lower(i, false)?.select((0..width).collect()))).collect::<Result<Vec<_>>>()?;
                let schema = union.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
                let append_only = inputs.iter().all(|i| i.append_only);
                Ok(StreamPlan { op: Op::Union, inputs, schema, key: None, append_only, dist: Dist::Any })
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                self.notices.push("ORDER BY in a view has no effect: order the SELECT that reads it".to_string());
                self.lower(&sort.input, need_key)
            }
            other => Err(refuse(other)),
        }
    }

    fn scan(&mut self, scan: &TableScan, need_key: bool) -> Result<StreamPlan> {
        let Some(source) = scan.source.downcast_ref::<RelationSource>() else {
            return Err(refused("a table function in FROM", "Write its rows into a table first."));
        };
        let relation = self
            .catalog
            .relations
            .get(&source.relation)
            .ok_or_else(|| Error::internal(format!("relation {} is not in the catalog", source.relation)))?
            .clone();
        if !scan.filters.is_empty() || scan.fetch.is_some() {
            return Err(Error::internal("a scan took a filter"));
        }
        let wanted: Vec<usize> = scan.projection.clone().unwrap_or_else(|| (0..relation.columns.len()).collect());
        if relation.kind == RelationKind::Source {
            let source = source_plan(&relation, need_key)?;
            let mut columns = wanted;
            columns.extend(source.key.iter().flatten().copied());
            return Ok(source.select(columns));
        }
        let table = relation.table.and_then(|t| self.catalog.table(t));
        let table = table.ok_or_else(|| Error::internal(format!("relation {} has no table", relation.name)))?;
        let mut columns = wanted;
        let has_key = !relation.key.is_empty() || table.key.is_empty();
        if need_key && has_key {
            let missing: Vec<usize> = relation.key.iter().filter(|k| !columns.contains(k)).copied().collect();
            columns.extend(missing);
        }
        let find = |wanted: &[usize]| wanted.iter().map(|w| columns.iter().position(|c| c == w)).collect::<Option<Vec<_>>>();
        let key = if has_key { find(&relation.key) } else { None };
        let dist = match table.distribution {
            0 => Dist::Single,
            n => find(&table.key_columns()[..n]).map_or(Dist::Any, Dist::Hash),
        };
        let schema: Vec<Field> =
            columns.iter().map(|c| &relation.columns[*c]).map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable)).collect();
        let append_only = relation.append_only;
        Ok(StreamPlan { op: Op::Backfill { relation, columns }, inputs: Vec::new(), schema, key, append_only, dist })
    }

    fn project(&mut self, projection: &Projection, need_key: bool) -> Result<StreamPlan> {
        let input = self.lower(&projection.input, need_key)?;
        let schema = projection.input.schema();
        let exprs = projection.expr.iter().map(|e| expression(e, schema)).collect::<Result<Vec<_>>>()?;
        let plain = projection.expr.iter().map(|e| plain_column(e, schema)).collect::<Vec<_>>();
        let fields = projection.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        project_plan(input, exprs, plain, fields, need_key)
    }
}

/// A projection; with `need_key` the key's columns that it does not give are appended.
pub(crate) fn project_plan(
    input: StreamPlan,
    mut exprs: Vec<Expr>,
    mut plain: Vec<Option<usize>>,
    mut fields: Vec<Field>,
    need_key: bool,
) -> Result<StreamPlan> {
    if need_key && let Some(key) = &input.key {
        for column in key {
            if !plain.contains(&Some(*column)) {
                exprs.push(column_expr(*column, &input.schema[*column])?);
                plain.push(Some(*column));
                fields.push(input.schema[*column].clone());
            }
        }
    }
    // A row that fails to evaluate is NULL, whatever the types promise.
    let fields: Vec<Field> = fields
        .into_iter()
        .zip(&plain)
        .map(|(f, p)| match p {
            Some(column) => input.schema[*column].clone().with_name(f.name()),
            None => f.with_nullable(true),
        })
        .collect();
    if let Some(columns) = plain.iter().copied().collect::<Option<Vec<usize>>>() {
        let mut selected = input.select(columns);
        selected.schema = fields;
        return Ok(selected);
    }
    let find = |wanted: &[usize]| wanted.iter().map(|w| plain.iter().position(|p| *p == Some(*w))).collect::<Option<Vec<_>>>();
    let key = input.key.as_deref().and_then(find);
    let dist = match &input.dist {
        Dist::Hash(hash) => find(hash).map_or(Dist::Any, Dist::Hash),
        other => other.clone(),
    };
    let append_only = input.append_only;
    Ok(StreamPlan { op: Op::Project { exprs }, inputs: vec![input], schema: fields, key, append_only, dist })
}

pub(crate) fn filter_plan(input: StreamPlan, predicate: Expr) -> StreamPlan {
    StreamPlan {
        op: Op::Filter { predicate },
        schema: input.schema.clone(),
        key: input.key.clone(),
        append_only: input.append_only,
        dist: input.dist.clone(),
        inputs: vec![input],
    }
}

/// The position of the column that an expression is.
pub(crate) fn plain_column(expr: &Logical, schema: &DFSchema) -> Option<usize> {
    match expr {
        Logical::Column(c) => schema.index_of_column(c).ok(),
        Logical::Alias(a) => plain_column(&a.expr, schema),
        _ => None,
    }
}

/// Encodes an expression that a view may hold.
pub(crate) fn expression(expr: &Logical, schema: &DFSchema) -> Result<Expr> {
    check(expr)?;
    encode_expr(expr, schema)
}

/// Refuses what has no meaning in a view that is kept up to date.
pub(crate) fn check(expr: &Logical) -> Result<()> {
    let mut found = None;
    expr.apply(|e| {
        found = match e {
            Logical::ScalarFunction(f) => {
                let name = f.func.name();
                let of_time = matches!(name, "now" | "current_date" | "current_time" | "current_timestamp");
                if of_time {
                    Some(refused(&format!("{name}()"), "Compare with now() when you select from the view."))
                } else if f.func.signature().volatility == Volatility::Volatile {
                    Some(refused(&format!("the volatile function {name}()"), "Compute it when you select from the view."))
                } else {
                    None
                }
            }
            Logical::ScalarSubquery(_) | Logical::Exists(_) | Logical::InSubquery(_) | Logical::OuterReferenceColumn(..) => {
                Some(refused("a correlated subquery of this form", "Write it as a join."))
            }
            Logical::WindowFunction(_) => Some(refused("a window function", "Use GROUP BY, or compute it when you select from the view.")),
            Logical::Placeholder(p) => Some(refused(&format!("the parameter {}", p.id), "Write the value itself.")),
            Logical::Unnest(_) => Some(refused("unnest()", "Unnest when you select from the view.")),
            _ => None,
        };
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .map_err(from_datafusion)?;
    found.map_or(Ok(()), Err)
}

/// `X in a materialized view is not supported`, with what to write instead.
pub(crate) fn refused(what: &str, instead: &str) -> Error {
    Error::unsupported(format!("{what} in a materialized view or sink is not supported")).with_hint(instead)
}

fn refuse(plan: &LogicalPlan) -> Error {
    match plan {
        LogicalPlan::Window(_) => refused("a window function", "Use GROUP BY, or compute it when you select from the view."),
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => {
            refused("LIMIT", "Leave it out and use ORDER BY ... LIMIT when you select from the view.")
        }
        LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => refused("a query without a table", "Put the rows into a table."),
        LogicalPlan::Distinct(Distinct::On(_)) => refused("DISTINCT ON", "Use GROUP BY with min() or max()."),
        LogicalPlan::Unnest(_) => refused("unnest()", "Unnest when you select from the view."),
        LogicalPlan::RecursiveQuery(_) => refused("a recursive query", "Run it when you select from the view."),
        LogicalPlan::Subquery(_) => refused("a correlated subquery of this form", "Write it as a join."),
        other => refused(&format!("the operator {}", other.display()), "Write the query differently."),
    }
}
