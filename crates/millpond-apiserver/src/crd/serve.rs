//! The resources that a definition defines.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

use super::names::is_established;
use crate::builtin::json::Fields as _;
use crate::resource::{
    Behaviour, Columns, CustomColumn, NameRule, Resource, Scale, SelectableFields, Subresources, Verbs,
};
use crate::schema::custom::Definition;
use crate::status::FieldError;

/// Descriptors of each served version, none as long as the names are not accepted. The error says which part of
/// a schema cannot be read.
pub fn resources(definition: &Value) -> Result<Vec<Resource>, Vec<FieldError>> {
    if !is_established(definition) {
        return Ok(Vec::new());
    }
    let spec = definition.at("spec");
    let versions = spec.items("versions");
    let served = versions.iter().enumerate().filter(|(_, version)| version.flag("served"));
    served.map(|(index, version)| resource(definition, version, index)).collect()
}

fn resource(definition: &Value, version: &Value, index: usize) -> Result<Resource, Vec<FieldError>> {
    let spec = definition.at("spec");
    let names = definition.at("status").at("acceptedNames");
    let scale = scale(version.at("subresources").at("scale"));
    let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
    let schema = Definition::new(version.at("schema").at("openAPIV3Schema"), scale.clone(), &path)?.into_schema();
    let storage_version = spec.items("versions").iter().find(|version| version.flag("storage")).unwrap_or(version);
    let text = |text: &str| -> Arc<str> { text.into() };
    let texts = |key: &str| names.items(key).iter().filter_map(Value::as_str).map(text).collect();
    Ok(Resource {
        group: text(spec.text("group")),
        version: text(version.text("name")),
        kind: text(names.text("kind")),
        list_kind: text(names.text("listKind")),
        plural: text(names.text("plural")),
        singular: text(names.text("singular")),
        short_names: texts("shortNames"),
        categories: texts("categories"),
        namespaced: spec.text("scope") == "Namespaced",
        storage_version: text(storage_version.text("name")),
        storage: text(&format!("{}.{}", names.text("plural"), spec.text("group"))),
        verbs: Verbs::All,
        subresources: Subresources { status: version.at("subresources").has("status"), scale, others: &[] },
        name_rule: NameRule::Subdomain,
        schema: schema.into(),
        columns: columns(version),
        selectable_fields: selectable_fields(version),
        deprecation: deprecation(spec, version).map(Arc::from),
        defaults_on_read: version.at("schema").to_string().contains("\"default\":"),
        behaviour: Behaviour::Custom,
    })
}

fn scale(scale: &Value) -> Option<Scale> {
    let path = |key: &str| Some(scale.text(key)).filter(|path| !path.is_empty()).map(Arc::from);
    Some(Scale {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        label_selector: path("labelSelectorPath"),
    })
}

fn columns(version: &Value) -> Columns {
    let columns = version.items("additionalPrinterColumns");
    if columns.is_empty() {
        return Columns::NameAndAge;
    }
    let column = |column: &Value| CustomColumn {
        name: column.text("name").into(),
        ty: column.text("type").into(),
        format: column.text("format").into(),
        description: column.text("description").into(),
        priority: column.number("priority").unwrap_or_default() as i32,
        json_path: column.text("jsonPath").into(),
    };
    Columns::Custom(columns.iter().map(column).collect())
}

fn selectable_fields(version: &Value) -> SelectableFields {
    let fields = version.items("selectableFields");
    if fields.is_empty() {
        return SelectableFields::NameOnly;
    }
    let field = |field: &Value| {
        let path = field.text("jsonPath");
        let name = path.strip_prefix('.').unwrap_or(path);
        (Arc::from(name), name.split('.').map(Arc::from).collect())
    };
    SelectableFields::Custom(fields.iter().map(field).collect())
}

/// The warning for users of a deprecated version.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if !version.flag("deprecated") {
        return None;
    }
    if let Some(warning) = version.at("deprecationWarning").as_str() {
        return Some(warning.to_owned());
    }
    let (group, kind, name) = (spec.text("group"), spec.at("names").text("kind"), version.text("name"));
    let newest = spec
        .items("versions")
        .iter()
        .filter(|other| other.flag("served") && !other.flag("deprecated"))
        .map(|other| other.text("name"))
        .filter(|other| compare_versions(name, other).is_lt())
        .max_by(|a, b| compare_versions(a, b));
    let mut warning = format!("{group}/{name} {kind} is deprecated");
    if let Some(newest) = newest {
        warning.push_str(&format!("; use {group}/{newest} {kind}"));
    }
    Some(warning)
}

/// Orders versions by maturity: `v2` > `v1` > `v2beta1` > `v1alpha1` > anything else.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (kube_version(a), kube_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Other names count backwards, so that they are listed in their usual order.
        (None, None) => b.cmp(a),
    }
}

/// Stability, major and minor number of `v1`, `v1beta2`, `v3alpha1`.
fn kube_version(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let digits = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let (stability, minor) = match &rest[digits..] {
        "" => return Some((2, major, 0)),
        other => match (other.strip_prefix("beta"), other.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (0, minor),
            _ => return None,
        },
    };
    let plain = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
    Some((stability, major, if plain { minor.parse().ok()? } else { return None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_maturity() {
        let mut versions = ["foo10", "v1", "v2beta1", "v10", "v1alpha1", "foo1", "v2beta10", "v11alpha2"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(versions, ["v10", "v1", "v2beta10", "v2beta1", "v11alpha2", "v1alpha1", "foo1", "foo10"]);
    }
}
