//! Roles and bindings, compiled: the rules of each subject, by namespace.
//!
//! Bindings are kept by the users and groups that they name, so that a request looks only at those of its own user.
//! Roles are kept by name; a change of a role touches no binding.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::rule::Rule;
use crate::auth::{Attributes, Identity};
use crate::service_account;

/// The collections that decide.
pub(super) const COLLECTIONS: [&str; 4] = [
    "clusterroles.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
];

/// All roles and bindings at one moment.
#[derive(Debug, Default)]
pub(super) struct Rbac {
    cluster_roles: HashMap<Arc<str>, Arc<[Rule]>>,
    /// By `namespace/name`.
    roles: HashMap<Arc<str>, Arc<[Rule]>>,
    users: HashMap<Box<str>, Grants>,
    groups: HashMap<Box<str>, Grants>,
    /// Bindings by namespaced (or not) and key, to take back what they gave.
    bindings: HashMap<(bool, Arc<str>), Arc<Binding>>,
}

/// The rules of a user or a group.
#[derive(Debug, Default)]
struct Grants {
    cluster: Vec<Grant>,
    namespaces: HashMap<Box<str>, Vec<Grant>>,
}

/// One subject of one binding.
#[derive(Debug)]
struct Grant {
    binding: Arc<Binding>,
    subject: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Binding {
    /// `None` for the whole cluster.
    namespace: Option<Box<str>>,
    name: Box<str>,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The role that a binding names.
#[derive(Debug, PartialEq, Eq)]
struct RoleRef {
    kind: Box<str>,
    name: Box<str>,
}

#[derive(Debug, PartialEq, Eq)]
struct Subject {
    is_group: bool,
    /// The user or group, as identities have it.
    name: Box<str>,
    /// The text in messages.
    shown: String,
}

/// The result of evaluating the rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Allowed, by this binding.
    Allowed(String),
    /// No rule allows it; with the errors in the user's bindings, if any.
    NoRule(String),
}

impl Rbac {
    /// Takes in an object of one of [`COLLECTIONS`].
    pub(super) fn learn(&mut self, collection: &str, key: &Arc<str>, object: &Value) {
        match collection {
            c if c == COLLECTIONS[0] => {
                self.cluster_roles.insert(key.clone(), Rule::all_of(object).into());
            }
            c if c == COLLECTIONS[1] => {
                self.roles.insert(key.clone(), Rule::all_of(object).into());
            }
            c => {
                let namespaced = c == COLLECTIONS[3];
                self.unbind(namespaced, key);
                self.bind(namespaced, key, object);
            }
        }
    }

    /// Forgets an object of one of [`COLLECTIONS`].
    pub(super) fn forget(&mut self, collection: &str, key: &Arc<str>) {
        match collection {
            c if c == COLLECTIONS[0] => {
                self.cluster_roles.remove(key);
            }
            c if c == COLLECTIONS[1] => {
                self.roles.remove(key);
            }
            c => self.unbind(c == COLLECTIONS[3], key),
        }
    }

    fn bind(&mut self, namespaced: bool, key: &Arc<str>, object: &Value) {
        let (namespace, name) = match key.split_once('/').filter(|_| namespaced) {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, &**key),
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subjects = object["subjects"].as_array().into_iter().flatten();
        let binding = Arc::new(Binding {
            namespace: namespace.map(Into::into),
            name: name.into(),
            role: RoleRef {
                kind: text(&object["roleRef"]["kind"]).into(),
                name: text(&object["roleRef"]["name"]).into(),
            },
            subjects: subjects.map(|subject| Subject::of(subject, namespace.unwrap_or_default())).collect(),
        });
        for (position, subject) in binding.subjects.iter().enumerate() {
            let side = if subject.is_group { &mut self.groups } else { &mut self.users };
            let grants = side.entry(subject.name.clone()).or_default();
            grants.of_mut(namespace).push(Grant { binding: binding.clone(), subject: position });
        }
        self.bindings.insert((namespaced, key.clone()), binding);
    }

