//! Validation of a definition as a whole.

use serde_json::{Value, json};

use super::json_schema;
use super::names::is_established;
use crate::builtin::json::Fields as _;
use crate::go::text::is_printable;
use crate::go::url;
use crate::names::{label_1035_problems, subdomain_problems};
use crate::print::go_quoted;
use crate::schema::custom::field_path::{self, simple_path_problem};
use crate::schema::custom::props::Props;
use crate::schema::custom::structural;
use crate::status::FieldError;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_DEPRECATION_WARNING: usize = 256;
const MAX_SELECTABLE_FIELDS: usize = 8;
/// Groups of the Kubernetes community ask for this annotation.
const APPROVAL: &str = "api-approved.kubernetes.io";
const APPROVAL_HELP: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Problems of a new definition, or of a change.
pub(super) fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = new.at("spec");
    let mut errors = Vec::new();
    if old.is_none() {
        check_name(new, &mut errors);
    }
    Spec::new(spec, old.map(|old| old.at("spec"))).check(&mut errors);
    if let Some(old) = old {
        check_immutable(spec, old, &mut errors);
    }
    names(new.at("status").at("acceptedNames"), "status.acceptedNames", &mut errors);
    check_stored_versions(new, &mut errors);
    check_approval(new, old, &mut errors);
    let preserved = |definition: &Value| definition.at("spec").flag("preserveUnknownFields");
    if preserved(new) && !old.is_some_and(preserved) {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    errors
}

