//! `millpond up`: the embedded control plane in one command.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use millpond_apiserver::auth::Identity;
use millpond_apiserver::pki::PkiError;
use millpond_apiserver::store::log::OpenError;
use millpond_apiserver::{Embedded, EmbeddedOptions, IdleKind, LifecycleOptions, StartError};
use millpond_controllers::cluster::{Options as ControllerOptions, Urgent};
use millpond_hosts::stock::ApiServer;
use millpond_providers::sim::Cloud;
use millpond_runtime::history::History;
use millpond_runtime::panics;
use millpond_sim::demo::{self, DemoOptions};
use millpond_sim::options::Providers;
use millpond_sim::{Nodes, Options, Part, StandIns};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::autoscaler_pod;
use super::dashboard::{self, DashboardArgs};
use super::dialects::ci::CiDialectArgs;
use super::dialects::fake_vcenter;
use super::dialects::gpu::GpuArgs;
use super::history::FOLDER;
use super::identities;
use super::lead::{self, CloudLocation, ControllerRunner, ElectionResult};
use super::node_groups::NodeGroupArgs;
use super::store::open_code;
use super::threads::{self, OF_STAND_INS, Threads};
use crate::failure::{Code, Failure};

/// Arguments of `millpond up`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond up                               durable, under the default data directory
  millpond up --memory --demo               in memory only, with a demo
  millpond up --data-dir ./data --port 0    another place, any free port
  millpond up --bare                        the API alone, for controllers of your own
  millpond up --ci-config nodepool.yaml     CI nodes for NodeRequests, with no ZooKeeper")]
pub(crate) struct UpArgs {
    /// Directory of the store, the certificates and the kubeconfig
    #[arg(long, value_name = "DIR", env = "MILLPOND_DATA_DIR", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// Port of the Kubernetes API; 0 takes a free one
    #[arg(long, value_name = "PORT", env = "MILLPOND_PORT", default_value_t = 6443)]
    port: u16,
    /// Address to listen on; beyond loopback clients still need TLS and a token or certificate
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// Keep all objects in memory only; they are gone when it stops
    #[arg(long)]
    memory: bool,
    /// The API alone, as kube-apiserver is: no stand-ins, no garbage collector, no controllers
    #[arg(long, conflicts_with = "demo")]
    bare: bool,
    /// Add two pools and workloads that move: nodes come and go with them
    #[arg(long)]
    demo: bool,
    /// Tell in ScalingAdvice what would be done for pods, and change no node
    #[arg(long, conflicts_with_all = ["bare", "demo"])]
    advise: bool,
    /// Append one JSON line per request to this file
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    #[command(flatten)]
    node_groups: NodeGroupArgs,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Start a fake vCenter with four hosts, whose virtual machines are nodes: for GPUInfos
    #[arg(long, conflicts_with_all = ["bare", "advise"])]
    fake_vcenter: bool,
    #[command(flatten)]
    ci: CiDialectArgs,
    #[command(flatten)]
    dashboard: DashboardArgs,
}

/// The image of launchers and builders of SoftwareFactory objects: nothing runs it here but stand-ins.
const CI_IMAGE: &str = "millpond";

/// `/readyz` names this while Millpond's own kinds are not served yet.
const KINDS_GATE: &str = "millpond-kinds";

/// Kinds that no stand-in plays the controller of.
const IDLE_KINDS: &[IdleKind] = &[
    IdleKind {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        warning: "no controller of HorizontalPodAutoscalers runs here: replicas stay as they are",
    },
    IdleKind {
        group: "batch",
        kind: "CronJob",
        warning: "no controller of CronJobs runs here: no Job will be created",
    },
    IdleKind {
        group: "networking.k8s.io",
        kind: "Ingress",
        warning: "no ingress controller runs here: the Ingress has no effect",
    },
    IdleKind {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        warning: "no network plugin runs here: the NetworkPolicy has no effect",
    },
];

/// The default of `--data-dir`.
pub(crate) fn default_data_dir() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    base.unwrap_or_else(std::env::temp_dir).join("millpond")
}

