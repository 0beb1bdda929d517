//! The API over HTTPS: accept, TLS handshake, HTTP/1.1 or HTTP/2, and a graceful end.
//!
//! ```text
//! accept ─▶ connections: admit, or evict an idle one ─▶ handshake ─▶ activity: first request, idle, stalled write
//! ```
//!
//! A connection is kept for its requests. A client that sends none is disconnected after a few seconds, whatever other
//! bytes it sends; and if the table is full of idle connections, their slots go to new ones (`connections.rs`).

mod activity;
mod connections;
mod limits;
mod stall;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::activity::Tracked;
use self::connections::{Connections, Entry};
pub use self::limits::{Limits, raise_open_files};
use self::stall::StallGuard;
use crate::server::Server;

/// How long requests may take to end after the server began to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to leave a connection that was idle for too long, after GOAWAY.
const LINGER: Duration = Duration::from_secs(1);
/// Requests on one HTTP/2 connection at the same time: Go clients put everything on one.
const MAX_STREAMS: u32 = 1000;
/// A silent HTTP/2 connection is sent a PING this often,
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// and closed when the answer takes longer: the peer is gone, its watches with it.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// A timer fires at least this often. The runtime's clock then need not be woken for the later deadlines of requests;
/// without the timer, each request on a quiet server would wake another thread twice.
const TICK: Duration = Duration::from_secs(1);

/// Serves until `stop`, then lets requests end.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    limits: Limits,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let connections = Connections::new(limits);
    let tasks = TaskTracker::new();
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let Some(entry) = connections.admit(peer.ip()) else {
                        tracing::warn!(%peer, "refused a connection: all places are taken by busy ones");
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    let end = stop.clone();
                    tasks.spawn(connection(server.clone(), acceptor.clone(), stream, peer, entry, limits, end));
                }
                Err(problem) => {
                    tracing::warn!(%problem, "cannot accept a connection");
                    // Out of file descriptors: wait for some to come back instead of spinning.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            _ = tick.tick() => {}
            () = stop.cancelled() => break,
        }
    }
    drop(listener);
    server.shut_down();
    tasks.close();
    if tokio::time::timeout(DRAIN_TIMEOUT, tasks.wait()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}

async fn connection<S>(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    stream: S,
    peer: SocketAddr,
    entry: Entry,
    limits: Limits,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = tokio::time::timeout(limits.handshake, acceptor.accept(stream));
    let stream = tokio::select! {
        result = handshake => match result {
            Ok(Ok(stream)) => stream,
            Ok(Err(problem)) => return tracing::debug!(%peer, %problem, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%peer, "TLS handshake timed out"),
        },
        () = entry.evicted() => return tracing::debug!(%peer, "evicted during the TLS handshake"),
        () = stop.cancelled() => return,
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let service = server.service_of_connection(certificate.map(AsRef::as_ref));
    let service = Tracked::new(service, entry.activity().clone());
    let mut builder = Builder::new(TokioExecutor::new());
    // The idle limit covers the time until the next header, too.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let stream = TokioIo::new(StallGuard::new(stream, limits.stalled_write));
    let mut connection =
        std::pin::pin!(builder.serve_connection_with_upgrades(stream, TowerToHyperService::new(service)));

    let idle = entry.activity().idle(limits.first_request, limits.idle);
    let mut idle = std::pin::pin!(idle);
    let mut linger = std::pin::pin!(tokio::time::sleep(LINGER));
    let (mut leaving, mut stopping) = (false, false);
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(problem) = result {
                    tracing::debug!(%peer, %problem, "connection ended");
                }
                return;
            }
            () = entry.evicted() => return tracing::debug!(%peer, "evicted an idle connection"),
            () = &mut idle, if !leaving => {
                leaving = true;
                connection.as_mut().graceful_shutdown();
                linger.as_mut().reset(tokio::time::Instant::now() + LINGER);
            }
            () = &mut linger, if leaving => {
                if !entry.activity().is_busy() {
                    return tracing::debug!(%peer, "closed an idle connection");
                }
                linger.as_mut().reset(tokio::time::Instant::now() + LINGER);
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
