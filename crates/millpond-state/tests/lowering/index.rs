//! The index: apply, delete, and nothing twice.

use millpond_state::objects::{Kind, Object};
use millpond_state::{Applied, Options, State};

use crate::support::NOW;

fn pod(name: &str, version: u32, cpu: u32) -> String {
    format!(
        r#"{{"metadata": {{"name": "{name}", "namespace": "shop", "resourceVersion": "{version}"}}, "spec": {{"containers": [{{"name": "c", "resources": {{"requests": {{"cpu": "{cpu}"}}}}}}]}}}}"#
    )
}

fn apply(state: &mut State, text: &str) -> Applied {
    let object = Object::read(Kind::Pod, &mut serde_json::Deserializer::from_str(text)).expect("a pod");
    state.apply(&object).expect("it is applied")
}

#[test]
fn a_pod_that_did_not_change_is_not_lowered_again() {
    let mut state = State::new();
    assert_eq!(apply(&mut state, &pod("a", 1, 1)), Applied::Added);
    assert_eq!((state.lowered(), state.changes()), (1, 1));
    assert_eq!(apply(&mut state, &pod("a", 1, 1)), Applied::Unchanged);
    assert_eq!((state.lowered(), state.changes()), (1, 1));
    // Equal pods are lowered once.
    for index in 0..100 {
        apply(&mut state, &pod(&format!("b{index}"), 1, 1));
    }
    assert_eq!((state.lowered(), state.pods()), (1, 101));
    // A new version with the same content is a change, but no work.
    assert_eq!(apply(&mut state, &pod("a", 2, 1)), Applied::Changed);
    assert_eq!(state.lowered(), 1);
    assert_eq!(apply(&mut state, &pod("a", 3, 2)), Applied::Changed);
    assert_eq!(state.lowered(), 2);
}

#[test]
fn a_promise_holds_until_another_version_comes() {
    let mut state = State::new();
    apply(&mut state, &pod("a", 1, 1));
    state.nominate("shop", "a", Some("one"));
    state.nominate("shop", "nobody", Some("one"));
    let node = r#"{"metadata": {"name": "one"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}}"#;
    let node = Object::read(Kind::Node, &mut serde_json::Deserializer::from_str(node)).expect("a node");
    state.apply(&node).expect("it is applied");
    let held = |state: &State| {
        let snapshot = state.snapshot(NOW, &Options::default()).snapshot;
        snapshot.pods[0].node.is_some()
    };
    assert!(held(&state));
    apply(&mut state, &pod("a", 1, 1));
    assert!(held(&state), "nothing changed");
    state.nominate("shop", "a", None);
    assert!(!held(&state));
    state.nominate("shop", "a", Some("one"));
    apply(&mut state, &pod("a", 2, 1));
    assert!(!held(&state));
}

#[test]
fn a_node_has_enough_for_so_many() {
    let mut state = State::new();
    let node = r#"{"metadata": {"name": "one"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}}"#;
    let node = Object::read(Kind::Node, &mut serde_json::Deserializer::from_str(node)).expect("a node");
    state.apply(&node).expect("it is applied");
    for name in ["a", "b", "c"] {
        apply(&mut state, &pod(name, 1, 1));
    }
    let enough = |others: &[&str]| state.has_enough("one", ("shop", "a"), others.iter().map(|name| ("shop", *name)));
    assert_eq!((enough(&["b"]), enough(&["b", "c"])), (Some(true), Some(false)));
    assert_eq!(state.has_enough("two", ("shop", "a"), std::iter::empty()), None);
}

#[test]
fn what_is_deleted_is_gone() {
    let mut state = State::new();
    apply(&mut state, &pod("a", 1, 1));
    apply(&mut state, &pod("b", 1, 1));
    assert!(state.delete(Kind::Pod, "shop", "a"));
    assert!(!state.delete(Kind::Pod, "shop", "a"));
    assert!(!state.delete(Kind::Node, "", "a"));
    let taken = state.snapshot(NOW, &Options::default());
    assert_eq!((taken.snapshot.pods.len(), &*taken.snapshot.revision), (1, "state-3"));
    // A pod that ended is as good as deleted.
    let done = pod("b", 2, 1).replace(r#""spec""#, r#""status": {"phase": "Succeeded"}, "spec""#);
    assert_eq!(apply(&mut state, &done), Applied::Changed);
    assert_eq!(state.pods(), 0);
}

#[test]
fn the_order_of_objects_does_not_show() {
    let texts: Vec<String> = (0..20).map(|index| pod(&format!("p{index:02}"), 1, index % 3)).collect();
    let words = |order: &mut dyn Iterator<Item = &String>| {
        let mut state = State::new();
        order.for_each(|text| _ = apply(&mut state, text));
        let taken = state.snapshot(NOW, &Options::default());
        let pods = taken.snapshot.pods.iter().map(|pod| (pod.name.clone(), pod.class));
        (
            pods.collect::<Vec<_>>(),
            taken.snapshot.classes.iter().map(|class| class.requests.clone()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(words(&mut texts.iter()), words(&mut texts.iter().rev()));
}

#[test]
fn shapes_that_nobody_has_are_let_go() {
    let mut state = State::new();
    for round in 0..20_000u32 {
        apply(&mut state, &pod("a", round + 1, round));
    }
    assert_eq!((state.lowered(), state.pods()), (20_000, 1));
}
