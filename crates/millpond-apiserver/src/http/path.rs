//! Parses a URL path to the resource that it names.

use std::borrow::Cow;

use http::Method;

use crate::status::ApiError;

/// The target that a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/version`, `/livez`, `/openapi/…`, anything that is not a resource.
    Plain(String),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    GroupVersion(String, String),
    /// A resource, an object or a subresource.
    Resource(ResourcePath),
}

/// The parts of a resource path.
#[derive(Debug, PartialEq, Eq, Default, Clone)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Reads a path.
pub(crate) fn parse(path: &str) -> Result<Target, ApiError> {
    let mut segments = Vec::with_capacity(8);
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        segments.push(decode(segment)?);
    }
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    Ok(match segments.as_slice() {
        ["api"] => Target::CoreVersions,
        ["apis"] => Target::Groups,
        ["api", version] => Target::GroupVersion(String::new(), (*version).to_owned()),
        ["apis", group] => Target::Group((*group).to_owned()),
        ["apis", group, version] => Target::GroupVersion((*group).to_owned(), (*version).to_owned()),
        ["api", version, rest @ ..] => resource("", version, rest)?,
        ["apis", group, version, rest @ ..] => resource(group, version, rest)?,
        _ => Target::Plain(path.trim_end_matches('/').to_owned()),
    })
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Result<Target, ApiError> {
    let mut path = ResourcePath { group: group.to_owned(), version: version.to_owned(), ..ResourcePath::default() };
    let rest = match rest {
        // A namespace itself, or one of its subresources.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => rest,
        ["namespaces", namespace, rest @ ..] => {
            path.namespace = Some((*namespace).to_owned());
            rest
        }
        rest => rest,
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(name), None),
        [plural, name, subresource] => (plural, Some(name), Some(subresource)),
        _ => return Err(ApiError::no_such_path()),
    };
    path.plural = (*plural).to_owned();
    path.name = name.map(|name| (*name).to_owned());
    path.subresource = subresource.map(|subresource| (*subresource).to_owned());
    Ok(Target::Resource(path))
}

/// The Kubernetes verb of a request for a resource.
pub(crate) fn verb(method: &Method, path: &ResourcePath, query: Option<&str>) -> &'static str {
    match (method, &path.name) {
        (&Method::GET | &Method::HEAD, _) if path.subresource.is_none() && is_watch(query) => "watch",
        (&Method::GET | &Method::HEAD, Some(_)) => "get",
        (&Method::GET | &Method::HEAD, None) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => "",
    }
}

/// The verb of a request for something that is no resource.
pub(crate) fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

fn is_watch(query: Option<&str>) -> bool {
    parameter(query, "watch").is_some_and(|value| !matches!(value.to_lowercase().as_str(), "false" | "0"))
}

/// The first value of a parameter of a query.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    let mut pairs = query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    if value.contains('+') {
        return decode(&value.replace('+', " ")).ok().map(|value| Cow::Owned(value.into_owned()));
    }
    decode(value).ok()
}

/// Undoes percent-encoding.
pub(crate) fn decode(text: &str) -> Result<Cow<'_, str>, ApiError> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
            let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
            decoded.push(byte.ok_or_else(|| ApiError::bad_request(format!("invalid URL escape in {text:?}")))?);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    let decoded = String::from_utf8(decoded);
    decoded.map(Cow::Owned).map_err(|_| ApiError::bad_request("URL is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> ResourcePath {
        match parse(path).unwrap() {
            Target::Resource(path) => path,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn resources_objects_and_subresources() {
        let pod = of("/api/v1/namespaces/a/pods/b/status");
        assert_eq!(
            (pod.namespace.as_deref(), &*pod.plural, pod.name.as_deref(), pod.subresource.as_deref()),
            (Some("a"), "pods", Some("b"), Some("status"))
        );
        let namespace = of("/api/v1/namespaces/a/finalize");
        assert_eq!(
            (namespace.namespace, &*namespace.plural, namespace.name.as_deref()),
            (None, "namespaces", Some("a"))
        );
        let all = of("/apis/apps/v1/deployments/");
        assert_eq!((&*all.group, &*all.plural, all.name), ("apps", "deployments", None));
        assert_eq!(of("/api/v1/nodes/a%2Fb").name.as_deref(), Some("a/b"));
    }

    #[test]
    fn everything_else() {
        assert_eq!(parse("/apis/").unwrap(), Target::Groups);
        assert_eq!(parse("/version").unwrap(), Target::Plain("/version".into()));
        assert_eq!(parse("/apis/a/v1").unwrap(), Target::GroupVersion("a".into(), "v1".into()));
        assert!(parse("/api/v1/namespaces/a/pods/b/c/d").is_err());
        assert!(parse("/api/v1/nodes/%zz").is_err());
    }
}
