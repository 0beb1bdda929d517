//! Files as users write them, and the messages about mistakes.

use super::*;
use crate::capi::gpu::Vendor;
use crate::karpenter::TaintEffect;

fn read(text: &str) -> (PoolFile, Vec<String>) {
    let reading = parse("pool.yaml", text).unwrap_or_else(|errors| panic!("{errors:#?}"));
    (reading.file, reading.warnings.iter().map(ToString::to_string).collect())
}

fn problems(text: &str) -> Vec<String> {
    parse("pool.yaml", text).unwrap_err().iter().map(ToString::to_string).collect()
}

const T4: DeviceId = DeviceId { vendor: 0x10de, device: 0x1eb8 };

#[test]
fn every_field_is_read() {
    let (file, warnings) = read(
        "
name: gpu
replicas: 3
az: zone-1
nodeMachineType: m5.large
workerClass: tkg-worker
labels: {team: a, on: true, n: 1}
taints:
- {key: nvidia.com/gpu, value: 'true', effect: NoSchedule}
- {key: b, effect: NoExecute}
vmClass: best-effort-large
storageClass: gold
tkrResolver: os-name=ubuntu
volumes:
- {name: etcd, mountPath: /var/lib/etcd, capacity: {storage: 50Gi}}
tkr: {reference: {name: v1.26.5---vmware.2}}
nodeDrainTimeout: 1m30s
baseMachineDeployment: md-0
vsphere:
  cloneMode: linkedClone
  datacenter: /dc0
  datastore: /dc0/ds
  storagePolicyName: gold
  folder: /dc0/vm/f
  network: VM Network
  nameservers: [10.0.0.2, 10.0.0.3]
  tkgIPFamily: ipv4,ipv6
  resourcePool: /dc0/rp
  vcIP: 10.0.0.1
  template: ubuntu
  memoryMiB: 32768
  diskGiB: 100
  numCPUs: 8
  numCoresPerSocket: 4
  additionalDisksGiB: [50, 60]
  powerOffMode: trySoft
  hardwareVersion: vmx-19
  customVMXKeys: {pciPassthru.use64bitMMIO: TRUE, pciPassthru.64bitMMIOSizeGB: 64}
  pciDevices:
  - {vendorId: 0x10DE, deviceId: 7864, customLabel: fast}
  - {vGPUProfile: grid_t4-16c}
",
    );
    assert_eq!(warnings, [""; 0]);
    assert_eq!((file.name.as_str(), file.replicas, file.node_drain_timeout_s), ("gpu", Some(3), Some(90)));
    assert_eq!(file.labels.as_ref().unwrap()["on"], "true");
    assert_eq!(file.taints.as_ref().unwrap()[1].effect, TaintEffect::NoExecute);
    assert_eq!(file.volumes.as_ref().unwrap()[0].storage, "50Gi");
    assert_eq!(
        (file.tkr.as_deref(), file.base_machine_deployment.as_deref()),
        (Some("v1.26.5---vmware.2"), Some("md-0"))
    );
    let vsphere = &file.vsphere;
    assert_eq!(vsphere.custom_vmx_keys.as_ref().unwrap()["pciPassthru.use64bitMMIO"], "TRUE");
    let devices = [
        PciDevice::Passthrough { id: T4, custom_label: Some("fast".to_owned()) },
        PciDevice::VGpu("grid_t4-16c".to_owned()),
    ];
    assert_eq!(vsphere.pci_devices.as_deref(), Some(&devices[..]));
    assert_eq!(vsphere.additional_disks_gib.as_deref(), Some(&[50, 60][..]));
    // What is left out stays as it is.
    assert_eq!(read("name: a").0, PoolFile { name: "a".to_owned(), ..PoolFile::default() });
}

