//! Work that takes a while and waits for nothing.

use millpond_runtime::panics;

/// Runs something that takes a while without holding up others, where there is more than one thread.
pub(crate) fn thinking<T>(think: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(think),
        _ => think(),
    }
}

/// Runs something that nobody waits for; at once, where there is only one thread.
pub(crate) fn in_the_background(think: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => {
            drop(tokio::task::spawn_blocking(|| panics::report_only("background", think)));
        }
        _ => think(),
    }
}
