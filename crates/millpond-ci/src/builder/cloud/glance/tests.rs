//! Against a small Keystone and Glance of our own on loopback.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::super::files::Checksums;
use super::super::{CloudError, ImageCloud as _, NewImage};
use super::*;
use crate::openstack::CloudsFile;

/// The requests that the fake has received.
#[derive(Default)]
struct Fake {
    logins: Vec<Value>,
    images: BTreeMap<String, Value>,
    files: BTreeMap<String, Vec<u8>>,
    /// Tokens before this number are refused.
    oldest_token: usize,
    is_full: bool,
}

type State = Arc<Mutex<Fake>>;

async fn answer(state: State, base: String, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut fake = state.lock();
    let path = head.uri.path().to_owned();
    let reply =
        |status: u16, value: Value| Response::builder().status(status).body(Full::from(value.to_string())).unwrap();
    if path == "/identity/v3/auth/tokens" {
        fake.logins.push(serde_json::from_slice(&body).unwrap());
        if String::from_utf8_lossy(&body).contains("wrong") {
            return Ok(reply(401, json!({"error": {"message": "no"}})));
        }
        let endpoint = |region: &str, interface: &str, url: String| json!({"region_id": region, "interface": interface, "url": url});
        let catalog = json!([{"type": "image", "endpoints": [
            endpoint("other", "public", "http://other.invalid".to_owned()),
            endpoint("one", "internal", "http://internal.invalid".to_owned()),
            endpoint("one", "public", format!("{base}/image")),
        ]}]);
        let body = json!({"token": {"catalog": catalog}}).to_string();
        let token = fake.logins.len().to_string();
        return Ok(Response::builder().status(201).header("X-Subject-Token", token).body(Full::from(body)).unwrap());
    }
    let token: usize = head.headers["X-Auth-Token"].to_str().unwrap().parse().unwrap();
    if token < fake.oldest_token {
        return Ok(reply(401, json!({})));
    }
    let id = path.split('/').nth(4).unwrap_or_default().to_owned();
    Ok(match (head.method.as_str(), path.strip_prefix("/image/v2").unwrap_or_default()) {
        ("POST", "/images") => {
            let mut image: Value = serde_json::from_slice(&body).unwrap();
            let id = format!("image-{}", fake.images.len() + 1);
            (image["id"], image["status"]) = (id.clone().into(), "queued".into());
            fake.images.insert(id, image.clone());
            reply(201, image)
        }
        ("GET", "/images") => {
            let all: Vec<Value> = fake.images.values().cloned().collect();
            // One image a page.
            let at: usize =
                head.uri.query().and_then(|query| query.strip_prefix("at=")).map_or(0, |at| at.parse().unwrap());
            let mut page = json!({"images": all.get(at).into_iter().collect::<Vec<_>>()});
            if at + 1 < all.len() {
                page["next"] = format!("/v2/images?at={}", at + 1).into();
            }
            reply(200, page)
        }
        ("PUT", _) if fake.is_full => reply(413, json!({"message": "no space"})),
        ("PUT", _) => {
            if let Some(image) = fake.images.get_mut(&id) {
                (image["status"], image["size"]) = ("active".into(), body.len().into());
            }
            fake.files.insert(id, body.to_vec());
            reply(204, json!({}))
        }
        ("GET", _) => fake.images.get(&id).map_or_else(|| reply(404, json!({})), |image| reply(200, image.clone())),
        ("DELETE", _) => reply(if fake.images.remove(&id).is_some() { 204 } else { 404 }, json!({})),
        _ => reply(500, json!({})),
    })
}

