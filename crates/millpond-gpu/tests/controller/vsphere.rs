//! With the fake vCenter: maintenance, quarantine, lost hosts, refused logins.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
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
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
    let params = PatchParams::apply("test");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuinfo-system"}});
    namespaces.patch("gpuinfo-system", &params, &Patch::Apply(namespace)).await.unwrap();
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), "gpuinfo-system");
    let write = async |values: BTreeMap<String, String>| {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vc-creds"}, "stringData": values});
        secrets.patch("vc-creds", &params, &Patch::Apply(secret)).await.unwrap();
    };
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
