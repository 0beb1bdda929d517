//! Runs commands in process groups of their own, with a time limit and the end of their output.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of output that an error shows.
const TAIL: u64 = 4096;
/// Time between two looks at a running command.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("cannot start `{program}`: {cause}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        cause: io::Error,
    },
    /// It ended with a failure.
    #[error("`{program}` ended with {status}: {tail}")]
    Failed {
        /// The program.
        program: String,
        /// Exit code or signal.
        status: String,
        /// The end of its output.
        tail: String,
    },
    /// It took too long, and was killed with its children.
    #[error("`{program}` took longer than {seconds} s: {tail}")]
    Timeout {
        /// The program.
        program: String,
        /// The limit.
        seconds: u64,
        /// The end of its output.
        tail: String,
    },
    /// The agent was stopped, or got another plan; the command was killed with its children.
    #[error("`{program}` was interrupted")]
    Interrupted {
        /// The program.
        program: String,
    },
}

/// How commands are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner<'a> {
    /// Directories that programs are looked for in, if not those of the agent.
    pub(super) path: Option<&'a str>,
    /// Variable of the environment by which children are found that outlive the command or the agent.
    pub(super) marker: Option<(&'static str, &'a str)>,
    /// Ends the command early.
    pub(super) cancel: &'a AtomicBool,
}

/// Asks again and again until there is an answer, the time is over or the work is cancelled.
pub(super) fn poll<T>(limit: Duration, cancel: &AtomicBool, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if start.elapsed() >= limit || cancel.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Runs a command to its end.
pub(super) fn run(argv: &[String], manner: Manner<'_>, limit: Duration) -> Result<(), CommandError> {
    let (program, arguments) = argv.split_first().ok_or_else(|| CommandError::Start {
        program: String::new(),
        cause: io::Error::other("the command is empty"),
    })?;
    let failed_to_start = |cause| CommandError::Start { program: program.clone(), cause };
    // A file and not a pipe: a daemon that keeps its output open must not hold up the step.
    let mut output = temporary_file().map_err(failed_to_start)?;
    let clone = |file: &File| file.try_clone().map(Stdio::from);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    command.stdout(clone(&output).map_err(failed_to_start)?).stderr(clone(&output).map_err(failed_to_start)?);
    if let Some(path) = manner.path {
        command.env("PATH", path);
    }
    if let Some((name, value)) = manner.marker {
        command.env(name, value);
    }
    let mut child = command.spawn().map_err(failed_to_start)?;
    let status = poll(limit, manner.cancel, || child.try_wait().transpose());
    match status {
        Some(Ok(status)) if status.success() => Ok(()),
        Some(Ok(status)) => {
            let (program, tail) = (program.clone(), tail(&mut output));
            Err(CommandError::Failed { program, status: describe(status), tail })
        }
        Some(Err(cause)) => Err(failed_to_start(cause)),
        None if manner.cancel.load(Ordering::Relaxed) => {
            kill_group(&mut child);
            Err(CommandError::Interrupted { program: program.clone() })
        }
        None => {
            kill_group(&mut child);
            let (program, tail) = (program.clone(), tail(&mut output));
            Err(CommandError::Timeout { program, seconds: limit.as_secs(), tail })
        }
    }
}

/// A file without a name: an agent that is killed leaves none behind.
fn temporary_file() -> io::Result<File> {
    let file = rustix::fs::memfd_create("millpond-agent-output", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(File::from(file))
}

fn kill_group(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // The group may be gone by now.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

fn tail(output: &mut File) -> String {
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = Vec::new();
    let read = output.seek(SeekFrom::Start(length.saturating_sub(TAIL))).and_then(|_| output.read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(error) => format!("(output cannot be read: {error})"),
    }
}
