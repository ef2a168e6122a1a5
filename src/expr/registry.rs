//! Which functions exist: DataFusion's, and ours.
//!
//! One registry for planning, for decoding stored expressions and for batch execution, so that a view and its batch oracle call the same code.

use crate::{checked, functions};
use datafusion::config::ConfigOptions;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::prelude::SessionConfig;
use std::sync::{Arc, LazyLock};

static STATE: LazyLock<SessionState> = LazyLock::new(|| {
    let mut state = SessionStateBuilder::new().with_config(session_config()).with_default_features().build();
    for function in our_functions() {
        datafusion::logical_expr::registry::FunctionRegistry::register_udf(&mut state, function)
            .expect("the registry takes every function");
    }
    state
});

static TASK: LazyLock<Arc<TaskContext>> = LazyLock::new(|| STATE.task_ctx());

/// A session with all functions and no tables. Cheap to clone; the serving engine builds its own on it.
pub fn session_state() -> &'static SessionState {
    &STATE
}

/// A new context over [`session_state`].
pub fn session_context() -> SessionContext {
    SessionContext::new_with_state(STATE.clone())
}

/// What decoding looks functions up in.
pub fn task_context() -> Arc<TaskContext> {
    TASK.clone()
}

/// Settings of every session: Postgres' dialect, numeric literals as decimals, strings as `Utf8`.
pub fn session_config() -> SessionConfig {
    let mut options = ConfigOptions::new();
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.collect_spans = true;
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    options.execution.time_zone = Some("UTC".into());
    SessionConfig::from(options)
}

/// The functions that DataFusion lacks or has differently.
pub fn our_functions() -> Vec<Arc<ScalarUDF>> {
    let mut all: Vec<_> = checked::CheckedOp::ALL.into_iter().map(checked::function).collect();
    all.extend(functions::all());
    all
}

/// A scalar function by its lower-case name.
pub fn scalar(name: &str) -> Option<Arc<ScalarUDF>> {
    STATE.scalar_functions().get(name).cloned()
}

/// An aggregate function by its lower-case name.
pub fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    STATE.aggregate_functions().get(name).cloned()
}

/// A window function by its lower-case name.
pub fn window(name: &str) -> Option<Arc<WindowUDF>> {
    STATE.window_functions().get(name).cloned()
}
