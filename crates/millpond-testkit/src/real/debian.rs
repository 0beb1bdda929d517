//! Parts that come as Debian packages, unpacked into the cache: nothing is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use ring::digest::{SHA256, digest};

use super::{Parts, lock_cache};

/// Packages of ZooKeeper's server, besides Java.
const ZOOKEEPER: &[&str] = &[
    "zookeeper",
    "libzookeeper-java",
    "libnetty-java",
    "libdropwizard-metrics-java",
    "libsnappy-java",
    "liblog4j1.2-java",
    "libslf4j-java",
    "libjetty9-java",
    "libservlet-api-java",
    "libjackson2-core-java",
    "libjackson2-databind-java",
    "libjackson2-annotations-java",
    "libcommons-cli-java",
    "libcommons-io-java",
];

/// Packages of a node besides the real parts, and the libraries of iptables.
const NODE: &[&str] = &[
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "iptables",
    "libip4tc2",
    "libip6tc2",
    "libxtables12",
    "libnftnl11",
    "libmnl0",
    "libseccomp2",
];

/// What makes the root of a machine with systemd, and what boots it.
const SYSTEM_TOOLS: &[&str] = &["debootstrap", "systemd-container", "libsystemd-shared", "libseccomp2"];

/// What the root of such a machine has, beside the smallest Debian: systemd, and what kubelet and kubeadm call.
const SYSTEM: &[&str] = &[
    "systemd",
    "systemd-sysv",
    "dbus",
    "mount",
    "iproute2",
    "procps",
    "kmod",
    "iptables",
    "conntrack",
    "ethtool",
    "socat",
    "runc",
    "containernetworking-plugins",
];

/// Jars on the class path. Packages hold more than the server needs.
const ZOOKEEPER_JARS: &[&str] = &[
    "zookeeper",
    "zookeeper-jute",
    "netty-all",
    "netty-buffer",
    "netty-codec",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-native-unix-common",
    "netty-transport-native-epoll",
    "metrics-core",
    "snappy-java",
    "log4j-1.2",
    "slf4j-api",
    "slf4j-log4j12",
    "jetty9-server",
    "jetty9-servlet",
    "jetty9-http",
    "jetty9-io",
    "jetty9-util",
    "jetty9-security",
    "servlet-api",
    "jackson-core",
    "jackson-databind",
    "jackson-annotations",
    "commons-cli",
    "commons-io",
];

/// The class path of ZooKeeper's server; downloads and unpacks its packages where they are missing.
pub(crate) fn zookeeper() -> Result<String> {
    let folder = unpacked("zookeeper", ZOOKEEPER)?;
    let jars = folder.join("usr/share/java");
    let paths = ZOOKEEPER_JARS.iter().map(|name| jars.join(format!("{name}.jar"))).filter(|path| path.exists());
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    Ok(paths.join(":"))
}

/// sshd, and the folder of a library that it needs; downloads and unpacks their packages where they are missing.
pub(crate) fn sshd() -> Result<(PathBuf, PathBuf)> {
    let folder = unpacked("openssh", &["openssh-server", "libwrap0"])?;
    let library = folder.join("usr/lib").read_dir().context("list the libraries of openssh")?.filter_map(Result::ok);
    let library = library.map(|entry| entry.path()).find(|path| path.join("libwrap.so.0").exists());
    let library = library.context("the package libwrap0 has no libwrap.so.0")?;
    Ok((folder.join("usr/sbin/sshd"), library))
}

/// A busybox without libraries; downloads and unpacks its package where it is missing.
pub(crate) fn busybox() -> Result<PathBuf> {
    Ok(unpacked("busybox", &["busybox-static"])?.join("bin/busybox"))
}

/// The folder with runc, the network plugins, iptables and a busybox without libraries; downloads and unpacks their
/// packages where they are missing.
pub(crate) fn node() -> Result<PathBuf> {
    unpacked("node", NODE)
}

/// A Debian for machines, and the tools that boot it.
#[derive(Clone, Debug)]
pub(crate) struct System {
    /// Its files.
    pub(crate) root: PathBuf,
    tools: PathBuf,
}

impl System {
    /// systemd-nspawn.
    pub(crate) fn nspawn(&self) -> PathBuf {
        self.tools.join("usr/bin/systemd-nspawn")
    }

