//! Which request is answered by what.

mod lists;
mod reads;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Value, json};

use crate::respond::{Body, Problem, full, json_of, json_with, protect, text};
use crate::session::{CODE_LIVES, IDLE, SESSION_LIVES, Session};
use crate::{Dashboard, User, actions, assets, decisions, guard, rights, stream, what_if};

/// Below this is the API.
const BASE: &str = "/ui/api/v1";
/// Bytes of a request.
const MAX_BODY: usize = 1 << 20;

/// A request that was read and is one of ours.
pub(crate) struct Call {
    pub(crate) dashboard: Dashboard,
    pub(crate) session: Arc<Session>,
    pub(crate) query: BTreeMap<String, Vec<String>>,
    pub(crate) body: Bytes,
}

impl Call {
    /// The first value of a parameter.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name)?.first().map(String::as_str)
    }

    /// A parameter that is a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Problem> {
        let wrong = |_| Problem::bad_request(format!("`{name}` is a whole number"));
        self.query(name).map(str::parse).transpose().map_err(wrong)
    }

    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Problem::bad_request(format!("the body is not as it should be: {error}")))
    }

    /// Refuses changes where nothing may be changed.
    pub(crate) fn require_writable(&self) -> Result<(), Problem> {
        if self.dashboard.0.options.read_only {
            return Err(Problem::forbidden("this dashboard is read-only"));
        }
        Ok(())
    }
}

impl Dashboard {
    /// Answers a request. It never fails: what is wrong is told in the answer.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + fmt::Display,
    {
        let mut response = self.route(request).await.unwrap_or_else(|problem| problem.response());
        protect(&mut response);
        response
    }

