//! Threads for those who share a process.
//!
//! Tasks on the same threads wait in one line: a pod that waits for a node would wait behind all that kubelets have to
//! say, and a request behind a plan. So each has threads of its own; and where there are more threads that have
//! something to do than processors, those go first whom somebody waits for.

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle, Runtime};

/// Who goes first when the processors do not suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// Requests, and what pods wait for.
    First,
    /// All else. Whoever plays the scheduler too: it must not fall behind those who tell it of nodes.
    Second,
}

impl Rank {
    /// By how much threads of it stand back, in the words of `nice`: one and a quarter times for each.
    fn niceness(self) -> i32 {
        match self {
            Self::First => 0,
            Self::Second => 10,
        }
    }
}

/// The threads of a process that does everything.
pub(crate) struct Threads {
    urgent: Runtime,
    controllers: Runtime,
    stand_ins: Runtime,
}

impl Threads {
    pub(crate) fn start() -> anyhow::Result<Self> {
        Ok(Self {
            urgent: threads("urgent", Rank::First)?,
            controllers: threads("controllers", Rank::Second)?,
            stand_ins: threads("stand-ins", Rank::Second)?,
        })
    }

    /// For what pods wait for, until a provider is called.
    pub(crate) fn urgent(&self) -> &Handle {
        self.urgent.handle()
    }

    /// For all else that controllers do.
    pub(crate) fn controllers(&self) -> &Handle {
        self.controllers.handle()
    }

    /// For whoever stands in for a scheduler, kubelets and the like.
    pub(crate) fn stand_ins(&self) -> &Handle {
        self.stand_ins.handle()
    }
}

fn threads(name: &str, rank: Rank) -> anyhow::Result<Runtime> {
    let mut threads = Builder::new_multi_thread();
    threads.thread_name(name).enable_all().on_thread_start(move || stand_back(rank));
    threads.build().with_context(|| format!("cannot start the threads of {name}"))
}

/// Only on Linux a thread has a niceness of its own. Who may not set it has threads that are all alike.
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
        let all = Threads::start().unwrap();
        let of = |handle: &Handle| handle.block_on(handle.spawn(async move { niceness() })).unwrap();
        assert_eq!(of(all.urgent()), ours);
        assert_eq!(of(all.controllers()), 10.max(ours));
        assert_eq!(of(all.stand_ins()), 10.max(ours));
        assert_eq!(niceness(), ours);
    }
}
