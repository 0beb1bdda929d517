//! What is seen of a cluster, with the time at which it was seen.
//!
//! kubectl watches, and prints a line for every event: polling a thousand pods
//! would cost more of two cores than some engines do.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use millpond_testkit::Kubectl;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A pod is there, running or not yet.
    Pod { name: String, running: bool },
    /// A pod is gone.
    PodGone { name: String },
    /// A claim is there.
    Claim { name: String },
    /// A claim is gone.
    ClaimGone { name: String },
}

/// The watches. Dropping them ends them.
pub(super) struct Watches {
    events: Receiver<(Instant, Event)>,
    children: Vec<Child>,
}

impl Watches {
    /// Watches pods in `default` and all claims.
    pub(super) fn start(kubectl: &Kubectl) -> Result<Self> {
        let (sender, events) = channel();
        let mut watches = Self { events, children: Vec::new() };
        for (resource, fields) in [
            ("pods", "{.object.metadata.name} {.object.status.phase} {.object.metadata.deletionTimestamp}"),
            ("nodeclaims.karpenter.sh", "{.object.metadata.name}"),
        ] {
            let template = format!("jsonpath={{.type}} {{.object.kind}} {fields}{{\"\\n\"}}");
            let mut child = kubectl
                .command()
                .args(["get", resource, "--watch", "--output-watch-events", "-o", &template])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .context("start kubectl")?;
            let output = child.stdout.take().context("kubectl has no output")?;
            watches.children.push(child);
            let sender = sender.clone();
            std::thread::spawn(move || forward(BufReader::new(output), &sender));
        }
        Ok(watches)
    }

    /// The next event, or nothing within the time.
    pub(super) fn next(&self, within: Duration) -> Result<Option<(Instant, Event)>> {
        match self.events.recv_timeout(within) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the watches ended"),
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended with its server.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn forward(lines: impl BufRead, sender: &Sender<(Instant, Event)>) {
    for line in lines.lines().map_while(Result::ok) {
        let Some(event) = parse(&line) else { continue };
        if sender.send((Instant::now(), event)).is_err() {
            return;
        }
    }
}

/// A line is `TYPE KIND NAME`, and for pods the phase and the time of deletion
/// if there is one.
fn parse(line: &str) -> Option<Event> {
    let mut words = line.split(' ');
    let (happened, kind, name) = (words.next()?, words.next()?, words.next()?.to_owned());
    let gone = happened == "DELETED";
    Some(match kind {
        "Pod" if gone => Event::PodGone { name },
        "Pod" => {
            let running = words.next() == Some("Running");
            let ending = words.next().is_some_and(|time| !time.is_empty());
            Event::Pod { name, running: running && !ending }
        }
        "NodeClaim" if gone => Event::ClaimGone { name },
        "NodeClaim" => Event::Claim { name },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events() {
        let pod = |running| Some(Event::Pod { name: "p".into(), running });
        assert_eq!(parse("ADDED Pod p Pending "), pod(false));
        assert_eq!(parse("MODIFIED Pod p Running "), pod(true));
        assert_eq!(parse("MODIFIED Pod p Running 2026-01-01T00:00:00Z"), pod(false));
        assert_eq!(parse("DELETED Pod p Running 2026-01-01T00:00:00Z"), Some(Event::PodGone { name: "p".into() }));
        assert_eq!(parse("ADDED NodeClaim c"), Some(Event::Claim { name: "c".into() }));
        assert_eq!(parse("BOOKMARK Status "), None);
    }
}
