//! Named formats: `format.dns1123Label().validate(…)`.

use super::super::value::{Error, Evaluated, List, Value};
use crate::go::{time, url};
use crate::meta;
use crate::names;
use crate::resource::NameRule;
use crate::schema::custom::{is_base64, is_uuid};

/// A format and what it says about texts that do not have it.
pub(crate) struct NamedFormat {
    /// Name of the function that returns it.
    pub(crate) name: &'static str,
    /// How long the pattern is that a check is taken to cost.
    pub(super) pattern_size: u64,
    problems: fn(&str) -> Vec<String>,
}

impl std::fmt::Debug for NamedFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NamedFormat").field(&self.name).finish()
    }
}

fn unless(fine: bool, problem: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![problem.to_owned()] }
}

/// An RFC 1035 label; a prefix may end with a dash.
fn label_1035(text: &str, prefix: bool) -> Vec<String> {
    match text.strip_suffix('-') {
        Some(before) if prefix && text.len() > 1 => {
            let mut kept = before.chars();
            kept.next_back();
            names::label_1035_problems(&format!("{}a", kept.as_str()))
        }
        _ => names::label_1035_problems(text),
    }
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat {
        name: "dns1123Label",
        pattern_size: 30,
        problems: |text| meta::name_problems(NameRule::Label, text, false),
    },
    NamedFormat {
        name: "dns1123LabelPrefix",
        pattern_size: 30,
        problems: |text| meta::name_problems(NameRule::Label, text, true),
    },
    NamedFormat {
        name: "dns1123Subdomain",
        pattern_size: 60,
        problems: |text| meta::name_problems(NameRule::Subdomain, text, false),
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        pattern_size: 60,
        problems: |text| meta::name_problems(NameRule::Subdomain, text, true),
    },
    NamedFormat { name: "dns1035Label", pattern_size: 30, problems: |text| label_1035(text, false) },
    NamedFormat { name: "dns1035LabelPrefix", pattern_size: 30, problems: |text| label_1035(text, true) },
    NamedFormat { name: "qualifiedName", pattern_size: 60, problems: names::label_key_problems },
    NamedFormat { name: "labelValue", pattern_size: 40, problems: names::label_value_problems },
    NamedFormat {
        name: "uri",
        pattern_size: 1103,
        problems: |text| url::parse_request_uri(text).err().into_iter().collect(),
    },
    NamedFormat {
        name: "uuid",
        pattern_size: 70,
        problems: |text| unless(is_uuid(text), "does not match the UUID format"),
    },
    NamedFormat { name: "byte", pattern_size: 84, problems: |text| unless(is_base64(text), "invalid base64") },
    NamedFormat {
        name: "date",
        pattern_size: 71,
        problems: |text| unless(time::parse_date(text).is_some(), "invalid date"),
    },
    NamedFormat {
        name: "datetime",
        pattern_size: 71,
        problems: |text| unless(time::is_date_time(text), "invalid datetime"),
    },
];

fn named(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

pub(super) fn call<'a>(function: &str, values: &[Value<'a>]) -> Evaluated<'a> {
    match (function, values) {
        ("validate", [Value::Format(format), Value::String(text)]) => {
            let problems = (format.problems)(text);
            if problems.is_empty() {
                return Ok(Value::Optional(None));
            }
            Ok(Value::some(Value::List(List::made(problems.into_iter().map(Value::text).collect()))))
        }
        ("format.named", [Value::String(name)]) => {
            Ok(Value::Optional(named(name).map(|format| Value::Format(format).into())))
        }
        (function, []) => {
            let format = function.strip_prefix("format.").and_then(named);
            format.map(Value::Format).ok_or(Error::NoOverload)
        }
        _ => Err(Error::NoOverload),
    }
}
