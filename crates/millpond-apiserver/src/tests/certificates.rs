//! Bootstrap tokens and certificate signing requests: from a token to a client certificate that works.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tower_service::Service as _;

use super::Api;
use crate::auth::Identity;
use crate::clock::Clock;
use crate::lifecycle::{self, LifecycleOptions, bootstrap};
use crate::pki::Pki;
use crate::server::{Server, ServerOptions};
use crate::store::Store;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const TOKEN: &str = "abcdef.0123456789abcdef";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// An API with its controllers, under virtual time.
async fn start() -> Api {
    let clock = Clock::virtual_from("2026-11-18T12:00:00Z".parse().unwrap());
    let pki = Pki::ephemeral(&[], &[], clock.now()).unwrap();
    let options = ServerOptions { authority: Some(pki.authority()), ..ServerOptions::default() };
    let api = Api::with(Store::in_memory(clock), clock, options).await;
    bootstrap::describe_cluster(&api.server, "https://127.0.0.1:6443", pki.ca_pem()).await.unwrap();
    tokio::spawn(lifecycle::run(api.server.clone(), LifecycleOptions { controllers: true }));
    api
}

/// A request over a connection: with a certificate, a token, or nothing.
async fn knock(server: &Arc<Server>, certificate: Option<&[u8]>, token: Option<&str>, path: &str) -> (u16, Value) {
    ask(server, certificate, token, "GET", path, &Value::Null).await
}

async fn ask(
    server: &Arc<Server>,
    certificate: Option<&[u8]>,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.body(Full::<Bytes>::from(body)).unwrap();
    let response = server.service_of_connection(certificate).call(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn token_secret(changes: Value) -> Value {
    let mut data = json!({
        "token-id": "abcdef", "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
    });
    data.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token", "stringData": data,
    })
}

/// Waits until an object satisfies the condition.
async fn wait(api: &Api, collection: &str, key: &str, done: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
    let mut changed = api.server.store.subscribe(&collection.into());
    loop {
        changed.borrow_and_update();
        let object = api.server.store.get(collection, key).map(|object| object.to_value());
        if done(object.as_ref()) {
            return object;
        }
        changed.changed().await.unwrap();
    }
}

fn certificate_request(common_name: &str, organizations: &[&str]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    BASE64.encode(pem)
}

fn wish(name: &str, request: &str, signer: &str, usages: &[&str]) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": request, "signerName": signer, "usages": usages},
    })
}

fn certificate_of(request: &Value) -> CertificateDer<'static> {
    let pem = BASE64.decode(request["status"]["certificate"].as_str().unwrap()).unwrap();
    CertificateDer::from_pem_slice(&pem).unwrap()
}

