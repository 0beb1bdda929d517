//! As much of gRPC as kubelet and a device plugin speak: calls over HTTP/2 on a socket of the host, one message or many in
//! the answer, no compression.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};

/// Bytes of the longest message: one container may ask for every device of a host.
const LONGEST: usize = 1 << 20;
/// Bytes before each message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// A status other than success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// Its number.
    pub(super) code: u16,
    /// Why.
    pub(super) message: String,
}

impl Status {
    pub(super) const INVALID_ARGUMENT: u16 = 3;
    pub(super) const UNIMPLEMENTED: u16 = 12;

    pub(super) fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// What a call is answered with.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// One message, then success.
pub(super) fn answer(message: &[u8]) -> Answer {
    stream(futures::stream::iter([message.to_vec()]))
}

/// Messages as they come; success when there are no more.
pub(super) fn stream(messages: impl Stream<Item = Vec<u8>> + Send + 'static) -> Answer {
    let data = messages.map(|message| Frame::data(framed(&message)));
    let end = futures::stream::iter([Frame::trailers(trailers(0, ""))]);
    respond(data.chain(end))
}

/// No message.
pub(super) fn refuse(status: &Status) -> Answer {
    respond(futures::stream::iter([Frame::trailers(trailers(status.code, &status.message))]))
}

fn respond(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Answer {
    let mut response = Response::new(StreamBody::new(frames.map(Ok)).boxed_unsync());
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn trailers(code: u16, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    if let Ok(message) = HeaderValue::from_str(message) {
        trailers.insert("grpc-message", message);
    }
    trailers
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD + message.len());
    bytes.extend_from_slice(&[0]);
    bytes.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes.freeze()
}

/// The first message of a body.
async fn message(body: Incoming) -> Result<Bytes, Status> {
    let limited = http_body_util::Limited::new(body, LONGEST);
    let malformed = |why: &str| Status::new(Status::INVALID_ARGUMENT, why);
    let mut bytes = limited.collect().await.map_err(|_| malformed("the message cannot be read"))?.to_bytes();
    if bytes.len() < HEAD || bytes[0] != 0 {
        return Err(malformed("the message is compressed, or none"));
    }
    bytes.advance(1);
    let length = bytes.get_u32() as usize;
    if bytes.len() < length {
        return Err(malformed("the message is cut short"));
    }
    Ok(bytes.split_to(length))
}

/// Answers the calls on a socket, by path and message, until it is dropped.
pub(super) async fn serve<F>(listener: UnixListener, handle: impl Fn(String, Bytes) -> F + Clone + Send + 'static)
where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((socket, _)) = accepted else { continue };
        let handle = handle.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let handle = handle.clone();
            async move {
                let path = request.uri().path().to_owned();
                let answer = match message(request.into_body()).await {
                    Ok(message) => handle(path, message).await,
                    Err(status) => refuse(&status),
                };
                Ok::<_, Infallible>(answer)
            }
        });
        connections.spawn(async move {
            let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A caller that goes away ends its connection.
            let _ = served.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

/// Calls a method on a socket with one message, and waits for success.
pub(super) async fn call(socket: &Path, path: &str, message: Vec<u8>) -> io::Result<()> {
    let stream = UnixStream::connect(socket).await?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://localhost{path}"))
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .body(Full::new(framed(&message)))
        .map_err(io::Error::other)?;
    let answered = async {
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let collected = body.collect().await?;
        // Without a message, the status is in the head.
        Ok::<_, hyper::Error>(collected.trailers().cloned().unwrap_or(head.headers))
    };
    let told = answered.await;
    connection.abort();
    let told = told.map_err(io::Error::other)?;
    let text = |name: &str| told.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    match text("grpc-status").as_str() {
        "0" => Ok(()),
        code => Err(io::Error::other(format!("status {code}: {}", text("grpc-message")))),
    }
}