/// Runs until Ctrl-C or SIGTERM.
pub(crate) fn run(mut args: UpArgs) -> anyhow::Result<()> {
    // People copy what is printed into another terminal, in another folder.
    millpond_apiserver::serve::raise_open_files();
    args.data_dir = std::path::absolute(&args.data_dir).context("cannot tell where the data directory is")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let (threads, of_stand_ins) = (Threads::of_embedded()?, threads::of_stand_ins()?);
    runtime.block_on(up(args, &threads, of_stand_ins.handle()))
}

async fn up(args: UpArgs, threads: &Threads, of_stand_ins: &Handle) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let ci = args.ci.options()?;
    // A port that is taken fails the start before anything is written.
    let ui = if args.bare { None } else { args.dashboard.bind().await? };
    let mut options = EmbeddedOptions::new(&args.data_dir);
    options.memory = args.memory;
    options.address = args.bind;
    options.port = args.port;
    options.lifecycle = LifecycleOptions { controllers: !args.bare };
    options.server.audit_log.clone_from(&args.audit_log);
    if !args.bare {
        options.server.readiness_gates.push(KINDS_GATE.to_owned());
        options.server.idle_kinds.extend_from_slice(IDLE_KINDS);
    }
    let embedded = Embedded::start(options).await.map_err(|problem| explain(problem, &args))?;
    let stop = CancellationToken::new();
    let client = kube::Client::new(embedded.service(), "default");
    if !args.bare {
        super::kinds::install(&client).await?;
        super::rights::install(&client).await?;
        identities::install(&client).await?;
    }
    let fake_vcenter = if args.fake_vcenter { Some(fake_vcenter::start(&client).await?) } else { None };
    // A client for each: within one, requests wait in line.
    let own_client = |threads: &Handle, identity: Identity| {
        let _theirs = threads.enter();
        kube::Client::new(embedded.service_for(identity), "default")
    };
    let stand_ins = (!args.bare).then(|| {
        let client = own_client(of_stand_ins, identities::stand_ins());
        of_stand_ins.spawn(keep_stand_ins(client, stop.clone()))
    });
    let history = history(&args);
    let options = ControllerOptions {
        advise: args.advise,
        history: history.clone(),
        node_groups: args.node_groups.options(),
        urgent: Some(Urgent {
            client: own_client(threads.urgent(), identities::controller()),
            threads: threads.urgent().clone(),
        }),
        ..ControllerOptions::default()
    };
    let (mut crew, mut standing) = (None, ElectionResult::Leads);
    let mut served = None;
    if !args.bare {
        let of_controllers = own_client(threads.controllers(), identities::controller());
        let mut office = ControllerRunner::new(of_controllers, cloud(&args), options);
        office.dialects.gpu = args.gpu.options(lead::NAMESPACE);
        office.dialects.hosts.api_server = Some(api_server(&args, &embedded)?);
        office.dialects.ci.clone_from(&ci);
        office.dialects.ci_image = Some(args.ci.image().unwrap_or_else(|| CI_IMAGE.to_owned()));
        let monitor = office.monitor();
        let log = monitor.clone();
        if let Some(listener) = ui {
            let shown = (monitor.clone(), history, args.advise);
            served = Some(dashboard::serve(&args.dashboard, listener, embedded.server(), shown, stop.clone())?);
        }
        embedded.server().add_metrics(move || monitor.metrics());
        embedded
            .server()
            .add_log_source(move |namespace, pod| autoscaler_pod::is_it(namespace, pod).then(|| log.node_group_log()));
        autoscaler_pod::ensure(&client).await?;
        let candidate = lead::embedded_candidate(own_client(threads.controllers(), identities::controller()));
        let (settled, candidate) = (office.settled(), candidate);
        let work = threads.controllers().spawn(office.lead(candidate, stop.clone()));
        crew = Some(work);
        match settled.await {
            Ok(found) => standing = found,
            // The task failed before it could report.
            Err(_) => return Err(failure(&mut crew).await),
        }
        // A controller that is started once the server is ready finds the leader.
        embedded.server().pass_readiness_gate(KINDS_GATE);
    }
    if args.demo {
        demo::set_scene(&client).await;
    }
    let demo = args.demo.then(|| tokio::spawn(demo::run(client, DemoOptions::default(), stop.clone())));
    let more = ci.as_ref().map(super::dialects::ci::CiOptions::greeting).unwrap_or_default();
    say(&greeting(&args, &embedded.address().to_string(), embedded.kubeconfig(), &more))?;
    if let Some(served) = &served {
        say(&format!("\nDashboard: {} (logs you in once, within ten minutes)\n", served.address))?;
    }
    if standing == ElectionResult::Waits {
        say("Another controller leads on this API; the ones in this process wait.\n")?;
    }
    tokio::select! {
        () = signals.next() => {}
        failed = failure(&mut crew) => return Err(failed),
    }
    say("\nStopping: requests in flight are answered first; Ctrl-C again ends at once.\n")?;
    stop.cancel();
    tokio::select! {
        () = wind_down(demo, crew, stand_ins, served.map(|served| served.serving), embedded) => {
            drop(fake_vcenter);
            say("Stopped.\n")
        }
        // Every answered write is on disk already.
        () = signals.next() => say("Ended at once.\n"),
    }
}

