//! Machines for tests: a network namespace, a process namespace and an overlay of this machine's files for each, on a
//! bridge of their own. They need root, and no image.
//!
//! ```text
//!   bridge 10.x.y.1 ─┬─ veth ─ [ net, pid, uts, mount namespaces: init, whatever the test runs ] ─ root: overlay of /
//!                    └─ veth ─ […]
//! ```
//!
//! A machine reboots with another boot id and the same files, can be cut off, and reports what was changed on its disk.
//! `systemctl`, `kubeadm` and `kubelet` on it are stand-ins: see `stand_in`. A [`SystemMachine`] has none: its root is a
//! Debian of its own, and systemd runs in it.

mod cable;
mod disk;
#[cfg(feature = "client")]
mod kubelet;
mod stand_in;
mod system;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::child_reaper;
use crate::process::{Process, without_proxies};
use crate::scratch::Scratch;

pub use disk::Change;
#[cfg(feature = "client")]
pub use kubelet::run as kubelet;
pub use stand_in::{ARGUMENTS, is_stand_in};
pub(crate) use system::KERNEL;
pub use system::SystemMachine;

use cable::Cable;

/// Names of bridges begin with this; the process that made them follows.
const BRIDGE: &str = "mp";
/// How long a machine may take to boot.
const BOOTED_WITHIN: Duration = Duration::from_secs(30);

/// A bridge for machines, and the address of this machine on it.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    prefix: String,
    /// Prefix of the names of its cables.
    name: String,
    scratch: Scratch,
}

impl Network {
    /// Makes a bridge.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_stale_bridges();
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let bridge = format!("{BRIDGE}{process}x{number}");
        let taken = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        let prefixes = (0..).map(|step| {
            let mixed = (process * 16 + number + step).wrapping_mul(2_654_435_761) >> 16;
            format!("10.{}.{}", 64 + mixed / 256 % 64, mixed % 256)
        });
        let free = |prefix: &String| !taken.contains(&format!("{prefix}."));
        let prefix = prefixes.take(1000).find(free).context("no address is free for a bridge")?;
        let name = format!("v{process}{number}");
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        let network = Self { bridge, prefix, name, scratch: Scratch::new("machines")? };
        ip(&["addr", "add", &format!("{}/24", network.address()), "dev", &network.bridge])?;
        ip(&["link", "set", &network.bridge, "up"])?;
        Ok(network)
    }

    /// The address of this machine.
    pub fn address(&self) -> String {
        format!("{}.1", self.prefix)
    }

    /// A folder for the test's own files.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    fn cable(&self, number: u8) -> Cable {
        Cable {
            bridge: self.bridge.clone(),
            link: format!("{}n{number}", self.name),
            address: format!("{}.{number}", self.prefix),
        }
    }

    /// Copies a program to where every machine can have it.
    pub fn program(&self, path: &Path) -> Result<PathBuf> {
        let copy = self.scratch.path().join("programs").join(path.file_name().context("a program has a name")?);
        if !copy.exists() {
            fs::create_dir_all(self.scratch.path().join("programs")).context("make a folder")?;
            fs::copy(path, &copy).with_context(|| format!("copy `{}`", path.display()))?;
        }
        Ok(copy)
    }

    /// A machine that is off, with a program in `/opt/bin`. This process' own binary plays kubelet.
    pub fn machine(&self, name: &str, number: u8, program: &Path) -> Result<Machine> {
        let machine = self.bare_machine(name, number)?;
        stand_in::install(&machine, &self.program(&std::env::current_exe().context("find the test's binary")?)?)?;
        let (program, bin) = (self.program(program)?, machine.upper().join("opt/bin"));
        fs::create_dir_all(&bin).context("make a folder of a machine")?;
        let name = program.file_name().context("a program has a name")?;
        fs::hard_link(&program, bin.join(name)).context("install a program")?;
        Ok(machine)
    }

    /// A machine that is off, without programs of its own.
    pub(crate) fn bare_machine(&self, name: &str, number: u8) -> Result<Machine> {
        let folder = self.scratch.path().join(name);
        let machine = Machine {
            name: name.to_owned(),
            cable: self.cable(number),
            boots: 0,
            identity: format!("{number:032x}"),
            folder,
            init: None,
            has_gpu: false,
        };
        for part in ["upper", "work", "root"] {
            fs::create_dir_all(machine.folder.join(part)).context("make the disk of a machine")?;
        }
        machine.write("etc/machine-id", &format!("{}\n", machine.identity))?;
        Ok(machine)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A bridge that stays is removed by the next test.
        let _ = ip(&["link", "del", &self.bridge]);
    }
}

