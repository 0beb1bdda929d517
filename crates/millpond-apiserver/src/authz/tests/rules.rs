//! Random roles and bindings, decided by the index and by a scan of everything that was written.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::rbac::{Answer, COLLECTIONS, Rbac};
use super::super::rule::Rule;
use crate::auth::{Attributes, Identity};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Step {
    Role { cluster: bool, name: usize, rules: Value },
    Bind { cluster: bool, name: usize, role: usize, of_cluster: bool, subjects: Vec<(bool, usize)> },
    Forget { collection: usize, name: usize },
}

fn texts(choices: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(proptest::sample::select(choices), 1..3)
}

fn rules() -> impl Strategy<Value = Value> {
    let names = proptest::collection::vec(proptest::sample::select(&["x", "y"][..]), 0..2);
    let rule =
        (texts(&["get", "list", "*"]), texts(&["", "apps", "*"]), texts(&["pods", "pods/log", "*/scale", "*"]), names);
    let rule = rule.prop_map(|(verbs, groups, resources, names)| {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
    });
    proptest::collection::vec(rule, 0..3).prop_map(Value::from)
}

fn step() -> impl Strategy<Value = Step> {
    let subjects = proptest::collection::vec((any::<bool>(), 0..3_usize), 0..3);
    prop_oneof![
        (any::<bool>(), 0..3_usize, rules()).prop_map(|(cluster, name, rules)| Step::Role { cluster, name, rules }),
        (any::<bool>(), 0..3_usize, 0..3_usize, any::<bool>(), subjects).prop_map(
            |(cluster, name, role, of_cluster, subjects)| Step::Bind { cluster, name, role, of_cluster, subjects }
        ),
        (0..4_usize, 0..3_usize).prop_map(|(collection, name)| Step::Forget { collection, name }),
    ]
}

/// The same objects in a list, without any index.
#[derive(Default)]
struct Scan(std::collections::BTreeMap<(usize, String), Value>);

impl Scan {
    fn allows(&self, identity: &Identity, wanted: &Attributes<'_>) -> bool {
        let applies = |binding: &Value| {
            binding["subjects"].as_array().into_iter().flatten().any(|subject| {
                let name = subject["name"].as_str().unwrap();
                if subject["kind"] == "Group" { identity.is_in(name) } else { identity.user == name }
            })
        };
        self.0.iter().any(|((collection, _), binding)| {
            let namespace = match collection {
                2 => "",
                3 => "n",
                _ => return false,
            };
            let here = namespace.is_empty() || wanted.namespace == namespace;
            let role = binding["roleRef"]["name"].as_str().unwrap();
            let role = match binding["roleRef"]["kind"].as_str().unwrap() {
                "ClusterRole" => self.0.get(&(0, role.to_owned())),
                _ if namespace.is_empty() => None,
                _ => self.0.get(&(1, format!("n/{role}"))),
            };
            here && applies(binding)
                && role.is_some_and(|role| Rule::all_of(role).iter().any(|rule| rule.allows(wanted)))
        })
    }
}

proptest! {
    #[test]
    fn the_index_decides_as_a_scan_does(steps in proptest::collection::vec(step(), 1..20)) {
        let (mut rbac, mut scan) = (Rbac::default(), Scan::default());
        for step in steps {
            let (collection, key, object) = match step {
                Step::Role { cluster, name, rules } => (usize::from(!cluster), NAMES[name], Some(json!({"rules": rules}))),
                Step::Bind { cluster, name, role, of_cluster, subjects } => {
                    let kind = if of_cluster { "ClusterRole" } else { "Role" };
                    let subjects: Vec<Value> = subjects
                        .into_iter()
                        .map(|(group, name)| json!({"kind": if group { "Group" } else { "User" }, "name": NAMES[name]}))
                        .collect();
                    let role = json!({"kind": kind, "name": NAMES[role]});
                    (if cluster { 2 } else { 3 }, NAMES[name], Some(json!({"roleRef": role, "subjects": subjects})))
                }
                Step::Forget { collection, name } => (collection, NAMES[name], None),
            };
            let key = if collection % 2 == 1 { format!("n/{key}") } else { key.to_owned() };
            let shared: Arc<str> = key.as_str().into();
            match object {
                Some(object) => {
                    rbac.learn(COLLECTIONS[collection], &shared, &object);
                    scan.0.insert((collection, key), object);
                }
                None => {
                    rbac.forget(COLLECTIONS[collection], &shared);
                    scan.0.remove(&(collection, key));
                }
            }
        }
        for (user, group) in [("a", "b"), ("b", "c"), ("c", "none")] {
            let identity = Identity::new(user.to_owned(), vec![group.to_owned()]);
            for (resource, subresource) in [("pods", ""), ("pods", "log"), ("deployments", "scale")] {
                for (verb, group, namespace, name) in [("get", "", "n", "x"), ("list", "apps", "", ""), ("get", "apps", "m", "y")] {
                    let wanted = Attributes { verb, group, resource, subresource, namespace, name, ..Attributes::default() };
                    let allowed = matches!(rbac.decide(&identity, &wanted), Answer::Allowed(_));
                    prop_assert_eq!(allowed, scan.allows(&identity, &wanted), "{:?} {:?}", identity, wanted);
                }
            }
        }
    }
}
