//! Follows the claim: decides, works, reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use millpond_api::byoh::{ByoHost, ByoHostSpec, HostFacts, NetworkStatus};
use millpond_api::time::Time;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentError, Options, hosts};
use crate::bootstrap::{self, Bootstrap};
use crate::decide::{self, Action};
use crate::executor::{Executor, ExecutorError, describe};
use crate::heartbeat::Current;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{self, Obstacle, View};
use crate::{facts, network, redact};

/// Time between two looks at the hardware.
const LOOK_AT_FACTS: Duration = Duration::from_secs(300);
/// Time to the next attempt after a failed write or a missing Secret.
const RETRY: Duration = Duration::from_secs(3);
/// Time to the next attempt after a failed reset: the first, and the longest.
const RESET_AGAIN: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(300));

/// The job of a thread.
#[derive(Debug, Clone)]
enum Job {
    Apply(Box<Plan>),
    Resume,
    Refuse { machine_uid: String, epoch: i64, why: String },
    Reset { raise: i64 },
}

/// A job under way.
struct Running {
    is_reset: bool,
    cancel: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), ExecutorError>>,
}

struct Worker<'a> {
    options: &'a Options,
    current: Current,
    facts: HostFacts,
    network: Vec<NetworkStatus>,
    /// Written by the thread that works.
    journal: watch::Sender<Progress>,
    progress: watch::Receiver<Progress>,
    reset_failure: Option<String>,
    obstacle: Option<Obstacle>,
    running: Option<Running>,
    /// When to try again what did not succeed, and how long was waited last.
    again: Option<Instant>,
    reset_pause: Duration,
    /// The last spec.
    asked: Option<ByoHostSpec>,
    /// The last status written.
    written: Option<Value>,
}

/// Works until the token is cancelled.
pub(crate) async fn run(
    options: &Options,
    facts: HostFacts,
    current: Current,
    mut host: watch::Receiver<Option<Option<ByoHost>>>,
    mut held: watch::Receiver<bool>,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    let begun = Progress::of(&Executor::new(&options.root, &options.state)?.journal()?);
    let (journal, progress) = watch::channel(begun);
    let network = network::read(&options.root, &facts);
    let mut worker = Worker {
        options,
        current,
        facts,
        network,
        journal,
        progress,
        reset_failure: None,
        obstacle: None,
        running: None,
        again: None,
        reset_pause: RESET_AGAIN.0,
        asked: None,
        written: None,
    };
    let mut look = tokio::time::interval(LOOK_AT_FACTS);
    loop {
        let seen = host.borrow_and_update().clone().flatten();
        let is_held = *held.borrow_and_update();
        // An agent without the Lease may be that of a copy: it writes nothing and touches nothing. Nor does one whose
        // ByoHost is gone: a claimed ByoHost has a finalizer, so what is on the machine is not known to be over.
        if let Some(seen) = seen.filter(|_| is_held) {
            worker.step(&seen).await;
        }
        let again = worker.again;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            done = finished(&mut worker.running) => worker.finish(done),
            _ = host.changed() => {}
            _ = held.changed() => {}
            _ = worker.progress.changed() => {}
            _ = look.tick() => worker.look_again(),
            () = sleep_until(again) => worker.again = None,
        }
    }
    worker.stop().await;
    Ok(())
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn finished(running: &mut Option<Running>) -> Result<(), ExecutorError> {
    let Some(running) = running else { return std::future::pending().await };
    (&mut running.thread).await.unwrap_or_else(|error| Err(ExecutorError::Journal(std::io::Error::other(error))))
}

