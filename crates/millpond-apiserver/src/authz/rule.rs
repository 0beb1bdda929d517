//! One rule of a role: what it allows, and which other rules it covers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::auth::Attributes;
use crate::print::go_quoted;

const ALL: &str = "*";

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) verbs: Box<[Box<str>]>,
    pub(crate) groups: Box<[Box<str>]>,
    pub(crate) resources: Box<[Box<str>]>,
    /// Names of objects; empty for all.
    pub(crate) names: Box<[Box<str>]>,
    /// Paths that are no resources.
    pub(crate) urls: Box<[Box<str>]>,
}

impl Rule {
    /// The rules of a role.
    pub(crate) fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::of).collect()
    }

    fn of(rule: &Value) -> Self {
        let texts = |key: &str| -> Box<[Box<str>]> {
            rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    /// The rule as objects of the API have it.
    pub(crate) fn to_value(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        for (key, texts) in [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ] {
            if !texts.is_empty() {
                rule[key] = json!(texts);
            }
        }
        rule
    }

    /// Whether the rule allows something.
    pub(crate) fn allows(&self, wanted: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, wanted.verb) {
            return false;
        }
        if wanted.resource.is_empty() && !wanted.path.is_empty() {
            return self.urls.iter().any(|url| url_covers(url, wanted.path));
        }
        has_or_all(&self.groups, wanted.group)
            && self.resources.iter().any(|resource| resource_matches(resource, wanted.resource, wanted.subresource))
            && (self.names.is_empty() || has(&self.names, wanted.name))
    }

    /// Rules with one verb, one resource and at most one name each, or one verb and one path.
    fn broken_down(&self) -> Vec<Self> {
        let one = |text: &str| -> Box<[Box<str>]> { Box::new([text.into()]) };
        let mut parts = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part =
                        Self { verbs: one(verb), groups: one(group), resources: one(resource), ..Self::default() };
                    if self.names.is_empty() {
                        parts.push(part);
                    } else {
                        parts.extend(self.names.iter().map(|name| Self { names: one(name), ..part.clone() }));
                    }
                }
            }
        }
        for url in &self.urls {
            parts.extend(self.verbs.iter().map(|verb| Self { verbs: one(verb), urls: one(url), ..Self::default() }));
        }
        parts
    }

    /// Whether everything that `part`, a rule that is broken down, allows is allowed by this one.
    fn covers(&self, part: &Self) -> bool {
        let names =
            if part.names.is_empty() { self.names.is_empty() } else { has_all_or_none(&self.names, &part.names) };
        names
            && part.verbs.iter().all(|verb| has_or_all(&self.verbs, verb))
            && part.groups.iter().all(|group| has_or_all(&self.groups, group))
            && part.resources.iter().all(|resource| resource_covered(&self.resources, resource))
            && part.urls.iter().all(|url| self.urls.iter().any(|own| own == url || wildcard_covers(own, url)))
    }

    /// The rule in one line, as messages about escalation show it.
    fn compact(&self) -> String {
        let mut text = String::from("{");
        for (name, values) in [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ] {
            if !values.is_empty() {
                let separator = if text.len() > 1 { ", " } else { "" };
                let quoted: Vec<String> = values.iter().map(|value| go_quoted(value)).collect();
                let _ = write!(text, "{separator}{name}:[{}]", quoted.join(" "));
            }
        }
        text + "}"
    }
}

/// The rights in `wanted` that are not in `held`, as single rules.
pub(crate) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::broken_down);
    parts.filter(|part| !held.iter().any(|rule| rule.covers(part))).collect()
}

