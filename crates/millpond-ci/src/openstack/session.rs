//! A session with Keystone: a token, the catalogue of services, and requests with both.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::CloudError;
use super::settings::{Auth, CloudSettings};

/// A body to send.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// How long an answer without an image may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The largest answer that is read: a page of images with their properties.
const LARGEST_ANSWER: usize = 32 << 20;

/// A cloud that is logged in to when it is first used.
pub(crate) struct Session {
    settings: CloudSettings,
    region: Option<String>,
    client: Client<HttpsConnector<HttpConnector>, Body>,
    login: Mutex<Option<Login>>,
}

/// A token and what it opens.
#[derive(Clone)]
struct Login {
    token: String,
    catalog: Arc<Value>,
}

/// A service of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Nova: servers.
    Compute,
    /// Glance: images.
    Image,
    /// Neutron: networks.
    Network,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Compute => "Nova",
            Self::Image => "Glance",
            Self::Network => "Neutron",
        }
    }

    /// Its type in the catalogue.
    fn kind(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Image => "image",
            Self::Network => "network",
        }
    }

    fn things(self) -> &'static str {
        match self {
            Self::Compute => "servers",
            Self::Image => "images",
            Self::Network => "networks",
        }
    }

    /// What follows an address that has no version.
    fn version(self) -> &'static str {
        match self {
            Self::Compute => "v2.1",
            Self::Image => "v2",
            Self::Network => "v2.0",
        }
    }
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Its body; null if that is no JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The error message of a service that refuses a request.
    pub(crate) fn problem(&self, service: Service, what: &str) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.chars().filter(|letter| !letter.is_control()).take(200).collect();
        format!("{what}: {} answers {} {text}", service.name(), self.status)
    }
}

impl Session {
    pub(crate) fn new(settings: CloudSettings, region: Option<&str>) -> Result<Self, CloudError> {
        if settings.verify == Some(false) {
            let problem = "clouds.yaml has `verify: false`; name the CA with `cacert` instead";
            return Err(CloudError::Permanent(problem.to_owned()));
        }
        let tls = tls(&settings)?;
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let region = region.map(ToOwned::to_owned).or_else(|| settings.region_name.clone());
        Ok(Self { settings, region, client, login: Mutex::default() })
    }

    /// The login of now, or a new one.
    async fn login(&self) -> Result<Login, CloudError> {
        let mut login = self.login.lock().await;
        if let Some(login) = &*login {
            return Ok(login.clone());
        }
        Ok(login.insert(self.log_in().await?).clone())
    }

    async fn forget(&self, old: &Login) {
        let mut login = self.login.lock().await;
        if login.as_ref().is_some_and(|login| login.token == old.token) {
            *login = None;
        }
    }

    /// Whether the catalogue has a service.
    pub(crate) async fn has(&self, service: Service) -> Result<bool, CloudError> {
        Ok(self.url(&self.login().await?, service).is_ok())
    }

