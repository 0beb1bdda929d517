//! One child process with its log.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::child_reaper;

/// How long [`Process::stop`] waits for a clean end. A kube-apiserver drains
/// for many seconds after SIGTERM; tests do not wait for that.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// The real parts are Go programs, and most of them hold little: with Go's usual setting they collect garbage all the
/// time. Let grow to five times what they hold, they use memory that is there instead of processors that are not.
const GARBAGE_COLLECTION: (&str, &str) = ("GOGC", "400");

/// Between two looks at a process that should end, or come up.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Lines of a log that go into an error.
const LOG_TAIL_LINES: usize = 25;

/// How [`Process::wait_for`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It printed what was waited for.
    Satisfied,
    /// It ended before.
    Ended(ExitStatus),
    /// Neither.
    TimedOut,
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a command; what it prints goes to `FOLDER/NAME.log`.
    pub fn spawn(name: &str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open `{}`", log.display()))?;
        let err = out.try_clone().context("share the log")?;
        let child = without_proxies(command)
            .env(GARBAGE_COLLECTION.0, GARBAGE_COLLECTION.1)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // A Ctrl-C at the terminal is for the parent to handle.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start `{}`", command.get_program().display()))?;
        let process = Self { name: name.to_owned(), child, log, ended: None };
        child_reaper::watch(process.id())?;
        Ok(process)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The file that holds what it printed.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails, with the end of the log, if the process has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.poll()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, self.log_tail()),
        }
    }

    /// Waits for it to end by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().with_context(|| format!("wait for {}", self.name))?;
        self.set_ended(status);
        Ok(status)
    }

    /// Waits for it to end by itself, for so long at most.
    pub fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until what it has printed satisfies, or it has ended, or the time is up.
    pub fn wait_for(&mut self, limit: Duration, mut satisfied: impl FnMut(&str) -> bool) -> Result<Waited> {
        let deadline = Instant::now() + limit;
        loop {
            // In this order: what was printed before the end is read after it.
            let ended = self.poll()?;
            if satisfied(&self.printed()) {
                return Ok(Waited::Satisfied);
            }
            if let Some(status) = ended {
                return Ok(Waited::Ended(status));
            }
            if Instant::now() >= deadline {
                return Ok(Waited::TimedOut);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// All that it has printed.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends SIGTERM and waits; after a while, SIGKILL.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        if self.poll()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        match self.wait_within(STOP_GRACE)? {
            Some(status) => Ok(status),
            None => self.kill(),
        }
    }

    /// Sends SIGKILL and waits.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.poll()? {
            return Ok(status);
        }
        self.child.kill().with_context(|| format!("kill {}", self.name))?;
        self.wait()
    }

    /// The last lines that it printed.
    pub fn log_tail(&self) -> String {
        let text = self.printed();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// What Ctrl-C at its terminal does.
    pub fn interrupt(&self) -> Result<()> {
        self.signal(Signal::INT)
    }

    /// Sends any signal, e.g. SIGSTOP to play a process that hangs.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // Not waited for yet, so the id is still this child's.
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    fn poll(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait().with_context(|| format!("look after {}", self.name))?
        {
            self.set_ended(status);
        }
        Ok(self.ended)
    }

    fn set_ended(&mut self, status: ExitStatus) {
        if self.ended.replace(status).is_some() {
            return;
        }
        // The reaper ignores a process that is already gone.
        let _ = child_reaper::forget(self.child.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing is left to do for a child that cannot be killed.
        let _ = self.kill();
    }
}

/// Forgets the proxies of the person's shell: servers of a test speak to each
/// other, on loopback only.
pub(crate) fn without_proxies(command: &mut Command) -> &mut Command {
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a loopback port")?;
    Ok(listener.local_addr().context("read the bound port")?.port())
}
