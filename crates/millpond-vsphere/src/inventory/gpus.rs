//! The GPUs of a host, joined from its PCI devices, its graphics manager and the machines that hold them.

use std::collections::{BTreeMap, HashMap};

use super::{Host, Inventory, Vm};
use crate::reference::Reference;

/// PCI classes of GPUs: VGA and 3D controllers, other display controllers, processing accelerators.
const CLASSES: [u16; 4] = [0x0300, 0x0302, 0x0380, 0x1200];
/// NVIDIA, AMD, Intel, Habana. A management controller is a VGA controller too, of another vendor.
const VENDORS: [u16; 4] = [0x10de, 0x1002, 0x8086, 0x1da3];

pub(super) fn is_gpu(class: u16, vendor: u16) -> bool {
    CLASSES.contains(&class) && VENDORS.contains(&vendor)
}

/// A PCI device of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address on the host: `0000:3b:00.0`.
    pub id: String,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Its name as the host knows it.
    pub name: String,
}

impl PciDevice {
    /// Vendor and device: `10de:1eb8`.
    pub fn model_id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }
}

/// A card as the host's graphics manager reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graphics {
    /// The PCI device.
    pub pci_id: String,
    /// `NVIDIA Tesla T4`.
    pub name: String,
    /// `basic`, `shared`, `direct` or `sharedDirect`.
    pub kind: String,
    /// Memory of the card in MiB.
    pub memory_mib: u64,
    /// Machines that use the card now.
    pub vms: Vec<Reference>,
}

/// The backing of a PCI passthrough device of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// One device of one host.
    Fixed {
        /// Its address on the host.
        id: String,
        /// Vendor id.
        vendor: u16,
        /// Device id.
        device: u16,
    },
    /// Any device of these models (Dynamic DirectPath I/O).
    Dynamic {
        /// Vendor and device ids.
        allowed: Vec<(u16, u16)>,
        /// The device that it got, while the machine is powered on.
        assigned: Option<String>,
    },
    /// A share of a card.
    Vgpu {
        /// `grid_t4-4c`.
        profile: String,
    },
}

/// How machines can use a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuMode {
    /// A machine gets the whole card.
    Passthrough,
    /// Machines get shares (vGPU).
    Shared,
    /// Only the host uses it.
    HostOnly,
}

/// A card of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its address on the host.
    pub pci_id: String,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// The most readable known name.
    pub name: String,
    /// Memory in MiB; zero if the host does not say.
    pub memory_mib: u64,
    /// How machines can use it.
    pub mode: GpuMode,
    /// Machines that hold it or shares of it.
    pub used_by: Vec<Reference>,
}

impl Gpu {
    /// Vendor and device: `10de:1eb8`.
    pub fn model_id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }
}

impl Inventory {
    /// The cards of a host with the machines that hold them, by address. For all hosts at once see
    /// [`all_gpus`](Self::all_gpus).
    pub fn gpus(&self, host: &Reference) -> Vec<Gpu> {
        let Some(found) = self.hosts.get(host) else { return Vec::new() };
        let holders = self.vms.iter().filter(|(_, vm)| holds_card(vm) && vm.host.as_ref() == Some(host));
        gpus_of(found, holders)
    }

    /// The cards of every host that has some. Looks at each machine once.
    pub fn all_gpus(&self) -> BTreeMap<&Reference, Vec<Gpu>> {
        let mut holders: HashMap<&Reference, Vec<(&Reference, &Vm)>> = HashMap::new();
        for (reference, vm) in self.vms.iter().filter(|(_, vm)| holds_card(vm)) {
            if let Some(host) = &vm.host {
                holders.entry(host).or_default().push((reference, vm));
            }
        }
        let with_cards = self.hosts.iter().filter(|(_, host)| !host.pci.is_empty());
        with_cards.map(|(host, found)| (host, gpus_of(found, holders.remove(host).unwrap_or_default()))).collect()
    }
}

/// Whether a machine has a card: it runs, and has a device for one.
fn holds_card(vm: &Vm) -> bool {
    vm.powered_on && !vm.passthrough.is_empty()
}

