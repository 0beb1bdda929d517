//! GPUs as PCI devices: which ids are which card, and what a virtual machine needs to get one.
//!
//! A pool names a device by vendor and device id (the whole card, passed through) or by a vGPU profile (a part of
//! one). From either follow the resource that pods ask for, the memory, and the room that the firmware must map.

mod table;
mod vgpu;

use std::fmt;

pub use table::{Gpu, all};
pub use vgpu::{Profile, Use, parse_profile};

/// The least hardware version that gets a device by its ids: Dynamic DirectPath I/O came with vSphere 7.0.
pub const LEAST_HARDWARE_VERSION: u32 = 17;

/// VMX key: map devices above 4 GiB.
pub const USE_64BIT_MMIO: &str = "pciPassthru.use64bitMMIO";
/// VMX key: size of the address space for devices above 4 GiB, in GiB.
pub const MMIO_SIZE_GB: &str = "pciPassthru.64bitMMIOSizeGB";

/// A vendor whose devices are accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// Habana Labs.
    Habana,
}

impl Vendor {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nvidia, Self::Amd, Self::Intel, Self::Habana];

    /// Its id on the bus.
    pub const fn id(self) -> u16 {
        match self {
            Self::Nvidia => 0x10de,
            Self::Amd => 0x1002,
            Self::Intel => 0x8086,
            Self::Habana => 0x1da3,
        }
    }

    /// The vendor of an id.
    pub fn of(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|vendor| vendor.id() == id)
    }

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
            Self::Habana => "Habana",
        }
    }

    /// The resource that its device plugin offers.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia.com/gpu",
            Self::Amd => "amd.com/gpu",
            Self::Intel => "gpu.intel.com/i915",
            Self::Habana => "habana.ai/gaudi",
        }
    }
}

/// A device by its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The vendor.
    pub vendor: u16,
    /// The device of that vendor.
    pub device: u16,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

/// The result of checking a device id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// A GPU of the table.
    Known(&'static Gpu),
    /// Vendor and device are exchanged; with the corrected id, and the GPU if the table has it.
    Swapped(DeviceId, Option<&'static Gpu>),
    /// A vendor of GPUs, but the table does not have the device.
    UnknownDevice(Vendor),
    /// A device of such a vendor that is certainly no GPU.
    Other(&'static str),
    /// Another vendor: network cards, FPGAs and the like are devices too.
    NotGpu,
}

/// Looks a device up, also with vendor and device exchanged.
pub fn check_device(id: DeviceId) -> Check {
    let swapped = DeviceId { vendor: id.device, device: id.vendor };
    if let Some(gpu) = table::find(id) {
        return Check::Known(gpu);
    }
    if let Some(name) = table::other(id) {
        return Check::Other(name);
    }
    if let Some(gpu) = table::find(swapped) {
        return Check::Swapped(swapped, Some(gpu));
    }
    match (Vendor::of(id.vendor), Vendor::of(id.device)) {
        (Some(vendor), _) => Check::UnknownDevice(vendor),
        (None, Some(_)) => Check::Swapped(swapped, None),
        (None, None) => Check::NotGpu,
    }
}

/// The address space above 4 GiB, in GiB, for devices with this much memory in total: twice the next power of two.
pub fn mmio_size_gb(total_gb: u32) -> u32 {
    2 * total_gb.max(1).next_power_of_two()
}

/// Why the text of an id is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It is neither hexadecimal nor decimal.
    #[error("is no PCI id: write it as `0x10DE`, `\"10DE\"` or 4318")]
    NotAnId,
    /// It is empty or has more than 16 bits.
    #[error("is out of range: PCI ids are 0x0001 to 0xFFFF")]
    OutOfRange,
}

/// Reads an id: `0x10DE`, `10DE` (text with letters, or of four digits in quotes) or a decimal number.
pub fn parse_id(text: &str, quoted: bool) -> Result<u16, IdError> {
    let text = text.trim();
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let has_letters = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let negative = text.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    let number = match hexadecimal {
        Some(digits) => from_digits(digits, 16)?,
        None if negative => return Err(IdError::OutOfRange),
        None if has_letters || (quoted && text.len() == 4) => from_digits(text, 16)?,
        None => from_digits(text, 10)?,
    };
    u16::try_from(number).ok().filter(|id| *id != 0).ok_or(IdError::OutOfRange)
}

fn from_digits(digits: &str, radix: u32) -> Result<u64, IdError> {
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(IdError::NotAnId);
    }
    // Whatever has more digits than 64 bits is out of range as well.
    u64::from_str_radix(digits, radix).map_err(|_| IdError::OutOfRange)
}

/// An id as vCenter sends it: 16 bits with a sign, so that Intel is below zero.
pub const fn from_signed(id: i16) -> u16 {
    id.cast_unsigned()
}

/// An id as vCenter takes it.
pub const fn to_signed(id: u16) -> i16 {
    id.cast_signed()
}

/// Reads `vmx-19`.
pub fn parse_hardware_version(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("vmx-")?;
    let right =
        matches!(digits.len(), 1 | 2) && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    right.then(|| digits.parse().ok()).flatten()
}