fn check_name(definition: &Value, errors: &mut Vec<FieldError>) {
    let spec = definition.at("spec");
    let name = definition.at("metadata").text("name");
    if name != format!("{}.{}", spec.at("names").text("plural"), spec.text("group")) {
        errors.push(FieldError::invalid("metadata.name", name, r#"must be spec.names.plural+"."+spec.group"#));
    }
}

fn check_immutable(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old_spec = old.at("spec");
    let mut check = |value: &Value, former: &Value, field: &str| {
        if value != former {
            errors.push(FieldError::invalid(field, value.clone(), "field is immutable"));
        }
    };
    let (names, old_names) = (new.at("names"), old_spec.at("names"));
    if is_established(old) {
        check(new.at("scope"), old_spec.at("scope"), "spec.scope");
        check(names.at("kind"), old_names.at("kind"), "spec.names.kind");
    }
    check(new.at("group"), old_spec.at("group"), "spec.group");
    check(names.at("plural"), old_names.at("plural"), "spec.names.plural");
}

/// A definition's spec, with what all its versions share taken out as the real server does internally.
struct Spec<'a> {
    spec: &'a Value,
    versions: &'a [Value],
    old: Option<&'a Value>,
}

impl<'a> Spec<'a> {
    fn new(spec: &'a Value, old: Option<&'a Value>) -> Self {
        Self { spec, versions: spec.items("versions"), old }
    }

    /// Whether all versions have the same value here; then errors about it speak of the spec, not of a version.
    fn is_shared(&self, key: &str) -> bool {
        self.versions.windows(2).all(|pair| pair[0].at(key) == pair[1].at(key))
    }

    fn check(&self, errors: &mut Vec<FieldError>) {
        check_group(self.spec.text("group"), errors);
        match self.spec.text("scope") {
            "" => errors.push(FieldError::required("spec.scope", "")),
            "Cluster" | "Namespaced" => {}
            other => errors.push(FieldError::not_supported("spec.scope", other, &["Cluster", "Namespaced"])),
        }
        self.check_schemas_present(errors);
        for (index, version) in self.versions.iter().enumerate() {
            self.check_version(version, &format!("spec.versions[{index}]"), errors);
        }
        self.check_version_list(errors);
        self.check_names(errors);
        self.check_shared(errors);
        check_conversion(self.spec.at("conversion"), errors);
    }

    fn check_schemas_present(&self, errors: &mut Vec<FieldError>) {
        for (index, version) in self.versions.iter().enumerate() {
            if !version.at("schema").at("openAPIV3Schema").is_object() {
                let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
                errors.push(FieldError::required(field, ""));
            }
        }
        if self.spec.flag("preserveUnknownFields") && self.has_defaults() {
            let detail = "must be false in order to use defaults in the schema";
            errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
        }
    }

    fn has_defaults(&self) -> bool {
        self.versions.iter().any(|version| {
            Props::parse(version.at("schema").at("openAPIV3Schema"), "")
                .is_ok_and(|props| props.any(&mut |props| props.default.is_some()))
        })
    }

    fn check_version(&self, version: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let name = version.text("name");
        let problems = label_1035_problems(name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.name"), name, problems.join(",")));
        }
        check_deprecation_warning(version, path, errors);
        if !self.is_shared("schema") {
            self.check_schema(version, &format!("{path}.schema"), errors);
        }
        if !self.is_shared("subresources") {
            check_subresources(version.at("subresources"), &format!("{path}.subresources"), errors);
        }
        if !self.is_shared("additionalPrinterColumns") {
            check_columns(version, &format!("{path}.additionalPrinterColumns"), errors);
        }
        if !self.is_shared("selectableFields") {
            self.check_selectable_fields(version, &format!("{path}.selectableFields"), errors);
        }
    }

    fn check_shared(&self, errors: &mut Vec<FieldError>) {
        let Some(first) = self.versions.first() else { return };
        if self.is_shared("schema") {
            self.check_schema(first, "spec.validation", errors);
        }
        if self.is_shared("subresources") {
            check_subresources(first.at("subresources"), "spec.subresources", errors);
        }
        if self.is_shared("additionalPrinterColumns") {
            check_columns(first, "spec.additionalPrinterColumns", errors);
        }
        if self.is_shared("selectableFields") {
            self.check_selectable_fields(first, "spec.selectableFields", errors);
        }
    }

    fn check_schema(&self, version: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let schema = version.at("schema").at("openAPIV3Schema");
        if !schema.is_object() {
            return;
        }
        // An expression that was accepted once stays accepted, whatever its present cost estimate is.
        let unchanged =
            self.old_version(version.text("name")).is_some_and(|old| old.at("schema") == version.at("schema"));
        let options = json_schema::Options { status: version.at("subresources").has("status"), unchanged };
        errors.extend(json_schema::check(schema, &format!("{path}.openAPIV3Schema"), &options));
    }

    fn old_version(&self, name: &str) -> Option<&'a Value> {
        self.old?.items("versions").iter().find(|version| version.text("name") == name)
    }

    fn check_version_list(&self, errors: &mut Vec<FieldError>) {
        let mut seen = std::collections::BTreeSet::new();
        let unique = self.versions.iter().all(|version| seen.insert(version.text("name")));
        let shown = || self.shown_versions();
        if !unique {
            errors.push(FieldError::invalid_as("spec.versions", shown(), "must contain unique version names"));
        }
        if self.versions.iter().filter(|version| version.flag("storage")).count() != 1 {
            let detail = "must have exactly one version marked as storage version";
            errors.push(FieldError::invalid_as("spec.versions", shown(), detail));
        }
        if let Some(first) = self.versions.first() {
            let problems = label_1035_problems(first.text("name"));
            if !first.text("name").is_empty() && !problems.is_empty() {
                errors.push(FieldError::invalid("spec.version", first.text("name"), problems.join(",")));
            }
        }
    }

    /// The versions in the server's internal form, which has the names of Go's fields. Parts that versions do not
    /// share are shown as the client wrote them.
    fn shown_versions(&self) -> String {
        let part = |version: &Value, key: &str| {
            if self.is_shared(key) { "null".to_owned() } else { crate::go::text::json(version.at(key)) }
        };
        let shown: Vec<String> = self
            .versions
            .iter()
            .map(|version| {
                format!(
                    r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
                    crate::go::text::json(&json!(version.text("name"))),
                    version.flag("served"),
                    version.flag("storage"),
                    version.flag("deprecated"),
                    crate::go::text::json(version.at("deprecationWarning")),
                    part(version, "schema"),
                    part(version, "subresources"),
                    part(version, "additionalPrinterColumns"),
                    part(version, "selectableFields"),
                )
            })
            .collect();
        if shown.is_empty() { "null".to_owned() } else { format!("[{}]", shown.join(",")) }
    }

    fn check_names(&self, errors: &mut Vec<FieldError>) {
        let given = self.spec.at("names");
        for field in ["plural", "singular", "kind", "listKind"] {
            if given.text(field).is_empty() {
                errors.push(FieldError::required(format!("spec.names.{field}"), ""));
            }
        }
        names(given, "spec.names", errors);
    }

    fn check_selectable_fields(&self, version: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let fields = version.items("selectableFields");
        if fields.is_empty() {
            return;
        }
        let schema = version.at("schema").at("openAPIV3Schema");
        if !schema.is_object() {
            let detail = if path == "spec.selectableFields" {
                "may only be set when validations.schema is included"
            } else {
                "may only be set when `version.schema.openAPIV3Schema` is not included"
            };
            errors.push(FieldError::invalid(path, "", detail));
            return;
        }
        let Ok(schema) = Props::parse(schema, "") else { return };
        if let Some(problem) = structural::unreadable(&schema) {
            let field = path.trim_end_matches("selectableFields").to_owned() + "schema.openAPIV3Schema";
            errors.push(FieldError::invalid(field, "", problem));
            return;
        }
        let unchanged_and_too_many = self.old_version(version.text("name")).is_some_and(|old| {
            old.items("selectableFields").len() > MAX_SELECTABLE_FIELDS
                && old.at("selectableFields") == version.at("selectableFields")
        });
        check_selectable(fields, &schema, path, unchanged_and_too_many, errors);
    }
}

