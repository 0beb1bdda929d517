//! Files of the page, as they are in the tree.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::respond::{Body, full, text};

/// Name and contents of each, sorted by name.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));
/// The page that every path of the application is answered with.
const INDEX: &str = "index.html";

/// The page.
pub(crate) fn index(headers: &HeaderMap) -> Response<Body> {
    file(INDEX, headers)
}

/// A file below `/assets/`.
pub(crate) fn file(name: &str, headers: &HeaderMap) -> Response<Body> {
    let Ok(at) = FILES.binary_search_by_key(&name, |(name, _)| name) else {
        return text(StatusCode::NOT_FOUND, "there is no such file\n");
    };
    let contents = FILES[at].1;
    let tag = tag(contents);
    let is_known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|known| known.trim().trim_start_matches("W/") == tag));
    let mut response = if is_known {
        full(StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        full(StatusCode::OK, Bytes::from_static(contents))
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    // Asked for each time, and answered with 304 until another version is served.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

fn tag(contents: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, contents);
    let hex: String = digest.as_ref()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" | "map" => "application/json",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}
