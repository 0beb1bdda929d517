//! The server's own certificate authority: made on the first start, kept with the data, readable by its owner only.
//!
//! Certificates are valid for a year; the server's own is replaced before it ends ([`Pki::renew_if_due`]). The CA's is
//! valid for ten years, as kubeadm has it, and replaced at a start in its last year. Its key stays, so that what was
//! signed before, and kubeconfigs with the old certificate, go on working.

mod authority;
mod der;
mod request;

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

pub use self::authority::Authority;
pub(crate) use self::authority::Usages;
pub(crate) use self::request::SigningRequest;
use crate::auth::{self, TokenError};
use crate::service_account::{KeyError, TokenSigner};

/// How long certificates of the server and of clients are valid.
const LEAF_DAYS: i64 = 365;
/// How long the CA's certificate is valid.
const CA_DAYS: i64 = 3650;

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
    /// The administrator's token is empty or could be guessed.
    #[error("cannot use the token in {path}", path = path.display())]
    Secret {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: TokenError,
    },
    /// A file holds no key or certificate.
    #[error("cannot use the key or certificate in {path}: {why}", path = path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
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
    authority: Arc<Authority>,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    server_certificate: Arc<ServerCertificate>,
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
    /// Loads the CA from a directory, or makes one there. The server's own certificate is made anew each time, and the
    /// CA's when it comes near its end, with the same key.
    pub fn load_or_make(
        directory: &Path,
        names: &[String],
        addresses: &[IpAddr],
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(file_error(directory))?;
        let ca_key = load_key(&directory.join("ca.key"))?;
        let certificate_path = directory.join("ca.crt");
        let ca_pem = match read(&certificate_path)? {
            Some(pem) if !ca_is_due(&certificate_path, &pem, &ca_key, now)? => pem,
            _ => {
                let pem = ca_params(now).self_signed(&ca_key)?.pem();
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
        auth::check_token(&admin_token).map_err(|source| PkiError::Secret { path: token_path, source })?;
        let signer_path = directory.join("service-account.key");
        let token_signer = TokenSigner::from_pkcs8(&load_key(&signer_path)?.serialize_der())
            .map_err(|problem| PkiError::Unusable { path: signer_path, why: problem.to_string() })?;
        Self::with(ca_pem, ca_key, admin_token, token_signer, names, addresses, now)
    }

    /// A CA that lives only in memory.
    pub fn ephemeral(names: &[String], addresses: &[IpAddr], now: Timestamp) -> Result<Self, PkiError> {
        let ca_key = KeyPair::generate()?;
        let ca_pem = ca_params(now).self_signed(&ca_key)?.pem();
        Self::with(ca_pem, ca_key, random_token(), TokenSigner::ephemeral()?, names, addresses, now)
    }

    fn with(
        ca_pem: String,
        ca_key: KeyPair,
        admin_token: String,
        token_signer: TokenSigner,
        names: &[String],
        addresses: &[IpAddr],
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let authority = Arc::new(Authority::new(ca_pem, ca_key).map_err(PkiError::Tls)?);
        let first = issue(&authority, names, addresses, now)?;
        let server_certificate = Arc::new(ServerCertificate { current: RwLock::new(first) });
        let (names, addresses, token_signer) = (names.to_vec(), addresses.to_vec(), Arc::new(token_signer));
        Ok(Self { authority, names, addresses, server_certificate, admin_token, token_signer })
    }

    /// Replaces the server's certificate when a third of its time is left; says whether it did. Connections that are
    /// open keep the one they have seen.
    pub fn renew_if_due(&self, now: Timestamp) -> Result<bool, PkiError> {
        let due = self.server_certificate.current.read().renew_at <= now;
        if due {
            let next = issue(&self.authority, &self.names, &self.addresses, now)?;
            *self.server_certificate.current.write() = next;
        }
        Ok(due)
    }

    /// The CA's certificate as PEM, for clients.
    pub fn ca_pem(&self) -> &str {
        self.authority.pem()
    }

    /// The CA, which signs certificates for others.
    pub fn authority(&self) -> Arc<Authority> {
        self.authority.clone()
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Signs the tokens of service accounts.
    pub fn token_signer(&self) -> Arc<TokenSigner> {
        self.token_signer.clone()
    }

    /// Makes a client certificate, valid for a year: `user` becomes the common name, `groups` the organizations.
    pub fn client_certificate(
        &self,
        user: &str,
        groups: &[&str],
        now: Timestamp,
    ) -> Result<ClientCertificate, PkiError> {
        let key = KeyPair::generate()?;
        let request = SigningRequest::of(user, groups, key.subject_public_key_info());
        let usages = Usages { digital_signature: true, client_auth: true, ..Usages::default() };
        let lifetime = SignedDuration::from_hours(24 * LEAF_DAYS);
        let certificate_pem = self.authority.sign(&request, usages, lifetime, now).map_err(PkiError::Tls)?;
        Ok(ClientCertificate { certificate_pem, key_pem: key.serialize_pem() })
    }

    /// The TLS settings of the server: client certificates of the CA are looked at, and optional.
    pub fn tls_config(&self) -> Result<rustls::ServerConfig, PkiError> {
        let tls = |problem: &dyn std::fmt::Display| PkiError::Tls(problem.to_string());
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca_pem().as_bytes()).map_err(|problem| tls(&problem))?;
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
            .with_cert_resolver(self.server_certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A kubeconfig for the administrator.
    pub fn kubeconfig(&self, server_url: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: millpond\nclusters:\n- name: millpond\n  cluster:\n    \
             server: {server_url}\n    certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    token: {}\n\
             contexts:\n- name: millpond\n  context:\n    cluster: millpond\n    user: admin\n    namespace: default\n",
            STANDARD.encode(self.ca_pem()),
            self.admin_token,
        )
    }
}

/// The certificate that the server shows now; handshakes ask for it, so that it can be replaced while they come in.
#[derive(Debug)]
struct ServerCertificate {
    current: RwLock<Issued>,
}

#[derive(Debug)]
struct Issued {
    certified: Arc<CertifiedKey>,
    renew_at: Timestamp,
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().certified.clone())
    }
}

