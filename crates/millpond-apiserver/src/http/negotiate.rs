//! Content negotiation: the format of an answer, and the format of a body.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::status::ApiError;

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The content of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects.
    Plain,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata, or its list.
    PartialMetadata,
}

/// The chosen representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) encoding: Encoding,
    pub(crate) form: Form,
}

impl Accepted {
    /// Objects in JSON.
    pub(crate) const JSON: Self = Self { encoding: Encoding::Json, form: Form::Plain };
}

/// One alternative of an Accept header.
#[derive(Debug)]
pub(crate) struct Alternative<'a> {
    pub(crate) media_type: &'a str,
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
}

impl Alternative<'_> {
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// The alternatives of the Accept headers, best first.
pub(crate) fn alternatives(headers: &HeaderMap) -> Vec<Alternative<'_>> {
    let mut found: Vec<(f32, Alternative<'_>)> = Vec::new();
    for text in headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()) {
        for clause in text.split(',').map(str::trim).filter(|clause| !clause.is_empty()) {
            let mut parts = clause.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let quality = parameters.iter().find(|(key, _)| *key == "q").and_then(|(_, q)| q.parse().ok());
            found.push((quality.unwrap_or(1.0), Alternative { media_type, parameters }));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, alternative)| alternative).collect()
}

/// Chooses the representation of an answer.
pub(crate) fn accepted(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    let alternatives = alternatives(headers);
    if alternatives.is_empty() {
        return Ok(Accepted::JSON);
    }
    alternatives.iter().find_map(choose).ok_or_else(not_acceptable)
}

/// 406.
pub(crate) fn not_acceptable() -> ApiError {
    let mut error = ApiError::new(
        http::StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
    );
    error.details = Some(Box::default());
    error
}

fn choose(alternative: &Alternative<'_>) -> Option<Accepted> {
    let encoding = match alternative.media_type {
        "application/json" | "*/*" | "application/*" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let version = alternative.parameter("v").unwrap_or("v1");
    let group = alternative.parameter("g").unwrap_or("meta.k8s.io");
    let form = match alternative.parameter("as") {
        None => Form::Plain,
        Some(_) if version != "v1" || group != "meta.k8s.io" => return None,
        Some("Table") => Form::Table,
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Form::PartialMetadata,
        Some(_) => return None,
    };
    Some(Accepted { encoding, form })
}

/// The media type of a body, without parameters; JSON when there is none.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("application/json");
    text.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &str) -> Option<Accepted> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        accepted(&headers).ok()
    }

    #[test]
    fn kubectl_and_go_clients_get_what_they_ask_for() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(of(table).unwrap().form, Form::Table);
        assert_eq!(of("application/vnd.kubernetes.protobuf,application/json").unwrap(), Accepted::JSON);
        assert_eq!(of("application/vnd.kubernetes.protobuf, */*").unwrap(), Accepted::JSON);
        assert_eq!(of("application/yaml").unwrap().encoding, Encoding::Yaml);
        assert_eq!(of("application/json;q=0.1, application/yaml").unwrap().encoding, Encoding::Yaml);
        assert!(of("application/vnd.kubernetes.protobuf").is_none());
        assert!(of("text/html").is_none());
    }
}
