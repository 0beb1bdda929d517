//! Field selectors: `metadata.name=x,status.phase!=Running`, with `\` before a `,`, `=` or `\` in a value.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::names;
use crate::print::go_quoted;
use crate::resource::{Behaviour, Resource, SelectableFields};
use crate::status::ApiError;

/// A conjunction of requirements on fields. The default one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One requirement on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Name of the field, e.g. `spec.nodeName`.
    pub field: Box<str>,
    /// Whether the value must be or must not be there.
    pub operator: FieldOperator,
    /// The value, without escapes.
    pub value: Box<str>,
}

/// The two operators of field selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` or `==`
    Equals,
    /// `!=`
    NotEquals,
}

impl FieldSelector {
    /// Reads the text form. The error's sentence is that of the real API server, with 400.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = split_terms(text);
        // The real server sorts, so the first bad term of several is reported in this order.
        terms.sort_unstable();
        let requirements = terms
            .into_iter()
            .filter(|term| !term.is_empty())
            .map(|term| parse_term(term, text))
            .collect::<Result<_, _>>()
            .map_err(ApiError::bad_request)?;
        Ok(Self { requirements })
    }

    /// The selector of one object by its name.
    pub fn by_name(name: &str) -> Self {
        let field = "metadata.name".into();
        Self { requirements: vec![FieldRequirement { field, operator: FieldOperator::Equals, value: name.into() }] }
    }

    /// Refuses fields that objects of this resource cannot be selected by.
    pub fn check(&self, resource: &Resource) -> Result<(), ApiError> {
        self.requirements
            .iter()
            .find(|requirement| !is_selectable(resource, &requirement.field))
            .map_or(Ok(()), |requirement| Err(ApiError::bad_request(unsupported(resource, &requirement.field))))
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, sorted by their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that a field must have, if the selector asks for exactly one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.operator == FieldOperator::Equals && &*requirement.field == field)
            .map(|requirement| &*requirement.value)
    }

    /// The name that an object must have, if the selector asks for exactly one.
    pub fn exact_name(&self) -> Option<&str> {
        self.exact("metadata.name")
    }

    /// The name that a selector in text form asks for, if it can be that of an object.
    pub(crate) fn required_name(text: &str) -> Option<String> {
        let selector = Self::parse(text).ok()?;
        let name = selector.exact_name()?;
        (!name.is_empty() && names::path_segment_problems(name).is_empty()).then(|| name.to_owned())
    }

    /// Whether fields, looked up by name, satisfy every requirement. An absent field is an empty text.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = field(&requirement.field).unwrap_or_default();
            (*value == *requirement.value) == (requirement.operator == FieldOperator::Equals)
        })
    }

    /// Whether an object of this resource satisfies every requirement.
    pub fn matches_object(&self, resource: &Resource, object: &Value) -> bool {
        self.matches(|field| field_of(resource, object, field))
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c: char| {
        let splits = !escaped && c == ',';
        escaped = !escaped && c == '\\';
        splits
    })
    .collect()
}

fn parse_term(term: &str, whole: &str) -> Result<FieldRequirement, String> {
    let not_understood = || format!("invalid selector: '{whole}'; can't understand '{term}'");
    let (at, operator, length) = term
        .char_indices()
        .find_map(|(at, _)| match term.as_bytes()[at..] {
            [b'!', b'=', ..] => Some((at, FieldOperator::NotEquals, 2)),
            [b'=', b'=', ..] => Some((at, FieldOperator::Equals, 2)),
            [b'=', ..] => Some((at, FieldOperator::Equals, 1)),
            _ => None,
        })
        .ok_or_else(not_understood)?;
    let value = unescaped(&term[at + length..])?;
    Ok(FieldRequirement { field: term[..at].into(), operator, value: value.into() })
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // Kubernetes shows the number of the character here.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            c => value.push(c),
        }
    }
    Ok(value)
}

fn is_selectable(resource: &Resource, field: &str) -> bool {
    match field {
        "metadata.name" => true,
        // Built-ins without a table of their own take the namespace even where there is none.
        "metadata.namespace" => resource.namespaced || has_default_fields(resource),
        _ => match &resource.selectable_fields {
            SelectableFields::NameOnly => false,
            SelectableFields::Builtin(table) => table.iter().any(|(name, _)| *name == field),
            SelectableFields::Custom(table) => table.iter().any(|(name, _)| &**name == field),
        },
    }
}