    fn unbind(&mut self, namespaced: bool, key: &Arc<str>) {
        let Some(binding) = self.bindings.remove(&(namespaced, key.clone())) else { return };
        for subject in &binding.subjects {
            let side = if subject.is_group { &mut self.groups } else { &mut self.users };
            let Some(grants) = side.get_mut(&subject.name) else { continue };
            grants.of_mut(binding.namespace.as_deref()).retain(|grant| !Arc::ptr_eq(&grant.binding, &binding));
            grants.namespaces.retain(|_, grants| !grants.is_empty());
            if grants.cluster.is_empty() && grants.namespaces.is_empty() {
                side.remove(&subject.name);
            }
        }
    }

    /// Whether the rules of an identity allow something.
    pub(super) fn decide(&self, identity: &Identity, wanted: &Attributes<'_>) -> Answer {
        let mut problems = Vec::new();
        for grant in self.grants(identity, wanted.namespace) {
            match self.rules(&grant.binding.role, grant.binding.namespace.as_deref()) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(wanted)) => {
                    return Answer::Allowed(format!("RBAC: allowed by {}", grant.shown()));
                }
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        Answer::NoRule(if problems.is_empty() { String::new() } else { format!("RBAC: {}", aggregate(problems)) })
    }

    /// All rules of an identity in a namespace and in all namespaces, and the errors in its bindings.
    pub(super) fn rules_for(&self, identity: &Identity, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        let mut seen: Vec<*const Binding> = Vec::new();
        for grant in self.grants(identity, namespace) {
            // A binding counts once, whichever of its subjects the user is.
            if seen.contains(&Arc::as_ptr(&grant.binding)) {
                continue;
            }
            seen.push(Arc::as_ptr(&grant.binding));
            match self.rules(&grant.binding.role, grant.binding.namespace.as_deref()) {
                Ok(found) => rules.extend(found.iter().cloned()),
                Err(problem) => problems.push(problem),
            }
        }
        (rules, Some(problems).filter(|problems| !problems.is_empty()).map(aggregate))
    }

    /// The rules of a role by its kind and name; the error says that there is none.
    pub(super) fn role(&self, kind: &str, name: &str, namespace: Option<&str>) -> Result<Arc<[Rule]>, String> {
        self.rules(&RoleRef { kind: kind.into(), name: name.into() }, namespace).cloned()
    }

    fn rules(&self, role: &RoleRef, namespace: Option<&str>) -> Result<&Arc<[Rule]>, String> {
        let (found, kind) = match (&*role.kind, namespace) {
            ("ClusterRole", _) => (self.cluster_roles.get(&*role.name), "clusterrole"),
            ("Role", Some(namespace)) => (self.roles.get(&*format!("{namespace}/{}", role.name)), "role"),
            _ => return Err(format!("unsupported role reference kind: {:?}", role.kind)),
        };
        found.ok_or_else(|| format!("{kind}.rbac.authorization.k8s.io {:?} not found", role.name))
    }

    fn grants<'a>(&'a self, identity: &'a Identity, namespace: &'a str) -> impl Iterator<Item = &'a Grant> {
        let mine = || {
            let of_groups = identity.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
            self.users.get(identity.user.as_str()).into_iter().chain(of_groups)
        };
        let everywhere = mine().flat_map(|grants| &grants.cluster);
        let here = mine().filter(|_| !namespace.is_empty()).filter_map(|grants| grants.namespaces.get(namespace));
        everywhere.chain(here.flatten())
    }
}

impl Grants {
    fn of_mut(&mut self, namespace: Option<&str>) -> &mut Vec<Grant> {
        match namespace {
            None => &mut self.cluster,
            Some(namespace) => self.namespaces.entry(namespace.into()).or_default(),
        }
    }
}

impl Grant {
    fn shown(&self) -> String {
        let Binding { namespace, name, role, subjects } = &*self.binding;
        let (kind, name) = match namespace {
            None => ("ClusterRoleBinding", name.to_string()),
            Some(namespace) => ("RoleBinding", format!("{name}/{namespace}")),
        };
        format!("{kind} {name:?} of {} {:?} to {}", role.kind, role.name, subjects[self.subject].shown)
    }
}

