//! Dispatches a request: authenticates the user, resolves path and verb, and calls the handler.

mod body;
pub(crate) mod call;
pub(crate) mod create;
mod decode;
pub(crate) mod delete;
mod discovery;
pub(crate) mod kubelet;
mod logs;
mod ownership;
mod plain;
pub(crate) mod read;
mod respond;
mod review_selectors;
mod reviews;
mod subresource;
pub(crate) mod update;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};

use self::call::Call;
use self::respond::ApiResponse;
use self::update::Part;
use crate::auth::{self, ANONYMOUS, Attributes, Identity, impersonation};
use crate::http::negotiate::{self, Accepted};
use crate::http::path::{self, ResourcePath, Target};
use crate::http::query::Query;
use crate::http::warning;
use crate::resource::Verbs;
use crate::selector::FieldSelector;
use crate::server::{Authenticated, Caller, Origin, Server};
use crate::status::ApiError;

/// Responds to one request.
pub(crate) async fn handle<B>(server: Arc<Server>, request: Request<B>, caller: Caller) -> ApiResponse
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let started = tokio::time::Instant::now();
    let (parts, body) = request.into_parts();
    let mut request_log = RequestLog::default();
    let result = answer(&server, &parts, body, caller, &mut request_log).await;
    let mut response = result.unwrap_or_else(|error| respond::error(&error));
    for value in warning::headers(&request_log.warnings) {
        response.headers_mut().append("warning", value);
    }
    if request_log.has_credentials {
        response.extensions_mut().insert(Authenticated);
    }
    server.observe(&parts, &request_log, response.status(), started.elapsed());
    response
}

/// The facts about a request for metrics, logs and the audit log.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    pub(crate) verb: &'static str,
    pub(crate) user: String,
    has_credentials: bool,
    pub(crate) path: Option<ResourcePath>,
    warnings: Vec<String>,
    /// Annotations that policies add to the audit log.
    pub(crate) annotations: BTreeMap<String, String>,
}

async fn answer<B>(
    server: &Arc<Server>,
    parts: &Parts,
    body: B,
    caller: Caller,
    request_log: &mut RequestLog,
) -> Result<ApiResponse, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let target = path::parse(parts.uri.path())?;
    if let Target::Plain(path) = &target
        && let Some(response) = plain::health(server, path, parts.uri.query())
    {
        return Ok(response);
    }
    let identity = auth::authenticate(&parts.headers, &caller, server)?;
    request_log.user.clone_from(&identity.user);
    request_log.has_credentials = identity.user != ANONYMOUS;
    match target {
        Target::Resource(path) => resource(server, parts, body, (identity, caller.origin), path, request_log).await,
        other => {
            let verb = path::method_verb(&parts.method);
            request_log.verb = verb;
            let attributes = Attributes { verb, path: parts.uri.path(), ..Attributes::default() };
            let identity = match impersonation::wanted(&parts.headers)? {
                Some(wanted) => impersonation::assume(server, &identity, &wanted, &attributes)?,
                None => identity,
            };
            auth::authorize(server, &identity, &attributes)?;
            let _permit = server.intake.permit(caller.origin).await?;
            if !matches!(parts.method, Method::GET | Method::HEAD) {
                return Err(ApiError::method_not_allowed());
            }
            plain::answer(server, parts, other)
        }
    }
}

async fn resource<B>(
    server: &Arc<Server>,
    parts: &Parts,
    body: B,
    (identity, origin): (Identity, Origin),
    path: ResourcePath,
    request_log: &mut RequestLog,
) -> Result<ApiResponse, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let verb = path::verb(&parts.method, &path, parts.uri.query());
    request_log.verb = verb;
    let wanted = impersonation::wanted(&parts.headers)?;
    let identity = authorize_resource(server, parts, (identity, wanted.as_ref()), &path, verb)?;
    let resources = server.registry.current();
    let known = resources.version(&path.group, &path.version).ok_or_else(ApiError::page_not_found)?;
    let resource = known.resources.get(path.plural.as_str()).cloned().ok_or_else(ApiError::no_such_path)?;
    drop(resources);
    if path.namespace.is_some() && !resource.namespaced {
        return Err(ApiError::no_such_path());
    }
    if path.name.is_some() && path.namespace.is_none() && resource.namespaced {
        return Err(ApiError::no_such_path());
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    check_method(&parts.method, &path)?;
    request_log.path = Some(path.clone());
    let accepted = match path.subresource.as_deref() {
        Some("log" | "exec" | "attach" | "portforward") => Accepted::JSON,
        Some("scale") => Accepted { form: negotiate::Form::Plain, ..negotiate::accepted(&parts.headers)? },
        _ => negotiate::accepted(&parts.headers)?,
    };
    let body = body::read(server, &parts.headers, body, &identity.user, origin).await?;
    let _permit = server.intake.permit(origin).await?;
    let mut call = Call {
        server: server.clone(),
        resource,
        path,
        query,
        method: parts.method.clone(),
        headers: parts.headers.clone(),
        identity,
        accepted,
        body_bytes: body.len(),
        warnings: Vec::new(),
        annotations: BTreeMap::new(),
        raw_query: parts.uri.query().map(str::to_owned),
        upgrade: parts.extensions.get().cloned(),
    };
    if let Some(text) = &call.resource.deprecation {
        call.warnings.push(text.to_string());
    }
    let result = perform(&mut call, &body, verb).await;
    request_log.warnings = call.warnings;
    request_log.annotations = call.annotations;
    result
}

