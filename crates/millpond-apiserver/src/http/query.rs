//! Query parameters of requests, checked once.

use crate::http::path::decode;
use crate::print::is_printable;
use crate::status::{ApiError, FieldError};

/// The parameters that any request may carry.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) watch: bool,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) timeout_s: Option<u64>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: Option<bool>,
    pub(crate) pretty: bool,
    pub(crate) include_object: Option<String>,
    pub(crate) grace_period_s: Option<i64>,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    /// For logs: the number of last lines.
    pub(crate) tail_lines: Option<usize>,
    /// Values of `dryRun` and `fieldValidation` that mean nothing.
    unknown_dry_run: Option<String>,
    unknown_field_validation: Option<String>,
}

/// Longer names of managers are refused.
const MAX_MANAGER_BYTES: usize = 128;

/// The treatment of unknown and duplicate fields.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Dropped without a word.
    Ignore,
    /// Dropped with a Warning header.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

impl Query {
    /// Reads the query part of a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            query.set(&decode(key)?, &decode(&value)?)?;
        }
        Ok(query)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ApiError> {
        match key {
            "labelSelector" => value.clone_into(&mut self.label_selector),
            "fieldSelector" => value.clone_into(&mut self.field_selector),
            "watch" => self.watch = boolean(value),
            "resourceVersion" => value.clone_into(&mut self.resource_version),
            "resourceVersionMatch" => value.clone_into(&mut self.resource_version_match),
            "tailLines" => self.tail_lines = Some(number::<i64>(value)?.max(0) as usize),
            "limit" => self.limit = number::<i64>(value)?.max(0) as usize,
            "continue" => value.clone_into(&mut self.continue_token),
            "timeoutSeconds" => self.timeout_s = u64::try_from(number::<i64>(value)?).ok(),
            "allowWatchBookmarks" => self.allow_bookmarks = boolean(value),
            "sendInitialEvents" => self.send_initial_events = Some(boolean(value)),
            "dryRun" => self.set_dry_run(value),
            "fieldManager" => value.clone_into(&mut self.field_manager),
            "fieldValidation" => self.set_field_validation(value),
            "force" => self.force = Some(boolean(value)),
            "pretty" => self.pretty = boolean(value),
            "includeObject" => self.include_object = Some(value.to_owned()),
            "gracePeriodSeconds" => self.grace_period_s = Some(number(value)?),
            "propagationPolicy" => self.propagation_policy = Some(value.to_owned()),
            "orphanDependents" => self.orphan_dependents = Some(boolean(value)),
            _ => {}
        }
        Ok(())
    }

    fn set_dry_run(&mut self, value: &str) {
        match value {
            "" => {}
            "All" => self.dry_run = true,
            other => self.unknown_dry_run = Some(other.to_owned()),
        }
    }

    fn set_field_validation(&mut self, value: &str) {
        self.field_validation = match value {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                self.unknown_field_validation = Some(other.to_owned());
                FieldValidation::Warn
            }
        };
    }

    /// Refuses options of a write that mean nothing; `patch` is the media type of one.
    pub(crate) fn check_options(&self, verb: &str, patch: &str) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        let kind = match verb {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            "patch" => {
                self.check_patch(patch, &mut errors);
                "PatchOptions"
            }
            "delete" | "deletecollection" => "DeleteOptions",
            _ => return Ok(()),
        };
        if kind != "DeleteOptions" {
            self.check_manager(&mut errors);
        }
        if let Some(unknown) = &self.unknown_dry_run {
            errors.push(FieldError::not_supported("dryRun", vec![unknown.as_str()], &["All"]));
        }
        if let Some(unknown) = self.unknown_field_validation.as_deref().filter(|_| kind != "DeleteOptions") {
            let known = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported("fieldValidation", unknown, &known));
        }
        if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", kind, "", &errors)) }
    }

    /// An apply must name its field manager; only an apply may force.
    fn check_patch(&self, media_type: &str, errors: &mut Vec<FieldError>) {
        if media_type.starts_with("application/apply-patch+") {
            if self.field_manager.is_empty() {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"));
            }
        } else if self.force.is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
    }

    fn check_manager(&self, errors: &mut Vec<FieldError>) {
        let manager = self.field_manager.as_str();
        if manager.len() > MAX_MANAGER_BYTES {
            errors.push(FieldError::too_long("fieldManager", MAX_MANAGER_BYTES));
        }
        for (at, character) in manager.char_indices().filter(|(_, character)| !is_printable(*character)) {
            let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(character));
            errors.push(FieldError::invalid("fieldManager", manager, detail));
        }
    }
}

/// Kubernetes reads anything but these as true.
fn boolean(value: &str) -> bool {
    !matches!(value, "0" | "false" | "False" | "FALSE" | "f" | "F")
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, ApiError> {
    value.parse().map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {value:?}: invalid syntax")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_typed() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&limit=5&watch&dryRun=All").unwrap();
        assert_eq!((query.label_selector.as_str(), query.limit), ("a=b,c in (d)", 5));
        assert!(query.watch && query.dry_run);
        assert_eq!(Query::parse("limit=x").unwrap_err().code, 400);
        assert_eq!(Query::parse("fieldValidation=Strict").unwrap().field_validation, FieldValidation::Strict);
    }

    #[test]
    fn options_are_refused_in_kubernetes_words() {
        let apply = "application/apply-patch+yaml";
        let refusal = |query: &str, verb: &str, patch: &str| {
            Query::parse(query).unwrap().check_options(verb, patch).err().map_or(String::new(), |error| error.message)
        };
        let long = format!("fieldManager={}", "m".repeat(129));
        for (query, verb, patch, expected) in [
            ("fieldManager=m", "create", "", ""),
            ("dryRun=Some", "list", "", ""),
            (
                "dryRun=Some",
                "delete",
                "",
                r#"DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#,
            ),
            (
                &long,
                "create",
                "",
                r#"CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes"#,
            ),
            (
                "fieldManager=a%07b&force=true",
                "patch",
                "application/merge-patch+json",
                "PatchOptions.meta.k8s.io \"\" is invalid: [force: Forbidden: may not be specified for non-apply patch, \
                 fieldManager: Invalid value: \"a\\ab\": invalid character U+0007 (at position 1)]",
            ),
            (
                "force=true",
                "patch",
                apply,
                r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
            ),
            ("force=true&fieldManager=m", "patch", apply, ""),
            (
                "fieldValidation=Loud",
                "update",
                "",
                r#"UpdateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Loud": supported values: "", "Ignore", "Strict", "Warn""#,
            ),
        ] {
            assert_eq!(refusal(query, verb, patch), expected, "{query}");
        }
    }
}
