//! The server's own certificate authority: made on the first start, kept with the data, readable by its owner only.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use crate::service_account::{KeyError, TokenSigner};

/// Trouble with keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The key for tokens is not usable.
    #[error("cannot sign tokens")]
    Token(#[from] KeyError),
    /// A key or certificate is not usable for TLS.
    #[error("cannot use the key or certificate for TLS: {0}")]
    Tls(String),
}

/// Keys and certificates of one server.
pub struct Pki {
    ca_pem: String,
    ca_key: KeyPair,
    server_certificate: CertificateDer<'static>,
    server_key: PrivateKeyDer<'static>,
    admin_token: String,
    token_signer: Arc<TokenSigner>,
}

/// A client certificate with its key, both as PEM.
pub struct ClientCertificate {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl Pki {
    /// Loads the CA from a directory, or makes one there. The server's own certificate is made anew each time.
    pub fn load_or_make(directory: &Path, names: &[String], addresses: &[IpAddr]) -> Result<Self, PkiError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(file_error(directory))?;
        let key_path = directory.join("ca.key");
        let ca_key = match read(&key_path)? {
            Some(pem) => KeyPair::from_pem(&pem)?,
            None => {
                let key = KeyPair::generate()?;
                write_secret(&key_path, &key.serialize_pem())?;
                key
            }
        };
        let certificate_path = directory.join("ca.crt");
        let ca_pem = match read(&certificate_path)? {
            Some(pem) => pem,
            None => {
                let pem = ca_params().self_signed(&ca_key)?.pem();
                write_secret(&certificate_path, &pem)?;
                pem
            }
        };
        let token_path = directory.join("admin.token");
        let admin_token = match read(&token_path)? {
            Some(token) => token.trim().to_owned(),
            None => {
                let token = random_token();
                write_secret(&token_path, &token)?;
                token
            }
        };
        let signer_path = directory.join("service-account.key");
        let signing_key = match read(&signer_path)? {
            Some(pem) => KeyPair::from_pem(&pem)?,
            None => {
                let key = KeyPair::generate()?;
                write_secret(&signer_path, &key.serialize_pem())?;
                key
            }
        };
        Self::with(ca_pem, ca_key, admin_token, &signing_key, names, addresses)
    }

    /// A CA that lives only in memory.
    pub fn ephemeral(names: &[String], addresses: &[IpAddr]) -> Result<Self, PkiError> {
        let ca_key = KeyPair::generate()?;
        let ca_pem = ca_params().self_signed(&ca_key)?.pem();
        Self::with(ca_pem, ca_key, random_token(), &KeyPair::generate()?, names, addresses)
    }

    fn with(
        ca_pem: String,
        ca_key: KeyPair,
        admin_token: String,
        signing_key: &KeyPair,
        names: &[String],
        addresses: &[IpAddr],
    ) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.distinguished_name = name("millpond", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, &ca_key)?;
        let certificate = params.signed_by(&key, &issuer)?;
        let server_key =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|problem| PkiError::Tls(problem.to_owned()))?;
        let token_signer = Arc::new(TokenSigner::from_pkcs8(&signing_key.serialize_der())?);
        let server_certificate = certificate.der().clone();
        Ok(Self { ca_pem, ca_key, server_certificate, server_key, admin_token, token_signer })
    }

    /// The CA's certificate as PEM, for clients.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Signs the tokens of service accounts.
    pub fn token_signer(&self) -> Arc<TokenSigner> {
        self.token_signer.clone()
    }

    /// Makes a client certificate: `user` becomes the common name, `groups` the organizations.
    pub fn client_certificate(&self, user: &str, groups: &[&str]) -> Result<ClientCertificate, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let issuer = Issuer::from_ca_cert_pem(&self.ca_pem, &self.ca_key)?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(ClientCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// The TLS settings of the server: client certificates of the CA are looked at, and optional.
    pub fn tls_config(&self) -> Result<rustls::ServerConfig, PkiError> {
        let tls = |problem: &dyn std::fmt::Display| PkiError::Tls(problem.to_string());
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(|problem| tls(&problem))?;
        roots.add(ca).map_err(|problem| tls(&problem))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|problem| tls(&problem))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|problem| tls(&problem))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.server_certificate.clone()], self.server_key.clone_key())
            .map_err(|problem| tls(&problem))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A kubeconfig for the administrator.
    pub fn kubeconfig(&self, server_url: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: millpond\nclusters:\n- name: millpond\n  cluster:\n    \
             server: {server_url}\n    certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    token: {}\n\
             contexts:\n- name: millpond\n  context:\n    cluster: millpond\n    user: admin\n    namespace: default\n",
            STANDARD.encode(&self.ca_pem),
            self.admin_token,
        )
    }
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = name("millpond-ca", &[]);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    params
}

fn name(common: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    for organization in organizations {
        name.push(DnType::OrganizationName, *organization);
    }
    name
}

fn random_token() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> PkiError + '_ {
    move |source| PkiError::File { path: path.to_owned(), source }
}

fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(file_error(path)(problem)),
    }
}

/// Writes a file that only its owner can read: whole or not at all.
pub fn write_secret(path: &Path, text: &str) -> Result<(), PkiError> {
    let temporary = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&temporary);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(file_error(path))
}