/// Whether the identity, or the one that it impersonates, may perform the request; returns the acting identity. This is
/// checked first, so that a user without the right learns nothing about what exists.
fn authorize_resource(
    server: &Server,
    parts: &Parts,
    (identity, wanted): (Identity, Option<&Identity>),
    path: &ResourcePath,
    verb: &str,
) -> Result<Identity, ApiError> {
    let selects = matches!(verb, "list" | "watch" | "deletecollection");
    let fields = if selects { path::parameter(parts.uri.query(), "fieldSelector") } else { None };
    let selected = fields.as_deref().filter(|_| path.name.is_none() && verb != "deletecollection");
    let selected = selected.and_then(FieldSelector::required_name);
    let attributes = Attributes {
        verb,
        path: "",
        group: &path.group,
        resource: &path.plural,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        // For a namespace itself, its own name is the namespace of the check.
        namespace: match (&path.namespace, &path.name) {
            (Some(namespace), _) => namespace,
            (None, Some(name)) if path.group.is_empty() && path.plural == "namespaces" => name,
            _ => "",
        },
        name: path.name.as_deref().or(selected.as_deref()).unwrap_or_default(),
        fields: fields.as_deref().unwrap_or_default(),
    };
    let identity = match wanted {
        Some(wanted) => impersonation::assume(server, &identity, wanted, &attributes)?,
        None => identity,
    };
    auth::authorize(server, &identity, &attributes)?;
    Ok(identity)
}

/// Refuses methods that no resource has.
fn check_method(method: &Method, path: &ResourcePath) -> Result<(), ApiError> {
    match (method, &path.name, &path.subresource) {
        (&Method::GET | &Method::PUT | &Method::PATCH, Some(_), _)
        | (&Method::GET | &Method::POST | &Method::DELETE, None, _)
        | (&Method::POST, Some(_), Some(_))
        | (&Method::DELETE, Some(_), None) => Ok(()),
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn perform(call: &mut Call, body: &Bytes, verb: &str) -> Result<ApiResponse, ApiError> {
    call.query.check_options(verb, negotiate::content_type(&call.headers))?;
    if let Some(subresource) = call.path.subresource.clone() {
        return perform_subresource(call, body, verb, &subresource).await;
    }
    if call.resource.verbs == Verbs::CreateOnly && verb != "create" {
        return Err(ApiError::method_not_allowed());
    }
    match verb {
        "get" => read::get(call),
        "list" => read::list(call),
        "watch" => watch::watch(call),
        "create" if &*call.resource.kind == "Binding" => subresource::create_binding(call, body).await,
        "create" => create::create(call, body).await,
        "update" => update::put(call, body, Part::Main).await,
        "patch" => update::patch(call, body, Part::Main).await,
        "delete" => delete::delete(call, body).await,
        "deletecollection" if call.resource.verbs == Verbs::All => delete::delete_collection(call, body).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn perform_subresource(call: &mut Call, body: &Bytes, verb: &str, name: &str) -> Result<ApiResponse, ApiError> {
    let subresources = &call.resource.subresources;
    match (name, verb) {
        ("status", _) if !subresources.status => Err(ApiError::no_such_path()),
        ("status", "get") => read::get(call),
        ("status", "update") => update::put(call, body, Part::Status).await,
        ("status", "patch") => update::patch(call, body, Part::Status).await,
        // Logs of pods that this process plays; a kubelet has all others.
        ("log", "get") if call.server.own_log(call.namespace(), call.name()).is_some() => logs::get(call),
        ("scale", _) if subresources.scale.is_some() => subresource::handle(call, body, name).await,
        (name, _) if subresources.others.iter().any(|other| other.name == name) => {
            subresource::handle(call, body, name).await
        }
        ("status", _) => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::no_such_path()),
    }
}
