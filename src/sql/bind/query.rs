//! Queries: from trees to analysed plans.

use super::names::options;
use super::{Binder, Failure, lookup, output, rewrite};
use crate::statement::SelectQuery;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::Analyzer;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use eddyline_expr::bound::BoundQuery;
use eddyline_protocol::Relation;
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{self, Query, Statement};
use std::sync::Arc;

/// Views over views over views: a limit that no sane catalog meets.
const MAX_VIEW_DEPTH: usize = 64;

/// A query with settled types.
pub(crate) struct Planned {
    /// Analysed; column names are unique within relations.
    pub plan: LogicalPlan,
    /// Output names as Postgres gives them; may repeat.
    pub names: Vec<String>,
    /// Types of the parameters.
    pub parameters: Vec<DataType>,
}

impl Planned {
    /// Names and types of the output.
    pub fn output(&self) -> Arc<Schema> {
        let fields = self.plan.schema().fields().iter().zip(&self.names);
        Arc::new(Schema::new(fields.map(|(f, name)| Field::new(name, f.data_type().clone(), f.is_nullable())).collect::<Vec<_>>()))
    }

    pub fn bound(self) -> BoundQuery {
        BoundQuery { output: self.output(), plan: self.plan }
    }
}

impl Binder<'_> {
    /// Plans a query without settling types.
    pub(crate) fn raw_plan(&self, query: &Query, types: &[Option<DataType>]) -> Result<LogicalPlan> {
        let mut query = query.clone();
        rewrite::prepare(&mut query)?;
        refuse_constructs(&query)?;
        let mut planner_context = PlannerContext::new().with_prepare_param_data_types(parameter_fields(types));
        let planner = SqlToRel::new_with_options(self, ParserOptions::from(&options().sql_parser));
        planner.sql_statement_to_plan_with_context(Statement::Query(Box::new(query)), &mut planner_context).map_err(|e| self.failure(e))
    }

    /// Plans a query; unknown parameter types become text.
    pub(crate) fn plan_query(&self, query: &Query) -> Result<Planned> {
        self.plan_with(query, &self.types)
    }

    pub(crate) fn plan_with(&self, query: &Query, types: &[Option<DataType>]) -> Result<Planned> {
        let types = &cast_types(query, types);
        let raw = self.raw_plan(query, types)?;
        let (parameters, complete) = self.parameter_types(&raw, types)?;
        let raw = if complete { raw } else { self.raw_plan(query, &parameters.iter().cloned().map(Some).collect::<Vec<_>>())? };
        self.settle(raw, parameters)
    }

    /// Coerces types and checks arithmetic.
    pub(crate) fn settle(&self, raw: LogicalPlan, parameters: Vec<DataType>) -> Result<Planned> {
        let names = raw.schema().fields().iter().map(|f| output::shown(f.name()).to_string()).collect();
        let analysed = Analyzer::new().execute_and_check(raw, options(), |_, _| {}).map_err(|e| self.failure(e))?;
        let plan = rewrite::check_arithmetic(analysed).map_err(|e| self.failure(e))?;
        let plan = if self.for_view { plan } else { rewrite::check_sums(plan).map_err(|e| self.failure(e))? };
        Ok(Planned { plan, names, parameters })
    }

    /// Types of `$1` up to the highest that occurs; `false`: some had to be guessed.
    fn parameter_types(&self, plan: &LogicalPlan, given: &[Option<DataType>]) -> Result<(Vec<DataType>, bool)> {
        let found = plan.get_parameter_types().map_err(|e| self.failure(e))?;
        let mut types: Vec<Option<DataType>> = given.to_vec();
        for (id, data_type) in found {
            let number = id.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()).filter(|n| (1..=65535).contains(n));
            let Some(number) = number else {
                return Err(Error::user(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {id}")));
            };
            if types.len() < number {
                types.resize(number, None);
            }
            if types[number - 1].is_none() {
                types[number - 1] = data_type.filter(|t| *t != DataType::Null);
            }
        }
        let complete = types.iter().all(Option::is_some);
        Ok((types.into_iter().map(|t| t.unwrap_or(DataType::Utf8)).collect(), complete))
    }

    pub(crate) fn failure(&self, error: DataFusionError) -> Error {
        Failure { binder: self }.of(error)
    }
}

