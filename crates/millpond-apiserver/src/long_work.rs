//! Work that takes long, kept from holding up other requests.
//!
//! Decoding, validating and rendering are pure functions and run where they are called: on a worker thread of the
//! runtime. For a large list or object, or for rules in CEL, that can take seconds, in which the other tasks of that
//! thread wait, `/readyz` among them. [`run`] hands them to another thread first.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Input beyond this many bytes is long work: it takes about a millisecond, a hundred times what handing over the
/// other tasks costs.
pub(crate) const LONG_BYTES: usize = 64 << 10;

/// Objects beyond this many are long work, even if each is only looked at.
pub(crate) const LONG_OBJECTS: usize = 2_000;

/// Does something. When it may take `long`, the other tasks of this thread go on elsewhere meanwhile.
///
/// A runtime of a single thread has no other thread to hand them to; tests with virtual time use one.
pub(crate) fn run<T>(long: bool, work: impl FnOnce() -> T) -> T {
    let can_hand_over = || Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    if !long || !can_hand_over() {
        return work();
    }
    tokio::task::block_in_place(|| {
        #[cfg(test)]
        let _ = test_gate::GATE.try_with(|gate| gate());
        work()
    })
}

/// Lets a test do something while long work of one task is in progress.
#[cfg(test)]
pub(crate) mod test_gate {
    use std::sync::Arc;

    tokio::task_local! {
        /// Called at the start of each piece of long work.
        pub(crate) static GATE: Arc<dyn Fn() + Send + Sync>;
    }
}
