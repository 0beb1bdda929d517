//! Get and list.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::{Call, Selection};
use super::respond::{self, ApiResponse};
use crate::convert;
use crate::http::ApiBody;
use crate::http::negotiate::{Encoding, Form};
use crate::long_work::{self, LONG_BYTES, LONG_OBJECTS};
use crate::resource::{Behaviour, Resource};
use crate::schema::strict;
use crate::status::{ApiError, FieldError};
use crate::store::{Listing, StoredObject};
use crate::table;

/// Lists are written in pieces of about this size: large enough for few writes, small enough to stay cheap.
const LIST_PIECE_BYTES: usize = 256 << 10;

/// Gets one object.
pub(crate) fn get(call: &Call) -> Result<ApiResponse, ApiError> {
    if !call.query.resource_version.is_empty() {
        check_not_in_future(call, parse_revision(&call.query.resource_version)?)?;
    }
    Ok(respond::object(call, StatusCode::OK, &*call.fetch()?))
}

/// Lists objects of a collection.
pub(crate) fn list(call: &Call) -> Result<ApiResponse, ApiError> {
    let selection = Selection::of(call)?;
    let long = !selection.selects_all() && call.server.store.count(&call.resource.storage) > LONG_OBJECTS;
    let page = long_work::run(long, || page(call, &selection))?;
    let mut meta = json!({"resourceVersion": page.listing.revision.to_string()});
    if page.listing.remaining > 0 {
        let last = page.listing.items.last().map(|(key, _)| key.to_string()).unwrap_or_default();
        meta["continue"] = json!(Continue { rv: page.token_revision, start: last }.encode());
        if selection.selects_all() {
            meta["remainingItemCount"] = json!(page.listing.remaining);
        }
    }
    let bytes: usize = page.listing.items.iter().map(|(_, object)| object.bytes.len()).sum();
    let items = page.listing.items.into_iter().map(|(_, object)| object);
    match (call.accepted.form, call.accepted.encoding) {
        (Form::Plain, Encoding::Json) if !convert::differs(&call.resource) => {
            Ok(respond::with_type(StatusCode::OK, "application/json", plain_body(&call.resource, &meta, items)))
        }
        _ => long_work::run(bytes > LONG_BYTES, || {
            let objects: Vec<Value> = items.map(|object| served(&call.resource, &object)).collect();
            converted_list(call, &objects, meta)
        }),
    }
}

struct Page {
    listing: Listing,
    /// The revision for the next continue token; -1 once consistency was given up.
    token_revision: i64,
}

