//! Runs CPU-bound work from the async runtime.

use millpond_runtime::panics;

/// Runs CPU-bound work without blocking other tasks of this worker thread. A single-threaded runtime runs it in place.
pub(crate) fn run_blocking<T>(think: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(think),
        _ => think(),
    }
}

/// Runs CPU-bound work in the background; no caller waits for it. A single-threaded runtime runs it at once.
pub(crate) fn spawn_blocking(think: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => {
            drop(tokio::task::spawn_blocking(|| panics::report_only("background", think)));
        }
        _ => think(),
    }
}