impl Subject {
    /// A subject of a binding in a namespace (empty for the whole cluster).
    fn of(subject: &Value, namespace: &str) -> Self {
        let text = |key: &str| subject[key].as_str().unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        if kind == "ServiceAccount" {
            let namespace = Some(text("namespace")).filter(|own| !own.is_empty()).unwrap_or(namespace);
            let shown = format!("ServiceAccount {:?}", format!("{name}/{namespace}"));
            return Self { is_group: false, name: service_account::user_name(namespace, name).into(), shown };
        }
        Self { is_group: kind == "Group", name: name.into(), shown: format!("{kind} {name:?}") }
    }
}

/// Several errors as Go shows them.
fn aggregate(mut problems: Vec<String>) -> String {
    let mut seen = std::collections::HashSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    match &*problems {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(user: &str, groups: &[&str]) -> Identity {
        Identity::new(user.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
    }

    fn world() -> Rbac {
        let mut rbac = Rbac::default();
        let reader = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        rbac.learn(COLLECTIONS[0], &"reader".into(), &reader);
        let writer = json!({"rules": [{"verbs": ["update"], "apiGroups": [""], "resources": ["pods"]}]});
        rbac.learn(COLLECTIONS[1], &"dev/writer".into(), &writer);
        let everywhere = json!({
            "roleRef": {"kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "ops"}],
        });
        rbac.learn(COLLECTIONS[2], &"readers".into(), &everywhere);
        let here = json!({
            "roleRef": {"kind": "Role", "name": "writer"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}, {"kind": "User", "name": "jane"}],
        });
        rbac.learn(COLLECTIONS[3], &"dev/writers".into(), &here);
        rbac
    }

    fn pods<'a>(verb: &'a str, namespace: &'a str) -> Attributes<'a> {
        Attributes { verb, resource: "pods", namespace, ..Attributes::default() }
    }

    #[test]
    fn bindings_give_what_roles_say_where_they_are() {
        let rbac = world();
        let jane = identity("jane", &[]);
        let reason = "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to User \"jane\"";
        assert_eq!(rbac.decide(&jane, &pods("get", "dev")), Answer::Allowed(reason.to_owned()));
        let reason = "RBAC: allowed by RoleBinding \"writers/dev\" of Role \"writer\" to User \"jane\"";
        assert_eq!(rbac.decide(&jane, &pods("update", "dev")), Answer::Allowed(reason.to_owned()));
        assert_eq!(rbac.decide(&jane, &pods("update", "prod")), Answer::NoRule(String::new()));
        let robot = identity("system:serviceaccount:dev:robot", &[]);
        let reason = "RBAC: allowed by RoleBinding \"writers/dev\" of Role \"writer\" to ServiceAccount \"robot/dev\"";
        assert_eq!(rbac.decide(&robot, &pods("update", "dev")), Answer::Allowed(reason.to_owned()));
        assert_eq!(rbac.decide(&robot, &pods("get", "dev")), Answer::NoRule(String::new()));
        assert!(matches!(rbac.decide(&identity("joe", &["ops"]), &pods("get", "")), Answer::Allowed(_)));
    }

    #[test]
    fn what_is_gone_gives_nothing() {
        let mut rbac = world();
        let jane = identity("jane", &[]);
        rbac.forget(COLLECTIONS[0], &"reader".into());
        let reason = "RBAC: clusterrole.rbac.authorization.k8s.io \"reader\" not found";
        assert_eq!(rbac.decide(&jane, &pods("get", "dev")), Answer::NoRule(reason.to_owned()));
        rbac.forget(COLLECTIONS[2], &"readers".into());
        rbac.forget(COLLECTIONS[3], &"dev/writers".into());
        assert_eq!(rbac.decide(&jane, &pods("update", "dev")), Answer::NoRule(String::new()));
        assert!(rbac.users.is_empty() && rbac.groups.is_empty());
    }

    #[test]
    fn a_binding_that_changes_takes_back_what_it_gave() {
        let mut rbac = world();
        let other = json!({"roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": [{"kind": "User", "name": "joe"}]});
        rbac.learn(COLLECTIONS[2], &"readers".into(), &other);
        assert!(matches!(rbac.decide(&identity("joe", &[]), &pods("get", "")), Answer::Allowed(_)));
        assert!(matches!(rbac.decide(&identity("jane", &[]), &pods("get", "")), Answer::NoRule(_)));
    }
}
