//! What is changed before and after DataFusion plans a query.
//!
//! Before (trees): output names as in Postgres, `mod(a, b)`, aliases of functions. After (plans whose types are settled): integer
//! and float arithmetic becomes checked, casts to integers round. Both keep names and types.

use super::output;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as DfResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Aggregate, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Projection};
use eddyline_expr::checked::{self, CheckedOp};
use eddyline_expr::{functions, registry};
use eddyline_types::{Error, Result};
use sqlparser::ast::{self, BinaryOperator, Expr as Sql, VisitMut, VisitorMut};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Prepares a tree for the planner.
pub(crate) fn prepare(query: &mut impl VisitMut) -> Result<()> {
    match query.visit(&mut Prepare) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(e) => Err(e),
    }
}

struct Prepare;

impl VisitorMut for Prepare {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<Error> {
        output::name_items(&mut select.projection);
        ControlFlow::Continue(())
    }

    /// The alias of a function with one column names the column too: `generate_series(1, 3) x`.
    fn pre_visit_table_factor(&mut self, factor: &mut ast::TableFactor) -> ControlFlow<Error> {
        if let ast::TableFactor::Table { name, args: Some(_), alias: Some(alias), .. } = factor
            && alias.columns.is_empty()
            && name.to_string().eq_ignore_ascii_case("generate_series")
        {
            alias.columns.push(ast::TableAliasColumnDef { name: alias.name.clone(), data_type: None });
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Sql) -> ControlFlow<Error> {
        match expr {
            Sql::SimilarTo { .. } => {
                let e = Error::unsupported("SIMILAR TO is not supported").with_hint("Use LIKE, or ~ with a regular expression.");
                return ControlFlow::Break(e);
            }
            Sql::Function(f) => rewrite_function(f),
            Sql::Value(ast::ValueWithSpan { value: ast::Value::Number(text, _), .. }) => plain_number(text),
            _ => None,
        }
        .map_or(ControlFlow::Continue(()), |new| {
            *expr = new;
            ControlFlow::Continue(())
        })
    }
}

/// A number with an exponent, written out: the planner would make a decimal of negative scale of it, which no conversion reads exactly.
/// What 38 digits cannot hold is a double.
fn plain_number(text: &str) -> Option<Sql> {
    let (digits, exponent) = text.split_once(['e', 'E'])?;
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    // Where the point is among all digits.
    let point = whole.len() as i64 + exponent;
    let scale = (all.len() as i64 - point).max(0);
    let width = point.max(0) + scale;
    let literal = |text: String, data_type| {
        Some(Sql::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(Sql::value(ast::Value::SingleQuotedString(text))),
            data_type,
            array: false,
            format: None,
        })
    };
    if width > 38 {
        return literal(text.to_owned(), ast::DataType::DoublePrecision);
    }
    let zeros = |n: i64| "0".repeat(n.max(0) as usize);
    let padded = format!("{}{all}{}", zeros(-point), zeros(point - all.len() as i64));
    let at = point.max(0) as usize;
    let plain = if scale == 0 { padded } else { format!("{}.{}", if at == 0 { "0" } else { &padded[..at] }, &padded[at..]) };
    literal(plain, ast::DataType::Decimal(ast::ExactNumberInfo::PrecisionAndScale(38, scale)))
}

fn rewrite_function(f: &mut ast::Function) -> Option<Sql> {
    if f.name.0.len() == 2 && f.name.0[0].as_ident().is_some_and(|i| i.value.eq_ignore_ascii_case("pg_catalog")) {
        f.name.0.remove(0);
    }
    let name = f.name.0.first().and_then(|p| p.as_ident()).filter(|_| f.name.0.len() == 1)?.value.to_lowercase();
    let ast::FunctionArguments::List(list) = &f.args else { return None };
    let args: Vec<&Sql> = list
        .args
        .iter()
        .filter_map(|a| match a {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => Some(e),
            _ => None,
        })
        .collect();
    match (name.as_str(), args.as_slice()) {
        ("mod", [a, b]) => Some(Sql::Nested(Box::new(Sql::BinaryOp {
            left: Box::new(Sql::Nested(Box::new((*a).clone()))),
            op: BinaryOperator::Modulo,
            right: Box::new(Sql::Nested(Box::new((*b).clone()))),
        }))),
        _ => None,
    }
}

