//! The serving engine's handle.

use crate::dml::{DmlRequest, DmlRows, TableLocks};
use crate::lookup::{self, PointRead};
use crate::pin::{ClusterView, Freshness, ReadPoint};
use crate::query::{self, QueryRows, QueryRun};
use crate::system::{SystemSchemas, SystemState};
use arrow::array::RecordBatch;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use eddyline_store::Store;
use eddyline_types::{Error, ObjectId, Result};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Settings, resolved.
#[derive(Clone, Debug)]
pub struct ServingConfig {
    /// Memory of all running queries together, in bytes.
    pub memory_bytes: usize,
    /// Partitions of one query.
    pub threads: usize,
    /// Bytes of rows that one DML statement may change.
    pub dml_bytes: usize,
}

impl Default for ServingConfig {
    fn default() -> Self {
        ServingConfig { memory_bytes: 512 << 20, threads: 2, dml_bytes: 256 << 20 }
    }
}

/// See the crate's documentation. Cheap to clone.
#[derive(Clone)]
pub struct Serving {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    view: Arc<dyn ClusterView>,
    state: SessionState,
    locks: TableLocks,
    config: ServingConfig,
    system: SystemSchemas,
}

impl Serving {
    /// A serving engine over a store.
    pub fn new(store: Store, view: Arc<dyn ClusterView>, system: Arc<dyn SystemState>, config: ServingConfig) -> Result<Self> {
        let runtime = runtime(&config)?;
        let options = eddyline_expr::registry::session_config().with_target_partitions(config.threads.max(1)).with_batch_size(8192);
        let base = eddyline_expr::registry::session_state().clone();
        let state = SessionStateBuilder::new_from_existing(base).with_config(options).with_runtime_env(runtime).build();
        let system = SystemSchemas::new(&state, store.clone(), view.clone(), system)?;
        Ok(Serving { inner: Arc::new(Inner { store, view, state, locks: TableLocks::default(), config, system }) })
    }

    /// Pins what the given relations are read at.
    pub fn pin(&self, relations: &[ObjectId], freshness: Freshness) -> Result<ReadPoint> {
        ReadPoint::pin(self.inner.view.as_ref(), &self.inner.store, relations, freshness)
    }

    /// Starts a query at a pinned point.
    pub async fn query(&self, point: &ReadPoint, run: QueryRun<'_>) -> Result<QueryRows> {
        query::run(self.state(), point, run).await
    }

    /// Reads one key or key prefix.
    pub async fn read_point(&self, point: &ReadPoint, read: &PointRead<'_>) -> Result<RecordBatch> {
        lookup::read(point, read).await
    }

    /// Computes the rows that a DML statement writes.
    pub async fn compute_dml(&self, point: &ReadPoint, request: DmlRequest<'_>) -> Result<DmlRows> {
        crate::dml::compute(self, point, request, self.inner.config.dml_bytes).await
    }

    /// Waits until no other statement changes rows of the table that it has read. Held until the change is visible, so that no update is lost.
    pub async fn lock_table(&self, table: ObjectId) -> tokio::sync::OwnedMutexGuard<()> {
        self.inner.locks.lock(table).await
    }

    /// The system's schemas.
    pub fn system(&self) -> &SystemSchemas {
        &self.inner.system
    }

    /// What exists and how far it is.
    pub fn view(&self) -> &Arc<dyn ClusterView> {
        &self.inner.view
    }

    /// A session state for one query, with the time of now.
    pub(crate) fn state(&self) -> SessionState {
        let mut state = self.inner.state.clone();
        state.mark_start_execution();
        state
    }
}

fn runtime(config: &ServingConfig) -> Result<Arc<RuntimeEnv>> {
    let consumers = NonZeroUsize::new(3).expect("3 is not zero");
    let pool = TrackConsumersPool::new(FairSpillPool::new(config.memory_bytes), consumers);
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .build_arc()
        .map_err(|e| Error::internal(format!("cannot set up query execution: {e}")))
}
