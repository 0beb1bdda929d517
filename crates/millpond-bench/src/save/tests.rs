//! Saved workloads, and that they are equal when they are read again.

use std::path::Path;

use millpond_api::catalog::import::{self, Options};
use millpond_plan::model::{ClassId, InstanceType, PodState};
use millpond_plan::pack::Budget;
use millpond_plan::plan::{Outcome, Settings};
use millpond_state::{Options as Lowering, Reader, add_types};

use super::*;
use crate::builder::Builder;
use crate::workload::{Families, Workload, consolidate, estimator, karpenter, mixes, scale};

fn saved(workload: &Workload) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    save(&workload.snapshot, directory.path()).unwrap();
    directory
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap()
}

/// The first document of a pod for which the test holds.
fn pod_text(text: &str, has: &str) -> String {
    text.split("---\n").find(|document| document.contains(has)).unwrap().to_owned()
}

#[test]
fn a_pod_of_each_of_karpenters_groups() {
    let directory = saved(&karpenter::workload(100, 42));
    let text = read(directory.path(), "pods.yaml");
    assert_eq!(text.matches("kind: Pod\n").count(), 100);
    insta::assert_snapshot!(pod_text(&text, "name: p20\n"));
    insta::assert_snapshot!(pod_text(&text, "podAffinity"));
    insta::assert_snapshot!(pod_text(&text, "podAntiAffinity"));
    let preferring = saved(&karpenter::preferences(1, 4));
    insta::assert_snapshot!(read(preferring.path(), "pods.yaml"));
}

#[test]
fn a_pod_with_gpus_has_limits_and_a_node_affinity() {
    let directory = saved(&mixes::Mix::find("gpu-mix").unwrap().workload(Families::Usual, 1));
    insta::assert_snapshot!(pod_text(&read(directory.path(), "pods.yaml"), "nvidia.com/gpu"));
}

#[test]
fn pools_are_node_pools() {
    insta::assert_snapshot!(read(saved(&karpenter::workload(1, 1)).path(), "pools.yaml"));
    let mix = mixes::Mix::find("spot-od").unwrap().workload(Families::Usual, 1);
    insta::assert_snapshot!(read(saved(&mix).path(), "pools.yaml"));
}

#[test]
fn a_cluster_has_nodes_and_pods_on_them() {
    let directory = saved(&consolidate::workload(1, 1, 1));
    insta::assert_snapshot!(read(directory.path(), "nodes.yaml"));
    insta::assert_snapshot!(read(directory.path(), "pods.yaml"));
}

#[test]
fn a_workload_without_nodes_has_no_file_of_them() {
    let directory = saved(&estimator::workload());
    let mut names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["pods.yaml", "pools.yaml", "types.json"]);
    insta::assert_snapshot!(read(directory.path(), "types.json"));
}

/// Everything that planning looks at in a type, as text.
fn described(snapshot: &Snapshot, of: &InstanceType) -> Vec<String> {
    let mut lines = vec![snapshot.text(of.name).to_owned()];
    for amounts in [&of.capacity, &of.allocatable] {
        let mut all: Vec<String> =
            amounts.iter().map(|(resource, of)| format!("{} {of}", snapshot.resources.name(resource))).collect();
        all.sort();
        lines.extend(all);
    }
    let mut labels: Vec<String> = of
        .labels
        .iter()
        // The reader gives every type of this format the labels of that provider.
        .filter(|(key, _)| !snapshot.text(*key).starts_with("karpenter.kwok.sh/"))
        .map(|(key, value)| format!("{} {}", snapshot.text(key), value.describe(&snapshot.symbols, 99)))
        .collect();
    labels.sort();
    lines.extend(labels);
    let mut offerings: Vec<String> = of
        .offerings
        .iter()
        .map(|one| format!("{} {} {}", snapshot.text(one.zone), one.capacity_type.name(), one.price))
        .collect();
    offerings.sort();
    lines.extend(offerings);
    lines
}

#[test]
fn types_that_are_read_again_are_the_same() {
    let workloads = [
        karpenter::workload(1, 1),
        estimator::workload(),
        mixes::Mix::find("tiny-case").unwrap().workload(Families::Full, 1),
    ];
    for workload in workloads {
        let directory = saved(&workload);
        let options = Options { name: "saved".to_owned(), ..Options::default() };
        let text = read(directory.path(), "types.json");
        let imported = import::read("types.json", text.as_bytes(), None, &options).unwrap();
        let mut again = Snapshot::new(0);
        add_types(&imported.catalog, &mut again);
        let types = |snapshot: &Snapshot| {
            let mut all: Vec<_> = snapshot.types.iter().map(|of| described(snapshot, of)).collect();
            all.sort();
            all
        };
        for (written, read) in types(&workload.snapshot).into_iter().zip(types(&again)) {
            assert_eq!(written, read);
        }
        assert_eq!(workload.snapshot.types.len(), again.types.len());
    }
}

