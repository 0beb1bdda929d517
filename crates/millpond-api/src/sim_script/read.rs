//! Scripts from files, with the line and column of what is wrong.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::{Error, Spanned};

use super::Script;
use crate::catalog::import::FileError;
use crate::spelling::nearest;

/// The largest script.
const LIMIT_BYTES: usize = 1 << 20;

/// Reads a script in YAML or JSON.
pub fn parse(file: &str, text: &str) -> Result<Script, FileError> {
    let wrong = |(line, column): (u64, u64), field: Option<String>, problem: String| FileError {
        file: file.to_owned(),
        line,
        column,
        field,
        text: String::new(),
        problem,
    };
    if text.len() > LIMIT_BYTES {
        return Err(wrong((1, 1), None, format!("larger than {} MiB", LIMIT_BYTES >> 20)));
    }
    // Nothing but comments is a script without faults.
    let script: Option<Script> = serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location().map_or((1, 1), |location| (location.line(), location.column()));
        wrong(place, None, message(&error))
    })?;
    let script = script.unwrap_or_default();
    match script.validate("").into_iter().next() {
        None => Ok(script),
        Some(invalid) => Err(wrong(place_of(text, &invalid.field), Some(invalid.field), invalid.problem)),
    }
}

/// What the reader says, with a like name for one that is not known, and without its drawing of the place.
fn message(error: &Error) -> String {
    let error = error.without_snippet();
    let unknown = match error {
        Error::SerdeUnknownField { field, expected, .. } => Some(("field", field, expected)),
        Error::SerdeUnknownVariant { variant, expected, .. } => Some(("word", variant, expected)),
        _ => None,
    };
    if let Some((what, name, expected)) = unknown {
        let hint = match nearest(name, expected.iter().copied()) {
            Some(like) => format!("; is `{like}` meant?"),
            None => format!("; there are {}", expected.join(", ")),
        };
        return format!("unknown {what} `{name}`{hint}");
    }
    let text = error.to_string();
    let end = [" at line ", " (line "].iter().filter_map(|mark| text.rfind(mark)).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Where the rules of a script begin.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Places {
    stock_outs: Vec<Spanned<IgnoredAny>>,
    quotas: Vec<Spanned<IgnoredAny>>,
    calls: Vec<Spanned<IgnoredAny>>,
    interruptions: Vec<Spanned<IgnoredAny>>,
    image: Option<Spanned<IgnoredAny>>,
    throttle: Option<Spanned<IgnoredAny>>,
}

/// Line and column of the rule that a field is of.
fn place_of(text: &str, field: &str) -> (u64, u64) {
    let places: Option<Places> = serde_saphyr::from_str(text).ok();
    let places = places.unwrap_or_default();
    let (list, rest) = field.split_once(['[', '.']).unwrap_or((field, ""));
    let rules = match list {
        "stockOuts" => &places.stock_outs,
        "quotas" => &places.quotas,
        "calls" => &places.calls,
        "interruptions" => &places.interruptions,
        _ => &Vec::new(),
    };
    let index: usize = rest.split(']').next().and_then(|index| index.parse().ok()).unwrap_or(0);
    let other = match list {
        "image" => places.image.as_ref(),
        "throttle" => places.throttle.as_ref(),
        _ => None,
    };
    let found = rules.get(index).or(other);
    found.map_or((1, 1), |place| (place.referenced.line(), place.referenced.column()))
}
