//! Accepts or rejects the names of a definition, with the conditions for that.
//!
//! The real server lets two controllers do this a moment after the write; here it is part of the write, so that
//! a definition is established when its creation is answered.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::builtin::json::{Fields as _, Fill as _};
use crate::print::go_quoted;

/// Decides the accepted names and the conditions of a definition that is about to be written. `others` are all
/// other definitions, `now` the time for conditions that change.
pub fn prepare(definition: &mut Value, old: Option<&Value>, others: &[Value], now: &str) {
    if let Some(old) = old {
        // The status subresource may have been used to forget them.
        definition.object("status").default_to("conditions", old.at("status").at("conditions").clone());
    }
    let wanted = definition.at("spec").at("names").clone();
    if &wanted == definition.at("status").at("acceptedNames") && has_condition(definition, "NamesAccepted") {
        return;
    }
    let taken = Taken::new(definition.at("spec").text("group"), others);
    let accepted = definition.at("status").at("acceptedNames").clone();
    let (names, conflict) = taken.judge(&wanted, &accepted);
    let status = definition.object("status");
    status.put("acceptedNames", names);
    match conflict {
        Some((reason, message)) => {
            set_condition(status, "NamesAccepted", false, reason, &message, now);
            if !has_condition_in(status, "Established") {
                set_condition(status, "Established", false, "NotAccepted", "not all names are accepted", now);
            }
        }
        None => {
            set_condition(status, "NamesAccepted", true, "NoConflicts", "no conflicts found", now);
            if !is_true(status, "Established") {
                let message = "the initial names have been accepted";
                set_condition(status, "Established", true, "InitialNamesAccepted", message, now);
            }
        }
    }
    status.default_to("storedVersions", json!([]));
}

/// Names of a group that belong to other definitions.
struct Taken<'a> {
    resources: BTreeSet<&'a str>,
    kinds: BTreeSet<&'a str>,
}

impl<'a> Taken<'a> {
    fn new(group: &str, others: &'a [Value]) -> Self {
        let mut taken = Self { resources: BTreeSet::new(), kinds: BTreeSet::new() };
        for other in others.iter().filter(|other| other.at("spec").text("group") == group) {
            let names = other.at("status").at("acceptedNames");
            taken.resources.extend([names.text("plural"), names.text("singular")]);
            taken.resources.extend(names.items("shortNames").iter().filter_map(Value::as_str));
            taken.kinds.extend([names.text("kind"), names.text("listKind")]);
        }
        taken.resources.remove("");
        taken.kinds.remove("");
        taken
    }

