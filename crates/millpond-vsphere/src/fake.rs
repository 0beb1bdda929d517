//! A vCenter in this process, for tests and demonstrations: GPU hosts, virtual machines, scheduled tasks, and faults on
//! request.
//!
//! It speaks the subset of SOAP that [`crate::client`] uses, over HTTP or TLS on loopback. `world` holds objects and what
//! changed when, `serve` answers calls, `shape` writes values as vCenter does.
//!
//! It differs from govmomi's vcsim in what tests here need: scheduled tasks, GPUs, updates on maintenance, sessions
//! that expire, refused logins and missing privileges.

mod serve;
mod shape;
mod world;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::reference::Reference;
use crate::settings::{Endpoint, Settings, Thumbprint, Trust};
use world::World;

pub use shape::{HostShape, Passthrough, VmShape};

/// How to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// TLS with a certificate of its own, or plain HTTP.
    pub tls: bool,
    /// The account that may log in.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { tls: false, user: "administrator@vsphere.local".to_owned(), password: "VMware123!".to_owned() }
    }
}

/// A vCenter that runs until it is dropped.
pub struct FakeVCenter {
    inner: Arc<Inner>,
    address: SocketAddr,
    certificate: Option<rcgen::Certificate>,
    _stop: DropGuard,
}

/// The state that connections share.
struct Inner {
    options: Options,
    world: Mutex<World>,
    /// The version of the world, for calls that wait for a change.
    version: watch::Sender<u64>,
    /// Whether connections are refused.
    down: watch::Sender<bool>,
}