/// `/etc/hosts` of a machine that knows its own name. Without it, kubelet asks name servers that do not answer, for twenty
/// seconds, before it registers.
pub(crate) fn own_hosts(name: &str, address: &str) -> String {
    format!("127.0.0.1 localhost\n{address} {name}\n")
}

fn remove_stale_bridges() {
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(BRIDGE).and_then(|rest| rest.split_once('x'));
        let process = process.and_then(|(process, _)| process.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = ip(&["link", "del", &name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<()> {
    run(Command::new("ip").args(words))
}

fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {line}; is it installed?"))?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Makes a PCI bus with a GPU in the folder of a machine.
fn add_pci_gpu(machine: &Path, vendor: &str, device: &str) -> Result<()> {
    let folder = machine.join("pci/0000:3b:00.0");
    fs::create_dir_all(&folder).context("make a PCI device")?;
    for (name, value) in [("vendor", vendor), ("device", device), ("class", "0x030200"), ("numa_node", "-1")] {
        fs::write(folder.join(name), format!("{value}\n")).context("write a PCI device")?;
    }
    Ok(())
}

/// A machine.
#[derive(Debug)]
pub struct Machine {
    name: String,
    cable: Cable,
    boots: u32,
    identity: String,
    folder: PathBuf,
    init: Option<Init>,
    has_gpu: bool,
}

/// The processes that hold the namespaces.
#[derive(Debug)]
struct Init {
    outer: Child,
    inner: u32,
}

impl Drop for Init {
    fn drop(&mut self) {
        // The end of its init ends every process of a process namespace.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let _ = child_reaper::forget(self.outer.id());
    }
}

/// Holds the namespaces of a machine; everything is mounted before it says so.
const INIT: &str = r#"
set -e
hostname "$NAME"
mount -t overlay overlay -o "lowerdir=/,upperdir=$FOLDER/upper,workdir=$FOLDER/work" "$FOLDER/root"
root="$FOLDER/root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$FOLDER/boot_id" "$root/proc/sys/kernel/random/boot_id"
if [ -d "$FOLDER/pci" ]; then mount --bind "$FOLDER/pci" "$root/sys/bus/pci/devices"; fi
if [ -d "$FOLDER/containerd" ]; then
    mkdir -p "$root/var/lib/containerd" "$root/opt/real"
    mount --bind "$FOLDER/containerd" "$root/var/lib/containerd"
    mount --bind "$FOLDER/real" "$root/opt/real"
    mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
    (cd "$FOLDER/sysctl"; find . -type f) | while read -r file; do
        mount --bind "$FOLDER/sysctl/$file" "$root/proc/sys/$file"
    done
fi
ip link set lo up
if [ -d "$FOLDER/containerd" ]; then
    # Containers are entered by their mount namespace, whose root is then what was the root here: no chroot will do.
    mkdir -p "$root/run/machine" "$root/run/old"
    mount --bind "$FOLDER" "$root/run/machine"
    cd "$root"
    pivot_root . run/old
    umount -l /run/old
    FOLDER=/run/machine
fi
echo $$ > "$FOLDER/ready.new"
mv "$FOLDER/ready.new" "$FOLDER/ready"
trap 'exit 0' TERM
while :; do sleep 1000 & wait; done
"#;

impl Machine {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.cable.address
    }

    /// A file of its disk that this machine's files do not have; to be called while it is off.
    pub fn write(&self, path: &str, content: &str) -> Result<()> {
        let path = self.upper().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).context("make a folder of a machine")?;
        }
        fs::write(&path, content).with_context(|| format!("write `{}`", path.display()))
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.folder.join("upper")
    }

    /// Whether it has the programs of a node: its disk is then the root of its mount namespace.
    fn is_node(&self) -> bool {
        self.folder.join("containerd").exists()
    }

    /// The folder of its files on this machine.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a file of the running machine is, seen from this one.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        let init = self.init.as_ref().with_context(|| format!("{} is off", self.name))?;
        let root = if self.is_node() { String::new() } else { self.folder.join("root").display().to_string() };
        Ok(PathBuf::from(format!("/proc/{}/root{root}", init.inner)).join(path))
    }

    /// Puts a GPU into it: a device of this vendor and kind on the PCI bus. To be called while it is off.
    pub fn add_gpu(&mut self, vendor: &str, device: &str) -> Result<()> {
        self.has_gpu = true;
        add_pci_gpu(&self.folder, vendor, device)
    }

    /// Gives it the machine id of another one: a copy of its image.
    pub fn copy_identity(&mut self, other: &Machine) -> Result<()> {
        self.identity.clone_from(&other.identity);
        self.write("etc/machine-id", &format!("{}\n", self.identity))
    }

    /// Gives it the disk of another one, which is off.
    pub fn copy_disk(&self, other: &Machine) -> Result<()> {
        run(Command::new("cp")
            .args(["-a", "--remove-destination"])
            .arg(format!("{}/.", other.upper().display()))
            .arg(self.upper()))
    }

    /// Boots it: another boot id, the same disk.
    pub fn boot(&mut self) -> Result<()> {
        self.boots += 1;
        let ready = self.folder.join("ready");
        let _ = fs::remove_file(&ready);
        let boot_id = format!("{}-{:04x}", &self.identity[16..], self.boots);
        fs::write(self.folder.join("boot_id"), format!("{boot_id}\n")).context("write a boot id")?;
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--propagation", "private"])
            .args(["sh", "-c", INIT])
            .env("NAME", &self.name)
            .env("FOLDER", &self.folder)
            .stdin(Stdio::null());
        let outer = command.spawn().context("start `unshare`; is it installed, and is this root?")?;
        child_reaper::watch(outer.id())?;
        let mut init = Init { inner: 0, outer };
        let deadline = Instant::now() + BOOTED_WITHIN;
        while !ready.exists() {
            if let Some(status) = init.outer.try_wait().context("look after a machine")? {
                bail!("{} did not boot: {status}", self.name);
            }
            if Instant::now() > deadline {
                bail!("{} did not boot", self.name);
            }
            std::thread::sleep(crate::process::POLL_INTERVAL);
        }
        let outer = init.outer.id();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).context("find init")?;
        init.inner = children.split_whitespace().next().context("find init")?.parse().context("find init")?;
        self.cable.connect(init.inner)?;
        self.init = Some(init);
        Ok(())
    }

    /// Cuts its cable, or mends it.
    pub fn set_connected(&self, connected: bool) -> Result<()> {
        self.cable.set_connected(connected)
    }

    /// Pulls its plug: no process of it is left.
    pub fn power_off(&mut self) {
        self.init = None;
    }

    /// A command on the running machine.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let init = self.init.as_ref().with_context(|| format!("{} is off", self.name))?;
        let mut command = Command::new("nsenter");
        command.args(["-t", &init.inner.to_string(), "--net", "--mount", "--pid", "--uts"]);
        if !self.is_node() {
            command.arg("chroot").arg(self.folder.join("root"));
        }
        command
            // Who kills the command that is seen from here kills the program.
            .args(["setpriv", "--pdeathsig", "KILL"])
            .arg(program);
        without_proxies(&mut command).env("PATH", stand_in::PATH).stdin(Stdio::null());
        Ok(command)
    }

    /// Starts a program on it; its output goes to a file of the test.
    pub fn spawn(&self, name: &str, program: &Path, args: &[&str]) -> Result<Process> {
        let mut command = self.command(program)?;
        command.args(args).env("MILLPOND_LOG", "info");
        Ok(Process::spawn(&format!("{}-{name}", self.name), &mut command, &self.folder)?.wrapping())
    }

    /// Runs a shell script on it to the end; gives what it printed.
    pub fn sh(&self, script: &str) -> Result<String> {
        let output = self.command(Path::new("/bin/sh"))?.args(["-c", script]).output().context("run a script")?;
        if !output.status.success() {
            bail!("`{script}` on {}: {}", self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The changes on its disk, without this machine's files.
    pub fn changes(&self) -> Result<Vec<Change>> {
        disk::changes(Path::new("/"), &self.upper())
    }
}
