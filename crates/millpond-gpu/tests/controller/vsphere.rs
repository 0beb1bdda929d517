//! With the fake vCenter: maintenance, quarantine, lost hosts, refused logins.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use millpond_api::condition;
use millpond_gpu::controller::Options;
use millpond_gpu::credentials::Sources;
use millpond_vsphere::Reference;
use millpond_vsphere::fake::{FakeVCenter, HostShape, Options as FakeOptions, Passthrough, VmShape};
use serde_json::json;

use crate::cluster::Cluster;

const PASSWORD: &str = "VMware<&\"123!";

struct Estate {
    cluster: Cluster,
    vcenter: FakeVCenter,
    hosts: Vec<Reference>,
    vms: Vec<Reference>,
}

fn uuid(at: usize) -> String {
    format!("420f1d2c-3b4a-5968-7786-00000000000{at}")
}

/// Three hosts with a machine each, of which two have a GPU.
async fn estate() -> Estate {
    let options = FakeOptions { tls: true, password: PASSWORD.to_owned(), ..FakeOptions::default() };
    let vcenter = FakeVCenter::start(options).await.expect("a vCenter");
    let cluster = Cluster::start().await;
    let (mut hosts, mut vms) = (Vec::new(), Vec::new());
    for (at, gpus) in [0, 2, 1].into_iter().enumerate() {
        let host = vcenter.add_host(&HostShape::new(&format!("esxi-{at}")).with_t4(gpus));
        let mut vm = VmShape::new(&format!("worker-{at}"), &uuid(at), &host);
        (vm.cpu_demand_mhz, vm.guest_memory_mib) = (1000 * at as i64, 300);
        if gpus > 0 {
            vm.passthrough = vec![Passthrough::Fixed("0000:3b:00.0".to_owned(), 0x10de, 0x1eb8)];
        }
        vms.push(vcenter.add_vm(&vm));
        hosts.push(host);
        let spec = json!({"spec": {"providerID": format!("vsphere://{}", uuid(at))}});
        cluster.node(&format!("worker-{at}"), gpus.min(1) as u64, spec).await;
    }
    Estate { cluster, vcenter, hosts, vms }
}

impl Estate {
    /// A machine of a node.
    fn machine(&self, name: &str, uuid: &str, host: usize) -> Reference {
        self.vcenter.add_vm(&VmShape::new(name, uuid, &self.hosts[host]))
    }

    fn environment(&self, password: &str) -> BTreeMap<String, String> {
        let values = [
            ("GOVMOMI_URL", self.vcenter.url()),
            ("GOVMOMI_USERNAME", "administrator@vsphere.local".to_owned()),
            ("GOVMOMI_PASSWORD", password.to_owned()),
            ("GOVMOMI_THUMBPRINT", self.vcenter.thumbprint().unwrap_or_default()),
        ];
        values.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn run(&mut self) {
        let sources = Sources { environment: self.environment(PASSWORD), ..Sources::default() };
        self.cluster.run(Options { sources, ..Options::default() });
    }
}

/// Writes the Secret that the controller follows.
async fn write_secret(cluster: &Cluster, values: &BTreeMap<String, String>) {
    let params = PatchParams::apply("test");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuinfo-system"}});
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
    namespaces.patch("gpuinfo-system", &params, &Patch::Apply(namespace)).await.expect("a namespace");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vc-creds"}, "stringData": values});
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), "gpuinfo-system");
    secrets.patch("vc-creds", &params, &Patch::Apply(secret)).await.expect("a Secret");
}

