//! The listener of a launcher's web API, and the authorization of its clients.
//!
//! On loopback it speaks plain HTTP and answers reads of every client, as Nodepool does. On any other address it speaks
//! TLS and wants a token for reads as well, but for `/ready`, which probes ask without one. Changes always need a token.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use http::StatusCode;
use jiff::Timestamp;
use kube::Client;
use millpond_apiserver::pki::Pki;
use millpond_ci::config::{Config, WebApp};
use millpond_ci::web::{Authorize, Listener, Web, serve};
use tokio::net::{TcpListener, lookup_host};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::commands::controller::access;
use crate::failure::{Code, Failure};

/// Listens as the configuration says.
pub(crate) async fn bind(config: &WebApp) -> anyhow::Result<Listener> {
    let address = address(config).await?;
    let socket = TcpListener::bind(address).await.map_err(|source| {
        let failure = Failure {
            message: format!("cannot listen on {address} for the web API of CI nodes"),
            code: Some(Code::Conflict).filter(|_| source.kind() == std::io::ErrorKind::AddrInUse),
            hint: Some("`webapp: {port: PORT}` of the configuration names another port".to_owned()),
        };
        anyhow::Error::new(source).context(failure)
    })?;
    let tls = if address.ip().is_loopback() { None } else { Some(acceptor(address.ip())?) };
    Ok(Listener { socket, tls })
}

async fn address(config: &WebApp) -> anyhow::Result<SocketAddr> {
    let Some(host) = &config.listen_address else {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), config.port));
    };
    let unknown = || format!("`listen_address: {host}` of the configuration is no address");
    let mut found = lookup_host((host.as_str(), config.port)).await.with_context(unknown)?;
    found.next().with_context(unknown)
}

/// A certificate of this process's own: it lives as long as the process, and clients do not verify it.
fn acceptor(address: IpAddr) -> anyhow::Result<TlsAcceptor> {
    let pki = Pki::ephemeral(&["nodepool-launcher".to_owned()], &[address], Timestamp::now())
        .context("cannot make a certificate for the web API")?;
    Ok(TlsAcceptor::from(Arc::new(pki.tls_config()?)))
}

/// The URL of a listener.
pub(crate) fn url(listener: &Listener) -> String {
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    listener.address().map_or_else(|_| String::new(), |address| format!("{scheme}://{address}"))
}

/// Serves at the configured address, and moves when the configuration changes; `make` gets whether reads need a token.
pub(crate) async fn follow(
    mut config: watch::Receiver<Arc<Config>>,
    ends: CancellationToken,
    make: impl Fn(bool) -> Web,
) {
    loop {
        let now = Arc::clone(&config.borrow_and_update());
        let stop = ends.child_token();
        match bind(&now.webapp).await {
            Ok(listener) => {
                tracing::info!(url = url(&listener), "the web API of CI nodes is served");
                tokio::spawn(serve(make(listener.tls.is_some()), listener, stop.clone()));
            }
            Err(error) => tracing::error!("{error:#}"),
        }
        loop {
            let changed = tokio::select! {
                () = ends.cancelled() => return,
                changed = config.changed() => changed,
            };
            if changed.is_err() {
                return ends.cancelled().await;
            }
            if !same_place(&now, &config.borrow_and_update()) {
                break;
            }
        }
        stop.cancel();
    }
}

/// Whether the two configurations listen at the same place.
fn same_place(one: &Config, other: &Config) -> bool {
    one.webapp == other.webapp
}

/// Tokens of a cluster: its users may do what its roles say about the path.
pub(crate) fn of_cluster(client: Client) -> Authorize {
    Arc::new(move |token, verb, path| {
        let client = client.clone();
        async move {
            let reviewed = access::review(&client, token.as_deref(), verb, &path).await;
            reviewed.map_err(|refused| (refused.status, refused.message))
        }
        .boxed()
    })
}

/// The token in a file, which is read for every request: it may be replaced. Without a file nothing is allowed.
pub(crate) fn of_file(file: Option<PathBuf>) -> Authorize {
    Arc::new(move |token, _, _| {
        let expected = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let expected = expected.as_deref().map(str::trim).filter(|expected| !expected.is_empty());
        let allowed = match (token, expected) {
            (_, None) => Err((StatusCode::FORBIDDEN, "this launcher has no token that allows changes".to_owned())),
            (None, Some(_)) => Err((StatusCode::UNAUTHORIZED, "a bearer token is needed".to_owned())),
            (Some(token), Some(expected)) if same(&token, expected) => Ok(()),
            (Some(_), Some(_)) => Err((StatusCode::FORBIDDEN, "the token is not valid here".to_owned())),
        };
        std::future::ready(allowed).boxed()
    })
}

/// Compares in a time that does not tell where two tokens differ.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_loopback_speaks_plain_http() {
        let at = |host: Option<&str>| WebApp { port: 0, listen_address: host.map(ToOwned::to_owned) };
        assert!(url(&bind(&at(None)).await.unwrap()).starts_with("http://127.0.0.1:"));
        assert!(url(&bind(&at(Some("127.0.0.1"))).await.unwrap()).starts_with("http://127.0.0.1:"));
        assert!(url(&bind(&at(Some("0.0.0.0"))).await.unwrap()).starts_with("https://0.0.0.0:"));
        assert!(bind(&at(Some("no address"))).await.is_err());
    }

    #[tokio::test]
    async fn a_token_is_that_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let authorize = of_file(Some(file.clone()));
        let ask = |token: Option<&str>| authorize(token.map(ToOwned::to_owned), "update", "/x".to_owned());
        assert_eq!(ask(Some("")).await.unwrap_err().0, StatusCode::FORBIDDEN);
        std::fs::write(&file, "secret-token\n").unwrap();
        assert_eq!(ask(None).await.unwrap_err().0, StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Some("secret-tokem")).await.unwrap_err().0, StatusCode::FORBIDDEN);
        assert_eq!(ask(Some("secret-token")).await, Ok(()));
    }
}
