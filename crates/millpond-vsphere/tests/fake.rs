//! The live inventory against the fake vCenter: updates, polls, pages, sessions that end, faults that heal.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millpond_vsphere::fake::{FakeVCenter, HostShape, Options, Passthrough, VmShape};
use millpond_vsphere::inventory::Connection;
use millpond_vsphere::live::{Live, State, Wanted};
use millpond_vsphere::settings::{Settings, Trust};
use millpond_vsphere::{Freshness, Reason, Reference};
use secrecy::SecretString;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

struct Watching {
    live: Arc<Live>,
    wanted: watch::Sender<Wanted>,
    _stop: DropGuard,
}

impl Watching {
    fn start(settings: Settings) -> Self {
        let live = Live::new(Arc::new(Timestamp::now));
        let (wanted, receiver) = watch::channel(Wanted::Use(settings));
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&live).run(receiver, stop.clone()));
        Self { live, wanted, _stop: stop.drop_guard() }
    }

    async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let mut changes = self.live.changes();
        let waiting = async {
            while !self.live.read(&holds) {
                changes.changed().await.expect("the cache is there");
            }
        };
        // A bound for a hanging test, not a measurement.
        let in_time = tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok();
        assert!(in_time, "waited for: {what}; freshness {:?}", self.live.read(|state| state.freshness.clone()));
    }

    async fn until_stale(&self, wanted: Reason) {
        let is = |state: &State| matches!(&state.freshness, Freshness::Stale { reason, .. } if *reason == wanted);
        self.until(wanted.as_str(), is).await;
    }

    async fn until_fresh(&self) {
        self.until("fresh", |state| state.freshness == Freshness::Fresh).await;
    }
}

async fn vcenter() -> (FakeVCenter, Reference, Reference) {
    let vcenter = FakeVCenter::start(Options::default()).await.expect("start the fake vCenter");
    let (host, vm) = populate(&vcenter);
    (vcenter, host, vm)
}

fn populate(vcenter: &FakeVCenter) -> (Reference, Reference) {
    let host = vcenter.add_host(&HostShape::new("esxi-1").with_t4(2));
    let mut vm = VmShape::new("worker-1", "42010000-0000-0000-0000-000000000001", &host);
    vm.passthrough = vec![Passthrough::Fixed("0000:3b:00.0".to_owned(), 0x10de, 0x1eb8)];
    (vm.cpu_demand_mhz, vm.guest_memory_mib) = (87, 327);
    let vm = vcenter.add_vm(&vm);
    (host, vm)
}

#[tokio::test]
async fn the_inventory_is_complete_and_follows_changes() {
    let (vcenter, host, vm) = vcenter().await;
    let task =
        vcenter.schedule("patch", &host, "EnterMaintenanceMode_Task", true, "2030-01-01T00:00:00Z".parse().unwrap());
    let watching = Watching::start(vcenter.settings());
    watching.until_fresh().await;
    watching.live.read(|state| {
        let found = &state.inventory.vms[&vm];
        assert_eq!((found.name.as_str(), found.cpu_demand_mhz, found.guest_memory_mib), ("worker-1", 87, 327));
        let gpus = state.inventory.gpus(&host);
        let cards: Vec<_> = gpus.iter().map(|gpu| (gpu.model_id(), gpu.memory_mib, gpu.used_by.len())).collect();
        assert_eq!(cards, [("10de:1eb8".to_owned(), 16384, 1), ("10de:1eb8".to_owned(), 16384, 0)]);
        let next = state.inventory.next_disturbing_task(&vm, Timestamp::now()).unwrap();
        assert_eq!(next.name, "patch");
        assert!(state.observed_at.is_some());
    });
    vcenter.set_maintenance(&host, true);
    watching.until("maintenance", |state| state.inventory.hosts[&host].in_maintenance).await;
    vcenter.set_maintenance(&host, false);
    vcenter.set_quarantine(&host, true);
    watching
        .until("quarantine", |state| {
            let host = &state.inventory.hosts[&host];
            host.in_quarantine && !host.in_maintenance
        })
        .await;
    vcenter.set_connection(&host, "notResponding");
    watching.until("lost", |state| state.inventory.hosts[&host].connection == Connection::NotResponding).await;
    vcenter.rename(&vm, "renamed & <new>");
    watching.until("renamed", |state| state.inventory.vms[&vm].name == "renamed & <new>").await;
    let second = vcenter.add_host(&HostShape::new("esxi-2"));
    vcenter.migrate(&vm, &second);
    watching.until("moved", |state| state.inventory.vms[&vm].host.as_ref() == Some(&second)).await;
    vcenter.remove(&vm);
    watching.until("gone", |state| !state.inventory.vms.contains_key(&vm)).await;
    vcenter.remove(&task);
    watching.until("no task", |state| state.inventory.tasks.is_empty()).await;
    assert_eq!(vcenter.logins(), 1);
}

#[tokio::test]
async fn quick_statistics_are_polled() {
    let (vcenter, _, vm) = vcenter().await;
    let watching = Watching::start(vcenter.settings());
    watching.until_fresh().await;
    vcenter.set_stats(&vm, 4321, 77);
    watching.until("stats", |state| state.inventory.vms[&vm].cpu_demand_mhz == 4321).await;
}

#[tokio::test]
async fn many_objects_come_in_pages() {
    let vcenter = FakeVCenter::start(Options::default()).await.expect("start the fake vCenter");
    let host = vcenter.add_host(&HostShape::new("esxi-1"));
    for at in 0..1203 {
        let mut vm = VmShape::new(&format!("vm-{at}"), &format!("42010000-0000-0000-0000-{at:012}"), &host);
        vm.cpu_demand_mhz = at + 1;
        vcenter.add_vm(&vm);
    }
    let watching = Watching::start(vcenter.settings());
    watching.until_fresh().await;
    watching.live.read(|state| {
        assert_eq!(state.inventory.vms.len(), 1203);
        assert!(state.inventory.vms.values().all(|vm| vm.cpu_demand_mhz > 0 && !vm.uuid.is_empty()));
    });
}

