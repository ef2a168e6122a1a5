//! Bound statements: made for one catalog and one set of settings, made again when either has changed.
//!
//! Queries over `pg_catalog` go through the serving engine's own planner for them ([`SystemSchemas::plan`]), because clients write there what the SQL front
//! end does not take; everything else is bound by `eddyline_sql`.

use crate::frontend::{DATABASE, Frontend};
use crate::session::{Session, Statement};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use eddyline_protocol::Catalog;
use eddyline_serving::system::{Mentions, ScalarUDF, SystemPlan, SystemQuery, SystemSchemas, TableSource};
use eddyline_sql::statement::{BindContext, Bound, DmlKind, Parsed, SystemTables};
use eddyline_types::{Error, Result, SqlState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A bound statement. It may be executed any number of times; when the catalog has changed since, `execute` binds it again.
#[derive(Debug)]
pub struct Prepared {
    /// Types of `$1`, `$2`, ...
    pub parameters: Vec<DataType>,
    /// Columns of the result; `None`: it returns no rows.
    pub result: Option<SchemaRef>,
    /// What was prepared.
    pub statement: Statement,
    hints: Vec<Option<DataType>>,
    plan: Plan,
    catalog_version: u64,
    settings: Arc<BTreeMap<String, String>>,
}

/// What a statement was bound to.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// By the SQL front end.
    Bound(Arc<Bound>),
    /// By the system catalog's planner.
    System(Arc<SystemPlan>),
}

/// A statement that PREPARE has named.
#[derive(Clone, Debug)]
pub struct Named {
    pub(crate) statement: Statement,
    pub(crate) hints: Vec<Option<DataType>>,
}

impl Prepared {
    /// Statement kind, a label of the metrics.
    pub fn kind(&self) -> &'static str {
        match &self.plan {
            Plan::System(_) => "select",
            Plan::Bound(bound) => kind(bound),
        }
    }

    /// What is to be carried out now: the plan, or a new one if the catalog or the settings have changed.
    pub(crate) async fn current_plan(&self, session: &Session) -> Result<Plan> {
        let unchanged = session.frontend.catalog().version == self.catalog_version && Arc::ptr_eq(session.variables.all(), &self.settings);
        if unchanged {
            return Ok(self.plan.clone());
        }
        let binder = Binder::of(session);
        let again = binder.prepare(&self.statement, &self.hints).await?;
        let same_result = match (&self.result, &again.result) {
            (Some(a), Some(b)) => a.fields().iter().map(|f| f.data_type()).eq(b.fields().iter().map(|f| f.data_type())),
            (None, None) => true,
            _ => false,
        };
        if !same_result || again.parameters != self.parameters {
            return Err(Error::unsupported("cached plan must not change result type").with_hint("Prepare the statement again."));
        }
        Ok(again.plan)
    }
}

fn kind(bound: &Bound) -> &'static str {
    match bound {
        Bound::Query(query) if query.lookup.is_some() => "lookup",
        Bound::Query(_) | Bound::Declare { .. } | Bound::Fetch { .. } | Bound::Close { .. } => "select",
        Bound::Dml(dml) => match dml.kind {
            DmlKind::Insert => "insert",
            DmlKind::Update => "update",
            DmlKind::Delete => "delete",
        },
        Bound::CreateRelation(_) | Bound::CreateSchema { .. } => "create",
        Bound::Drop(_) | Bound::DropSchema { .. } => "drop",
        Bound::CopyIn(_) | Bound::CopyOut { .. } => "copy",
        Bound::Explain(_) => "explain",
        Bound::SetVariable { .. } | Bound::ResetVariable { .. } | Bound::ShowVariable { .. } | Bound::Discard => "set",
        Bound::Flush => "flush",
        Bound::Begin { .. } | Bound::Commit | Bound::Rollback => "transaction",
        Bound::Prepare { .. } | Bound::Execute { .. } | Bound::Deallocate { .. } | Bound::Nothing { .. } => "other",
    }
}

/// Everything that binding needs of a session, without borrowing it.
pub(crate) struct Binder<'a> {
    session: &'a Session,
    frontend: Frontend,
    catalog: Arc<Catalog>,
    settings: Arc<BTreeMap<String, String>>,
    search_path: Vec<String>,
}

impl<'a> Binder<'a> {
    /// For a session as it is now.
    pub fn of(session: &'a Session) -> Self {
        let frontend = session.frontend.clone();
        let catalog = frontend.catalog();
        let exists = |name: &str| {
            name == eddyline_protocol::catalog::DEFAULT_SCHEMA
                || catalog.schemas.iter().any(|s| s == name)
                || SystemSchemas::NAMES.contains(&name)
        };
        let search_path = session.variables.search_path(session.user(), exists);
        Binder { session, frontend, settings: session.variables.all().clone(), catalog, search_path }
    }