    /// Where its libraries are.
    pub(crate) fn libraries(&self) -> String {
        let folder = format!("{}/usr/lib/{}-linux-gnu", self.tools.display(), std::env::consts::ARCH);
        format!("{folder}/systemd:{folder}")
    }
}

/// The root of machines with systemd, of this machine's own release of Debian; makes it where it is missing. That takes
/// a minute or two.
pub(crate) fn system() -> Result<System> {
    let tools = unpacked("systemd", SYSTEM_TOOLS)?;
    let release = std::fs::read_to_string("/etc/os-release").context("read `/etc/os-release`")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).context(
        "`/etc/os-release` names no release\nhint: machines with systemd are made from this machine's own Debian",
    )?;
    let root = kept("system", &[&[suite], SYSTEM].concat(), |folder| {
        let mut command = Command::new("unshare");
        // What it mounts is gone with it, also where it fails.
        command.args(["--mount", "--propagation", "private", "sh"]).arg(tools.join("usr/sbin/debootstrap"));
        command.env("DEBOOTSTRAP_DIR", tools.join("usr/share/debootstrap"));
        command.args(["--variant=minbase", &format!("--include={}", SYSTEM.join(",")), suite]).arg(folder);
        command.args(mirror(suite)?);
        run(
            &mut command,
            "hint: `debootstrap` needs root, and a Debian mirror: `apt-get update` says whether there is one",
        )
    })?;
    Ok(System { root, tools })
}

/// Where apt gets the packages of a release from; debootstrap knows a mirror for those that it does not tell.
fn mirror(suite: &str) -> Result<Option<String>> {
    let format = "$(CODENAME) $(COMPONENT) $(REPO_URI)";
    let output = Command::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]).output();
    let listed = String::from_utf8(output.context("run `apt-get`")?.stdout).context("read what apt-get lists")?;
    let wanted = format!("{suite} main ");
    Ok(listed.lines().find_map(|line| line.strip_prefix(&wanted)).map(str::to_owned))
}

/// A folder with the contents of these packages.
fn unpacked(name: &str, packages: &[&str]) -> Result<PathBuf> {
    kept(name, packages, |folder| {
        let archives = tempfile::Builder::new().prefix("millpond-packages-").tempdir().context("make a folder")?;
        run(
            Command::new("apt-get").arg("download").args(packages).current_dir(&archives),
            &format!(
                "hint: the packages of {name} come from Debian: `apt-get update`, then `apt-get download {}`",
                packages.join(" ")
            ),
        )?;
        for entry in std::fs::read_dir(&archives).context("list the packages")? {
            let package = entry.context("list the packages")?.path();
            run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(folder), "hint: install `dpkg`")?;
        }
        Ok(())
    })
}

/// A folder of the cache that is named after what is in it; made once.
fn kept(name: &str, content: &[&str], make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let parts = Parts::locate()?;
    let hash = digest(&SHA256, content.join(" ").as_bytes());
    let key = u64::from_be_bytes(*hash.as_ref().first_chunk().context("a hash has bytes")?);
    let folder = parts.cache.join(format!("{name}-debian-{key:016x}"));
    if folder.exists() {
        return Ok(folder);
    }
    let _lock = lock_cache(&parts.cache, name)?;
    if folder.exists() {
        return Ok(folder);
    }
    let draft = tempfile::Builder::new().prefix(".draft-").tempdir_in(&parts.cache).context("make a folder")?;
    let root = draft.path().join("root");
    make(&root)?;
    std::fs::rename(&root, &folder).with_context(|| format!("move the packages to `{}`", folder.display()))?;
    Ok(folder)
}

/// Runs a command that must succeed.
pub(super) fn run(command: &mut Command, hint: &str) -> Result<()> {
    let name = command.get_program().display().to_string();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => bail!("`{name}` failed: {}\n{hint}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => bail!("`{name}` cannot be run: {error}\n{hint}"),
    }
}

/// Fails with the fix if there is no Java.
pub(crate) fn ensure_java() -> Result<()> {
    run(
        Command::new("java").arg("-version"),
        "hint: ZooKeeper runs on Java: `apt-get install openjdk-17-jre-headless`, or any other Java from 11 on",
    )
}

/// Whether a path is there; for parts that are built where they stay.
pub(super) fn is_done(folder: &Path) -> bool {
    folder.join(".done").exists()
}
