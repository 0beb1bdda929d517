//! Controllers of one process, running whenever it leads: the same for `up` and for `controller`.
//!
//! Nothing that only one process can have (the file of the simulated cloud) is opened before this process leads, so that
//! any number of standbys can wait beside the leader, with its data directory or with others.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use kube::Client;
use millpond_controllers::cluster::Options;
use millpond_controllers::context::Context;
use millpond_controllers::leader::{Candidate, Leadership, Leads};
use millpond_controllers::run::Controllers;
use millpond_providers::sim::{Cloud, OpenError, SimProvider};
use millpond_providers::{Provider, ProviderError};
use millpond_runtime::clock::Clock;
use millpond_runtime::panics;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dialects::{self, DialectOptions};
use super::threads::OF_CONTROLLERS;

/// The Lease that decides who leads.
pub(crate) const LEASE: &str = "millpond-controller";
/// Namespace of the Lease where nothing else is said.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The identity of controllers inside `millpond up` begins with this; host names have no colon.
///
/// Such a holder of a Lease in an embedded API was a process that served that API. The process that serves it now holds the lock of
/// the store that the Lease is in, so the other one is dead, and is not waited for.
const EMBEDDED: &str = "embedded:";
/// How often a leader tries to open a cloud that the leader before it has not closed yet.
const OPEN_AGAIN: Duration = Duration::from_millis(500);

/// Where the machines of the simulated cloud are kept.
#[derive(Debug, Clone)]
pub(crate) enum CloudLocation {
    /// In memory: they are gone with the process.
    Memory(Arc<Cloud>),
    /// In a file of this directory.
    Directory(PathBuf),
}

impl CloudLocation {
    /// Opens the cloud; waits while another process has it. None when the term ends before.
    async fn open(&self, term: &CancellationToken) -> anyhow::Result<Option<Arc<Cloud>>> {
        let directory = match self {
            Self::Memory(cloud) => return Ok(Some(Arc::clone(cloud))),
            Self::Directory(directory) => directory,
        };
        let mut is_told = false;
        loop {
            match open_cloud(directory) {
                Ok(cloud) => return Ok(Some(Arc::new(cloud))),
                Err(error) if matches!(error.downcast_ref(), Some(OpenError::InUse { .. })) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(error = format!("{error:#}"), "waiting for the cloud");
                    }
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = term.cancelled() => return Ok(None),
                () = tokio::time::sleep(OPEN_AGAIN) => {}
            }
        }
    }
}

fn open_cloud(directory: &Path) -> anyhow::Result<Cloud> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create `{}`", directory.display()))?;
    let file = directory.join("cloud.json");
    Cloud::open(&file).with_context(|| format!("cannot use `{}`", file.display()))
}

/// If controllers panic repeatedly, the process ends within this time, even if some of them do not stop.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(5);

/// The wait before controllers are started anew after a panic that nothing handled; it doubles with each further one.
const FIRST_RESTART: Duration = Duration::from_secs(1);
/// So many of these panics within [`REMEMBERED`] end the process.
const MAX_PANICS: usize = 5;
/// See [`MAX_PANICS`].
const REMEMBERED: Duration = Duration::from_mins(10);

/// How a run of the controllers ended.
enum Ended {
    /// It was stopped.
    Stopped,
    /// One of its tasks panicked without a handler; the others were stopped.
    Panicked(String),
}

/// The first result of the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElectionResult {
    /// Its controllers run.
    Leads,
    /// Another process leads; this one waits.
    Waits,
}

/// The state of this process's controllers.
#[derive(Debug, Clone, Default)]
enum Phase {
    /// They have not started.
    #[default]
    Starting,
    /// Another process leads.
    Follows,
    /// They run, or are stopping after their last term.
    Leads(Weak<Context>),
}

/// Shows the state of the controllers to probes and metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Monitor(Arc<Mutex<Phase>>);

impl Monitor {
    fn set(&self, phase: Phase) {
        *self.0.lock() = phase;
    }

    /// What the controllers act with; none while another process leads.
    pub(crate) fn context(&self) -> Option<Arc<Context>> {
        match &*self.0.lock() {
            Phase::Leads(context) => context.upgrade(),
            Phase::Starting | Phase::Follows => None,
        }
    }

    /// The metrics of the controllers in OpenMetrics text; empty while another process leads.
    pub(crate) fn metrics(&self) -> String {
        self.context().map(|context| millpond_controllers::metrics::text(&context)).unwrap_or_default()
    }

