//! From a request to an answer: who asks, what is named, which verb, and then the one handler for it.

mod body;
pub(crate) mod call;
pub(crate) mod create;
mod decode;
pub(crate) mod delete;
mod discovery;
mod logs;
mod ownership;
mod plain;
mod read;
mod respond;
mod reviews;
mod subresource;
pub(crate) mod update;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request};

use self::call::Call;
use self::respond::ApiResponse;
use self::update::Part;
use crate::auth::{self, Attributes, Identity};
use crate::http::negotiate::{self, Accepted};
use crate::http::path::{self, ResourcePath, Target};
use crate::http::query::Query;
use crate::http::warning;
use crate::resource::Verbs;
use crate::server::{Authenticated, Caller, Origin, Server};
use crate::status::ApiError;

/// Answers one request.
pub(crate) async fn handle<B>(server: Arc<Server>, request: Request<B>, caller: Caller) -> ApiResponse
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let started = tokio::time::Instant::now();
    let (parts, body) = request.into_parts();
    let mut told = Told::default();
    let result = answer(&server, &parts, body, caller, &mut told).await;
    let mut response = result.unwrap_or_else(|error| respond::error(&error));
    for value in warning::headers(&told.warnings) {
        response.headers_mut().append("warning", value);
    }
    if !told.user.is_empty() {
        response.extensions_mut().insert(Authenticated);
    }
    server.observe(&parts, &told, response.status(), started.elapsed());
    response
}

/// What is told about a request in metrics, logs and the audit log.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) verb: &'static str,
    pub(crate) user: String,
    pub(crate) path: Option<ResourcePath>,
    warnings: Vec<String>,
}

async fn answer<B>(
    server: &Arc<Server>,
    parts: &Parts,
    body: B,
    caller: Caller,
    told: &mut Told,
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
    let identity = auth::authenticate(&parts.headers, caller.identity.as_ref(), server)?;
    told.user.clone_from(&identity.user);
    match target {
        Target::Resource(path) => resource(server, parts, body, (identity, caller.origin), path, told).await,
        other => {
            told.verb = "get";
            authorize_plain(&identity)?;
            let _permit = server.intake.permit(caller.origin).await?;
            if !matches!(parts.method, Method::GET | Method::HEAD) {
                return Err(ApiError::method_not_allowed());
            }
            plain::answer(server, parts, other)
        }
    }
}

fn authorize_plain(identity: &Identity) -> Result<(), ApiError> {
    auth::authorize(
        identity,
        &Attributes { verb: "get", group: "", resource: "", subresource: "", namespace: "", name: "" },
    )
}

async fn resource<B>(
    server: &Arc<Server>,
    parts: &Parts,
    body: B,
    (identity, origin): (Identity, Origin),
    path: ResourcePath,
    told: &mut Told,
) -> Result<ApiResponse, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
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
    let verb = verb(&parts.method, &path, &query)?;
    told.verb = verb;
    told.path = Some(path.clone());
    auth::authorize(
        &identity,
        &Attributes {
            verb,
            group: &path.group,
            resource: &path.plural,
            subresource: path.subresource.as_deref().unwrap_or_default(),
            namespace: path.namespace.as_deref().unwrap_or_default(),
            name: path.name.as_deref().unwrap_or_default(),
        },
    )?;
    let accepted = match path.subresource.as_deref() {
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
    };
    if let Some(text) = &call.resource.deprecation {
        call.warnings.push(text.to_string());
    }
    let result = perform(&mut call, &body, verb).await;
    told.warnings = call.warnings;
    result
}

/// The Kubernetes verb of a request.
fn verb(method: &Method, path: &ResourcePath, query: &Query) -> Result<&'static str, ApiError> {
    Ok(match (method, &path.name) {
        (&Method::GET, _) if query.watch && path.subresource.is_none() => "watch",
        (&Method::GET, Some(_)) => "get",
        (&Method::GET, None) => "list",
        (&Method::POST, None) => "create",
        (&Method::POST, Some(_)) if path.subresource.is_some() => "create",
        (&Method::PUT, Some(_)) => "update",
        (&Method::PATCH, Some(_)) => "patch",
        (&Method::DELETE, Some(_)) if path.subresource.is_none() => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => return Err(ApiError::method_not_allowed()),
    })
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
        ("log", "get") if &*call.resource.kind == "Pod" => logs::get(call),
        ("scale", _) if subresources.scale.is_some() => subresource::handle(call, body, name).await,
        (name, _) if subresources.others.iter().any(|other| other.name == name) => {
            subresource::handle(call, body, name).await
        }
        ("status", _) => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::no_such_path()),
    }
}
