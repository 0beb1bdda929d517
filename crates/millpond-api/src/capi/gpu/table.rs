//! The table of GPUs: ids of pci.ids, memory of the vendors' data sheets.
//!
//! Memory is that of one PCI device: a K80 or an MI250X appears as two. If one id is used for cards of two sizes, the
//! larger size is listed, so that the mapped address space is large enough.

use super::{DeviceId, Vendor, label_value};

/// A GPU as a PCI device.
#[derive(Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its ids.
    pub id: DeviceId,
    /// Vendor.
    pub vendor: Vendor,
    /// What it is called.
    pub name: &'static str,
    /// Its memory.
    pub memory_gib: u32,
}

impl Gpu {
    /// Vendor and name: `NVIDIA T4`.
    pub fn full_name(&self) -> String {
        format!("{} {}", self.vendor.name(), self.name)
    }

    /// The value of the accelerator label: `nvidia-t4`.
    pub fn label(&self) -> String {
        label_value(&self.full_name())
    }
}

/// All GPUs, by ids within each vendor.
pub fn all() -> &'static [Gpu] {
    GPUS
}

/// The GPU of these ids.
pub(super) fn find(id: DeviceId) -> Option<&'static Gpu> {
    GPUS.iter().find(|gpu| gpu.id == id)
}

/// Devices of the same vendors that are no GPUs, and would be taken for some.
pub(super) fn other(id: DeviceId) -> Option<&'static str> {
    const OTHERS: [(u16, u16, &str); 2] = [(0x10de, 0x1af1, "A100 NVSwitch"), (0x10de, 0x22a3, "H100 NVSwitch")];
    OTHERS.iter().find(|(vendor, device, _)| (*vendor, *device) == (id.vendor, id.device)).map(|(.., name)| *name)
}

const fn gpu(vendor: Vendor, device: u16, name: &'static str, memory_gib: u32) -> Gpu {
    Gpu { id: DeviceId { vendor: vendor.id(), device }, vendor, name, memory_gib }
}

