//! The listener: plain HTTP on loopback. Beyond loopback the page would need TLS, and is not served.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Dashboard;

/// Connections at a time; the rest wait in the kernel's queue.
const CONNECTIONS: usize = 256;
/// A client that has not sent the head of its request by then is disconnected.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// After a failed `accept` (no file descriptors left) the next one waits so long.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves until the token is cancelled. The listener must be on loopback.
pub async fn serve(dashboard: Dashboard, listener: TcpListener, stop: CancellationToken) {
    let (permits, tracker) = (Arc::new(Semaphore::new(CONNECTIONS)), TaskTracker::new());
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let (dashboard, stop) = (dashboard.clone(), stop.clone());
        tracker.spawn(async move {
            let _permit = permit;
            let service = service_fn(|request| {
                let dashboard = dashboard.clone();
                async move { Ok::<_, Infallible>(dashboard.answer(request).await) }
            });
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            builder.http2().timer(TokioTimer::new());
            tokio::select! {
                // Streams have no end of their own.
                () = stop.cancelled() => {}
                // A connection that breaks is the client's business.
                _ = builder.serve_connection(TokioIo::new(stream), service) => {}
            }
        });
    }
    tracker.close();
    tracker.wait().await;
}
