//! Pods on nodes with a kubelet: logs, exec, attach and port-forward are passed on to it, over TLS with a client
//! certificate of this server's CA. The kubelet asks this server in turn whether the user of that certificate may.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::call::Call;
use super::read::served;
use super::respond::ApiResponse;
use crate::auth::{self, Attributes};
use crate::http::ApiBody;
use crate::status::ApiError;

/// The user of the client certificate. It has the role `system:kubelet-api-admin`.
pub(crate) const USER: &str = "kube-apiserver-kubelet-client";
/// Time limit of connecting to a kubelet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Kinds of addresses, the first that a node has is taken.
const ADDRESSES: [&str; 5] = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];
/// Limit on the error text of a kubelet, in bytes.
const MAX_ERROR_BYTES: usize = 4096;

/// Passes a request for a subresource of a pod on to the kubelet of its node.
pub(crate) async fn connect(call: &mut Call, subresource: &str) -> Result<ApiResponse, ApiError> {
    if subresource != "log" && call.method == http::Method::GET {
        // A WebSocket begins with GET; what it does is the same as after POST.
        may_create(call, subresource)?;
    }
    let pod = served(&call.resource, &*call.fetch()?);
    let kubelet = Kubelet::of(call, &pod)?;
    let target = target(call, &pod, subresource)?;
    let response = kubelet.send(call, &target).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return tunnel(call, response);
    }
    if response.status().is_success() {
        return Ok(pass_on(response));
    }
    Err(refusal(response).await)
}

fn may_create(call: &Call, subresource: &str) -> Result<(), ApiError> {
    let (namespace, name) = (call.namespace(), call.name());
    let wanted = Attributes { verb: "create", resource: "pods", subresource, namespace, name, ..Attributes::default() };
    auth::authorize(&call.server, &call.identity, &wanted)
}

/// The address of a kubelet.
struct Kubelet {
    node: String,
    host: String,
    port: u16,
}

impl Kubelet {
    /// The kubelet of a pod's node.
    fn of(call: &Call, pod: &Value) -> Result<Self, ApiError> {
        let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.name())));
        }
        let node = call.server.store.get("nodes", name).ok_or_else(|| ApiError::not_found("", "nodes", name))?;
        let status = &node.to_value()["status"];
        let missing = |what: &str| {
            let why = format!(
                "node {name:?} has no kubelet that can be asked: {what} is not set. A stand-in plays this node; logs, \
                 exec, attach and port-forward need a pod on a node with a kubelet"
            );
            ApiError::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", why)
        };
        let port =
            status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port != 0);
        let port = port.ok_or_else(|| missing("status.daemonEndpoints.kubeletEndpoint.Port"))?;
        let addresses = status["addresses"].as_array();
        let of_kind = |kind: &&str| {
            let address = addresses?.iter().find(|address| address["type"] == **kind)?;
            address["address"].as_str().map(str::to_owned)
        };
        let host = ADDRESSES.iter().find_map(of_kind).ok_or_else(|| missing("status.addresses"))?;
        Ok(Self { node: name.to_owned(), host, port })
    }

    /// Sends the request of the client, without its credentials.
    async fn send(&self, call: &Call, target: &str) -> Result<Response<Incoming>, ApiError> {
        let failed = |problem: &dyn std::fmt::Display| {
            let why = format!("error dialing backend: kubelet of node {:?}: {problem}", self.node);
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", why)
        };
        let tls = tls_config(call).map_err(|problem| failed(&problem))?;
        let dial = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            let name = match self.host.parse::<IpAddr>() {
                Ok(address) => ServerName::IpAddress(address.into()),
                Err(_) => ServerName::try_from(self.host.clone()).map_err(std::io::Error::other)?,
            };
            TlsConnector::from(Arc::new(tls)).connect(name, stream).await
        };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, dial).await.map_err(|_| failed(&"timed out"))?;
        let stream = TokioIo::new(stream.map_err(|problem| failed(&problem))?);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(stream).await.map_err(|problem| failed(&problem))?;
        let shutdown = call.server.shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = connection.with_upgrades() => {}
                () = shutdown.cancelled() => {}
            }
        });
        let mut request = Request::builder().method(call.method.clone()).uri(target);
        for (name, value) in forwarded(&call.headers) {
            request = request.header(name, value);
        }
        let request = request.header(HOST, format!("{}:{}", self.host, self.port)).body(Empty::<Bytes>::new());
        let request = request.map_err(|problem| failed(&problem))?;
        sender.send_request(request).await.map_err(|problem| failed(&problem))
    }
}

/// Headers that matter to a kubelet: those of an upgrade, and what it leads to.
fn forwarded(headers: &HeaderMap) -> impl Iterator<Item = (&http::HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| {
        let name = name.as_str();
        matches!(name, "connection" | "upgrade" | "x-stream-protocol-version" | "origin")
            || name.starts_with("sec-websocket-")
    })
}

