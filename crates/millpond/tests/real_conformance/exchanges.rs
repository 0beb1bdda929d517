//! Raw requests to both servers: status, the headers that clients read, and the body must be the same.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;

use crate::normal;
use crate::script::Entry;
use crate::transcript::side_by_side;

/// Headers of the answer that are compared.
const COMPARED: [&str; 3] = ["content-type", "warning", "retry-after"];

/// Sends every request to both; returns what differs.
pub(crate) async fn compare(clients: &[Client; 2], requests: &[Entry]) -> Vec<String> {
    let mut differences = Vec::new();
    for entry in requests {
        let (real, embedded) = tokio::join!(answer(&clients[0], entry), answer(&clients[1], entry));
        if real != embedded && entry.differs.is_none() {
            differences.push(format!("--- > {}\n{}", entry.head, side_by_side(&real, &embedded)));
        }
    }
    differences
}

/// `METHOD PATH [Header: value]...`, and below the body.
async fn answer(client: &Client, entry: &Entry) -> String {
    let mut words = entry.head.split(" | ");
    let line = words.next().unwrap_or_default();
    let (method, path) = line.split_once(' ').expect("METHOD PATH");
    let mut request = Request::builder().method(method.parse::<Method>().expect("a method")).uri(path.trim());
    let headers: Vec<(&str, &str)> = words.map(|header| header.split_once(": ").expect("Name: value")).collect();
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Body::from(entry.body.trim().as_bytes().to_vec())).expect("a request");
    let response = client.send(request).await.expect("the server answers");
    let mut text = format!("{}\n", response.status());
    for name in COMPARED {
        for value in response.headers().get_all(name) {
            text.push_str(&format!("{name}: {}\n", normal::text(&String::from_utf8_lossy(value.as_bytes()))));
        }
    }
    let body = response.into_body().collect().await.expect("the body arrives").to_bytes();
    text + &normal::body(&body)
}
