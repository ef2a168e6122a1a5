//! Tasks and threads. Tasks run on the process's shared multi-thread runtime for I/O, whoever starts them (arbiters have none of their own).
#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::sync::OnceLock;
use tokio::runtime::Handle;
pub use tokio::task::JoinHandle;

static RUNTIME: OnceLock<Handle> = OnceLock::new();

/// Makes the runtime of the caller the one that [`task`] uses. The first call wins.
pub fn install(handle: Handle) {
    let _ = RUNTIME.set(handle);
}

/// The shared runtime: the installed one, else the caller's.
pub fn handle() -> Handle {
    match Handle::try_current() {
        // Inside tests each test has a runtime of its own, which must be preferred to another test's.
        Ok(current) if current.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread => current,
        current => RUNTIME.get().cloned().or(current.ok()).expect("a runtime is installed before tasks are started"),
    }
}

/// Starts a task on the shared runtime. The name is for traces.
pub fn task<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tracing::trace!(task = name, "start");
    handle().spawn(future)
}

/// Runs blocking or CPU-heavy work on the shared runtime's blocking pool.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    handle().spawn_blocking(work)
}

/// Starts a named operating-system thread.
pub fn thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> std::io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}