#[tokio::test]
async fn maintenance_and_lost_hosts_change_the_answer() {
    let mut estate = estate().await;
    estate.run();
    let cluster = &estate.cluster;
    cluster.ask("job", json!({"desAccTime": 100, "gpuRequired": true})).await;
    let status = cluster.until_node("job", "worker-1").await;
    assert_eq!(
        (status.suitable_host_name.as_str(), status.node_cpu_usage, status.node_memory_usage),
        ("esxi-1", 1000, 300)
    );
    estate.vcenter.set_maintenance(&estate.hosts[1], true);
    let status = cluster.until_node("job", "worker-2").await;
    let rejected = status.rejected.iter().find(|one| one.node == "worker-1").expect("a reason");
    assert_eq!((rejected.reason.as_str(), rejected.message.contains("maintenance mode")), ("InMaintenance", true));
    cluster.ask("two", json!({"desAccTime": 1, "gpuRequired": true, "gpuModel": "T4"})).await;
    cluster.until_node("two", "worker-2").await;
    cluster.ask("long", json!({"desAccTime": 9000, "gpuRequired": true, "gpuModel": "T4"})).await;
    let status = cluster.until_node("long", "None available").await;
    assert_eq!(status.proposal, None, "the host with a spare card is in maintenance");
    estate.vcenter.set_maintenance(&estate.hosts[1], false);
    let proposed = cluster.until("long", "a proposal", |status| status.proposal.is_some()).await.proposal.expect("one");
    assert_eq!(
        proposed.message,
        "host esxi-1 has 1 spare Tesla T4 (10de:1eb8): a machine with 1 of them would fit the job"
    );
    // Clearly less demand: it comes back.
    cluster.until_node("job", "worker-1").await;
    estate.vcenter.set_quarantine(&estate.hosts[1], true);
    cluster.until_node("job", "worker-2").await;
    estate.vcenter.set_quarantine(&estate.hosts[1], false);
    cluster.until_node("job", "worker-1").await;
    estate.vcenter.set_connection(&estate.hosts[1], "notResponding");
    let status = cluster.until_reason("job", "InventoryFresh", "HostDisconnected").await;
    assert_eq!(status.suitable_node_name, "worker-1", "the last answer is kept");
    estate.vcenter.set_connection(&estate.hosts[1], "connected");
    cluster.until_reason("job", "InventoryFresh", "Fresh").await;
    estate.vcenter.rename(&estate.vms[1], "another-name");
    estate.vcenter.remove(&estate.vms[1]);
    let status = cluster.until_reason("job", "InventoryFresh", "VMNotFound").await;
    assert_eq!(status.suitable_node_name, "worker-1");
    assert_eq!(estate.vcenter.logins(), 1);
    estate.cluster.halt().await;
}

#[tokio::test]
async fn faults_of_vcenter_have_reasons_and_nothing_is_reserved_meanwhile() {
    let mut estate = estate().await;
    estate.run();
    let cluster = &estate.cluster;
    cluster.ask("job", json!({"desAccTime": 100, "gpuRequired": true})).await;
    cluster.until_reason("job", "InventoryFresh", "Fresh").await;
    // A session that ends is no fault.
    estate.vcenter.expire_sessions();
    estate.vcenter.set_maintenance(&estate.hosts[1], true);
    cluster.until_node("job", "worker-2").await;
    estate.vcenter.set_down(true);
    cluster.until_reason("job", "InventoryFresh", "VCenterUnreachable").await;
    cluster.ask("keep", json!({"desAccTime": 1, "gpuRequired": true, "reserve": {"ttl": "1h"}})).await;
    cluster.until_reason("keep", "Reserved", "VCenterUnreachable").await;
    assert!(cluster.reservations().await.is_empty());
    estate.vcenter.set_down(false);
    cluster.until_reason("keep", "Reserved", "Reserved").await;
    cluster.until_reason("job", "InventoryFresh", "Fresh").await;
    estate.vcenter.deny_reads(true);
    estate.vcenter.expire_sessions();
    cluster.until_reason("job", "InventoryFresh", "PermissionDenied").await;
    estate.vcenter.deny_reads(false);
    cluster.until_reason("job", "InventoryFresh", "Fresh").await;
    assert!(estate.vcenter.logins() <= 4, "{}", estate.vcenter.logins());
    let shown = serde_json::to_string(&cluster.infos().list(&Default::default()).await.expect("all")).expect("JSON");
    assert!(!shown.contains("VMware"), "{shown}");
    estate.cluster.halt().await;
}

#[tokio::test]
async fn the_secret_is_followed() {
    let mut estate = estate().await;
    estate.cluster.run(Options::default());
    let cluster = &estate.cluster;
    cluster.ask("job", json!({"desAccTime": 100, "gpuRequired": true})).await;
    cluster.until_reason("job", "InventoryFresh", "KubernetesOnly").await;
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), "gpuinfo-system");
    let write = async |values: BTreeMap<String, String>| write_secret(cluster, &values).await;
    write(estate.environment("wrong")).await;
    cluster.until_reason("job", "InventoryFresh", "LoginFailed").await;
    write(estate.environment(PASSWORD)).await;
    cluster.until_reason("job", "InventoryFresh", "Fresh").await;
    cluster.until_node("job", "worker-1").await;
    let mut untrusted = estate.environment(PASSWORD);
    untrusted.insert("GOVMOMI_THUMBPRINT".to_owned(), "ab".repeat(32));
    write(untrusted).await;
    cluster.until_reason("job", "InventoryFresh", "CertificateNotTrusted").await;
    secrets.delete("vc-creds", &Default::default()).await.unwrap();
    cluster.until_reason("job", "InventoryFresh", "KubernetesOnly").await;
    assert!(estate.vcenter.logins() <= 4, "{}", estate.vcenter.logins());
    estate.cluster.halt().await;
}

