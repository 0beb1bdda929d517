//! Plans on real files: stopped at every point, killed for good, applied in the wrong order, undone.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_agent::executor::{Executor, ExecutorError};
use millpond_agent::plan::{FileStep, Plan, RunStep, Step, UnitStep};

/// Set in a child of the test that is to be killed: where its host is.
const CHILD: &str = "MILLPOND_TEST_AGENT_CHILD";
/// Set in a child that kills itself: at which point.
const KILLED_AT: &str = "MILLPOND_TEST_AGENT_KILLED_AT";

struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    /// A host with one file and a `systemctl` that writes down what it is asked.
    fn new() -> Self {
        let host = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(host.root().join("etc")).unwrap();
        fs::write(host.root().join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        fs::create_dir_all(host.root().join("etc/systemd/system")).unwrap();
        let bin = host.path("bin");
        fs::create_dir_all(&bin).unwrap();
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", host.path("systemctl.log").display());
        fs::write(bin.join("systemctl"), script).unwrap();
        fs::set_permissions(bin.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("root")
    }

    fn executor(&self) -> Executor {
        executor(self.directory.path())
    }

    /// Every file with its content and permissions.
    fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
        fn walk(directory: &Path, all: &mut BTreeMap<PathBuf, (Vec<u8>, u32)>) {
            for entry in fs::read_dir(directory).unwrap().flatten() {
                let (path, mode) = (entry.path(), entry.metadata().unwrap().permissions().mode());
                if path.is_dir() {
                    walk(&path, all);
                    all.insert(path, (Vec::new(), mode));
                } else {
                    all.insert(path.clone(), (fs::read(path).unwrap(), mode));
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(&self.root(), &mut all);
        all
    }
}

fn executor(directory: &Path) -> Executor {
    let path = format!("{}:/usr/bin:/bin", directory.join("bin").display());
    Executor::new(&directory.join("root"), &directory.join("state")).unwrap().with_path(&path)
}

fn file(path: &str, content: &str, append: bool) -> Step {
    let content = STANDARD.encode(content);
    Step::WriteFile(FileStep { path: path.to_owned(), content, mode: 0o600, append, owner: String::new() })
}

fn plan(host: &Path, epoch: i64) -> Plan {
    let touch = |name: &str| vec!["touch".to_owned(), host.join(name).display().to_string()];
    let steps = vec![
        file("/etc/kubernetes/pki/ca.crt", "ca", false),
        file("/etc/hosts", "10.0.0.1 api\n", true),
        file("/etc/hosts", "10.0.0.2 registry\n", true),
        Step::Run(RunStep { argv: touch("ran"), timeout_seconds: 60, undo: touch("undone"), ..RunStep::default() }),
        Step::SystemdUnit(UnitStep {
            name: "kubelet.service".into(),
            content: "[Service]\nExecStart=kubelet\n".into(),
        }),
    ];
    Plan { machine_uid: "u1".into(), epoch, steps, ..Plan::default() }
}

fn is_applied(host: &Host) {
    let hosts = fs::read_to_string(host.root().join("etc/hosts")).unwrap();
    assert_eq!(hosts, "127.0.0.1 localhost\n10.0.0.1 api\n10.0.0.2 registry\n", "every line once");
    assert_eq!(fs::read_to_string(host.root().join("etc/kubernetes/pki/ca.crt")).unwrap(), "ca");
    assert!(host.path("ran").exists());
    let log = fs::read_to_string(host.path("systemctl.log")).unwrap();
    assert!(log.ends_with("daemon-reload\nenable --now kubelet.service\n"), "{log}");
}

/// An executor that stops at the n-th point, and whether it did.
fn stopping(host: &Host, at: u32) -> (Executor, Rc<Cell<bool>>) {
    let (count, stopped) = (Cell::new(0), Rc::new(Cell::new(false)));
    let flag = stopped.clone();
    let executor = host.executor().with_checkpoint(move || {
        count.set(count.get() + 1);
        if count.get() > at {
            flag.set(true);
            return Err(io::Error::other("killed"));
        }
        Ok(())
    });
    (executor, stopped)
}

#[test]
fn a_plan_that_stops_at_any_point_continues_and_is_undone_whole() {
    let mut points = 0;
    for at in 0.. {
        let host = Host::new();
        let before = host.files();
        let plan = plan(host.directory.path(), 1);
        let (mut executor, stopped) = stopping(&host, at);
        assert_eq!(executor.apply(&plan).is_err(), stopped.get());
        host.executor().apply(&plan).unwrap();
        is_applied(&host);
        host.executor().reset().unwrap();
        assert_eq!(host.files(), before, "stopped at point {at}");
        assert!(host.path("undone").exists());
        points = at;
        if !stopped.get() {
            break;
        }
    }
    assert!(points > 20, "{points} points");
}

#[test]
fn a_reset_that_stops_at_any_point_is_finished_by_the_next() {
    for at in 0.. {
        let host = Host::new();
        let before = host.files();
        let plan = plan(host.directory.path(), 1);
        host.executor().apply(&plan).unwrap();
        let (mut executor, stopped) = stopping(&host, at);
        assert_eq!(executor.reset().is_err(), stopped.get());
        // In between, nothing of the plan is applied again.
        if stopped.get() && at > 1 {
            assert!(matches!(host.executor().apply(&plan), Err(ExecutorError::OldEpoch { .. })));
        }
        host.executor().reset().unwrap();
        assert_eq!(host.files(), before, "stopped at point {at}");
        if !stopped.get() {
            break;
        }
    }
}

#[test]
fn a_unit_that_was_enabled_before_is_enabled_afterwards() {
    let host = Host::new();
    let wants = host.root().join("etc/systemd/system/multi-user.target.wants");
    let link = wants.join("kubelet.service");
    fs::create_dir_all(&wants).unwrap();
    std::os::unix::fs::symlink("/lib/systemd/system/kubelet.service", &link).unwrap();
    // As systemctl does: `enable` and `disable` know the unit by its name alone.
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\ndisable) rm -f {0} ;;\nenable) ln -sf /lib/systemd/system/kubelet.service {0} ;;\nesac\n",
        link.display()
    );
    fs::write(host.path("bin/systemctl"), script).unwrap();
    host.executor().apply(&plan(host.directory.path(), 1)).unwrap();
    host.executor().reset().unwrap();
    assert!(fs::symlink_metadata(&link).is_ok(), "a unit of the packages starts at boot, as before");
    assert!(!host.root().join("etc/systemd/system/kubelet.service").exists());
}