/// The cards of a host, by address; `holders` are machines of this host, in the order of their references.
fn gpus_of<'i>(host: &Host, holders: impl IntoIterator<Item = (&'i Reference, &'i Vm)>) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = host.pci.iter().map(|device| card(host, device)).collect();
    gpus.sort_by(|one, other| one.pci_id.cmp(&other.pci_id));
    let mut unassigned = Vec::new();
    for (reference, vm) in holders {
        for backing in &vm.passthrough {
            match backing {
                Backing::Fixed { id, .. } | Backing::Dynamic { assigned: Some(id), .. } => {
                    hold(&mut gpus, id, reference);
                }
                Backing::Dynamic { allowed, assigned: None } => unassigned.push((reference, allowed)),
                // The graphics manager lists those.
                Backing::Vgpu { .. } => {}
            }
        }
    }
    // A machine that runs holds some card, even where the server does not say which.
    for (vm, allowed) in unassigned {
        let free = |gpu: &&mut Gpu| gpu.used_by.is_empty() && allowed.contains(&(gpu.vendor, gpu.device));
        if let Some(gpu) = gpus.iter_mut().find(free) {
            gpu.used_by.push(vm.clone());
        }
    }
    gpus
}

fn card(host: &Host, device: &PciDevice) -> Gpu {
    let graphics = host.graphics.iter().find(|graphics| graphics.pci_id == device.id);
    let mode = match graphics.map(|graphics| graphics.kind.as_str()) {
        _ if host.passthrough.contains(&device.id) => GpuMode::Passthrough,
        Some("shared" | "sharedDirect") => GpuMode::Shared,
        Some("direct") => GpuMode::Passthrough,
        _ => GpuMode::HostOnly,
    };
    let named = graphics.map(|graphics| graphics.name.as_str()).filter(|name| !name.is_empty());
    Gpu {
        pci_id: device.id.clone(),
        vendor: device.vendor,
        device: device.device,
        name: named.unwrap_or(&device.name).to_owned(),
        memory_mib: graphics.map(|graphics| graphics.memory_mib).unwrap_or_default(),
        mode,
        used_by: graphics.map(|graphics| graphics.vms.clone()).unwrap_or_default(),
    }
}

fn hold(gpus: &mut [Gpu], id: &str, vm: &Reference) {
    if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.pci_id == id)
        && !gpu.used_by.contains(vm)
    {
        gpu.used_by.push(vm.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str) -> PciDevice {
        PciDevice { id: id.to_owned(), vendor: 0x10de, device: 0x1eb8, name: "TU104GL".to_owned() }
    }

    #[test]
    fn cards_are_held_by_running_machines() {
        let host = Reference::new("HostSystem", "host-1");
        let shared = Graphics {
            pci_id: "c".into(),
            name: "Tesla T4".into(),
            kind: "sharedDirect".into(),
            ..Graphics::default()
        };
        let vm = |name: &str| Reference::new("VirtualMachine", name);
        let mut inventory = Inventory::default();
        inventory.hosts.insert(
            host.clone(),
            Host {
                pci: vec![device("d"), device("c"), device("b"), device("a")],
                graphics: vec![Graphics { vms: vec![vm("vm-9")], ..shared }],
                passthrough: vec!["a".into(), "b".into(), "d".into()],
                ..Host::default()
            },
        );
        let machine = |powered_on, backing| Vm {
            host: Some(host.clone()),
            powered_on,
            passthrough: vec![backing],
            ..Vm::default()
        };
        let fixed = |id: &str| Backing::Fixed { id: id.to_owned(), vendor: 0x10de, device: 0x1eb8 };
        inventory.vms.insert(vm("vm-1"), machine(true, fixed("a")));
        inventory.vms.insert(vm("vm-2"), machine(false, fixed("b")));
        let dynamic = Backing::Dynamic { allowed: vec![(0x10de, 0x1eb8)], assigned: None };
        inventory.vms.insert(vm("vm-3"), machine(true, dynamic));
        let cards = inventory.gpus(&host);
        let used: Vec<_> = cards.iter().map(|gpu| (gpu.pci_id.as_str(), gpu.used_by.len(), gpu.mode)).collect();
        assert_eq!(
            used,
            [
                ("a", 1, GpuMode::Passthrough),
                ("b", 1, GpuMode::Passthrough),
                ("c", 1, GpuMode::Shared),
                ("d", 0, GpuMode::Passthrough)
            ]
        );
        assert_eq!((cards[2].name.as_str(), cards[0].name.as_str()), ("Tesla T4", "TU104GL"));
        assert_eq!(cards[1].used_by, [vm("vm-3")]);
        // All hosts at once say the same; a host without cards is left out.
        let plain = Reference::new("HostSystem", "host-2");
        inventory.hosts.insert(plain.clone(), Host::default());
        inventory.vms.insert(vm("vm-4"), Vm { host: Some(plain), ..machine(true, fixed("a")) });
        assert_eq!(inventory.all_gpus(), BTreeMap::from([(&host, cards)]));
    }
}