    /// Binds a statement.
    pub async fn prepare(&self, statement: &Statement, hints: &[Option<DataType>]) -> Result<Prepared> {
        let (plan, parameters, result) = match SystemSchemas::mentions(statement.text()) {
            Mentions::Nothing => self.bound(statement.parsed(), hints)?,
            // What only reads information_schema or eddy_catalog is ordinary SQL; the system planner is the second try.
            Mentions::OwnTables => match self.bound(statement.parsed(), hints) {
                Ok(bound) => bound,
                Err(e) => self.system(statement, hints).await.map_err(|_| e)?,
            },
            Mentions::Postgres => match self.system(statement, hints).await {
                Ok(system) => system,
                Err(e) => self.bound(statement.parsed(), hints).map_err(|_| e)?,
            },
        };
        Ok(Prepared {
            parameters,
            result,
            statement: statement.clone(),
            hints: hints.to_vec(),
            plan,
            catalog_version: self.catalog.version,
            settings: self.settings.clone(),
        })
    }

    async fn system(&self, statement: &Statement, hints: &[Option<DataType>]) -> Result<(Plan, Vec<DataType>, Option<SchemaRef>)> {
        let query = SystemQuery {
            text: statement.text(),
            user: self.session.user(),
            database: DATABASE,
            session_id: self.session.cancel_key().process_id,
            search_path: &self.search_path,
            settings: &self.settings,
            hints,
        };
        let plan = self.frontend.serving().system().plan(query).await?;
        let (parameters, result) = (plan.parameters.clone(), Some(plan.output.clone()));
        Ok((Plan::System(Arc::new(plan)), parameters, result))
    }

    fn bound(&self, parsed: &Parsed, hints: &[Option<DataType>]) -> Result<(Plan, Vec<DataType>, Option<SchemaRef>)> {
        let system = Hook(self.frontend.serving().system());
        let context = BindContext {
            catalog: &self.catalog,
            search_path: &self.search_path,
            user: self.session.user(),
            database: DATABASE,
            settings: &self.settings,
            system: &system,
        };
        let bound = eddyline_sql::bind(parsed, &context, hints)?;
        let (parameters, result) = self.describe(&bound)?;
        Ok((Plan::Bound(Arc::new(bound)), parameters, result))
    }

    /// Binds a statement that has no parameters and is not about the system's tables.
    pub fn bind(&self, statement: &Statement) -> Result<Arc<Bound>> {
        match self.bound(statement.parsed(), &[])?.0 {
            Plan::Bound(bound) => Ok(bound),
            Plan::System(_) => Err(Error::internal("the front end gave a system plan")),
        }
    }

    /// Types of the parameters and columns of the result.
    fn describe(&self, bound: &Bound) -> Result<(Vec<DataType>, Option<SchemaRef>)> {
        Ok(match bound {
            Bound::Query(query) => (query.parameters.clone(), Some(query.query.output.clone())),
            Bound::Dml(dml) => (dml.parameters.clone(), dml.returning.as_ref().map(|r| r.output.clone())),
            Bound::Explain(_) => (Vec::new(), Some(text_columns(&["QUERY PLAN"]))),
            Bound::ShowVariable { name } if name == "all" => (Vec::new(), Some(text_columns(&["name", "setting", "description"]))),
            Bound::ShowVariable { name } => (Vec::new(), Some(text_columns(&[name]))),
            Bound::Execute { name, .. } => {
                let named = self.session.named.get(name).ok_or_else(|| unknown_statement(name))?;
                (Vec::new(), self.bound(named.statement.parsed(), &named.hints)?.2)
            }
            Bound::Fetch { name, .. } => (Vec::new(), self.session.cursors.get(name).map(|c| c.schema().clone())),
            Bound::CreateRelation(_)
            | Bound::CreateSchema { .. }
            | Bound::DropSchema { .. }
            | Bound::Drop(_)
            | Bound::CopyIn(_)
            | Bound::CopyOut { .. }
            | Bound::SetVariable { .. }
            | Bound::ResetVariable { .. }
            | Bound::Flush
            | Bound::Begin { .. }
            | Bound::Commit
            | Bound::Rollback
            | Bound::Prepare { .. }
            | Bound::Deallocate { .. }
            | Bound::Declare { .. }
            | Bound::Close { .. }
            | Bound::Discard
            | Bound::Nothing { .. } => (Vec::new(), None),
        })
    }
}

/// A schema of text columns.
pub(crate) fn text_columns(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(names.iter().map(|n| Field::new(*n, DataType::Utf8, true)).collect::<Vec<_>>()))
}

/// 26000.
pub(crate) fn unknown_statement(name: &str) -> Error {
    Error::user(SqlState::INVALID_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
}

/// The system's schemas, as the SQL front end asks for them.
struct Hook<'a>(&'a SystemSchemas);

impl SystemTables for Hook<'_> {
    fn table(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>> {
        self.0.table(schema, name)
    }

    fn table_names(&self, schema: &str) -> Vec<String> {
        self.0.table_names(schema)
    }

    fn scalar_function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.0.scalar_function(name)
    }
}
