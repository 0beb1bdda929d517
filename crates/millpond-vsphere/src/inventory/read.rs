//! Properties to fields. Each function returns `None` for a path that no field belongs to, else whether the field
//! differs now.

use super::gpus::{Backing, Graphics, PciDevice, is_gpu};
use super::{Connection, Host, ScheduledTask, Vm};
use crate::property::ObjectContent;
use crate::xml::Element;

pub(super) fn host(host: &mut Host, path: &str, value: Option<&Element>) -> Option<bool> {
    let changed = match path {
        "name" => put(&mut host.name, text(value)),
        "parent" => put(&mut host.parent, value.and_then(Element::reference)),
        "runtime.connectionState" => put(&mut host.connection, connection(value)),
        "runtime.powerState" => put(&mut host.powered_on, is(value, "poweredOn")),
        "runtime.inMaintenanceMode" => put(&mut host.in_maintenance, is(value, "true")),
        "runtime.inQuarantineMode" => put(&mut host.in_quarantine, is(value, "true")),
        "hardware.pciDevice" => put(&mut host.pci, items(value).filter_map(pci_device).collect()),
        "config.graphicsInfo" => put(&mut host.graphics, items(value).map(graphics).collect()),
        "config.pciPassthruInfo" => put(&mut host.passthrough, items(value).filter_map(active_passthrough).collect()),
        _ => return None,
    };
    Some(changed)
}

pub(super) fn vm(vm: &mut Vm, path: &str, value: Option<&Element>) -> Option<bool> {
    let changed = match path {
        "name" => put(&mut vm.name, text(value)),
        "config.uuid" => put(&mut vm.uuid, text(value).to_lowercase()),
        "config.instanceUuid" => put(&mut vm.instance_uuid, text(value).to_lowercase()),
        "config.template" => put(&mut vm.is_template, is(value, "true")),
        "config.hardware.device" => put(&mut vm.passthrough, items(value).filter_map(backing).collect()),
        "runtime.host" => put(&mut vm.host, value.and_then(Element::reference)),
        "runtime.powerState" => put(&mut vm.powered_on, is(value, "poweredOn")),
        "runtime.connectionState" => put(&mut vm.connection, connection(value)),
        "summary.quickStats.overallCpuDemand" => put(&mut vm.cpu_demand_mhz, number(value)),
        "summary.quickStats.guestMemoryUsage" => put(&mut vm.guest_memory_mib, number(value)),
        _ => return None,
    };
    Some(changed)
}

pub(super) fn task(content: &ObjectContent) -> Option<ScheduledTask> {
    let (_, info) = content.properties.iter().find(|(path, _)| path == "info")?;
    Some(ScheduledTask {
        name: info.text_of("name").unwrap_or_default().to_owned(),
        entity: info.child("entity")?.reference()?,
        method: info.child("action").and_then(|action| action.text_of("name")).unwrap_or_default().to_owned(),
        enabled: info.text_of("enabled") == Some("true"),
        next_run: info.text_of("nextRunTime").and_then(moment),
    })
}

/// An `xsd:dateTime`; without an offset it is UTC.
fn moment(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok().or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    })
}

fn put<T: PartialEq>(field: &mut T, value: T) -> bool {
    if *field == value {
        return false;
    }
    *field = value;
    true
}

fn text(value: Option<&Element>) -> String {
    value.map(|value| value.text.trim().to_owned()).unwrap_or_default()
}

fn is(value: Option<&Element>, wanted: &str) -> bool {
    value.is_some_and(|value| value.text.trim() == wanted)
}

fn number(value: Option<&Element>) -> i64 {
    value.and_then(|value| value.text.trim().parse().ok()).unwrap_or_default()
}

fn connection(value: Option<&Element>) -> Connection {
    match value.map(|value| value.text.trim()) {
        Some("connected") | None => Connection::Connected,
        Some("notResponding") => Connection::NotResponding,
        Some(_) => Connection::Disconnected,
    }
}

/// The elements of an array, whatever their names.
fn items(value: Option<&Element>) -> impl Iterator<Item = &Element> {
    value.into_iter().flat_map(|value| &value.children)
}

/// PCI ids are signed 16-bit numbers on the wire: Intel's 0x8086 arrives as -32634.
fn pci_id(text: &str) -> Option<u16> {
    text.trim().parse::<i32>().ok().map(|id| id as u16)
}

fn pci_device(device: &Element) -> Option<PciDevice> {
    let id = |name| device.text_of(name).and_then(pci_id);
    let (class, vendor) = (id("classId")?, id("vendorId")?);
    // A host has a hundred devices and more; only accelerators are kept.
    is_gpu(class, vendor).then_some(())?;
    Some(PciDevice {
        id: device.text_of("id")?.to_owned(),
        vendor,
        device: id("deviceId")?,
        name: device.text_of("deviceName").unwrap_or_default().to_owned(),
    })
}

fn graphics(info: &Element) -> Graphics {
    Graphics {
        pci_id: info.text_of("pciId").unwrap_or_default().to_owned(),
        name: info.text_of("deviceName").unwrap_or_default().to_owned(),
        kind: info.text_of("graphicsType").unwrap_or_default().to_owned(),
        memory_mib: info.text_of("memorySizeInKB").and_then(|text| text.parse::<u64>().ok()).unwrap_or_default() >> 10,
        vms: info.all("vm").filter_map(Element::reference).collect(),
    }
}

