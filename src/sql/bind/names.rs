//! What names mean: relations by search path, functions, and where hidden columns show.

use super::query::plan_view;
use super::types::PgTypes;
use super::{Binder, output};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableFunction;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Column, Result as DfResult, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, LogicalPlanBuilder, ScalarUDF, TableSource, WindowUDF};
use eddyline_expr::bound::RelationSource;
use eddyline_expr::registry;
use eddyline_protocol::{Relation, RelationKind};
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{ObjectName, Spanned};
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

/// Schemas that are the system's.
pub(crate) const SYSTEM_SCHEMAS: [&str; 3] = ["pg_catalog", "information_schema", "eddy_catalog"];

/// A name in up to three parts, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qualified {
    pub schema: Option<String>,
    pub name: String,
}

impl Binder<'_> {
    /// Schema and name of an object name; a database must be the session's.
    pub(crate) fn qualified(&self, name: &ObjectName) -> Result<Qualified> {
        let mut parts = Vec::new();
        for part in &name.0 {
            let ident = part.as_ident().ok_or_else(|| Error::user(SqlState::SYNTAX_ERROR, format!("\"{part}\" is not a name")))?;
            parts.push(crate::parse::fold(&ident.value, ident.quote_style.is_some()));
        }
        match parts.as_slice() {
            [name] => Ok(Qualified { schema: None, name: name.clone() }),
            [schema, name] => Ok(Qualified { schema: Some(schema.clone()), name: name.clone() }),
            [database, schema, name] if database == self.context.database => {
                Ok(Qualified { schema: Some(schema.clone()), name: name.clone() })
            }
            [_, _, _] => Err(Error::unsupported(format!("cross-database references are not implemented: \"{name}\""))
                .with_position(self.positions().of_location(name.span().start))),
            _ => Err(Error::user(SqlState::SYNTAX_ERROR, format!("improper qualified name (too many dotted names): {name}"))
                .with_position(self.positions().of_location(name.span().start))),
        }
    }

    /// The user relation of a name.
    pub(crate) fn find(&self, name: &Qualified) -> Option<&Arc<Relation>> {
        match &name.schema {
            Some(schema) => self.context.catalog.find(schema, &name.name),
            None => self.context.search_path.iter().find_map(|s| self.context.catalog.find(s, &name.name)),
        }
    }

    /// The user relation of a name, or the error that there is none, with the name's position.
    pub(crate) fn relation(&self, name: &ObjectName) -> Result<Arc<Relation>> {
        let qualified = self.qualified(name)?;
        match self.find(&qualified) {
            Some(relation) => Ok(relation.clone()),
            None => Err(self.unknown_relation(&qualified).with_position(self.positions().of_location(name.span().start))),
        }
    }

    pub(crate) fn unknown_relation(&self, name: &Qualified) -> Error {
        if let Some(schema) = &name.schema {
            let known = SYSTEM_SCHEMAS.contains(&schema.as_str()) || self.schema_exists(schema);
            if !known {
                return Error::user(SqlState::UNDEFINED_TABLE, format!("relation \"{schema}.{}\" does not exist", name.name))
                    .with_detail(format!("There is no schema \"{schema}\"."));
            }
        }
        let shown = match &name.schema {
            Some(schema) => format!("{schema}.{}", name.name),
            None => name.name.clone(),
        };
        let error = Error::user(SqlState::UNDEFINED_TABLE, format!("relation \"{shown}\" does not exist"));
        let candidates = self.context.catalog.relations.values().map(|r| r.name.as_str());
        match output::nearest(&name.name, candidates) {
            Some(near) => error.with_hint(format!("Perhaps you meant \"{near}\".")),
            None => match self.context.catalog.relations.values().find(|r| r.name == name.name) {
                Some(r) => error.with_hint(format!("There is \"{}.{}\" outside the search path.", r.schema_name, r.name)),
                None => error,
            },
        }
    }

    pub(crate) fn schema_exists(&self, schema: &str) -> bool {
        schema == eddyline_protocol::catalog::DEFAULT_SCHEMA || self.context.catalog.schemas.iter().any(|s| s == schema)
    }

    /// What a scan of a relation plans to: hidden columns are projected away, views are replaced by their query.
    fn source_of(&self, relation: &Arc<Relation>) -> Result<Arc<dyn TableSource>> {
        self.reads.borrow_mut().insert(relation.id);
        match relation.kind {
            RelationKind::View => {
                let plan = plan_view(self, relation)?;
                return Ok(Arc::new(Inlined { schema: plan.schema().as_arrow().clone().into(), plan }));
            }
            RelationKind::Sink => {
                return Err(Error::user(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is a sink: it has no rows to read", relation.name)));
            }
            RelationKind::Source if !self.for_view => {
                return Err(Error::user(SqlState::FEATURE_NOT_SUPPORTED, format!("\"{}\" is a source: it keeps no rows", relation.name))
                    .with_hint(format!(
                        "Create a materialized view over it, or a table with the same connector, and select from that: CREATE MATERIALIZED VIEW v AS SELECT * FROM {}.",
                        relation.name
                    )));
            }
            RelationKind::Source | RelationKind::Table | RelationKind::MaterializedView => {}
        }
        let source: Arc<dyn TableSource> = Arc::new(RelationSource { relation: relation.id, schema: relation.schema() });
        let hidden = relation.columns.iter().any(|c| c.hidden);
        if !hidden || *self.bare.borrow() == Some(relation.id) {
            return Ok(source);
        }
        let visible: Vec<Expr> = relation
            .columns
            .iter()
            .filter(|c| !c.hidden)
            .map(|c| Expr::Column(Column::new(Some(relation.name.clone()), &c.name)))
            .collect();
        let plan = LogicalPlanBuilder::scan(TableReference::bare(relation.name.clone()), source, None)
            .and_then(|b| b.project(visible))
            .and_then(|b| b.build())
            .map_err(eddyline_expr::errors::from_datafusion)?;
        Ok(Arc::new(Inlined { schema: plan.schema().as_arrow().clone().into(), plan }))
    }

    fn system_table(&self, name: &Qualified) -> Option<Arc<dyn TableSource>> {
        match &name.schema {
            Some(schema) if SYSTEM_SCHEMAS.contains(&schema.as_str()) => self.context.system.table(schema, &name.name),
            Some(_) => None,
            None => self.context.system.table("pg_catalog", &name.name),
        }
    }

    fn table_source(&self, name: &Qualified) -> Result<Arc<dyn TableSource>> {
        if let Some(source) = self.system_table(name) {
            if self.for_view {
                return Err(Error::unsupported(format!("a materialized view or sink cannot read the system table \"{}\"", name.name)));
            }
            return Ok(source);
        }
        match self.find(name) {
            Some(relation) => self.source_of(&relation.clone()),
            None => Err(self.unknown_relation(name)),
        }
    }
}

/// A scan that is replaced by a plan at once.
struct Inlined {
    schema: SchemaRef,
    plan: LogicalPlan,
}

impl TableSource for Inlined {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

/// Options of planning; the same as those of the registry's sessions.
pub(crate) fn options() -> &'static Arc<ConfigOptions> {
    registry::session_state().config_options()
}

fn function_name(name: &str) -> &str {
    name.strip_prefix("pg_catalog.").unwrap_or(name)
}

impl ContextProvider for Binder<'_> {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        let qualified = match name {
            TableReference::Bare { table } => Qualified { schema: None, name: table.to_string() },
            TableReference::Partial { schema, table } => Qualified { schema: Some(schema.to_string()), name: table.to_string() },
            TableReference::Full { catalog, schema, table } => {
                if *catalog != *self.context.database {
                    let e = Error::unsupported(format!("cross-database references are not implemented: \"{catalog}.{schema}.{table}\""));
                    return Err(DataFusionError::External(Box::new(e)));
                }
                Qualified { schema: Some(schema.to_string()), name: table.to_string() }
            }
        };
        self.table_source(&qualified).map_err(|e| DataFusionError::External(Box::new(e)))
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> DfResult<Arc<dyn TableSource>> {
        let state = registry::session_state();
        let name = function_name(name).to_lowercase();
        let function: &Arc<TableFunction> = state.table_functions().get(&name).ok_or_else(|| {
            let e = Error::user(SqlState::UNDEFINED_FUNCTION, format!("function {name}(...) does not exist in FROM"));
            DataFusionError::External(Box::new(e))
        })?;
        let provider = function.create_table_provider_with_args(datafusion::catalog::TableFunctionArgs::new(&args, state))?;
        Ok(provider_as_source(provider))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        registry::session_state().expr_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        static TYPES: LazyLock<Arc<dyn TypePlanner>> = LazyLock::new(|| Arc::new(PgTypes));
        Some(TYPES.clone())
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let name = function_name(name);
        if !self.for_view
            && let Some(function) = self.context.system.scalar_function(name)
        {
            return Some(function);
        }
        registry::scalar(name)
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        registry::session_state().higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let name = function_name(name);
        registry::aggregate(name).or_else(|| if self.for_view { None } else { self.context.system.aggregate_function(name) })
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        let name = function_name(name);
        registry::window(name).or_else(|| if self.for_view { None } else { self.context.system.window_function(name) })
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        options()
    }

    fn udf_names(&self) -> Vec<String> {
        registry::session_state().scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        registry::session_state().aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        registry::session_state().window_functions().keys().cloned().collect()
    }
}
