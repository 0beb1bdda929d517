//! A real ZooKeeper: one server, with TLS for clients that have a certificate, and without for tools.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::pki;
use crate::process::{POLL_INTERVAL, Process, free_port};
use crate::real::debian;
use crate::scratch::Scratch;

/// Java takes 3 s on a quiet machine.
const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// The server allows sessions of two ticks at least.
const TICK_MS: u32 = 500;

/// A running server with its data. Dropping it ends both.
#[derive(Debug)]
pub struct ZooKeeper {
    process: Process,
    class_path: String,
    scratch: Scratch,
    port: u16,
    secure_port: u16,
}

impl ZooKeeper {
    /// Starts a server with certificates of its own.
    pub fn start() -> Result<Self> {
        let scratch = Scratch::new("zookeeper")?;
        pki::zookeeper(scratch.path())?;
        Self::start_in(scratch)
    }

    /// Starts a server with the files `ca.pem` and `server.pem` (key and certificate) of a folder.
    pub fn start_in(scratch: Scratch) -> Result<Self> {
        debian::ensure_java()?;
        let class_path = debian::zookeeper()?;
        let (port, secure_port) = (free_port()?, free_port()?);
        let folder = scratch.path();
        let path = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "tickTime={TICK_MS}\n\
             dataDir={}\n\
             clientPort={port}\n\
             clientPortAddress=127.0.0.1\n\
             secureClientPort={secure_port}\n\
             secureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\n\
             ssl.trustStore.location={}\n\
             admin.enableServer=false\n\
             4lw.commands.whitelist=ruok\n\
             maxClientCnxns=0\n",
            path("data"),
            path("server.pem"),
            path("ca.pem"),
        );
        let logging = "log4j.rootLogger=INFO, out\n\
             log4j.appender.out=org.apache.log4j.ConsoleAppender\n\
             log4j.appender.out.layout=org.apache.log4j.PatternLayout\n\
             log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n\n";
        std::fs::write(folder.join("zoo.cfg"), config).context("write zoo.cfg")?;
        std::fs::write(folder.join("log4j.properties"), logging).context("write log4j.properties")?;
        let process = spawn(&class_path, folder)?;
        let mut server = Self { process, class_path, scratch, port, secure_port };
        server.wait()?;
        Ok(server)
    }

    /// Kills the server and starts it again on the same data.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.resume()
    }

    /// Kills the server.
    pub fn stop(&mut self) -> Result<()> {
        self.process.kill().map(drop)
    }

    /// Starts a killed server again.
    pub fn resume(&mut self) -> Result<()> {
        self.process = spawn(&self.class_path, self.scratch.path())?;
        self.wait()
    }

    /// The port without TLS, for tools.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port with TLS.
    pub fn secure_port(&self) -> u16 {
        self.secure_port
    }

    /// The folder of certificates: `ca.pem`, `client.pem`, `client.key`.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// A file of that folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The configuration of this server in nodepool.yaml.
    pub fn nodepool_yaml(&self) -> String {
        format!(
            "zookeeper-servers:\n  - host: 127.0.0.1\n    port: {}\nzookeeper-tls:\n  cert: {}\n  key: {}\n  ca: {}\n",
            self.secure_port,
            self.file("client.pem").display(),
            self.file("client.key").display(),
            self.file("ca.pem").display(),
        )
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            self.process.ensure_running()?;
            if [self.port, self.secure_port].into_iter().all(listens) && is_well(self.port) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("ZooKeeper was not ready in time:\n{}", self.process.log_tail());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn spawn(class_path: &str, folder: &Path) -> Result<Process> {
    let mut command = Command::new("java");
    command
        .args(["-Xmx512m", "-cp", &format!("{}:{class_path}", folder.display())])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(folder.join("zoo.cfg"));
    Process::spawn("zookeeper", &mut command, folder)
}

fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Asks the server how it is.
fn is_well(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"ruok")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer == "imok")
}