/// Path and query at the kubelet.
fn target(call: &Call, pod: &Value, subresource: &str) -> Result<String, ApiError> {
    let (namespace, name) = (call.namespace(), call.name());
    let query = call.raw_query.as_deref().unwrap_or_default();
    if subresource == "portforward" {
        return Ok(format!("/portForward/{namespace}/{name}?{query}"));
    }
    let container = container(call, pod, query)?;
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let is_on = |value: &str| matches!(value, "true" | "1" | "");
    let parameters: Vec<String> = pairs
        .filter_map(|(key, value)| match (subresource, key) {
            (_, "container") => None,
            ("log", key) => Some(format!("{key}={value}")),
            (_, "stdin" | "stdout" | "stderr" | "tty") if !is_on(value) => None,
            (_, "stdin") => Some("input=1".to_owned()),
            (_, "stdout") => Some("output=1".to_owned()),
            (_, "stderr") => Some("error=1".to_owned()),
            (_, "tty") => Some("tty=1".to_owned()),
            (_, key) => Some(format!("{key}={value}")),
        })
        .collect();
    let path = match subresource {
        "log" => "containerLogs",
        other => other,
    };
    Ok(format!("/{path}/{namespace}/{name}/{container}?{}", parameters.join("&")))
}

/// The container that the request names, or the only one.
fn container(call: &Call, pod: &Value, query: &str) -> Result<String, ApiError> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str()).map(str::to_owned).collect()
    };
    let named = crate::http::path::parameter(Some(query), "container").unwrap_or_default().into_owned();
    if !named.is_empty() {
        let known = lists.iter().any(|list| names(list).contains(&named));
        let why = format!("container {named} is not valid for pod {}", call.name());
        return if known { Ok(named) } else { Err(ApiError::bad_request(why)) };
    }
    match &*names("containers") {
        [one] => Ok(one.clone()),
        several => {
            let mut why = format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                call.name(),
                several.join(" ")
            );
            let init = names("initContainers");
            if !init.is_empty() {
                why += &format!(" or one of the init containers: [{}]", init.join(" "));
            }
            Err(ApiError::bad_request(why))
        }
    }
}

/// Passes the body on unchanged.
fn pass_on(response: Response<Incoming>) -> ApiResponse {
    let (parts, body) = response.into_parts();
    let frames = body.into_data_stream().take_while(|piece| std::future::ready(piece.is_ok()));
    let mut passed = Response::new(ApiBody::stream(frames.filter_map(|piece| std::future::ready(piece.ok()))));
    *passed.status_mut() = parts.status;
    if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
        passed.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    passed
}

/// The error that a kubelet returned.
async fn refusal(response: Response<Incoming>) -> ApiError {
    let code = response.status();
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_ERROR_BYTES)]).trim().to_owned();
    let reason = match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        _ => "InternalError",
    };
    let text = if text.is_empty() { format!("the kubelet answered {code}") } else { text };
    ApiError::new(code, reason, text)
}

/// Joins both upgraded connections, until one of them ends.
fn tunnel(call: &mut Call, mut response: Response<Incoming>) -> Result<ApiResponse, ApiError> {
    let client: OnUpgrade = call.upgrade.take().ok_or_else(|| ApiError::bad_request("Upgrade request required"))?;
    let kubelet = hyper::upgrade::on(&mut response);
    let shutdown = call.server.shutdown.clone();
    tokio::spawn(async move {
        let (client, kubelet) = match tokio::try_join!(client, kubelet) {
            Ok(both) => both,
            Err(problem) => return tracing::debug!(%problem, "an upgrade to a kubelet did not happen"),
        };
        let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut kubelet) => {}
            () = shutdown.cancelled() => {}
        }
    });
    let mut passed = Response::new(ApiBody::empty());
    *passed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in forwarded(response.headers()) {
        passed.headers_mut().append(name.clone(), value.clone());
    }
    passed.headers_mut().entry(CONNECTION).or_insert(HeaderValue::from_name(UPGRADE));
    Ok(passed)
}

/// TLS with a client certificate that was made just now. Kubelets serve self-signed certificates by default; as with
/// kube-apiserver, these are not verified.
fn tls_config(call: &Call) -> Result<rustls::ClientConfig, String> {
    let authority = call.server.options.authority.as_deref().ok_or("this server has no CA")?;
    let (certificate, key) = authority.client(USER, &[], call.server.clock.now())?;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|problem| problem.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|problem| problem.to_string())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Unverified(provider.signature_verification_algorithms));
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|problem| problem.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(vec![certificate], key)
        .map_err(|problem| problem.to_string())
}

/// Takes any certificate, and checks that the other side has its key.
#[derive(Debug)]
struct Unverified(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
