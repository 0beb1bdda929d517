//! OpenAPI documents: what `kubectl explain`, client-side validation and typed generators read.
//!
//! `/openapi/v3` is an index of one document for each group and version; `/openapi/v2` is everything in one,
//! in JSON or in protobuf. All are made from the descriptors of what is served: [`schemas`] turns types into
//! definitions, [`custom`] does so for CRDs, [`paths`] lists the operations, [`gnostic`] writes protobuf. Prose
//! about built-in types comes from the `k8s-openapi` crate ([`descriptions`]).
//!
//! Documents are built on the first request, and again after a change of what they describe. Their tag is a hash of
//! their text, so clients may cache them without limit.

mod custom;
mod descriptions;
mod gnostic;
mod paths;
mod schemas;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use self::descriptions::Descriptions;
use self::schemas::{Definitions, Dialect};
use crate::http::negotiate::alternatives;
use crate::registry::{GroupVersion, Resources};
use crate::resource::Resource;
use crate::status::ApiError;

/// Accepted names of the protobuf form of `/openapi/v2`; the last is how it is answered.
const GNOSTIC_TYPES: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

/// One document, ready to be sent.
#[derive(Debug, Clone)]
pub struct Document {
    /// Changes with the text; in quotes, as in an `ETag`.
    pub tag: String,
    /// Media type of the text.
    pub media_type: &'static str,
    /// The document.
    pub text: Bytes,
}

/// Makes documents and keeps them.
#[derive(Debug, Default)]
pub struct OpenApi {
    versions: Mutex<BTreeMap<String, Made>>,
    swagger: Mutex<Option<Swagger>>,
}

/// A document of OpenAPI v3.
#[derive(Debug)]
struct Made {
    /// The resources that it describes.
    resources: Vec<Arc<Resource>>,
    tag: String,
    /// Rendered on the first request; the index alone only needs tags.
    text: Option<Bytes>,
}

/// The document of OpenAPI v2 for one generation of resources.
#[derive(Debug)]
struct Swagger {
    generation: u64,
    json: Document,
    protobuf: Option<Document>,
}

impl OpenApi {
    /// The answer to `/openapi/v3`.
    pub fn index(&self, resources: &Resources) -> Value {
        let mut known = self.versions.lock();
        let mut current = BTreeMap::new();
        let mut descriptions = None;
        let mut paths = Map::new();
        for (group, version) in versions(resources) {
            let path = path_of(group, &version.version);
            let made = known.remove(&path).filter(|made| made.is_of(version)).unwrap_or_else(|| {
                let descriptions = descriptions.get_or_insert_with(Descriptions::load);
                Made { text: None, ..Made::new(group, version, descriptions) }
            });
            let address = format!("/openapi/v3/{path}?hash={}", made.tag.trim_matches('"'));
            paths.insert(path.clone(), json!({"serverRelativeURL": address}));
            current.insert(path, made);
        }
        *known = current;
        json!({"paths": paths})
    }

    /// The document of one group and version, if it is served.
    pub fn document(&self, resources: &Resources, group: &str, version: &str) -> Option<Document> {
        let version = resources.version(group, version)?;
        let path = path_of(group, &version.version);
        let mut known = self.versions.lock();
        let made = known.remove(&path).filter(|made| made.is_of(version) && made.text.is_some());
        let made = made.unwrap_or_else(|| Made::new(group, version, &Descriptions::load()));
        let made = known.entry(path).or_insert(made);
        Some(Document { tag: made.tag.clone(), media_type: "application/json", text: made.text.clone()? })
    }

    /// The answer to `/openapi/v2`, in the form that the client accepts.
    pub fn swagger(&self, resources: &Resources, headers: &HeaderMap) -> Result<Document, ApiError> {
        let protobuf = wants_protobuf(headers)?;
        let mut kept = self.swagger.lock();
        let current = match kept.take() {
            Some(current) if current.generation == resources.generation => current,
            _ => {
                let text = v2(resources, &Descriptions::load()).to_string();
                let json = Document { tag: tag_of(&text), media_type: "application/json", text: text.into() };
                Swagger { generation: resources.generation, json, protobuf: None }
            }
        };
        let current = kept.insert(current);
        if !protobuf {
            return Ok(current.json.clone());
        }
        let json = &current.json;
        let document = current.protobuf.get_or_insert_with(|| {
            let document = serde_json::from_slice(&json.text).expect("the document was written as JSON");
            Document { tag: json.tag.clone(), media_type: GNOSTIC_TYPES[1], text: gnostic::encode(&document).into() }
        });
        Ok(document.clone())
    }
}

/// Every group and version.
fn versions(resources: &Resources) -> impl Iterator<Item = (&str, &GroupVersion)> {
    resources.groups.iter().flat_map(|(name, group)| group.versions.iter().map(move |version| (&**name, version)))
}

/// `api/v1` or `apis/apps/v1`.
fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

impl Made {
    fn new(group: &str, version: &GroupVersion, descriptions: &Descriptions) -> Self {
        let text = v3(group, version, descriptions);
        let resources = version.resources.values().cloned().collect();
        Self { resources, tag: tag_of(&text), text: Some(text.into()) }
    }

    /// Whether the document was made from these very resources.
    fn is_of(&self, version: &GroupVersion) -> bool {
        self.resources.len() == version.resources.len()
            && self.resources.iter().zip(version.resources.values()).all(|(known, now)| Arc::ptr_eq(known, now))
    }
}

fn tag_of(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    format!("\"{:016X}\"", hasher.finish())
}

/// Whether the client asks for protobuf; an error if it takes nothing that there is.
fn wants_protobuf(headers: &HeaderMap) -> Result<bool, ApiError> {
    let accepted = alternatives(headers);
    if accepted.is_empty() {
        return Ok(false);
    }
    for alternative in &accepted {
        match alternative.media_type {
            "application/json" | "application/*" | "*/*" => return Ok(false),
            other if GNOSTIC_TYPES.contains(&other) => return Ok(true),
            _ => {}
        }
    }
    Err(ApiError::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!("only the following media types are accepted: application/json, {}", GNOSTIC_TYPES[1]),
    ))
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.36"})
}

fn security() -> Value {
    json!({"BearerToken": {
        "type": "apiKey", "in": "header", "name": "authorization", "description": "Bearer Token authentication",
    }})
}

/// The text of a document of OpenAPI v3.
fn v3(group: &str, version: &GroupVersion, descriptions: &Descriptions) -> String {
    let group_versions = vec![(group.to_owned(), version.version.to_string())];
    let mut definitions = Definitions::new(Dialect::V3, descriptions, group_versions);
    let mut all_paths = Map::new();
    paths::add(group, version, &mut definitions, &mut all_paths);
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": all_paths,
        "components": {"schemas": definitions.finish(), "securitySchemes": security()},
    })
    .to_string()
}

/// The document of OpenAPI v2.
fn v2(resources: &Resources, descriptions: &Descriptions) -> Value {
    let group_versions =
        versions(resources).map(|(group, version)| (group.to_owned(), version.version.to_string())).collect();
    let mut definitions = Definitions::new(Dialect::V2, descriptions, group_versions);
    let mut all_paths = Map::new();
    for (group, version) in versions(resources) {
        paths::add(group, version, &mut definitions, &mut all_paths);
    }
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": all_paths,
        "definitions": definitions.finish(),
        "securityDefinitions": security(),
        "security": [{"BearerToken": []}],
    })
}

#[cfg(test)]
mod tests;