/// The snapshot that the files of a directory are lowered to.
fn lowered(directory: &Path, now: Seconds) -> Snapshot {
    let types = read(directory, "types.json");
    let options = Options { name: "saved".to_owned(), ..Options::default() };
    let catalog = import::read("types.json", types.as_bytes(), None, &options).unwrap().catalog;
    let mut reader = Reader::new();
    for name in ["pools.yaml", "nodes.yaml", "pods.yaml"] {
        if directory.join(name).exists() {
            reader.add(name, read(directory, name).as_bytes());
        }
    }
    let reading = reader.finish();
    assert!(reading.errors.is_empty() && reading.warnings.is_empty(), "{:?} {:?}", reading.errors, reading.warnings);
    let taken = reading.state.snapshot(now, &Lowering { catalog: Some(catalog.into()), ..Lowering::default() });
    assert!(taken.notes.is_empty(), "{:?}", taken.notes);
    taken.snapshot
}

/// The plan of what was saved is the plan of what was made.
#[test]
fn what_is_lowered_from_the_files_is_planned_the_same() {
    let mix = |name| mixes::Mix::find(name).unwrap().workload(Families::Usual, 1);
    let scaled = scale::Scale { pods: 400, shapes: 40, third: true, families: Families::Usual };
    let workloads = [
        karpenter::workload(200, 42),
        karpenter::preferences(50, 4),
        scale::workload(scaled, 5),
        consolidate::workload(12, 100, 1),
        mix("tiny-case"),
        mix("gpu-mix"),
        mix("spot-od"),
        mix("zone-pinned-spread"),
    ];
    for workload in workloads {
        let settings =
            Settings { consolidate: workload.consolidate, budget: Budget::first_plan(), ..Settings::default() };
        let again = lowered(saved(&workload).path(), workload.snapshot.now);
        assert_eq!(again.classes.len(), workload.snapshot.classes.len(), "{}", workload.name);
        let figures = |snapshot: &Snapshot| {
            let Outcome { report, .. } = millpond_plan::plan(snapshot, &settings);
            (report.pods, report.nodes_before, report.cost_before, report.cost_after, report.nodes_after, report.bound)
        };
        assert_eq!(figures(&again), figures(&workload.snapshot), "{}", workload.name);
    }
}

#[test]
fn what_has_no_place_in_the_files_is_refused() {
    let refused = |change: fn(&mut Snapshot)| {
        let mut workload = karpenter::workload(5, 1);
        change(&mut workload.snapshot);
        let directory = tempfile::tempdir().unwrap();
        let error = save(&workload.snapshot, &directory.path().join("new")).unwrap_err();
        assert!(!directory.path().join("new").exists(), "{error}");
        error.to_string()
    };
    let messages = [
        refused(|snapshot| snapshot.daemons.push(ClassId(0))),
        refused(|snapshot| snapshot.classes[0].volume_terms.push(Vec::new())),
        refused(|snapshot| snapshot.pools[0].types.truncate(3)),
        refused(|snapshot| snapshot.pools[0].min_nodes = 1),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn pods_that_wait_behind_a_gate_or_for_a_node_say_so() {
    let mut workload = consolidate::workload(1, 2, 1);
    workload.snapshot.pods[0].state = PodState::Gated;
    workload.snapshot.pods[0].node = None;
    workload.snapshot.pods[1].state = PodState::Pending;
    let text = read(saved(&workload).path(), "pods.yaml");
    assert!(text.contains("  schedulingGates: [{name: gated}]\n"), "{text}");
    assert!(text.contains("status:\n  nominatedNodeName: node-00000\n") && !text.contains("nodeName: node"), "{text}");
}

#[test]
fn ranges_are_said_in_the_words_that_nodes_know() {
    let mut builder = Builder::new(String::new());
    let mut requirements = Requirements::new();
    let key = builder.snapshot.symbols.intern("generation");
    let range = millpond_plan::requirement::Requirement::range(Some(5), Some(8));
    requirements.add(key, range, &builder.snapshot.symbols);
    let said = serde_json::to_string(&expressions(&requirements, &builder.snapshot.symbols)).unwrap();
    assert_eq!(
        said,
        r#"[{"key":"generation","operator":"Gt","values":["4"]},{"key":"generation","operator":"Lt","values":["9"]}]"#
    );
}
