//! Processes of the host that a plan has left: found in `/proc`, by a variable of their environment or by their parents.
//!
//! Only processes in the network namespace of the agent count, with their children: containers of another host that
//! shares the kernel are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::command::poll;

/// Environment variable with the plan and the step that started a process.
pub(super) const MARKER: &str = "BYOH_PLAN_STEP";
/// How long a process may take to end after SIGTERM, and after SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// The supervisors of pods. Kubelet's containers live in the containerd namespace `k8s.io`.
const SHIM: &str = "containerd-shim";
const SHIM_NAMESPACE: &[u8] = b"k8s.io";

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    name: String,
}

/// Looks at the processes below a `/proc`.
#[derive(Debug, Clone)]
pub(super) struct Processes {
    proc: PathBuf,
}

impl Processes {
    pub(super) fn of(root: &Path) -> Self {
        Self { proc: root.join("proc") }
    }

    fn all(&self) -> Vec<Process> {
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| self.read(pid)).collect()
    }

    fn read(&self, pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(self.proc.join(format!("{pid}/stat"))).ok()?;
        // The name stands in brackets and may hold brackets itself.
        let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
        let mut rest = stat.get(end + 1..)?.split_whitespace();
        let (state, parent) = (rest.next()?, rest.next()?.parse().ok()?);
        let is_gone = matches!(state, "Z" | "X");
        (!is_gone).then(|| Process { pid, parent, name: stat[begin + 1..end].to_owned() })
    }

    fn is_ours(&self, pid: i32) -> bool {
        let network = |pid: &str| fs::read_link(self.proc.join(pid).join("ns/net")).ok();
        let own = network("self");
        own.is_some() && own == network(&pid.to_string())
    }

    fn has_marker(&self, pid: i32, marker: &str) -> bool {
        let wanted = format!("{MARKER}={marker}");
        let environment = fs::read(self.proc.join(format!("{pid}/environ"))).unwrap_or_default();
        // A step's number ends its marker; the marker of a plan stands before the slash.
        environment.split(|byte| *byte == 0).any(|variable| {
            let rest = variable.strip_prefix(wanted.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    }

    fn marked(&self, marker: &str) -> BTreeSet<i32> {
        let own = std::process::id() as i32;
        let pids = self.all().into_iter().map(|process| process.pid);
        pids.filter(|pid| *pid != own && self.has_marker(*pid, marker)).collect()
    }

    fn shims(&self) -> BTreeSet<i32> {
        let is_shim = |process: &Process| {
            // The kernel cuts names after fifteen letters.
            process.name.starts_with(&SHIM[..15]) && self.is_ours(process.pid) && self.serves_kubelet(process.pid)
        };
        self.all().iter().filter(|process| is_shim(process)).map(|process| process.pid).collect()
    }

    fn serves_kubelet(&self, pid: i32) -> bool {
        let line = fs::read(self.proc.join(format!("{pid}/cmdline"))).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == SHIM_NAMESPACE)
    }

    /// Kubelets of this host.
    pub(super) fn kubelets(&self) -> Vec<i32> {
        let all = self.all().into_iter();
        all.filter(|process| process.name == "kubelet" && self.is_ours(process.pid)).map(|one| one.pid).collect()
    }

    /// Ends what the commands of a plan, or of one step of it, have left running.
    pub(super) fn end_marked(&self, marker: &str) -> bool {
        end(|| self.marked(marker))
    }

    /// Ends the containers of kubelet, and then their supervisors where containerd does not end them itself.
    pub(super) fn end_pods(&self) -> bool {
        let containers = || {
            let (all, shims) = (self.all(), self.shims());
            descendants(&all, &shims).difference(&shims).copied().collect()
        };
        let ended = end(containers);
        // containerd deletes a task when it ends, and its shim with it.
        let gone = poll(GRACE, &AtomicBool::new(false), || self.shims().is_empty().then_some(()));
        ended && (gone.is_some() || end(|| self.shims()))
    }
}

/// The processes below others, with these themselves.
fn descendants(all: &[Process], above: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let (mut found, mut waiting) = (BTreeSet::new(), above.iter().copied().collect::<Vec<_>>());
    while let Some(pid) = waiting.pop() {
        if found.insert(pid) {
            waiting.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

/// Asks processes to end, and makes those end that do not. Tells whether none is left.
fn end(find: impl Fn() -> BTreeSet<i32>) -> bool {
    for signal in [Signal::TERM, Signal::KILL] {
        let found = find();
        if found.is_empty() {
            return true;
        }
        for pid in found.into_iter().filter_map(Pid::from_raw) {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, signal);
        }
        if poll(GRACE, &AtomicBool::new(false), || find().is_empty().then_some(())).is_some() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_processes_with_the_marker_are_ended() {
        let sleeper = |marker: &str| Command::new("sleep").arg("1000").env(MARKER, marker).spawn().unwrap();
        let plan = format!("{:x}", std::process::id());
        let (mut third, mut tenth, mut other) =
            (sleeper(&format!("{plan}/1")), sleeper(&format!("{plan}/10")), sleeper(&format!("{plan}x/1")));
        let processes = Processes::of(Path::new("/"));
        // Ended children are zombies until they are waited for, and do not count.
        assert!(processes.end_marked(&format!("{plan}/1")));
        third.wait().unwrap();
        assert!(tenth.try_wait().unwrap().is_none(), "step 10 is not step 1");
        assert!(processes.end_marked(&plan));
        tenth.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn descendants_are_found_over_generations() {
        let of = |pid, parent| Process { pid, parent, name: String::new() };
        let all = [of(2, 1), of(3, 2), of(4, 3), of(5, 1), of(6, 5)];
        assert_eq!(descendants(&all, &BTreeSet::from([2])), BTreeSet::from([2, 3, 4]));
    }

    #[test]
    fn a_root_without_processes_has_none() {
        let root = tempfile::tempdir().unwrap();
        let processes = Processes::of(root.path());
        assert!(processes.kubelets().is_empty() && processes.end_pods());
    }
}