/// The fake, and a clouds file for it.
async fn start(auth: &str) -> (State, CloudsFile) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let state = State::default();
    let (shared, url) = (Arc::clone(&state), base.clone());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (state, base) = (Arc::clone(&shared), url.clone());
            let service = service_fn(move |request| answer(Arc::clone(&state), base.clone(), request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clouds.yaml");
    let text = format!(
        "clouds:\n  mine:\n    region_name: one\n    image_format: raw\n    auth:\n      auth_url: {base}/identity\n{auth}"
    );
    std::fs::write(&file, text).unwrap();
    (state, CloudsFile::read(&file).unwrap())
}

const PASSWORD: &str =
    "      username: me\n      password: hunter2\n      project_name: ci\n      user_domain_name: Default\n";

fn image(folder: &tempfile::TempDir) -> NewImage {
    let path = folder.path().join("x.raw");
    std::fs::write(&path, vec![7; 3_000_000]).unwrap();
    NewImage {
        name: "fedora-1".to_owned(),
        path,
        format: "raw".to_owned(),
        properties: json!({"nodepool_build_id": "b", "hw_scsi": true, "min_ram": 512}).as_object().cloned().unwrap(),
        checksums: Checksums { md5: Some("m".to_owned()), sha256: None },
        timeout: std::time::Duration::from_secs(60),
    }
}

#[tokio::test]
async fn images_are_uploaded_listed_and_deleted() {
    let (state, clouds) = start(PASSWORD).await;
    let settings = clouds.cloud("mine").unwrap().clone();
    assert_eq!(settings.image_format(), "raw");
    assert!(!format!("{settings:?}").contains("hunter2"));
    let glance = GlanceImages::new(settings, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let id = glance.upload(&image(&folder)).await.unwrap();
    // The token expires.
    state.lock().oldest_token = 2;
    glance.upload(&image(&folder)).await.unwrap();
    let listed = glance.list().await.unwrap();
    assert_eq!((listed.len(), listed[0].id.as_str(), listed[0].name.as_str()), (2, id.as_str(), "fedora-1"));
    assert_eq!(listed[0].properties["nodepool_build_id"], "b");
    {
        let fake = state.lock();
        assert_eq!(fake.files[&id], vec![7; 3_000_000]);
        let expected = json!({
            "id": id, "name": "fedora-1", "disk_format": "raw", "container_format": "bare", "visibility": "private",
            "nodepool_build_id": "b", "hw_scsi": "true", "min_ram": 512, "owner_specified.openstack.md5": "m",
            "owner_specified.openstack.object": "images/fedora-1", "status": "active", "size": 3_000_000,
        });
        assert_eq!(fake.images[&id], expected);
        let user = json!({"name": "me", "password": "hunter2", "domain": {"name": "Default"}});
        assert_eq!(fake.logins[0]["auth"]["identity"]["password"]["user"], user);
        assert_eq!(fake.logins[0]["auth"]["scope"]["project"], json!({"name": "ci", "domain": {"id": "default"}}));
        assert_eq!(fake.logins.len(), 2);
    }
    glance.delete(&id).await.unwrap();
    glance.delete(&id).await.unwrap();
    assert_eq!(glance.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_image_that_is_not_filled_is_taken_back() {
    let (state, clouds) = start("      application_credential_id: a\n      application_credential_secret: s\n").await;
    state.lock().is_full = true;
    let glance = GlanceImages::new(clouds.cloud("mine").unwrap().clone(), Some("one")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = glance.upload(&image(&folder)).await.unwrap_err().to_string();
    assert!(error.contains("413") && error.contains("no space"), "{error}");
    assert!(state.lock().images.is_empty());
    let credential = json!({"id": "a", "secret": "s"});
    assert_eq!(state.lock().logins[0]["auth"]["identity"]["application_credential"], credential);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let (_, clouds) = start(&PASSWORD.replace("hunter2", "wrong")).await;
    let glance = GlanceImages::new(clouds.cloud("mine").unwrap().clone(), None).unwrap();
    let refused = glance.list().await.unwrap_err();
    assert_eq!(refused, CloudError::Permanent("Keystone refuses the credentials (401 Unauthorized)".to_owned()));
    assert!(clouds.cloud("none").unwrap_err().to_string().contains("no cloud `none`"));
    let (_, clouds) = start(PASSWORD).await;
    let glance = GlanceImages::new(clouds.cloud("mine").unwrap().clone(), Some("moon")).unwrap();
    let missing = glance.list().await.unwrap_err().to_string();
    assert_eq!(missing, "the catalogue has no public endpoint for images in region `moon`");
}