fn has_default_fields(resource: &Resource) -> bool {
    matches!((&resource.selectable_fields, &resource.behaviour), (SelectableFields::NameOnly, Behaviour::Builtin(_)))
}

fn unsupported(resource: &Resource, field: &str) -> String {
    if has_default_fields(resource) {
        let field = go_quoted(field);
        return format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
    }
    match (&*resource.group, &*resource.kind) {
        ("batch", "Job") => format!("field label {} not supported for Job", go_quoted(field)),
        ("resource.k8s.io", "ResourceSlice") => {
            format!("field label not supported for {}, Kind=ResourceSlice: {field}", resource.api_version())
        }
        _ => format!("field label not supported: {field}"),
    }
}

fn field_of<'a>(resource: &Resource, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
    match field {
        "metadata.name" => object["metadata"]["name"].as_str().map(Cow::Borrowed),
        "metadata.namespace" => object["metadata"]["namespace"].as_str().map(Cow::Borrowed),
        _ => match &resource.selectable_fields {
            SelectableFields::NameOnly => None,
            SelectableFields::Builtin(table) => {
                table.iter().find(|(name, _)| *name == field).map(|(_, read)| Cow::Owned(read(object)))
            }
            SelectableFields::Custom(table) => {
                let (_, path) = table.iter().find(|(name, _)| &**name == field)?;
                scalar(path.iter().try_fold(object, |value, segment| value.get(&**segment))?)
            }
        },
    }
}

fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldRequirement { field, operator, value }) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = match operator {
                FieldOperator::Equals => "=",
                FieldOperator::NotEquals => "!=",
            };
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{field}{operator}{value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> FieldSelector {
        FieldSelector::parse(text).unwrap()
    }

    #[test]
    fn matches_equal_and_unequal_fields() {
        let fields = |name: &str| match name {
            "metadata.name" => Some(Cow::Borrowed("web")),
            "status.phase" => Some(Cow::Borrowed("Running")),
            _ => None,
        };
        for yes in ["", "metadata.name=web", "metadata.name==web,status.phase!=Failed", "spec.nodeName=", ",,"] {
            assert!(parsed(yes).matches(fields), "{yes}");
        }
        for no in ["metadata.name=x", "metadata.name!=web", "spec.nodeName!=", "metadata.name=web,spec.nodeName=n"] {
            assert!(!parsed(no).matches(fields), "{no}");
        }
    }

    #[test]
    fn escapes_are_taken_off_and_put_back() {
        let selector = parsed(r"a=b\,c\=d\\e,f!=");
        assert_eq!(&*selector.requirements()[0].value, r"b,c=d\e");
        assert_eq!(selector.to_string(), r"a=b\,c\=d\\e,f!=");
    }

    #[test]
    fn exact_values_are_found() {
        let selector = parsed("spec.nodeName!=n,metadata.name=web");
        assert_eq!(selector.exact_name(), Some("web"));
        assert_eq!(selector.exact("spec.nodeName"), None);
        assert_eq!(FieldSelector::by_name("web").exact_name(), Some("web"));
    }

    /// Asked of the real API server, version 1.36.
    #[test]
    fn fails_with_the_words_of_kubernetes() {
        for (text, message) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("x!y", "invalid selector: 'x!y'; can't understand 'x!y'"),
            ("b,a", "invalid selector: 'b,a'; can't understand 'a'"),
            (r"metadata.name=x\", r"invalid field selector: invalid escape sequence: \"),
            (r"metadata.name=x\y", r"invalid field selector: invalid escape sequence: \y"),
            ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().message, message, "{text}");
        }
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(value in "\\PC{0,20}") {
            let selector = FieldSelector { requirements: vec![FieldRequirement {
                field: "metadata.name".into(),
                operator: FieldOperator::Equals,
                value: value.into(),
            }] };
            prop_assert_eq!(parsed(&selector.to_string()), selector);
        }

        #[test]
        fn fuzz_field_selector(text in "[a-c!=,\\\\é]{0,30}|\\PC{0,30}") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