/// A certificate of the server, signed by the CA.
fn issue(authority: &Authority, names: &[String], addresses: &[IpAddr], now: Timestamp) -> Result<Issued, PkiError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    params.distinguished_name = name("millpond");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    set_validity(&mut params, now, LEAF_DAYS);
    let certificate = params.signed_by(&key, &authority.issuer()?)?;
    let tls = |problem: &dyn std::fmt::Display| PkiError::Tls(problem.to_string());
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|problem| tls(&problem))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|problem| tls(&problem))?;
    // The CA's own certificate comes last: machines that join know it by its hash, and find it here.
    let ca = CertificateDer::from_pem_slice(authority.pem().as_bytes()).map_err(|problem| tls(&problem))?;
    let certified = Arc::new(CertifiedKey::new(vec![certificate.der().clone(), ca], key));
    Ok(Issued { certified, renew_at: days_after(now, LEAF_DAYS * 2 / 3) })
}

/// Whether the CA's certificate has to be replaced: it ends within the time that a certificate below it is valid, or
/// is valid for longer than one is made for. An error when it does not belong to the key.
fn ca_is_due(path: &Path, pem: &str, key: &KeyPair, now: Timestamp) -> Result<bool, PkiError> {
    let unusable = |why: String| PkiError::Unusable { path: path.to_owned(), why };
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|problem| unusable(problem.to_string()))?;
    let (_, certificate) =
        x509_parser::parse_x509_certificate(&der).map_err(|problem| unusable(problem.to_string()))?;
    if certificate.public_key().raw != key.subject_public_key_info() {
        return Err(unusable("it does not belong to the key in ca.key".to_owned()));
    }
    let end = certificate.validity().not_after.timestamp();
    let soon = days_after(now, LEAF_DAYS).as_second();
    Ok(end < soon || end > days_after(now, CA_DAYS + 1).as_second())
}

fn ca_params(now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = name("millpond-ca");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, CA_DAYS);
    params
}

/// Valid from the previous day, for clocks that are slow, until `days` from now.
fn set_validity(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let day = |days| {
        let date = days_after(now, days).to_zoned(jiff::tz::TimeZone::UTC).date();
        date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(-1);
    params.not_after = day(days);
}

fn days_after(time: Timestamp, days: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MAX)
}