impl FakeVCenter {
    /// Starts on a free port of loopback.
    pub async fn start(options: Options) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (certificate, acceptor) = if options.tls {
            let (certificate, acceptor) = serve::acceptor().map_err(std::io::Error::other)?;
            (Some(certificate), Some(acceptor))
        } else {
            (None, None)
        };
        let (version, down) = (watch::Sender::default(), watch::Sender::default());
        let inner = Arc::new(Inner { options, world: Mutex::default(), version, down });
        let stop = CancellationToken::new();
        tokio::spawn(serve::run(Arc::clone(&inner), listener, acceptor, stop.clone()));
        Ok(Self { inner, address, certificate, _stop: stop.drop_guard() })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT/sdk`, or with `https`.
    pub fn url(&self) -> String {
        self.endpoint().url()
    }

    fn endpoint(&self) -> Endpoint {
        let host = self.address.ip().to_string();
        Endpoint { tls: self.inner.options.tls, host, port: self.address.port(), path: "/sdk".to_owned() }
    }

    /// Settings that a client can log in with; a certificate is trusted by its thumbprint.
    pub fn settings(&self) -> Settings {
        let trust = self.thumbprint().map_or(Trust::System, |print| {
            Trust::Thumbprint(Thumbprint::parse(&print).expect("a digest is a thumbprint"))
        });
        Settings {
            endpoint: self.endpoint(),
            user: self.inner.options.user.clone(),
            password: SecretString::from(self.inner.options.password.clone()),
            trust,
        }
    }

    /// The certificate as PEM.
    pub fn certificate_pem(&self) -> Option<String> {
        self.certificate.as_ref().map(rcgen::Certificate::pem)
    }

    /// SHA-256 of the certificate in hexadecimal.
    pub fn thumbprint(&self) -> Option<String> {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.certificate.as_ref()?.der());
        Some(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    // Objects

    /// Adds a host.
    pub fn add_host(&self, host: &HostShape) -> Reference {
        self.change(|world| world.add("HostSystem", "host", host.properties()))
    }

    /// Adds a virtual machine.
    pub fn add_vm(&self, vm: &VmShape) -> Reference {
        self.change(|world| world.add("VirtualMachine", "vm", vm.properties()))
    }

    /// Removes a host, a machine or a scheduled task.
    pub fn remove(&self, object: &Reference) {
        self.change(|world| world.remove(object));
    }

    /// Puts a host into maintenance mode, or takes it out.
    pub fn set_maintenance(&self, host: &Reference, on: bool) {
        self.set(host, "runtime.inMaintenanceMode", shape::boolean(on));
    }

    /// Puts a host into quarantine, or takes it out.
    pub fn set_quarantine(&self, host: &Reference, on: bool) {
        self.set(host, "runtime.inQuarantineMode", shape::boolean(on));
    }

    /// `connected`, `disconnected` or `notResponding`.
    pub fn set_connection(&self, host: &Reference, state: &str) {
        self.set(host, "runtime.connectionState", shape::text("HostSystemConnectionState", state));
    }

    /// Renames an object.
    pub fn rename(&self, object: &Reference, name: &str) {
        self.set(object, "name", shape::text("xsd:string", name));
    }

    /// Moves a machine to another host.
    pub fn migrate(&self, vm: &Reference, host: &Reference) {
        self.set(vm, "runtime.host", shape::reference(host));
    }

    /// Sets quick statistics. As with a real vCenter, no update tells of them.
    pub fn set_stats(&self, vm: &Reference, cpu_demand_mhz: i64, guest_memory_mib: i64) {
        let mut world = self.inner.world.lock();
        world.set_silently(vm, shape::CPU_DEMAND, shape::number(cpu_demand_mhz));
        world.set_silently(vm, shape::GUEST_MEMORY, shape::number(guest_memory_mib));
    }

    /// Adds a scheduled task. As with a real vCenter, no update tells of it.
    pub fn schedule(
        &self,
        name: &str,
        entity: &Reference,
        method: &str,
        enabled: bool,
        next_run: Timestamp,
    ) -> Reference {
        let info = shape::task(name, entity, method, enabled, next_run);
        self.change(|world| world.add("ScheduledTask", "schedule", vec![("info", info)]))
    }

    // Faults

    /// Ends all sessions, as an idle timeout does.
    pub fn expire_sessions(&self) {
        self.inner.world.lock().end_sessions();
        self.inner.version.send_modify(|_| {});
    }

    /// Refuses the account from now on, or accepts it again.
    pub fn refuse_logins(&self, refuse: bool) {
        self.inner.world.lock().refuse_logins = refuse;
    }

    /// Takes privileges away from the account: it sees nothing any more.
    pub fn deny_reads(&self, deny: bool) {
        self.inner.world.lock().deny_reads = deny;
    }

    /// Takes the right to read scheduled tasks away from the account, or gives it back.
    pub fn deny_tasks(&self, deny: bool) {
        self.inner.world.lock().deny_tasks = deny;
    }

    /// Takes the right to read whether a host is in maintenance away from the account, or gives it back.
    pub fn deny_mode(&self, host: &Reference, deny: bool) {
        self.change(|world| world.deny(host, deny));
    }

    /// Answers every read with a fault that tells nothing of account or session, or reads again.
    pub fn fail_reads(&self, fail: bool) {
        self.inner.world.lock().fail_reads = fail;
        self.inner.version.send_modify(|_| {});
    }

    /// Breaks all connections and refuses new ones, or listens again.
    pub fn set_down(&self, down: bool) {
        self.inner.down.send_replace(down);
    }

    /// How many logins were tried, refused ones included.
    pub fn logins(&self) -> u64 {
        self.inner.world.lock().logins
    }

    /// Sessions that are open.
    pub fn sessions(&self) -> usize {
        self.inner.world.lock().sessions.len()
    }

    /// Views and collectors that clients left in their sessions.
    pub fn session_objects(&self) -> usize {
        let world = self.inner.world.lock();
        world.views.len() + world.collectors.len()
    }

    fn set(&self, object: &Reference, path: &'static str, value: String) {
        self.change(|world| world.set(object, path, value));
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.inner.world.lock();
        let outcome = change(&mut world);
        self.inner.version.send_replace(world.version);
        outcome
    }
}