    /// The names to accept, and the last conflict with its reason.
    fn judge(&self, wanted: &Value, accepted: &Value) -> (Value, Option<(&'static str, String)>) {
        let mut names = if accepted.is_object() { accepted.clone() } else { json!({}) };
        let mut conflict = None;
        for (field, taken, reason) in
            [("plural", &self.resources, "PluralConflict"), ("singular", &self.resources, "SingularConflict")]
        {
            self.judge_one(field, taken, reason, wanted, &mut names, &mut conflict);
        }
        if wanted.items("shortNames") != accepted.items("shortNames") {
            self.judge_short_names(wanted, accepted, &mut names, &mut conflict);
        }
        for (field, taken, reason) in
            [("kind", &self.kinds, "KindConflict"), ("listKind", &self.kinds, "ListKindConflict")]
        {
            self.judge_one(field, taken, reason, wanted, &mut names, &mut conflict);
        }
        names.put("categories", wanted.at("categories").clone());
        (names, conflict)
    }

    fn judge_one(
        &self,
        field: &str,
        taken: &BTreeSet<&str>,
        reason: &'static str,
        wanted: &Value,
        names: &mut Value,
        conflict: &mut Option<(&'static str, String)>,
    ) {
        let name = wanted.text(field);
        if name != names.text(field) && taken.contains(name) {
            *conflict = Some((reason, in_use(name)));
        } else {
            names.put(field, wanted.at(field).clone());
            // The two mandatory fields of the type are always printed.
            if matches!(field, "plural" | "kind") {
                names.default_to(field, "");
            }
        }
    }

    fn judge_short_names(
        &self,
        wanted: &Value,
        accepted: &Value,
        names: &mut Value,
        conflict: &mut Option<(&'static str, String)>,
    ) {
        let clashes: Vec<String> = wanted
            .items("shortNames")
            .iter()
            .filter(|name| !accepted.items("shortNames").contains(name))
            .filter_map(Value::as_str)
            .filter(|name| self.resources.contains(name))
            .map(in_use)
            .collect();
        match clashes.as_slice() {
            [] => names.put("shortNames", wanted.at("shortNames").clone()),
            [one] => *conflict = Some(("ShortNamesConflict", one.clone())),
            many => *conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
        }
    }
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", go_quoted(name))
}

fn has_condition(definition: &Value, ty: &str) -> bool {
    has_condition_in(definition.at("status"), ty)
}

fn has_condition_in(status: &Value, ty: &str) -> bool {
    status.items("conditions").iter().any(|condition| condition.text("type") == ty)
}

fn is_true(status: &Value, ty: &str) -> bool {
    status
        .items("conditions")
        .iter()
        .any(|condition| condition.text("type") == ty && condition.text("status") == "True")
}

/// Whether the definition's resources are served.
pub(super) fn is_established(definition: &Value) -> bool {
    is_true(definition.at("status"), "Established")
}

/// Sets a condition; the time of the last transition stays when its status does.
fn set_condition(status: &mut Value, ty: &str, holds: bool, reason: &str, message: &str, now: &str) {
    let holds = if holds { "True" } else { "False" };
    let mut conditions = status.items("conditions").to_vec();
    let existing = conditions.iter().position(|condition| condition.text("type") == ty);
    let since = existing
        .map(|index| &conditions[index])
        .filter(|condition| condition.text("status") == holds && condition.has("lastTransitionTime"))
        .map_or_else(|| json!(now), |condition| condition.at("lastTransitionTime").clone());
    let condition =
        json!({"type": ty, "status": holds, "lastTransitionTime": since, "reason": reason, "message": message});
    match existing {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
    status.put("conditions", Value::Array(conditions));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short_names: &[&str]) -> Value {
        json!({"spec": {"group": "example.com", "names": {
            "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
            "shortNames": short_names, "categories": ["all"],
        }}, "status": {}})
    }

    fn condition<'a>(definition: &'a Value, ty: &str) -> &'a Value {
        definition["status"].items("conditions").iter().find(|condition| condition.text("type") == ty).unwrap()
    }

    #[test]
    fn fresh_names_are_accepted_and_established() {
        let mut foos = definition("foos", "Foo", &["f"]);
        prepare(&mut foos, None, &[], "T1");
        assert_eq!(foos["status"]["acceptedNames"], foos["spec"]["names"]);
        assert_eq!(condition(&foos, "NamesAccepted")["reason"], "NoConflicts");
        assert_eq!(
            condition(&foos, "Established"),
            &json!({
                "type": "Established", "status": "True", "lastTransitionTime": "T1",
                "reason": "InitialNamesAccepted", "message": "the initial names have been accepted",
            })
        );
        let mut again = foos.clone();
        again["spec"]["names"]["categories"] = json!([]);
        prepare(&mut again, Some(&foos), &[], "T2");
        assert_eq!(condition(&again, "Established")["lastTransitionTime"], "T1");
        assert!(is_established(&again));
    }

    #[test]
    fn taken_names_are_reported() {
        let mut foos = definition("foos", "Foo", &["f", "ff"]);
        prepare(&mut foos, None, &[], "T");
        for (mut other, reason, message) in [
            (definition("foos", "Bar", &[]), "PluralConflict", "\"foos\" is already in use"),
            (definition("bars", "Foo", &[]), "ListKindConflict", "\"FooList\" is already in use"),
            (
                definition("bars", "Bar", &["f", "x", "ff"]),
                "ShortNamesConflict",
                "[\"f\" is already in use, \"ff\" is already in use]",
            ),
        ] {
            prepare(&mut other, None, std::slice::from_ref(&foos), "T");
            let accepted = condition(&other, "NamesAccepted");
            assert_eq!(
                (accepted.text("status"), accepted.text("reason"), accepted.text("message")),
                ("False", reason, message)
            );
            assert_eq!(condition(&other, "Established")["reason"], "NotAccepted");
            assert!(!is_established(&other));
        }
        let mut elsewhere = definition("foos", "Foo", &["f"]);
        elsewhere["spec"]["group"] = json!("other.example.com");
        prepare(&mut elsewhere, None, &[foos], "T");
        assert!(is_established(&elsewhere));
    }
}
