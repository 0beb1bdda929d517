//! `millpond bench gpu`: how soon answers to GPU jobs follow a large vCenter.
//!
//! A fake vCenter in this process has hosts with GPUs and virtual machines, of which some are nodes of an embedded cluster.
//! What is timed: the first inventory, and from a host that enters maintenance to the status that names another node.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use millpond_apiserver::{Embedded, EmbeddedOptions};
use millpond_gpu::controller::{self, Options};
use millpond_gpu::credentials::Sources;
use millpond_gpu::kinds::GPUInfo;
use millpond_vsphere::fake::{FakeVCenter, HostShape, Options as FakeOptions, Passthrough, VmShape};
use millpond_vsphere::live::Wanted;
use millpond_vsphere::{Freshness, Live, Reference};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::memory_mb;
use super::report::{Goal, Report};
use crate::commands::kinds;

/// Requests that are under way while objects are made.
const IN_FLIGHT: usize = 64;
/// A step that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(2);
const JOB: &str = "job";

/// Arguments of `millpond bench gpu`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench gpu                                a thousand hosts, twenty thousand virtual machines
  millpond bench gpu --hosts 100 --machines 2000    a tenth of it")]
pub(crate) struct GpuBenchArgs {
    /// ESXi hosts, each with two GPUs
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    hosts: u32,
    /// Virtual machines
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    machines: u32,
    /// Virtual machines that are nodes of the cluster, each with one GPU; at most two a host
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    nodes: u32,
    /// Hosts that enter maintenance, one after the other
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    updates: u32,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: &GpuBenchArgs) -> anyhow::Result<()> {
    ensure!(args.nodes <= args.machines && args.nodes <= 2 * args.hosts, "a host has GPUs for two nodes");
    ensure!(args.updates < args.hosts.min(args.nodes), "each update takes a host with a node away");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let report = runtime.block_on(measure(args))?;
    std::io::stdout().write_all(report.table().as_bytes()).context("cannot write to stdout")
}

/// The fake vCenter with the host of each machine.
struct Site {
    vcenter: FakeVCenter,
    hosts: Vec<Reference>,
}

fn uuid(machine: u32) -> String {
    format!("420f1d2c-3b4a-5968-7786-{machine:012}")
}

fn node_name(machine: u32) -> String {
    format!("worker-{machine:05}")
}

impl Site {
    /// Machines are dealt out over the hosts; the first ones are the nodes.
    async fn start(args: &GpuBenchArgs) -> anyhow::Result<Self> {
        let vcenter = FakeVCenter::start(FakeOptions::default()).await.context("cannot start the fake vCenter")?;
        let host = |at: u32| vcenter.add_host(&HostShape::new(&format!("esxi-{at:04}.example.com")).with_t4(2));
        let hosts: Vec<Reference> = (0..args.hosts).map(host).collect();
        for machine in 0..args.machines {
            let card = |slot: u32| Passthrough::Fixed(format!("0000:{:02x}:00.0", 0x3b + slot), 0x10de, 0x1eb8);
            vcenter.add_vm(&VmShape {
                passthrough: (machine < args.nodes).then(|| card(machine / args.hosts)).into_iter().collect(),
                // Differences above what an answer ignores: each update has one best node.
                cpu_demand_mhz: 500 * i64::from(machine),
                guest_memory_mib: 4096,
                ..VmShape::new(&node_name(machine), &uuid(machine), &hosts[(machine % args.hosts) as usize])
            });
        }
        Ok(Self { vcenter, hosts })
    }

    /// Time until the inventory is complete, for a client of its own.
    async fn first_inventory(&self) -> anyhow::Result<Duration> {
        let (live, stop) = (Live::new(Arc::new(jiff::Timestamp::now)), CancellationToken::new());
        let (_wanted, receiver) = watch::channel(Wanted::Use(self.vcenter.settings()));
        let mut changes = live.changes();
        let begun = Instant::now();
        let running = tokio::spawn(Arc::clone(&live).run(receiver, stop.clone()));
        let fresh = async {
            while !live.read(|state| state.freshness == Freshness::Fresh) && changes.changed().await.is_ok() {}
        };
        tokio::time::timeout(PATIENCE, fresh).await.context("the inventory did not come")?;
        let taken = begun.elapsed();
        stop.cancel();
        running.await.context("the inventory failed")?;
        Ok(taken)
    }