/// The wait before stand-ins are started anew; it doubles with each further panic.
const FIRST_RESTART: Duration = Duration::from_secs(1);
/// The longest wait before a restart.
const LONGEST_RESTART: Duration = Duration::from_mins(1);
/// Stand-ins of which one panicked are waited for so long.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// Controllers that run until they are stopped.
type Crew = JoinHandle<anyhow::Result<()>>;

/// Ends when controllers do without having been stopped.
async fn failure(crew: &mut Option<Crew>) -> anyhow::Error {
    let Some(crew) = crew else { return std::future::pending().await };
    let ended = crew.await.context("the controllers failed").flatten();
    ended.err().unwrap_or_else(|| anyhow::anyhow!("the controllers ended"))
}

async fn wind_down(
    demo: Option<JoinHandle<()>>,
    crew: Option<Crew>,
    stand_ins: Option<JoinHandle<()>>,
    dashboard: Option<JoinHandle<()>>,
    embedded: Embedded,
) {
    if let Some(dashboard) = dashboard {
        let _ = dashboard.await;
    }
    if let Some(demo) = demo {
        let _ = demo.await;
    }
    if let Some(crew) = crew {
        let _ = crew.await;
    }
    if let Some(stand_ins) = stand_ins {
        let _ = stand_ins.await;
    }
    embedded.stop().await;
}

/// The machines of the simulated cloud live as long as the objects do.
fn cloud(args: &UpArgs) -> CloudLocation {
    if args.memory {
        CloudLocation::Memory(Arc::new(Cloud::in_memory()))
    } else {
        CloudLocation::Directory(args.data_dir.clone())
    }
}

/// The decision history: it lives as long as the objects do. It is never worth failing for.
fn history(args: &UpArgs) -> History {
    let folder = args.data_dir.join(FOLDER);
    let opened = if args.memory { History::start_anew(&folder) } else { History::open(&folder) };
    opened.unwrap_or_else(|error| {
        let error = anyhow::Error::new(error);
        tracing::warn!(error = format!("{error:#}"), "the decision history is kept in memory only");
        History::in_memory()
    })
}

/// How own hosts reach the embedded API.
fn api_server(args: &UpArgs, embedded: &Embedded) -> anyhow::Result<ApiServer> {
    let certificate = args.data_dir.join("pki/ca.crt");
    let ca = std::fs::read(&certificate).with_context(|| format!("cannot read `{}`", certificate.display()))?;
    Ok(ApiServer { url: format!("https://{}", embedded.address()), ca })
}

/// Kinds of own hosts: their machines are real, and `millpond-hosts` looks after them.
const OWN_HOSTS: [&str; 3] = ["ByoMachine", "ByoCluster", "BootstrapKubeconfig"];

