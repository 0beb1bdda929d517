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
    /// All else. The stand-in scheduler too: it must not fall behind the controllers that register nodes.
    Second,
}

impl Rank {
    /// By how much threads of it stand back, in the words of `nice`: one and a quarter times for each.
    fn niceness(self) -> i32 {
        match self {
            Self::First => 0,
            Self::Second => 19,
        }
    }
}

/// The threads of controllers.
pub(crate) struct Threads {
    urgent: Runtime,
    rest: Runtime,
}

impl Threads {
    /// Beside the processes of a cluster. None of them stands back: it would stand behind all of those, too, and nodes
    /// would open late on a control plane that is busy.
    pub(crate) fn beside_others() -> anyhow::Result<Self> {
        Self::start(Rank::First)
    }

    /// In the process that the whole cluster is in: what pods wait for goes before all else.
    pub(crate) fn of_embedded() -> anyhow::Result<Self> {
        Self::start(Rank::Second)
    }

    fn start(rest: Rank) -> anyhow::Result<Self> {
        Ok(Self { urgent: threads("urgent", Rank::First)?, rest: threads("controllers", rest)? })
    }

    /// For what pods wait for, until a provider is called.
    pub(crate) fn urgent(&self) -> &Handle {
        self.urgent.handle()
    }

    /// For all else that controllers do.
    pub(crate) fn controllers(&self) -> &Handle {
        self.rest.handle()
    }
}

/// Threads of the stand-ins for scheduler, kubelets and workload controllers.
pub(crate) fn of_stand_ins() -> anyhow::Result<Runtime> {
    threads("stand-ins", Rank::Second)
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