impl Worker<'_> {
    /// One round: decides, starts the action, reports.
    async fn step(&mut self, host: &ByoHost) {
        // What is asked for now may succeed; the agent's own reports come back here too.
        if self.asked.as_ref() != Some(&host.spec) {
            (self.asked, self.again) = (Some(host.spec.clone()), None);
        }
        self.act(host).await;
        self.report(host).await;
    }

    async fn act(&mut self, host: &ByoHost) {
        let progress = self.view();
        let action = decide::next(host, &progress);
        if let Some(running) = &self.running {
            // The work of a claim that has ended is not completed first.
            if action == Action::Reset && !running.is_reset {
                running.cancel.store(true, Ordering::Relaxed);
            }
            return;
        }
        let raised = host.spec.epoch;
        let is_asked_anew = self.reset_failure.is_some() && raised > progress.epoch;
        if self.again.is_some_and(|again| again > Instant::now()) && !is_asked_anew {
            return;
        }
        if action != Action::Apply {
            self.obstacle = None;
        }
        match action {
            Action::Rest => {}
            Action::Resume => self.start(Job::Resume),
            Action::Reset => {
                tracing::info!(epoch = progress.epoch, "resets the host");
                let raise = if decide::claim(host).is_none() { raised } else { 0 };
                self.start(Job::Reset { raise });
            }
            Action::Apply => self.apply(host).await,
        }
    }

    /// Makes the plan of the claim, and begins with it.
    async fn apply(&mut self, host: &ByoHost) {
        let Some(claim) = decide::claim(host) else { return };
        let made = bootstrap::plan(&self.current.session(), self.options, &self.facts, host, claim).await;
        match made {
            Ok(Bootstrap::Plan(plan)) => {
                tracing::info!(epoch = claim.epoch, machine = claim.name, steps = plan.steps.len(), "applies the plan");
                self.obstacle = None;
                self.start(Job::Apply(Box::new(plan)));
            }
            Ok(Bootstrap::Refused(why)) => {
                tracing::error!(epoch = claim.epoch, machine = claim.name, why, "cannot make a plan");
                self.obstacle = None;
                self.start(Job::Refuse { machine_uid: claim.machine_uid.clone(), epoch: claim.epoch, why });
            }
            Ok(Bootstrap::Waits(obstacle)) => {
                tracing::warn!(reason = obstacle.reason, message = obstacle.message, "waits");
                self.obstacle = Some(obstacle);
                self.again = Some(Instant::now() + RETRY);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the bootstrap data");
                self.again = Some(Instant::now() + RETRY);
            }
        }
    }

    fn start(&mut self, job: Job) {
        let (root, state) = (self.options.root.clone(), self.options.state.clone());
        let (cancel, journal) = (Arc::new(AtomicBool::new(false)), self.journal.clone());
        let (is_reset, flag) = (matches!(job, Job::Reset { .. }), Arc::clone(&cancel));
        let work = move || {
            let executor = Executor::new(&root, &state)?.with_cancel(flag);
            let mut executor = executor.with_observer(move |written| {
                journal.send_replace(Progress::of(written));
            });
            match job {
                Job::Apply(plan) => executor.apply(&plan),
                Job::Resume => executor.resume(),
                Job::Refuse { machine_uid, epoch, why } => executor.refuse(&machine_uid, epoch, &why),
                Job::Reset { raise } => {
                    executor.raise_epoch(raise)?;
                    executor.reset()
                }
            }
        };
        if is_reset {
            self.reset_failure = None;
        }
        self.running = Some(Running { is_reset, cancel, thread: tokio::task::spawn_blocking(work) });
    }

    fn finish(&mut self, done: Result<(), ExecutorError>) {
        let was_reset = self.running.take().is_some_and(|running| running.is_reset);
        match done {
            Ok(()) if was_reset => {
                tracing::info!("the host is as it was before");
                self.reset_pause = RESET_AGAIN.0;
            }
            Ok(()) => tracing::info!("the plan is applied"),
            Err(ExecutorError::Interrupted) => tracing::info!("interrupted"),
            Err(error) => {
                let why = redact::secrets(&describe(&error));
                tracing::error!(error = why, "failed");
                if was_reset {
                    self.reset_failure = Some(why);
                    self.again = Some(Instant::now() + self.reset_pause);
                    self.reset_pause = RESET_AGAIN.1.min(self.reset_pause * 2);
                }
            }
        }
    }

    /// The progress with what only this process knows.
    fn view(&self) -> Progress {
        Progress { reset_failure: self.reset_failure.clone(), ..self.progress.borrow().clone() }
    }

    fn look_again(&mut self) {
        self.facts = facts::read(&self.options.root);
        self.network = network::read(&self.options.root, &self.facts);
    }

    /// Writes the status if it is another one than before.
    async fn report(&mut self, host: &ByoHost) {
        let progress = self.view();
        self.progress.mark_unchanged();
        let view = View {
            facts: &self.facts,
            network: &self.network,
            claim: decide::claim(host),
            progress: &progress,
            obstacle: self.obstacle.as_ref(),
            version: &self.options.version,
        };
        let now = Time(Timestamp::now().as_second());
        let Options { name, namespace, .. } = self.options;
        let object = report::object(view, name, namespace, &host.status.conditions, now);
        let is_there = host.status.plan == progress.report() && host.status.epoch == progress.epoch;
        if self.written.as_ref() == Some(&object) && is_there {
            return;
        }
        let path = format!("{}/{name}/status", hosts(namespace));
        match self.current.session().apply::<serde::de::IgnoredAny>(&path, &object).await {
            Ok(_) => self.written = Some(object),
            Err(error) => {
                tracing::warn!(%error, "cannot write the status");
                self.written = None;
                self.again = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Ends the command that runs: the next start continues.
    async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.cancel.store(true, Ordering::Relaxed);
            let _ = running.thread.await;
        }
    }
}