fn check_selectable(fields: &[Value], schema: &Props, path: &str, any_number: bool, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = format!("{path}[{index}].jsonPath");
        let json_path = field.text("jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let found = match field_path::resolve(json_path, schema, false) {
            Ok(found) => found,
            Err(problem) => {
                errors.push(FieldError::invalid(at, json_path, format!("is an invalid path: {problem}")));
                continue;
            }
        };
        if found.root == "metadata" {
            errors.push(FieldError::invalid(&at, json_path, "must not point to fields in metadata"));
        }
        if !matches!(&*found.schema.ty, "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(&at, json_path, detail));
        }
        if !seen.insert(found.text) {
            errors.push(FieldError::duplicate(at, json_path));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS && !any_number {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE_FIELDS));
    }
}

fn check_group(group: &str, errors: &mut Vec<FieldError>) {
    let problems = subdomain_problems(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, problems.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
}

/// Problems of names, as wanted or as accepted.
pub(super) fn names(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut check = |name: &str, field: String, lowered: bool| {
        let checked = if lowered { name.to_lowercase() } else { name.to_owned() };
        let problems = label_1035_problems(&checked).join(",");
        if !problems.is_empty() {
            let prefix = if lowered { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(FieldError::invalid(field, name, format!("{prefix}{problems}")));
        }
    };
    for (field, lowered) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let name = names.text(field);
        if !name.is_empty() {
            check(name, format!("{path}.{field}"), lowered);
        }
    }
    for (index, name) in names.items("shortNames").iter().enumerate() {
        check(name.as_str().unwrap_or_default(), format!("{path}.shortNames[{index}]"), false);
    }
    let (kind, list_kind) = (names.text("kind"), names.text("listKind"));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), list_kind, detail));
    }
    for (index, category) in names.items("categories").iter().enumerate() {
        let category = category.as_str().unwrap_or_default();
        let problems = label_1035_problems(category);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.categories[{index}]"), category, problems.join(",")));
        }
    }
}

fn check_deprecation_warning(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(warning) = version.at("deprecationWarning").as_str() else { return };
    let field = format!("{path}.deprecationWarning");
    let mut problems = Vec::new();
    if version.flag("deprecated") {
        if warning.len() > MAX_DEPRECATION_WARNING {
            problems.push(format!("must be <= {MAX_DEPRECATION_WARNING} characters long"));
        }
        if warning.is_empty() {
            problems.push("must not be an empty string".to_owned());
        }
        if let Some((index, _)) = warning.char_indices().find(|(_, character)| !is_printable(*character)) {
            problems.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {index}"
            ));
        }
    } else {
        problems.push("can only be set for deprecated versions".to_owned());
    }
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(&field, warning, problem)));
}