/// Makes the arithmetic of a plan with settled types fail as in Postgres.
pub(crate) fn check_arithmetic(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    Ok(plan
        .transform_up_with_subqueries(|plan| {
            let schema = match &plan {
                LogicalPlan::TableScan(scan) => scan.projected_schema.as_ref().clone(),
                other => merge_schema(&other.inputs()),
            };
            let names = NamePreserver::new(&plan);
            let mapped = plan.map_expressions(|e| {
                let name = names.save(&e);
                let checked = check_expr(e, &schema)?;
                Ok(if checked.transformed { checked.update_data(|e| name.restore(e)) } else { checked })
            })?;
            if mapped.transformed { mapped.map_data(|plan| plan.recompute_schema()) } else { Ok(mapped) }
        })?
        .data)
}

/// Makes `sum` over BIGINT fail where DataFusion's wraps: summed in 38 digits and cast back. For batch plans; views have their own exact sums.
pub(crate) fn check_sums(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    Ok(plan
        .transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) => widen(aggregate),
            other => Ok(Transformed::no(other)),
        })?
        .data)
}

fn widen(mut aggregate: Aggregate) -> DfResult<Transformed<LogicalPlan>> {
    let wide = DataType::Decimal128(38, 0);
    let schema = aggregate.schema.clone();
    // Grouping sets add columns that are not in the list of groups.
    let groups = schema.fields().len() - aggregate.aggr_expr.len();
    let mut cast_back = vec![false; schema.fields().len()];
    for (number, expr) in aggregate.aggr_expr.iter_mut().enumerate() {
        let inner = match expr {
            Expr::Alias(alias) => alias.expr.as_mut(),
            other => other,
        };
        let Expr::AggregateFunction(function) = inner else { continue };
        let of_bigint = function.func.name() == "sum" && *schema.field(groups + number).data_type() == DataType::Int64;
        if let (true, [argument]) = (of_bigint, function.params.args.as_mut_slice()) {
            *argument = Expr::Cast(Cast::new(Box::new(argument.clone()), wide.clone()));
            cast_back[groups + number] = true;
        }
    }
    if !cast_back.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let inner = LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, aggregate.group_expr, aggregate.aggr_expr)?);
    let inner_schema = inner.schema().clone();
    let columns = inner_schema
        .iter()
        .zip(schema.iter())
        .zip(cast_back)
        .map(|(((q, f), (old_q, old)), cast)| {
            let column = Expr::Column(Column::from((q, f)));
            if cast { Expr::Cast(Cast::new(Box::new(column), DataType::Int64)).alias_qualified(old_q.cloned(), old.name()) } else { column }
        })
        .collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(inner))?)))
}

/// [`check_arithmetic`] for one expression over a schema.
pub(crate) fn check_expr(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    expr.transform_up(|e| match e {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if let Some(checked_op) = CheckedOp::of(op)
                && let (Ok(l), Ok(r)) = (type_of(&left, schema), type_of(&right, schema))
                && l == r
                && checked::applies_to(&l)
            {
                return Ok(Transformed::yes(checked::checked(checked_op, *left, *right)));
            }
            Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Cast(Cast { expr, field }) if field.data_type().is_integer() => {
            let rounded = match expr.get_type(schema) {
                Ok(DataType::Float64) if !is_rint(&expr) => Some(functions::rint().call(vec![expr.as_ref().clone()])),
                Ok(DataType::Float32) => {
                    let wide = Expr::Cast(Cast::new(expr.clone(), DataType::Float64));
                    Some(functions::rint().call(vec![wide]))
                }
                Ok(DataType::Decimal128(_, scale)) if scale > 0 && !is_call(&expr, "round") => {
                    registry::scalar("round").map(|round| round.call(vec![expr.as_ref().clone()]))
                }
                _ => None,
            };
            match rounded {
                Some(inner) => Ok(Transformed::yes(Expr::Cast(Cast { expr: Box::new(inner), field }))),
                None => Ok(Transformed::no(Expr::Cast(Cast { expr, field }))),
            }
        }
        other => Ok(Transformed::no(other)),
    })
}

/// The type of an expression. That of a checked operator is its operands': asking the planner costs the length of the chain.
fn type_of(mut expr: &Expr, schema: &DFSchema) -> DfResult<DataType> {
    while let Expr::ScalarFunction(f) = expr
        && checked::as_checked(&f.func).is_some()
        && let Some(operand) = f.args.first()
    {
        expr = operand;
    }
    expr.get_type(schema)
}

fn is_rint(expr: &Expr) -> bool {
    is_call(expr, "eddy_rint")
}

fn is_call(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::ScalarFunction(f) if f.func.name() == name)
}
