//! Facts of made-up hosts: a directory tree instead of `/`.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

use std::fs;
use std::path::Path;

use millpond_agent::facts;

fn tree(root: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
fn a_server_with_a_gpu() {
    let root = tempfile::tempdir().unwrap();
    tree(
        root.path(),
        &[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
            ("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/core_id", "0\n"),
            ("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1\n"),
            ("sys/devices/system/cpu/cpu2/topology/core_id", "0\n"),
            ("sys/devices/system/cpu/cpu3/topology/physical_package_id", "1\n"),
            ("sys/devices/system/cpu/cpu3/topology/core_id", "0\n"),
            ("proc/cpuinfo", "processor : 0\nmodel name\t: Test CPU @ 2.0GHz\n"),
            ("proc/meminfo", "MemTotal:       16777216 kB\nSwapTotal: 1024 kB\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1\n"),
            ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  8388608 kB\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
            ("sys/block/nvme0n1/size", "2097152\n"),
            ("sys/block/nvme0n1/queue/rotational", "0\n"),
            ("sys/block/loop0/size", "100\n"),
            ("sys/class/net/eth0/address", "02:00:00:00:00:01\n"),
            ("sys/class/net/eth0/operstate", "up\n"),
            ("sys/class/net/eth0/speed", "-1\n"),
            ("sys/class/net/lo/address", "00:00:00:00:00:00\n"),
            ("proc/net/route", "Iface Destination Gateway\neth0 00000000 0100000A\n"),
            ("sys/bus/pci/devices/0000:00:1f.0/class", "0x060100\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/device", "0x1eb8\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1\n"),
            // The display of a server's management controller is no GPU.
            ("sys/bus/pci/devices/0000:04:00.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:04:00.0/vendor", "0x1a03\n"),
            ("sys/bus/pci/devices/0000:04:00.0/device", "0x2000\n"),
            ("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
            ("proc/sys/kernel/random/boot_id", "b1\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ],
    );
    let facts = facts::read(root.path());
    assert_eq!((facts.cpu.sockets, facts.cpu.cores, facts.cpu.threads), (2, 2, 4));
    assert_eq!(facts.cpu.model, "Test CPU @ 2.0GHz");
    assert_eq!((facts.memory.total_bytes, facts.memory.swap_bytes), (16 << 30, 1 << 20));
    assert_eq!(facts.memory.huge_pages.iter().collect::<Vec<_>>(), [(&"hugepages-2Mi".to_owned(), &(16 << 20))]);
    assert_eq!((facts.numa.len(), facts.numa[0].memory_bytes, facts.numa[1].cpus.as_str()), (2, 8 << 30, "2-3"));
    assert_eq!((facts.disks.len(), facts.disks[0].size_bytes), (1, 1 << 30));
    assert_eq!((facts.nics.len(), facts.nics[0].is_default, facts.nics[0].speed_mbps), (1, true, None));
    assert_eq!((facts.gpus.len(), facts.pci_devices), (1, 3));
    let gpu = &facts.gpus[0];
    assert_eq!((gpu.resource.as_str(), gpu.numa_node), ("nvidia.com/gpu", None));
    assert!(gpu.name.contains("T4"), "{}", gpu.name);
    assert_eq!((facts.os.id.as_str(), facts.os.cgroup_version, facts.boot_id.as_str()), ("debian", 2, "b1"));
    assert_eq!(facts.capacity().get("nvidia.com/gpu"), Some(1));
}

#[test]
fn an_empty_root_is_no_error() {
    let root = tempfile::tempdir().unwrap();
    let facts = facts::read(root.path());
    assert_eq!((facts.cpu.threads, facts.memory.total_bytes, facts.gpus.len()), (0, 0, 0));
    assert!(facts.capacity().is_empty());
}

#[test]
fn this_machine_has_facts() {
    let facts = facts::read(Path::new("/"));
    assert!(facts.cpu.threads > 0 && facts.memory.total_bytes > 0 && !facts.os.kernel.is_empty());
}
