//! A real sshd on loopback whose users have a folder of their own mounted at one path: for builds of images it is
//! another machine.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::{POLL_INTERVAL, Process, free_port};
use crate::real::debian;
use crate::scratch::Scratch;

/// sshd is there in milliseconds; a busy machine takes longer.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// Starts sshd in a mount namespace: `$1` is its folder, `$2` the place that is empty for it, then its command. A server
/// that runs as root insists on a user `sshd` and on a folder in `/run`.
const ENTER: &str = r#"
mount -t tmpfs none "$2" || exit 1
mount -t tmpfs none /run && mkdir /run/sshd || exit 1
grep -v '^sshd:' /etc/passwd > "$1/passwd"
echo 'sshd:x:64321:65534::/run/sshd:/usr/sbin/nologin' >> "$1/passwd"
mount --bind "$1/passwd" /etc/passwd || exit 1
shift 2
exec "$@"
"#;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Sshd {
    process: Process,
    port: u16,
    scratch: Scratch,
}

impl Sshd {
    /// Starts a server that lets the owner of a public key in, on a port; users of it find `hidden` empty. The process
    /// must be root, as in the containers that run these tests.
    pub fn start(public_key: &str, hidden: &Path, port: Option<u16>) -> Result<Self> {
        let (program, libraries) = debian::sshd()?;
        let scratch = Scratch::new("sshd")?;
        let folder = scratch.path();
        let port = port.map_or_else(free_port, Ok)?;
        let key = folder.join("host_key");
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
        if !made.context("run `ssh-keygen`\nhint: `apt-get install openssh-client`")?.success() {
            bail!("`ssh-keygen` made no host key");
        }
        std::fs::write(folder.join("authorized_keys"), public_key).context("write authorized_keys")?;
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n",
            key.display(),
            folder.join("authorized_keys").display(),
        );
        let file = folder.join("sshd_config");
        std::fs::write(&file, config).context("write sshd_config")?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"])
            .args([folder, hidden])
            .arg("env")
            .arg(format!("LD_LIBRARY_PATH={}", libraries.display()))
            .arg(program)
            .args(["-D", "-e", "-f"])
            .arg(&file);
        let process = Process::spawn("sshd", &mut command, folder)?;
        let mut server = Self { process, port, scratch };
        server.wait()?;
        Ok(server)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.log_tail()
    }

    /// Its private host key.
    pub fn host_key(&self) -> PathBuf {
        self.scratch.path().join("host_key")
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            self.process.ensure_running()?;
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("sshd was not ready in time:\n{}", self.process.log_tail());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