/// Runs stand-ins until they are stopped. When one of their tasks panics and nothing handles it, all of them are ended and
/// started anew; they are never given up, so that no object can stop the API that they play in.
async fn keep_stand_ins(client: kube::Client, stop: CancellationToken) {
    let mut strays = panics::strays(OF_STAND_INS);
    let mut wait = FIRST_RESTART;
    loop {
        let run = stop.child_token();
        let stand_ins = start_stand_ins(client.clone(), run.clone());
        let panic = tokio::select! {
            () = stop.cancelled() => return stand_ins.ended().await,
            panic = strays.next() => panic,
        };
        tracing::error!(panic, ?wait, "the stand-ins are started anew");
        run.cancel();
        // The remaining tasks may be blocked by the one that panicked.
        let _ = tokio::time::timeout(ENDED_WITHIN, stand_ins.ended()).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(LONGEST_RESTART);
    }
}

/// In embedded mode the stand-ins play every kubelet except those of own hosts, and turn Machines into nodes.
fn start_stand_ins(client: kube::Client, stop: CancellationToken) -> StandIns {
    let providers = Providers::AllBut(OWN_HOSTS.map(str::to_owned).to_vec());
    let options = Options { nodes: Nodes::All, providers, ..Options::default() };
    StandIns::builder(client).with_all(Part::CLUSTER_API).options(options).spawn(stop)
}

/// Turns a failed start into one line and advice.
fn explain(problem: StartError, args: &UpArgs) -> anyhow::Error {
    let failure = |message: String, code, hint: Option<&str>| Failure { message, code, hint: hint.map(str::to_owned) };
    let directory = args.data_dir.display();
    match problem {
        StartError::Store(OpenError::AlreadyOpen { process, .. }) => {
            let who = process.map_or_else(String::new, |id| format!(" (process {id})"));
            let message = format!("another millpond{who} runs on `{directory}`");
            failure(message, Some(Code::Conflict), Some("stop it, or choose another directory with `--data-dir`"))
                .into()
        }
        StartError::Store(problem) => {
            let failure = failure("cannot start".to_owned(), open_code(&problem), problem.hint());
            anyhow::Error::new(problem).context(failure)
        }
        StartError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            let hint = "choose another one with `--port`, or any free one with `--port 0`";
            failure(format!("port {} is in use", args.port), Some(Code::Conflict), Some(hint)).into()
        }
        StartError::Listen { address, source } => {
            let hint = match source.kind() {
                io::ErrorKind::PermissionDenied => "ports below 1024 belong to root: choose another one with `--port`",
                _ => "`--bind` takes an address of this machine",
            };
            let failure = failure(format!("cannot listen on {address}"), Code::of_io(&source), Some(hint));
            anyhow::Error::new(source).context(failure)
        }
        StartError::Pki(PkiError::File { path, source }) => {
            let hint = "give this user write permission, or choose another `--data-dir`";
            let failure = failure(format!("cannot use `{}`", path.display()), Code::of_io(&source), Some(hint));
            anyhow::Error::new(source).context(failure)
        }
        StartError::Pki(problem @ PkiError::Secret { .. }) => {
            let hint = "remove the file for a new token, or write one of at least 16 characters into it";
            anyhow::Error::new(problem).context(failure("cannot start".to_owned(), None, Some(hint)))
        }
        StartError::Audit(source) => {
            let file = args.audit_log.as_deref().unwrap_or(Path::new("")).display().to_string();
            let hint = "`--audit-log` takes a file that this user may write, in a directory that exists";
            let failure = failure(format!("cannot write the audit log `{file}`"), Code::of_io(&source), Some(hint));
            anyhow::Error::new(source).context(failure)
        }
        other => anyhow::Error::new(other).context("cannot start"),
    }
}

