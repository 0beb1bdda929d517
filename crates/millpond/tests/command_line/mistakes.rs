//! What goes wrong at the terminal is told in one line, with the next step and an exit code that scripts can read.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use millpond_testkit::EmbeddedServer;

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");

/// Runs a command line that fails; gives its exit code and what it complained about. `DIR` stands for a folder.
fn told(directory: &Path, line: &str) -> String {
    told_with(directory, line, &[])
}

fn told_with(directory: &Path, line: &str, environment: &[(&str, &str)]) -> String {
    told_by(Command::new(MILLPOND), directory, line, environment)
}

fn told_by(mut command: Command, directory: &Path, line: &str, environment: &[(&str, &str)]) -> String {
    let name = directory.to_str().expect("a name in UTF-8");
    let output = command
        .args(line.split_whitespace().map(|word| word.replace("DIR", name)))
        .env("HOME", directory)
        .env_remove("MILLPOND_DATA_DIR")
        .env_remove("MILLPOND_PORT")
        .env_remove("MILLPOND_LOG")
        .envs(environment.iter().copied())
        .output()
        .expect("the binary runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "errors go to stderr");
    let text = String::from_utf8_lossy(&output.stderr).replace(name, "DIR");
    format!("exit {}\n{}", output.status.code().unwrap_or(-1), text.trim_end())
}

#[test]
fn usage() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    insta::assert_snapshot!(told(at, "up --memroy"), @"
    exit 2
    error: unexpected argument '--memroy' found

      tip: a similar argument exists: '--memory'

    Usage: millpond up --memory

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(at, "up --bare --demo"), @"
    exit 2
    error: the argument '--bare' cannot be used with '--demo'

    Usage: millpond up --bare

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(at, "up --port 70000"), @"
    exit 2
    error: invalid value '70000' for '--port <PORT>': 70000 is not in 0..=65535

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(at, "down"), @"
    exit 2
    error: unrecognized subcommand 'down'

    Usage: millpond <COMMAND>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(at, "store backup"), @"
    exit 2
    error: the following required arguments were not provided:
      <FILE>

    Usage: millpond store backup <FILE>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told_with(at, "up", &[("MILLPOND_LOG", "a=b=c")]), @"
    exit 2
    error: `MILLPOND_LOG=a=b=c` does not say what to log
    hint: give a level (`info`), or levels of rooms (`warn,millpond_apiserver=debug`)
    ");
}

#[test]
fn a_second_start_is_refused() {
    let mut server = EmbeddedServer::start(Path::new(MILLPOND), &["--bare"]).unwrap();
    let process = server.process().id().to_string();
    let folder = server.folder().to_owned();
    let told = |line| told(&folder, line).replace(&process, "PID");
    insta::assert_snapshot!(told("up --data-dir DIR/data --port 0"), @"
    exit 4
    error: another millpond (process PID) runs on `DIR/data`
    hint: stop it, or choose another directory with `--data-dir`
    ");
    insta::assert_snapshot!(told("up --data-dir DIR/data --port 0 --memory"), @"
    exit 4
    error: another millpond (process PID) runs on `DIR/data`
    hint: stop it, or choose another directory with `--data-dir`
    ");
    insta::assert_snapshot!(told("store restore --data-dir DIR/data DIR/none"), @"
    exit 3
    error: cannot restore the backup: there is no store at `DIR/none`
    hint: name the file that `millpond store backup` wrote
    ");
}

#[test]
fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let told = told(directory.path(), &format!("up --data-dir DIR/data --port {port}")).replace(&port, "PORT");
    insta::assert_snapshot!(told, @"
    exit 4
    error: port PORT is in use
    hint: choose another one with `--port`, or any free one with `--port 0`
    ");
}

#[test]
fn places_that_cannot_be_used_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("file"), "").unwrap();
    insta::assert_snapshot!(told(at, "up --port 0 --data-dir DIR/file/data"), @"
    exit 1
    error: cannot start: cannot write to `DIR/file/data`: Not a directory (os error 20)
    hint: give this user write permission, or choose another `--data-dir`
    ");
    insta::assert_snapshot!(told(at, "up --port 0 --data-dir DIR/data --audit-log DIR/none/audit.log"), @"
    exit 1
    error: cannot write the audit log `DIR/none/audit.log`: No such file or directory (os error 2)
    hint: `--audit-log` takes a file that this user may write, in a directory that exists
    ");
    insta::assert_snapshot!(told(at, "up --port 0 --data-dir DIR/data --bind 192.0.2.1"), @"
    exit 1
    error: cannot listen on 192.0.2.1:0: Cannot assign requested address (os error 99)
    hint: `--bind` takes an address of this machine
    ");
    insta::assert_snapshot!(told(at, "store check --data-dir DIR/none"), @"
    exit 3
    error: cannot check the store: there is no store at `DIR/none/millpond.store`
    hint: `--data-dir` names the directory that `millpond up` was started with
    ");
    insta::assert_snapshot!(told(at, "store check"), @"
    exit 3
    error: cannot check the store: there is no store at `DIR/.local/share/millpond/millpond.store`
    hint: `--data-dir` names the directory that `millpond up` was started with
    ");
}

/// A user without any rights, on every Linux.
const NOBODY: u32 = 65534;

#[test]
fn a_read_only_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let permit = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let sealed = directory.path().join("sealed");
    std::fs::create_dir(&sealed).unwrap();
    permit(&sealed, 0o555);
    let mut command = Command::new(MILLPOND);
    let probe = sealed.join("probe");
    if std::fs::write(&probe, "").is_ok() {
        // Root may write anywhere, so another user runs it, with a copy that they can reach.
        std::fs::remove_file(&probe).unwrap();
        let copy = directory.path().join("millpond");
        std::fs::copy(MILLPOND, &copy).unwrap();
        permit(&copy, 0o755);
        permit(directory.path(), 0o755);
        command = Command::new(copy);
        command.uid(NOBODY).gid(NOBODY);
    }
    insta::assert_snapshot!(told_by(command, directory.path(), "up --port 0 --data-dir DIR/sealed", &[]), @"
    exit 6
    error: cannot start: cannot write to `DIR/sealed/millpond.store.lock`: Permission denied (os error 13)
    hint: give this user write permission, or choose another `--data-dir`
    ");
}