/// Seed 000, word for word where it is YAML: one list entry of four lines, ids exchanged, notes behind them.
#[test]
fn the_example_of_the_seed_is_read_as_it_stands() {
    let (file, warnings) = read(
        "
name: gpu
replica: 2
vsphere:
  hardwareVersion: vmx-17
  customVMXKeys:
  - pciPassthru.allowP2P:true
    pciPassthru.RelaxACSforP2P:true
    pciPassthru.use64bitMMIO:true
    pciPassthru.64bitMMIOSizeGB:512
  pciDevices:
  - deviceId: 0x10DE  <-- this defines \"nvidia\"
    vendorId: 0x1EB8 <-- this identifies that it is a \"T4 GPU\"
",
    );
    assert_eq!(file.replicas, Some(2));
    let keys = file.vsphere.custom_vmx_keys.unwrap();
    assert_eq!(keys.len(), 4);
    assert_eq!((keys["pciPassthru.64bitMMIOSizeGB"].as_str(), keys["pciPassthru.allowP2P"].as_str()), ("512", "true"));
    assert_eq!(file.vsphere.pci_devices.unwrap(), [PciDevice::Passthrough { id: T4, custom_label: None }]);
    assert_eq!(warnings.len(), 4, "{warnings:#?}");
    assert_eq!(warnings[0], "pool.yaml:3:1: field `replica`: is taken for `replicas`");
    assert_eq!(
        warnings[3],
        "pool.yaml:12:5: field `vsphere.pciDevices[0]`: vendorId and deviceId are exchanged; taken as a NVIDIA T4: \
         {vendorId: 0x10DE, deviceId: 0x1EB8}"
    );
}

#[test]
fn vmx_keys_are_read_in_every_form() {
    let expected: BTreeMap<String, String> = [("a", "true"), ("b.c", "512")].map(|(k, v)| (k.into(), v.into())).into();
    for form in
        ["{a: true, b.c: 512}", "[a:true, b.c:512]", "[a=true, 'b.c=512']", "a=true,b.c=512", "[{a: true}, {b.c: 512}]"]
    {
        let (file, _) = read(&format!("name: x\nvsphere:\n  customVMXKeys: {form}\n"));
        assert_eq!(file.vsphere.custom_vmx_keys.as_ref(), Some(&expected), "{form}");
    }
}

