//! Runs a command that builds an image: its output goes to a log, its processes end with it or with its time-out.
//!
//! While a command runs, a file in the images directory records it. A builder that finds such a file when it starts
//! ends the processes that its predecessor could not end, because it was killed.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use super::command::BuildCommand;

/// Bytes that are copied to the log at a time.
const CHUNK: usize = 64 << 10;
/// After the command has ended, processes that it left behind may hold its output open for this long.
const LINGER: Duration = Duration::from_secs(5);
/// The end of the names of files that tell of running commands.
const RUNNING: &str = ".running";

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It exited with this code; a negative code is a signal.
    Exited(i32),
    /// It took too long.
    TimedOut,
    /// The builder was stopped.
    Stopped,
}

/// A command and where it runs.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// The command.
    pub(super) command: &'a BuildCommand,
    /// Its log.
    pub(super) log: &'a Path,
    /// How long it may take.
    pub(super) timeout: Duration,
    /// The file that tells that it runs.
    pub(super) running: PathBuf,
    /// Texts that the log must not show.
    pub(super) secrets: &'a [String],
}

/// The file that tells of a running build.
pub(super) fn running_file(images: &Path, image: &str, build: &str) -> PathBuf {
    images.join(format!(".{image}-{build}{RUNNING}"))
}

impl Run<'_> {
    /// Runs the command to its end. The log is open until then; its last line is left to the caller.
    pub(super) async fn run(&self, stop: &CancellationToken) -> io::Result<(Outcome, File)> {
        let mut log = File::create(self.log).await?;
        // One pipe for both, as in a shell's `2>&1`: the lines stay in order.
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.command.argv[0]);
        command
            .args(&self.command.argv[1..])
            .envs(self.command.env.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::from(writer.try_clone()?))
            .stderr(Stdio::from(writer))
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        // Otherwise its copies of the pipe would keep the output open.
        drop(command);
        let group = Group::new(child.id(), self.running.clone())?;
        let mut output = ChildStdout::from_std(std::process::ChildStdout::from(std::os::fd::OwnedFd::from(reader)))?;
        let deadline = tokio::time::sleep(self.timeout);
        tokio::pin!(deadline);
        let mut copied = Box::pin(copy(&mut output, &mut log, self.secrets));
        let mut is_open = true;
        let outcome = loop {
            tokio::select! {
                biased;
                done = &mut copied, if is_open => {
                    done?;
                    is_open = false;
                }
                status = child.wait() => break Outcome::Exited(code(status?)),
                () = &mut deadline => break Outcome::TimedOut,
                () = stop.cancelled() => break Outcome::Stopped,
            }
        };
        if is_open && matches!(outcome, Outcome::Exited(_)) {
            // The remaining output of the command, and of its processes that still write.
            match tokio::time::timeout(LINGER, &mut copied).await {
                Ok(done) => done?,
                Err(_) => tracing::warn!(log = %self.log.display(), "the command left processes behind"),
            }
        }
        drop(copied);
        group.end();
        if !matches!(outcome, Outcome::Exited(_)) {
            let _ = child.wait().await;
        }
        Ok((outcome, log))
    }
}

async fn copy(output: &mut ChildStdout, log: &mut File, secrets: &[String]) -> io::Result<()> {
    let (mut chunk, mut held) = (vec![0; CHUNK], Vec::new());
    loop {
        let count = output.read(&mut chunk).await?;
        held.extend_from_slice(&chunk[..count]);
        // A secret may come in two pieces: with secrets, only whole lines go on.
        let line_end = held.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let ready = if secrets.is_empty() || count == 0 || held.len() > CHUNK { held.len() } else { line_end };
        let masked = mask(&held[..ready], secrets);
        log.write_all(&masked).await?;
        log.flush().await?;
        held.drain(..ready);
        if count == 0 {
            return Ok(());
        }
    }
}

/// A text with stars in the place of secrets.
pub(super) fn mask<'t>(text: &'t [u8], secrets: &[String]) -> Cow<'t, [u8]> {
    let mut masked = Cow::Borrowed(text);
    for secret in secrets.iter().map(String::as_bytes).filter(|secret| !secret.is_empty()) {
        let mut start = 0;
        while let Some(at) = masked[start..].windows(secret.len()).position(|window| window == secret) {
            masked.to_mut().splice(start + at..start + at + secret.len(), *b"***");
            start += at + 3;
        }
    }
    masked
}

/// As in Python: the exit code, or the negative number of the signal.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(-1)
}

