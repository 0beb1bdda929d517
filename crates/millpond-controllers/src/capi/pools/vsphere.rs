//! The second layer of a node pool file on a VSphereMachineTemplate, and what devices need besides.

use millpond_api::capi::gpu::{self, Check, DeviceId, LEAST_HARDWARE_VERSION, MMIO_SIZE_GB, USE_64BIT_MMIO};
use millpond_api::capi::pool_file::{PciDevice, VSphere};
use serde_json::{Value, json};

use super::changes::Changes;
use super::{Effect, RejectedChange};

/// Puts what the file says into `spec.template.spec` of a VSphereMachineTemplate.
pub(super) fn apply(
    spec: &mut Value,
    file: &VSphere,
    effect: Effect,
    changes: &mut Changes,
    warnings: &mut Vec<String>,
) {
    let mut put = |key: &str, value: Option<Value>, field: &str| {
        if let Some(value) = value {
            changes.put(spec, &[key], value, &format!("vsphere.{field}"), effect);
        }
    };
    let text = |value: &Option<String>| value.as_ref().map(|it| json!(it));
    put("cloneMode", text(&file.clone_mode), "cloneMode");
    put("datacenter", text(&file.datacenter), "datacenter");
    put("datastore", text(&file.datastore), "datastore");
    put("storagePolicyName", text(&file.storage_policy_name), "storagePolicyName");
    put("folder", text(&file.folder), "folder");
    put("resourcePool", text(&file.resource_pool), "resourcePool");
    put("server", text(&file.vc_ip), "vcIP");
    put("template", text(&file.template), "template");
    put("memoryMiB", file.memory_mib.map(Value::from), "memoryMiB");
    put("diskGiB", file.disk_gib.map(Value::from), "diskGiB");
    put("numCPUs", file.num_cpus.map(Value::from), "numCPUs");
    put("numCoresPerSocket", file.num_cores_per_socket.map(Value::from), "numCoresPerSocket");
    put("additionalDisksGiB", file.additional_disks_gib.as_ref().map(|it| json!(it)), "additionalDisksGiB");
    put("powerOffMode", text(&file.power_off_mode), "powerOffMode");
    put("hardwareVersion", text(&file.hardware_version), "hardwareVersion");
    put("customVMXKeys", file.custom_vmx_keys.as_ref().map(|it| json!(it)), "customVMXKeys");
    put("pciDevices", file.pci_devices.as_ref().map(|it| it.iter().map(device).collect()), "pciDevices");
    network(spec, file, effect, changes);
    if spec["cloneMode"] == "linkedClone" && file.disk_gib.is_some() {
        warnings.push("vsphere.diskGiB does nothing with linkedClone: the disk is that of the template".to_owned());
    }
    if file.num_cpus == Some(1) {
        warnings.push("vsphere.numCPUs: vSphere's provider makes machines with 2 cores or more".to_owned());
    }
}

/// A device as templates write it.
pub(super) fn device(device: &PciDevice) -> Value {
    match device {
        PciDevice::VGpu(profile) => json!({"vGPUProfile": profile}),
        PciDevice::Passthrough { id, custom_label } => {
            let mut value = json!({"vendorId": id.vendor, "deviceId": id.device});
            if let Some(label) = custom_label {
                value["customLabel"] = label.as_str().into();
            }
            value
        }
    }
}

/// One network card for each network. Name servers or address families alone change the existing cards.
fn network(spec: &mut Value, file: &VSphere, effect: Effect, changes: &mut Changes) {
    let families = file.tkg_ip_family.as_deref();
    let (dhcp4, dhcp6) =
        (families.is_none_or(|it| it.contains("ipv4")), families.is_some_and(|it| it.contains("ipv6")));
    let mut cards: Vec<Value> = spec["network"]["devices"].as_array().cloned().unwrap_or_default();
    let before = cards.clone();
    if let Some(network) = &file.network {
        let is_there = cards.len() == 1 && cards[0]["networkName"] == network.as_str();
        if !is_there {
            cards = vec![json!({"networkName": network, "dhcp4": dhcp4})];
            if dhcp6 {
                cards[0]["dhcp6"] = true.into();
            }
        }
    }
    for card in &mut cards {
        if families.is_some() {
            card["dhcp4"] = dhcp4.into();
            card["dhcp6"] = dhcp6.into();
        }
        if let Some(servers) = &file.nameservers {
            card["nameservers"] = json!(servers);
        }
    }
    if cards != before {
        let fields = [
            ("network", file.network.is_some()),
            ("nameservers", file.nameservers.is_some()),
            ("tkgIPFamily", file.tkg_ip_family.is_some()),
        ];
        let field = fields.iter().find(|(_, given)| *given).map_or("network", |(field, _)| *field);
        changes.put(spec, &["network", "devices"], cards.into(), &format!("vsphere.{field}"), effect);
    }
}

/// The devices of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Devices {
    /// Devices that are passed through as a whole.
    pub(super) passed: u32,
    /// The sum of their memory, of those whose memory is known.
    pub(super) memory_gib: u32,
    /// Whether the memory of all is known.
    pub(super) known: bool,
    /// The value of the accelerator label.
    pub(super) label: Option<String>,
}