fn active_passthrough(info: &Element) -> Option<String> {
    (info.text_of("passthruActive") == Some("true")).then(|| info.text_of("id").map(str::to_owned))?
}

fn backing(device: &Element) -> Option<Backing> {
    if device.xsi_type.as_deref() != Some("VirtualPCIPassthrough") {
        return None;
    }
    let backing = device.child("backing")?;
    match backing.xsi_type.as_deref()? {
        "VirtualPCIPassthroughVmiopBackingInfo" => {
            Some(Backing::Vgpu { profile: backing.text_of("vgpu").unwrap_or_default().to_owned() })
        }
        "VirtualPCIPassthroughDynamicBackingInfo" => {
            let allowed = |allowed: &Element| {
                Some((pci_id(allowed.text_of("vendorId")?)?, pci_id(allowed.text_of("deviceId")?)?))
            };
            Some(Backing::Dynamic {
                allowed: backing.all("allowedDevice").filter_map(allowed).collect(),
                assigned: backing.text_of("assignedId").filter(|id| !id.is_empty()).map(str::to_owned),
            })
        }
        "VirtualPCIPassthroughDeviceBackingInfo" => {
            // Here, and only here, the device id is a hexadecimal string.
            let hex = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            Some(Backing::Fixed {
                id: backing.text_of("id").unwrap_or_default().to_owned(),
                vendor: backing.text_of("vendorId").and_then(pci_id).unwrap_or_default(),
                device: backing.text_of("deviceId").and_then(hex).unwrap_or_default(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    #[test]
    fn ids_are_signed_on_the_wire() {
        for (text, id) in [("-32634", 0x8086), ("4318", 0x10de), ("7864", 0x1eb8), ("-1", 0xffff), ("32902", 0x8086)] {
            assert_eq!(pci_id(text), Some(id), "{text}");
        }
        assert_eq!(pci_id("0x10de"), None);
    }

    #[test]
    fn hosts_keep_accelerators_only() {
        let devices = xml::parse(
            "<val><HostPciDevice><id>0000:3b:00.0</id><classId>770</classId><vendorId>4318</vendorId>\
             <deviceId>7864</deviceId><deviceName>TU104GL [Tesla T4]</deviceName></HostPciDevice>\
             <HostPciDevice><id>0000:00:00.0</id><classId>1536</classId><vendorId>-32634</vendorId>\
             <deviceId>1</deviceId></HostPciDevice>\
             <HostPciDevice><id>0000:00:02.0</id><classId>768</classId><vendorId>4139</vendorId>\
             <deviceId>1</deviceId></HostPciDevice></val>",
        )
        .unwrap();
        let mut host_read = Host::default();
        assert_eq!(host(&mut host_read, "hardware.pciDevice", Some(&devices)), Some(true));
        assert_eq!(host(&mut host_read, "hardware.pciDevice", Some(&devices)), Some(false));
        assert_eq!(host(&mut host_read, "hardware.pciDevice[3]", Some(&devices)), None);
        assert_eq!(host_read.pci.len(), 1);
        assert_eq!(host_read.pci[0].model_id(), "10de:1eb8");
    }

    #[test]
    fn backings_are_fixed_dynamic_or_shares() {
        let devices = xml::parse(
            "<val><VirtualDevice xsi:type=\"VirtualPCIPassthrough\"><key>13000</key>\
             <backing xsi:type=\"VirtualPCIPassthroughDeviceBackingInfo\"><deviceName/><id>0000:3b:00.0</id>\
             <deviceId>1eb8</deviceId><systemId>s</systemId><vendorId>4318</vendorId></backing></VirtualDevice>\
             <VirtualDevice xsi:type=\"VirtualPCIPassthrough\">\
             <backing xsi:type=\"VirtualPCIPassthroughDynamicBackingInfo\"><allowedDevice><vendorId>4318</vendorId>\
             <deviceId>8757</deviceId></allowedDevice><assignedId>0000:af:00.0</assignedId></backing></VirtualDevice>\
             <VirtualDevice xsi:type=\"VirtualPCIPassthrough\">\
             <backing xsi:type=\"VirtualPCIPassthroughVmiopBackingInfo\"><vgpu>grid_t4-4c</vgpu></backing></VirtualDevice>\
             <VirtualDevice xsi:type=\"VirtualDisk\"/></val>",
        )
        .unwrap();
        let mut machine = Vm::default();
        vm(&mut machine, "config.hardware.device", Some(&devices));
        assert_eq!(
            machine.passthrough,
            [
                Backing::Fixed { id: "0000:3b:00.0".to_owned(), vendor: 0x10de, device: 0x1eb8 },
                Backing::Dynamic { allowed: vec![(0x10de, 0x2235)], assigned: Some("0000:af:00.0".to_owned()) },
                Backing::Vgpu { profile: "grid_t4-4c".to_owned() },
            ]
        );
    }

    #[test]
    fn moments_have_offsets_or_are_utc() {
        let expected = "2026-11-20T22:00:00Z".parse().ok();
        for text in ["2026-11-20T22:00:00Z", "2026-11-20T23:00:00.000+01:00", "2026-11-20T22:00:00"] {
            assert_eq!(moment(text), expected, "{text}");
        }
        assert_eq!(moment("soon"), None);
    }
}
