//! Watches a cluster, and records when each change was seen.
//!
//! kubectl passes on what the server says, a line for every event, and of pods
//! only those that run: to poll a thousand of them, or to have every change of
//! each printed, would cost more of two cores than some engines do.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use millpond_testkit::Kubectl;

/// A change that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A pod runs, and stays or is to end.
    Pod { name: String, running: bool },
    /// A pod that ran is gone.
    PodGone { name: String },
    /// The existing pods are listed again. A busy server ends watches that do not keep up with it.
    PodsAgain,
    /// A claim is there.
    Claim { name: String },
    /// A claim is gone.
    ClaimGone,
}

/// The watches. Dropping them ends them.
pub(super) struct Watches {
    events: Receiver<(Instant, Event)>,
    running: Vec<Arc<Mutex<Running>>>,
}

impl Watches {
    /// Watches pods in `default` and all claims.
    pub(super) fn start(kubectl: &Kubectl) -> Result<Self> {
        let (sender, events) = channel();
        let mut watches = Self { events, running: Vec::new() };
        for (path, again) in [
            ("/api/v1/namespaces/default/pods?watch=true&fieldSelector=status.phase%3DRunning", Some(Event::PodsAgain)),
            ("/apis/karpenter.sh/v1/nodeclaims?watch=true", None),
        ] {
            let mut command = kubectl.command();
            command.args(["get", "--raw", path]);
            let running = Arc::new(Mutex::new(Running::default()));
            watches.running.push(Arc::clone(&running));
            let mut output = start(&running, &mut command)?;
            let sender = sender.clone();
            std::thread::spawn(move || {
                while let Some(lines) = output {
                    if !forward(lines, &sender) || again.clone().is_some_and(|again| !send(&sender, again)) {
                        return;
                    }
                    // Without a server there is nothing to watch; the caller checks the server.
                    output = start(&running, &mut command).unwrap_or(None);
                }
            });
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
        for running in &self.running {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            running.over = true;
            running.end();
        }
    }
}

/// The kubectl of one watch.
#[derive(Default)]
struct Running {
    child: Option<Child>,
    /// Whether no further watch follows.
    over: bool,
}

impl Running {
    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts kubectl, in place of the one before; gives its output, or nothing
/// once it is over.
fn start(running: &Mutex<Running>, command: &mut Command) -> Result<Option<BufReader<ChildStdout>>> {
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    running.end();
    if running.over {
        return Ok(None);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("start kubectl")?;
    let output = child.stdout.take().context("kubectl has no output")?;
    running.child = Some(child);
    Ok(Some(BufReader::new(output)))
}

/// Passes on what is printed, to the end; false if the receiver is gone.
fn forward(lines: impl BufRead, sender: &Sender<(Instant, Event)>) -> bool {
    lines.lines().map_while(Result::ok).filter_map(|line| parse(&line)).all(|event| send(sender, event))
}

fn send(sender: &Sender<(Instant, Event)>, event: Event) -> bool {
    sender.send((Instant::now(), event)).is_ok()
}

/// A line of a watch, as far as it is looked at.
#[derive(serde::Deserialize)]
struct Line {
    r#type: String,
    object: Object,
}

#[derive(serde::Deserialize)]
struct Object {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
}

fn parse(line: &str) -> Option<Event> {
    let Line { r#type, object: Object { kind, metadata } } = serde_json::from_str(line).ok()?;
    let (gone, name) = (r#type == "DELETED", metadata.name);
    Some(match kind.as_str() {
        "Pod" if gone => Event::PodGone { name },
        "Pod" => Event::Pod { name, running: metadata.deletion_timestamp.is_none() },
        "NodeClaim" if gone => Event::ClaimGone,
        "NodeClaim" => Event::Claim { name },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events() {
        let line = |happened: &str, kind: &str, more: &str| {
            let object = format!(r#"{{"kind":"{kind}","metadata":{{"name":"x"{more}}},"status":{{}}}}"#);
            parse(&format!(r#"{{"type":"{happened}","object":{object}}}"#))
        };
        let name = || "x".to_owned();
        assert_eq!(line("ADDED", "Pod", ""), Some(Event::Pod { name: name(), running: true }));
        let ends = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        assert_eq!(line("MODIFIED", "Pod", ends), Some(Event::Pod { name: name(), running: false }));
        assert_eq!(line("DELETED", "Pod", ends), Some(Event::PodGone { name: name() }));
        assert_eq!(line("ADDED", "NodeClaim", ""), Some(Event::Claim { name: name() }));
        assert_eq!(line("DELETED", "NodeClaim", ""), Some(Event::ClaimGone));
        assert_eq!(line("ERROR", "Status", ""), None);
        assert_eq!(parse("not JSON"), None);
    }
}
