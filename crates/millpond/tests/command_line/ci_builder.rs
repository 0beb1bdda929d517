//! The builder's SSH key and the host keys that it trusts: the commands of the guide, and the container of its deployment
//! with the image that has a shell and an SSH client. Needs root, and sshd and busybox from Debian.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use millpond_testkit::{Image, Process, Scratch, Sshd, Waited, ZooKeeper};
use serde_json::Value;

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");
/// The user and group of the deployment's containers.
const USER: u32 = 10001;
/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a command in a mount namespace whose root is `$1`, as the user `$2`: what a container is, as far as files are
/// concerned.
const ENTER: &str = r#"
mount --rbind /dev "$1/dev" && mount -t proc none "$1/proc" || exit 1
root=$1; user=$2; shift 2
exec chroot --userspec="$user" "$root" "$@"
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(words: &[&str]) -> Output {
    Command::new(MILLPOND).args(words).stdin(Stdio::null()).output().expect("it runs")
}

/// The one fingerprint among lines of `HOST TYPE FINGERPRINT`.
fn fingerprint(shown: &Output) -> String {
    text(&shown.stdout).split_whitespace().nth(2).expect("a fingerprint").to_owned()
}

#[test]
#[ignore = "needs sshd from Debian"]
fn real_host_keys_are_shown_and_accepted_by_their_fingerprint() -> Result<()> {
    let (scratch, hidden) = (Scratch::new("keys")?, Scratch::new("hidden")?);
    let ssh = scratch.path().join("ssh").display().to_string();
    let printed = run(&["ci", "builder-ssh-key", "--ssh-dir", &ssh]);
    let public = text(&printed.stdout);
    ensure!(public.starts_with("ssh-ed25519 "), "{public} {}", text(&printed.stderr));
    assert_eq!(text(&run(&["ci", "builder-ssh-key", "--ssh-dir", &ssh]).stdout), public, "it is made once");

    let server = Sshd::start(&public, hidden.path(), None)?;
    let (port, host) = (server.port(), format!("127.0.0.1:{}", server.port()));
    let accept = |more: &[&str]| {
        let verb = ["ci", "builder-accept-host-key", host.as_str(), "--ssh-dir", ssh.as_str()];
        run(&[&verb[..], more].concat())
    };
    let known = || std::fs::read_to_string(Path::new(&ssh).join("known_hosts")).unwrap_or_default();
    // Without an answer nothing is accepted.
    let shown = accept(&[]);
    assert_eq!((shown.status.code(), known().as_str()), (Some(1), ""));
    let right = fingerprint(&shown);
    let wrong = accept(&["--fingerprint", "SHA256:AAAA"]);
    assert_eq!((wrong.status.code(), known().as_str()), (Some(4), ""), "{}", text(&wrong.stderr));
    assert!(accept(&["--fingerprint", &right]).status.success());
    assert!(known().starts_with(&format!("[127.0.0.1]:{port} ssh-ed25519 ")), "{}", known());
    assert!(text(&accept(&[]).stderr).contains("is accepted already"));

    // Another key is refused until a person says that the host was set up again.
    drop(server);
    let _server = Sshd::start(&public, hidden.path(), Some(port))?;
    let before = known();
    let changed = accept(&["--yes"]);
    assert_eq!((changed.status.code(), known()), (Some(4), before.clone()));
    assert!(text(&changed.stderr).contains("has changed") && text(&changed.stderr).contains("--replace"));
    assert!(accept(&["--replace", "--yes"]).status.success());
    assert_ne!(known(), before);
    Ok(())
}

/// A container of the builder's image, with the mounts of its deployment.
struct Container {
    root: PathBuf,
    _scratch: Scratch,
}

impl Container {
    fn new(key: &Path, known_hosts: &str, config: &str, zookeeper: &ZooKeeper) -> Result<Self> {
        let scratch = Scratch::new("container")?;
        let (root, files) = (scratch.path().join("root"), scratch.path().join("files"));
        std::fs::create_dir_all(&files)?;
        Image::of_nodepool("localhost/millpond-nodepool:test", Path::new(MILLPOND), &files)?.unpack(&root)?;
        let container = Self { root, _scratch: scratch };
        for name in ["pub", "priv"] {
            container.write(&format!("var/lib/nodepool-ssh-key/{name}"), &std::fs::read_to_string(key.join(name))?)?;
        }
        container.write("var/lib/nodepool-known-hosts/known_hosts", known_hosts)?;
        for name in ["nodepool.yaml", "nodepool-builder.yaml"] {
            container.write(&format!("etc/nodepool/{name}"), config)?;
        }
        for (name, file) in [("tls.crt", "client.pem"), ("tls.key", "client.key"), ("ca.crt", "ca.pem")] {
            container.write(&format!("tls/client/{name}"), &std::fs::read_to_string(zookeeper.file(file))?)?;
        }
        let volume = container.root.join("var/lib/nodepool");
        std::os::unix::fs::chown(volume, Some(USER), Some(USER)).context("give the volume to its user")?;
        // A scratch folder is its owner's alone, and the root of the container is below it.
        for folder in container.root.ancestors().take(2) {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(container)
    }

    /// A file of a mounted Secret: its group may read it.
    fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.root.join(path);
        std::fs::create_dir_all(file.parent().context("a file is in a folder")?)?;
        std::fs::write(&file, text).with_context(|| format!("write `{path}`"))?;
        std::os::unix::fs::chown(&file, Some(0), Some(USER))?;
        Ok(std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o440))?)
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// A command in it, with the environment that kubelet gives every container of this deployment.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"])
            .arg(&self.root)
            .arg(format!("{USER}:{USER}"))
            .args(words)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", "1")
            .env("KUBECONFIG", "/etc/nodepool-providers/kube.config")
            .env("OS_CLIENT_CONFIG_FILE", "/etc/nodepool-providers/clouds.yaml")
            .stdin(Stdio::null());
        command
    }

    /// `kubectl exec`.
    fn exec(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it runs")
    }
}