/// Reads `pciDevices`.
pub(super) fn devices(list: &Value) -> Devices {
    let mut found = Devices { known: true, ..Devices::default() };
    for device in list.as_array().into_iter().flatten() {
        if let Some(profile) = device["vGPUProfile"].as_str().filter(|it| !it.is_empty()) {
            let card =
                gpu::parse_profile(profile).map_or_else(|| profile.to_owned(), |it| format!("nvidia {}", it.card));
            found.label.get_or_insert_with(|| gpu::label_value(&card));
            continue;
        }
        let id = |key: &str| device[key].as_i64().and_then(|id| u16::try_from(id).ok());
        let (Some(vendor), Some(id)) = (id("vendorId"), id("deviceId")) else { continue };
        match gpu::check_device(DeviceId { vendor, device: id }) {
            Check::Known(gpu) => {
                found.passed += 1;
                found.memory_gib += gpu.memory_gib;
                found.label.get_or_insert_with(|| gpu.label());
            }
            Check::UnknownDevice(vendor) => {
                (found.passed, found.known) = (found.passed + 1, false);
                found.label.get_or_insert_with(|| gpu::label_value(vendor.name()));
            }
            Check::Swapped(..) | Check::Other(_) | Check::NotGpu => found.passed += 1,
        }
    }
    found
}

/// Brings hardware version and VMX keys to what passed-through devices need. `version` and `keys` are read and
/// written where the path keeps them.
pub(super) fn settle(
    devices: &Devices,
    version: &mut Option<String>,
    keys: &mut serde_json::Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<(), RejectedChange> {
    if devices.passed == 0 {
        return Ok(());
    }
    let least = format!("vmx-{LEAST_HARDWARE_VERSION}");
    match version.as_deref().map(|text| (text, gpu::parse_hardware_version(text))) {
        None => {
            warnings.push(format!("vsphere.hardwareVersion is set to {least}: pciDevices need it"));
            *version = Some(least);
        }
        Some((text, number)) if number.is_none_or(|number| number < LEAST_HARDWARE_VERSION) => {
            let problem = format!("`{text}` is too low for pciDevices");
            return Err(RejectedChange::new("vsphere.hardwareVersion", problem).hint(format!("give {least} or later")));
        }
        Some(_) => {}
    }
    if devices.memory_gib == 0 {
        return Ok(());
    }
    let needed = gpu::mmio_size_gb(devices.memory_gib);
    keys.entry(USE_64BIT_MMIO).or_insert_with(|| "TRUE".into());
    match keys.get(MMIO_SIZE_GB).and_then(Value::as_str).map(str::parse::<u32>) {
        None => {
            keys.insert(MMIO_SIZE_GB.to_owned(), needed.to_string().into());
        }
        Some(Ok(given)) if given < needed => warnings.push(format!(
            "vsphere.customVMXKeys: {MMIO_SIZE_GB} is {given}, but GPUs with {} GiB need {needed}: the machine may not start",
            devices.memory_gib
        )),
        Some(Ok(_)) => {}
        Some(Err(_)) => {
            let problem = format!("{MMIO_SIZE_GB} is not a number");
            return Err(RejectedChange::new("vsphere.customVMXKeys", problem).hint(format!("give {needed}, or leave it out")));
        }
    }
    if !devices.known {
        warnings
            .push(format!("vsphere.pciDevices: the memory of some devices is not known; check {MMIO_SIZE_GB} by hand"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(list: Value, version: Option<&str>, keys: Value) -> (Option<String>, Value, Vec<String>) {
        let (mut version, mut warnings) = (version.map(ToOwned::to_owned), Vec::new());
        let Value::Object(mut keys) = keys else { panic!("keys are a map") };
        settle(&devices(&list), &mut version, &mut keys, &mut warnings).unwrap();
        (version, keys.into(), warnings)
    }

    #[test]
    fn what_devices_need_is_added() {
        let t4 = json!({"vendorId": 0x10de, "deviceId": 0x1eb8});
        let (version, keys, warnings) = settled(json!([t4]), None, json!({}));
        assert_eq!(version.as_deref(), Some("vmx-17"));
        assert_eq!(keys, json!({"pciPassthru.use64bitMMIO": "TRUE", "pciPassthru.64bitMMIOSizeGB": "32"}));
        assert_eq!(warnings, ["vsphere.hardwareVersion is set to vmx-17: pciDevices need it"]);
        // Two A100 of 80 GiB.
        let a100 = json!({"vendorId": 0x10de, "deviceId": 0x20b5});
        let (_, keys, _) = settled(json!([a100, a100]), Some("vmx-19"), json!({}));
        assert_eq!(keys["pciPassthru.64bitMMIOSizeGB"], "512");
    }

    #[test]
    fn what_is_given_is_checked() {
        let a100 = json!({"vendorId": 0x10de, "deviceId": 0x20b5});
        let (_, keys, warnings) = settled(json!([a100]), Some("vmx-19"), json!({"pciPassthru.64bitMMIOSizeGB": "64"}));
        assert_eq!(keys["pciPassthru.64bitMMIOSizeGB"], "64");
        assert!(warnings[0].contains("is 64, but GPUs with 80 GiB need 256"), "{warnings:?}");
        let mut version = Some("vmx-15".to_owned());
        let refused = settle(&devices(&json!([a100])), &mut version, &mut serde_json::Map::new(), &mut Vec::new());
        assert_eq!(refused.unwrap_err().to_string(), "vsphere.hardwareVersion: `vmx-15` is too low for pciDevices");
    }

    #[test]
    fn a_part_of_a_card_needs_nothing() {
        let (version, keys, warnings) = settled(json!([{"vGPUProfile": "grid_t4-16c"}]), None, json!({}));
        assert_eq!((version, keys, warnings.len()), (None, json!({}), 0));
        assert_eq!(devices(&json!([{"vGPUProfile": "grid_t4-16c"}])).label.as_deref(), Some("nvidia-t4"));
    }
}