/// Reads a private key, or makes one.
fn load_key(path: &Path) -> Result<KeyPair, PkiError> {
    match read(path)? {
        Some(pem) => KeyPair::from_pem(&pem)
            .map_err(|problem| PkiError::Unusable { path: path.to_owned(), why: problem.to_string() }),
        None => {
            let key = KeyPair::generate()?;
            write_secret(path, &key.serialize_pem())?;
            Ok(key)
        }
    }
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
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

/// Writes a file that only its owner can read, atomically.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-18T12:00:00Z".parse().unwrap()
    }

    fn load(directory: &Path, now: Timestamp) -> Result<Pki, PkiError> {
        Pki::load_or_make(directory, &["localhost".to_owned()], &[], now)
    }

    fn days_valid(der: &[u8], now: Timestamp) -> i64 {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).unwrap();
        assert!(certificate.validity().not_before.timestamp() < now.as_second());
        (certificate.validity().not_after.timestamp() - now.as_second() + 86_399) / 86_400
    }

    fn pem_der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn shown(pki: &Pki) -> CertificateDer<'static> {
        pki.server_certificate.current.read().certified.cert[0].clone()
    }

    #[test]
    fn certificates_are_valid_for_a_year_and_replaced_before_it_ends() {
        let pki = Pki::ephemeral(&[], &[], now()).unwrap();
        let first = shown(&pki);
        assert_eq!(days_valid(&first, now()), 365);
        let client = pki.client_certificate("jane", &[], now()).unwrap();
        assert_eq!(days_valid(&pem_der(&client.certificate_pem), now()), 365);
        let several = pki.client_certificate("jane", &["one", "two"], now()).unwrap();
        let identity = auth::Identity::of_certificate(&pem_der(&several.certificate_pem)).unwrap();
        assert_eq!(identity.groups, ["one", "two", "system:authenticated"]);

        assert!(!pki.renew_if_due(days_after(now(), 200)).unwrap());
        assert_eq!(shown(&pki), first);
        let later = days_after(now(), 250);
        assert!(pki.renew_if_due(later).unwrap());
        assert_eq!(days_valid(&shown(&pki), later), 365);
        assert!(!pki.renew_if_due(later).unwrap());
    }

    #[test]
    fn the_ca_is_replaced_in_its_last_year_with_the_same_key() {
        let directory = tempfile::tempdir().unwrap();
        let first = load(directory.path(), now()).unwrap();
        assert_eq!(days_valid(&pem_der(first.ca_pem()), now()), CA_DAYS);
        let same = load(directory.path(), days_after(now(), CA_DAYS - 400)).unwrap();
        assert_eq!(same.ca_pem(), first.ca_pem());
        let late = days_after(now(), CA_DAYS - 300);
        let renewed = load(directory.path(), late).unwrap();
        assert_eq!(days_valid(&pem_der(renewed.ca_pem()), late), CA_DAYS);
        assert_eq!(renewed.authority.key().serialize_pem(), first.authority.key().serialize_pem());
        assert_eq!(load(directory.path(), late).unwrap().ca_pem(), renewed.ca_pem());

        // A certificate without an end, as there were before.
        let mut params = ca_params(now());
        params.not_after = date_time_ymd(4096, 1, 1);
        let endless = params.self_signed(first.authority.key()).unwrap().pem();
        write_secret(&directory.path().join("ca.crt"), &endless).unwrap();
        let bounded = load(directory.path(), now()).unwrap();
        assert_eq!(days_valid(&pem_der(bounded.ca_pem()), now()), CA_DAYS);
    }

    #[test]
    fn empty_and_short_secrets_are_refused_by_the_name_of_their_file() {
        for (file, content, why) in [
            ("admin.token", "", "the token is empty"),
            ("admin.token", "\n", "the token is empty"),
            ("admin.token", "hunter2\n", "the token has 7 bytes, and 16 are the least"),
            ("ca.key", "", "ca.key"),
            ("ca.crt", "", "ca.crt"),
            ("service-account.key", "", "service-account.key"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            load(directory.path(), now()).unwrap();
            fs::write(directory.path().join(file), content).unwrap();
            let Err(problem) = load(directory.path(), now()) else { panic!("{file} {content:?} is accepted") };
            let source = std::error::Error::source(&problem).map(ToString::to_string).unwrap_or_default();
            let told = format!("{problem}: {source}");
            assert!(told.contains(file) && told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_ca_certificate_of_another_key_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        load(one.path(), now()).unwrap();
        load(other.path(), now()).unwrap();
        fs::copy(other.path().join("ca.crt"), one.path().join("ca.crt")).unwrap();
        let Err(problem) = load(one.path(), now()) else { panic!("accepted") };
        assert!(problem.to_string().contains("does not belong to the key"), "{problem}");
    }
}
