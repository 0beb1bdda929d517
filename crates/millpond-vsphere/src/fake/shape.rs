//! The properties of hosts and machines of the fake vCenter, and values in vCenter's notation.

use crate::reference::Reference;
use crate::soap;
use crate::xml::escape;

pub(super) const CPU_DEMAND: &str = "summary.quickStats.overallCpuDemand";
pub(super) const GUEST_MEMORY: &str = "summary.quickStats.guestMemoryUsage";

/// Properties of an object: path and value.
pub(super) type Properties = Vec<(&'static str, String)>;

/// A host.
#[derive(Clone, Debug, Default)]
pub struct HostShape {
    /// Its name.
    pub name: String,
    /// The cluster that it is in.
    pub cluster: Option<Reference>,
    /// Its GPUs: address, vendor, device, name, memory in MiB.
    pub gpus: Vec<(String, u16, u16, String, u64)>,
}

/// A virtual machine.
#[derive(Clone, Debug, Default)]
pub struct VmShape {
    /// Its name.
    pub name: String,
    /// BIOS UUID.
    pub uuid: String,
    /// The host that it runs on.
    pub host: Option<Reference>,
    /// Its passthrough devices.
    pub passthrough: Vec<Passthrough>,
    /// CPU demand in MHz.
    pub cpu_demand_mhz: i64,
    /// Guest memory in use in MiB.
    pub guest_memory_mib: i64,
}

/// A passthrough device of a machine.
#[derive(Clone, Debug)]
pub enum Passthrough {
    /// One device of its host, by address, vendor and device.
    Fixed(String, u16, u16),
    /// A share of a card, by profile.
    Vgpu(String),
}

impl HostShape {
    /// A host of that name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// With `count` Tesla T4.
    #[must_use]
    pub fn with_t4(mut self, count: usize) -> Self {
        let card = |at: usize| (format!("0000:{:02x}:00.0", 0x3b + at), 0x10de, 0x1eb8, "Tesla T4".to_owned(), 16384);
        self.gpus.extend((0..count).map(card));
        self
    }

    pub(super) fn properties(&self) -> Properties {
        let mut properties = vec![
            ("name", text("xsd:string", &self.name)),
            ("runtime.connectionState", text("HostSystemConnectionState", "connected")),
            ("runtime.powerState", text("HostSystemPowerState", "poweredOn")),
            ("runtime.inMaintenanceMode", boolean(false)),
            ("runtime.inQuarantineMode", boolean(false)),
            ("hardware.pciDevice", self.pci_devices()),
            ("config.graphicsInfo", self.graphics()),
            ("config.pciPassthruInfo", self.passthrough()),
        ];
        properties.extend(self.cluster.as_ref().map(|cluster| ("parent", reference(cluster))));
        properties
    }

    fn pci_devices(&self) -> String {
        // A bridge of Intel's, whose vendor id is negative on the wire, is on every host.
        let mut devices = pci_device("0000:00:00.0", 0x0600, 0x8086, 0x2020, "Sky Lake-E DMI3 Registers");
        for (id, vendor, device, name, _) in &self.gpus {
            devices += &pci_device(id, 0x0302, *vendor, *device, name);
        }
        array("ArrayOfHostPciDevice", &devices)
    }

    fn graphics(&self) -> String {
        let card = |(id, _, _, name, memory): &(String, u16, u16, String, u64)| {
            format!(
                "<HostGraphicsInfo><deviceName>{}</deviceName><vendorName>NVIDIA</vendorName><pciId>{id}</pciId>\
                 <graphicsType>direct</graphicsType><memorySizeInKB>{}</memorySizeInKB></HostGraphicsInfo>",
                escape(name),
                memory << 10
            )
        };
        array("ArrayOfHostGraphicsInfo", &self.gpus.iter().map(card).collect::<String>())
    }

    fn passthrough(&self) -> String {
        let info = |(id, ..): &(String, u16, u16, String, u64)| {
            format!(
                "<HostPciPassthruInfo><id>{id}</id><dependentDevice>{id}</dependentDevice>\
                 <passthruEnabled>true</passthruEnabled><passthruCapable>true</passthruCapable>\
                 <passthruActive>true</passthruActive></HostPciPassthruInfo>"
            )
        };
        array("ArrayOfHostPciPassthruInfo", &self.gpus.iter().map(info).collect::<String>())
    }
}

impl VmShape {
    /// A machine of that name and UUID on a host.
    pub fn new(name: &str, uuid: &str, host: &Reference) -> Self {
        Self { name: name.to_owned(), uuid: uuid.to_owned(), host: Some(host.clone()), ..Self::default() }
    }

    pub(super) fn properties(&self) -> Properties {
        let mut properties = vec![
            ("name", text("xsd:string", &self.name)),
            ("config.uuid", text("xsd:string", &self.uuid)),
            ("config.instanceUuid", text("xsd:string", &format!("50{}", self.uuid.get(2..).unwrap_or_default()))),
            ("config.template", boolean(false)),
            ("config.hardware.device", self.devices()),
            ("runtime.powerState", text("VirtualMachinePowerState", "poweredOn")),
            ("runtime.connectionState", text("VirtualMachineConnectionState", "connected")),
            (CPU_DEMAND, number(self.cpu_demand_mhz)),
            (GUEST_MEMORY, number(self.guest_memory_mib)),
        ];
        properties.extend(self.host.as_ref().map(|host| ("runtime.host", reference(host))));
        properties
    }

    fn devices(&self) -> String {
        let device = |passthrough: &Passthrough| {
            let backing = match passthrough {
                Passthrough::Fixed(id, vendor, device) => format!(
                    "<backing xsi:type=\"VirtualPCIPassthroughDeviceBackingInfo\"><deviceName></deviceName><id>{id}</id>\
                     <deviceId>{device:x}</deviceId><systemId>fake</systemId><vendorId>{}</vendorId></backing>",
                    *vendor as i16
                ),
                Passthrough::Vgpu(profile) => format!(
                    "<backing xsi:type=\"VirtualPCIPassthroughVmiopBackingInfo\"><vgpu>{}</vgpu></backing>",
                    escape(profile)
                ),
            };
            format!("<VirtualDevice xsi:type=\"VirtualPCIPassthrough\"><key>13000</key>{backing}</VirtualDevice>")
        };
        array("ArrayOfVirtualDevice", &self.passthrough.iter().map(device).collect::<String>())
    }
}

fn pci_device(id: &str, class: u16, vendor: u16, device: u16, name: &str) -> String {
    let (class, vendor, device) = (class as i16, vendor as i16, device as i16);
    format!(
        "<HostPciDevice><id>{id}</id><classId>{class}</classId><vendorId>{vendor}</vendorId>\
         <deviceId>{device}</deviceId><deviceName>{}</deviceName></HostPciDevice>",
        escape(name)
    )
}

pub(super) fn text(xsi_type: &str, value: &str) -> String {
    format!("<val xsi:type=\"{xsi_type}\">{}</val>", escape(value))
}

pub(super) fn boolean(value: bool) -> String {
    text("xsd:boolean", if value { "true" } else { "false" })
}

pub(super) fn number(value: i64) -> String {
    text("xsd:int", &value.to_string())
}

pub(super) fn reference(to: &Reference) -> String {
    format!("<val type=\"{}\" xsi:type=\"ManagedObjectReference\">{}</val>", to.kind, to.id)
}

fn array(xsi_type: &str, items: &str) -> String {
    format!("<val xsi:type=\"{xsi_type}\">{items}</val>")
}

pub(super) fn task(name: &str, entity: &Reference, method: &str, enabled: bool, next_run: jiff::Timestamp) -> String {
    format!(
        "<val xsi:type=\"ScheduledTaskInfo\">{}<enabled>{enabled}</enabled>\
         <action xsi:type=\"MethodAction\">{}</action>{}<nextRunTime>{next_run}</nextRunTime></val>",
        soap::element("name", name),
        soap::element("name", method),
        soap::reference("entity", entity),
    )
}
