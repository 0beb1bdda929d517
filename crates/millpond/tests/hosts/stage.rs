//! `millpond up` on a bridge, machines with agents, and what a test does and waits for there.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use millpond_testkit::machines::{Machine, Network};
use millpond_testkit::{EmbeddedServer, Process};
use serde_json::{Value, json};

pub(crate) const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");
/// Where the agent is on machines.
pub(crate) const AGENT: &str = "/opt/bin/millpond";
/// Between two polls of something without change events.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Nothing that is waited for takes longer; a test that reaches this has failed.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Stage {
    // In this order: machines end before their server.
    pub(crate) server: EmbeddedServer,
    pub(crate) client: Client,
    pub(crate) network: Network,
}

impl Stage {
    pub(crate) async fn new() -> Result<Self> {
        let network = Network::new()?;
        let server = EmbeddedServer::start(Path::new(MILLPOND), &["--memory", "--bind", &network.address()])?;
        let client = server.client().await?;
        Ok(Self { server, client, network })
    }

    /// `millpond host token …`.
    pub(crate) fn token(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(MILLPOND)
            .args(["host", "token"])
            .args(words)
            .arg("--kubeconfig")
            .arg(self.server.kubeconfig())
            .output()
            .context("run millpond")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The arguments of the command that `token create` prints.
    pub(crate) fn entry(&self, words: &[&str]) -> Result<Vec<String>> {
        let line = self.token(&[&["create"], words].concat())?;
        assert_eq!(line.lines().count(), 1, "one line to paste: {line}");
        let words = line.trim().strip_prefix("millpond ").context("it begins with the program")?;
        Ok(words.split(' ').map(str::to_owned).collect())
    }

    /// A machine that runs, with a registered agent.
    pub(crate) async fn host(&self, name: &str, number: u8) -> Result<Host> {
        let mut machine = self.network.machine(name, number, Path::new(MILLPOND))?;
        machine.boot()?;
        let entry = self.entry(&[])?;
        let agent = start(&machine, &entry)?;
        let host = Host { agent, machine, entry };
        self.host_is(name, "it has reported facts", |host| !host["status"]["facts"].is_null()).await?;
        Ok(host)
    }

    pub(crate) fn hosts(&self) -> Api<DynamicObject> {
        byoh(&self.client)
    }

    pub(crate) async fn byo_host(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.hosts().get(name).await?)?)
    }

    /// Waits until the ByoHost is as it should be.
    pub(crate) async fn host_is(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let hosts = self.hosts();
        let mut last = Value::Null;
        let wait = async {
            loop {
                let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(60);
                let mut version = "0".to_owned();
                if let Some(host) = hosts.get_opt(name).await? {
                    version = host.resource_version().unwrap_or_default();
                    last = serde_json::to_value(&host)?;
                    if is(&last) {
                        return Ok(last.clone());
                    }
                }
                let mut events = std::pin::pin!(hosts.watch(&params, &version).await?);
                while let Some(Ok(event)) = events.next().await {
                    let (WatchEvent::Added(host) | WatchEvent::Modified(host)) = event else { break };
                    last = serde_json::to_value(&host)?;
                    if is(&last) {
                        return Ok(last.clone());
                    }
                }
            }
        };
        match tokio::time::timeout(LIMIT, wait).await {
            Ok(done) => done,
            Err(_) => bail!("{name}: {what}, waited for in vain: {}", serde_json::to_string_pretty(&last["status"])?),
        }
    }

    pub(crate) async fn phase_is(&self, name: &str, epoch: i64, phase: &str) -> Result<Value> {
        let is = |host: &Value| {
            let plan = &host["status"]["plan"];
            plan["phase"] == phase && plan["epoch"] == epoch
        };
        self.host_is(name, &format!("its plan of epoch {epoch} is {phase}"), is).await
    }

    /// Waits for the Node of a host.
    pub(crate) async fn node(&self, name: &str) -> Result<Node> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let ready = kube::runtime::wait::await_condition(nodes, name, |node: Option<&Node>| node.is_some());
        let node = tokio::time::timeout(LIMIT, ready).await.context("there is no Node")??;
        node.context("there is no Node")
    }

    /// A Secret in the namespace of the hosts.
    pub(crate) async fn secret(&self, name: &str, data: Value) -> Result<()> {
        let secret = json!({"metadata": {"name": name}, "stringData": data});
        let api: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        api.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        Ok(())
    }

    /// Bootstrap data of tlsBootstrap mode for a host, with a token for its kubelet.
    pub(crate) async fn bootstrap(&self, name: &str, host: &str) -> Result<()> {
        let kubeconfig = self.kubelet_kubeconfig(host).await?;
        let ca = &self.server.access().ca_pem;
        let data = json!({
            "ca.crt": ca, "bootstrap-kubeconfig": kubeconfig, "kubelet-config.yaml": "kind: KubeletConfiguration\n",
        });
        self.secret(name, data).await
    }

    /// A kubeconfig with a token that the kubelet of a host joins with.
    pub(crate) async fn kubelet_kubeconfig(&self, host: &str) -> Result<String> {
        use std::hash::{BuildHasher as _, RandomState};
        let random = format!("{:016x}", RandomState::new().hash_one(host));
        let (id, secret) = (&random[..6], format!("{:016x}", RandomState::new().hash_one(&random)));
        let object = json!({
            "metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
                "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token", "millpond-host": host,
            },
        });
        let api: Api<Secret> = Api::namespaced(self.client.clone(), "kube-system");
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let access = millpond_testkit::Access {
            token: Some(format!("{id}.{secret}")),
            client_pem: None,
            ..self.server.access().clone()
        };
        let path = self.network.folder().join(format!("{id}.kubeconfig"));
        access.write(&path)?;
        Ok(std::fs::read_to_string(path)?)
    }

    /// Claims a host as the controllers do. A finalizer of the machine's stands for the machine itself: the controllers of
    /// `up` release claims of machines that do not exist.
    pub(crate) async fn claim(&self, host: &str, epoch: i64, spec: Value) -> Result<()> {
        let machine = self.machine(&format!("m{epoch}-{host}")).await?;
        let mut spec = spec;
        spec["claim"] = json!({
            "machineUID": machine.uid(), "namespace": "default", "name": machine.name_any(), "epoch": epoch,
        });
        spec["epoch"] = epoch.into();
        self.patch(host, json!({"spec": spec})).await
    }

    /// A paused ByoMachine without an owner: the controllers do nothing about it.
    async fn machine(&self, name: &str) -> Result<DynamicObject> {
        let kind = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta1", "ByoMachine");
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ByoMachine",
            "metadata": {"name": name, "annotations": {"cluster.x-k8s.io/paused": "true"}}, "spec": {},
        });
        Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Ends the claim, as the controllers do.
    pub(crate) async fn release(&self, host: &str) -> Result<()> {
        self.patch(host, json!({"spec": {"claim": null, "bootstrapSecret": null, "installationSecret": null}})).await
    }

    pub(crate) async fn patch(&self, host: &str, patch: Value) -> Result<()> {
        let params = PatchParams { field_manager: Some("test".to_owned()), ..PatchParams::default() };
        self.hosts().patch(host, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }
}

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    let wait = async {
        while !is() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.with_context(|| format!("{what}: waited for in vain"))
}

