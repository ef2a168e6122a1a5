//! The system's schemas: `pg_catalog`, `information_schema` and `eddy_catalog`.
//!
//! Reading order: [`state`] (what the node tells), [`table`] (tables made when they are scanned), [`eddy`], [`postgres`] and [`information`] (the schemas),
//! [`functions`] (what psql and drivers call), [`mentions`] (which statements are about them), [`planner`] (queries that clients of Postgres send) and
//! `dialect` (what must be rewritten in their text).

mod dialect;
pub mod eddy;
pub mod functions;
pub mod information;
pub mod mentions;
pub mod planner;
pub mod postgres;
pub mod state;
pub mod table;

pub use datafusion::logical_expr::{ScalarUDF, TableSource};
pub use mentions::Mentions;
pub use planner::{SystemPlan, SystemQuery};
pub use state::{BarrierRow, CompactionRow, DomainRow, NodeRow, SessionRow, SettingRow, SystemState};

use crate::cancel::Cancel;
use crate::failure::from_datafusion;
use crate::pin::ClusterView;
use crate::query::QueryRows;
use arrow::array::ArrayRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::{PgCatalogSchemaProvider, PgCatalogStaticTables};
use eddyline_store::Store;
use eddyline_types::Result;
use std::sync::Arc;

/// What the system's tables are made from.
#[derive(Clone)]
pub(crate) struct Origin {
    pub store: Store,
    pub view: Arc<dyn ClusterView>,
    pub system: Arc<dyn SystemState>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Origin")
    }
}

type Stock = PgCatalogSchemaProvider<Arc<dyn datafusion::catalog::CatalogProviderList>, EmptyContextProvider>;

/// See the module's documentation. Cheap to clone.
#[derive(Clone)]
pub struct SystemSchemas {
    inner: Arc<Inner>,
}

struct Inner {
    origin: Origin,
    /// Postgres' own tables as datafusion-pg-catalog brings them; ours come first.
    stock: Stock,
    /// A state with Postgres' functions and type names.
    state: SessionState,
    parser: datafusion_pg_catalog::sql::PostgresCompatibilityParser,
}

impl SystemSchemas {
    /// Names of the schemas.
    pub const NAMES: [&'static str; 3] = ["pg_catalog", "information_schema", "eddy_catalog"];

    /// Sets the schemas up over a query engine's state.
    pub fn new(state: &SessionState, store: Store, view: Arc<dyn ClusterView>, system: Arc<dyn SystemState>) -> Result<Self> {
        let origin = Origin { store, view, system };
        let context = SessionContext::new_with_state(planner::base_state(state));
        datafusion_pg_catalog::setup_pg_catalog(&context, planner::DATABASE, EmptyContextProvider).map_err(|e| from_datafusion(*e))?;
        functions::register(&context, &origin);
        let tables = Arc::new(PgCatalogStaticTables::try_new().map_err(from_datafusion)?);
        let list = context.state().catalog_list().clone();
        let stock = PgCatalogSchemaProvider::try_new(list, tables, EmptyContextProvider).map_err(from_datafusion)?;
        let parser = datafusion_pg_catalog::sql::PostgresCompatibilityParser::new();
        Ok(SystemSchemas { inner: Arc::new(Inner { origin, stock, state: context.state(), parser }) })
    }

    /// What a statement's text is about.
    pub fn mentions(text: &str) -> Mentions {
        mentions::of(text)
    }

    /// A table, for a planner.
    pub fn table(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>> {
        self.provider(schema, name).map(provider_as_source)
    }

    /// A table, for execution.
    pub(crate) fn provider(&self, schema: &str, name: &str) -> Option<Arc<dyn TableProvider>> {
        let origin = &self.inner.origin;
        match schema {
            "eddy_catalog" => eddy::table(origin, name),
            "information_schema" => information::table(origin, name),
            "pg_catalog" => {
                let stock = self.inner.stock.build_table_by_name(name).ok().flatten();
                let stock_schema = stock.as_ref().map(|t| t.schema());
                postgres::table(origin, name, stock_schema).or_else(|| stock?.try_into_table_provider().ok())
            }
            _ => None,
        }
    }

    /// Names of all tables of a schema.
    pub fn table_names(&self, schema: &str) -> Vec<String> {
        let names: Vec<&str> = match schema {
            "eddy_catalog" => eddy::NAMES.to_vec(),
            "information_schema" => information::NAMES.to_vec(),
            "pg_catalog" => postgres::NAMES.iter().chain(postgres::STOCK_NAMES).copied().collect(),
            _ => Vec::new(),
        };
        names.into_iter().map(str::to_owned).collect()
    }

    /// A function that only the system's schemas have.
    pub fn scalar_function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.inner.state.scalar_functions().get(name).cloned()
    }

    /// Plans a query as clients of Postgres send them.
    pub async fn plan(&self, query: SystemQuery<'_>) -> Result<SystemPlan> {
        planner::plan(self, query).await
    }

    /// Runs a planned query.
    pub async fn run(&self, plan: &SystemPlan, parameters: &[ArrayRef], cancel: &Cancel) -> Result<QueryRows> {
        planner::run(plan, parameters, cancel).await
    }
}
