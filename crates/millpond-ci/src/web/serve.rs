//! Connections of the web API.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Web;

/// Connections at a time; the rest wait in the kernel's queue.
const CONNECTIONS: usize = 256;
/// A client that has not sent its request by then is disconnected, so that it cannot hold one of the connections.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// After a failed `accept` (no file descriptors left) the next one waits so long.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A port that is bound.
pub struct Listener {
    /// The port.
    pub socket: TcpListener,
    /// Beyond loopback.
    pub tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Its address.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Serves until the token is cancelled.
pub async fn serve(web: Web, listener: Listener, stop: CancellationToken) {
    let (web, permits) = (Arc::new(web), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.socket.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let (web, tls, stop) = (Arc::clone(&web), listener.tls.clone(), stop.clone());
        tokio::spawn(async move {
            let _permit = permit;
            stop.run_until_cancelled(connection(stream, tls, web)).await;
        });
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, web: Arc<Web>) {
    match tls {
        None => exchange(stream, web).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(REQUEST_WITHIN, tls.accept(stream)).await {
                exchange(stream, web).await;
            }
        }
    }
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, web: Arc<Web>) {
    let service = service_fn(|request: Request<Incoming>| {
        let web = Arc::clone(&web);
        async move { Ok::<_, Infallible>(web.answer(&request).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_WITHIN);
    // A connection that breaks is the client's business.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
