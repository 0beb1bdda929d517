//! Ends child processes with their parent: a child that outlives its parent is a leak.
//!
//! One shell per test process reads orders from a pipe. When the pipe ends,
//! because the process returned, panicked, was killed or simply never dropped
//! what it held in a `static`, the shell kills the children that are still
//! listed and removes their folders. (The kernel's parent-death signal would
//! need `unsafe`, and fires when the *thread* ends that started the child.)

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result};

/// Orders: `watch PID`, `forget PID`, `folder PATH`, `leave PATH`.
const SCRIPT: &str = r#"
pids=' ' folders='
'
while read -r order what; do
    case $order in
        watch) pids="$pids$what " ;;
        forget) pids="${pids%% $what *} ${pids#* $what }" ;;
        folder) folders="$folders$what
" ;;
        leave) folders="${folders%%
$what
*}
${folders#*
$what
}" ;;
    esac
done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
printf '%s' "$folders" | while read -r folder; do
    [ -n "$folder" ] && rm -rf -- "$folder"
done
"#;

static ORDERS: OnceLock<Mutex<ChildStdin>> = OnceLock::new();

/// Kills the process when this one ends, however it ends.
pub(crate) fn watch(pid: u32) -> Result<()> {
    order("watch", &pid.to_string())
}

/// The process was waited for; its id may soon be another's.
pub(crate) fn forget(pid: u32) -> Result<()> {
    order("forget", &pid.to_string())
}

/// Removes the folder when this process ends.
pub(crate) fn folder(path: &Path) -> Result<()> {
    order("folder", &path.to_string_lossy())
}

/// The folder is gone already, or is to stay.
pub(crate) fn leave(path: &Path) -> Result<()> {
    order("leave", &path.to_string_lossy())
}

fn order(order: &str, what: &str) -> Result<()> {
    let pipe = if let Some(pipe) = ORDERS.get() {
        pipe
    } else {
        let started = Mutex::new(start()?);
        // Two threads may come here at once; the second shell gets an empty
        // list, reads the end of its pipe and is gone.
        ORDERS.get_or_init(|| started)
    };
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(pipe, "{order} {what}").context("write to the reaper")
}

fn start() -> Result<ChildStdin> {
    let mut shell = shell().spawn().context("start `sh` as the reaper of test servers")?;
    shell.stdin.take().context("the reaper has no pipe")
}

fn shell() -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", SCRIPT, "millpond-reaper"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Out of reach of a Ctrl-C at the terminal, which is what it waits for.
        .process_group(0);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_pipe_ends_what_is_watched_and_nothing_else() {
        let sleeper = || Command::new("sleep").arg("1000").spawn().unwrap();
        let (mut first, mut second, mut third) = (sleeper(), sleeper(), sleeper());
        let scratch = tempfile::tempdir().unwrap();
        let (gone, left) = (scratch.path().join("gone"), scratch.path().join("left"));
        std::fs::create_dir_all(gone.join("below")).unwrap();
        std::fs::create_dir(&left).unwrap();

        let mut shell = shell().spawn().unwrap();
        let mut pipe = shell.stdin.take().unwrap();
        for child in [&first, &second, &third] {
            writeln!(pipe, "watch {}", child.id()).unwrap();
        }
        writeln!(pipe, "forget {}", second.id()).unwrap();
        writeln!(pipe, "folder {}", left.display()).unwrap();
        writeln!(pipe, "folder {}", gone.display()).unwrap();
        writeln!(pipe, "leave {}", left.display()).unwrap();
        drop(pipe);
        shell.wait().unwrap();

        assert!(!first.wait().unwrap().success());
        assert!(!third.wait().unwrap().success());
        assert_eq!(second.try_wait().unwrap(), None);
        second.kill().unwrap();
        second.wait().unwrap();
        assert!(left.exists());
        assert!(!gone.exists());
    }
}
