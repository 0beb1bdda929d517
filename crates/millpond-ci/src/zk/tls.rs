//! Mutual TLS as kazoo does it: the server's certificate must come from the CA, its name does not matter. Certificates
//! of version 1 are accepted, where the CA itself has signed them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::der;
use crate::config::ZooKeeperTls;

/// Why the files of `zookeeper-tls` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("read `{path}` of `zookeeper-tls`")]
    Read {
        /// The file.
        path: String,
        /// What is wrong with it.
        #[source]
        source: tokio_rustls::rustls::pki_types::pem::Error,
    },
    /// A file holds no certificate.
    #[error("`{0}` of `zookeeper-tls` holds no certificate")]
    Empty(String),
    /// What a file holds is of no use.
    #[error("`{path}` of `zookeeper-tls` is of no use")]
    Unusable {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: Error,
    },
}

/// The configuration of connections.
pub(super) fn client(files: &ZooKeeperTls) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(&files.ca, &provider)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| read_error(&files.key, source))?;
    let unusable = |path: &str, source| TlsError::Unusable { path: path.to_owned(), source };
    let key = provider.key_provider.load_private_key(key).map_err(|source| unusable(&files.key, source))?;
    let identity = Identity(Arc::new(CertifiedKey::new(certificates(&files.cert)?, key)));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|source| unusable(&files.ca, source))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(Arc::new(builder.with_client_cert_resolver(Arc::new(identity))))
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).map_err(|source| read_error(path, source))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|source| read_error(path, source))?;
    if all.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(all) }
}

fn read_error(path: &str, source: tokio_rustls::rustls::pki_types::pem::Error) -> TlsError {
    TlsError::Read { path: path.to_owned(), source }
}

/// The client's certificate. rustls would look into it, and refuse one of version 1.
#[derive(Debug)]
struct Identity(Arc<CertifiedKey>);

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Verifier {
    webpki: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(ca: &str, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            let added = roots.add(certificate);
            added.map_err(|source| TlsError::Unusable { path: ca.to_owned(), source })?;
        }
        let roots = Arc::new(roots);
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider)).build();
        let webpki = webpki
            .map_err(|error| TlsError::Unusable { path: ca.to_owned(), source: Error::General(error.to_string()) })?;
        Ok(Self { webpki, roots, algorithms: provider.signature_verification_algorithms })
    }

    /// Whether a CA has signed a certificate of version 1 and it is valid now.
    fn check_version_1(&self, certificate: &der::Version1<'_>, now: i64) -> Result<(), CertificateError> {
        if now < certificate.not_before {
            return Err(CertificateError::NotValidYet);
        }
        if now > certificate.not_after {
            return Err(CertificateError::Expired);
        }
        let issuers = self.roots.roots.iter().filter(|root| root.subject.as_ref() == certificate.issuer);
        let keys = issuers.filter_map(|root| der::public_key(root.subject_public_key_info.as_ref()));
        let is_signed = keys.into_iter().any(|key| {
            self.algorithms.all.iter().any(|algorithm| {
                algorithm.signature_alg_id().as_ref() == certificate.algorithm
                    && algorithm.public_key_alg_id().as_ref() == key.algorithm
                    && algorithm.verify_signature(key.key, certificate.signed, certificate.signature).is_ok()
            })
        });
        if is_signed { Ok(()) } else { Err(CertificateError::UnknownIssuer) }
    }

    /// Whether the holder of a certificate of version 1 has signed the handshake.
    fn check_handshake(
        &self,
        key: der::PublicKey<'_>,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let is_signed = algorithms.flat_map(|(_, algorithms)| algorithms.iter()).any(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == key.algorithm
                && algorithm.verify_signature(key.key, message, signed.signature()).is_ok()
        });
        let valid = is_signed.then(HandshakeSignatureValid::assertion);
        valid.ok_or(Error::InvalidCertificate(CertificateError::BadSignature))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(certificate) = der::version_1(certificate) {
            self.check_version_1(&certificate, unix_now()).map_err(Error::InvalidCertificate)?;
            return Ok(ServerCertVerified::assertion());
        }
        match self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is looked at last: everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match der::version_1(certificate) {
            Some(certificate) => self.check_handshake(certificate.key, message, signed),
            None => self.webpki.verify_tls12_signature(message, certificate, signed),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match der::version_1(certificate) {
            Some(certificate) => self.check_handshake(certificate.key, message, signed),
            None => self.webpki.verify_tls13_signature(message, certificate, signed),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
