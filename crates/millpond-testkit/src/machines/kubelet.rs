//! A stand-in for kubelet: its certificate signing request, its Node, its heartbeats, and what it leaves on a disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use super::ARGUMENTS;
use crate::kubeconfig::{Access, client, write_private};

/// Time between two heartbeats of a Node.
const HEARTBEAT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The flags of kubelet, by name.
struct Flags(BTreeMap<String, String>);

impl Flags {
    fn read() -> Result<Self> {
        let text = std::env::var(ARGUMENTS).context("the stand-in has no arguments")?;
        let mut words = text.lines();
        if words.next() != Some("kubelet") {
            bail!("there is a stand-in for kubelet only");
        }
        let flag = |word: &str| {
            let (name, value) = word.trim_start_matches("--").split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Ok(Self(words.filter_map(flag).collect()))
    }

    fn get(&self, name: &str) -> Result<&str> {
        self.0.get(name).map(String::as_str).with_context(|| format!("kubelet needs --{name}"))
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flat_map(|text| text.split(',')).filter(|part| !part.is_empty())
    }
}

/// Runs until it is killed.
pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(serve(&Flags::read()?))
}

async fn serve(flags: &Flags) -> Result<()> {
    let name = flags.get("hostname-override")?;
    let kubeconfig = Path::new(flags.get("kubeconfig")?);
    if !kubeconfig.exists() {
        bootstrap(name, Path::new(flags.get("bootstrap-kubeconfig")?), kubeconfig).await?;
    }
    let client = client(kubeconfig).await?;
    litter()?;
    // Kubelet's own server, of which only the port counts.
    let _listener = std::net::TcpListener::bind("0.0.0.0:10250").context("listen on kubelet's port")?;
    register(&client, flags, name).await?;
    loop {
        // A heartbeat that fails is tried again with the next one, as kubelet does.
        let _ = beat(&client, name).await;
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// Gets a certificate with the bootstrap kubeconfig, and keeps it.
async fn bootstrap(name: &str, bootstrap: &Path, kubeconfig: &Path) -> Result<()> {
    let key = KeyPair::generate().context("make a key")?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{name}"));
    let pem = params.serialize_request(&key).and_then(|request| request.pem()).context("make a request")?;
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": "node-csr-"},
        "spec": {
            "request": BASE64.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))
    .context("write a request")?;
    let api: Api<CertificateSigningRequest> = Api::all(client(bootstrap).await?);
    let created = api.create(&PostParams::default(), &request).await.context("ask for a certificate")?;
    let certificate = loop {
        let request = api.get(&created.name_any()).await.context("wait for the certificate")?;
        let status = request.status.unwrap_or_default();
        if let Some(denied) = status.conditions.into_iter().flatten().find(|one| one.type_ != "Approved") {
            bail!("the certificate is denied: {}", denied.message.unwrap_or_default());
        }
        if let Some(certificate) = status.certificate {
            break String::from_utf8(certificate.0).context("read the certificate")?;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    let access =
        Access { token: None, client_pem: Some((certificate, key.serialize_pem())), ..Access::read(bootstrap)? };
    // Written atomically, because kubeadm waits for it.
    let new = kubeconfig.with_extension("new");
    access.write(&new)?;
    std::fs::rename(&new, kubeconfig).context("keep the kubeconfig")
}

/// Leaves files as a kubelet does, with a mounted volume.
fn litter() -> Result<()> {
    let kubelet = Path::new("/var/lib/kubelet");
    for folder in ["plugins", "device-plugins", "pods/0001/volumes/kubernetes.io~empty-dir/cache"] {
        std::fs::create_dir_all(kubelet.join(folder)).context("make kubelet's folders")?;
    }
    write_private(&kubelet.join("cpu_manager_state"), b"{}")?;
    std::fs::create_dir_all("/var/lib/cni/networks").context("make CNI's folder")?;
    let volume = kubelet.join("pods/0001/volumes/kubernetes.io~empty-dir/cache");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&volume).status().context("mount a volume")?;
    if !mounted.success() {
        bail!("a volume cannot be mounted");
    }
    std::fs::write(volume.join("data"), "of a pod").context("write into a volume")
}

async fn register(client: &Client, flags: &Flags, name: &str) -> Result<()> {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), name.to_owned()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
    ]);
    let pairs = flags.list("node-labels").filter_map(|label| label.split_once('='));
    labels.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let taint = |text: &str| -> Option<Value> {
        let (rest, effect) = text.rsplit_once(':')?;
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        Some(json!({"key": key, "value": value, "effect": effect}))
    };
    let taints: Vec<Value> = flags.list("register-with-taints").filter_map(taint).collect();
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": flags.get("provider-id").unwrap_or_default(), "taints": taints},
    }))
    .context("write a Node")?;
    let api: Api<Node> = Api::all(client.clone());
    match api.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error).context("register the Node"),
    }
    let (cpus, gpus) = (std::thread::available_parallelism().map_or(1, usize::from), gpus());
    let mut capacity = json!({"cpu": cpus.to_string(), "memory": "8Gi", "pods": "110", "ephemeral-storage": "10Gi"});
    if gpus > 0 {
        capacity["nvidia.com/gpu"] = gpus.to_string().into();
    }
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let status = json!({"status": {
        "capacity": capacity, "allocatable": capacity,
        "addresses": [{"type": "InternalIP", "address": address()?}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "stand-in://1", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "", "operatingSystem": "linux",
            "osImage": "", "systemUUID": "",
        },
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
    }});
    let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await;
    patched.map(drop).context("write the status of the Node")
}

/// GPUs on the PCI bus, which a device plugin would advertise.
fn gpus() -> usize {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let is_gpu = |path: &Path| {
        let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        read("class").starts_with("0x0302") && read("vendor").starts_with("0x10de")
    };
    devices.filter(|device| is_gpu(&device.path())).count()
}

fn address() -> Result<String> {
    let output = Command::new("ip").args(["-4", "-o", "addr", "show", "eth0"]).output().context("run ip")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let address = text.split_whitespace().nth(3).and_then(|address| address.split('/').next());
    address.map(str::to_owned).context("eth0 has no address")
}

async fn beat(client: &Client, name: &str) -> Result<()> {
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(k8s_openapi::jiff::Timestamp::now());
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now});
    let patch = json!({"spec": spec});
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let lease = json!({"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec});
            let lease = serde_json::from_value(lease).context("write a Lease")?;
            api.create(&PostParams::default(), &lease).await.map(drop).context("create the Lease")
        }
        other => other.map(drop).context("renew the Lease"),
    }
}
