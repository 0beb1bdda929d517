//! What `plan` leaves behind beyond what it prints.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Runs a command in the folder of the examples.
fn run(words: &[&str]) -> Output {
    Command::new(MILLPOND).args(words).current_dir(examples()).output().expect("the binary runs")
}

#[test]
fn a_saved_snapshot_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot.json");
    let output = run(&["plan", "-f", "web", "--save-snapshot", path.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}
