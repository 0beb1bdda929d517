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
fn the_exit_code_tells_changes_and_pods_without_a_place() {
    let code = |words: &[&str]| {
        let all = [&["plan", "--detailed-exitcode", "-f"], words].concat();
        run(&all).status.code()
    };
    assert_eq!(code(&["web"]), Some(2));
    assert_eq!(code(&["stuck"]), Some(7), "some pods get no place");
    assert_eq!(code(&["pool.yaml"]), Some(0));
    assert_eq!(run(&["plan", "-f", "stuck"]).status.code(), Some(0), "without the flag");
    assert_eq!(run(&["plan", "--file", "web"]).status.code(), Some(0), "either name of the flag");
}

#[test]
fn pools_and_workloads_are_explained() {
    let said = |words: &[&str]| {
        let output = run(words);
        assert!(output.status.success(), "{output:?}");
        [String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout)].concat()
    };
    let pool = said(&["explain", "pool/default", "-f", "stuck"]);
    assert!(
        pool.starts_with("pool/default can make nodes of 22 types, at least on-demand c7i.large in us-east-1a for "),
        "{pool}"
    );
    assert!(pool.contains("karpenter.k8s.aws/instance-family           22"), "{pool}");
    let workload = said(&["explain", "deployment/frontend", "-f", "web"]);
    assert!(workload.starts_with("deployment default/frontend: "), "{workload}");
    assert!(workload.contains("pod/default/frontend-0: "), "{workload}");
}

#[test]
fn devices_are_not_planned_for() {
    let directory = tempfile::tempdir().unwrap();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: device}\nspec:\n  resourceClaims: [{name: gpu, resourceClaimName: mine}]\n  containers: [{name: c, image: c, resources: {requests: {cpu: 1}}}]\n";
    std::fs::write(directory.path().join("pod.yaml"), pod).unwrap();
    let output = run(&["plan", "-f", "pool.yaml", "-f", directory.path().to_str().unwrap()]);
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("it asks for devices by ResourceClaim gpu"), "{page}");
    assert!(page.starts_with("The pod gets no place"), "{page}");
}

#[test]
fn a_pool_of_old_types_says_that_it_makes_no_node() {
    let directory = tempfile::tempdir().unwrap();
    let pool = std::fs::read_to_string(examples().join("pool.yaml")).unwrap();
    let old = pool.replace(
        "operator: Gt\n        values: [\"2\"]",
        "operator: NotIn\n        values: [\"4\", \"5\", \"6\", \"7\", \"8\", \"9\"]",
    );
    assert_ne!(pool, old);
    let path = directory.path().join("pool.yaml");
    std::fs::write(&path, old).unwrap();
    let output = run(&["explain", "pool/default", "-f", path.to_str().unwrap()]);
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(
        page.starts_with(
            "pool/default can make no node: its own requirements leave only types of previous generations"
        ),
        "{page}"
    );
    assert!(page.contains("previous generations only by name"), "{page}");
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
