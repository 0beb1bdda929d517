//! Whole files as `kubectl get -o json` and people write them, lowered and told in words.

use std::fmt::Write as _;

use millpond_plan::model::{NodeId, PodClass, Snapshot};
use millpond_plan::requirement::Requirements;
use millpond_state::{Options, Reader, Taken};

use crate::support::{NOW, words};

fn lower(files: &[(&str, &str)], options: &Options) -> Taken {
    let mut reader = Reader::new();
    for (file, text) in files {
        reader.add(file, text.as_bytes());
    }
    let reading = reader.finish();
    assert_eq!((reading.errors, reading.warnings), (vec![], vec![]));
    reading.state.snapshot(NOW, options)
}

fn told(requirements: &Requirements, snapshot: &Snapshot) -> String {
    let symbols = &snapshot.symbols;
    let all = requirements.iter();
    let mut all: Vec<String> =
        all.map(|(key, it)| format!("{} {}", symbols.text(key), it.describe(symbols, 5))).collect();
    all.sort();
    if all.is_empty() { "anything".to_owned() } else { all.join(", ") }
}

fn tell_class(class: &PodClass, snapshot: &Snapshot, out: &mut String) {
    let mut labels: Vec<_> =
        class.labels.iter().map(|(key, value)| format!("{}={}", snapshot.text(key), snapshot.text(value))).collect();
    labels.sort();
    let _ =
        writeln!(out, "  asks for {}; priority {}; {:?}", words(&class.requests, snapshot), class.priority, class.kind);
    let _ = writeln!(out, "  labels {labels:?}; {:?}; {:?}", class.do_not_disrupt, class.problem);
    for term in &class.node_terms {
        let _ = writeln!(out, "  on {}", told(term, snapshot));
    }
    for terms in &class.volume_terms {
        let terms: Vec<_> = terms.iter().map(|term| told(term, snapshot)).collect();
        let _ = writeln!(out, "  volume at {}", terms.join(" or "));
    }
    for (weight, term) in &class.node_preferences {
        let _ = writeln!(out, "  would like {} ({weight})", told(term, snapshot));
    }
    for spread in &class.spread {
        let selector = spread.selector.as_ref().map(|it| told(it, snapshot));
        let _ = writeln!(
            out,
            "  spread over {}: {} hard {} of {selector:?}",
            snapshot.text(spread.key),
            spread.max_skew,
            spread.hard
        );
    }
    for term in &class.anti_affinity {
        let selector = term.selector.as_ref().map(|it| told(it, snapshot));
        let _ = writeln!(
            out,
            "  apart by {} from {selector:?} in {} namespaces",
            snapshot.text(term.key),
            match &term.namespaces {
                millpond_plan::model::Namespaces::All => "all".to_owned(),
                millpond_plan::model::Namespaces::These(these) => these.len().to_string(),
            }
        );
    }
    for port in &class.host_ports {
        let _ = writeln!(out, "  port {:?} {}", port.protocol, port.port);
    }
    let _ = writeln!(out, "  tolerates {}", class.tolerations.len());
}

fn tell(taken: &Taken) -> String {
    let snapshot = &taken.snapshot;
    let mut out = String::new();
    for note in &taken.notes {
        let _ = writeln!(out, "note {note}");
    }
    for pool in &snapshot.pools {
        let _ = writeln!(
            out,
            "pool {} weight {} with {} types: {}",
            pool.name,
            pool.weight,
            pool.types.len(),
            told(&pool.requirements, snapshot)
        );
    }
    for node in &snapshot.nodes {
        let _ = writeln!(
            out,
            "node {} {:?} {:?}: {}",
            node.name,
            node.state,
            node.price,
            words(&node.allocatable, snapshot)
        );
    }
    for (index, pod) in snapshot.pods.iter().enumerate() {
        let node = pod.node.map_or("", |NodeId(node)| &snapshot.nodes[node as usize].name);
        let _ = writeln!(out, "pod {} {:?} {node}", snapshot.pod_name(index.into()), pod.state);
        tell_class(snapshot.class_of(index.into()), snapshot, &mut out);
    }
    for daemon in &snapshot.daemons {
        let _ = writeln!(out, "daemon");
        tell_class(&snapshot.classes[daemon.index()], snapshot, &mut out);
    }
    for budget in &snapshot.disruption_budgets {
        let _ = writeln!(out, "budget {} allows {}", budget.name, budget.allowed);
    }
    out
}

#[test]
fn a_cluster_written_by_hand() {
    let options = Options { expand_workloads: true, ..Options::default() };
    insta::assert_snapshot!(tell(&lower(&[("cluster.yaml", include_str!("data/cluster.yaml"))], &options)));
}

#[test]
fn pods_of_a_server_and_their_storage() {
    let files = [("pods.json", include_str!("data/pods.json")), ("storage.yaml", include_str!("data/storage.yaml"))];
    let options = Options { expand_workloads: true, ..Options::default() };
    insta::assert_snapshot!(tell(&lower(&files, &options)));
}
