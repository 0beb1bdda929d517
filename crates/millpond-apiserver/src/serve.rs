//! The API over HTTPS: accept, shake hands, answer, and end without cutting anyone off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::Identity;
use crate::server::Server;

/// Connections at the same time; beyond it, new ones wait to be accepted.
const MAX_CONNECTIONS: usize = 8192;
/// A handshake that takes longer is given up.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests may take to end after the server was told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests on one HTTP/2 connection at the same time: Go clients put everything on one.
const MAX_STREAMS: u32 = 1000;
/// Something is always due within this time. The clock then never has to be woken for the deadline of a request,
/// which is later; without it, each request on a quiet server wakes another thread twice.
const TICK: Duration = Duration::from_secs(1);

/// Serves until `stop`, then lets requests end.
pub async fn serve(server: Arc<Server>, listener: TcpListener, tls: rustls::ServerConfig, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut tick = tokio::time::interval(TICK);
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { break };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let watcher = graceful.watcher();
                    tokio::spawn(connection(server.clone(), acceptor.clone(), stream, peer, watcher, slot));
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
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}

async fn connection(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    watcher: hyper_util::server::graceful::Watcher,
    _slot: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(problem)) => return tracing::debug!(%peer, %problem, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake timed out"),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let identity = certificate.and_then(|certificate| Identity::of_certificate(certificate));
    let service = match identity {
        Some(identity) => server.service_for(identity),
        None => server.service(),
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    builder.http2().timer(hyper_util::rt::TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
    if let Err(problem) = watcher.watch(connection).await {
        tracing::debug!(%peer, %problem, "connection ended");
    }
}
