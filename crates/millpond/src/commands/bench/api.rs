//! `millpond bench api`: what the API server does in a second, and what it takes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::{Embedded, EmbeddedOptions};
use serde_json::{Value, json};

use super::load::{Target, node, pod, rate, watch_rate};
use super::report::{Goal, Report};

/// Arguments of `millpond bench api`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond bench api                            the embedded API, in process and over HTTPS
  millpond bench api --against ~/.kube/config   another server, the HTTPS part
  millpond bench api --objects 10000 -o json    smaller, for a program
  millpond bench api --bindings 1000            and what authorization costs with this many bindings

The other server gets a namespace of its own, `millpond-bench-…`, and nodes `millpond-bench-…`; both are deleted again.")]
pub(crate) struct ApiArgs {
    /// Measure the server of this kubeconfig instead of the embedded one
    #[arg(long, value_name = "KUBECONFIG")]
    against: Option<PathBuf>,
    /// Pods to list, to hold and to load again
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    objects: usize,
    /// Requests in each measurement of creates and gets
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    requests: usize,
    /// Watches that follow the same pods
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    watchers: usize,
    /// Bindings beside the one that gives the client of a further measurement its rights
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "against")]
    bindings: usize,
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(args: ApiArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let report = runtime.block_on(measure(&args))?;
    let text = match args.output {
        Output::Table => report.table(),
        Output::Json => format!("{:#}\n", report.json()),
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}

async fn measure(args: &ApiArgs) -> anyhow::Result<Report> {
    let mut report = Report::default();
    match &args.against {
        Some(kubeconfig) => wire(args, kubeconfig, &mut report).await?,
        None => {
            in_process(args, &mut report).await?;
            if args.bindings > 0 {
                authorized(args, &mut report).await?;
            }
            own_server(args, &mut report).await?;
        }
    }
    Ok(report)
}

/// Creates and gets at one and many in flight.
async fn requests(
    target: &Target,
    namespace: &str,
    args: &ApiArgs,
    label: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let in_process = matches!(target, Target::InProcess(_));
    for in_flight in [1, 256] {
        // Sequential requests take long on a slow server: a tenth of them gives the same rate.
        let total = if in_flight == 1 { args.requests / 10 } else { args.requests };
        let creates = {
            let (target, path) = (target.clone(), format!("/api/v1/namespaces/{namespace}/pods"));
            // Made before the clock runs: the server is measured, not the client.
            let bodies: Vec<Bytes> = (0..total).map(|number| pod(&format!("c{in_flight}-{number}"))).collect();
            rate(total, in_flight, move |number| {
                let (target, path, body) = (target.clone(), path.clone(), bodies[number].clone());
                async move { target.send(Method::POST, &path, body).await.map(drop) }
            })
            .await?
        };
        let goal = (in_process && in_flight == 256).then_some(Goal::AtLeast(20_000.0));
        report.add(format!("creates, {label}, {in_flight} in flight"), creates, "1/s", goal);
        let gets = {
            let (target, path) = (target.clone(), format!("/api/v1/namespaces/{namespace}/pods/c{in_flight}-"));
            rate(total * 2, in_flight, move |number| {
                let (target, path) = (target.clone(), format!("{path}{}", number % total));
                async move { target.send(Method::GET, &path, Bytes::new()).await.map(drop) }
            })
            .await?
        };
        let goal = (in_process && in_flight == 256).then_some(Goal::AtLeast(100_000.0));
        report.add(format!("gets, {label}, {in_flight} in flight"), gets, "1/s", goal);
    }
    Ok(())
}

async fn make_namespace(target: &Target, name: &str) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
    target.send(Method::POST, "/api/v1/namespaces", namespace.into()).await.map(drop)
}

async fn in_process(args: &ApiArgs, report: &mut Report) -> anyhow::Result<()> {
    let directory = Scratch::new()?;
    let embedded = Embedded::start(EmbeddedOptions::new(&directory.0)).await?;
    let target = Target::InProcess(embedded.service());
    make_namespace(&target, "bench").await?;
    requests(&target, "bench", args, "in process, durable", report).await?;
    make_namespace(&target, "watched").await?;
    let events = watch_rate(&target, args.watchers, 2_000, "watched").await?;
    report.add(
        format!("events delivered, in process, {} watchers", args.watchers),
        events,
        "1/s",
        Some(Goal::AtLeast(300_000.0)),
    );
    embedded.stop().await;
    Ok(())
}

/// The same requests by an administrator, who needs no rule, and by a user whose rights come from one of many bindings.
async fn authorized(args: &ApiArgs, report: &mut Report) -> anyhow::Result<()> {
    let directory = Scratch::new()?;
    let embedded = Embedded::start(EmbeddedOptions::new(&directory.0)).await?;
    let administrator = Target::InProcess(embedded.service());
    for object in rights(args.bindings) {
        let collection = match object["kind"].as_str() {
            Some("ClusterRole") => "clusterroles",
            _ => "clusterrolebindings",
        };
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{collection}");
        administrator.send(Method::POST, &path, object.to_string().into()).await?;
    }
    let user = Target::InProcess(embedded.service_for(Identity::new("bench".to_owned(), Vec::new())));
    for (namespace, target, label) in [
        ("administrator", &administrator, "in process, system:masters".to_owned()),
        ("user", &user, format!("in process, by one of {} bindings", args.bindings + 1)),
    ] {
        make_namespace(&administrator, namespace).await?;
        requests(target, namespace, args, &label, report).await?;
    }
    embedded.stop().await;
    Ok(())
}