#[tokio::test]
async fn a_name_that_two_datacenters_have_is_no_match() {
    let mut estate = estate().await;
    // Both are called like the node, and none has its UUID: the node says none.
    let machines = ["420f0000-0000-0000-0000-00000000000a", "420f0000-0000-0000-0000-00000000000b"]
        .map(|uuid| estate.machine("worker-9", uuid, 1));
    estate.cluster.node("worker-9", 1, json!({})).await;
    // A node whose machine has the UUID that another machine has, too.
    estate.machine("copy", &uuid(2), 2);
    estate.vcenter.rename(&estate.vms[2], "another-copy");
    estate.run();
    let cluster = &estate.cluster;
    cluster.ask("job", json!({"desAccTime": 100, "gpuRequired": true, "reserve": {"ttl": "1h"}})).await;
    let status = cluster.until_reason("job", "Reserved", "Reserved").await;
    let rejected = |node: &str| {
        let found = status.rejected.iter().find(|one| one.node == node).expect("a reason");
        (found.reason.clone(), found.message.clone())
    };
    let ambiguous = "2 virtual machines match the node by UUID or name".to_owned();
    assert_eq!(rejected("worker-9"), ("AmbiguousVM".to_owned(), ambiguous.clone()));
    assert_eq!(rejected("worker-2"), ("AmbiguousVM".to_owned(), ambiguous));
    // Less CPU demand would have won, had the match not been a guess.
    assert_eq!((status.suitable_node_name.as_str(), status.node_cpu_usage), ("worker-1", 1000));
    // A machine that is known by its UUID may have any name.
    estate.vcenter.rename(&estate.vms[1], "worker-9");
    cluster.ask("more", json!({"desAccTime": 100, "gpuRequired": false, "allowGpuNodes": true})).await;
    let known = |status: &millpond_api::gpu_info::GPUInfoStatus| {
        let third = status.rejected.iter().any(|one| one.node == "worker-9" && one.message.starts_with("3 virtual"));
        third && status.candidates.iter().any(|one| one.node == "worker-1")
    };
    cluster.until("more", "the new name", known).await;
    // With one machine of the name left the node is matched again.
    estate.vcenter.rename(&estate.vms[1], "worker-1");
    estate.vcenter.remove(&machines[1]);
    cluster.ask("next", json!({"desAccTime": 100, "gpuRequired": true})).await;
    cluster.until_node("next", "worker-9").await;
    assert_eq!(estate.vcenter.logins(), 1);
    estate.cluster.halt().await;
}

/// Makes the inventory stale, checks that the last answer stays and that nothing is reserved on it, and cures it.
async fn check_fault(estate: &Estate, reason: &str, fault: impl AsyncFn(), cure: impl AsyncFn()) {
    let cluster = &estate.cluster;
    let logins = estate.vcenter.logins();
    let params = PatchParams::default();
    let reserve = async |wish: serde_json::Value| {
        let wish = json!({"spec": {"reserve": wish}});
        cluster.infos().patch("job", &params, &Patch::Merge(wish)).await.expect("change the job");
    };
    fault().await;
    let stale = cluster.until_reason("job", "InventoryFresh", reason).await;
    let fresh = condition::find(&stale.conditions, "InventoryFresh").expect("a condition");
    assert_eq!(fresh.status, "False", "{reason}");
    assert!(!fresh.message.is_empty(), "{reason}");
    reserve(json!({"ttl": "1h"})).await;
    let refused = cluster.until_reason("job", "Reserved", reason).await;
    assert_eq!((refused.suitable_node_name.as_str(), refused.node_cpu_usage), ("worker-1", 1000), "{reason}");
    assert!(cluster.reservations().await.is_empty(), "{reason}");
    let shown = serde_json::to_string(&refused).expect("JSON");
    assert!(!shown.contains("VMware"), "{shown}");
    cure().await;
    cluster.until_reason("job", "Reserved", "Reserved").await;
    let cured = cluster.until_reason("job", "InventoryFresh", "Fresh").await;
    assert_eq!(cured.suitable_node_name, "worker-1", "{reason}");
    reserve(json!(null)).await;
    let given_back = async || cluster.reservations().await.is_empty().then_some(());
    cluster.eventually("the end of the reservation", given_back).await;
    assert!(estate.vcenter.logins() - logins <= 4, "{reason}: {} logins", estate.vcenter.logins() - logins);
}

