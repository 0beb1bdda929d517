//! Request bodies: received whole, within limits on size, time and what is held in memory.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;

use crate::intake::ReceivedBody;
use crate::server::{Origin, Server};
use crate::status::ApiError;

/// Bodies beyond this size are refused, as kube-apiserver does.
const MAX_BODY_BYTES: usize = 3 << 20;

/// Reads a body, no more than is allowed and no longer than is reasonable. Bodies of clients inside this process are
/// whole already, and not counted.
pub(super) async fn read<B>(
    server: &Server,
    headers: &HeaderMap,
    body: B,
    user: &str,
    origin: Origin,
) -> Result<Bytes, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let announced =
        headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let received = match origin {
        Origin::InProcess => None,
        Origin::Connection => Some(server.intake.receive(user)?),
    };
    tokio::time::timeout(server.options.request_timeout, collect(body, received)).await.unwrap_or_else(|_| {
        Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "Timeout", "the request body did not arrive in time"))
    })
}

async fn collect<B>(body: B, mut received: Option<ReceivedBody<'_>>) -> Result<Bytes, ApiError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|problem| ApiError::bad_request(format!("error reading the body: {problem}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if let Some(received) = &mut received {
            received.add(data.len())?;
        }
        match &first {
            None => first = Some(data),
            Some(start) => {
                if rest.is_empty() {
                    rest.extend_from_slice(start);
                }
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() })
}

fn too_large() -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "RequestEntityTooLarge",
        format!("Request entity too large: limit is {MAX_BODY_BYTES}"),
    )
}