async fn approve(api: &Api, name: &str, kind: &str) -> (u16, Value) {
    let path = format!("{REQUESTS}/{name}");
    let mut request = api.get(&path).await;
    request["status"]["conditions"] =
        json!([{"type": kind, "status": "True", "reason": "Test", "message": "by the test"}]);
    api.send("PUT", &format!("{path}/approval"), &request).await
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_stands_for_a_bootstrapper_until_it_expires() {
    let api = start().await;
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_eq!(ask(&api.server, None, Some(TOKEN), "POST", who, &whoami).await.0, 401);

    api.accept("POST", SECRETS, &token_secret(json!({"expiration": "2026-11-18T12:10:00Z"}))).await;
    let (code, answer) = ask(&api.server, None, Some(TOKEN), "POST", who, &whoami).await;
    assert_eq!(code, 201);
    assert_eq!(answer["status"]["userInfo"]["username"], "system:bootstrap:abcdef");
    assert_eq!(
        answer["status"]["userInfo"]["groups"],
        json!(["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"])
    );
    for wrong in ["abcdef.0123456789abcdeg", "abcdeg.0123456789abcdef", "ABCDEF.0123456789abcdef", "abcdef."] {
        assert_eq!(knock(&api.server, None, Some(wrong), CLUSTER_INFO).await.0, 401, "{wrong}");
    }
    let before = tokio::time::Instant::now();
    wait(&api, "secrets", "kube-system/bootstrap-token-abcdef", |secret| secret.is_none()).await;
    assert_eq!(before.elapsed().as_secs(), 600, "removed when it expires");
    assert_eq!(knock(&api.server, None, Some(TOKEN), CLUSTER_INFO).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_may_not_authenticate_do_not() {
    let api = start().await;
    for changes in [
        json!({"usage-bootstrap-authentication": "false"}),
        json!({"auth-extra-groups": "system:masters"}),
        json!({"expiration": "2026-11-18T11:59:59Z"}),
        json!({"expiration": "soon"}),
        json!({"token-id": "fedcba"}),
    ] {
        api.accept("POST", SECRETS, &token_secret(changes.clone())).await;
        assert_eq!(knock(&api.server, None, Some(TOKEN), CLUSTER_INFO).await.0, 401, "{changes}");
        api.send("DELETE", &format!("{SECRETS}/bootstrap-token-abcdef"), &Value::Null).await;
    }
    let mut opaque = token_secret(json!({}));
    opaque["type"] = json!("Opaque");
    api.accept("POST", SECRETS, &opaque).await;
    assert_eq!(knock(&api.server, None, Some(TOKEN), CLUSTER_INFO).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn the_description_of_the_cluster_is_public_and_signed_by_tokens() {
    let api = start().await;
    let (code, info) = knock(&api.server, None, None, CLUSTER_INFO).await;
    assert_eq!(code, 200);
    let kubeconfig = info["data"]["kubeconfig"].as_str().unwrap();
    assert!(kubeconfig.contains("server: https://127.0.0.1:6443"), "{kubeconfig}");
    api.accept("POST", SECRETS, &token_secret(json!({}))).await;
    let signed = |info: Option<&Value>| info.unwrap()["data"]["jws-kubeconfig-abcdef"].is_string();
    let info = wait(&api, "configmaps", "kube-public/cluster-info", signed).await.unwrap();
    let signature = info["data"]["jws-kubeconfig-abcdef"].as_str().unwrap();
    assert!(signature.starts_with("eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9.."), "{signature}");
    api.accept("DELETE", &format!("{SECRETS}/bootstrap-token-abcdef"), &Value::Null).await;
    wait(&api, "configmaps", "kube-public/cluster-info", |info| !signed(info)).await;

    assert_eq!(knock(&api.server, None, None, "/version").await.0, 200);
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/kube-public/configmaps", "/apis", "/metrics"] {
        assert!(matches!(knock(&api.server, None, None, path).await.0, 401 | 403), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_its_certificate_with_a_token() {
    let api = start().await;
    api.accept("POST", SECRETS, &token_secret(json!({}))).await;
    let request = certificate_request("system:node:n1", &["system:nodes"]);
    let mut csr = wish("n1", &request, KUBELET_CLIENT, &["digital signature", "client auth"]);
    csr["spec"]["username"] = json!("admin");
    let (code, created) = ask(&api.server, None, Some(TOKEN), "POST", REQUESTS, &csr).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"]["username"], "system:bootstrap:abcdef");
    let issued = |request: Option<&Value>| request.unwrap()["status"]["certificate"].is_string();
    let request = wait(&api, "certificatesigningrequests.certificates.k8s.io", "n1", issued).await.unwrap();
    assert_eq!(request["status"]["conditions"][0]["reason"], "AutoApproved");

    let certificate = certificate_of(&request);
    let identity = Identity::of_certificate(&certificate).unwrap();
    assert_eq!(identity.user, "system:node:n1");
    assert_eq!(identity.groups, ["system:nodes", "system:authenticated"]);
    let own = "/apis/certificates.k8s.io/v1/certificatesigningrequests/n1";
    assert_eq!(knock(&api.server, Some(&certificate), None, own).await.0, 200);
    tokio::time::sleep(std::time::Duration::from_secs(366 * 86_400)).await;
    assert_eq!(knock(&api.server, Some(&certificate), None, own).await.0, 401, "the certificate has ended");
}

#[tokio::test(start_paused = true)]
async fn signers_have_rules() {
    let api = start().await;
    let client = "kubernetes.io/kube-apiserver-client";
    let masters = wish("masters", &certificate_request("eve", &["system:masters"]), client, &["client auth"]);
    let refusal = api.refuse("POST", REQUESTS, &masters).await;
    let why = "certificatesigningrequests.certificates.k8s.io \"masters\" is forbidden: use of \
               kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert_eq!(refusal, (403, why.to_owned()));

    for (name, common_name, organizations, signer, usages, why) in [
        (
            "a",
            "jane",
            &["dev"][..],
            client,
            &["client auth", "server auth"][..],
            "invalid usage for client certificate: server auth",
        ),
        (
            "b",
            "jane",
            &["dev"],
            client,
            &["digital signature"],
            "missing required usage for client certificate: client auth",
        ),
        ("c", "system:node:a", &["dev"], KUBELET_CLIENT, &["client auth"], "subject organization is not system:nodes"),
        (
            "d",
            "jane",
            &["system:nodes"],
            KUBELET_CLIENT,
            &["client auth", "digital signature"],
            "subject common name does not begin with system:node:",
        ),
        (
            "e",
            "system:node:a",
            &["system:nodes"],
            KUBELET_CLIENT,
            &["client auth"],
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (
            "f",
            "system:node:a",
            &["system:nodes"],
            "kubernetes.io/kubelet-serving",
            &["server auth", "digital signature"],
            "DNS or IP subjectAltName is required",
        ),
    ] {
        api.accept("POST", REQUESTS, &wish(name, &certificate_request(common_name, organizations), signer, usages))
            .await;
        assert_eq!(approve(&api, name, "Approved").await.0, 200);
        let failed = |request: Option<&Value>| request.unwrap()["status"]["conditions"][1]["type"] == "Failed";
        let request = wait(&api, "certificatesigningrequests.certificates.k8s.io", name, failed).await.unwrap();
        assert_eq!(request["status"]["conditions"][1]["message"], why);
        assert!(request["status"]["certificate"].is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_approves_and_the_time_is_what_was_asked_for() {
    let api = start().await;
    let client = "kubernetes.io/kube-apiserver-client";
    let mut csr = wish("jane", &certificate_request("jane", &["dev"]), client, &["client auth"]);
    csr["spec"]["expirationSeconds"] = json!(599);
    assert_eq!(api.refuse("POST", REQUESTS, &csr).await.0, 422);
    csr["spec"]["expirationSeconds"] = json!(3600);
    api.accept("POST", REQUESTS, &csr).await;
    assert_eq!(approve(&api, "jane", "Approved").await.0, 200);
    let issued = |request: Option<&Value>| request.unwrap()["status"]["certificate"].is_string();
    let request = wait(&api, "certificatesigningrequests.certificates.k8s.io", "jane", issued).await.unwrap();
    let der = certificate_of(&request);
    let end = crate::auth::end_of_certificate(&der).unwrap();
    assert_eq!(end, "2026-11-18T13:00:00Z".parse::<Timestamp>().unwrap());
    let denied = approve(&api, "jane", "Denied").await;
    assert_eq!(denied.0, 422, "{}", denied.1);

    csr["metadata"]["name"] = json!("refused");
    api.accept("POST", REQUESTS, &csr).await;
    assert_eq!(approve(&api, "refused", "Denied").await.0, 200);
    wait(&api, "certificatesigningrequests.certificates.k8s.io", "refused", |request| request.is_none()).await;
    let mut forged = csr.clone();
    forged["spec"]["request"] = json!(BASE64.encode("no request"));
    assert_eq!(api.refuse("POST", REQUESTS, &forged).await.0, 422);
}