    /// The log of node groups in the words of the cluster-autoscaler; empty while another process leads.
    pub(crate) fn node_group_log(&self) -> String {
        self.context().map(|context| context.cluster.machines.log.text()).unwrap_or_default()
    }

    /// Controllers that panicked lately, with how often; an error names one that was not started again.
    pub(crate) fn panics(&self) -> Result<Vec<(&'static str, usize)>, (&'static str, String)> {
        let Some(context) = self.context() else { return Ok(Vec::new()) };
        let supervisor = &context.cluster.supervisor;
        supervisor.given_up().map_or_else(|| Ok(supervisor.restarts()), Err)
    }

    /// Controllers that ended without being stopped, and those that have been in one round for too long.
    pub(crate) fn stuck(&self) -> Stuck {
        let Some(context) = self.context() else { return Stuck::default() };
        let supervisor = &context.cluster.supervisor;
        Stuck { stopped: supervisor.stopped(), hanging: supervisor.hanging() }
    }

    /// A follower is ready: it takes over when the leader ends. A leader is ready once its watches have listed everything.
    pub(crate) fn readiness(&self) -> Readiness {
        match &*self.0.lock() {
            Phase::Starting => Readiness::Starting,
            Phase::Follows => Readiness::Follows,
            Phase::Leads(context) => match context.upgrade() {
                Some(context) if context.cluster.is_ready() => Readiness::Leads,
                Some(_) => Readiness::Syncing,
                None => Readiness::Starting,
            },
        }
    }
}

/// Controllers that do nothing any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stuck {
    /// Controllers that ended.
    pub(crate) stopped: Vec<&'static str>,
    /// Controllers in one round or on one object, and for how long.
    pub(crate) hanging: Vec<(&'static str, Duration)>,
}

/// How far the controllers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The election has no result yet.
    Starting,
    /// Another process leads.
    Follows,
    /// This process leads; its watches have not listed everything yet.
    Syncing,
    /// This process leads and acts.
    Leads,
}

/// Controllers that run whenever this process leads.
pub(crate) struct ControllerRunner {
    pub(crate) client: Client,
    pub(crate) cloud: CloudLocation,
    pub(crate) options: Options,
    pub(crate) dialects: DialectOptions,
    monitor: Monitor,
    settled: Option<oneshot::Sender<ElectionResult>>,
}

impl ControllerRunner {
    pub(crate) fn new(client: Client, cloud: CloudLocation, options: Options) -> Self {
        Self { client, cloud, options, dialects: DialectOptions::default(), monitor: Monitor::default(), settled: None }
    }

    /// Tells once whether this process leads or waits; nothing if it fails before.
    pub(crate) fn settled(&mut self) -> oneshot::Receiver<ElectionResult> {
        let (settled, told) = oneshot::channel();
        self.settled = Some(settled);
        told
    }

    /// Shows what the controllers do.
    pub(crate) fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Acts whenever this process is elected, until it is stopped.
    pub(crate) async fn lead(mut self, mut candidate: Candidate, stop: CancellationToken) -> anyhow::Result<()> {
        loop {
            let mut elected = candidate.elected_at_once().await;
            if elected.is_none() {
                self.monitor.set(Phase::Follows);
                self.settle(ElectionResult::Waits);
                elected = candidate.elected(&stop).await;
            }
            let Some(leadership) = elected else { return Ok(()) };
            tracing::info!(term = leadership.term(), "leads");
            let (term, renewing) = (stop.child_token(), CancellationToken::new());
            let renew = async {
                candidate.lead(&leadership, &renewing).await;
                term.cancel();
            };
            let work = async {
                let done = self.serve(Leads::Elected(leadership.clone()), &term).await;
                // The work under way at the end of the term is completed under the Lease.
                renewing.cancel();
                done
            };
            let ((), done) = tokio::join!(renew, work);
            if stop.is_cancelled() || done.is_err() {
                candidate.resign().await;
                return done;
            }
        }
    }

    /// Acts without an election, until it is stopped.
    pub(crate) async fn act_alone(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        self.serve(Leads::Alone, &stop).await
    }