    async fn route<B>(&self, request: Request<B>) -> Result<Response<Body>, Problem>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        guard::check_host(&parts, &self.0.options.hosts)?;
        let path = parts.uri.path().to_owned();
        let Some(path) = path.strip_prefix(BASE) else { return self.page(&parts) };
        guard::check_origin(&parts, &self.0.options.hosts)?;
        let bearer = bearer(&parts);
        if (&parts.method, path) == (&Method::POST, "/session") {
            return self.log_in(&read(body).await?).await;
        }
        if (&parts.method, path) == (&Method::POST, "/code") {
            return self.code(bearer).await;
        }
        let id = bearer.ok_or_else(logged_out)?;
        let session = self.0.sessions.find(id).ok_or_else(logged_out)?;
        if path == "/session" && parts.method == Method::DELETE {
            self.0.sessions.end(id);
            return Ok(full(StatusCode::NO_CONTENT, Bytes::new()));
        }
        let last = parts.headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let query = query(parts.uri.query().unwrap_or_default());
        let call = Call { dashboard: self.clone(), session, query, body: read(body).await? };
        let segments: Vec<String> = path.split('/').skip(1).map(unescaped).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        self.call(&parts.method, &segments, &call, last).await
    }

    async fn call(
        &self,
        method: &Method,
        path: &[&str],
        call: &Call,
        last: Option<String>,
    ) -> Result<Response<Body>, Problem> {
        if let ["me"] = path {
            get(method)?;
            return Ok(json_of(&reads::me(call).await?));
        }
        rights::require_view(&call.session).await?;
        let answer = match *path {
            ["what-if"] => {
                post(method)?;
                what_if::ask(call).await?
            }
            ["what-if", id, "apply"] => {
                post(method)?;
                what_if::apply(call, id).await?
            }
            ["actions"] => {
                post(method)?;
                actions::act(call).await?
            }
            ["stream"] => {
                get(method)?;
                let last = last.as_deref().or_else(|| call.query("last"));
                return stream::open(&self.0.hub, Arc::clone(&call.session), call.query("topics"), last);
            }
            ["decisions", id, "snapshot"] => {
                get(method)?;
                return decisions::snapshot(call, id);
            }
            _ => {
                get(method)?;
                reads::read(call, path).await?
            }
        };
        Ok(json_of(&answer))
    }

    /// The page and its files.
    fn page(&self, parts: &Parts) -> Result<Response<Body>, Problem> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(Problem::wrong_method());
        }
        let path = parts.uri.path();
        let mut response = match path.strip_prefix("/assets/") {
            _ if path == "/healthz" => text(StatusCode::OK, "ok"),
            _ if path.starts_with("/ui/") => return Err(Problem::not_found(format!("there is nothing at {path}"))),
            Some(name) => assets::file(name, &parts.headers),
            None => assets::index(&parts.headers),
        };
        if parts.method == Method::HEAD {
            *response.body_mut() = full(StatusCode::OK, Bytes::new()).into_body();
        }
        Ok(response)
    }

    async fn log_in(&self, body: &Bytes) -> Result<Response<Body>, Problem> {
        let asked: Value = serde_json::from_slice(body)
            .map_err(|_| Problem::bad_request("the body is `{\"code\": …}` or `{\"token\": …}`"))?;
        let user = match (asked["code"].as_str(), asked["token"].as_str()) {
            (Some(code), _) => self
                .0
                .sessions
                .redeem(code)
                .ok_or_else(|| Problem::unauthorized("this code was used already, or is older than 10 minutes"))?,
            (None, Some(token)) => self.user_of(token).await?,
            (None, None) => return Err(Problem::bad_request("the body is `{\"code\": …}` or `{\"token\": …}`")),
        };
        let told = json!({ "name": user.name, "groups": user.groups });
        let session = self.0.sessions.begin(user);
        let answer = json!({
            "session": session,
            "expiresAt": self.now() + SESSION_LIVES.as_secs() as i64,
            "idleSeconds": IDLE.as_secs(),
            "user": told,
        });
        Ok(json_with(StatusCode::CREATED, &answer))
    }

    async fn user_of(&self, token: &str) -> Result<User, Problem> {
        let user = self.0.watched.authenticate(token.to_owned()).await;
        user.ok_or_else(|| Problem::unauthorized("the token is not valid"))
    }

    /// A code for a user who is logged in, or has a token of Kubernetes.
    async fn code(&self, bearer: Option<&str>) -> Result<Response<Body>, Problem> {
        let bearer = bearer.ok_or_else(logged_out)?;
        let user = match self.0.sessions.find(bearer) {
            Some(session) => session.user.clone(),
            None => self.user_of(bearer).await?,
        };
        let code = self.0.sessions.mint(user);
        let url = format!("{}/#code={code}", self.0.options.url);
        let expires_at = self.now() + CODE_LIVES.as_secs() as i64;
        Ok(json_with(StatusCode::CREATED, &json!({ "code": code, "url": url, "expiresAt": expires_at })))
    }
}

/// So that hyper and tower can use it.
impl<B> tower_service::Service<Request<B>> for Dashboard
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + fmt::Display,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = futures::future::BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let dashboard = self.clone();
        Box::pin(async move { Ok(dashboard.answer(request).await) })
    }
}

fn get(method: &Method) -> Result<(), Problem> {
    if *method == Method::GET { Ok(()) } else { Err(Problem::wrong_method()) }
}

fn post(method: &Method) -> Result<(), Problem> {
    if *method == Method::POST { Ok(()) } else { Err(Problem::wrong_method()) }
}

fn logged_out() -> Problem {
    Problem::unauthorized("log in first: the session is missing, has ended, or was idle for an hour")
}

fn bearer(parts: &Parts) -> Option<&str> {
    let (scheme, token) = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

async fn read<B>(body: B) -> Result<Bytes, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Box::pin(Limited::new(body, MAX_BODY).collect()).await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::too_large()),
        Err(_) => Err(Problem::bad_request("the body was cut off")),
    }
}

fn query(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        all.entry(unescaped(name)).or_default().push(unescaped(&value.replace('+', " ")));
    }
    all
}

/// A part of a URL without its percent signs; one that is no sequence of two digits stays as it is.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
