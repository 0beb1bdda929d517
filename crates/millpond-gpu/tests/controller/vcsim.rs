//! With govmomi's own simulator of vCenter.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use millpond_gpu::controller::Options;
use millpond_gpu::credentials::Sources;
use millpond_testkit::real::{Part, Parts};
use millpond_testkit::{Process, Scratch, free_port};
use millpond_vsphere::live::Wanted;
use millpond_vsphere::settings::{Settings, Trust};
use millpond_vsphere::{Freshness, Inventory, Live, Reference};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;

/// A password that XML has to escape.
const PASSWORD: &str = "a<&\"b>c'd";

struct Vcsim {
    _process: Process,
    scratch: Scratch,
    port: u16,
    control: u16,
}

impl Vcsim {
    /// Four hosts with a machine each.
    fn start() -> Result<Self> {
        let parts = Parts::ensure_each(&[Part::VCSIM])?;
        let (scratch, port, control) = (Scratch::new("gpu-vcsim")?, free_port()?, free_port()?);
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let (cert_file, key_file) = (scratch.path().join("vc.crt"), scratch.path().join("vc.key"));
        std::fs::write(&cert_file, certificate.pem())?;
        std::fs::write(&key_file, key.serialize_pem())?;
        let mut command = Command::new(parts.path(&Part::VCSIM)?);
        command
            .args(["-listen", &format!("127.0.0.1:{port}"), "-control", &format!("127.0.0.1:{control}")])
            .args(["-hosts", "4", "-vms", "4", "-user", "root", "-password", PASSWORD])
            .arg("-cert")
            .arg(&cert_file)
            .arg("-key")
            .arg(&key_file);
        let process = Process::spawn(Part::VCSIM.name, &mut command, scratch.path())?;
        Ok(Self { _process: process, scratch, port, control })
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let address = format!("127.0.0.1:{}", self.port);
        let values = [("GOVMOMI_URL", address.as_str()), ("GOVMOMI_USERNAME", "root"), ("GOVMOMI_PASSWORD", PASSWORD)];
        values.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    /// Changes an object of the simulator.
    fn change(&self, what: &str, object: &Reference, value: &str) -> Result<()> {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.control)).context("reach the control listener")?;
        let id = &object.id;
        write!(stream, "GET /{what}?id={id}&value={value} HTTP/1.0\r\nHost: vcsim\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        Ok(())
    }

    /// What it has, by a client of its own.
    async fn inventory(&self) -> Result<Inventory> {
        let environment = self.environment();
        let trust = Trust::CaFile(self.scratch.path().join("vc.crt"));
        let settings = Settings::read(|name| environment.get(name).cloned(), &trust)?;
        let (live, stop) = (Live::new(Arc::new(jiff::Timestamp::now)), CancellationToken::new());
        let (_wanted, receiver) = watch::channel(Wanted::Use(settings));
        let running = tokio::spawn(Arc::clone(&live).run(receiver, stop.clone()));
        let mut changes = live.changes();
        while !live.read(|state| state.freshness == Freshness::Fresh) {
            changes.changed().await?;
        }
        stop.cancel();
        running.await?;
        Ok(live.read(|state| state.inventory.clone()))
    }
}

#[tokio::test]
#[ignore = "needs Go to build vcsim"]
async fn real_vcsim_decides_where_a_job_goes() -> Result<()> {
    let vcsim = Vcsim::start()?;
    let inventory = vcsim.inventory().await?;
    let mut cluster = Cluster::start().await;
    let (mut hosts, mut machines) = (BTreeMap::new(), BTreeMap::new());
    for (at, (reference, vm)) in inventory.vms.iter().enumerate() {
        let (name, host) = (format!("worker-{at}"), vm.host.clone().context("a machine has a host")?);
        cluster.node(&name, 1, json!({"spec": {"providerID": format!("vsphere://{}", vm.uuid)}})).await;
        hosts.insert(name.clone(), host);
        machines.insert(name, reference.clone());
    }
    ensure!(hosts.len() == 4, "{hosts:?}");
    let ca_file = Some(vcsim.scratch.path().join("vc.crt"));
    let sources = Sources { environment: vcsim.environment(), ca_file, ..Sources::default() };
    cluster.run(Options { sources, ..Options::default() });
    cluster.ask("gpuinfo-sample", json!({"desAccTime": 100, "gpuRequired": true})).await;
    let first = cluster.until_reason("gpuinfo-sample", "Ready", "NodeFound").await;
    let node = first.suitable_node_name.clone();
    let host = &hosts[&node];
    ensure!(first.suitable_host_name == inventory.hosts[host].name, "{first:?}");
    for mode in ["maintenance", "quarantine"] {
        vcsim.change(mode, host, "true")?;
        let moved = cluster
            .until("gpuinfo-sample", mode, |status| {
                status.rejected.iter().any(|one| one.node == node && one.reason == "InMaintenance")
            })
            .await;
        ensure!(moved.suitable_node_name != node, "{moved:?}");
        vcsim.change(mode, host, "false")?;
        let back = |status: &millpond_api::gpu_info::GPUInfoStatus| {
            status.candidates.iter().any(|candidate| candidate.node == node)
        };
        cluster.until("gpuinfo-sample", "the end of it", back).await;
    }
    // Nothing tells of quick statistics: they are asked for.
    vcsim.change("stats", &machines[&node], "4321")?;
    let measured = |status: &millpond_api::gpu_info::GPUInfoStatus| {
        status.candidates.iter().any(|candidate| candidate.node == node && candidate.cpu_demand == 4321)
    };
    let moved = cluster.until("gpuinfo-sample", "its CPU demand", measured).await;
    ensure!(moved.suitable_node_name != node, "another node has less demand: {moved:?}");
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(50);
    vcsim.change("schedule", host, &soon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())?;
    let short = |status: &millpond_api::gpu_info::GPUInfoStatus| {
        status.rejected.iter().any(|one| one.reason == "TimeTooShort" && one.message.starts_with("49 of 100 hours"))
    };
    cluster.until("gpuinfo-sample", "a scheduled task", short).await;
    cluster.halt().await;
    Ok(())
}
