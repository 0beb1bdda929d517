//! Finds the virtual machine of a node.
//!
//! In this order: the UUID of `spec.providerID`, the UUID of `status.nodeInfo.systemUUID` (in both byte orders: SMBIOS
//! before 2.6 had the first three groups the other way round), a unique name. A match that several machines have is no
//! match: the answer would be a guess.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Node;
use millpond_vsphere::{Inventory, Reference};

/// The result for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// No machine.
    None,
    /// This one.
    One(Reference),
    /// Several match: their number.
    Ambiguous(usize),
}

/// Machines by what nodes know of them.
pub(crate) struct Index<'i> {
    inventory: &'i Inventory,
    by_uuid: HashMap<String, Vec<&'i Reference>>,
    by_instance_uuid: HashMap<String, Vec<&'i Reference>>,
    by_name: HashMap<String, Vec<&'i Reference>>,
}

impl<'i> Index<'i> {
    pub(crate) fn new(inventory: &'i Inventory) -> Self {
        let (mut by_uuid, mut by_instance_uuid, mut by_name) = (HashMap::new(), HashMap::new(), HashMap::new());
        let add = |map: &mut HashMap<String, Vec<&'i Reference>>, key: String, vm: &'i Reference| {
            if !key.is_empty() {
                map.entry(key).or_default().push(vm);
            }
        };
        for (reference, vm) in inventory.vms.iter().filter(|(_, vm)| !vm.is_template) {
            add(&mut by_uuid, vm.uuid.to_ascii_lowercase(), reference);
            add(&mut by_instance_uuid, vm.instance_uuid.to_ascii_lowercase(), reference);
            add(&mut by_name, vm.name.to_ascii_lowercase(), reference);
        }
        Self { inventory, by_uuid, by_instance_uuid, by_name }
    }

    /// The machine of a node.
    pub(crate) fn find(&self, node: &Node) -> Match {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        for uuid in uuids(node) {
            for map in [&self.by_uuid, &self.by_instance_uuid] {
                if let Some(found) = map.get(&uuid) {
                    return self.unique(found, name);
                }
            }
        }
        match self.by_name.get(&name.to_ascii_lowercase()).map(Vec::as_slice) {
            None | Some([]) => Match::None,
            Some([one]) => Match::One((*one).clone()),
            Some(several) => Match::Ambiguous(several.len()),
        }
    }

    /// Copies of a machine can share its UUID; the one with the node's name is chosen.
    fn unique(&self, found: &[&Reference], name: &str) -> Match {
        if let [one] = found {
            return Match::One((*one).clone());
        }
        let named = |vm: &&&Reference| self.inventory.vms[**vm].name.eq_ignore_ascii_case(name);
        let mut same_name = found.iter().filter(named);
        match (same_name.next(), same_name.next()) {
            (Some(one), None) => Match::One((*one).clone()),
            _ => Match::Ambiguous(found.len()),
        }
    }
}

/// UUIDs that a node may be known by, the surest first.
fn uuids(node: &Node) -> Vec<String> {
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let of_provider = provider_id.strip_prefix("vsphere://").map(|rest| rest.trim_start_matches('/'));
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let of_system = info.map(|info| info.system_uuid.as_str());
    let mut uuids = Vec::new();
    for uuid in [of_provider, of_system].into_iter().flatten().map(str::to_ascii_lowercase) {
        let swapped = swap(&uuid);
        uuids.extend(Some(uuid).filter(|uuid| uuid.len() == 36));
        uuids.extend(swapped);
    }
    uuids
}

/// A UUID with the bytes of its first three groups the other way round.
fn swap(uuid: &str) -> Option<String> {
    let groups: Vec<&str> = uuid.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    if !uuid.is_ascii() || lengths != [8, 4, 4, 4, 12] {
        return None;
    }
    let reversed = |group: &str| -> String {
        (0..group.len()).step_by(2).rev().map(|at| &group[at..at + 2]).collect::<Vec<_>>().concat()
    };
    let first: Vec<String> = groups[..3].iter().map(|group| reversed(group)).collect();
    Some([first.join("-"), groups[3..].join("-")].join("-"))
}

#[cfg(test)]
mod tests {
    use millpond_vsphere::inventory::Vm;
    use serde_json::json;

    use super::*;

    const UUID: &str = "420f1d2c-3b4a-5968-7786-95a4b3c2d1e0";
    const SWAPPED: &str = "2c1d0f42-4a3b-6859-7786-95a4b3c2d1e0";

    fn inventory(vms: &[(&str, &str, &str)]) -> Inventory {
        let mut inventory = Inventory::default();
        for (id, name, uuid) in vms {
            let vm = Vm { name: (*name).to_owned(), uuid: (*uuid).to_owned(), ..Vm::default() };
            inventory.vms.insert(Reference::new("VirtualMachine", id), vm);
        }
        inventory
    }

    fn check(vms: &[(&str, &str, &str)], provider_id: &str, system_uuid: &str, expected: &str) {
        let inventory = inventory(vms);
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "worker-1"}, "spec": {"providerID": provider_id},
            "status": {"nodeInfo": {
                "systemUUID": system_uuid, "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "", "architecture": "",
            }},
        }))
        .unwrap();
        let found = match Index::new(&inventory).find(&node) {
            Match::None => "none".to_owned(),
            Match::One(vm) => vm.id.to_string(),
            Match::Ambiguous(count) => format!("{count} machines"),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_surest_match_comes_first() {
        let provider = format!("vsphere://{UUID}");
        check(&[("vm-1", "renamed", UUID), ("vm-2", "worker-1", "")], &provider, "", "vm-1");
        check(&[("vm-1", "a", UUID)], "", &UUID.to_uppercase(), "vm-1");
        check(&[("vm-1", "a", UUID)], "", SWAPPED, "vm-1");
        check(&[("vm-1", "Worker-1", "x")], "kwok://x", UUID, "vm-1");
        check(&[("vm-1", "worker-1", "x"), ("vm-2", "worker-1", "y")], "", "", "2 machines");
        check(&[("vm-1", "a", UUID), ("vm-2", "b", UUID)], &provider, "", "2 machines");
        check(&[("vm-1", "a", UUID), ("vm-2", "worker-1", UUID)], &provider, "", "vm-2");
        check(&[("vm-1", "a", "x")], &provider, UUID, "none");
        check(&[], "", "", "none");
    }
}