#[test]
fn plans_of_old_epochs_are_never_applied() {
    let host = Host::new();
    let of = |epoch| plan(host.directory.path(), epoch);
    host.executor().apply(&of(5)).unwrap();
    assert!(matches!(host.executor().apply(&of(4)), Err(ExecutorError::OldEpoch { plan: 4, host: 5 })));
    assert!(matches!(host.executor().apply(&of(6)), Err(ExecutorError::NotReset { epoch: 5 })));
    host.executor().reset().unwrap();
    let before = host.files();
    for epoch in [4, 5] {
        assert!(matches!(host.executor().apply(&of(epoch)), Err(ExecutorError::OldEpoch { host: 5, .. })));
    }
    assert_eq!(host.files(), before);
    host.executor().apply(&of(6)).unwrap();
    is_applied(&host);
}

#[test]
fn a_command_that_fails_fails_its_step_with_its_output() {
    let host = Host::new();
    let before = host.files();
    let mut plan = plan(host.directory.path(), 1);
    let argv = ["sh", "-c", "echo no such node >&2; exit 3"].map(str::to_owned).to_vec();
    plan.steps[3] = Step::Run(RunStep { argv, timeout_seconds: 60, ..RunStep::default() });
    let error = host.executor().apply(&plan).unwrap_err();
    let ExecutorError::Step { number: 4, cause, .. } = &error else { panic!("{error:?}") };
    assert_eq!(cause.to_string(), "`sh` ended with exit code 3: no such node");
    assert_eq!(host.executor().journal().unwrap().done, 3);
    host.executor().reset().unwrap();
    assert_eq!(host.files(), before);
    // The journal holds bootstrap data: it is for its owner alone.
    let mode = fs::metadata(host.path("state/journal.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn paths_do_not_leave_the_root() {
    let host = Host::new();
    for path in ["etc/passwd", "/../outside", "/etc/../../outside", "/"] {
        let plan = Plan { epoch: 1, steps: vec![file(path, "x", false)], ..Plan::default() };
        assert!(host.executor().apply(&plan).is_err(), "{path}");
        host.executor().reset().unwrap();
        fs::remove_dir_all(host.path("state")).unwrap();
    }
}

fn killed_plan(host: &Path) -> Plan {
    let mut plan = plan(host, 1);
    let line = format!("echo > {0}/started; cat {0}/gate; touch {0}/ran; echo > {0}/ended", host.display());
    plan.steps[3] =
        Step::Run(RunStep { argv: vec!["sh".into(), "-c".into(), line], timeout_seconds: 60, ..RunStep::default() });
    plan
}

/// The agent as a process of its own, killed while a command of its plan runs.
#[test]
fn a_killed_agent_continues_where_it_was() {
    if let Some(host) = std::env::var_os(CHILD) {
        let host = PathBuf::from(host);
        executor(&host).apply(&killed_plan(&host)).unwrap();
        return;
    }
    let host = Host::new();
    let before = host.files();
    for pipe in ["started", "gate", "ended"] {
        assert!(Command::new("mkfifo").arg(host.path(pipe)).status().unwrap().success());
    }
    let test = std::env::current_exe().unwrap();
    let mut child = Command::new(test)
        .args(["--exact", "a_killed_agent_continues_where_it_was"])
        .env(CHILD, host.directory.path())
        .spawn()
        .unwrap();
    // Opening waits until the command of step 4 runs.
    fs::File::open(host.path("started")).unwrap().read_to_end(&mut Vec::new()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // The orphaned command ends, and does what it would have done.
    fs::OpenOptions::new().write(true).open(host.path("gate")).unwrap().write_all(b"go\n").unwrap();
    fs::File::open(host.path("ended")).unwrap().read_to_end(&mut Vec::new()).unwrap();
    let journal = host.executor().journal().unwrap();
    assert_eq!((journal.done, journal.epoch), (3, 1));
    // The restarted agent runs the command again: this time both ends are open.
    let (started, gate, ended) = (host.path("started"), host.path("gate"), host.path("ended"));
    let other_side = std::thread::spawn(move || {
        fs::File::open(started).unwrap().read_to_end(&mut Vec::new()).unwrap();
        fs::OpenOptions::new().write(true).open(gate).unwrap().write_all(b"go\n").unwrap();
        fs::File::open(ended).unwrap().read_to_end(&mut Vec::new()).unwrap();
    });
    host.executor().apply(&killed_plan(host.directory.path())).unwrap();
    other_side.join().unwrap();
    is_applied(&host);
    host.executor().reset().unwrap();
    assert_eq!(host.files(), before);
}

/// What an agent as a process of its own does with the plan of its host.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Apply,
    Reset,
}

/// Runs a child of this test that kills itself with SIGKILL at a point; tells whether it came that far.
fn is_killed(test: &str, host: &Host, at: u32) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test]).env(CHILD, host.directory.path()).env(KILLED_AT, at.to_string());
    let output = child.output().unwrap();
    let signal = output.status.signal();
    assert!(output.status.success() || signal == Some(9), "{}", String::from_utf8_lossy(&output.stdout));
    signal == Some(9)
}