fn page(call: &Call, selection: &Selection) -> Result<Page, ApiError> {
    let query = &call.query;
    check_version_match(call)?;
    let keep = |object: &StoredObject, key: &str| selection.matches(object, key);
    let store = &call.server.store;
    let (collection, prefix, limit) = (&*call.resource.storage, &*selection.prefix, query.limit);
    if !query.continue_token.is_empty() {
        if !query.resource_version.is_empty() && query.resource_version != "0" {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let token = Continue::decode(&query.continue_token)?;
        if token.rv < 0 {
            let listing = store.list(collection, prefix, Some(&token.start), limit, keep);
            return Ok(Page { listing, token_revision: -1 });
        }
        if token.rv as u64 > store.revision() {
            // Given out by another store, e.g. one in memory that has ended.
            return Err(continue_expired(&token));
        }
        let listing = store
            .list_at(collection, prefix, Some(&token.start), limit, token.rv as u64, keep)
            .map_err(|_| continue_expired(&token))?;
        return Ok(Page { listing, token_revision: token.rv });
    }
    let listing = if query.resource_version_match == "Exact" {
        let revision = parse_revision(&query.resource_version)?;
        check_not_in_future(call, revision)?;
        store.list_at(collection, prefix, None, limit, revision, keep).map_err(|compacted| {
            ApiError::expired(format!(
                "The resourceVersion for the provided list is too old: {revision} ({})",
                compacted.oldest
            ))
        })?
    } else {
        if !query.resource_version.is_empty() {
            check_not_in_future(call, parse_revision(&query.resource_version)?)?;
        }
        match selection.fields.exact_name() {
            Some(name) if !prefix.is_empty() || !call.resource.namespaced => one_object(call, selection, name),
            _ => store.list(collection, prefix, None, limit, keep),
        }
    };
    Ok(Page { token_revision: listing.revision as i64, listing })
}

/// A list that selects one name need not look at the others.
fn one_object(call: &Call, selection: &Selection, name: &str) -> Listing {
    let revision = call.server.store.revision();
    let key: Arc<str> = format!("{}{name}", selection.prefix).into();
    let found = call.server.store.get(&call.resource.storage, &key);
    let items = found.into_iter().filter(|object| selection.matches(object, &key));
    let items: Vec<_> = items.map(|object| (key.clone(), object)).collect();
    let newest = items.iter().map(|(_, object)| object.revision).max().unwrap_or(0);
    Listing { revision: revision.max(newest), items, remaining: 0 }
}

fn check_version_match(call: &Call) -> Result<(), ApiError> {
    let query = &call.query;
    let matching = query.resource_version_match.as_str();
    let mut errors = Vec::new();
    if query.send_initial_events.is_some() && !query.watch {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if !matching.is_empty() {
        if query.resource_version.is_empty() {
            errors.push(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !query.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && query.resource_version == "0" {
            errors.push(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}

/// Reads a resourceVersion.
pub(crate) fn parse_revision(text: &str) -> Result<u64, ApiError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let error = FieldError::invalid(
            "resourceVersion",
            text,
            format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
        );
        ApiError::bad_request(format!("invalid resource version: {error}"))
    })
}

/// A revision that this server has not reached cannot be waited for: it would come only by other writes.
pub(crate) fn check_not_in_future(call: &Call, revision: u64) -> Result<(), ApiError> {
    let current = call.server.store.revision();
    if revision <= current {
        return Ok(());
    }
    let mut error = ApiError::new(
        StatusCode::GATEWAY_TIMEOUT,
        "Timeout",
        format!("Too large resource version: {revision}, current: {current}"),
    );
    let details = error.details.get_or_insert_default();
    details.causes = vec![crate::status::Cause {
        reason: "ResourceVersionTooLarge",
        message: "Too large resource version".to_owned(),
        field: String::new(),
    }];
    details.retry_after_s = Some(1);
    Err(error)
}

/// An object as a tree in the served version.
pub(crate) fn served(resource: &Resource, object: &StoredObject) -> Value {
    let mut value = object.to_value();
    convert::to_served(resource, &mut value);
    value
}

fn converted_list(call: &Call, objects: &[Value], mut meta: Value) -> Result<ApiResponse, ApiError> {
    let list = match call.accepted.form {
        Form::Table => {
            let include = table::IncludeObject::parse(call.query.include_object.as_deref())?;
            table::render(&call.resource, objects.iter(), include, call.server.clock.now(), &meta, false)
        }
        Form::PartialMetadata => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta.take(),
            // Go's nil slice: this list is `null` when there is nothing.
            "items": (!objects.is_empty()).then(|| objects.iter().map(table::partial_metadata).collect::<Vec<_>>()),
        }),
        Form::Plain => json!({
            "kind": call.resource.list_kind,
            "apiVersion": call.resource.api_version(),
            "metadata": meta.take(),
            "items": objects,
        }),
    };
    Ok(respond::encoded(call, StatusCode::OK, &list))
}

/// A list as JSON, put together from the stored texts while it is sent.
fn plain_body(
    resource: &Resource,
    meta: &Value,
    items: impl Iterator<Item = Arc<StoredObject>> + Send + 'static,
) -> ApiBody {
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{meta},\"items\":[",
        json!(resource.list_kind),
        json!(resource.api_version()),
    );
    let mut items = items.enumerate().peekable();
    if items.peek().is_none() {
        return ApiBody::whole(head + "]}");
    }
    let kept = ItemPrefix::of(resource);
    let mut piece = BytesMut::with_capacity(LIST_PIECE_BYTES / 8);
    piece.extend_from_slice(head.as_bytes());
    let mut done = false;
    ApiBody::pieces_from(move || {
        if done {
            return None;
        }
        while piece.len() < LIST_PIECE_BYTES {
            let Some((number, object)) = items.next() else {
                piece.extend_from_slice(b"]}");
                done = true;
                break;
            };
            if number > 0 {
                piece.extend_from_slice(b",");
            }
            kept.write(&mut piece, &object.bytes);
        }
        Some(piece.split().freeze())
    })
}

/// Items of a list of built-ins come without `apiVersion` and `kind`, as Go's typed lists do.
struct ItemPrefix(Option<Vec<u8>>);

impl ItemPrefix {
    fn of(resource: &Resource) -> Self {
        let typed = matches!(resource.behaviour, Behaviour::Builtin(_));
        Self(typed.then(|| {
            format!("{{\"apiVersion\":{},\"kind\":{},", json!(resource.api_version()), json!(resource.kind))
                .into_bytes()
        }))
    }

    fn write(&self, piece: &mut BytesMut, object: &Bytes) {
        match self.0.as_ref().and_then(|prefix| object.strip_prefix(prefix.as_slice())) {
            Some(rest) => {
                piece.extend_from_slice(b"{");
                piece.extend_from_slice(rest);
            }
            None => piece.extend_from_slice(object),
        }
    }
}

/// The content of a continue token: the revision, and the last key of the previous page.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    rv: i64,
    start: String,
}

impl Continue {
    fn encode(&self) -> String {
        let text = json!({"v": "meta.k8s.io/v1", "rv": self.rv, "start": format!("{}\u{0}", self.start)});
        URL_SAFE_NO_PAD.encode(text.to_string())
    }

    fn decode(token: &str) -> Result<Self, ApiError> {
        let bad =
            |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|problem| bad(&problem.to_string()))?;
        let (tree, _) = strict::parse_json(&text).map_err(|problem| bad(&problem.to_string()))?;
        let mut token: Self = serde_json::from_value(tree).map_err(|problem| bad(&problem.to_string()))?;
        if token.rv == 0 {
            return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        let start = token.start.strip_suffix('\u{0}').ok_or_else(|| bad("encoded start key empty"))?;
        token.start = start.to_owned();
        Ok(token)
    }
}

/// The 410 error for a token whose revision is gone, with a token for an inconsistent continuation.
fn continue_expired(token: &Continue) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.continue_token = Some(Continue { rv: -1, start: token.start.clone() }.encode().into());
    error
}
