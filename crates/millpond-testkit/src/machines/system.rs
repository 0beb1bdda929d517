//! Machines with systemd: a Debian of their own, booted by systemd-nspawn in namespaces of its own.
//!
//! ```text
//!   bridge ── veth ── [ network, mounts, processes: systemd-nspawn ── systemd ── units ]
//!                                      └── root: overlay over the Debian of the cache
//! ```
//!
//! systemd-nspawn is the first process of a process namespace, so that nothing of a machine outlives it. Each machine has
//! a directory of its own in every hierarchy of control groups. The settings of the kernel that kubelet insists on are
//! files of the machine: nothing is changed for this one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::cable::Cable;
use super::disk::{self, Change};
use super::{Network, add_pci_gpu};
use crate::process::{POLL_INTERVAL, Process, without_proxies};
use crate::real::debian::{self, System};

/// Directories of control groups begin with this; the process that made them follows.
const CGROUP: &str = "millpond-machine-";
/// Where control groups are.
const CGROUPS: &str = "/sys/fs/cgroup";
/// How long systemd may take to start its units. It takes two or three seconds where nothing else runs.
const BOOTED_WITHIN: Duration = Duration::from_mins(2);
/// How long it may take to stop them.
const STOPPED_WITHIN: Duration = Duration::from_mins(2);
/// How long control groups may stay busy after the end of their processes.
const REMOVED_WITHIN: Duration = Duration::from_secs(10);
/// Where programs are looked for, as units do.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Settings that kubelet reads, and would change for all of this machine.
pub(crate) const KERNEL: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Starts systemd-nspawn, once the cable is plugged in. Its further arguments are those of the script.
const BOOT: &str = r#"
set -e
mount -t overlay overlay -o "lowerdir=$SYSTEM,upperdir=$FOLDER/upper,workdir=$FOLDER/work" "$FOLDER/root"
ip link set lo up
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    hierarchies=/sys/fs/cgroup
else
    hierarchies=$(echo /sys/fs/cgroup/*)
    export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=0
fi
for hierarchy in $hierarchies; do
    own="$hierarchy/$CGROUP"
    mkdir -p "$own"
    # A group of processors takes in no process before it has some.
    for file in cpuset.cpus cpuset.mems; do
        if [ -e "$hierarchy/$file" ]; then cat "$hierarchy/$file" > "$own/$file"; fi
    done
    echo 0 > "$own/cgroup.procs"
done
while [ ! -e "$FOLDER/connected" ]; do sleep 0.02; done
exec "$NSPAWN" --directory="$FOLDER/root" --machine="$NAME" --register=no --keep-unit \
    --network-namespace-path=/proc/self/ns/net --capability=all --system-call-filter="add_key keyctl bpf" \
    --bind=/dev/kmsg "$@" --boot
"#;

/// Runs in the machine, before everything else: control groups that can be written, and settings of the machine's own.
const SETTINGS: &str = r#"#!/bin/sh
for hierarchy in /sys/fs/cgroup/*; do
    if [ -d "$hierarchy/" ]; then mount -o remount,bind,rw "$hierarchy" 2>/dev/null; fi
done
cd /opt/machine/sysctl && find . -type f | while read -r file; do mount --bind "$file" "/proc/sys/$file"; done
"#;
const SETTINGS_UNIT: &str = "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n\n[Service]\nType=oneshot\n\
                             RemainAfterExit=yes\nExecStart=/bin/sh /opt/machine/settings\n";

/// A machine with systemd.
#[derive(Debug)]
pub struct SystemMachine {
    name: String,
    cable: Cable,
    folder: PathBuf,
    system: System,
    binds: Vec<String>,
    running: Option<Running>,
}

/// A booted machine.
#[derive(Debug)]
struct Running {
    supervisor: Process,
    cgroup: String,
    /// systemd.
    leader: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The end of systemd-nspawn ends every process of its process namespace.
        let _ = self.supervisor.kill();
        let give_up = Instant::now() + REMOVED_WITHIN;
        while !remove_groups(&self.cgroup) && Instant::now() < give_up {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Removes a directory from every hierarchy of control groups; tells whether it is gone.
fn remove_groups(name: &str) -> bool {
    let hierarchies = fs::read_dir(CGROUPS).into_iter().flatten().flatten().map(|entry| entry.path());
    let left = hierarchies.chain([PathBuf::from(CGROUPS)]).filter(|hierarchy| !remove_group(&hierarchy.join(name)));
    left.count() == 0
}

fn remove_group(folder: &Path) -> bool {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    fs::remove_dir(folder).is_ok() || !folder.exists()
}

/// Removes control groups of processes that were killed.
fn remove_stale_groups() {
    let folders = fs::read_dir(CGROUPS).into_iter().flatten().flatten().map(|entry| entry.path());
    for folder in folders.chain([PathBuf::from(CGROUPS)]) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.strip_prefix(CGROUP).and_then(|rest| rest.split_once('-'));
            let process = process.and_then(|(process, _)| process.parse::<u32>().ok());
            if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
                remove_group(&entry.path());
            }
        }
    }
}

impl Network {
    /// A machine with systemd that is off. Its Debian comes from the cache; the first time, it is made.
    pub fn system_machine(&self, name: &str, number: u8) -> Result<SystemMachine> {
        let machine = SystemMachine {
            name: name.to_owned(),
            cable: self.cable(number),
            folder: self.folder().join(name),
            system: debian::system()?,
            binds: Vec::new(),
            running: None,
        };
        for part in ["upper", "work", "root"] {
            fs::create_dir_all(machine.folder.join(part)).context("make the disk of a machine")?;
        }
        machine.write("etc/machine-id", &format!("{number:032x}\n"))?;
        machine.write("etc/hostname", &format!("{name}\n"))?;
        machine.write("etc/hosts", &super::own_hosts(name, machine.address()))?;
        machine.write("opt/machine/settings", SETTINGS)?;
        for (name, value) in KERNEL {
            machine.write(&format!("opt/machine/sysctl/{name}"), &format!("{value}\n"))?;
        }
        machine.unit("machine-settings.service", SETTINGS_UNIT, Some("sysinit.target"))?;
        // A container's first process hears no SIGTERM: a shutdown would wait for it for long.
        machine.write("etc/systemd/system.conf.d/machine.conf", "[Manager]\nDefaultTimeoutStopSec=5s\n")?;
        // Settings of the kernel are those of this machine.
        machine.unit_link("systemd-sysctl.service", "/dev/null")?;
        Ok(machine)
    }
}

impl SystemMachine {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.cable.address
    }

    /// What belongs to it on this machine.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn upper(&self) -> PathBuf {
        self.folder.join("upper")
    }

    /// A file of its disk; to be called while it is off.
    pub fn write(&self, path: &str, content: &str) -> Result<()> {
        let path = self.upper().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).context("make a folder of a machine")?;
        }
        fs::write(&path, content).with_context(|| format!("write `{}`", path.display()))
    }

    /// A link on its disk; to be called while it is off.
    pub fn link(&self, path: &str, target: &Path) -> Result<()> {
        let path = self.upper().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).context("make a folder of a machine")?;
        }
        symlink(target, &path).with_context(|| format!("link `{}`", path.display()))
    }

    /// A unit of systemd as a package brings it, enabled for a target as `systemctl` of Debian does it; to be called while
    /// it is off.
    pub fn unit(&self, name: &str, content: &str, wanted_by: Option<&str>) -> Result<()> {
        self.write(&format!("usr/lib/systemd/system/{name}"), content)?;
        let Some(target) = wanted_by else { return Ok(()) };
        self.unit_link(&format!("{target}.wants/{name}"), &format!("/lib/systemd/system/{name}"))
    }

    fn unit_link(&self, name: &str, target: &str) -> Result<()> {
        self.link(&format!("etc/systemd/system/{name}"), Path::new(target))
    }

    /// Shows it a file or a folder of this machine, from the next boot on.
    pub fn bind(&mut self, source: &Path, target: &str, writable: bool) {
        let flag = if writable { "--bind" } else { "--bind-ro" };
        self.binds.push(format!("{flag}={}:{target}", source.display()));
    }

    /// Puts a GPU into it: a device of this vendor and kind on the PCI bus. To be called while it is off.
    pub fn add_gpu(&mut self, vendor: &str, device: &str) -> Result<()> {
        add_pci_gpu(&self.folder, vendor, device)?;
        let folder = self.folder.join("pci");
        self.bind(&folder, "/sys/bus/pci/devices", false);
        Ok(())
    }

    /// Boots it, and waits until its units have started.
    pub fn boot(&mut self) -> Result<()> {
        remove_stale_groups();
        let connected = self.folder.join("connected");
        let _ = fs::remove_file(&connected);
        let cgroup = format!("{CGROUP}{}-{}", std::process::id(), self.name);
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
            .args(["sh", "-c", BOOT, "sh"])
            .args(&self.binds)
            .env("NAME", &self.name)
            .env("FOLDER", &self.folder)
            .env("CGROUP", &cgroup)
            .env("SYSTEM", &self.system.root)
            .env("NSPAWN", self.system.nspawn())
            .env("LD_LIBRARY_PATH", self.system.libraries())
            .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "yes");
        let supervisor = Process::spawn(&format!("{}-console", self.name), &mut command, &self.folder)?.wrapping();
        let mut running = Running { supervisor, cgroup, leader: 0 };
        let give_up = Instant::now() + BOOTED_WITHIN;
        let nspawn = wait(&mut running.supervisor, give_up, |supervisor| first_child(supervisor.id()))?;
        self.cable.connect(nspawn)?;
        fs::write(&connected, "").context("say that a machine is connected")?;
        running.leader = wait(&mut running.supervisor, give_up, |_| leader(nspawn))?;
        self.running = Some(running);
        Ok(())
    }

    /// Shuts it down, as a person does.
    pub fn shut_down(&mut self) -> Result<()> {
        self.sh("systemctl poweroff")?;
        let Some(mut running) = self.running.take() else { return Ok(()) };
        match running.supervisor.wait_within(STOPPED_WITHIN)? {
            Some(_) => Ok(()),
            None => bail!("{} does not shut down:\n{}", self.name, running.supervisor.log_tail()),
        }
    }

    /// Pulls its plug: no process of it is left.
    pub fn power_off(&mut self) {
        self.running = None;
    }

    /// A command on the running machine.
    pub fn command(&self, program: &str) -> Result<Command> {
        let running = self.running.as_ref().with_context(|| format!("{} is off", self.name))?;
        let mut command = inside(running.leader);
        // Who kills the command that is seen from here kills the program.
        command.args(["setpriv", "--pdeathsig", "KILL", program]);
        without_proxies(&mut command);
        Ok(command)
    }

    /// Runs a shell script on it to the end; gives what it printed.
    pub fn sh(&self, script: &str) -> Result<String> {
        let output = self.command("/bin/sh")?.args(["-c", script]).output().context("run a script")?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            bail!("`{script}` on {} ended with {}: {}", self.name, output.status, told.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Where a file of the running machine is, seen from this one.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        let running = self.running.as_ref().with_context(|| format!("{} is off", self.name))?;
        Ok(PathBuf::from(format!("/proc/{}/root", running.leader)).join(path))
    }

    /// What is on its disk beside the Debian that it was made from.
    pub fn changes(&self) -> Result<Vec<Change>> {
        disk::changes(&self.system.root, &self.upper())
    }
}

/// A command in all namespaces of a machine.
fn inside(leader: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--all", "--target", &leader.to_string()]).env("PATH", PATH).stdin(Stdio::null());
    command
}

/// Asks until there is an answer, and the machine has not ended.
fn wait<T>(supervisor: &mut Process, give_up: Instant, ask: impl Fn(&Process) -> Option<T>) -> Result<T> {
    loop {
        supervisor.ensure_running()?;
        if let Some(answer) = ask(supervisor) {
            return Ok(answer);
        }
        if Instant::now() > give_up {
            bail!("{} did not come up:\n{}", supervisor.name(), supervisor.log_tail());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn first_child(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// systemd below systemd-nspawn, once it has started its units.
fn leader(nspawn: u32) -> Option<u32> {
    let leader = first_child(nspawn)?;
    let namespace = |process: u32| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    // Before, it is the process that prepares the root.
    if namespace(leader)? == namespace(nspawn)? {
        return None;
    }
    let Output { stdout, .. } = inside(leader).args(["systemctl", "is-system-running"]).output().ok()?;
    // A unit that has failed is for the test to look after.
    matches!(String::from_utf8_lossy(&stdout).trim(), "running" | "degraded").then_some(leader)
}
