//! The audit log: one JSON line per request, without bodies and without credentials.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use crate::handlers::RequestLog;

/// An open audit log.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Mutex<File>,
}

impl AuditLog {
    /// Opens a log for appending, readable by its owner only.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes one line. A full disk costs lines, never requests.
    pub(crate) fn write(
        &self,
        now: Timestamp,
        parts: &Parts,
        request_log: &RequestLog,
        status: StatusCode,
        took: Duration,
    ) {
        let agent = parts.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
        let mut line = json!({
            "time": now.to_string(),
            "user": request_log.user,
            "verb": request_log.verb,
            "method": parts.method.as_str(),
            "path": parts.uri.path(),
            "query": parts.uri.query(),
            "userAgent": agent,
            "code": status.as_u16(),
            "tookMicros": took.as_micros() as u64,
        });
        if !request_log.annotations.is_empty() {
            line["annotations"] = json!(request_log.annotations);
        }
        if let Err(problem) = writeln!(self.file.lock(), "{line}") {
            tracing::warn!(%problem, "cannot write the audit log");
        }
    }
}