/// `$1::bigint` says the parameter's type, as in Postgres.
fn cast_types(query: &Query, given: &[Option<DataType>]) -> Vec<Option<DataType>> {
    struct Casts(Vec<Option<DataType>>);
    impl ast::Visitor for Casts {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &ast::Expr) -> std::ops::ControlFlow<()> {
            if let ast::Expr::Cast { expr, data_type, .. } = expr
                && let Ok(data_type) = super::types::arrow_type(data_type)
            {
                super::dml::note_type(&mut self.0, expr, &data_type);
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut casts = Casts(given.to_vec());
    let _ = ast::Visit::visit(query, &mut casts);
    casts.0
}

fn parameter_fields(types: &[Option<DataType>]) -> Vec<Option<FieldRef>> {
    types.iter().map(|t| t.clone().map(|t| Arc::new(Field::new("", t, true)))).collect()
}

/// A query of the user's, with its short cut if it has one.
pub(crate) fn bind_select(binder: &Binder<'_>, query: &Query) -> Result<SelectQuery> {
    let planned = binder.plan_query(query)?;
    let parameters = planned.parameters.clone();
    let lookup = lookup::recognise(&planned.plan, binder.context.catalog);
    let reads = binder.reads.borrow().iter().copied().collect();
    Ok(SelectQuery { query: planned.bound(), parameters, lookup, reads, tag: "SELECT" })
}

/// The plan of a view, with the view's column names.
pub(crate) fn plan_view(outer: &Binder<'_>, view: &Arc<Relation>) -> Result<LogicalPlan> {
    if outer.expanding >= MAX_VIEW_DEPTH {
        return Err(Error::user(SqlState::STATEMENT_TOO_COMPLEX, format!("views are nested more than {MAX_VIEW_DEPTH} deep")));
    }
    let text = view.query.as_deref().ok_or_else(|| Error::internal(format!("view {} has no query", view.name)))?;
    let parsed = crate::parse::parse(text)?.pop().ok_or_else(|| Error::internal(format!("view {} has an empty query", view.name)))?;
    let crate::parse::Tree::Sql(statement) = &parsed.tree else {
        return Err(Error::internal(format!("the query of view {} is no query", view.name)));
    };
    let Statement::Query(query) = statement.as_ref() else {
        return Err(Error::internal(format!("the query of view {} is no query", view.name)));
    };
    let path = vec![view.schema_name.clone(), eddyline_protocol::catalog::DEFAULT_SCHEMA.to_string()];
    let mut context = outer.context;
    context.search_path = &path;
    let mut inner = Binder::new(&parsed, &context, &[], outer.for_view);
    inner.expanding = outer.expanding + 1;
    let raw = inner.raw_plan(query, &[]).map_err(|e| e.context(format!("in view \"{}\"", view.name)))?;
    outer.reads.borrow_mut().extend(inner.reads.borrow().iter().copied());
    let columns: Vec<Expr> = raw
        .schema()
        .iter()
        .zip(&view.columns)
        .map(|((qualifier, field), column)| Expr::Column(Column::from((qualifier, field))).alias(&column.name))
        .collect();
    LogicalPlanBuilder::from(raw).project(columns).and_then(|b| b.build()).map_err(|e| outer.failure(e))
}

/// Constructs that the planner would take for something else, or accept and get wrong.
fn refuse_constructs(query: &Query) -> Result<()> {
    if !query.locks.is_empty() {
        return Err(Error::unsupported("SELECT ... FOR UPDATE is not supported").with_hint("Leave the FOR clause out."));
    }
    struct Refuse;
    impl ast::Visitor for Refuse {
        type Break = Error;
        fn pre_visit_query(&mut self, query: &Query) -> std::ops::ControlFlow<Error> {
            refuse_set(&query.body)
        }
        fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> std::ops::ControlFlow<Error> {
            let name = match factor {
                ast::TableFactor::Table { name, args: Some(_), .. } => name.to_string().to_lowercase(),
                ast::TableFactor::Function { name, .. } => name.to_string().to_lowercase(),
                _ => return std::ops::ControlFlow::Continue(()),
            };
            match name.as_str() {
                "tumble" | "hop" | "session" => std::ops::ControlFlow::Break(
                    Error::unsupported(format!("{}() windows are not supported", name.to_uppercase()))
                        .with_hint("For a tumbling window group by date_bin(INTERVAL '10 seconds', ts)."),
                ),
                _ => std::ops::ControlFlow::Continue(()),
            }
        }
    }
    match ast::Visit::visit(query, &mut Refuse) {
        std::ops::ControlFlow::Break(e) => Err(e),
        std::ops::ControlFlow::Continue(()) => Ok(()),
    }
}

fn refuse_set(body: &ast::SetExpr) -> std::ops::ControlFlow<Error> {
    match body {
        ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
            let all = matches!(set_quantifier, ast::SetQuantifier::All | ast::SetQuantifier::AllByName);
            if all && matches!(op, ast::SetOperator::Except | ast::SetOperator::Intersect) {
                // The planner would lose multiplicities.
                let e = Error::unsupported(format!("{op} ALL is not supported"))
                    .with_hint(format!("Use {op} (without ALL), which removes duplicates."));
                return std::ops::ControlFlow::Break(e);
            }
            refuse_set(left)?;
            refuse_set(right)
        }
        ast::SetExpr::Select(select) if select.into.is_some() => {
            let e = Error::unsupported("SELECT ... INTO is not supported").with_hint("Create a table, then use INSERT INTO ... SELECT.");
            std::ops::ControlFlow::Break(e)
        }
        _ => std::ops::ControlFlow::Continue(()),
    }
}
