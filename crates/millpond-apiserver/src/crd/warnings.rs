//! Warnings for definitions that are valid but questionable.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::builtin::json::Fields as _;
use crate::print::go_quoted;
use crate::schema::custom::props::Props;

/// Warnings for formats that are not checked, as far as the old definition did not have them.
pub fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known: BTreeSet<String> = old.map(unchecked_formats).unwrap_or_default().into_iter().collect();
    let new = unchecked_formats(new).into_iter().filter(|format| !known.contains(format));
    new.map(|format| format!("unrecognized format {}", go_quoted(&format))).collect()
}

/// Formats in the order of the schemas; versions that share a schema count once.
fn unchecked_formats(definition: &Value) -> Vec<String> {
    let versions = definition.at("spec").items("versions");
    let schemas: Vec<&Value> = versions.iter().map(|version| version.at("schema")).collect();
    let shared = schemas.windows(2).all(|pair| pair[0] == pair[1]);
    let count = if shared { 1 } else { schemas.len() };
    let mut formats = Vec::new();
    for schema in schemas.into_iter().take(count) {
        if let Ok(props) = Props::parse(schema.at("openAPIV3Schema"), "") {
            props.any(&mut |props| {
                if !props.format.is_empty() && !props.is_format_known() {
                    formats.push(props.format.to_string());
                }
                false
            });
        }
    }
    formats
}
