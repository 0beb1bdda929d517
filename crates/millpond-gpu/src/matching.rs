//! Finds the virtual machine of a node.
//!
//! In this order: the UUID of `spec.providerID`, the UUID of `status.nodeInfo.systemUUID` (in both byte orders: SMBIOS
//! before 2.6 had the first three groups the other way round), a unique name. A match that several machines have is no
//! match: the answer would be a guess.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

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

/// Machines by a text that nodes know of them, in lower case.
type By<'i> = HashMap<Cow<'i, str>, Vec<&'i Reference>>;

/// Machines that the nodes may be. Of a large vCenter that is a small part; the others are left out.
pub(crate) struct Index<'i> {
    inventory: &'i Inventory,
    by_uuid: By<'i>,
    by_instance_uuid: By<'i>,
    by_name: By<'i>,
}

impl<'i> Index<'i> {
    pub(crate) fn new(inventory: &'i Inventory, nodes: &[Arc<Node>]) -> Self {
        fn add<'i>(map: &mut By<'i>, wanted: &HashSet<String>, text: &'i str, vm: &'i Reference) {
            let key = lower(text);
            if wanted.contains(&*key) {
                map.entry(key).or_default().push(vm);
            }
        }
        let known_uuids: HashSet<String> = nodes.iter().flat_map(|node| uuids(node)).collect();
        let names: HashSet<String> = nodes.iter().map(|node| lower(name(node)).into_owned()).collect();
        let (mut by_uuid, mut by_instance_uuid, mut by_name) = (By::new(), By::new(), By::new());
        for (reference, vm) in inventory.vms.iter().filter(|(_, vm)| !vm.is_template) {
            add(&mut by_uuid, &known_uuids, &vm.uuid, reference);
            add(&mut by_instance_uuid, &known_uuids, &vm.instance_uuid, reference);
            add(&mut by_name, &names, &vm.name, reference);
        }
        Self { inventory, by_uuid, by_instance_uuid, by_name }
    }

    /// The machine of a node.
    pub(crate) fn find(&self, node: &Node) -> Match {
        for uuid in uuids(node) {
            for map in [&self.by_uuid, &self.by_instance_uuid] {
                if let Some(found) = map.get(uuid.as_str()) {
                    return self.unique(found, name(node));
                }
            }
        }
        match self.by_name.get(&*lower(name(node))).map(Vec::as_slice) {
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

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The same text where it has no capitals.
fn lower(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) { text.to_ascii_lowercase().into() } else { text.into() }
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
        let node = Arc::new(node);
        let found = match Index::new(&inventory, std::slice::from_ref(&node)).find(&node) {
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