#[test]
fn mistakes_are_reported_with_their_place_and_what_would_be_right() {
    for (text, expected) in [
        ("", "pool.yaml:1:1: is empty: give at least `name: NAME`"),
        ("replicas: 1", "pool.yaml:1:1: field `name`: is missing: give `name: NAME`"),
        (
            "name: x\nreplicsa: 3\n",
            "pool.yaml:2:1: field `replicsa`: is unknown to a node pool file; is `replicas` meant?",
        ),
        (
            "name: x\nnumCPUs: 3\n",
            "pool.yaml:2:1: field `numCPUs`: is unknown to a node pool file; it belongs below `vsphere`: write `vsphere.numCPUs`",
        ),
        (
            "name: x\nvsphere:\n  memoryMib: 3\n",
            "pool.yaml:3:3: field `vsphere.memoryMib`: is unknown to `vsphere`; is `memoryMiB` meant?",
        ),
        (
            "name: x\nvsphere:\n  labels: {}\n",
            "pool.yaml:3:3: field `vsphere.labels`: is unknown to `vsphere`; it belongs to the first layer: write `labels` at the beginning of a line",
        ),
        ("name: x\nreplicas: many\n", "pool.yaml:2:11: field `replicas`: `many` is not a whole number"),
        ("name: x\nreplicas: -1\n", "pool.yaml:2:11: field `replicas`: `-1` is out of range: 0 to 100000"),
        (
            "name: X_y\n",
            "pool.yaml:1:7: field `name`: `X_y` is not a name: up to 63 small letters, digits and `-`, with a letter or digit at both ends",
        ),
        (
            "name: x\nlabels: {a b: c}\n",
            "pool.yaml:2:10: field `labels`: `a b` is not the name of a label, such as example.com/team",
        ),
        (
            "name: x\ntaints: [{key: a, effect: NoSchedul}]\n",
            "pool.yaml:2:27: field `taints[0].effect`: `NoSchedul` is not one of NoSchedule, PreferNoSchedule, NoExecute; is `NoSchedule` meant?",
        ),
        (
            "name: x\nnodeDrainTimeout: soon\n",
            "pool.yaml:2:19: field `nodeDrainTimeout`: `soon` is not a duration such as `30s`, `1h30m` or `720h`",
        ),
        (
            "name: x\nvsphere:\n  pciDevices:\n  - {vendorId: 0x110DE, deviceId: 0x1EB8}\n",
            "pool.yaml:4:16: field `vsphere.pciDevices[0].vendorId`: `0x110DE` is out of range: PCI ids are 0x0001 to 0xFFFF",
        ),
        (
            "name: x\nvsphere:\n  pciDevices:\n  - {vendorId: nvidia, deviceId: 0x1EB8}\n",
            "pool.yaml:4:16: field `vsphere.pciDevices[0].vendorId`: `nvidia` is no PCI id: write it as `0x10DE`, `\"10DE\"` or 4318",
        ),
        (
            "name: x\nvsphere:\n  pciDevices:\n  - {vendorId: 0x10DE}\n",
            "pool.yaml:4:5: field `vsphere.pciDevices[0].deviceId`: is missing: give vendorId and deviceId, or a vGPUProfile",
        ),
        (
            "name: x\nvsphere:\n  pciDevices:\n  - {vendorId: 0x10DE, deviceId: 0x1EB8, vGPUProfile: grid_t4-1q}\n",
            "pool.yaml:4:5: field `vsphere.pciDevices[0]`: has a vGPUProfile and ids; give one of the two",
        ),
        (
            "name: x\nvsphere:\n  hardwareVersion: vmx-15\n  pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]\n",
            "pool.yaml:3:20: field `vsphere.hardwareVersion`: `vmx-15` is too low for pciDevices: hosts give devices to vmx-17 (vSphere 7.0) and later",
        ),
        (
            "name: x\nvsphere: {hardwareVersion: 17}\n",
            "pool.yaml:2:28: field `vsphere.hardwareVersion`: `17` is not a hardware version; write `vmx-17`",
        ),
        (
            "name: x\nvsphere: {customVMXKeys: [a]}\n",
            "pool.yaml:2:27: field `vsphere.customVMXKeys`: `a` is no setting such as `key=value`",
        ),
        (
            "name: x\nvsphere: {nameservers: [dns]}\n",
            "pool.yaml:2:25: field `vsphere.nameservers`: `dns` is not an address such as 10.0.0.2",
        ),
        ("name: x\n---\nname: y\n", "pool.yaml:3:1: is a second document; a file holds one pool"),
        ("name: x\nname: y\n", "pool.yaml:2:1: the key `name` is there twice"),
        ("- name: x\n", "pool.yaml:1:1: is not a map of fields such as `name: NAME`"),
    ] {
        assert_eq!(problems(text).first().map(String::as_str), Some(expected), "{text}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let told = problems("name: x\nreplicas: a\nvsphere: {numCPUs: 0, folders: /a}\nlabels: 3\n");
    assert_eq!(told.len(), 4, "{told:#?}");
}

#[test]
fn odd_devices_are_taken_with_a_warning() {
    let with = |device: &str| read(&format!("name: x\nvsphere:\n  pciDevices:\n  - {device}\n"));
    let (file, warnings) = with("{vendorId: 0x10DE, deviceId: 0xEEEE}");
    assert_eq!(file.vsphere.pci_devices.unwrap().len(), 1);
    assert!(
        warnings[0]
            .ends_with("`10de:eeee` is a device of NVIDIA that is not in the table of GPUs; its memory is not known"),
        "{warnings:?}"
    );
    let (_, warnings) = with("{vendorId: 0x15B3, deviceId: 0x101B}");
    assert!(warnings[0].ends_with("is of no vendor of GPUs; it counts as no GPU"), "{warnings:?}");
    let (_, warnings) = with("{vGPUProfile: grid_t4-1a}");
    assert!(warnings[0].contains("is for desktops"), "{warnings:?}");
    assert_eq!(Vendor::of(0x10de), Some(Vendor::Nvidia));
}

proptest::proptest! {
    #[test]
    fn nothing_panics(text in "\\PC{0,200}") {
        let _ = parse("pool.yaml", &text);
        let _ = parse("pool.yaml", &format!("name: x\nvsphere:\n  pciDevices:\n  - {text}\n"));
        let _ = parse("pool.yaml", &format!("name: x\nvsphere:\n  customVMXKeys: {text}\n"));
    }
}
