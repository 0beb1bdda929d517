//! The certificate authority of a server, known by its hash before anything else is known.
//!
//! `kubeadm join` finds it the same way: the hash is of the public key (SubjectPublicKeyInfo), so that a renewed
//! certificate of the same key is still known by it. The certificate comes with the TLS handshake, or else from the
//! ConfigMap `kube-public/cluster-info`, which kubeadm publishes. Nothing secret is sent before it is found.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::Value;
use tokio::net::TcpStream;
use x509_parser::prelude::FromDer as _;

use crate::session::{Session, SessionError};

/// How long the server may take to answer the handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(15);
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// Why the certificate authority is not known.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The address is no `https://HOST[:PORT]`.
    #[error("`{0}` is not the address of an API server, such as https://10.0.0.1:6443")]
    Address(String),
    /// The server cannot be reached.
    #[error("cannot reach `{server}`")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server is not the one that the hash belongs to.
    #[error("`{server}` does not show a certificate authority with the hash {wanted}; it shows {shown}")]
    Unknown {
        /// Its address.
        server: String,
        /// The hash that was given.
        wanted: CaHash,
        /// The hash of the last certificate that it shows.
        shown: String,
    },
}

/// Hash of the public key of a certificate authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaHash([u8; 32]);

impl CaHash {
    /// The hash of the first certificate of a text in PEM.
    pub fn of_pem(pem: &str) -> Option<Self> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
        Self::of_der(&pem.contents)
    }

    fn of_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(der).ok()?;
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate.public_key().raw);
        digest.as_ref().try_into().ok().map(Self)
    }
}

impl FromStr for CaHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no hash such as sha256:HEX with 64 digits");
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64 && digits.is_ascii());
        let digits = digits.ok_or_else(wrong)?;
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The certificate authority of a server, in PEM.
pub async fn find(server: &str, wanted: CaHash) -> Result<String, DiscoveryError> {
    let chain = handshake(server).await?;
    if let Some(found) = chain.iter().find(|der| CaHash::of_der(der) == Some(wanted)) {
        return Ok(pem(found));
    }
    if let Some(found) = published(server).await.filter(|pem| CaHash::of_pem(pem) == Some(wanted)) {
        return Ok(found);
    }
    let shown = chain.last().and_then(|der| CaHash::of_der(der)).map_or("nothing".to_owned(), |hash| hash.to_string());
    Err(DiscoveryError::Unknown { server: server.to_owned(), wanted, shown })
}

fn pem(der: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// The certificates that a server shows, its own first.
async fn handshake(server: &str) -> Result<Vec<CertificateDer<'static>>, DiscoveryError> {
    let address = || DiscoveryError::Address(server.to_owned());
    let uri: http::Uri = server.parse().map_err(|_| address())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or_else(address)?;
    let plain = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(plain.clone()).map_err(|_| address())?;
    let port = uri.port_u16().unwrap_or(443);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let seen = Arc::new(Seen { chain: Mutex::default(), provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(seen.clone())
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let connect = async { connector.connect(name, TcpStream::connect((plain, port)).await?).await };
    let connected = tokio::time::timeout(HANDSHAKE_WITHIN, connect).await;
    let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    connected.map_err(|source| DiscoveryError::Unreachable { server: server.to_owned(), source })?;
    Ok(std::mem::take(&mut *seen.chain.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// The certificate authority that kubeadm has published. It is not trusted until its hash is seen to be right.
async fn published(server: &str) -> Option<String> {
    let anonymous = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{server}\", \
         insecure-skip-tls-verify: true}}}}]\nusers: [{{name: c, user: {{}}}}]\ncontexts: [{{name: c, context: \
         {{cluster: c, user: c}}}}]\n"
    );
    let read: Result<Option<Value>, SessionError> = Session::open(&anonymous).await.ok()?.get(CLUSTER_INFO).await;
    let map = read.ok()??;
    let kubeconfig = kube::config::Kubeconfig::from_yaml(map.pointer("/data/kubeconfig")?.as_str()?).ok()?;
    let data = kubeconfig.clusters.first()?.cluster.as_ref()?.certificate_authority_data.as_ref()?;
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

/// Accepts every certificate, and remembers it. The connection is closed after the handshake.
#[derive(Debug)]
struct Seen {
    chain: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = std::iter::once(end_entity).chain(intermediates).map(|der| der.clone().into_owned());
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = chain.collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_written_as_they_are_read() {
        let text = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(text.parse::<CaHash>().unwrap().to_string(), text);
        for wrong in ["", "sha256:", &text[..70], &text[7..], &text.replace('a', "x"), &format!("{text}0"), "sha256:é"]
        {
            assert!(wrong.parse::<CaHash>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn addresses_without_tls_are_refused() {
        let hash = format!("sha256:{}", "0a".repeat(32)).parse().unwrap();
        for server in ["http://127.0.0.1:6443", "127.0.0.1:6443", "", "https://"] {
            assert!(matches!(find(server, hash).await, Err(DiscoveryError::Address(_))), "{server}");
        }
    }
}
