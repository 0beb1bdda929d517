//! Paths that are not resources: health, version, metrics, discovery, OpenAPI.

use std::sync::Arc;

use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::request::Parts;
use serde_json::{Value, json};

use super::discovery;
use super::respond::{self, ApiResponse};
use crate::KUBERNETES_VERSION;
use crate::http::ApiBody;
use crate::http::path::Target;
use crate::server::Server;
use crate::status::ApiError;

/// Cache lifetime of a document whose URL contains a hash of its text.
const YEAR: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);

/// Health answers, which need no identity, as with kube-apiserver.
pub(crate) fn health(server: &Server, path: &str, query: Option<&str>) -> Option<ApiResponse> {
    if !matches!(path, "/livez" | "/readyz" | "/healthz") {
        return None;
    }
    let verbose = query.is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    let mut checks = vec![("ping", None), ("store", server.store.broken())];
    if path == "/readyz" {
        checks.push(("shutdown", server.shutdown.is_cancelled().then(|| Arc::from("the server is shutting down"))));
    }
    let closed = if path == "/readyz" { server.closed_readiness_gates() } else { Vec::new() };
    checks.extend(closed.iter().map(|gate| (gate.as_str(), Some(Arc::from("not there yet")))));
    let well = checks.iter().all(|(_, problem)| problem.is_none());
    let status = if well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let mut text = String::new();
    if verbose || !well {
        for (name, problem) in &checks {
            match problem {
                None => text += &format!("[+]{name} ok\n"),
                Some(problem) => text += &format!("[-]{name} failed: {problem}\n"),
            }
        }
        text += &format!("{} check {}\n", &path[1..], if well { "passed" } else { "failed" });
    } else {
        text.push_str("ok");
    }
    Some(respond::with_type(status, "text/plain; charset=utf-8", ApiBody::whole(text)))
}

/// Responds to requests for everything that is not a resource.
pub(crate) fn answer(server: &Server, parts: &Parts, target: Target) -> Result<ApiResponse, ApiError> {
    let resources = server.registry.current();
    let ok = |value: Value| Ok(respond::json(StatusCode::OK, &value));
    match target {
        Target::CoreVersions | Target::Groups => {
            let core = target == Target::CoreVersions;
            match discovery::aggregated_version(&parts.headers) {
                Some(version) => Ok(aggregated(parts, version, &discovery::aggregated(&resources, core, version))),
                None if core => ok(discovery::core_versions(&server.options.advertised_address)),
                None => ok(discovery::groups(&resources)),
            }
        }
        Target::Group(name) => ok(discovery::group(&resources, &name)?),
        Target::GroupVersion(group, version) => ok(discovery::group_version(&resources, &group, &version)?),
        Target::Plain(path) => plain(server, parts, &path),
        Target::Resource(_) => Err(ApiError::no_such_path()),
    }
}

fn aggregated(parts: &Parts, version: &str, document: &Value) -> ApiResponse {
    let text = document.to_string();
    let tag = format!("\"{:X}\"", hash(text.as_bytes()));
    let media_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    tagged(parts, &tag, media_type, text)
}

/// Responds with 304 if the client has this version.
fn tagged(parts: &Parts, tag: &str, media_type: &'static str, text: impl Into<bytes::Bytes>) -> ApiResponse {
    let known = parts.headers.get(IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let mut response = if known {
        respond::with_type(StatusCode::NOT_MODIFIED, media_type, ApiBody::empty())
    } else {
        respond::with_type(StatusCode::OK, media_type, ApiBody::whole(text))
    };
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn plain(server: &Server, parts: &Parts, path: &str) -> Result<ApiResponse, ApiError> {
    match path {
        "" | "/" => {
            let resources = server.registry.current();
            let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
            for (name, group) in resources.groups.iter().filter(|(name, _)| !name.is_empty()) {
                paths.push(format!("/apis/{name}"));
                paths.extend(group.versions.iter().map(|version| format!("/apis/{name}/{}", version.version)));
            }
            paths.extend(
                ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
                    .map(str::to_owned),
            );
            Ok(respond::json(StatusCode::OK, &json!({"paths": paths})))
        }
        "/version" => Ok(respond::json(StatusCode::OK, &version())),
        "/metrics" => Ok(respond::with_type(
            StatusCode::OK,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ApiBody::whole(server.metrics_text()),
        )),
        "/openapi/v2" => openapi_v2(server, parts),
        "/openapi/v3" => Ok(respond::json(StatusCode::OK, &server.openapi.index(&server.registry.current()))),
        _ => match path.strip_prefix("/openapi/v3/") {
            Some(group_version) => openapi_v3(server, parts, group_version),
            None => Err(ApiError::page_not_found()),
        },
    }
}

fn openapi_v3(server: &Server, parts: &Parts, group_version: &str) -> Result<ApiResponse, ApiError> {
    let (group, version) = match group_version.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return Err(ApiError::no_such_path()),
    };
    let document =
        server.openapi.document(&server.registry.current(), &group, &version).ok_or_else(ApiError::no_such_path)?;
    let hash = document.tag.trim_matches('"');
    let asked = parts.uri.query().into_iter().flat_map(|query| query.split('&')).find_map(|p| p.strip_prefix("hash="));
    if asked.is_some_and(|asked| asked != hash) {
        let address = format!("/openapi/v3/{group_version}?hash={hash}");
        let mut response = respond::with_type(StatusCode::MOVED_PERMANENTLY, "application/json", ApiBody::empty());
        response.headers_mut().insert(LOCATION, HeaderValue::from_str(&address).map_err(ApiError::internal)?);
        return Ok(response);
    }
    let mut response = tagged(parts, &document.tag, document.media_type, document.text);
    if asked.is_some() {
        // The address changes with the text, so what is behind it may be kept.
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let expires = (server.clock.now() + YEAR).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        response.headers_mut().insert(EXPIRES, HeaderValue::from_str(&expires).map_err(ApiError::internal)?);
    }
    Ok(response)
}

fn openapi_v2(server: &Server, parts: &Parts) -> Result<ApiResponse, ApiError> {
    let document = server.openapi.swagger(&server.registry.current(), &parts.headers)?;
    Ok(tagged(parts, &document.tag, document.media_type, document.text))
}

/// The Kubernetes version of this API, which clients compare with their own.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": format!("{KUBERNETES_VERSION}+millpond-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
