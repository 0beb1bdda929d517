//! `export` and `import`: files in, files out, the report beside them, and what they say when something is wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Runs a command line in the folder of the examples.
fn run(line: &str) -> Output {
    Command::new(MILLPOND).args(line.split_whitespace()).current_dir(examples()).output().expect("the binary runs")
}

fn printed(line: &str) -> String {
    let output = run(line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

/// Exit code and stderr of a command that fails.
fn told(line: &str) -> String {
    let output = run(line);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
    format!("exit {}\n{}", output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).trim_end())
}

/// What a plan comes to: nodes with pool, type, zone and price, and the cost.
fn plan(files: &str) -> (Vec<String>, Value) {
    let plan: Value = serde_json::from_str(&printed(&format!("plan -o json --check {files}"))).expect("a plan is JSON");
    let nodes = plan["actions"].as_array().expect("a list").iter().filter(|action| action["action"] == "create");
    let word = |action: &Value, key: &str| action[key].as_str().unwrap_or_default().to_owned();
    let mut nodes: Vec<String> = nodes
        .map(|node| ["pool", "instanceType", "zone", "capacityType"].map(|key| word(node, key)).join(" "))
        .collect();
    nodes.sort();
    assert!(!nodes.is_empty() && nodes.iter().all(|node| !node.contains("  ")), "{plan:#}");
    (nodes, plan["summary"].clone())
}

#[test]
fn what_is_written_is_planned_like_what_it_was_written_from() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let (nodes, summary) = plan("-f scaling-advisor");
    for export in [
        format!("import -f scaling-advisor/constraint.yaml --out {at}/imported"),
        format!("export --to karpenter -f scaling-advisor/constraint.yaml --out {at}/exported"),
    ] {
        printed(&export);
    }
    printed(&format!("export --to cluster-autoscaler-kwok -f scaling-advisor/constraint.yaml --out {at}/templates"));
    printed(&format!("import -f {at}/templates --out {at}/again"));
    for pools in ["imported", "exported", "again"] {
        let (same_nodes, same) = plan(&format!("-f {at}/{pools}/pools.yaml -f scaling-advisor/snapshot.yaml"));
        assert_eq!(same_nodes, nodes, "{pools}");
        assert_eq!(same["costPerHourAfter"], summary["costPerHourAfter"], "{pools}");
        assert_eq!(same["placed"], summary["placed"], "{pools}");
    }
    printed(&format!("export --to scaling-advisor -f {at}/imported --out {at}/back"));
    assert_eq!(plan(&format!("-f {at}/back/constraint.yaml -f scaling-advisor/snapshot.yaml")).0, nodes);
    // The price list that goes with it is a catalogue, too.
    let prices = format!("{at}/back/instance-type-infos.json");
    let (_, same) = plan(&format!("-f {at}/back/constraint.yaml -f scaling-advisor/snapshot.yaml --catalog {prices}"));
    assert_eq!(same["costPerHourAfter"], summary["costPerHourAfter"]);
}

#[test]
fn files_are_replaced_only_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("import -f scaling-advisor/constraint.yaml --report none --out {}", folder.path().display());
    printed(&line);
    let refused = told(&line).replace(&folder.path().display().to_string(), "DIR");
    insta::assert_snapshot!(refused, @"
    exit 4
    error: `DIR/pools.yaml` exists already
    hint: `--force` replaces it
    ");
    printed(&format!("{line} --force"));
}

#[test]
fn the_report_is_for_people_and_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let line = "export --to karpenter -f scaling-advisor/constraint.yaml";
    let output = run(&format!("{line} --report json --report-file {}", path.display()));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let volumes = report
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["field"].as_str().is_some_and(|field| field.ends_with("maxVolumes")));
    assert_eq!(
        *volumes.unwrap(),
        serde_json::json!({
            "object": "ScalingConstraint/shop", "field": "spec.nodePools[1].nodeTemplates[0].maxVolumes",
            "action": "dropped", "value": 25, "reason": "the volume driver of a node tells it, in CSINode",
        })
    );
    let words = String::from_utf8(run(line).stderr).unwrap();
    let head = format!("{} fields without an exact counterpart in Millpond:", report.as_array().unwrap().len());
    assert!(words.starts_with(&format!("{head}\n\nScalingConstraint/shop\n")), "{words}");
    assert!(run(&format!("{line} --report none")).stderr.is_empty());
    let list: Value = serde_json::from_str(&printed(&format!("{line} -o json"))).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&"List".into(), &"NodePool".into()));
}