/// The value of the label by which the autoscaler knows the accelerator of a node: `nvidia-t4`.
pub fn label_value(name: &str) -> String {
    let mut value = String::new();
    for letter in name.chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() || letter == '.' => value.push(letter.to_ascii_lowercase()),
            _ if value.ends_with('-') || value.is_empty() => {}
            _ => value.push('-'),
        }
    }
    value.truncate(63);
    value.trim_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T4: DeviceId = DeviceId { vendor: 0x10de, device: 0x1eb8 };

    #[test]
    fn a_known_gpu_is_known() {
        let Check::Known(gpu) = check_device(T4) else { panic!("{:?}", check_device(T4)) };
        assert_eq!((gpu.name, gpu.memory_gib, gpu.vendor), ("T4", 16, Vendor::Nvidia));
        assert_eq!((gpu.label().as_str(), gpu.vendor.resource()), ("nvidia-t4", "nvidia.com/gpu"));
    }

    #[test]
    fn exchanged_ids_are_recognised() {
        // Seed 000 has them so.
        let Check::Swapped(meant, Some(gpu)) = check_device(DeviceId { vendor: 0x1eb8, device: 0x10de }) else {
            panic!("not recognised")
        };
        assert_eq!((meant, gpu.name), (T4, "T4"));
        // A card that the table does not have, by its vendor alone.
        let unknown = check_device(DeviceId { vendor: 0xeeee, device: 0x10de });
        assert_eq!(unknown, Check::Swapped(DeviceId { vendor: 0x10de, device: 0xeeee }, None));
    }

    #[test]
    fn what_is_not_known_is_distinguished() {
        let check = |vendor, device| check_device(DeviceId { vendor, device });
        assert_eq!(check(0x10de, 0xeeee), Check::UnknownDevice(Vendor::Nvidia));
        assert_eq!(check(0x15b3, 0x101b), Check::NotGpu);
        assert_eq!(check(0x10de, 0x22a3), Check::Other("H100 NVSwitch"));
    }

    #[test]
    fn no_gpu_of_the_table_can_be_taken_for_another_the_other_way_round() {
        for gpu in all() {
            let swapped = DeviceId { vendor: gpu.id.device, device: gpu.id.vendor };
            assert_eq!(check_device(swapped), Check::Swapped(gpu.id, Some(gpu)), "{}", gpu.name);
            assert!(gpu.memory_gib > 0 && Vendor::of(gpu.id.vendor) == Some(gpu.vendor), "{}", gpu.name);
            let label = gpu.label();
            assert!(crate::labels::is_value(&label), "{label}");
        }
    }

    #[test]
    fn room_for_memory() {
        for (total, room) in [(16, 32), (24, 64), (48, 128), (160, 512), (0, 2), (129, 512), (256, 512), (257, 1024)] {
            assert_eq!(mmio_size_gb(total), room, "{total}");
        }
    }

    #[test]
    fn ids_are_read_in_every_form() {
        for (text, quoted, id) in [
            ("0x10DE", false, 0x10de),
            ("0X10de", true, 0x10de),
            ("10DE", true, 0x10de),
            ("1eb8", false, 0x1eb8),
            ("4318", false, 4318),
            ("2236", true, 0x2236),
            ("2236", false, 2236),
            ("7864", false, 7864),
            ("0xFFFF", false, 0xffff),
            ("65535", false, 0xffff),
        ] {
            assert_eq!(parse_id(text, quoted), Ok(id), "{text}");
        }
        for text in ["0x10000", "65536", "0", "0x0", "-1", "99999999999999999999999999"] {
            assert_eq!(parse_id(text, false), Err(IdError::OutOfRange), "{text}");
        }
        for text in ["", "0x", "T4", "0x10DG", "10 DE", "1.5", "--1"] {
            assert_eq!(parse_id(text, false), Err(IdError::NotAnId), "{text}");
        }
    }

    #[test]
    fn hardware_versions() {
        assert_eq!((parse_hardware_version("vmx-17"), parse_hardware_version("vmx-9")), (Some(17), Some(9)));
        for text in ["17", "vmx-", "vmx-0", "vmx-017", "vmx-100", "VMX-17", "vmx-1x", "vmx--1"] {
            assert_eq!(parse_hardware_version(text), None, "{text}");
        }
    }

    #[test]
    fn intels_id_is_negative_on_the_wire() {
        assert_eq!(from_signed(-32634), 0x8086);
        assert_eq!(to_signed(0x8086), -32634);
    }

    proptest! {
        #[test]
        fn ids_survive_the_wire(id: u16) {
            prop_assert_eq!(from_signed(to_signed(id)), id);
            let text = format!("{id:#06x}");
            prop_assert_eq!(parse_id(&text, false).ok(), (id != 0).then_some(id));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,30}", quoted: bool) {
            let _ = (parse_id(&text, quoted), parse_profile(&text), parse_hardware_version(&text));
            prop_assert!(crate::labels::is_value(&label_value(&text)));
        }
    }
}