#[tokio::test]
async fn every_fault_keeps_the_last_answer_and_heals() {
    let mut estate = estate().await;
    estate.cluster.run(Options::default());
    let secret = async |password: &str, thumbprint: Option<String>| {
        let mut values = estate.environment(password);
        values.extend(thumbprint.map(|digest| ("GOVMOMI_THUMBPRINT".to_owned(), digest)));
        write_secret(&estate.cluster, &values).await;
    };
    secret(PASSWORD, None).await;
    estate
        .cluster
        .ask(
            "job",
            json!({"desAccTime": 100, "gpuRequired": true, "nodeSelector": {"kubernetes.io/hostname": "worker-1"}}),
        )
        .await;
    estate.cluster.until_node("job", "worker-1").await;
    let vcenter = &estate.vcenter;
    let down = async |down: bool| vcenter.set_down(down);
    check_fault(&estate, "VCenterUnreachable", async || down(true).await, async || down(false).await).await;
    let refuse = async || secret("VMware-wrong", None).await;
    check_fault(&estate, "LoginFailed", refuse, async || secret(PASSWORD, None).await).await;
    let distrust = async || secret(PASSWORD, Some("ab".repeat(32))).await;
    check_fault(&estate, "CertificateNotTrusted", distrust, async || secret(PASSWORD, None).await).await;
    let deny = async |deny: bool| vcenter.deny_reads(deny);
    check_fault(&estate, "PermissionDenied", async || deny(true).await, async || deny(false).await).await;
    let fail = async |fail: bool| vcenter.fail_reads(fail);
    check_fault(&estate, "StaleInventory", async || fail(true).await, async || fail(false).await).await;
    let connection = async |state: &str| vcenter.set_connection(&estate.hosts[1], state);
    let lost = async || connection("notResponding").await;
    check_fault(&estate, "HostDisconnected", lost, async || connection("connected").await).await;
    let remove = async || vcenter.remove(&estate.vms[1]);
    let restore = async || {
        let mut vm = VmShape::new("restored", &uuid(1), &estate.hosts[1]);
        (vm.cpu_demand_mhz, vm.guest_memory_mib) = (1000, 300);
        vcenter.add_vm(&vm);
    };
    check_fault(&estate, "VMNotFound", remove, restore).await;
    estate.cluster.halt().await;
}

#[tokio::test]
async fn what_may_not_be_read_is_not_taken_for_good() {
    let mut estate = estate().await;
    estate.vcenter.deny_tasks(true);
    estate.run();
    let selector = json!({"kubernetes.io/hostname": "worker-1"});
    let job = json!({"desAccTime": 100, "gpuRequired": true, "nodeSelector": selector});
    estate.cluster.ask("job", job).await;
    let status = estate.cluster.until_node("job", "worker-1").await;
    let fresh = condition::find(&status.conditions, "InventoryFresh").expect("a condition");
    let problem = "but its scheduled tasks cannot be read: the account lacks the privilege System.View";
    assert!(fresh.is_true() && fresh.message.contains(problem), "{}", fresh.message);
    let availability = status.availability.expect("where the time is from");
    assert_eq!(availability.source, "Assumed");
    assert!(availability.message.ends_with("scheduled tasks of vCenter cannot be read"), "{}", availability.message);
    // Whether the host is in maintenance is not known any more.
    let deny = async |deny: bool| estate.vcenter.deny_mode(&estate.hosts[1], deny);
    check_fault(&estate, "PermissionDenied", async || deny(true).await, async || deny(false).await).await;
    deny(true).await;
    estate.cluster.ask("other", json!({"desAccTime": 100, "gpuRequired": true})).await;
    let status = estate.cluster.until_node("other", "worker-2").await;
    let rejected = status.rejected.iter().find(|one| one.node == "worker-1").expect("a reason");
    let told = "runtime.inMaintenanceMode: the account lacks the privilege System.Read on HostSystem:";
    assert_eq!((rejected.reason.as_str(), rejected.message.contains(told)), ("PermissionDenied", true), "{rejected:?}");
    estate.cluster.halt().await;
}
