//! What is seen of a cluster, with the time at which it was seen.
//!
//! kubectl watches, and prints a line for every event: polling a thousand pods
//! would cost more of two cores than some engines do.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// The pods that are there come once more. A busy server breaks off the
    /// watches that do not keep up with it.
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
        for (resource, fields, again) in [
            (
                "pods",
                "{.object.metadata.name} {.object.status.phase} {.object.metadata.deletionTimestamp}",
                Some(Event::PodsAgain),
            ),
            ("nodeclaims.karpenter.sh", "{.object.metadata.name}", None),
        ] {
            let template = format!("jsonpath={{.type}} {{.object.kind}} {fields}{{\"\\n\"}}");
            let mut command = kubectl.command();
            // Of a list that comes in chunks, kubectl prints the chunks, not what is in them.
            command.args(["get", resource, "--watch", "--output-watch-events", "--chunk-size=0", "-o", &template]);
            let running = Arc::new(Mutex::new(Running::default()));
            watches.running.push(Arc::clone(&running));
            let mut output = start(&running, &mut command)?;
            let sender = sender.clone();
            std::thread::spawn(move || {
                while let Some(lines) = output {
                    if !forward(lines, &sender) || again.clone().is_some_and(|again| !send(&sender, again)) {
                        return;
                    }
                    // Without a server there is nothing to watch; whoever waits looks after the server.
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
    /// No other is to follow.
    over: bool,
}

impl Running {
    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
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

/// Passes on what is printed, to the end; false if nobody listens any more.
fn forward(lines: impl BufRead, sender: &Sender<(Instant, Event)>) -> bool {
    lines.lines().map_while(Result::ok).filter_map(|line| parse(&line)).all(|event| send(sender, event))
}

fn send(sender: &Sender<(Instant, Event)>, event: Event) -> bool {
    sender.send((Instant::now(), event)).is_ok()
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
        let pod = |running| Some(Event::Pod { name: "p".into(), running });
        assert_eq!(parse("ADDED Pod p Pending "), pod(false));
        assert_eq!(parse("MODIFIED Pod p Running "), pod(true));
        assert_eq!(parse("MODIFIED Pod p Running 2026-01-01T00:00:00Z"), pod(false));
        assert_eq!(parse("DELETED Pod p Running 2026-01-01T00:00:00Z"), Some(Event::PodGone { name: "p".into() }));
        assert_eq!(parse("ADDED NodeClaim c"), Some(Event::Claim { name: "c".into() }));
        assert_eq!(parse("DELETED NodeClaim c"), Some(Event::ClaimGone));
        assert_eq!(parse("BOOKMARK Status "), None);
    }
}