    fn options(&self) -> Options {
        let settings = self.vcenter.settings();
        let password = FakeOptions::default().password;
        let values =
            [("GOVMOMI_URL", self.vcenter.url()), ("GOVMOMI_USERNAME", settings.user), ("GOVMOMI_PASSWORD", password)];
        let environment = values.map(|(name, value)| (name.to_owned(), value)).into();
        Options { sources: Sources { environment, ..Sources::default() }, ..Options::default() }
    }
}

async fn measure(args: &GpuBenchArgs) -> anyhow::Result<Report> {
    let site = Site::start(args).await?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let embedded = Embedded::start(EmbeddedOptions::new(directory.path())).await.context("cannot start the API")?;
    let client = Client::new(embedded.service(), "default");
    kinds::install(&client).await?;
    make_nodes(&client, args.nodes).await.context("cannot make the nodes")?;
    let infos = Api::<GPUInfo>::default_namespaced(client.clone());
    let spec = serde_json::from_value(json!({"desAccTime": 100, "gpuRequired": true}))?;
    let mut job = GPUInfo::new(Default::default(), spec);
    job.metadata.name = Some(JOB.to_owned());
    infos.create(&PostParams::default(), &job).await.context("cannot make the GPUInfo")?;

    let before = memory_mb()?;
    let stop = CancellationToken::new();
    let begun = Instant::now();
    let tasks = controller::start(&client, site.options(), &stop);
    until_node(&infos, 0).await?;
    let first_answer = begun.elapsed();
    let mut updates = Vec::new();
    for update in 0..args.updates {
        let begun = Instant::now();
        site.vcenter.set_maintenance(&site.hosts[update as usize], true);
        until_node(&infos, update + 1).await?;
        updates.push(begun.elapsed());
    }
    let memory = memory_mb()? - before;
    stop.cancel();
    tasks.wait().await;
    let inventory = site.first_inventory().await?;
    embedded.stop().await;

    updates.sort_unstable();
    let is_goal = args.hosts >= 1_000 && args.machines >= 20_000;
    let goal = |most: f64| is_goal.then_some(Goal::AtMost(most));
    let mut report = Report::default();
    report.add("first inventory", inventory.as_secs_f64(), "s", goal(3.0));
    report.add("first answer, from the start of the controller", first_answer.as_secs_f64(), "s", None);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    report.add("maintenance to status, median", milliseconds(updates[updates.len() / 2]), "ms", goal(100.0));
    report.add("maintenance to status, worst", milliseconds(updates[updates.len() - 1]), "ms", goal(100.0));
    report.add("memory of the controller with its inventory", memory, "MB", goal(200.0));
    Ok(report)
}

/// Waits until this node is the answer.
async fn until_node(infos: &Api<GPUInfo>, machine: u32) -> anyhow::Result<()> {
    let name = node_name(machine);
    let is_answer = |info: Option<&GPUInfo>| {
        info.and_then(|info| info.status.as_ref()).is_some_and(|status| status.suitable_node_name == name)
    };
    let answered = tokio::time::timeout(PATIENCE, await_condition(infos.clone(), JOB, is_answer));
    answered.await.with_context(|| format!("{name} did not become the answer"))??;
    Ok(())
}

async fn make_nodes(client: &Client, nodes: u32) -> anyhow::Result<()> {
    let api = Api::<Node>::all(client.clone());
    let make = |machine: u32| {
        let (api, name) = (api.clone(), node_name(machine));
        async move {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {"providerID": format!("vsphere://{}", uuid(machine))},
            }))?;
            api.create(&PostParams::default(), &node).await?;
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(node_status())).await?;
            anyhow::Ok(())
        }
    };
    stream::iter((0..nodes).map(make)).buffer_unordered(IN_FLIGHT).try_collect::<Vec<()>>().await?;
    Ok(())
}

fn node_status() -> Value {
    let capacity = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"});
    json!({"status": {
        "capacity": capacity, "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
    }})
}
