//! etcd and kube-apiserver on loopback, with controllers on request.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::controllers::{Controllers, ControllersBuilder};
use crate::kubeconfig::{Access, write_private};
use crate::kubectl::Kubectl;
use crate::pki::Pki;
use crate::probe;
use crate::process::{Process, free_port};
use crate::real::{Part, Parts};
use crate::scratch::Scratch;

/// A port that was free may be taken a moment later by another test.
const START_ATTEMPTS: u32 = 3;

/// The message of etcd and kube-apiserver about a port in use.
const PORT_TAKEN: &str = "address already in use";

/// Where kube-apiserver listens where nothing else is said.
const LOOPBACK: &str = "127.0.0.1";

/// The options of the cluster.
#[derive(Clone, Debug, Default)]
pub struct RealClusterBuilder {
    controllers: ControllersBuilder,
    address: Option<String>,
    service_accounts: bool,
    durable: bool,
    apiserver_args: Vec<String>,
}

impl RealClusterBuilder {
    /// kube-controller-manager; see [`ControllersBuilder::controller_manager`].
    pub fn controller_manager(mut self, controllers: &str) -> Self {
        self.controllers = self.controllers.controller_manager(controllers);
        self
    }

    /// kube-scheduler.
    pub fn scheduler(mut self) -> Self {
        self.controllers = self.controllers.scheduler();
        self
    }

    /// kwok for all nodes.
    pub fn kwok(mut self) -> Self {
        self.controllers = self.controllers.kwok();
        self
    }

    /// Adds a stage for kwok; see [`ControllersBuilder::kwok_stage`].
    pub fn kwok_stage(mut self, file: impl Into<PathBuf>) -> Self {
        self.controllers = self.controllers.kwok_stage(file);
        self
    }

    /// Whether etcd waits for the disk, as it must wherever speed is compared.
    /// Off by default: what is tested here is not etcd.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// The address that kube-apiserver listens on, in place of loopback: that of a bridge with machines.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Pods get the token of their service account, and wait for the account. Off by default: pods that pretend need
    /// neither.
    pub fn service_accounts(mut self) -> Self {
        self.service_accounts = true;
        self
    }

    /// Adds a flag for kube-apiserver.
    pub fn apiserver_arg(mut self, arg: impl Into<String>) -> Self {
        self.apiserver_args.push(arg.into());
        self
    }

    /// Starts everything and waits until the API is ready.
    pub fn start(&self) -> Result<RealCluster> {
        let parts = Parts::ensure()?;
        let mut attempt = 1;
        loop {
            match self.try_start(&parts) {
                Err(error) if attempt < START_ATTEMPTS && format!("{error:#}").contains(PORT_TAKEN) => {
                    attempt += 1;
                }
                outcome => return outcome.context("start a real cluster"),
            }
        }
    }

    fn try_start(&self, parts: &Parts) -> Result<RealCluster> {
        let scratch = Scratch::new("real")?;
        let address = self.address.as_deref().unwrap_or(LOOPBACK);
        let pki = Pki::create(scratch.path(), address)?;
        let port = free_port()?;
        let token = token()?;
        let tokens = scratch.path().join("tokens.csv");
        write_private(&tokens, format!("{token},admin,,\"system:masters\"\n").as_bytes())?;
        let access = Access {
            server: format!("https://{address}:{port}"),
            ca_pem: pki.ca_pem.clone(),
            token: Some(token),
            client_pem: None,
        };
        let kubeconfig = scratch.path().join("kubeconfig");
        access.write(&kubeconfig)?;

        let (etcd, store) = self.start_etcd(parts, scratch.path())?;
        let mut command = Command::new(parts.path(&Part::KUBE_APISERVER)?);
        apiserver_args(&mut command, &store, (address, port), &pki, &tokens);
        if !self.service_accounts {
            // Without it no tokens are mounted, and pods need not wait for service accounts.
            command.args(["--disable-admission-plugins", "ServiceAccount"]);
        }
        command.args(&self.apiserver_args);
        let apiserver = Process::spawn(Part::KUBE_APISERVER.name, &mut command, scratch.path())?;
        let mut processes = vec![etcd, apiserver];
        probe::wait_ready(|| Ok(access.clone()), &mut processes)?;

        let controllers =
            self.controllers.start_in(parts, &kubeconfig, &pki.service_account_key_file, scratch.path())?;
        Ok(RealCluster { controllers, processes, parts: parts.clone(), access, kubeconfig, scratch })
    }