/// A process group and the file that tells of it. Both end together.
struct Group {
    pid: Option<Pid>,
    file: PathBuf,
}

impl Group {
    fn new(id: Option<u32>, file: PathBuf) -> io::Result<Self> {
        let pid = id.and_then(|id| Pid::from_raw(id as i32));
        let group = Self { pid, file };
        if let Some(pid) = pid {
            let started = started(pid).unwrap_or_default();
            fs::write(&group.file, format!("{} {started}\n", pid.as_raw_nonzero()))?;
        }
        Ok(group)
    }

    fn end(self) {}
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            // An empty group is no error.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = fs::remove_file(&self.file);
    }
}

/// When a process was started: ticks since boot, with the boot's id, so that a later process with the same id is
/// distinguished.
fn started(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name of the command may have spaces and parentheses.
    let ticks = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{ticks}@{}", boot.trim()))
}

/// Ends the commands of a builder that was killed. The caller has the images directory for itself.
pub(super) fn end_leftovers(images: &Path) -> io::Result<()> {
    for entry in fs::read_dir(images)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with('.') || !name.ends_with(RUNNING) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let mut words = text.split_whitespace();
        let pid = words.next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        if let (Some(pid), Some(then)) = (pid, words.next()) {
            // If the leader is gone, its group cannot be distinguished from a later one of the same number: that has a
            // leader.
            let now = started(pid);
            if now.as_deref() == Some(then) || (now.is_none() && has_group(pid)) {
                tracing::warn!(pid = pid.as_raw_nonzero(), file = name, "ending a command of the builder before");
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
        fs::remove_file(&path)?;
    }
    Ok(())
}

/// Whether a process group has members although its leader is gone: the kernel does not give the number to another process
/// while the group exists.
fn has_group(pid: Pid) -> bool {
    rustix::process::test_kill_process_group(pid).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> BuildCommand {
        let argv = ["sh", "-c", script].map(ToOwned::to_owned).to_vec();
        BuildCommand { argv, env: vec![("X".into(), "1".into())] }
    }

    async fn run(script: &str, timeout: Duration, stop: &CancellationToken, folder: &Path) -> (Outcome, String) {
        let (command, log, running) = (sh(script), folder.join("log"), running_file(folder, "image", "build"));
        let secrets = ["hunter2".to_owned()];
        let run = Run { command: &command, log: &log, timeout, running: running.clone(), secrets: &secrets };
        let (outcome, _) = run.run(stop).await.unwrap();
        assert!(!running.exists());
        (outcome, fs::read_to_string(log).unwrap())
    }

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn output_and_codes() {
        let (folder, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let (outcome, log) = run("echo out; echo err >&2; echo $X hunter2.; exit 3", LONG, &stop, folder.path()).await;
        assert_eq!((outcome, log.as_str()), (Outcome::Exited(3), "out\nerr\n1 ***.\n"));
        let (outcome, _) = run("kill -9 $$", LONG, &stop, folder.path()).await;
        assert_eq!(outcome, Outcome::Exited(-9));
    }

    #[tokio::test]
    async fn all_processes_end_with_the_command() {
        let (folder, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let (outcome, _) = run("sleep 600", Duration::from_millis(1), &stop, folder.path()).await;
        assert_eq!(outcome, Outcome::TimedOut);
        let file = folder.path().join("pid");
        let script = format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & wait", file.display());
        let told = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
        };
        let ((outcome, _), ()) = tokio::join!(run(&script, LONG, &stop, folder.path()), told);
        assert_eq!(outcome, Outcome::Stopped);
        let pid = fs::read_to_string(file).unwrap();
        // Killed, though perhaps not yet dead or collected by init: it ends, or the test never does.
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        };
        while !matches!(state(), None | Some('Z' | 'X')) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn leftovers_of_a_killed_builder_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(child.id().unwrap() as i32).unwrap();
        let file = running_file(folder.path(), "image", "build");
        fs::write(&file, format!("{} {}\n", pid.as_raw_nonzero(), started(pid).unwrap())).unwrap();
        // Another process has the number meanwhile: it is left alone.
        let other = running_file(folder.path(), "image", "other");
        fs::write(&other, format!("{} 1@boot\n", std::process::id())).unwrap();
        end_leftovers(folder.path()).unwrap();
        assert_eq!(child.wait().await.unwrap().signal(), Some(9));
        assert!(!file.exists() && !other.exists());
    }
}
