//! The verification of server certificates for rustls.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::settings::{Thumbprint, Trust};

/// Trust that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file with CA certificates.
    #[error("cannot read CA certificates from {}", path.display())]
    CaFile {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A file without a usable certificate.
    #[error("{} holds no CA certificate", .0.display())]
    NoCertificate(PathBuf),
    /// rustls does not take it.
    #[error("cannot set up TLS")]
    Rustls(#[from] rustls::Error),
}

/// The client side of TLS with that trust.
pub(crate) fn config(trust: &Trust) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let config = match trust {
        Trust::System => builder.with_root_certificates(system_roots()).with_no_client_auth(),
        Trust::CaFile(path) => builder.with_root_certificates(file_roots(path)?).with_no_client_auth(),
        Trust::Thumbprint(print) => pinned(builder, Pinned { provider, accepted: Some(print.clone()) }),
        Trust::Insecure => pinned(builder, Pinned { provider, accepted: None }),
    };
    Ok(config)
}

fn pinned(builder: rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, verifier: Pinned) -> ClientConfig {
    builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
}

/// Certificates that cannot be read are left out, as other tools do; an empty store trusts no server.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn file_roots(path: &PathBuf) -> Result<RootCertStore, TlsError> {
    let unreadable = |source| TlsError::CaFile { path: path.clone(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        roots.add(certificate.map_err(unreadable)?)?;
    }
    if roots.is_empty() { Err(TlsError::NoCertificate(path.clone())) } else { Ok(roots) }
}

/// Accepts one certificate by its digest, or any. The handshake's signature is checked either way: it proves that the
/// server holds the key of the certificate that it shows.
#[derive(Debug)]
struct Pinned {
    provider: Arc<CryptoProvider>,
    /// `None` accepts any certificate.
    accepted: Option<Thumbprint>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.accepted {
            Some(print) if !print.matches(end_entity) => {
                Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
