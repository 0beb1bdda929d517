//! Query parameters of requests, checked once.

use crate::http::path::decode;
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
}

/// What happens to unknown and duplicate fields.
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
            "limit" => self.limit = number::<i64>(value)?.max(0) as usize,
            "continue" => value.clone_into(&mut self.continue_token),
            "timeoutSeconds" => self.timeout_s = Some(number(value)?),
            "allowWatchBookmarks" => self.allow_bookmarks = boolean(value),
            "sendInitialEvents" => self.send_initial_events = Some(boolean(value)),
            "dryRun" => self.set_dry_run(value)?,
            "fieldManager" => value.clone_into(&mut self.field_manager),
            "fieldValidation" => self.set_field_validation(value)?,
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

    fn set_dry_run(&mut self, value: &str) -> Result<(), ApiError> {
        match value {
            "" => {}
            "All" => self.dry_run = true,
            other => {
                let error = FieldError::not_supported("dryRun", vec![other], &["All"]);
                return Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", &[error]));
            }
        }
        Ok(())
    }

    fn set_field_validation(&mut self, value: &str) -> Result<(), ApiError> {
        self.field_validation = match value {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let error = FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
                return Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", &[error]));
            }
        };
        Ok(())
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
        assert_eq!(Query::parse("dryRun=Some").unwrap_err().code, 422);
        assert_eq!(Query::parse("fieldValidation=Strict").unwrap().field_validation, FieldValidation::Strict);
    }
}
