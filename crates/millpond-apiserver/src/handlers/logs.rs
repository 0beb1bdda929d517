//! `pods/NAME/log` of pods that a part of this process plays: their logs are text in memory. No kubelet is asked.

use http::StatusCode;

use super::call::Call;
use super::respond::{self, ApiResponse};
use crate::http::ApiBody;
use crate::status::ApiError;

/// The log of a pod, as far as this process has it.
pub(crate) fn get(call: &Call) -> Result<ApiResponse, ApiError> {
    call.fetch()?;
    let log = call.server.own_log(call.namespace(), call.name()).ok_or_else(ApiError::no_such_path)?;
    let text = match call.query.tail_lines {
        Some(lines) => tail(&log, lines),
        None => log,
    };
    Ok(respond::with_type(StatusCode::OK, "text/plain; charset=utf-8", ApiBody::whole(text)))
}

/// The last lines of a text.
fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!((tail("a\nb\n", 5), tail("", 3)), ("a\nb\n".to_owned(), String::new()));
    }
}
