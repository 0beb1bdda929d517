//! Facts about a host from `/proc`, `/sys` and `/etc`. A file that is missing leaves its fact empty.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millpond_api::byoh::facts::{CpuFacts, Disk, GpuDevice, HostFacts, MemoryFacts, Nic, NumaNode, OsFacts};
use millpond_api::capi::gpu::{self, DeviceId, Vendor};

/// Bytes of a sector in `/sys/block/*/size`.
const SECTOR: i64 = 512;

/// Reads all facts of the host under a root directory.
pub fn read(root: &Path) -> HostFacts {
    let host = Root(root.to_owned());
    let (gpus, pci_devices) = host.pci();
    HostFacts {
        cpu: host.cpu(),
        memory: host.memory(),
        numa: host.numa(),
        disks: host.disks(),
        nics: host.nics(),
        gpus,
        pci_devices,
        os: host.os(),
        machine_id: host.text("etc/machine-id"),
        boot_id: host.text("proc/sys/kernel/random/boot_id"),
        product_uuid: host.text("sys/class/dmi/id/product_uuid"),
    }
}

struct Root(PathBuf);

impl Root {
    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap_or_default().trim().to_owned()
    }

    fn number(&self, path: &str) -> Option<i64> {
        self.text(path).parse().ok()
    }

    /// Names in a directory, sorted.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn cpu(&self) -> CpuFacts {
        let online = parse_list(&self.text("sys/devices/system/cpu/online"));
        let (mut sockets, mut cores) = (BTreeSet::new(), BTreeSet::new());
        for cpu in &online {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let socket = self.number(&format!("{topology}/physical_package_id")).unwrap_or(0);
            let core = self.number(&format!("{topology}/core_id")).unwrap_or(*cpu);
            sockets.insert(socket);
            cores.insert((socket, core));
        }
        let info = self.text("proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let threads = match online.len() {
            0 => info.lines().filter(|line| line.starts_with("processor")).count(),
            count => count,
        };
        CpuFacts {
            architecture: architecture(std::env::consts::ARCH).to_owned(),
            model: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            sockets: sockets.len() as i64,
            cores: cores.len() as i64,
            threads: threads as i64,
        }
    }

    fn memory(&self) -> MemoryFacts {
        let info = self.text("proc/meminfo");
        let mut facts = MemoryFacts {
            total_bytes: kilobytes(&info, "MemTotal:"),
            swap_bytes: kilobytes(&info, "SwapTotal:"),
            ..MemoryFacts::default()
        };
        for name in self.names("sys/kernel/mm/hugepages") {
            let size = name.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB")?.parse::<i64>().ok());
            let count = self.number(&format!("sys/kernel/mm/hugepages/{name}/nr_hugepages")).unwrap_or(0);
            if let Some(size) = size.filter(|_| count > 0) {
                let unit =
                    if size % (1 << 20) == 0 { format!("{}Gi", size >> 20) } else { format!("{}Mi", size >> 10) };
                facts.huge_pages.insert(format!("hugepages-{unit}"), size * 1024 * count);
            }
        }
        facts
    }

    fn numa(&self) -> Vec<NumaNode> {
        let base = "sys/devices/system/node";
        let names = self.names(base);
        let mut ids: Vec<i64> = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
        ids.sort_unstable();
        let node = |id: i64| NumaNode {
            id,
            cpus: self.text(&format!("{base}/node{id}/cpulist")),
            memory_bytes: kilobytes(&self.text(&format!("{base}/node{id}/meminfo")), "MemTotal:"),
        };
        ids.into_iter().map(node).collect()
    }

    fn disks(&self) -> Vec<Disk> {
        let virtual_kinds = ["loop", "ram", "dm-", "zram", "sr", "md", "nbd"];
        let names = self.names("sys/block").into_iter();
        let disks = names.filter(|name| !virtual_kinds.iter().any(|kind| name.starts_with(kind))).map(|name| {
            let base = format!("sys/block/{name}");
            Disk {
                size_bytes: self.number(&format!("{base}/size")).unwrap_or(0).saturating_mul(SECTOR),
                rotational: self.number(&format!("{base}/queue/rotational")) == Some(1),
                model: self.text(&format!("{base}/device/model")),
                name,
            }
        });
        disks.filter(|disk| disk.size_bytes > 0).collect()
    }

    fn nics(&self) -> Vec<Nic> {
        let routes = self.text("proc/net/route");
        let default = routes.lines().skip(1).find_map(|line| {
            let mut fields = line.split_whitespace();
            let (name, destination) = (fields.next()?, fields.next()?);
            (destination == "00000000").then(|| name.to_owned())
        });
        let names = self.names("sys/class/net").into_iter().filter(|name| name != "lo");
        let nic = |name: String| {
            let base = format!("sys/class/net/{name}");
            Nic {
                mac: self.text(&format!("{base}/address")),
                state: self.text(&format!("{base}/operstate")),
                speed_mbps: self.number(&format!("{base}/speed")).filter(|speed| *speed > 0),
                is_default: default.as_ref() == Some(&name),
                name,
            }
        };
        names.map(nic).collect()
    }

    /// GPUs and accelerators, and how many devices there are in all.
    fn pci(&self) -> (Vec<GpuDevice>, i64) {
        let base = "sys/bus/pci/devices";
        let addresses = self.names(base);
        let count = addresses.len() as i64;
        let device = |address: String| {
            let hex = |name: &str| {
                let text = self.text(&format!("{base}/{address}/{name}"));
                u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
            };
            // Display and 3D controllers, and processing accelerators.
            if !matches!(hex("class")? >> 8, 0x0300 | 0x0302 | 0x1200) {
                return None;
            }
            let (vendor, device) = (u16::try_from(hex("vendor")?).ok()?, u16::try_from(hex("device")?).ok()?);
            let known_vendor = Vendor::of(vendor)?;
            let known = gpu::all().iter().find(|known| known.id == DeviceId { vendor, device });
            let driver = fs::read_link(self.0.join(format!("{base}/{address}/driver"))).ok();
            Some(GpuDevice {
                vendor_id: format!("{vendor:04x}"),
                device_id: format!("{device:04x}"),
                name: known.map(gpu::Gpu::full_name).unwrap_or_default(),
                resource: known_vendor.resource().to_owned(),
                numa_node: self.number(&format!("{base}/{address}/numa_node")).filter(|node| *node >= 0),
                driver: driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned())).unwrap_or_default(),
                address,
            })
        };
        (addresses.into_iter().filter_map(device).collect(), count)
    }

    fn os(&self) -> OsFacts {
        let release = match self.text("etc/os-release") {
            text if text.is_empty() => self.text("usr/lib/os-release"),
            text => text,
        };
        let field = |key: &str| {
            let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        let is_version_2 = self.0.join("sys/fs/cgroup/cgroup.controllers").exists();
        let is_version_1 = self.0.join("sys/fs/cgroup/memory").exists() || self.0.join("sys/fs/cgroup/cpu").exists();
        OsFacts {
            name: "linux".to_owned(),
            image: field("PRETTY_NAME"),
            id: field("ID"),
            version: field("VERSION_ID"),
            kernel: self.text("proc/sys/kernel/osrelease"),
            cgroup_version: if is_version_2 { 2 } else { i64::from(is_version_1) },
        }
    }
}

/// An architecture as Kubernetes writes it.
fn architecture(of_rust: &str) -> &str {
    match of_rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The kernel's lists of numbers: `0-3,8`.
fn parse_list(text: &str) -> Vec<i64> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<i64>().ok()?..=last.trim().parse::<i64>().ok()?)
    };
    text.split(',').filter_map(part).flatten().collect()
}

/// A line such as `MemTotal: 16384 kB`, also with `Node 0` before it.
fn kilobytes(text: &str, key: &str) -> i64 {
    let value = text.lines().find_map(|line| line.split_once(key)?.1.split_whitespace().next()?.parse::<i64>().ok());
    value.unwrap_or(0).saturating_mul(1024)
}
