//! Connections without requests, in memory under virtual time; and more of them than there are places, on loopback.

use std::net::{IpAddr, Ipv4Addr};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::auth::Identity;
use crate::clock::Clock;
use crate::pki::Pki;
use crate::server::ServerOptions;
use crate::store::Store;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TOKEN: &str = "0123456789abcdef";

struct World {
    server: Arc<Server>,
    pki: Pki,
    limits: Limits,
    connections: Connections,
}

impl World {
    fn new(limits: Limits) -> Self {
        let clock = Clock::System;
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
        server.tokens().add(TOKEN.to_owned(), Identity::administrator("admin")).unwrap();
        let pki = Pki::ephemeral(&["localhost".to_owned()], &[], clock.now()).unwrap();
        Self { server, pki, limits, connections: Connections::new(limits) }
    }

    /// A connection in memory, before the handshake.
    fn dial(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(64 << 10);
        let acceptor = TlsAcceptor::from(Arc::new(self.pki.tls_config().unwrap()));
        let entry = self.connections.admit(LOCALHOST).unwrap();
        let (server, limits, peer) = (self.server.clone(), self.limits, SocketAddr::new(LOCALHOST, 1));
        tokio::spawn(connection(server, acceptor, far, peer, entry, limits, CancellationToken::new()));
        near
    }

    fn connector(&self, protocol: &str) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pki.ca_pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsConnector::from(Arc::new(config))
    }

    async fn connect(&self, protocol: &str) -> TlsStream<DuplexStream> {
        let name = ServerName::try_from("localhost").unwrap();
        self.connector(protocol).connect(name, self.dial()).await.unwrap()
    }
}

/// Reads until the server closes; gives the time that it took.
async fn time_until_closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Duration {
    let start = Instant::now();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    start.elapsed()
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
}

/// Reads until a text has come.
async fn read_until(stream: &mut (impl tokio::io::AsyncRead + Unpin), text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed after {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_send_no_request_are_closed() {
    let world = World::new(Limits::default());
    let limits = world.limits;
    let mut silent = world.dial();
    let took = time_until_closed(&mut silent).await;
    assert!(took >= limits.handshake && took <= limits.handshake + LINGER, "no handshake: {took:?}");
    for (protocol, bytes) in [
        ("http/1.1", ""),
        ("http/1.1", "G"),
        ("http/1.1", "GET /livez HTTP/1.1\r\nHost: local"),
        ("h2", ""),
        ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ] {
        let mut stream = world.connect(protocol).await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let took = time_until_closed(&mut stream).await;
        assert!(
            took >= limits.first_request && took <= limits.first_request + LINGER,
            "{protocol} {bytes:?}: {took:?}"
        );
    }
    assert_eq!(world.connections.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_stays_between_requests_and_while_it_watches() {
    let world = World::new(Limits::default());
    let idle = world.limits.idle;
    let mut stream = world.connect("http/1.1").await;
    for _ in 0..3 {
        stream.write_all(request("/livez").as_bytes()).await.unwrap();
        read_until(&mut stream, "ok").await;
        tokio::time::sleep(idle - Duration::from_secs(1)).await;
    }
    let took = time_until_closed(&mut stream).await;
    assert!(took <= idle + LINGER, "{took:?}");

    let mut watch = world.connect("http/1.1").await;
    watch.write_all(request("/api/v1/namespaces?watch=1&timeoutSeconds=1000").as_bytes()).await.unwrap();
    let took = time_until_closed(&mut watch).await;
    assert!(took >= Duration::from_secs(1000) && took <= Duration::from_secs(1000) + idle * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_given_up() {
    let world = World::new(Limits::default());
    let mut stream = world.connect("http/1.1").await;
    for _ in 0..20 {
        stream.write_all(request("/openapi/v3/api/v1").as_bytes()).await.unwrap();
    }
    stream.flush().await.unwrap();
    let before = Instant::now();
    while world.connections.count() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(before.elapsed() < world.limits.stalled_write * 2, "never closed");
    }
}

#[tokio::test]
async fn idle_connections_give_their_places_to_new_ones() {
    let limits = Limits { total: 8, per_address: 6, ..Limits::default() };
    let world = World::new(limits);
    let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tls, stop) = (Arc::new(world.pki.tls_config().unwrap()), CancellationToken::new());
    let serving = tokio::spawn(serve(world.server.clone(), listener, tls, limits, stop.clone()));
    let connector = world.connector("http/1.1");
    let name = || ServerName::try_from("localhost").unwrap();

    // A known client with a watch, which keeps its place.
    let mut watch = connector.connect(name(), TcpStream::connect(address).await.unwrap()).await.unwrap();
    watch.write_all(request("/api/v1/namespaces?watch=1").as_bytes()).await.unwrap();
    read_until(&mut watch, "200 OK").await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(connector.connect(name(), TcpStream::connect(address).await.unwrap()).await.unwrap());
    }
    let mut client = connector.connect(name(), TcpStream::connect(address).await.unwrap()).await.unwrap();
    client.write_all(request("/readyz").as_bytes()).await.unwrap();
    read_until(&mut client, "ok").await;
    // The oldest silent ones are closed, no timer involved.
    for stream in &mut silent[..30] {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    stop.cancel();
    let _ = watch.read_to_end(&mut Vec::new()).await;
    drop((silent, client, watch));
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn places_are_counted_per_address_and_busy_ones_are_kept() {
    let limits = Limits { total: 4, per_address: 3, ..Limits::default() };
    let connections = Connections::new(limits);
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let entries: Vec<Entry> = (0..3).map(|_| connections.admit(address(1)).unwrap()).collect();
    let fourth = connections.admit(address(1)).unwrap();
    let evicted = |entry: &Entry| futures::FutureExt::now_or_never(entry.evicted()).is_some();
    assert_eq!(entries.iter().map(evicted).collect::<Vec<_>>(), [true, false, false], "the oldest of its address");
    let other = connections.admit(address(2)).unwrap();
    assert_eq!(connections.count(), 4);
    let mapped = connections.admit("::ffff:10.0.0.1".parse().unwrap()).unwrap();
    assert!(evicted(&entries[1]) && !evicted(&other), "the same address in IPv6");

    let busy: Vec<_> = [&entries[2], &fourth, &mapped].iter().map(|entry| entry.activity().begin()).collect();
    assert!(connections.admit(address(1)).is_none(), "all of its address are busy");
    let _in_flight = other.activity().begin();
    assert!(connections.admit(address(3)).is_none(), "all are busy");
    drop(busy);
    assert!(connections.admit(address(3)).is_some());
    drop(entries);
    drop((fourth, other, mapped));
    assert_eq!(connections.count(), 0);
}