/// A role, `bindings` bindings of it to other users, and one to the benchmark's user, whose name is in the middle.
fn rights(bindings: usize) -> Vec<Value> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let version = format!("{GROUP}/v1");
    let bind = |name: &str, user: &str| {
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "bench"},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
        })
    };
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get"]}]);
    let mut all =
        vec![json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "bench"}, "rules": rules})];
    all.extend((0..bindings).map(|number| bind(&format!("bench-{number}"), &format!("user-{number}"))));
    all.push(bind("bench", "bench"));
    all
}

/// The same program as a server of its own, so that memory and start-up are those of the server alone.
async fn own_server(args: &ApiArgs, report: &mut Report) -> anyhow::Result<()> {
    let directory = Scratch::new()?;
    let started = Instant::now();
    let server = ServerProcess::start(&directory.0).await?;
    report.add(
        "ready after start, empty store",
        started.elapsed().as_secs_f64() * 1e3,
        "ms",
        Some(Goal::AtMost(200.0)),
    );
    report.add("memory, idle", server.memory_mb()?, "MB", Some(Goal::AtMost(40.0)));
    wire(args, &directory.0.join("kubeconfig"), report).await?;
    server.stop()?;
    let directory = Scratch::new()?;
    let server = ServerProcess::start(&directory.0).await?;
    fill(&wire_target(&directory.0.join("kubeconfig")).await?, args.objects).await?;
    report.add(
        format!("memory, {} pods and {} nodes", args.objects, args.objects / 10),
        server.memory_mb()?,
        "MB",
        (args.objects == 100_000).then_some(Goal::AtMost(600.0)),
    );
    server.stop()?;
    let started = Instant::now();
    let server = ServerProcess::start(&directory.0).await?;
    report.add(
        format!("ready after start, {} objects", args.objects + args.objects / 10),
        started.elapsed().as_secs_f64(),
        "s",
        (args.objects == 100_000).then_some(Goal::AtMost(3.0)),
    );
    let target = wire_target(&directory.0.join("kubeconfig")).await?;
    let started = Instant::now();
    let bytes = target.send(Method::GET, "/api/v1/pods", Bytes::new()).await?;
    report.add(
        format!("list of {} pods ({} MB), HTTPS", args.objects, bytes / 1_000_000),
        started.elapsed().as_secs_f64(),
        "s",
        (args.objects == 100_000).then_some(Goal::AtMost(1.0)),
    );
    server.stop()
}

async fn fill(target: &Target, pods: usize) -> anyhow::Result<()> {
    make_namespace(target, "held").await?;
    let to = target.clone();
    rate(pods, 256, move |number| {
        let target = to.clone();
        async move { target.send(Method::POST, "/api/v1/namespaces/held/pods", pod(&format!("p{number}"))).await.map(drop) }
    })
    .await?;
    let to = target.clone();
    rate(pods / 10, 256, move |number| {
        let target = to.clone();
        async move { target.send(Method::POST, "/api/v1/nodes", node(&format!("n{number}"))).await.map(drop) }
    })
    .await?;
    Ok(())
}

async fn wire_target(kubeconfig: &Path) -> anyhow::Result<Target> {
    let parsed = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    Ok(Target::Wire(kube::Client::try_from(config)?))
}

async fn wire(args: &ApiArgs, kubeconfig: &Path, report: &mut Report) -> anyhow::Result<()> {
    let target = wire_target(kubeconfig).await?;
    let namespace = format!("millpond-bench-{}", std::process::id());
    make_namespace(&target, &namespace).await?;
    let result = requests(&target, &namespace, args, "HTTPS", report).await;
    let watched = format!("{namespace}-watched");
    make_namespace(&target, &watched).await?;
    // Sockets cost more than watches: fewer of them over the wire.
    let watchers = args.watchers.min(100);
    let events = watch_rate(&target, watchers, 1_000, &watched).await?;
    report.add(format!("events delivered, HTTPS, {watchers} watchers"), events, "1/s", None);
    for namespace in [namespace, watched] {
        let path = format!("/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0");
        target.send(Method::DELETE, &path, Bytes::new()).await?;
        target.send(Method::DELETE, &format!("/api/v1/namespaces/{namespace}"), Bytes::new()).await?;
    }
    result
}

/// A directory that is removed again.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> anyhow::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("millpond-bench-{}-{:x}", std::process::id(), rand::random::<u32>()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `millpond up` as a process of its own.
pub(super) struct ServerProcess {
    child: Child,
}

impl ServerProcess {
    /// `up --bare`.
    async fn start(directory: &Path) -> anyhow::Result<Self> {
        Self::start_with(directory, &["--bare"]).await
    }

    /// `up` with these flags.
    pub(super) async fn start_with(directory: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let kubeconfig = directory.join("kubeconfig");
        let _ = std::fs::remove_file(&kubeconfig);
        let program = std::env::current_exe().context("cannot find this program")?;
        let child = Command::new(program)
            .arg("up")
            .args(flags)
            .args(["--port", "0", "--data-dir"])
            .arg(directory)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the server")?;
        let mut server = Self { child };
        // The kubeconfig is written once the server answers.
        while !kubeconfig.exists() {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(server)
    }

    /// Memory of the process, in megabytes.
    fn memory_mb(&self) -> anyhow::Result<f64> {
        memory_mb(self.id())
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        let status = Command::new("kill").arg(self.child.id().to_string()).status()?;
        if !status.success() {
            bail!("cannot stop the server");
        }
        self.child.wait()?;
        Ok(())
    }
}

/// What a process holds in memory, in megabytes.
pub(super) fn memory_mb(process: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0 / 1e6)
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
