//! A client that speaks HTTP/2 where the server does.
//!
//! kube's own client speaks HTTP/1 only, and so opens a connection for every watch and for every write that is under way:
//! controllers opened 75 within a second, each with a TLS handshake. With ALPN the server chooses, and one connection
//! carries all of them, as with client-go. The rest of the stack (authentication, headers, the address) is kube's.

use std::time::Duration;

use anyhow::Context as _;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};
use tokio_rustls::rustls::pki_types::ServerName;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder};

/// A connection without traffic for this long is pinged, as in client-go.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A connection that does not answer that is closed.
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(15);
/// Bytes of one answer that may be under way; a list of pods has megabytes.
const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes of all answers of a connection that may be under way.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// The service of a client: requests to a cluster, over as few connections as it takes.
pub(super) fn service(config: &Config) -> anyhow::Result<BoxService<Request<Body>, Response<Incoming>, BoxError>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let tls = config.rustls_client_config().context("cannot use the cluster's certificates")?;
    let mut connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone()).context("cannot use the name of the cluster's certificate")?;
        connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = connector.enable_http1().enable_http2().wrap_connector(tcp);
    let client: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_ANSWERED_WITHIN)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context("cannot authenticate to the cluster")?)
        .layer(config.extra_headers_layer().context("cannot use the headers of the kubeconfig")?)
        .map_err(BoxError::from)
        .service(client);
    Ok(BoxService::new(service))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use kube::{Api, Client};
    use millpond_apiserver::{Embedded, EmbeddedOptions};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Passes connections on; gives its port and how many there were.
    async fn counting(to: std::net::SocketAddr) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut theirs, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut ours = TcpStream::connect(to).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut theirs, &mut ours).await;
                });
            }
        });
        (port, count)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_requests_share_a_connection() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::start(EmbeddedOptions::new(directory.path())).await.unwrap();
        let (port, connections) = counting(embedded.address()).await;
        let kubeconfig = Kubeconfig::read_from(embedded.kubeconfig()).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
        let client = Client::new(service(&config).unwrap(), "default");
        let namespaces: Api<Namespace> = Api::all(client);
        namespaces.get("default").await.unwrap();
        let lists = kube::api::ListParams::default();
        let answers = join_all((0..60).map(|_| namespaces.list(&lists))).await;
        assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|list| !list.items.is_empty())));
        assert_eq!(connections.load(Ordering::Relaxed), 1, "connections for 61 requests");
        embedded.stop().await;
    }
}
