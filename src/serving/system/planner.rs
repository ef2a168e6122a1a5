//! Queries over `pg_catalog` as psql, drivers and tools send them: rewritten into what DataFusion takes, and planned over system tables and user relations.
//!
//! The rewriting is datafusion-pg-catalog's and a little of ours; output columns get the names that Postgres would give. User relations are
//! read at their newest epoch when they are scanned: such queries are about the catalog, not about data.

use super::SystemSchemas;
use super::dialect;
use super::functions::{self, SessionFacts};
use crate::cancel::Cancel;
use crate::failure::{from_datafusion, into_datafusion};
use crate::pin::{Freshness, ReadPoint};
use crate::provider::RelationTable;
use crate::query::{QueryRows, bind_parameters, guarded};
use crate::reader::RelationReader;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::Column;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, SelectItem, SetExpr, Statement};
use eddyline_protocol::RelationKind;
use eddyline_protocol::catalog::DEFAULT_SCHEMA;
use eddyline_types::{Error, Result, SqlState};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The only database.
pub const DATABASE: &str = "dev";

/// A query and the session that asks.
pub struct SystemQuery<'a> {
    /// One SELECT.
    pub text: &'a str,
    /// User.
    pub user: &'a str,
    /// Database.
    pub database: &'a str,
    /// Number of the session.
    pub session_id: i32,
    /// Schemas that names are looked up in.
    pub search_path: &'a [String],
    /// Effective variables.
    pub settings: &'a Arc<BTreeMap<String, String>>,
    /// Types that the client declared for its parameters.
    pub hints: &'a [Option<DataType>],
}

/// A planned query.
pub struct SystemPlan {
    /// Types of `$1`, `$2`, ...
    pub parameters: Vec<DataType>,
    /// Names and types of the result.
    pub output: SchemaRef,
    plan: LogicalPlan,
    state: SessionState,
}

impl std::fmt::Debug for SystemPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SystemPlan({} columns)", self.output.fields().len())
    }
}

/// The query engine's state with our database as the default one.
pub(super) fn base_state(state: &SessionState) -> SessionState {
    let config = state.config().clone().with_default_catalog_and_schema(DATABASE, DEFAULT_SCHEMA).with_information_schema(false);
    let list = MemoryCatalogProviderList::new();
    list.register_catalog(DATABASE.into(), Arc::new(MemoryCatalogProvider::new()));
    SessionStateBuilder::new_from_existing(state.clone()).with_config(config).with_catalog_list(Arc::new(list)).build()
}

/// Plans a query.
pub(super) async fn plan(schemas: &SystemSchemas, query: SystemQuery<'_>) -> Result<SystemPlan> {
    let state = state_for(schemas, &query)?;
    let mut statements =
        schemas.inner.parser.parse(&dialect::rewrite(query.text)).map_err(|e| Error::user(SqlState::SYNTAX_ERROR, e.to_string()))?;
    let (Some(mut statement), true) = (statements.pop(), statements.is_empty()) else {
        return Err(Error::user(SqlState::SYNTAX_ERROR, "one query is expected"));
    };
    let names = match &mut statement {
        Statement::Query(query) => name_columns(query),
        _ => return Err(Error::user(SqlState::SYNTAX_ERROR, "a query is expected")),
    };
    let plan = state.statement_to_plan(DfStatement::Statement(Box::new(statement))).await.map_err(from_datafusion)?;
    let parameters = parameter_types(&plan, query.hints)?;
    let shape = plan.schema().as_arrow().clone();
    let fields: Vec<Field> = shape
        .fields()
        .iter()
        .enumerate()
        .map(|(i, field)| {
            let name = names.get(i).filter(|_| names.len() == shape.fields().len()).cloned().flatten();
            Field::new(name.unwrap_or_else(|| field.name().clone()), field.data_type().clone(), true)
        })
        .collect();
    Ok(SystemPlan { parameters, output: Arc::new(Schema::new(fields)), plan, state })
}

/// Runs a planned query.
pub(super) async fn run(plan: &SystemPlan, parameters: &[ArrayRef], cancel: &Cancel) -> Result<QueryRows> {
    let mut state = plan.state.clone();
    state.mark_start_execution();
    let bound = bind_parameters(plan.plan.clone(), parameters)?;
    let physical = cancel.race(async { state.create_physical_plan(&bound).await.map_err(from_datafusion) }).await?;
    let stream = execute_stream(physical, state.task_ctx()).map_err(from_datafusion)?;
    let rows = guarded(stream.map(|b| b.map_err(from_datafusion)).boxed(), plan.output.clone(), cancel.clone());
    Ok(QueryRows { schema: plan.output.clone(), rows })
}

fn state_for(schemas: &SystemSchemas, query: &SystemQuery<'_>) -> Result<SessionState> {
    let catalog = schemas.inner.origin.view.catalog();
    let database = MemoryCatalogProvider::new();
    let register = |name: &str| {
        let provider = Arc::new(Namespace { schemas: schemas.clone(), name: name.to_owned() });
        database.register_schema(name, provider).map(|_| ()).map_err(from_datafusion)
    };
    for name in SystemSchemas::NAMES.into_iter().chain([DEFAULT_SCHEMA]).chain(catalog.schemas.iter().map(String::as_str)) {
        register(name)?;
    }
    let list = MemoryCatalogProviderList::new();
    list.register_catalog(DATABASE.into(), Arc::new(database));
    let mut config = schemas.inner.state.config().clone();
    if let Some(first) = query.search_path.first() {
        config = config.with_default_catalog_and_schema(DATABASE, first);
    }
    let base = schemas.inner.state.clone();
    let mut state = SessionStateBuilder::new_from_existing(base).with_config(config).with_catalog_list(Arc::new(list)).build();
    let facts = SessionFacts { user: query.user, session_id: query.session_id, search_path: query.search_path, settings: query.settings };
    for function in functions::of_session(&facts, &schemas.inner.origin) {
        state.register_udf(Arc::new(function)).map_err(from_datafusion)?;
    }
    Ok(state)
}

