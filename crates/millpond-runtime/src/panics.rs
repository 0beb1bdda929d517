//! Panics of controllers: reported with the controller and its key, counted, and never dropped with a task.
//!
//! [`crate::supervise`] and [`crate::worker`] handle the panics of what they run. A panic of any other task on the threads
//! of controllers ([`watch_threads`]) is *stray*: its task is gone, and nothing starts it again. All that runs on these threads
//! is to be ended and started anew then ([`strays`]).
//!
//! The counts belong to the process, as its panic hook does: controllers of several clusters in one process add up.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::pin::Pin;
use std::sync::{LazyLock, Once};
use std::task::{self, Poll};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::meta::Key;

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());
/// Stray panics by the name of their thread.
static STRAY: LazyLock<watch::Sender<BTreeMap<String, Stray>>> = LazyLock::new(watch::Sender::default);
/// What stray panics are counted under.
const OTHERS: &str = "other tasks";

/// Panics that nothing handled.
#[derive(Debug, Default)]
struct Stray {
    count: u64,
    /// The latest, and its place.
    text: String,
}

thread_local! {
    /// How many handled futures this thread is polling, one inside the other.
    static HANDLED: Cell<usize> = const { Cell::new(0) };
}

/// A future whose panics reach code that handles them.
pub struct Handled<F>(Pin<Box<F>>);

/// Marks a future whose panics are handled by the code that awaits it.
pub fn handled<F: Future>(future: F) -> Handled<F> {
    Handled(Box::pin(future))
}

/// Does something that nothing waits for; a panic is reported and ends it alone.
pub fn report_only(name: &'static str, work: impl FnOnce()) {
    let _polls = Polls::begin();
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(work)) {
        report(name, None, &*panic);
    }
}

impl<F: Future> Future for Handled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let _polls = Polls::begin();
        self.0.as_mut().poll(context)
    }
}

/// One poll of a handled future, which may end in a panic.
struct Polls;

impl Polls {
    fn begin() -> Self {
        HANDLED.set(HANDLED.get() + 1);
        Self
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        HANDLED.set(HANDLED.get() - 1);
    }
}

/// Counts panics on threads of these names as stray unless code handles them.
pub fn watch_threads(names: &'static [&'static str]) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            let thread = std::thread::current();
            if let Some(name) = thread.name().filter(|name| HANDLED.get() == 0 && names.contains(name)) {
                note_stray(name, panic);
            }
        }));
    });
}

fn note_stray(thread: &str, panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
    let text = format!("{}{place}", panic.payload_as_str().unwrap_or("no message"));
    tracing::error!(thread, panic = text, "a task panicked, and nothing starts it again");
    *COUNTS.lock().entry(OTHERS).or_default() += 1;
    STRAY.send_modify(|all| {
        let stray = all.entry(thread.to_owned()).or_default();
        *stray = Stray { count: stray.count + 1, text };
    });
}

/// Stray panics on threads of some names.
#[derive(Debug)]
pub struct Strays {
    threads: &'static [&'static str],
    all: watch::Receiver<BTreeMap<String, Stray>>,
    /// Of these threads, how many there were at the last look.
    seen: u64,
}

/// Stray panics from now on.
pub fn strays(threads: &'static [&'static str]) -> Strays {
    let all = STRAY.subscribe();
    let seen = latest(&all.borrow(), threads).map_or(0, |(count, _)| count);
    Strays { threads, all, seen }
}

/// How many there were on some threads, and one of the latest.
fn latest(all: &BTreeMap<String, Stray>, threads: &[&str]) -> Option<(u64, String)> {
    let of_threads = || threads.iter().filter_map(|thread| all.get(*thread));
    let text = of_threads().next_back()?.text.clone();
    Some((of_threads().map(|stray| stray.count).sum(), text))
}

impl Strays {
    /// The next one, with its place. Several at once are one.
    pub async fn next(&mut self) -> String {
        loop {
            let found = latest(&self.all.borrow_and_update(), self.threads);
            if let Some((count, text)) = found.filter(|(count, _)| *count > self.seen) {
                self.seen = count;
                return text;
            }
            if self.all.changed().await.is_err() {
                // The sender lives as long as the process.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// How often each controller has panicked.
pub fn counts() -> BTreeMap<&'static str, u64> {
    COUNTS.lock().clone()
}

/// Reports a panic of a controller; gives its message.
pub(crate) fn report(controller: &'static str, key: Option<&Key>, panic: &(dyn Any + Send)) -> String {
    let message = message(panic);
    match key {
        Some(key) => tracing::error!(controller, %key, panic = message, "a controller panicked, will try again"),
        None => tracing::error!(controller, panic = message, "a controller panicked"),
    }
    *COUNTS.lock().entry(controller).or_default() += 1;
    message
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::runtime::Builder;

    use super::*;

    /// One test, as there is one hook: a handled panic, one on other threads, and one that takes a task along.
    #[test]
    fn a_panic_that_nothing_handles_is_seen() {
        watch_threads(&["watched", "too"]);
        let (mut strays, mut elsewhere) = (super::strays(&["watched"]), super::strays(&["too"]));
        let threads = |name| Builder::new_multi_thread().worker_threads(1).thread_name(name).build().unwrap();
        let (watched, others) = (threads("watched"), threads("others"));
        let fails = || async { assert!(std::hint::black_box(false), "on purpose") };
        let caught = AssertUnwindSafe(handled(fails())).catch_unwind();
        assert!(watched.block_on(watched.spawn(caught)).unwrap().is_err());
        assert!(watched.block_on(others.spawn(fails())).is_err());
        watched.block_on(watched.spawn_blocking(|| report_only("background", || panic!("on purpose")))).unwrap();
        assert!(strays.next().now_or_never().is_none(), "each of these is handled");
        assert!(watched.block_on(watched.spawn(fails())).is_err());
        let told = strays.next().now_or_never().expect("it was seen");
        assert!(told.starts_with("on purpose at ") && told.contains("panics.rs:"), "{told}");
        assert!(counts()[OTHERS] >= 1);
        assert!(elsewhere.next().now_or_never().is_none(), "it was on other threads");
        assert!(strays.next().now_or_never().is_none(), "it is told once");
    }
}
