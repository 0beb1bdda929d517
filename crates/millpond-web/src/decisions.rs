//! The decision history.

use bytes::Bytes;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use millpond_runtime::history::{Decision, DecisionKind, Subject};
use serde_json::{Value, json};

use crate::api::Call;
use crate::respond::{Body, Problem, full};

/// Decisions of a page where nothing else is asked for.
const USUAL: i64 = 100;
/// And at most.
const MOST: i64 = 500;

/// A page of decisions, the newest first.
pub(crate) fn list(call: &Call) -> Result<Value, Problem> {
    let history = call.dashboard.0.watched.history();
    let (from, to) = (call.number("from")?, call.number("to")?);
    let before = call.number("cursor")?;
    let limit = call.number("limit")?.unwrap_or(USUAL).clamp(1, MOST) as usize;
    let about = call.query("object").map(Subject::parse).transpose().map_err(Problem::bad_request)?;
    let named = call.query.get("kind").into_iter().flatten();
    let kinds = named
        .map(|name| {
            DecisionKind::from_name(name)
                .ok_or_else(|| Problem::bad_request(format!("`{name}` is no kind of decision")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let is_wanted = |decision: &Decision| {
        from.is_none_or(|from| decision.at >= from)
            && to.is_none_or(|to| decision.at <= to)
            && before.is_none_or(|before| (decision.number as i64) < before)
            && (kinds.is_empty() || kinds.contains(&decision.kind))
            && about.as_ref().is_none_or(|about| decision.concerns(about))
    };
    let all = history.all();
    let mut chosen: Vec<&Decision> = all.iter().rev().map(|decision| &**decision).filter(|it| is_wanted(it)).collect();
    let more = chosen.len() > limit;
    chosen.truncate(limit);
    let next = chosen.last().filter(|_| more).map(|last| last.number.to_string());
    Ok(json!({
        "decisions": chosen.iter().map(|decision| decision.summary()).collect::<Vec<_>>(),
        "next": next,
        "total": all.len(),
        "kept": format!("the last {} decisions are kept", millpond_runtime::history::MAX_DECISIONS),
    }))
}

/// All decisions about something, the newest first.
pub(crate) fn about(call: &Call, subject: &Subject) -> Vec<Value> {
    let all = call.dashboard.0.watched.history().all();
    let about = all.iter().rev().filter(|decision| decision.concerns(subject));
    about.take(MOST as usize).map(|decision| decision.summary()).collect()
}

/// One decision.
pub(crate) fn one(call: &Call, id: &str) -> Result<Value, Problem> {
    let history = call.dashboard.0.watched.history();
    let found = Decision::number_of(id).and_then(|number| history.get(number));
    let decision = found.ok_or_else(|| Problem::not_found(format!("no decision `{id}` is kept")))?;
    Ok(decision.detail(history.has_snapshot(decision.number)))
}

/// What a decision was made from, as a file.
pub(crate) fn snapshot(call: &Call, id: &str) -> Result<Response<Body>, Problem> {
    let history = call.dashboard.0.watched.history();
    let found = Decision::number_of(id).and_then(|number| Some((number, history.snapshot(number)?)));
    let (number, text) = found.ok_or_else(|| Problem::not_found(format!("the snapshot of `{id}` is not kept")))?;
    let mut response = full(StatusCode::OK, Bytes::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"d-{number}.json\"")) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    Ok(response)
}