    fn start_etcd(&self, parts: &Parts, folder: &Path) -> Result<(Process, String)> {
        let client = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let mut command = Command::new(parts.path(&Part::ETCD)?);
        command
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--log-level", "warn"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")]);
        if !self.durable {
            command.arg("--unsafe-no-fsync");
        }
        Ok((Process::spawn(Part::ETCD.name, &mut command, folder)?, client))
    }
}

fn apiserver_args(command: &mut Command, store: &str, listen: (&str, u16), pki: &Pki, tokens: &Path) {
    let (address, port) = listen;
    command
        .args(["--etcd-servers", store])
        .args(["--bind-address", address, "--advertise-address", address])
        .args(["--secure-port", &port.to_string()])
        .args(["--endpoint-reconciler-type", "none"])
        // The range that the embedded API gives services addresses from.
        .args(["--service-cluster-ip-range", "10.0.0.0/16"])
        .args(["--service-account-issuer", "https://kubernetes.default.svc"])
        .args(["--authorization-mode", "Node,RBAC"])
        .arg("--enable-bootstrap-token-auth=true")
        // Machines of a test have addresses, and names that only they know.
        .arg("--kubelet-preferred-address-types=InternalIP,Hostname")
        // As in clusters of kubeadm.
        .arg("--allow-privileged=true");
    let files: [(&str, &Path); 8] = [
        ("--tls-cert-file", &pki.server_file),
        ("--tls-private-key-file", &pki.server_key_file),
        ("--client-ca-file", &pki.ca_file),
        ("--kubelet-client-certificate", &pki.kubelet_client_file),
        ("--kubelet-client-key", &pki.kubelet_client_key_file),
        ("--service-account-key-file", &pki.service_account_public_file),
        ("--service-account-signing-key-file", &pki.service_account_key_file),
        ("--token-auth-file", tokens),
    ];
    for (flag, file) in files {
        command.arg(flag).arg(file);
    }
}

/// A random bearer token.
fn token() -> Result<String> {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; 16];
    ring::rand::SystemRandom::new().fill(&mut bytes).ok().context("make a token")?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// A running control plane. Dropping it kills it.
#[derive(Debug)]
pub struct RealCluster {
    // Dropped in this order: processes that would complain about a lost server first, the folder that all of them write
    // to last.
    controllers: Controllers,
    processes: Vec<Process>,
    parts: Parts,
    access: Access,
    kubeconfig: PathBuf,
    scratch: Scratch,
}

impl RealCluster {
    /// Says what it is to have.
    pub fn builder() -> RealClusterBuilder {
        RealClusterBuilder::default()
    }

    /// A kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Address, CA and token.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The folder of logs and data.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The binaries that it was started from.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// kubectl, as an administrator.
    pub fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(&self.parts, &self.kubeconfig, self.scratch.path())
    }

    /// Fails, with the end of its log, if one of the processes has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::ensure_running)?;
        self.controllers.ensure_running()
    }

    /// etcd and kube-apiserver, e.g. to read the memory that they take.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The other processes: the controllers of Kubernetes, kube-scheduler, kwok.
    pub fn controllers(&self) -> &Controllers {
        &self.controllers
    }

    /// A client, as an administrator.
    #[cfg(feature = "client")]
    pub async fn client(&self) -> Result<kube::Client> {
        crate::kubeconfig::client(&self.kubeconfig).await
    }
}