/// Names the output columns as Postgres does. Inside the query each gets a name of its own, because DataFusion refuses duplicates; what is
/// returned are the names to be shown (`None`: as the plan has it).
fn name_columns(query: &mut Query) -> Vec<Option<String>> {
    let mut body = query.body.as_mut();
    loop {
        match body {
            SetExpr::SetOperation { left, .. } => body = left.as_mut(),
            SetExpr::Query(inner) => body = inner.body.as_mut(),
            SetExpr::Select(select) => {
                if select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))) {
                    return Vec::new();
                }
                let mut shown = Vec::new();
                let mut used = std::collections::BTreeSet::new();
                for (i, item) in select.projection.iter_mut().enumerate() {
                    let name = match item {
                        SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
                        SelectItem::UnnamedExpr(expr) => column_name(expr),
                        _ => return Vec::new(),
                    };
                    let unique = if used.insert(name.clone()) { name.clone() } else { format!("{name}__{i}") };
                    let alias = Ident::with_quote('"', unique);
                    *item = match std::mem::replace(item, SelectItem::Wildcard(Default::default())) {
                        SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) => SelectItem::ExprWithAlias { expr, alias },
                        other => other,
                    };
                    // The crate's rules number duplicates; what the client wrote is shown.
                    shown.push(Some(name));
                }
                return shown;
            }
            _ => return Vec::new(),
        }
    }
}

/// The name that Postgres gives to an expression without one.
fn column_name(expr: &Expr) -> String {
    let unnamed = || "?column?".to_owned();
    match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => names.last().map_or_else(unnamed, |n| n.value.clone()),
        Expr::Function(f) => f.name.0.last().and_then(|p| p.as_ident()).map_or_else(unnamed, |n| n.value.to_lowercase()),
        Expr::Cast { expr, data_type, .. } => match column_name(expr) {
            name if name == "?column?" => data_type.to_string().to_lowercase().rsplit('.').next().unwrap_or("?column?").to_owned(),
            name => name,
        },
        Expr::Nested(inner) => column_name(inner),
        Expr::Case { else_result, .. } => match else_result.as_ref().map(|e| column_name(e)) {
            Some(name) if name != "?column?" => name,
            _ => "case".to_owned(),
        },
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expr)) => column_name(expr),
                Some(SelectItem::ExprWithAlias { alias, .. }) => alias.value.clone(),
                _ => unnamed(),
            },
            _ => unnamed(),
        },
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        _ => unnamed(),
    }
}

/// Types of `$1`, `$2`, ...: told, inferred, else text.
fn parameter_types(plan: &LogicalPlan, hints: &[Option<DataType>]) -> Result<Vec<DataType>> {
    let inferred = plan.get_parameter_types().map_err(from_datafusion)?;
    let numbers = inferred.keys().filter_map(|name| name.strip_prefix('$')?.parse::<usize>().ok());
    let count = numbers.max().unwrap_or(0).max(hints.len());
    let of = |i: usize| match hints.get(i).cloned().flatten() {
        Some(told) => told,
        None => inferred.get(&format!("${}", i + 1)).cloned().flatten().unwrap_or(DataType::Utf8),
    };
    Ok((0..count).map(of).collect())
}

/// One schema: of the system, or of the user.
#[derive(Clone)]
struct Namespace {
    schemas: SystemSchemas,
    name: String,
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

#[async_trait]
impl SchemaProvider for Namespace {
    fn table_names(&self) -> Vec<String> {
        if SystemSchemas::NAMES.contains(&self.name.as_str()) {
            return self.schemas.table_names(&self.name);
        }
        let catalog = self.schemas.inner.origin.view.catalog();
        catalog.relations.values().filter(|r| r.schema_name == self.name && r.table.is_some()).map(|r| r.name.clone()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if SystemSchemas::NAMES.contains(&self.name.as_str()) {
            return Ok(self.schemas.provider(&self.name, name));
        }
        let origin = &self.schemas.inner.origin;
        let catalog = origin.view.catalog();
        let Some(relation) = catalog.find(&self.name, name) else { return Ok(None) };
        if !matches!(relation.kind, RelationKind::Table | RelationKind::MaterializedView) {
            return Ok(None);
        }
        let point = ReadPoint::pin(origin.view.as_ref(), &origin.store, &[relation.id], Freshness::Latest).map_err(into_datafusion)?;
        let reader = RelationReader::new(&point, relation.id).map_err(into_datafusion)?;
        let table: Arc<dyn TableProvider> = Arc::new(RelationTable::new(reader));
        if relation.columns.iter().all(|c| !c.hidden) {
            return Ok(Some(table));
        }
        let shown = relation.columns.iter().filter(|c| !c.hidden).map(|c| Column::new(Some(name), &c.name)).map(DfExpr::Column);
        let plan = LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.project(shown)?.build()?;
        Ok(Some(Arc::new(ViewTable::new(plan, None))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|n| n == name)
    }
}
