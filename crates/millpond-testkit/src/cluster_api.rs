//! Cluster API's own core manager on a real API server: definitions, conversion, webhooks, manager.
//!
//! Definitions and webhooks name a service in a cluster; here the manager listens on loopback, so that they name its
//! address instead.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::pki;
use crate::process::{POLL_INTERVAL, Process, free_port};
use crate::real::{Part, Parts};
use crate::real_cluster::RealCluster;
use crate::scratch::Scratch;

/// The manager is ready within a second on a quiet machine; this is for a busy one.
const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// Off: a limit of one look a second at each object, which only makes tests slow; and pools of machines, which need
/// a provider of their own.
const FEATURE_GATES: &str = "--feature-gates=ReconcilerRateLimiting=false,MachinePool=false";

/// A running core manager. Dropping it kills it.
#[derive(Debug)]
pub struct ClusterApi {
    manager: Process,
    // After the process: it writes into it.
    _scratch: Scratch,
}

impl ClusterApi {
    /// Puts everything in place on a cluster and waits until the manager is ready.
    pub fn start(cluster: &RealCluster) -> Result<Self> {
        let parts = Parts::ensure_each(&[Part::CLUSTER_API])?;
        let scratch = Scratch::new("cluster-api")?;
        let (hook, health) = (free_port()?, free_port()?);
        let ca = pki::serving(scratch.path())?;
        let kubectl = cluster.kubectl()?;
        let files = parts.data_files(&Part::CLUSTER_API)?;
        let (webhooks, definitions) = files.split_first().context("the manager has definitions")?;

        let mut crds = Vec::new();
        for file in definitions {
            crds.extend(documents(file)?.into_iter().map(|crd| with_conversion(crd, hook, &ca)));
        }
        apply(&kubectl, crds)?;
        kubectl.run(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"])?;

        let mut command = Command::new(parts.path(&Part::CLUSTER_API)?);
        command
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .args(["--webhook-port", &hook.to_string(), "--webhook-cert-dir"])
            .arg(scratch.path())
            .args(["--health-addr", &format!("127.0.0.1:{health}")])
            .args(["--diagnostics-address", "127.0.0.1:0", "--insecure-diagnostics", FEATURE_GATES]);
        let mut manager = Process::spawn(Part::CLUSTER_API.name, &mut command, scratch.path())?;
        wait_ready(health, &mut manager)?;
        // After the manager: without it nothing could be written any more.
        let hooks = documents(webhooks)?.into_iter().map(|hooks| with_address(hooks, hook, &ca)).collect();
        apply(&kubectl, hooks)?;
        Ok(Self { manager, _scratch: scratch })
    }

    /// Fails, with the end of its log, if the manager has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.manager.ensure_running()
    }

    /// The manager.
    pub fn manager(&self) -> &Process {
        &self.manager
    }
}

fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read `{}`", file.display()))?;
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(|| format!("parse `{}`", file.display()))?;
    Ok(all.into_iter().filter(Value::is_object).collect())
}

/// Both versions are served, one from the other by the manager.
fn with_conversion(mut crd: Value, port: u16, ca: &str) -> Value {
    crd["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/convert"), "caBundle": BASE64.encode(ca)},
        },
    });
    crd
}

fn with_address(mut hooks: Value, port: u16, ca: &str) -> Value {
    for hook in hooks["webhooks"].as_array_mut().into_iter().flatten() {
        let path = hook["clientConfig"]["service"]["path"].as_str().unwrap_or_default().to_owned();
        hook["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": BASE64.encode(ca)});
    }
    hooks
}

fn apply(kubectl: &Kubectl, objects: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    // From the server's side, since a copy of these in an annotation would be too large.
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &list.to_string()).map(drop)
}

fn wait_ready(port: u16, manager: &mut Process) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        manager.ensure_running()?;
        let last = match is_ready(port) {
            Ok(true) => return Ok(()),
            Ok(false) => "it is not".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= deadline {
            bail!("Cluster API was not ready after {} s: {last}\n{}", READY_TIMEOUT.as_secs(), manager.log_tail());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn is_ready(port: u16) -> Result<bool> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).context("connect")?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).context("set a time-out")?;
    write!(socket, "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").context("send")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).context("read")?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_take_the_place_of_services() {
        let hooks =
            json!({"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s", "path": "/mutate-x"}}}]});
        let got = with_address(hooks, 9443, "CA");
        let expected = json!({"url": "https://127.0.0.1:9443/mutate-x", "caBundle": "Q0E="});
        assert_eq!(got["webhooks"][0]["clientConfig"], expected);
        let crd = with_conversion(json!({"spec": {"group": "g"}}), 9443, "CA");
        assert_eq!(crd["spec"]["conversion"]["webhook"]["clientConfig"]["url"], "https://127.0.0.1:9443/convert");
        assert_eq!(crd["spec"]["group"], "g");
    }
}
