//! Thread pools of the parts that share a process.
//!
//! Tasks on the same threads wait in one queue: a pending pod would wait behind the writes of all kubelets, and a
//! request behind a plan. So each kind of work has threads of its own; and where more threads are runnable than there
//! are processors, latency-critical threads have priority.

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle, Runtime};

/// Priority when the processors do not suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// Requests, and what pods wait for.
    First,
    /// All other work, including the stand-in scheduler, which must not fall behind the controllers that register
    /// nodes.
    Second,
}

impl Rank {
    /// The `nice` value of its threads: each step is about a factor of one and a quarter.
    fn niceness(self) -> i32 {
        match self {
            Self::First => 0,
            Self::Second => 19,
        }
    }
}

const URGENT: &str = "urgent";
const CONTROLLERS: &str = "controllers";
const STAND_INS: &str = "stand-ins";
/// Threads of controllers and dialects: when one of their tasks panics unhandled, all of them are started anew.
pub(crate) const OF_CONTROLLERS: &[&str] = &[URGENT, CONTROLLERS];
/// Threads of stand-ins: the same.
pub(crate) const OF_STAND_INS: &[&str] = &[STAND_INS];

/// The threads of controllers.
pub(crate) struct Threads {
    urgent: Runtime,
    rest: Runtime,
}

impl Threads {
    /// For a process beside those of a cluster. None of its threads has a lower priority: they would then have a lower
    /// priority than those processes, too, and nodes would become ready late on a busy control plane.
    pub(crate) fn beside_others() -> anyhow::Result<Self> {
        Self::start(Rank::First)
    }

    /// For the process of a whole embedded cluster: work that pods wait for precedes all other work.
    pub(crate) fn of_embedded() -> anyhow::Result<Self> {
        Self::start(Rank::Second)
    }

    fn start(rest: Rank) -> anyhow::Result<Self> {
        millpond_runtime::panics::watch_threads(&[URGENT, CONTROLLERS, STAND_INS]);
        Ok(Self { urgent: threads(URGENT, Rank::First)?, rest: threads(CONTROLLERS, rest)? })
    }

    /// For work that pods wait for, until a provider is called.
    pub(crate) fn urgent(&self) -> &Handle {
        self.urgent.handle()
    }

    /// For all other work of controllers.
    pub(crate) fn controllers(&self) -> &Handle {
        self.rest.handle()
    }
}

/// Threads of the stand-ins for scheduler, kubelets and workload controllers.
pub(crate) fn of_stand_ins() -> anyhow::Result<Runtime> {
    threads(STAND_INS, Rank::Second)
}

fn threads(name: &str, rank: Rank) -> anyhow::Result<Runtime> {
    let mut threads = Builder::new_multi_thread();
    threads.thread_name(name).enable_all().on_thread_start(move || stand_back(rank));
    threads.build().with_context(|| format!("cannot start the threads of {name}"))
}

/// Only on Linux a thread has a niceness of its own. Without the permission to set it, all threads have the same one.
fn stand_back(rank: Rank) {
    #[cfg(target_os = "linux")]
    if rank != Rank::First
        && let Err(error) = rustix::process::setpriority_process(None, rank.niceness())
    {
        tracing::debug!(%error, "threads keep the priority that they have");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = rank.niceness();
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn threads_stand_back_and_not_the_whole_process() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let ours = niceness();
        let of = |handle: &Handle| handle.block_on(handle.spawn(async move { niceness() })).unwrap();
        let embedded = Threads::of_embedded().unwrap();
        assert_eq!((of(embedded.urgent()), of(embedded.controllers())), (ours, 19.max(ours)));
        assert_eq!(of(of_stand_ins().unwrap().handle()), 19.max(ours));
        let beside = Threads::beside_others().unwrap();
        assert_eq!((of(beside.urgent()), of(beside.controllers())), (ours, ours));
        assert_eq!(niceness(), ours);
    }
}
