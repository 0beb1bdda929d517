//! Tokens of service accounts: whom they stand for, and when they end.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{Empty, Full};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tower_service::Service as _;

use super::Api;
use crate::clock::Clock;
use crate::pki::Pki;
use crate::server::{Server, ServerOptions};
use crate::service_account::{ISSUER, InvalidToken, verify};
use crate::store::Store;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn request_token(api: &Api, account: &str, spec: Value) -> Value {
    api.accept("POST", &format!("{ACCOUNTS}/{account}/token"), &json!({"spec": spec})).await
}

async fn account(api: &Api, name: &str) -> Value {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    api.accept("POST", ACCOUNTS, &account).await
}

/// What a TokenReview says of a token.
async fn review(api: &Api, token: &Value) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    api.accept("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review).await["status"].clone()
}

/// The status code of a request that carries a token.
async fn knock(server: &Arc<Server>, token: &Value) -> u16 {
    let request = Request::get("/api")
        .header("authorization", format!("Bearer {}", token.as_str().unwrap()))
        .body(Empty::<Bytes>::new())
        .unwrap();
    server.service().call(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_token_ends_at_the_time_that_it_tells() {
    let api = Api::start().await;
    let uid = account(&api, "builder").await["metadata"]["uid"].clone();
    let request = request_token(&api, "builder", json!({"expirationSeconds": 600})).await;
    let token = &request["status"]["token"];
    let status = review(&api, token).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!([ISSUER]));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:builder");
    assert_eq!(status["user"]["uid"], uid);
    assert_eq!(
        status["user"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    assert_eq!(knock(&api.server, token).await, 200);

    let end: Timestamp = request["status"]["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    let start: Timestamp = request["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(end.duration_since(start).as_secs(), 600);
    let at = |time| verify(&api.server, token.as_str().unwrap(), &[ISSUER.to_owned()], time).map(|_| ());
    let second = SignedDuration::from_secs(1);
    assert_eq!(at(end - second), Ok(()));
    let refused = |why: &str| Err(InvalidToken::Refused(why.to_owned()));
    assert_eq!(at(end), refused("service account token has expired"));
    assert_eq!(at(start - second), refused("service account token is not valid yet"));
}

#[tokio::test]
async fn a_token_ends_with_its_account_and_with_what_it_is_bound_to() {
    let api = Api::start().await;
    account(&api, "builder").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "anchor"}});
    api.accept("POST", "/api/v1/namespaces/default/secrets", &secret).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runner"},
        "spec": {"serviceAccountName": "builder", "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    let pod = api.accept("POST", "/api/v1/namespaces/default/pods", &pod).await;
    let reference =
        |kind: &str, name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
    let free = request_token(&api, "builder", json!({})).await["status"]["token"].clone();
    let of_pod = request_token(&api, "builder", reference("Pod", "runner")).await["status"]["token"].clone();
    let of_secret = request_token(&api, "builder", reference("Secret", "anchor")).await["status"]["token"].clone();

    let extra = &review(&api, &of_pod).await["user"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["runner"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"][0], pod["metadata"]["uid"]);
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n1"]));

    api.accept("DELETE", "/api/v1/namespaces/default/pods/runner?gracePeriodSeconds=0", &json!(null)).await;
    api.accept("DELETE", "/api/v1/namespaces/default/secrets/anchor", &json!(null)).await;
    api.accept("POST", "/api/v1/namespaces/default/secrets", &secret).await;
    assert_eq!(
        [knock(&api.server, &free).await, knock(&api.server, &of_pod).await, knock(&api.server, &of_secret).await],
        [200, 401, 401],
        "a new secret of the same name does not bring the token back"
    );
    api.accept("DELETE", &format!("{ACCOUNTS}/builder"), &json!(null)).await;
    account(&api, "builder").await;
    assert_eq!(knock(&api.server, &free).await, 401);
}

#[tokio::test]
async fn a_token_for_others_does_not_open_this_door() {
    let api = Api::start().await;
    account(&api, "builder").await;
    let request = request_token(&api, "builder", json!({"audiences": ["vault"]})).await;
    assert_eq!(request["spec"]["audiences"], json!(["vault"]));
    let token = &request["status"]["token"];
    assert_eq!(knock(&api.server, token).await, 401);
    let error = "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences \
                 [\"https://kubernetes.default.svc\"]]";
    assert_eq!(review(&api, token).await["error"], error);
    let asked = json!({"spec": {"token": token, "audiences": ["vault", "other"]}});
    let answer = api.accept("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &asked).await;
    assert_eq!(answer["status"]["audiences"], json!(["vault"]));

    let wrong = json!({"spec": {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let refusal = api.refuse("POST", &format!("{ACCOUNTS}/builder/token"), &wrong).await;
    assert_eq!(refusal, (400, "cannot bind token to object of type apps/v1, Kind=Deployment".to_owned()));
    let short = json!({"spec": {"expirationSeconds": 599}});
    assert_eq!(api.refuse("POST", &format!("{ACCOUNTS}/builder/token"), &short).await.0, 422);
}

#[tokio::test]
async fn tokens_survive_a_restart_with_the_key_of_the_data_directory() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let signer = || Pki::load_or_make(folder.path(), &[], &[], Timestamp::now()).unwrap().token_signer();
    let start = |store: Store| async {
        let options = ServerOptions { token_signer: Some(signer()), ..ServerOptions::default() };
        Api::with(store, Clock::System, options).await
    };
    let directory = folder.path().join("store");
    let open = || Store::open(&directory, crate::store::StoreOptions::default(), Clock::System).unwrap();
    let api = start(open()).await;
    account(&api, "builder").await;
    let token = request_token(&api, "builder", json!({})).await["status"]["token"].clone();
    api.server.store().close().await;
    drop(api);

    let api = start(open()).await;
    assert_eq!(knock(&api.server, &token).await, 200);
    let key = std::fs::metadata(folder.path().join("service-account.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    api.server.store().close().await;
}

#[tokio::test]
async fn a_certificate_request_names_the_user() {
    let api = Api::start().await;
    let uid = account(&api, "builder").await["metadata"]["uid"].clone();
    let token = request_token(&api, "builder", json!({})).await["status"]["token"].clone();
    let rights = json!({
        "metadata": {"name": "builder"}, "subjects": [{"kind": "ServiceAccount", "name": "builder", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
    });
    api.accept("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &rights).await;
    let pem = rcgen::CertificateParams::default()
        .serialize_request(&rcgen::KeyPair::generate().unwrap())
        .unwrap()
        .pem()
        .unwrap();
    let wish = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "mine"},
        "spec": {
            "request": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem),
            "signerName": "example.com/any", "usages": ["client auth"], "username": "somebody else", "uid": "x",
        },
    });
    let request = Request::post("/apis/certificates.k8s.io/v1/certificatesigningrequests")
        .header("authorization", format!("Bearer {}", token.as_str().unwrap()))
        .body(Full::<Bytes>::from(wish.to_string()))
        .unwrap();
    let response = api.server.service().call(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let spec = &api.get("/apis/certificates.k8s.io/v1/certificatesigningrequests/mine").await["spec"];
    assert_eq!((&spec["username"], &spec["uid"]), (&json!("system:serviceaccount:default:builder"), &uid));
    assert_eq!(spec["groups"][0], "system:serviceaccounts");
    assert!(spec["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap().starts_with("JTI="));
}
