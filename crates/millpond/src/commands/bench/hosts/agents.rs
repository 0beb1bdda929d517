//! Heartbeats of many agents against a server of its own, and one real agent beside them.
//!
//! The agents are those of `millpond-agent`, as far as heartbeats go; they share a connection pool and the identity of an
//! administrator. What they cost the bench is not measured, what they cost the server is.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::ListParams;
use millpond_agent::credentials::Credentials;
use millpond_agent::heartbeat::{Current, Heartbeat, INTERVAL};
use millpond_agent::session::Session;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::api::{Scratch, ServerProcess, memory_mb};
use super::super::report::{Goal, Report};
use super::fleet;

/// How long is measured: three heartbeats of each agent.
const WINDOW: Duration = Duration::from_secs(30);
/// A heartbeat that is older has come late.
const LATE_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// How long the real agent may take to register.
const REGISTERED_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at the real agent.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Ticks a second in `/proc/PID/stat`: the same on every Linux that this runs on.
const TICKS: f64 = 100.0;
/// Processors that the server may use for the heartbeats of ten thousand agents.
const CORES: f64 = 1.0;
/// Megabytes that an agent may hold.
const AGENT_MB: f64 = 20.0;
/// The real agent.
const REAL: &str = "bench-agent";

/// Measures.
pub(super) async fn measure(count: usize) -> anyhow::Result<Report> {
    let directory = Scratch::new()?;
    let server = ServerProcess::start_with(&directory.0, &[]).await?;
    let client = fleet::client(&directory.0).await?;
    fleet::register(&client, count).await?;
    let stop = CancellationToken::new();
    let beating = start(&directory.0.join("kubeconfig"), count, &stop).await?;
    fleet::until_available(&client, count).await?;
    let agent = Agent::start(&directory.0)?;
    agent.until_registered(&client).await?;

    let (before, begun) = (processor_seconds(server.id())?, Instant::now());
    tokio::time::sleep(WINDOW).await;
    let cores = (processor_seconds(server.id())? - before) / begun.elapsed().as_secs_f64();
    let late = late(&client).await?;
    let mut report = Report::default();
    report.add("agents", count as f64, "", None);
    report.add("heartbeats", count as f64 / INTERVAL.as_secs_f64(), "/s", None);
    report.add("heartbeats that are late", late as f64, "", Some(Goal::AtMost(0.0)));
    report.add("processors of the server", cores, "", (count >= 10_000).then_some(Goal::AtMost(CORES)));
    report.add("memory of the server", memory_mb(server.id())?, "MB", None);
    report.add("memory of an agent", memory_mb(agent.child.id())?, "MB", Some(Goal::AtMost(AGENT_MB)));
    beating.abort();
    drop(agent);
    server.stop()?;
    Ok(report)
}

/// Starts agents, evenly over one interval.
async fn start(
    kubeconfig: &Path,
    count: usize,
    stop: &CancellationToken,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let kubeconfig = std::fs::read_to_string(kubeconfig).context("cannot read the kubeconfig")?;
    let session = Session::open(&kubeconfig).await?;
    let credentials = Credentials { kubeconfig, certificate: String::new(), validity: (0, i64::MAX) };
    let (sender, current) = Current::new(session, credentials);
    let stop = stop.clone();
    let pause = INTERVAL / u32::try_from(count).unwrap_or(u32::MAX).max(1);
    Ok(tokio::spawn(async move {
        let mut agents = tokio::task::JoinSet::new();
        let begun = Instant::now();
        for number in 0..count {
            tokio::time::sleep_until(begun + pause * u32::try_from(number).unwrap_or(u32::MAX)).await;
            let (held, _) = watch::channel(false);
            let heartbeat = Heartbeat::new(current.clone(), &fleet::name(number), &format!("{number:032x}"));
            agents.spawn(heartbeat.run(held, stop.clone()));
        }
        while agents.join_next().await.is_some() {}
        drop(sender);
    }))
}

/// User and system time of a process.
fn processor_seconds(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the server has ended")?;
    // The name stands in brackets and may hold spaces.
    let rest = stat.rsplit_once(')').context("no name in /proc")?.1;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS)
}

/// Leases that were not renewed in time.
async fn late(client: &Client) -> anyhow::Result<usize> {
    let listed = fleet::leases(client).list(&ListParams::default()).await?;
    let now = Timestamp::now();
    let is_late = |renewed: Option<&str>| {
        let renewed = renewed.and_then(|time| time.parse::<Timestamp>().ok());
        renewed.is_none_or(|renewed| now.duration_since(renewed) > LATE_AFTER)
    };
    Ok(listed.items.iter().filter(|lease| is_late(lease.data["spec"]["renewTime"].as_str())).count())
}

/// A real agent, on a root of its own.
struct Agent {
    child: Child,
}

impl Agent {
    fn start(directory: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let printed = Command::new(&program)
            .args(["host", "token", "create", "--kubeconfig"])
            .arg(directory.join("kubeconfig"))
            .stderr(Stdio::null())
            .output()
            .context("cannot make a token")?;
        let line = String::from_utf8(printed.stdout)?;
        let words = line.trim().strip_prefix("millpond ").context("no token was made")?.split(' ');
        let root = directory.join("agent");
        std::fs::create_dir_all(root.join("etc"))?;
        std::fs::write(root.join("etc/machine-id"), "ffffffffffffffffffffffffffffffff\n")?;
        let child = Command::new(program)
            .args(words)
            .args(["--name", REAL, "--root"])
            .arg(root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start an agent")?;
        Ok(Self { child })
    }

    async fn until_registered(&self, client: &Client) -> anyhow::Result<()> {
        let give_up = Instant::now() + REGISTERED_WITHIN;
        loop {
            let host = fleet::hosts(client).get_opt(REAL).await?;
            if host.is_some_and(|host| host.data["status"]["facts"].is_object()) {
                return Ok(());
            }
            if Instant::now() > give_up {
                bail!("the agent did not register within {} s", REGISTERED_WITHIN.as_secs());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