fn check_columns(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, column) in version.items("additionalPrinterColumns").iter().enumerate() {
        let path = format!("{path}[{index}]");
        if column.text("name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let ty = column.text("type");
        let one_of = |list: &[&str]| format!("must be one of {}", list.join(","));
        if ty.is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), one_of(&COLUMN_TYPES)));
        } else if !COLUMN_TYPES.contains(&ty) {
            errors.push(FieldError::invalid(format!("{path}.type"), ty, one_of(&COLUMN_TYPES)));
        }
        let format = column.text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            errors.push(FieldError::invalid(format!("{path}.format"), format, one_of(&COLUMN_FORMATS)));
        }
        let field = format!("{path}.JSONPath");
        match column.text("jsonPath") {
            "" => errors.push(FieldError::required(field, "")),
            json_path => errors.extend(simple_path_problem(json_path, &field)),
        }
    }
}

fn check_subresources(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = subresources.at("scale");
    if !scale.is_object() {
        return;
    }
    for (key, prefix, under) in [
        ("specReplicasPath", ".spec.", "should be a json path under .spec"),
        ("statusReplicasPath", ".status.", "should be a json path under .status"),
    ] {
        let field = format!("{path}.scale.{key}");
        let json_path = scale.text(key);
        if json_path.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(problem) = simple_path_problem(json_path, &field) {
            errors.push(problem);
        } else if !json_path.starts_with(prefix) {
            errors.push(FieldError::invalid(field, json_path, under));
        }
    }
    let selector = scale.text("labelSelectorPath");
    if !selector.is_empty() {
        let field = format!("{path}.scale.labelSelectorPath");
        if let Some(problem) = simple_path_problem(selector, &field) {
            errors.push(problem);
        } else if !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(field, selector, detail));
        }
    }
}

fn check_conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.conversion.strategy";
    match conversion.text("strategy") {
        _ if conversion.is_null() => {}
        "" => errors.push(FieldError::required(field, "")),
        "None" => {
            let webhook = conversion.at("webhook");
            let detail = "should not be set when strategy is not set to Webhook";
            if webhook.has("clientConfig") {
                errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", detail));
            }
            if !webhook.items("conversionReviewVersions").is_empty() {
                errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", detail));
            }
        }
        "Webhook" => errors.push(FieldError::invalid(
            field,
            "Webhook",
            "conversion webhooks are not served by this API server; use None",
        )),
        other => errors.push(FieldError::not_supported(field, other, &["None", "Webhook"])),
    }
}

fn check_stored_versions(definition: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "status.storedVersions";
    let stored = definition.at("status").at("storedVersions");
    let list = stored.as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        let shown = if stored.is_array() { json!([]) } else { Value::Null };
        errors.push(FieldError::invalid(FIELD, shown, "must have at least one stored version"));
        return;
    }
    let versions = definition.at("spec").items("versions");
    for version in versions.iter().filter(|version| version.flag("storage")) {
        if !list.contains(version.at("name")) {
            let detail = format!("must have the storage version {}", version.text("name"));
            errors.push(FieldError::invalid(FIELD, stored.clone(), detail));
        }
    }
    for (index, name) in list.iter().enumerate() {
        if !versions.iter().any(|version| version.at("name") == name) {
            let name = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a \
                 storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{FIELD}[{index}]"), name, detail));
        }
    }
}

/// How a definition in a group of the Kubernetes community says that it was approved.
#[derive(PartialEq)]
enum Approval {
    Missing,
    Invalid,
    Given,
}

fn approval(definition: &Value) -> Approval {
    let annotation = definition.at("metadata").at("annotations").text(APPROVAL);
    let is_link = || url::parse_request_uri(annotation).is_ok_and(|url| !url.host.is_empty() && !url.scheme.is_empty());
    match annotation {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") || is_link() => Approval::Given,
        _ => Approval::Invalid,
    }
}

fn check_approval(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let group = new.at("spec").text("group");
    let is_protected =
        ["k8s.io", "kubernetes.io"].into_iter().any(|domain| group == domain || group.ends_with(&format!(".{domain}")));
    let state = approval(new);
    if !is_protected || old.is_some_and(|old| approval(old) == state) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let must = format!("protected groups must have approval annotation {}", go_quoted(APPROVAL));
    match state {
        Approval::Given => {}
        Approval::Missing => errors.push(FieldError::required(field, format!("{must}, {APPROVAL_HELP}"))),
        Approval::Invalid => {
            let annotation = new.at("metadata").at("annotations").text(APPROVAL);
            let detail = format!("{must} with either a URL or a reason starting with \"unapproved\", {APPROVAL_HELP}");
            errors.push(FieldError::invalid(field, annotation, detail));
        }
    }
}
