//! Field and label selectors of access reviews: what is refused in them, and what of them is ignored.

use serde_json::Value;

use crate::names;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::FieldError;

/// A selector of what a review asks about, in the order in which they are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selector {
    Field,
    Label,
}

impl Selector {
    const ALL: [Self; 2] = [Self::Field, Self::Label];

    /// The field of a review, as messages name it.
    fn path(self) -> &'static str {
        match self {
            Self::Field => "spec.resourceAttributes.fieldSelector",
            Self::Label => "spec.resourceAttributes.labelSelector",
        }
    }

    fn of(self, resource: &Value) -> &Value {
        match self {
            Self::Field => &resource["fieldSelector"],
            Self::Label => &resource["labelSelector"],
        }
    }

    fn can_read(self, text: &str) -> bool {
        match self {
            Self::Field => FieldSelector::parse(text).is_ok(),
            Self::Label => LabelSelector::parse(text).is_ok(),
        }
    }

    /// Whether the authorizer is told of a requirement.
    fn can_use(self, requirement: &Value) -> bool {
        match requirement["operator"].as_str().unwrap_or_default() {
            // A field has one value.
            "In" | "NotIn" => self == Self::Label || list(&requirement["values"]).len() == 1,
            "Exists" | "DoesNotExist" => self == Self::Label,
            _ => false,
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What is wrong with the selectors of a review's resource.
pub(super) fn problems(resource: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for selector in Selector::ALL {
        let (path, given) = (selector.path(), selector.of(resource));
        if !given.is_object() {
            continue;
        }
        let (raw, requirements) = (text(&given["rawSelector"]), list(&given["requirements"]));
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => {
                let detail = "may not specified at the same time as requirements";
                errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, detail));
            }
            (true, true) => {
                let detail = format!("when {path} is specified, requirements or rawSelector is required");
                errors.push(FieldError::required(format!("{path}.requirements"), detail));
            }
            _ => {}
        }
        for (index, requirement) in requirements.iter().enumerate() {
            check(selector, requirement, &format!("{path}.requirements[{index}]"), &mut errors);
        }
    }
    errors
}

fn check(selector: Selector, requirement: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (key, values) = (text(&requirement["key"]), list(&requirement["values"]));
    if selector == Selector::Field && key.is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
    }
    match (text(&requirement["operator"]), values.is_empty()) {
        ("In" | "NotIn", true) => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{path}.values"), detail));
        }
        ("Exists" | "DoesNotExist", false) => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{path}.values"), detail));
        }
        _ => {}
    }
    if selector == Selector::Label {
        for problem in names::label_key_problems(key) {
            errors.push(FieldError::invalid(format!("{path}.key"), key, problem));
        }
        for (index, value) in values.iter().map(text).enumerate() {
            for problem in names::label_value_problems(value) {
                errors.push(FieldError::invalid(format!("{path}.values[{index}]"), value, problem));
            }
        }
    }
}

/// Says which selectors are ignored, wholly or in part, because they cannot be read.
pub(super) fn ignored(resource: &Value) -> Option<String> {
    let of = |selector: Selector| {
        let given = selector.of(resource);
        let (raw, requirements) = (text(&given["rawSelector"]), list(&given["requirements"]));
        let usable = requirements.iter().filter(|requirement| selector.can_use(requirement)).count();
        let is_read = (raw.is_empty() || selector.can_read(raw)) && usable == requirements.len();
        let how = if usable > 0 { "partially ignored" } else { "ignored" };
        (!is_read).then(|| format!("{} {how} due to parse error", selector.path()))
    };
    let ignored: Vec<String> = Selector::ALL.into_iter().filter_map(of).collect();
    (!ignored.is_empty()).then(|| ignored.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What kube-apiserver 1.36 says.
    #[test]
    fn selectors_are_refused_and_ignored_as_by_kubernetes() {
        let paths = |resource: Value| -> Vec<String> {
            problems(&resource).into_iter().map(|error| error.to_string()).collect()
        };
        let (field, label) = ("spec.resourceAttributes.fieldSelector", "spec.resourceAttributes.labelSelector");
        let required = |path: &str| {
            format!(
                "{path}.requirements: Required value: when {path} is specified, requirements or rawSelector is required"
            )
        };
        assert_eq!(paths(json!({"labelSelector": {}, "fieldSelector": {}})), [required(field), required(label)]);
        let in_b = json!({"key": "a", "operator": "In", "values": ["b"]});
        let both = json!({"labelSelector": {"rawSelector": "a=b", "requirements": [in_b]}});
        let why = "Invalid value: \"a=b\": may not specified at the same time as requirements";
        assert_eq!(paths(both), [format!("{label}.rawSelector: {why}")]);
        let empty = json!({"key": "", "operator": "In"});
        let why = "must be specified when `operator` is 'In' or 'NotIn'";
        assert_eq!(
            paths(json!({"fieldSelector": {"requirements": [empty]}})),
            [
                format!("{field}.requirements[0].key: Required value: must be specified"),
                format!("{field}.requirements[0].values: Required value: {why}"),
            ]
        );

        let unread = json!({"rawSelector": "a in"});
        let of = |resource: Value| ignored(&resource).unwrap_or_default();
        assert_eq!(
            of(json!({"labelSelector": unread, "fieldSelector": unread})),
            format!("{field} ignored due to parse error; {label} ignored due to parse error")
        );
        let like = json!({"key": "a", "operator": "Like"});
        let partly = json!({"labelSelector": {"requirements": [like, in_b]}});
        assert_eq!(of(partly), format!("{label} partially ignored due to parse error"));
        let two = json!({"requirements": [{"key": "a", "operator": "In", "values": ["b", "c"]}]});
        assert_eq!(of(json!({"labelSelector": two})), "");
        assert_eq!(of(json!({"fieldSelector": two})), format!("{field} ignored due to parse error"));
        assert_eq!(of(json!({"fieldSelector": {"rawSelector": "spec.nodeName=n"}})), "");
    }
}
