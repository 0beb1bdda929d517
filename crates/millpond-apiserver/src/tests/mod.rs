//! Requests to a whole server: what no single module answers for.

mod admission;
mod bad_input;
mod certificates;
mod definitions;
mod limits;
mod long_requests;
mod policies;
mod roles;
mod storable;
mod subresources;
mod tokens;
mod unreadable;
mod watches;

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::auth::Identity;
use crate::clock::Clock;
use crate::server::{Server, ServerOptions};
use crate::store::Store;

/// A server in memory, and an administrator at it.
struct Api {
    server: Arc<Server>,
    client: Client,
}

impl Api {
    async fn start() -> Self {
        Self::with(Store::in_memory(Clock::System), Clock::System, ServerOptions::default()).await
    }

    async fn with(store: Store, clock: Clock, options: ServerOptions) -> Self {
        let server = Server::new(store, clock, options).unwrap();
        crate::bootstrap(&server, 6443).await.unwrap();
        let client = Client::new(server.service_for(Identity::administrator("tester")), "default");
        Self { server, client }
    }

    /// Sends JSON, returns the status code and the answer.
    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.send_as(media_type, method, path, body).await
    }

    async fn send_as(&self, media_type: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (code, bytes) = self.send_bytes(media_type, "application/json", method, path, body).await;
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Sends what must be accepted, returns the values of its `Warning` headers.
    async fn warnings(&self, method: &str, path: &str, body: &Value) -> Vec<String> {
        let request = Request::builder()
            .method(method.parse::<Method>().unwrap())
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string().into_bytes()))
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        assert!(response.status().is_success(), "{method} {path}: {}", response.status());
        let warnings = response.headers().get_all("warning").into_iter();
        warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    /// Sends any bytes and accepts what is named.
    async fn send_bytes(
        &self,
        media_type: &str,
        accept: &str,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> (u16, Vec<u8>) {
        let request = Request::builder()
            .method(method.parse::<Method>().unwrap())
            .uri(path)
            .header("content-type", media_type)
            .header("accept", accept)
            .header("user-agent", "tester")
            .body(Body::from(body))
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        (code, response.into_body().collect_bytes().await.unwrap().to_vec())
    }

    /// Sends what must be accepted, returns the object.
    async fn accept(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, answer) = self.send(method, path, body).await;
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    /// Sends what must be refused, returns the code and the message.
    async fn refuse(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let (code, answer) = self.send(method, path, body).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn get(&self, path: &str) -> Value {
        self.accept("GET", path, &Value::Null).await
    }
}
