//! Real nodes: containerd, runc and a kubelet on a machine of [`machines`](crate::machines).
//!
//! ```text
//!  API server ◀── bridge ── [ machine: kubelet ── containerd ── runc ── containers ]
//!                                                      └── CNI: bridge `pods`, 10.250.N.0/24
//! ```
//!
//! A machine has the cgroups of this one, so containers are under `/k8s.io` beside everything else; they end with the
//! machine's process namespace. The settings of the kernel that kubelet insists on are files of the machine: nothing is
//! changed for this one. No image is pulled: they are made here ([`Image`]) and imported.
//!
//! [`NodePrograms`] puts the programs on a machine that a test drives by itself, e.g. through `kubeadm`; [`RealNode`] is
//! a node that joins with a kubeconfig.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::kubeconfig::Access;
use crate::machines::{KERNEL, Machine, Network, own_hosts};
use crate::oci::Image;
use crate::process::{Process, Waited};
use crate::real::{NODE_PARTS, Parts, debian};

/// An image with busybox, whose entrypoint is a shell.
pub const BUSYBOX: &str = "localhost/busybox:1";
/// The image that holds the namespaces of a pod. It is busybox, too.
const PAUSE: &str = "localhost/pause:1";
/// Where the programs are on a machine.
const BIN: &str = "opt/node/bin";
/// Where the cache of real parts is on a machine.
pub(crate) const REAL: &str = "/opt/real";
/// containerd's message when it is ready.
const SERVES: &str = "containerd successfully booted";
const SERVES_WITHIN: Duration = Duration::from_secs(60);
/// The programs of a node.
#[derive(Clone, Debug)]
pub struct NodePrograms {
    pub(crate) parts: Parts,
    debian: PathBuf,
}

impl NodePrograms {
    /// Finds them in the cache; builds and downloads what is missing.
    pub fn ensure() -> Result<Self> {
        Ok(Self { parts: Parts::ensure_each(NODE_PARTS)?, debian: debian::node()? })
    }

    /// Puts them on a machine that is off: kubelet and kubeadm take the place of their stand-ins.
    pub fn install(&self, machine: &Machine) -> Result<()> {
        let folder = machine.folder();
        for part in ["containerd", "sysctl"] {
            fs::create_dir_all(folder.join(part)).context("make a folder of a node")?;
        }
        for (name, value) in KERNEL {
            let file = folder.join("sysctl").join(name);
            fs::create_dir_all(file.parent().context("a setting is in a folder")?).context("make a folder")?;
            fs::write(&file, format!("{value}\n")).context("write a setting of the kernel")?;
        }
        symlink(self.parts.cache(), folder.join("real")).context("link the real parts")?;
        let bin = machine.upper().join(BIN);
        fs::create_dir_all(&bin).context("make a folder of a machine")?;
        for part in NODE_PARTS {
            symlink(self.on_machine(&self.parts.path(part)?)?, bin.join(part.name)).context("link a program")?;
        }
        symlink(self.on_machine(&self.debian.join("usr/sbin/runc"))?, bin.join("runc")).context("link runc")?;
        self.iptables(&bin.join("iptables"))?;
        let plugins = self.on_machine(&self.debian.join("usr/lib/cni"))?;
        machine.write("etc/hosts", &own_hosts(machine.name(), machine.address()))?;
        machine.write("etc/containerd/config.toml", &containerd_config(&plugins))?;
        machine.write("etc/cni/net.d/10-pods.conflist", &pod_network(machine.address())?)
    }

    /// iptables with the libraries of its package.
    fn iptables(&self, path: &Path) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let root = self.on_machine(&self.debian)?;
        let library = format!("{}/usr/lib/{}-linux-gnu", root.display(), std::env::consts::ARCH);
        let script = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH={library} XTABLES_LIBDIR={library}/xtables exec {}/usr/sbin/iptables-nft \"$@\"\n",
            root.display()
        );
        fs::write(path, script).context("write a script")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context("make a script executable")
    }

    /// Where a path of the cache is on a machine.
    pub(crate) fn on_machine(&self, path: &Path) -> Result<PathBuf> {
        let below = path.strip_prefix(self.parts.cache()).context("the programs of a node are in the cache")?;
        Ok(Path::new(REAL).join(below))
    }

    /// Starts containerd on a machine that runs, and imports the images of every node.
    pub fn start_containerd(&self, machine: &Machine) -> Result<Process> {
        let mut containerd = machine.spawn("containerd", Path::new("/opt/node/bin/containerd"), &[])?;
        let serves = containerd.wait_for(SERVES_WITHIN, |log| log.contains(SERVES))?;
        if serves != Waited::Satisfied {
            bail!("containerd does not serve:\n{}", containerd.log_tail());
        }
        self.import(machine, &self.busybox())?;
        Ok(containerd)
    }

    /// An image whose entrypoint is a shell.
    pub(crate) fn busybox(&self) -> Image {
        let commands = ["sh", "cat", "echo", "httpd", "nc", "sleep"];
        Image {
            name: BUSYBOX.into(),
            aliases: vec![PAUSE.into()],
            files: vec![("/bin/busybox".into(), self.debian.join("bin/busybox"))],
            links: commands.map(|name| (format!("/bin/{name}"), "busybox".into())).to_vec(),
            folders: vec!["/tmp".into()],
            entrypoint: vec!["/bin/sleep".into(), "1000000".into()],
            ..Image::default()
        }
    }

    /// Imports an image into the containerd of a machine.
    pub fn import(&self, machine: &Machine, image: &Image) -> Result<()> {
        let scratch = tempfile::tempdir_in(machine.folder()).context("make a folder for an image")?;
        let archive = scratch.path().join("image.tar");
        image.write(&scratch.path().join("layout"), &archive)?;
        self.import_archive(machine, &archive)
    }

    /// Imports an archive of this machine.
    pub fn import_archive(&self, machine: &Machine, archive: &Path) -> Result<()> {
        // Through a file of its disk: the archive may be on a file system that the machine does not see.
        let copy = machine.path("tmp/image.tar")?;
        fs::copy(archive, &copy).with_context(|| format!("copy `{}`", archive.display()))?;
        machine.sh("ctr --namespace k8s.io images import /tmp/image.tar && rm /tmp/image.tar").map(drop)
    }
}