/// The running parts, their addresses, and commands to try.
fn greeting(args: &UpArgs, address: &str, kubeconfig: &Path, more: &str) -> String {
    let parts = match (args.bare, args.demo) {
        (true, _) => "the API alone",
        (false, false) => "with controllers, a simulated cloud, and stand-ins for scheduler and kubelets",
        (false, true) => "with controllers, a simulated cloud, stand-ins, and a demo",
    };
    let (kept, resume) = if args.memory {
        ("nothing is kept", "; all objects are gone then")
    } else {
        ("durable", "; the next start resumes where this one ended")
    };
    let tries: &[&str] = match (args.bare, args.demo) {
        (_, true) => &["kubectl get nodeclaims --watch", "millpond pool list", "millpond node list"],
        (true, _) => &[
            "kubectl get namespaces",
            "kubectl create configmap first --from-literal=hello=world",
            "kubectl get configmap first --output yaml",
        ],
        _ => &[
            "kubectl apply -f examples/pool.yaml",
            "kubectl create deployment web --image=nginx --replicas=3",
            "kubectl get nodeclaims,nodes,pods",
        ],
    };
    format!(
        "Millpond is up: https://{address} (Kubernetes 1.36 API, {parts}; {kept})\n\
         \x20 data        {}\n\
         \x20 kubeconfig  {}\n\
         {more}\n\
         Try, in another terminal:\n\
         \x20 export KUBECONFIG={}\n\
         \x20 {}\n\n\
         Ctrl-C stops it{resume}.\n",
        args.data_dir.display(),
        kubeconfig.display(),
        quoted(kubeconfig),
        tries.join("\n  "),
    )
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |symbol: char| symbol.is_alphanumeric() || "/._-+,:@%".contains(symbol);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Writes to stdout. A reader that went away is no reason to stop serving.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    super::print(&mut io::stdout().lock(), text)
}

/// Ctrl-C and SIGTERM, each as often as it comes.
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use clap::Parser;

    use super::*;
    use crate::failure::describe;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: UpArgs,
    }

    fn args(line: &str) -> UpArgs {
        let words = format!("up --data-dir /data --port 6443 {line}");
        Cli::parse_from(words.split_whitespace()).args
    }

    #[test]
    fn a_failed_start_is_one_line_and_the_next_step() {
        let told = |problem| describe(&explain(problem, &args("--audit-log /none/audit.log")));
        let address = "127.0.0.1:6443".parse().unwrap();
        let path = PathBuf::from("/data/millpond.lock");
        insta::assert_snapshot!(
            told(StartError::Store(OpenError::AlreadyOpen { directory: "/data".into(), process: Some(7) })), @"
        error: another millpond (process 7) runs on `/data`
        hint: stop it, or choose another directory with `--data-dir`
        ");
        let source = Error::from(ErrorKind::PermissionDenied);
        insta::assert_snapshot!(told(StartError::Store(OpenError::NotWritable { path, source })), @"
        error: cannot start: cannot write to `/data/millpond.lock`: permission denied
        hint: give this user write permission, or choose another `--data-dir`
        ");
        let source = Error::from(ErrorKind::AddrInUse);
        insta::assert_snapshot!(told(StartError::Listen { address, source }), @"
        error: port 6443 is in use
        hint: choose another one with `--port`, or any free one with `--port 0`
        ");
        let source = Error::from(ErrorKind::AddrNotAvailable);
        insta::assert_snapshot!(told(StartError::Listen { address, source }), @"
        error: cannot listen on 127.0.0.1:6443: address not available
        hint: `--bind` takes an address of this machine
        ");
        let source = millpond_apiserver::auth::TokenError::Empty;
        let path = PathBuf::from("/data/pki/admin.token");
        insta::assert_snapshot!(told(StartError::Pki(PkiError::Secret { path, source })), @"
        error: cannot start: cannot use the token in /data/pki/admin.token: the token is empty
        hint: remove the file for a new token, or write one of at least 16 characters into it
        ");
        insta::assert_snapshot!(told(StartError::Audit(Error::from(ErrorKind::NotFound))), @"
        error: cannot write the audit log `/none/audit.log`: entity not found
        hint: `--audit-log` takes a file that this user may write, in a directory that exists
        ");
    }

    #[test]
    fn the_greeting_can_be_copied_into_a_shell() {
        let text = greeting(&args("--bare --memory"), "127.0.0.1:6443", Path::new("/it's here/kubeconfig"), "");
        insta::assert_snapshot!(text, @r#"
        Millpond is up: https://127.0.0.1:6443 (Kubernetes 1.36 API, the API alone; nothing is kept)
          data        /data
          kubeconfig  /it's here/kubeconfig

        Try, in another terminal:
          export KUBECONFIG='/it'\''s here/kubeconfig'
          kubectl get namespaces
          kubectl create configmap first --from-literal=hello=world
          kubectl get configmap first --output yaml

        Ctrl-C stops it; all objects are gone then.
        "#);
    }
}