pub(crate) fn byoh(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta1", "ByoHost");
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// `spec` of a claim in tlsBootstrap mode.
pub(crate) fn tls(secret: &str) -> Value {
    json!({"joinMode": "tlsBootstrap", "bootstrapSecret": {"kind": "Secret", "name": secret, "namespace": "default"}})
}

/// The same in kubeadm mode.
pub(crate) fn kubeadm(secret: &str) -> Value {
    json!({"joinMode": "kubeadm", "bootstrapSecret": {"kind": "Secret", "name": secret, "namespace": "default"}})
}

pub(crate) fn start(machine: &Machine, words: &[String]) -> Result<Process> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    machine.spawn("agent", Path::new(AGENT), &words)
}

/// A machine with its agent.
pub(crate) struct Host {
    pub(crate) agent: Process,
    pub(crate) machine: Machine,
    pub(crate) entry: Vec<String>,
}

impl Host {
    /// Starts the agent again, with the command line of its first start.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.agent = start(&self.machine, &self.entry)?;
        Ok(())
    }

    /// Pulls the plug and boots again; the agent starts as its service would.
    pub(crate) fn reboot(&mut self) -> Result<()> {
        self.machine.power_off();
        let _ = self.agent.wait_within(Duration::from_secs(10))?;
        self.machine.boot()?;
        self.restart()
    }

    /// What is on the disk beside what was there before, the agent's own state apart.
    pub(crate) fn changes(&self) -> Result<Vec<String>> {
        let changes = self.machine.changes()?.into_iter().map(|change| change.path.display().to_string());
        let own = ["opt/stand-in", "opt/bin", "var/lib/millpond-agent", "etc/machine-id"];
        Ok(changes.filter(|path| *path != "opt" && !own.iter().any(|own| path.starts_with(own))).collect())
    }
}