#[tokio::test]
async fn a_session_that_expires_is_renewed_silently() {
    let (vcenter, host, _) = vcenter().await;
    let watching = Watching::start(vcenter.settings());
    watching.until_fresh().await;
    let stale = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (live, seen) = (Arc::clone(&watching.live), Arc::clone(&stale));
    let mut changes = live.changes();
    let observer = tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            if live.read(|state| state.freshness != Freshness::Fresh) {
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    vcenter.expire_sessions();
    vcenter.set_maintenance(&host, true);
    watching.until("maintenance", |state| state.inventory.hosts[&host].in_maintenance).await;
    assert!(!stale.load(std::sync::atomic::Ordering::Relaxed));
    assert_eq!(vcenter.logins(), 2);
    observer.abort();
}

#[tokio::test]
async fn an_unreachable_vcenter_is_reported_and_comes_back() {
    let (vcenter, host, vm) = vcenter().await;
    let watching = Watching::start(vcenter.settings());
    watching.until_fresh().await;
    vcenter.set_down(true);
    watching.until_stale(Reason::VCenterUnreachable).await;
    // What was known is kept.
    watching.live.read(|state| assert!(state.inventory.vms.contains_key(&vm)));
    vcenter.set_maintenance(&host, true);
    vcenter.set_down(false);
    watching
        .until("back", |state| state.freshness == Freshness::Fresh && state.inventory.hosts[&host].in_maintenance)
        .await;
    assert!(vcenter.logins() <= 2, "{}", vcenter.logins());
}

#[tokio::test]
async fn a_refused_account_is_told_without_its_password_and_not_tried_often() {
    let (vcenter, ..) = vcenter().await;
    vcenter.refuse_logins(true);
    let watching = Watching::start(vcenter.settings());
    watching.until_stale(Reason::LoginFailed).await;
    let Freshness::Stale { message, .. } = watching.live.read(|state| state.freshness.clone()) else { unreachable!() };
    assert!(message.contains("administrator@vsphere.local") && !message.contains("VMware123!"), "{message}");
    // The next attempt waits ten seconds.
    vcenter.refuse_logins(false);
    watching.until_fresh().await;
    assert_eq!(vcenter.logins(), 2);
}

#[tokio::test]
async fn new_credentials_are_used_at_once() {
    let (vcenter, ..) = vcenter().await;
    let mut settings = vcenter.settings();
    settings.password = SecretString::from("wrong".to_owned());
    let watching = Watching::start(settings);
    watching.until_stale(Reason::LoginFailed).await;
    watching.wanted.send_replace(Wanted::Use(vcenter.settings()));
    watching.until_fresh().await;
    watching.wanted.send_replace(Wanted::Invalid("no account for vCenter".to_owned()));
    watching.until_stale(Reason::LoginFailed).await;
    watching.wanted.send_replace(Wanted::None);
    watching.until("unused", |state| state.freshness == Freshness::Unused && state.inventory.vms.is_empty()).await;
    assert_eq!(vcenter.sessions(), 0);
}

#[tokio::test]
async fn passwords_are_escaped() {
    let options = Options { password: "a<&\"'>b ".to_owned(), ..Options::default() };
    let vcenter = FakeVCenter::start(options).await.unwrap();
    populate(&vcenter);
    let watching = Watching::start(vcenter.settings());
    watching.until_fresh().await;
}

#[tokio::test]
async fn missing_privileges_are_reported() {
    let (vcenter, ..) = vcenter().await;
    vcenter.deny_reads(true);
    let watching = Watching::start(vcenter.settings());
    watching.until_stale(Reason::PermissionDenied).await;
    vcenter.deny_reads(false);
    watching.until_fresh().await;
    assert_eq!(vcenter.logins(), 1);
    // One view and one collector: failed attempts leave none behind.
    assert_eq!(vcenter.session_objects(), 2);
    // Privileges that go later are noticed by a poll.
    vcenter.deny_reads(true);
    watching.until_stale(Reason::PermissionDenied).await;
}

#[tokio::test]
async fn certificates_are_verified() {
    let vcenter = FakeVCenter::start(Options { tls: true, ..Options::default() }).await.unwrap();
    populate(&vcenter);
    let with = |trust| Watching::start(Settings { trust, ..vcenter.settings() });
    with(Trust::System).until_stale(Reason::CertificateNotTrusted).await;
    assert_eq!(vcenter.logins(), 0);
    let wrong = millpond_vsphere::settings::Thumbprint::parse(&"00".repeat(32)).unwrap();
    with(Trust::Thumbprint(wrong)).until_stale(Reason::CertificateNotTrusted).await;
    with(vcenter.settings().trust).until_fresh().await;
    with(Trust::Insecure).until_fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let by_file = with(Trust::CaFile(path.clone()));
    by_file.until_stale(Reason::CertificateNotTrusted).await;
    // The file comes, and is that of another CA at first.
    let other = FakeVCenter::start(Options { tls: true, ..Options::default() }).await.unwrap();
    std::fs::write(&path, other.certificate_pem().unwrap()).unwrap();
    let is_refused = |state: &State| match &state.freshness {
        Freshness::Stale { reason, message } => {
            *reason == Reason::CertificateNotTrusted && !message.contains("cannot read CA certificates")
        }
        _ => false,
    };
    by_file.until("another CA", is_refused).await;
    std::fs::write(&path, vcenter.certificate_pem().unwrap()).unwrap();
    by_file.until_fresh().await;
}