    /// Runs one term, until the token is cancelled. If a task of controllers or dialects panics without a handler, all
    /// of them are stopped and restarted.
    async fn serve(&mut self, leads: Leads, term: &CancellationToken) -> anyhow::Result<()> {
        let mut panics = Vec::new();
        loop {
            let panic = match self.serve_once(leads.clone(), &term.child_token()).await? {
                Ended::Stopped => return Ok(()),
                Ended::Panicked(panic) => panic,
            };
            panics.retain(|at: &Instant| at.elapsed() < REMEMBERED);
            panics.push(Instant::now());
            if panics.len() >= MAX_PANICS {
                term.cancel();
                anyhow::bail!("controllers panicked again and again, the last time with: {panic}");
            }
            let wait = FIRST_RESTART * (1 << (panics.len() - 1));
            tracing::error!(panic, ?wait, "the controllers are started anew");
            tokio::select! {
                () = term.cancelled() => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Runs controllers and dialects until the token is cancelled, or one of their tasks is lost.
    async fn serve_once(&mut self, leads: Leads, term: &CancellationToken) -> anyhow::Result<Ended> {
        let Some(cloud) = self.cloud.open(term).await? else { return Ok(Ended::Stopped) };
        let mut strays = panics::strays(OF_CONTROLLERS);
        let provider = Arc::new(SimProvider::new(cloud, self.client.clone(), Clock::Machine));
        if let Some(leadership) = leads.leadership()
            && !begin_term(&*provider, leadership).await?
        {
            return Ok(Ended::Stopped);
        }
        let options = Options { leads, ..self.options.clone() };
        let own_hosts = millpond_hosts::run::Prepared::new(&self.client, &self.dialects.hosts);
        let simulated: Arc<dyn Provider> = Arc::<SimProvider>::clone(&provider);
        let controllers = Controllers::start(self.client.clone(), options, [simulated, own_hosts.provider()], term);
        let (supervisor, until) = (controllers.context().cluster.supervisor.clone(), term.clone());
        let booting = tokio::spawn(async move {
            let boot = || Arc::clone(&provider).run(until.clone()).boxed();
            supervisor.run("simulated cloud", &until, boot).await;
        });
        let dialects = dialects::start(&self.client, &self.dialects, own_hosts, term);
        self.monitor.set(Phase::Leads(Arc::downgrade(controllers.context())));
        self.settle(ElectionResult::Leads);
        let (mut stray, mut failed) = (None, None);
        tokio::select! {
            () = term.cancelled() => {}
            gave_up = controllers.failed() => failed = Some(gave_up),
            panic = strays.next() => stray = Some(panic),
        }
        let ended = async {
            controllers.ended().await;
            dialects.wait().await;
            let _ = booting.await;
        };
        if stray.is_none() && failed.is_none() {
            ended.await;
            return Ok(Ended::Stopped);
        }
        // The remaining tasks may be blocked by the one that panicked.
        term.cancel();
        let all_ended = tokio::time::timeout(GIVEN_UP_WITHIN, ended).await.is_ok();
        if let Some((name, panic)) = failed {
            anyhow::bail!("controller `{name}` panicked again and again, the last time with: {panic}");
        }
        let panic = stray.unwrap_or_default();
        // Two sets of controllers must not act side by side.
        anyhow::ensure!(all_ended, "controllers did not end after a panic: {panic}");
        Ok(Ended::Panicked(panic))
    }

    fn settle(&mut self, standing: ElectionResult) {
        if let Some(settled) = self.settled.take() {
            // The receiver may be gone.
            let _ = settled.send(standing);
        }
    }
}

/// Tells a provider the number of the term, a higher one if it has seen that number before; false when the leadership
/// ends meanwhile.
async fn begin_term(provider: &dyn Provider, leadership: &Leadership) -> anyhow::Result<bool> {
    loop {
        match provider.begin_term(leadership.term()).await {
            Ok(()) => return Ok(true),
            Err(ProviderError::Fenced { seen: Some(seen), .. }) => {
                if !leadership.exceed(seen).await {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error).context("cannot begin to lead"),
        }
    }
}

/// The candidate of a process that controls a cluster of others. Its identity is its own: two containers may have the same
/// host name and the same process id.
pub(crate) fn candidate(client: Client, namespace: &str) -> Candidate {
    let identity = format!("{}_{:016x}", hostname(), rand::random::<u64>());
    Candidate::new(client, namespace, LEASE, &identity, Clock::Machine)
}

/// The candidate of a process that serves the API itself.
pub(crate) fn embedded_candidate(client: Client) -> Candidate {
    let identity = format!("{EMBEDDED}{}_{:016x}", hostname(), rand::random::<u64>());
    Candidate::new(client, NAMESPACE, LEASE, &identity, Clock::Machine).succeeds(EMBEDDED).renews_seldom()
}

fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "millpond".to_owned() } else { name }
}