/// Lines that describe rules which are broken down, those of one resource in one line, sorted.
pub(crate) fn describe(rules: &[Rule]) -> Vec<String> {
    let mut by_resource: BTreeMap<(Box<str>, Box<str>, Option<Box<str>>), Vec<Box<str>>> = BTreeMap::new();
    let mut lines = Vec::new();
    for rule in rules {
        match (&*rule.groups, &*rule.resources) {
            ([group], [resource]) => {
                let key = (group.clone(), resource.clone(), rule.names.first().cloned());
                by_resource.entry(key).or_default().extend(rule.verbs.iter().cloned());
            }
            _ => lines.push(rule.compact()),
        }
    }
    for ((group, resource, name), verbs) in by_resource {
        let rule = Rule {
            verbs: verbs.into(),
            groups: Box::new([group]),
            resources: Box::new([resource]),
            names: name.into_iter().collect(),
            urls: Box::default(),
        };
        lines.push(rule.compact());
    }
    lines.sort();
    lines.dedup();
    lines
}

fn has(texts: &[Box<str>], wanted: &str) -> bool {
    texts.iter().any(|text| **text == *wanted)
}

fn has_or_all(texts: &[Box<str>], wanted: &str) -> bool {
    texts.iter().any(|text| **text == *wanted || **text == *ALL)
}

fn has_all_or_none(texts: &[Box<str>], wanted: &[Box<str>]) -> bool {
    texts.is_empty() || wanted.iter().all(|name| has(texts, name))
}

/// `*`, `pods`, `pods/log`, `*/scale`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.strip_suffix(subresource)
        .and_then(|rest| rest.strip_suffix('/'))
        .is_some_and(|rest| rest == resource || rest == ALL)
}

fn resource_covered(rules: &[Box<str>], resource: &str) -> bool {
    let any_parent = |(_, part): (&str, &str)| has(rules, &format!("*/{part}"));
    has_or_all(rules, resource) || resource.split_once('/').is_some_and(any_parent)
}

fn url_covers(rule: &str, path: &str) -> bool {
    rule == ALL || rule == path || wildcard_covers(rule, path)
}

fn wildcard_covers(rule: &str, path: &str) -> bool {
    rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::of(&value)
    }

    fn resource<'a>(verb: &'a str, group: &'a str, path: &'a str, name: &'a str) -> Attributes<'a> {
        let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
        Attributes { verb, group, resource, subresource, name, ..Attributes::default() }
    }

    #[test]
    fn resources_are_matched_with_their_subresources() {
        let logs = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log", "*/scale"]}));
        for (path, allowed) in
            [("pods", true), ("pods/log", true), ("pods/exec", false), ("deployments/scale", true), ("log", false)]
        {
            assert_eq!(logs.allows(&resource("get", "", path, "x")), allowed, "{path}");
        }
        assert!(!logs.allows(&resource("get", "apps", "pods", "")));
        assert!(!logs.allows(&resource("list", "", "pods", "")));
        let named = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]}));
        assert!(named.allows(&resource("get", "x", "y/z", "a")));
        assert!(!named.allows(&resource("list", "x", "y", "")));
    }

    #[test]
    fn paths_end_in_a_star_or_match_whole() {
        let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}));
        for (path, allowed) in
            [("/healthz", true), ("/healthz/ping", false), ("/api/v1", true), ("/api", false), ("/apis", false)]
        {
            let wanted = Attributes { verb: "get", path, ..Attributes::default() };
            assert_eq!(paths.allows(&wanted), allowed, "{path}");
        }
    }

    #[test]
    fn what_is_missing_is_reported_by_resource() {
        let held = [
            rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]})),
            rule(json!({"verbs": ["update"], "apiGroups": ["apps"], "resources": ["*/scale"]})),
        ];
        let wanted = [
            rule(json!({"verbs": ["get", "create", "delete"], "apiGroups": [""], "resources": ["pods"]})),
            rule(json!({"verbs": ["update"], "apiGroups": ["apps"], "resources": ["deployments/scale"]})),
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]})),
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]})),
        ];
        let missing = missing(&held, &wanted);
        assert_eq!(
            describe(&missing),
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["create" "delete"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
            ]
        );
        let everything = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(super::missing(std::slice::from_ref(&everything), &wanted[..3]).is_empty());
        assert!(!super::missing(&held, &[everything]).is_empty());
    }
}
