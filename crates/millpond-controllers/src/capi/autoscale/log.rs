//! The log of node groups, with the messages of the cluster-autoscaler: a search for `discovered node group` finds it.

use std::collections::VecDeque;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Number of lines kept; older ones are dropped.
const LIMIT_LINES: usize = 1000;

/// A node group that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// Kind, namespace and name: `MachineDeployment/default/gpu-pool`.
    pub group: String,
    /// Minimum size.
    pub min: i64,
    /// Maximum size.
    pub max: i64,
    /// Desired number of machines.
    pub replicas: i64,
}

/// The most recent log lines about node groups.
#[derive(Debug, Default)]
pub struct GroupLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    known: Vec<Discovered>,
}

impl State {
    fn push(&mut self, now: Timestamp, file: &str, text: &str) {
        if self.lines.len() >= LIMIT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{} {file}] {text}", now.strftime("I%m%d %H:%M:%S.%6f       1")));
    }
}

impl GroupLog {
    /// Logs all groups when one of them comes, goes or has another size.
    pub(crate) fn discovered(&self, groups: Vec<Discovered>, now: Timestamp) {
        let mut state = self.0.lock();
        if state.known == groups {
            return;
        }
        for Discovered { group, min, max, replicas } in &groups {
            let text = format!("discovered node group: {group} (min: {min}, max: {max}, replicas: {replicas})");
            state.push(now, "clusterapi_provider.go:165", &text);
        }
        state.known = groups;
    }

    /// Adds a line about a group.
    pub(crate) fn say(&self, group: &str, text: &str, now: Timestamp) {
        self.0.lock().push(now, "millpond", &format!("nodegroup {group}: {text}"));
    }

    /// All lines that are kept.
    pub fn text(&self) -> String {
        self.0.lock().lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_logged_when_they_change() {
        let log = GroupLog::default();
        let groups = |replicas| {
            let of = |name: &str, max| Discovered {
                group: format!("MachineDeployment/default/{name}"),
                min: 0,
                max,
                replicas,
            };
            vec![of("gpu-pool", 2), of("worker-pool", 5)]
        };
        let now = "2026-11-18T09:30:01.5Z".parse().unwrap();
        log.discovered(groups(0), now);
        log.discovered(groups(0), now);
        log.say("default/gpu-pool", "replicas 0 → 1", now);
        log.discovered(groups(1), now);
        let text = log.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(
            lines[0],
            "I1118 09:30:01.500000       1 clusterapi_provider.go:165] discovered node group: \
             MachineDeployment/default/gpu-pool (min: 0, max: 2, replicas: 0)"
        );
        assert!(lines[2].ends_with("] nodegroup default/gpu-pool: replicas 0 → 1"), "{}", lines[2]);
    }
}
