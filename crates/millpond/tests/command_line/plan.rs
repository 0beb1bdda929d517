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

#[test]
fn a_misspelt_name_is_recognised() {
    let hint = |words: &[&str]| {
        let output = run(words);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(hint(&["explain", "node/wroker-1", "-f", "consolidate"]), "hint: did you mean `node/worker-1`?");
    assert_eq!(hint(&["explain", "pod/Shop-1", "-f", "consolidate"]), "hint: did you mean `pod/default/shop-1`?");
    assert_eq!(
        hint(&["explain", "node/elsewhere", "-f", "consolidate"]),
        "hint: `millpond plan -o json` lists pods and nodes"
    );
    assert_eq!(hint(&["explain", "node/worker-1", "-f", "web"]), "hint: no node was read at all");
}

/// Lists of lists of lists, by name: a kilobyte that stands for more than any memory holds.
#[test]
fn an_alias_bomb_is_refused_in_little_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let list = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    let path = directory.path().join("bomb.yaml");
    std::fs::write(&path, text).unwrap();
    for more in ["", "--save-snapshot /dev/null"] {
        // Of addresses, of which some are set aside and never used.
        let script = format!("ulimit -v 2000000; exec \"$0\" plan -f \"$1\" {more}");
        let output = Command::new("sh").arg("-c").arg(script).arg(MILLPOND).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("bomb.yaml:") && said.contains("aliases add up to more than 1000000 values"), "{said}");
    }
}