const GPUS: &[Gpu] = &[
    gpu(Vendor::Nvidia, 0x102d, "K80", 12),
    gpu(Vendor::Nvidia, 0x13bd, "M10", 8),
    gpu(Vendor::Nvidia, 0x13f2, "M60", 8),
    gpu(Vendor::Nvidia, 0x15f7, "P100 PCIe", 12),
    gpu(Vendor::Nvidia, 0x15f8, "P100 PCIe", 16),
    gpu(Vendor::Nvidia, 0x15f9, "P100 SXM2", 16),
    gpu(Vendor::Nvidia, 0x1b38, "P40", 24),
    gpu(Vendor::Nvidia, 0x1bb3, "P4", 8),
    gpu(Vendor::Nvidia, 0x1db1, "V100 SXM2", 16),
    gpu(Vendor::Nvidia, 0x1db4, "V100 PCIe", 16),
    gpu(Vendor::Nvidia, 0x1db5, "V100 SXM2", 32),
    gpu(Vendor::Nvidia, 0x1db6, "V100 PCIe", 32),
    gpu(Vendor::Nvidia, 0x1db8, "V100 SXM3", 32),
    gpu(Vendor::Nvidia, 0x1df6, "V100S PCIe", 32),
    gpu(Vendor::Nvidia, 0x1eb8, "T4", 16),
    gpu(Vendor::Nvidia, 0x20b0, "A100 SXM4", 40),
    gpu(Vendor::Nvidia, 0x20b1, "A100 PCIe", 40),
    gpu(Vendor::Nvidia, 0x20b2, "A100 SXM4", 80),
    gpu(Vendor::Nvidia, 0x20b5, "A100 PCIe", 80),
    gpu(Vendor::Nvidia, 0x20b7, "A30", 24),
    gpu(Vendor::Nvidia, 0x20f1, "A100 PCIe", 40),
    gpu(Vendor::Nvidia, 0x2230, "RTX A6000", 48),
    gpu(Vendor::Nvidia, 0x2235, "A40", 48),
    gpu(Vendor::Nvidia, 0x2236, "A10", 24),
    gpu(Vendor::Nvidia, 0x2237, "A10G", 24),
    gpu(Vendor::Nvidia, 0x25b6, "A2 or A16", 16),
    gpu(Vendor::Nvidia, 0x2321, "H100L", 94),
    gpu(Vendor::Nvidia, 0x2324, "H800", 80),
    gpu(Vendor::Nvidia, 0x2329, "H20", 96),
    gpu(Vendor::Nvidia, 0x2330, "H100 SXM5", 80),
    gpu(Vendor::Nvidia, 0x2331, "H100 PCIe", 80),
    gpu(Vendor::Nvidia, 0x2335, "H200 SXM", 141),
    gpu(Vendor::Nvidia, 0x2339, "H100 SXM5", 94),
    gpu(Vendor::Nvidia, 0x233b, "H200 NVL", 141),
    gpu(Vendor::Nvidia, 0x2342, "GH200", 96),
    gpu(Vendor::Nvidia, 0x2348, "GH200", 144),
    gpu(Vendor::Nvidia, 0x26b1, "RTX 6000 Ada", 48),
    gpu(Vendor::Nvidia, 0x26b5, "L40", 48),
    gpu(Vendor::Nvidia, 0x26b7, "L20", 48),
    gpu(Vendor::Nvidia, 0x26b9, "L40S", 48),
    gpu(Vendor::Nvidia, 0x26ba, "L20", 48),
    gpu(Vendor::Nvidia, 0x27b6, "L2", 24),
    gpu(Vendor::Nvidia, 0x27b8, "L4", 24),
    gpu(Vendor::Nvidia, 0x2901, "B200", 192),
    gpu(Vendor::Nvidia, 0x2920, "B100", 192),
    gpu(Vendor::Nvidia, 0x2941, "GB200", 192),
    gpu(Vendor::Nvidia, 0x29bc, "B100", 192),
    gpu(Vendor::Nvidia, 0x2bb5, "RTX PRO 6000 Server", 96),
    gpu(Vendor::Nvidia, 0x2c3a, "RTX PRO 4500 Server", 32),
    gpu(Vendor::Nvidia, 0x3182, "B300 SXM6", 288),
    gpu(Vendor::Nvidia, 0x31c2, "GB300", 288),
    gpu(Vendor::Nvidia, 0x31c3, "GB300", 288),
    gpu(Vendor::Amd, 0x66a1, "Instinct MI50", 32),
    gpu(Vendor::Amd, 0x738c, "Instinct MI100", 32),
    gpu(Vendor::Amd, 0x738e, "Instinct MI100", 32),
    gpu(Vendor::Amd, 0x7408, "Instinct MI250X", 64),
    gpu(Vendor::Amd, 0x740c, "Instinct MI250X or MI250", 64),
    gpu(Vendor::Amd, 0x740f, "Instinct MI210", 64),
    gpu(Vendor::Amd, 0x74a0, "Instinct MI300A", 128),
    gpu(Vendor::Amd, 0x74a1, "Instinct MI300X", 192),
    gpu(Vendor::Amd, 0x74a2, "Instinct MI308X", 192),
    gpu(Vendor::Amd, 0x74a5, "Instinct MI325X", 256),
    gpu(Vendor::Amd, 0x74b5, "Instinct MI300X VF", 192),
    gpu(Vendor::Amd, 0x74b9, "Instinct MI325X VF", 256),
    gpu(Vendor::Amd, 0x75a0, "Instinct MI350X", 288),
    gpu(Vendor::Amd, 0x75a3, "Instinct MI355X", 288),
    gpu(Vendor::Intel, 0x0b69, "Data Center GPU Max 1450", 128),
    gpu(Vendor::Intel, 0x0bd5, "Data Center GPU Max 1550", 128),
    gpu(Vendor::Intel, 0x0bd6, "Data Center GPU Max 1550", 128),
    gpu(Vendor::Intel, 0x0bd9, "Data Center GPU Max 1100", 48),
    gpu(Vendor::Intel, 0x0bda, "Data Center GPU Max 1100", 48),
    gpu(Vendor::Intel, 0x0bdb, "Data Center GPU Max 1100", 48),
    gpu(Vendor::Intel, 0x56c0, "Data Center GPU Flex 170", 16),
    gpu(Vendor::Intel, 0x56c1, "Data Center GPU Flex 140", 6),
    gpu(Vendor::Intel, 0xe211, "Arc Pro B60", 24),
    gpu(Vendor::Intel, 0xe212, "Arc Pro B50", 16),
    gpu(Vendor::Habana, 0x1000, "Gaudi", 32),
    gpu(Vendor::Habana, 0x1010, "Gaudi", 32),
    gpu(Vendor::Habana, 0x1020, "Gaudi2", 96),
    gpu(Vendor::Habana, 0x1060, "Gaudi3", 128),
    gpu(Vendor::Habana, 0x1063, "Gaudi3", 128),
];
