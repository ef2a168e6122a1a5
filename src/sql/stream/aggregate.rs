//! GROUP BY, DISTINCT and aggregates.

use super::lower::{Lower, expression, plain_column, project_plan, refused};
use super::plan::{Call, Dist, Op, StreamPlan};
use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr as Logical, ExprSchemable};
use eddyline_expr::errors::from_datafusion;
use eddyline_protocol::plan::{AggFunction, Expr};
use eddyline_types::Result;

/// The columns below an aggregate: group expressions, arguments and filters, each once.
struct Below<'s> {
    schema: &'s DFSchema,
    logical: Vec<Logical>,
    exprs: Vec<Expr>,
    plain: Vec<Option<usize>>,
    fields: Vec<Field>,
}

impl Below<'_> {
    fn add(&mut self, expr: &Logical) -> Result<usize> {
        if let Some(position) = self.logical.iter().position(|e| e == expr) {
            return Ok(position);
        }
        let encoded = expression(expr, self.schema)?;
        let field = expr.to_field(self.schema).map_err(from_datafusion)?.1;
        self.fields.push(Field::new(&encoded.text, field.data_type().clone(), field.is_nullable()));
        self.plain.push(plain_column(expr, self.schema));
        self.exprs.push(encoded);
        self.logical.push(expr.clone());
        Ok(self.logical.len() - 1)
    }
}

impl Lower<'_> {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate) -> Result<StreamPlan> {
        let input = self.lower(&aggregate.input, false)?;
        let mut below = Below { schema: aggregate.input.schema(), logical: vec![], exprs: vec![], plain: vec![], fields: vec![] };
        for group in &aggregate.group_expr {
            let group = unalias(group);
            if matches!(group, Logical::GroupingSet(_)) {
                return Err(refused("GROUPING SETS, ROLLUP or CUBE", "Use one view for each grouping, or UNION ALL of them."));
            }
            // Equal group expressions would share a column, and the output has one for each.
            if below.logical.contains(group) {
                return Err(refused("grouping twice by the same expression", "Group by it once."));
            }
            below.add(group)?;
        }
        let groups = below.logical.len();
        let constants: Vec<usize> = (0..groups).filter(|g| matches!(below.logical[*g], Logical::Literal(..))).collect();
        let mut calls = Vec::new();
        for expr in &aggregate.aggr_expr {
            let Logical::AggregateFunction(function) = unalias(expr) else {
                return Err(refused(&format!("the aggregate {expr}"), "Compute it when you select from the view."));
            };
            calls.push(call(function, &mut below)?);
        }
        let Below { exprs, plain, fields, .. } = below;
        let input = project_plan(input, exprs, plain, fields, false)?;
        let called = aggregate.schema.fields().iter().skip(groups).zip(&calls);
        let outputs = called.map(|(f, c)| f.as_ref().clone().with_name(call_name(c, &input))).collect();
        Ok(agg_plan(input, groups, &constants, calls, outputs))
    }
}

/// An aggregate over an input that begins with the group columns; inserts the exchange that it needs. `constants` are group columns that are
/// the same in all rows, so of no use in keys; `outputs` are the fields of the calls.
pub(crate) fn agg_plan(input: StreamPlan, groups: usize, constants: &[usize], calls: Vec<Call>, outputs: Vec<Field>) -> StreamPlan {
    let telling: Vec<usize> = (0..groups).filter(|g| !constants.contains(g)).collect();
    let input = match &input.dist {
        Dist::Single => input,
        Dist::Hash(hash) if groups > 0 && hash.iter().all(|h| telling.contains(h)) => input,
        _ => input.exchange(telling.clone()),
    };
    // The state's key begins with the columns that place it.
    let first = match &input.dist {
        Dist::Hash(hash) => hash.clone(),
        Dist::Single | Dist::Any => Vec::new(),
    };
    let mut group = first.clone();
    group.extend((0..groups).filter(|g| !first.contains(g)));
    let schema: Vec<Field> = group.iter().map(|g| input.schema[*g].clone()).chain(outputs).collect();
    let dist = if first.is_empty() { Dist::Single } else { Dist::Hash((0..first.len()).collect()) };
    let place = |g: usize| group.iter().position(|x| *x == g).expect("every group column is there");
    let back: Vec<usize> = (0..groups).map(place).chain(groups..schema.len()).collect();
    let key = Some(telling.into_iter().map(place).collect());
    let plan = StreamPlan { op: Op::Agg { group, calls }, inputs: vec![input], schema, key, append_only: false, dist };
    plan.select(back)
}

/// `count(DISTINCT x)`, for people.
pub(crate) fn call_name(call: &Call, input: &StreamPlan) -> String {
    let name = |c: usize| input.schema.get(c).map_or("?", |f| crate::bind_output_name(f.name()));
    let function = match call.function {
        AggFunction::Count => "count",
        AggFunction::Sum => "sum",
        AggFunction::Avg => "avg",
        AggFunction::Min => "min",
        AggFunction::Max => "max",
        AggFunction::BoolAnd => "bool_and",
        AggFunction::BoolOr => "bool_or",
    };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    let filter = call.filter.map_or(String::new(), |f| format!(" FILTER ({})", name(f)));
    format!("{function}({distinct}{}){filter}", call.argument.map_or("*", name))
}

fn unalias(expr: &Logical) -> &Logical {
    match expr {
        Logical::Alias(a) => unalias(&a.expr),
        other => other,
    }
}

fn call(function: &AggregateFunction, below: &mut Below<'_>) -> Result<Call> {
    let name = function.func.name();
    let kind = match name {
        "count" => AggFunction::Count,
        "sum" => AggFunction::Sum,
        "avg" => AggFunction::Avg,
        "min" => AggFunction::Min,
        "max" => AggFunction::Max,
        "bool_and" => AggFunction::BoolAnd,
        "bool_or" => AggFunction::BoolOr,
        other => {
            let instead =
                "count, sum, avg, min, max, bool_and and bool_or can be kept up to date; compute others when you select from the view.";
            return Err(refused(&format!("the aggregate function {other}()"), instead));
        }
    };
    let params = &function.params;
    let argument = match params.args.as_slice() {
        [Logical::Literal(value, _)] if kind == AggFunction::Count && !value.is_null() && !params.distinct => None,
        [] if kind == AggFunction::Count => None,
        [one] => Some(one),
        _ => return Err(refused(&format!("{name}() with several arguments"), "Give it one argument.")),
    };
    if let Some(argument) = argument {
        let data_type = argument.get_type(below.schema).map_err(from_datafusion)?;
        if matches!(data_type, DataType::Interval(_) | DataType::Duration(_)) && matches!(kind, AggFunction::Sum | AggFunction::Avg) {
            return Err(refused(&format!("{name}() over intervals"), "Use sum(extract(epoch FROM ...))."));
        }
    }
    let argument = argument.map(|a| below.add(a)).transpose()?;
    let filter = params.filter.as_deref().map(|f| below.add(f)).transpose()?;
    // Repeated values change nothing in these.
    let distinct = params.distinct && matches!(kind, AggFunction::Count | AggFunction::Sum | AggFunction::Avg);
    Ok(Call { function: kind, argument, distinct, filter })
}
