//! Tests of the runtime as a whole: the deterministic loop against a naive model, and the same on arbiters.

mod arbiters;
mod dispatching;
mod graphs;
mod harness;
mod operators;
mod sim;
mod simulated;

use std::sync::OnceLock;

/// The runtime of all tests of this process: arbiters use the first one that is installed, so it must live as long as they do.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        eddyline_env::spawn::install(runtime.handle().clone());
        runtime
    })
}
