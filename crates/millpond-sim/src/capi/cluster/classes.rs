//! How the variables of Tanzu's ClusterClasses change templates, and the sizes of its virtual machine classes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::{at, put, text};

/// Cores and memory in GiB of the virtual machine classes that come with vSphere; `guaranteed-` ones are as large.
const VM_CLASSES: [(&str, i64, i64); 8] = [
    ("xsmall", 2, 2),
    ("small", 2, 4),
    ("medium", 2, 8),
    ("large", 4, 16),
    ("xlarge", 4, 32),
    ("2xlarge", 8, 64),
    ("4xlarge", 16, 128),
    ("8xlarge", 32, 128),
];

/// Sets the size of a machine by its virtual machine class, if the class is known.
pub fn set_vm_class(machine: &mut Value, class: &str) {
    let size = class.strip_prefix("best-effort-").or_else(|| class.strip_prefix("guaranteed-")).unwrap_or(class);
    if let Some((_, cpus, memory)) = VM_CLASSES.iter().find(|(name, ..)| *name == size) {
        machine["numCPUs"] = json!(cpus);
        machine["memoryMiB"] = json!(memory * 1024);
    }
}

/// Does to the spec of a machine what the variables say.
pub fn set_machine(machine: &mut Value, variables: &BTreeMap<String, Value>) {
    let variable = |name: &str| variables.get(name).unwrap_or(&Value::Null);
    if let Some(class) = variable("vmClass").as_str() {
        set_vm_class(machine, class);
    }
    let worker = variable("worker");
    for key in ["instanceType", "vmSize"] {
        if let Some(value) = text(worker, &[key]) {
            machine[key] = json!(value);
        }
    }
    for key in ["numCPUs", "memoryMiB", "diskGiB", "customVMXKeys"] {
        let value = at(worker, &["machine", key]);
        if !value.is_null() {
            machine[key] = value.clone();
        }
    }
    let pci = at(variable("pci"), &["worker"]);
    if let Some(devices) = pci["devices"].as_array().filter(|devices| !devices.is_empty()) {
        machine["pciDevices"] = json!(devices);
    }
    if let Some(version) = text(pci, &["hardwareVersion"]) {
        machine["hardwareVersion"] = json!(version);
    }
    for key in ["cloneMode", "datacenter", "datastore", "folder", "resourcePool", "server", "storagePolicyName"] {
        if let Some(value) = text(variable("vcenter"), &[key]) {
            machine[key] = json!(value);
        }
    }
    if let Some(network) = text(variable("vcenter"), &["network"]) {
        machine["network"] = json!({"devices": [{"networkName": network, "dhcp4": true}]});
    }
}

/// Does to the spec of a bootstrap configuration what the variables say.
pub fn set_bootstrap(config: &mut Value, variables: &BTreeMap<String, Value>) {
    let list = |name: &str| variables.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let label = |entry: &Value| Some((entry["key"].as_str()?.to_owned(), entry["value"].as_str()?.to_owned()));
    let labels: BTreeMap<String, String> = list("nodePoolLabels").iter().filter_map(label).collect();
    set_registration(config, &labels, &list("nodePoolTaints"));
}

/// Labels and taints with which a kubelet registers.
pub fn set_registration(config: &mut Value, labels: &BTreeMap<String, String>, taints: &[Value]) {
    const WAY: [&str; 2] = ["joinConfiguration", "nodeRegistration"];
    if !labels.is_empty() {
        let text: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let path = [WAY[0], WAY[1], "kubeletExtraArgs"];
        let argument = json!(text.join(","));
        if at(config, &path).is_object() {
            put(config, &[WAY[0], WAY[1], "kubeletExtraArgs", "node-labels"], argument);
        } else {
            let known = at(config, &path).as_array().cloned().unwrap_or_default();
            let mut arguments: Vec<Value> = known.into_iter().filter(|one| one["name"] != "node-labels").collect();
            arguments.push(json!({"name": "node-labels", "value": argument}));
            put(config, &path, json!(arguments));
        }
    }
    if !taints.is_empty() {
        put(config, &[WAY[0], WAY[1], "taints"], json!(taints));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_reach_templates() {
        let variables = BTreeMap::from([
            ("worker".to_owned(), json!({"machine": {"numCPUs": 8, "memoryMiB": 16384}})),
            (
                "pci".to_owned(),
                json!({"worker": {"devices": [{"vendorId": 4318, "deviceId": 7864}], "hardwareVersion": "vmx-17"}}),
            ),
            ("vcenter".to_owned(), json!({"datacenter": "dc", "network": "VM Network"})),
            ("nodePoolLabels".to_owned(), json!([{"key": "a", "value": "b"}])),
            ("nodePoolTaints".to_owned(), json!([{"key": "gpu", "value": "", "effect": "NoSchedule"}])),
        ]);
        let mut machine = json!({"numCPUs": 2, "template": "photon"});
        set_machine(&mut machine, &variables);
        assert_eq!(
            machine,
            json!({
                "numCPUs": 8, "memoryMiB": 16384, "template": "photon", "datacenter": "dc",
                "hardwareVersion": "vmx-17", "pciDevices": [{"vendorId": 4318, "deviceId": 7864}],
                "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
            })
        );
        let mut config = json!({"joinConfiguration": {"nodeRegistration": {
            "kubeletExtraArgs": [{"name": "v", "value": "2"}, {"name": "node-labels", "value": "old=1"}],
        }}});
        set_bootstrap(&mut config, &variables);
        let registration = &config["joinConfiguration"]["nodeRegistration"];
        let arguments = json!([{"name": "v", "value": "2"}, {"name": "node-labels", "value": "a=b"}]);
        assert_eq!((&registration["kubeletExtraArgs"], &registration["taints"][0]["key"]), (&arguments, &json!("gpu")));
    }

    #[test]
    fn classes_have_sizes() {
        for (class, cpus) in [("best-effort-large", 4), ("guaranteed-2xlarge", 8), ("small", 2)] {
            let mut machine = json!({});
            set_vm_class(&mut machine, class);
            assert_eq!(machine["numCPUs"], cpus, "{class}");
        }
        let mut own = json!({});
        set_vm_class(&mut own, "our-own");
        assert_eq!(own, json!({}));
    }
}