/// A runc without the right to protect its containers from the OOM killer, as machines of a container have it.
pub(crate) fn containerd_config(plugins: &Path) -> String {
    format!(
        r#"version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{}"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
"#,
        plugins.display()
    )
}

pub(crate) fn pod_network(address: &str) -> Result<String> {
    let number = address.rsplit('.').next().context("a machine has a number")?;
    let bridge = json!({
        "type": "bridge", "bridge": "pods", "isGateway": true,
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": format!("10.250.{number}.0/24")}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    });
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]});
    Ok(network.to_string())
}

/// Settings of kubelet for this environment: cgroups of version 1 that it shares with other processes, no swap limits,
/// no image garbage collection, and a server open to users that the API server authorizes.
pub fn kubelet_configuration() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": [], "failCgroupV1": false,
        "failSwapOn": false, "localStorageCapacityIsolation": false, "makeIPTablesUtilChains": false,
        "evictionHard": {"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
        "resolvConf": "", "rotateCertificates": true,
        // Tests wait for what it reports.
        "nodeStatusUpdateFrequency": "2s", "syncFrequency": "2s",
    })
}

/// A machine with a kubelet.
#[derive(Debug)]
pub struct RealNode {
    programs: NodePrograms,
    kubelet: Option<Process>,
    containerd: Process,
    machine: Machine,
    // After the machine.
    _cgroups: Cgroups,
}

/// Removes what containers leave in the cgroups of this machine, once their processes are gone.
#[derive(Debug)]
struct Cgroups;

impl Drop for Cgroups {
    fn drop(&mut self) {
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let folder = hierarchy.path().join("k8s.io");
            // Folders of running nodes are not empty, and are kept.
            for pod in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(pod.path());
            }
            let _ = fs::remove_dir(folder);
        }
    }
}

impl RealNode {
    /// Boots a machine with containerd. It is no node yet.
    pub fn boot(network: &Network, name: &str, number: u8) -> Result<Self> {
        let programs = NodePrograms::ensure()?;
        let mut machine = network.bare_machine(name, number)?;
        programs.install(&machine)?;
        machine.write("etc/kubernetes/kubelet.yaml", &kubelet_configuration().to_string())?;
        machine.boot()?;
        let containerd = programs.start_containerd(&machine)?;
        Ok(Self { programs, kubelet: None, containerd, machine, _cgroups: Cgroups })
    }

    /// Starts kubelet with nothing but an address, a CA and a bootstrap token: it makes a key, asks for a certificate and
    /// registers itself.
    pub fn join(&mut self, access: &Access) -> Result<()> {
        fs::create_dir_all(self.machine.path("etc/kubernetes/pki")?).context("make a folder of a node")?;
        fs::write(self.machine.path("etc/kubernetes/pki/ca.crt")?, &access.ca_pem).context("write the CA")?;
        access.write(&self.machine.path("etc/kubernetes/bootstrap-kubelet.conf")?)?;
        let (name, address) = (self.machine.name(), self.machine.address());
        let arguments = [
            "--config=/etc/kubernetes/kubelet.yaml",
            "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
            "--kubeconfig=/etc/kubernetes/kubelet.conf",
            &format!("--hostname-override={name}"),
            &format!("--node-ip={address}"),
        ];
        self.kubelet = Some(self.machine.spawn("kubelet", Path::new("/opt/node/bin/kubelet"), &arguments)?);
        Ok(())
    }

    /// Imports an image.
    pub fn import(&self, image: &Image) -> Result<()> {
        self.programs.import(&self.machine, image)
    }

    /// Imports the archive of an image.
    pub fn import_archive(&self, archive: &Path) -> Result<()> {
        self.programs.import_archive(&self.machine, archive)
    }

    /// Sends what pods send to a service to an address outside, as kube-proxy would.
    pub fn serve(&self, service: &str, target: &str) -> Result<()> {
        let (address, port) = service.rsplit_once(':').context("a service has a port")?;
        self.machine.sh(&format!(
            "echo 1 > /proc/sys/net/ipv4/ip_forward && \
             iptables -t nat -A PREROUTING -d {address} -p tcp --dport {port} -j DNAT --to-destination {target} && \
             iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE"
        ))?;
        Ok(())
    }

    /// Fails, with the end of the log, if containerd or kubelet has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.containerd.ensure_running()?;
        self.kubelet.as_mut().map_or(Ok(()), Process::ensure_running)
    }

    /// kubelet, once it was started.
    pub fn kubelet(&self) -> Option<&Process> {
        self.kubelet.as_ref()
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }
}