/// The configuration that a deployment has before the config repository adds to it.
fn configuration(zookeeper: &ZooKeeper) -> Result<String> {
    let server = format!("127.0.0.1:{}", zookeeper.secure_port());
    let printed = run(&["install", "ci", "--image", "millpond:1", "--zookeeper", &server, "--output", "json"]);
    let list: Value = serde_json::from_slice(&printed.stdout).context("manifests")?;
    let items = list["items"].as_array().context("a list")?;
    let map = items.iter().find(|object| object["kind"] == "ConfigMap").context("a ConfigMap")?;
    Ok(map["data"]["nodepool-builder.yaml"].as_str().context("the builder's file")?.to_owned())
}

#[test]
#[ignore = "needs root, ZooKeeper, and sshd and busybox from Debian"]
fn real_people_log_in_from_the_builders_container() -> Result<()> {
    let (scratch, hidden, zookeeper) = (Scratch::new("keys")?, Scratch::new("hidden")?, ZooKeeper::start()?);
    let ssh = scratch.path().join("ssh");
    let public = text(&run(&["ci", "builder-ssh-key", "--ssh-dir", &ssh.display().to_string()]).stdout);
    let (known, unknown) = (Sshd::start(&public, hidden.path(), None)?, Sshd::start(&public, hidden.path(), None)?);
    let accepted = {
        let key = std::fs::read_to_string(known.host_key().with_extension("pub"))?;
        format!("[127.0.0.1]:{} {key}", known.port())
    };
    let container = Container::new(&ssh, &accepted, &configuration(&zookeeper)?, &zookeeper)?;
    let words = ["millpond", "ci", "builder", "-c", "/etc/nodepool/nodepool-builder.yaml"];
    let mut builder = Process::spawn("builder", &mut container.command(&words), scratch.path())?;
    // The address of the API is in the environment of every pod; without a token for it no cluster is used.
    let works = builder.wait_for(PATIENCE, |log| log.contains("records are in ZooKeeper"))?;
    ensure!(works == Waited::Satisfied, "the builder does not work:\n{}", builder.log_tail());

    let login = |port: u16, more: &[&str]| {
        let port = port.to_string();
        container.exec(&[&["ssh", "-p", port.as_str()][..], more, &["root@127.0.0.1", "echo", "here"]].concat())
    };
    let seen = login(known.port(), &["-o", "BatchMode=yes"]);
    assert_eq!(text(&seen.stdout), "here\n", "an accepted host: {}", text(&seen.stderr));
    let refused = login(unknown.port(), &["-o", "BatchMode=yes"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("Host key verification failed"));
    // What a person who answers `yes` does; the builder finds the key where it looks for accepted ones.
    let seen = login(unknown.port(), &["-o", "StrictHostKeyChecking=accept-new"]);
    assert_eq!(text(&seen.stdout), "here\n", "{}", text(&seen.stderr));
    let hosts = container.read("var/lib/nodepool/ssh/known_hosts");
    assert!(hosts.contains(&format!("[127.0.0.1]:{} ", unknown.port())) && hosts.contains(accepted.trim()), "{hosts}");

    // The other lines of the guide: a shell, and Nodepool's command line on the PATH.
    let listed = container.exec(&["sh", "-c", "nodepool list && id -un && ls /tls/client"]);
    let printed = text(&listed.stdout);
    assert!(printed.contains("| ID | Provider | Label |"), "{printed} {}", text(&listed.stderr));
    assert!(printed.ends_with("nodepool\nca.crt\ntls.crt\ntls.key\n"), "{printed}");
    let private = std::fs::read_to_string(ssh.join("priv"))?;
    let secret = private.lines().nth(2).context("a line of the key")?;
    assert!(!builder.printed().contains(secret));
    builder.stop()?;
    Ok(())
}
