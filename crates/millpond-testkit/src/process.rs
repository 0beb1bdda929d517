//! One child process with its log.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

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
    /// It printed the expected text.
    Satisfied,
    /// It exited before.
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
    wraps: bool,
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
        let process = Self { name: name.to_owned(), child, log, ended: None, wraps: false };
        child_reaper::watch(process.id())?;
        Ok(process)
    }

    /// Says that the command only starts the program, as `nsenter` does: [`Process::kill`] kills both and waits for both.
    pub(crate) fn wrapping(mut self) -> Self {
        self.wraps = true;
        self
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

    /// Waits until it exits.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().with_context(|| format!("wait for {}", self.name))?;
        self.set_ended(status);
        Ok(status)
    }

    /// Waits until it exits, for at most `limit`.
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
            // The exit is polled first, so that output before it is read after it.
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

    /// Its output so far.
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
        let programs = if self.wraps { self.children() } else { Vec::new() };
        self.child.kill().with_context(|| format!("kill {}", self.name))?;
        let status = self.wait()?;
        for program in &programs {
            kill_and_wait(program).with_context(|| format!("kill what {} started", self.name))?;
        }
        Ok(status)
    }

    /// Its present children. A child that has exited meanwhile is left out.
    fn children(&self) -> Vec<OwnedFd> {
        let id = self.id();
        let ids = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let ids = ids.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?));
        ids.filter_map(|id| pidfd_open(id, PidfdFlags::empty()).ok()).collect()
    }

    /// The last lines that it printed.
    pub fn log_tail(&self) -> String {
        let text = self.printed();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Sends the signal of Ctrl-C.
    pub fn interrupt(&self) -> Result<()> {
        self.signal(Signal::INT)
    }

    /// Sends any signal, e.g. SIGSTOP to play a process that hangs.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The child has not been waited for, so the id is still its own.
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
        // A child that cannot be killed is left alone.
        let _ = self.kill();
    }
}

/// Sends SIGKILL to a process that is not a child of this one, and waits for its end: until then it holds its locks.
fn kill_and_wait(process: &OwnedFd) -> Result<()> {
    match pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], None))?;
    Ok(())
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
