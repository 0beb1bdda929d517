//! Checks after every reset that nothing of kubelet is left on the host.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::command::poll;
use super::mounts;
use super::processes::Processes;

/// The port of kubelet's own server.
const KUBELET_PORT: u16 = 10250;
/// A socket in this state listens.
const LISTEN: &str = "0A";
/// How long a stopped service may take to disappear.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is left of kubelet, if anything.
pub(super) fn leftover(root: &Path) -> Option<String> {
    let mut last = None;
    let clean = poll(PATIENCE, &AtomicBool::new(false), || {
        last = find(root);
        last.is_none().then_some(())
    });
    if clean.is_some() { None } else { last }
}

fn find(root: &Path) -> Option<String> {
    if let Some(pid) = Processes::of(root).kubelets().first() {
        return Some(format!("kubelet (process {pid}) still runs"));
    }
    for table in ["proc/net/tcp", "proc/net/tcp6"] {
        let text = fs::read_to_string(root.join(table)).unwrap_or_default();
        if listens(&text, KUBELET_PORT) {
            return Some(format!("port {KUBELET_PORT} is still listened on"));
        }
    }
    let mounted = mounts::below(&root.join("var/lib/kubelet"));
    // The directory itself may be a file system of its own.
    let below = mounted.into_iter().find(|point| point != &root.join("var/lib/kubelet"));
    below.map(|point| format!("`{}` is still mounted", point.display()))
}

/// Whether a table of sockets has one that listens on a port.
fn listens(table: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
        local.ends_with(&suffix) && state == LISTEN
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found_by_port_and_state() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let line = |state: &str| format!("{head}   0: 00000000:280A 00000000:0000 {state} 00000000:00000000\n");
        assert!(listens(&line("0A"), KUBELET_PORT));
        assert!(!listens(&line("01"), KUBELET_PORT), "a connection is no listener");
        assert!(!listens(&line("0A"), 10251));
        assert!(!listens("", KUBELET_PORT));
    }

    #[test]
    fn an_empty_root_is_clean() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(leftover(root.path()), None);
    }
}