    /// A request to a service; with a new token if the old one has expired.
    pub(crate) async fn call(
        &self,
        service: Service,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, CloudError> {
        for attempt in 0..2 {
            let login = self.login().await?;
            let url = self.url(&login, service)?;
            let request = Request::builder().method(method.clone()).uri(format!("{url}{path}"));
            let request = request.header("X-Auth-Token", &login.token).header("Content-Type", "application/json");
            let bytes = body.map(Value::to_string).unwrap_or_default();
            let answer = self.send(request.body(full(bytes)), ANSWER_WITHIN).await?;
            if answer.status != StatusCode::UNAUTHORIZED || attempt > 0 {
                return Ok(answer);
            }
            self.forget(&login).await;
        }
        Err(CloudError::Permanent(format!("{} does not take the token", service.name())))
    }

    /// Sends a file to Glance.
    pub(crate) async fn put_file(
        &self,
        path: &str,
        length: u64,
        body: Body,
        within: Duration,
    ) -> Result<Answer, CloudError> {
        let login = self.login().await?;
        let url = self.url(&login, Service::Image)?;
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("{url}{path}"))
            .header("X-Auth-Token", &login.token)
            .header("Content-Type", "application/octet-stream")
            .header("Content-Length", length);
        let answer = self.send(request.body(body), within).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            self.forget(&login).await;
        }
        Ok(answer)
    }

    async fn log_in(&self) -> Result<Login, CloudError> {
        let auth = &self.settings.auth;
        let base = auth.auth_url.trim_end_matches('/');
        if base.is_empty() {
            return Err(CloudError::Permanent("clouds.yaml: the cloud has no `auth_url`".to_owned()));
        }
        let base = if base.ends_with("/v3") { base.to_owned() } else { format!("{base}/v3") };
        let body = json!({"auth": identity(auth, self.settings.auth_type.as_deref())?});
        let request = Request::builder().method(Method::POST).uri(format!("{base}/auth/tokens"));
        let request = request.header("Content-Type", "application/json").body(full(body.to_string()));
        let answer = self.send(request, ANSWER_WITHIN).await?;
        match answer.status {
            StatusCode::CREATED | StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(CloudError::Permanent(format!("Keystone refuses the credentials ({})", answer.status)));
            }
            status => return Err(CloudError::Transient(format!("Keystone answers {status}"))),
        }
        let token = answer.headers.get("X-Subject-Token").and_then(|token| token.to_str().ok());
        let token = token.ok_or_else(|| CloudError::Transient("Keystone gives no token".to_owned()))?.to_owned();
        Ok(Login { token, catalog: Arc::new(answer.json()["token"]["catalog"].take()) })
    }

    /// The address of a service, with its version and without a slash at its end.
    fn url(&self, login: &Login, service: Service) -> Result<String, CloudError> {
        let url = match self.settings.endpoint_override(service) {
            Some(url) => url.to_owned(),
            None => self.endpoint(&login.catalog, service)?,
        };
        let url = url.trim_end_matches('/');
        // The version may be followed by the project's id.
        let is_versioned = url.split('/').skip(3).any(|part| part.starts_with("v2"));
        Ok(if is_versioned { url.to_owned() } else { format!("{url}/{}", service.version()) })
    }

    /// A service in the catalogue of a token.
    fn endpoint(&self, catalog: &Value, service: Service) -> Result<String, CloudError> {
        let wanted = self.settings.interface.as_deref().unwrap_or("public").trim_end_matches("URL");
        let services = catalog.as_array().into_iter().flatten();
        let endpoints = services.filter(|found| found["type"] == service.kind());
        let mut endpoints = endpoints.flat_map(|service| service["endpoints"].as_array().into_iter().flatten());
        let found = endpoints.find(|endpoint| {
            let region = endpoint["region_id"].as_str().or(endpoint["region"].as_str());
            endpoint["interface"] == wanted && self.region.as_deref().is_none_or(|name| region == Some(name))
        });
        found.and_then(|endpoint| endpoint["url"].as_str()).map(ToOwned::to_owned).ok_or_else(|| {
            let region = self.region.as_deref().map(|region| format!(" in region `{region}`")).unwrap_or_default();
            let things = service.things();
            CloudError::Permanent(format!("the catalogue has no {wanted} endpoint for {things}{region}"))
        })
    }

    async fn send(&self, request: Result<Request<Body>, http::Error>, within: Duration) -> Result<Answer, CloudError> {
        let request = request.map_err(|error| CloudError::Permanent(format!("clouds.yaml: {error}")))?;
        let host = request.uri().host().unwrap_or_default().to_owned();
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| describe(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST_ANSWER).collect().await.map_err(|error| error.to_string())?;
            Ok::<_, String>(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        match tokio::time::timeout(within, exchange).await {
            Ok(answer) => answer.map_err(|problem| CloudError::Transient(format!("`{host}`: {problem}"))),
            Err(_) => Err(CloudError::Transient(format!("`{host}` does not answer within {} s", within.as_secs()))),
        }
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

fn tls(settings: &CloudSettings) -> Result<ClientConfig, CloudError> {
    let mut roots = RootCertStore::empty();
    match &settings.cacert {
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        Some(path) => {
            let wrong = |problem: String| CloudError::Permanent(format!("`{}`: {problem}", path.display()));
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))? {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
        }
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| CloudError::Permanent(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// `identity` and `scope` of a login.
fn identity(auth: &Auth, kind: Option<&str>) -> Result<Value, CloudError> {
    let missing = |what: &str| CloudError::Permanent(format!("clouds.yaml: the cloud has no `{what}`"));
    let domain = |id: Option<&String>, name: Option<&String>| match (id, name.or(auth.domain_name.as_ref())) {
        (Some(id), _) => json!({"id": id}),
        (None, Some(name)) => json!({"name": name}),
        (None, None) => json!({"id": "default"}),
    };
    let user_domain = || domain(auth.user_domain_id.as_ref(), auth.user_domain_name.as_ref());
    let has_credential = auth.application_credential_id.is_some() || auth.application_credential_name.is_some();
    if kind == Some("v3applicationcredential") || (kind.is_none() && has_credential) {
        let secret = auth.application_credential_secret.as_ref();
        let secret = secret.ok_or_else(|| missing("application_credential_secret"))?;
        let credential = match (&auth.application_credential_id, &auth.application_credential_name) {
            (Some(id), _) => json!({"id": id, "secret": secret}),
            (None, Some(name)) => {
                let user = auth.username.as_ref().ok_or_else(|| missing("username"))?;
                json!({"name": name, "secret": secret, "user": {"name": user, "domain": user_domain()}})
            }
            (None, None) => return Err(missing("application_credential_id")),
        };
        return Ok(json!({"identity": {"methods": ["application_credential"], "application_credential": credential}}));
    }
    if !matches!(kind, None | Some("password" | "v3password")) {
        let kind = kind.unwrap_or_default();
        return Err(CloudError::Permanent(format!("clouds.yaml: the auth_type `{kind}` is not known here")));
    }
    let password = auth.password.as_ref().ok_or_else(|| missing("password"))?;
    let user = match (&auth.user_id, &auth.username) {
        (Some(id), _) => json!({"id": id, "password": password}),
        (None, Some(name)) => json!({"name": name, "domain": user_domain(), "password": password}),
        (None, None) => return Err(missing("username")),
    };
    let project = match (&auth.project_id, &auth.project_name) {
        (Some(id), _) => json!({"id": id}),
        (None, Some(name)) => {
            let domain = domain(auth.project_domain_id.as_ref(), auth.project_domain_name.as_ref());
            json!({"name": name, "domain": domain})
        }
        (None, None) => return Err(missing("project_name")),
    };
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    Ok(json!({"identity": identity, "scope": {"project": project}}))
}
