//! The client against govmomi's own simulator of vCenter: what this crate writes is read by another implementation, and
//! what it reads is written by one.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use millpond_testkit::real::{Part, Parts};
use millpond_testkit::{Process, Scratch, free_port};
use millpond_vsphere::live::{Live, State, Wanted};
use millpond_vsphere::settings::{Settings, Trust};
use millpond_vsphere::{Freshness, Reason, Reference};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A password that XML has to escape.
const PASSWORD: &str = "a<&\"b>c'd";

struct Vcsim {
    _process: Process,
    scratch: Scratch,
    port: u16,
    control: u16,
}

impl Vcsim {
    fn start() -> Result<Self> {
        let parts = Parts::ensure_each(&[Part::VCSIM])?;
        let (scratch, port, control) = (Scratch::new("vcsim")?, free_port()?, free_port()?);
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let (cert_file, key_file) = (scratch.path().join("vc.crt"), scratch.path().join("vc.key"));
        std::fs::write(&cert_file, certificate.pem())?;
        std::fs::write(&key_file, key.serialize_pem())?;
        let mut command = Command::new(parts.path(&Part::VCSIM)?);
        command
            .args(["-listen", &format!("127.0.0.1:{port}"), "-control", &format!("127.0.0.1:{control}")])
            .args(["-hosts", "4", "-vms", "600", "-user", "root", "-password", PASSWORD])
            .arg("-cert")
            .arg(&cert_file)
            .arg("-key")
            .arg(&key_file);
        let process = Process::spawn(Part::VCSIM.name, &mut command, scratch.path())?;
        Ok(Self { _process: process, scratch, port, control })
    }

    fn settings(&self, password: &str) -> Settings {
        let value = |name: &str| match name {
            "GOVMOMI_URL" => Some(format!("127.0.0.1:{}", self.port)),
            "GOVMOMI_USERNAME" => Some("root".to_owned()),
            "GOVMOMI_PASSWORD" => Some(password.to_owned()),
            _ => None,
        };
        Settings::read(value, &Trust::CaFile(self.scratch.path().join("vc.crt"))).expect("settings")
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
}

async fn until(live: &Live, what: &str, holds: impl Fn(&State) -> bool) {
    let mut changes = live.changes();
    let waiting = async {
        while !live.read(&holds) {
            changes.changed().await.expect("the cache is there");
        }
    };
    // A bound for a hanging test, not a measurement.
    let in_time = tokio::time::timeout(Duration::from_mins(2), waiting).await.is_ok();
    assert!(in_time, "waited for: {what}; freshness {:?}", live.read(|state| state.freshness.clone()));
}

#[tokio::test]
#[ignore = "needs Go to build vcsim"]
async fn real_vcsim_is_read_and_followed() -> Result<()> {
    let vcsim = Vcsim::start()?;
    let live = Live::new(Arc::new(Timestamp::now));
    let (wanted, receiver) = watch::channel(Wanted::Use(vcsim.settings(PASSWORD)));
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&live).run(receiver, stop.clone()));
    until(&live, "fresh", |state| state.freshness == Freshness::Fresh).await;

    let (host, vm) = live.read(|state| {
        let inventory = &state.inventory;
        // The first set and the quick statistics come in pages of 500.
        assert_eq!((inventory.hosts.len(), inventory.vms.len()), (4, 600));
        assert_eq!(inventory.tasks_unreadable, None);
        let machine = |vm: &millpond_vsphere::inventory::Vm| vm.powered_on && vm.uuid.len() == 36 && vm.host.is_some();
        assert!(inventory.vms.values().all(machine));
        let with_gpus = inventory.hosts.keys().find(|host| !inventory.gpus(host).is_empty()).expect("a GPU host");
        let cards: Vec<_> = inventory.gpus(with_gpus).iter().map(|gpu| (gpu.model_id(), gpu.memory_mib)).collect();
        assert_eq!(cards, [("10de:1eb8".to_owned(), 16384), ("8086:56c0".to_owned(), 0)]);
        (with_gpus.clone(), inventory.vms.keys().next().expect("a machine").clone())
    });

    // The simulator tells of this one, and is asked about that one.
    vcsim.change("quarantine", &host, "true")?;
    until(&live, "quarantine", |state| state.inventory.hosts[&host].in_quarantine).await;
    vcsim.change("maintenance", &host, "true")?;
    until(&live, "maintenance", |state| state.inventory.hosts[&host].in_maintenance).await;
    vcsim.change("maintenance", &host, "false")?;
    until(&live, "no maintenance", |state| !state.inventory.hosts[&host].in_maintenance).await;
    vcsim.change("stats", &vm, "4321")?;
    until(&live, "statistics", |state| state.inventory.vms[&vm].cpu_demand_mhz == 4321).await;
    vcsim.change("schedule", &host, "2030-01-02T03:04:05Z")?;
    until(&live, "a scheduled task", |state| !state.inventory.tasks.is_empty()).await;
    live.read(|state| {
        let task = &state.inventory.tasks[0];
        assert_eq!((&task.entity, task.method.as_str()), (&host, "EnterMaintenanceMode_Task"));
        assert_eq!(task.next_run, "2030-01-02T03:04:05Z".parse().ok());
        assert!(task.disturbs());
    });

    wanted.send_replace(Wanted::Use(vcsim.settings("wrong")));
    let refused = |state: &State| matches!(state.freshness, Freshness::Stale { reason: Reason::LoginFailed, .. });
    until(&live, "LoginFailed", refused).await;
    wanted.send_replace(Wanted::Use(vcsim.settings(PASSWORD)));
    until(&live, "fresh again", |state| state.freshness == Freshness::Fresh).await;
    wanted.send_replace(Wanted::Use(Settings { trust: Trust::System, ..vcsim.settings(PASSWORD) }));
    let untrusted =
        |state: &State| matches!(state.freshness, Freshness::Stale { reason: Reason::CertificateNotTrusted, .. });
    until(&live, "CertificateNotTrusted", untrusted).await;
    stop.cancel();
    running.await?;
    Ok(())
}