/// Works on the plan of a host as a child, and sends itself SIGKILL at the point that the parent chose.
fn work_until_killed(host: &Path, work: Work) {
    let (at, mut count): (u32, u32) = (std::env::var(KILLED_AT).unwrap().parse().unwrap(), 0);
    let mut executor = executor(host).with_checkpoint(move || {
        if count == at {
            Command::new("sh").args(["-c", "kill -9 $PPID"]).status()?;
        }
        count += 1;
        Ok(())
    });
    match work {
        Work::Apply => executor.apply(&plan(host, 1)).unwrap(),
        Work::Reset => executor.reset().unwrap(),
    }
}

/// Kills a process at every point of its work on a host, each on a host of its own, and lets another one finish it.
fn kill_at_every_point(test: &str, work: Work) {
    if let Some(host) = std::env::var_os(CHILD) {
        return work_until_killed(Path::new(&host), work);
    }
    let mut points = 0;
    loop {
        let host = Host::new();
        let before = host.files();
        let plan = plan(host.directory.path(), 1);
        if work == Work::Reset {
            host.executor().apply(&plan).unwrap();
        }
        let killed = is_killed(test, &host, points);
        if work == Work::Apply {
            host.executor().apply(&plan).unwrap();
            is_applied(&host);
        }
        host.executor().reset().unwrap();
        assert_eq!(host.files(), before, "killed at point {points}");
        if !killed {
            break;
        }
        points += 1;
    }
    assert!(points > 15, "{points} points");
}

#[test]
fn a_process_that_is_killed_at_any_point_of_a_plan_leaves_nothing_that_the_next_cannot_finish() {
    let name = "a_process_that_is_killed_at_any_point_of_a_plan_leaves_nothing_that_the_next_cannot_finish";
    kill_at_every_point(name, Work::Apply);
}

#[test]
fn a_process_that_is_killed_at_any_point_of_a_reset_leaves_nothing_that_the_next_cannot_finish() {
    let name = "a_process_that_is_killed_at_any_point_of_a_reset_leaves_nothing_that_the_next_cannot_finish";
    kill_at_every_point(name, Work::Reset);
}
