//! `millpond up`: the embedded control plane in one command.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use millpond_apiserver::store::log::OpenError;
use millpond_apiserver::{Embedded, EmbeddedOptions, LifecycleOptions, StartError};
use millpond_sim::demo::{self, DemoOptions};
use millpond_sim::{Nodes, Options, StandIns};
use tokio_util::sync::CancellationToken;

use crate::failure::{Code, Failure};

/// Arguments of `millpond up`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond up                               durable, under the default data directory
  millpond up --memory --demo               nothing is kept; something to look at
  millpond up --data-dir ./data --port 0    another place, a free port
  millpond up --bare                        the API alone, for controllers of your own")]
pub(crate) struct UpArgs {
    /// Directory of the store, the certificates and the kubeconfig
    #[arg(long, value_name = "DIR", env = "MILLPOND_DATA_DIR", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// Port of the Kubernetes API; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
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
    /// Add some nodes and workloads that move
    #[arg(long)]
    demo: bool,
    /// Append one JSON line per request to this file
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
}

/// Where data is kept when nobody says otherwise.
pub(crate) fn default_data_dir() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    base.unwrap_or_else(std::env::temp_dir).join("millpond")
}

/// Runs until Ctrl-C or SIGTERM.
pub(crate) fn run(args: UpArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(up(args))
}

async fn up(args: UpArgs) -> anyhow::Result<()> {
    let mut options = EmbeddedOptions::new(&args.data_dir);
    options.memory = args.memory;
    options.address = args.bind;
    options.port = args.port;
    options.lifecycle = LifecycleOptions { controllers: !args.bare };
    options.server.audit_log.clone_from(&args.audit_log);
    let embedded = Embedded::start(options).await.map_err(|problem| explain(problem, &args))?;
    let stop = CancellationToken::new();
    let client = kube::Client::new(embedded.service(), "default");
    let stand_ins = (!args.bare).then(|| start_stand_ins(client.clone(), stop.clone()));
    let demo = args.demo.then(|| tokio::spawn(demo::run(client, DemoOptions::default(), stop.clone())));
    greet(&args, &embedded)?;
    wait_for_signal().await?;
    say("stopping: requests in flight may end\n")?;
    stop.cancel();
    if let Some(demo) = demo {
        let _ = demo.await;
    }
    if let Some(stand_ins) = stand_ins {
        stand_ins.ended().await;
    }
    embedded.stop().await;
    Ok(())
}

/// In embedded mode nobody else plays kubelet, so every node is simulated.
fn start_stand_ins(client: kube::Client, stop: CancellationToken) -> StandIns {
    StandIns::builder(client).options(Options { nodes: Nodes::All, ..Options::default() }).spawn(stop)
}

/// Turns a failed start into words and advice.
fn explain(problem: StartError, args: &UpArgs) -> anyhow::Error {
    let (message, code, hint) = match &problem {
        StartError::Store(OpenError::AlreadyOpen { .. }) => (
            format!("another millpond runs on {}", args.data_dir.display()),
            Some(Code::Conflict),
            Some("stop it first, or choose another directory with `--data-dir`".to_owned()),
        ),
        StartError::Store(problem) => {
            (format!("cannot start on {}", args.data_dir.display()), None, problem.hint().map(str::to_owned))
        }
        StartError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => (
            format!("port {} is in use", args.port),
            Some(Code::Conflict),
            Some("choose another one with `--port`, or `--port 0` for a free one".to_owned()),
        ),
        _ => ("cannot start".to_owned(), None, None),
    };
    anyhow::Error::new(problem).context(Failure { message, code, hint })
}

fn greet(args: &UpArgs, embedded: &Embedded) -> anyhow::Result<()> {
    let parts = match (args.bare, args.demo) {
        (true, _) => "the API alone",
        (false, false) => "with stand-ins for controllers, scheduler and kubelets",
        (false, true) => "with stand-ins and a demo",
    };
    let kept = if args.memory { "in memory only" } else { "durable" };
    let kubeconfig = embedded.kubeconfig().display();
    let tries = if args.demo {
        "kubectl get nodes\n  kubectl get pods -n demo --watch\n  kubectl scale deployment -n demo --all --replicas=5"
    } else {
        "kubectl get namespaces\n  kubectl create deployment web --image=nginx --replicas=3\n  kubectl get pods --watch"
    };
    let nodes = if args.bare || args.demo { "" } else { "\nPods wait for nodes: `--demo` brings some.\n" };
    say(&format!(
        "Millpond is up: https://{} (Kubernetes 1.36 API, {parts}; {kept})\n\
         \x20 data        {}\n\
         \x20 kubeconfig  {kubeconfig}\n\n\
         Try:\n\
         \x20 export KUBECONFIG={kubeconfig}\n\
         \x20 {tries}\n{nodes}\n\
         Ctrl-C stops it{}.\n",
        embedded.address(),
        args.data_dir.display(),
        if args.memory { "" } else { "; the next start resumes where this one ended" },
    ))
}

/// Writes to stdout. A reader that went away is no reason to stop serving.
fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(problem) if problem.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(problem).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}

async fn wait_for_signal() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.context("cannot listen for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}