#[test]
fn mistakes_are_reported_with_the_next_step() {
    insta::assert_snapshot!(told("export --to karpentr -f web"), @"
    exit 2
    error: invalid value 'karpentr' for '--to <TOOL>': there is no such tool: one of karpenter, scaling-advisor, cluster-autoscaler-kwok; did you mean `karpenter`?

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told("export -f web"), @"
    exit 2
    error: the following required arguments were not provided:
      --to <TOOL>

    Usage: millpond export --to <TOOL> --filename <PATH>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told("import -f web/workloads.yaml"), @"
    exit 3
    error: cannot convert: there is no pool in what was read
    hint: pools are NodePools, ScalingConstraints, the ConfigMap kwok-provider-templates and KWOK's instance types, and not Deployment, StatefulSet
    ");
    insta::assert_snapshot!(told("import"), @"
    exit 2
    error: the following required arguments were not provided:
      --filename <PATH>

    Usage: millpond import --filename <PATH>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told("export --to scaling-advisor -f nowhere.yaml"), @"
    exit 3
    error: cannot read `nowhere.yaml`: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(told("export --to scaling-advisor -f web --machine-drain-timeout soon"), @"
    exit 2
    error: invalid value 'soon' for '--machine-drain-timeout <DURATION>': `soon` is not a duration such as `30s`, `1h30m` or `720h`

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told("export --to cluster-autoscaler-kwok -f web"), @"
    exit 4
    error: cannot convert: the list of 3415 node groups has 5150178 bytes: Kubernetes takes no ConfigMap of more than 1048576
    hint: `--max-types NUMBER` keeps the cheapest types, or narrow the requirements of the pool
    ");
}

#[test]
fn impossible_files_are_reported_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let told = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        told(&format!("import -f {}", path.display())).replace(&folder.path().display().to_string(), "DIR")
    };
    insta::assert_snapshot!(told("a.yaml", "apiVersion: sa.gardener.cloud/v1alpha1\nkind: ScalingConstraint\nmetadata: {name: a}\nspec:\n  nodePools:\n  - {name: x, region: r, availabilityZones: [], nodeTemplates: []}\n"), @"
    exit 1
    error: what was read cannot be converted:
      DIR/a.yaml:6:26: ScalingConstraint/a: field `spec.nodePools[0].availabilityZones`: names no zone
    hint: nothing was written; mend these and try again
    ");
    insta::assert_snapshot!(told("b.yaml", "apiVersion: sa.gardener.cloud/v1alpha1\nkind: ScalingConstrain\nmetadata: {name: a}\n"), @"
    exit 3
    warning: DIR/b.yaml:2:7: field `kind`: `sa.gardener.cloud/v1alpha1` `ScalingConstrain` is an unknown kind and skipped; is `ScalingConstraint` meant?
    error: cannot convert: there is no pool in what was read
    hint: pools are NodePools, ScalingConstraints, the ConfigMap kwok-provider-templates and KWOK's instance types, and not ScalingConstrain
    ");
    insta::assert_snapshot!(told("types.json", "[{\"name\": \"x\", \"offerings\": [], \"resources\": {\"cpu\": \"1\", \"memory\": \"wrong\"}}]"), @"
    exit 1
    error: cannot read the catalogue: DIR/types.json:1:77: resource `memory`: `wrong` is not a quantity such as `500m`, `4` or `16Gi`
    hint: the columns and fields are in docs/guides/catalog.md
    ");
    insta::assert_snapshot!(told("odd.yaml", "spec:\n  nodePools:\n  - name: x\n    region: r\n    availabilityZones: [z]\n    nodeTemplates: [{name: t, architecture: pdp11, instanceType: old, capacity: {cpu: 1, memory: 1Gi}}]\n"), @"
    exit 1
    3 fields without an exact counterpart in Millpond:

    ScalingConstraint
      dropped      spec.nodePools[0].name: x
                   none of its types can be used: the pool is left out
      dropped      spec.nodePools[0].nodeTemplates[0].architecture: pdp11
                   no kubelet runs on it: the type is left out
      defaulted    spec.nodePools[0].nodeTemplates[0].instanceType: old at $0.026073741
                   catalogue `aws` has no price of it: estimated from its size; `--catalog` names another, `--price USD@old` sets it
    error: cannot convert: no pool is left: none of their instance types can be used
    hint: the report above says what is wrong with each
    ");
}
