//! Who the agent is to the API server: keys, certificate signing requests, certificates, the kubeconfig that holds them.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use serde::{Deserialize, Serialize};
use x509_parser::pem::parse_x509_pem;

use crate::journal::{JournalFile, write_durably};

/// Group of all hosts: the organization in their certificates.
pub const HOSTS: &str = "byoh:hosts";
/// User names of hosts begin with this; the name of the host follows.
pub const USER: &str = "byoh:host:";
/// Names of certificate signing requests begin with this; the name of the host follows.
pub const REQUEST: &str = "byoh-csr-";

const KUBECONFIG: &str = "kubeconfig";
const PENDING_KEY: &str = "pending.key";
const IDENTITY: &str = "identity.json";
const LOCK: &str = "lock";

/// Why the state directory or what is in it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file could not be read or written.
    #[error("cannot use `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another agent runs on the directory.
    #[error("another agent runs on `{}`", .0.display())]
    Locked(PathBuf),
    /// A key or certificate cannot be made.
    #[error("cannot make a key or a request")]
    Key(#[from] rcgen::Error),
    /// A key or certificate cannot be read.
    #[error("`{}` holds no key or certificate of an agent: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

/// The stored identity of the registered host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Name of the host.
    pub name: String,
    /// Namespace of its ByoHost.
    pub namespace: String,
    /// `/etc/machine-id` when it registered.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// UUID of the board when it registered, where firmware tells it.
    #[serde(default, rename = "productUUID")]
    pub product_uuid: String,
}

/// The state directory, held by one agent at a time.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    _lock: File,
}

/// A certificate with its key and the server that it is for.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The whole kubeconfig.
    pub kubeconfig: String,
    /// The certificate, in PEM.
    pub certificate: String,
    /// First and last second of its life, since 1970.
    pub validity: (i64, i64),
}

impl StateDirectory {
    /// Opens the directory, which is created for its owner alone.
    pub fn open(path: &Path) -> Result<Self, CredentialsError> {
        JournalFile::open(path).map_err(|source| CredentialsError::File { path: path.to_owned(), source })?;
        let file = path.join(LOCK);
        let failed = |source| CredentialsError::File { path: file.clone(), source };
        let lock = File::options().create(true).write(true).truncate(false).open(&file).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(CredentialsError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kubeconfig that the agent speaks with.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.path.join(KUBECONFIG)
    }

    /// The stored credentials, if there are any.
    pub fn credentials(&self) -> Result<Option<Credentials>, CredentialsError> {
        let path = self.kubeconfig_path();
        let Some(kubeconfig) = self.read(KUBECONFIG)? else { return Ok(None) };
        let unusable = |problem: &str| CredentialsError::Unusable { path: path.clone(), problem: problem.to_owned() };
        let read = kube::config::Kubeconfig::from_yaml(&kubeconfig).map_err(|error| unusable(&error.to_string()))?;
        let user = read.auth_infos.first().and_then(|user| user.auth_info.as_ref());
        let data =
            user.and_then(|user| user.client_certificate_data.as_ref()).ok_or_else(|| unusable("no certificate"))?;
        let bytes = STANDARD.decode(data).map_err(|error| unusable(&error.to_string()))?;
        let certificate = String::from_utf8(bytes).map_err(|error| unusable(&error.to_string()))?;
        let validity = validity(&certificate).ok_or_else(|| unusable("the certificate cannot be read"))?;
        Ok(Some(Credentials { kubeconfig, certificate, validity }))
    }

    /// Keeps a certificate: from now on the agent speaks with it.
    pub fn keep(&self, server: &str, ca: &str, certificate: &str, key: &Key) -> Result<Credentials, CredentialsError> {
        let path = self.kubeconfig_path();
        let unusable =
            || CredentialsError::Unusable { path: path.clone(), problem: "the certificate cannot be read".into() };
        let validity = validity(certificate).ok_or_else(unusable)?;
        let encoded = |text: &str| STANDARD.encode(text);
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: host\nclusters:\n- name: cluster\n  cluster:\n    \
             server: {server}\n    certificate-authority-data: {}\nusers:\n- name: host\n  user:\n    \
             client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: host\n  context:\n    \
             cluster: cluster\n    user: host\n",
            encoded(ca),
            encoded(certificate),
            encoded(&key.pair.serialize_pem()),
        );
        self.write(KUBECONFIG, kubeconfig.as_bytes())?;
        Ok(Credentials { kubeconfig, certificate: certificate.to_owned(), validity })
    }

    /// The key of a request that has no certificate yet; the same one after a crash.
    pub fn pending_key(&self) -> Result<Key, CredentialsError> {
        if let Some(pem) = self.read(PENDING_KEY)? {
            return Ok(Key { pair: KeyPair::from_pem(&pem)? });
        }
        let key = Key { pair: KeyPair::generate()? };
        self.write(PENDING_KEY, key.pair.serialize_pem().as_bytes())?;
        Ok(key)
    }

    /// Forgets the key of a request: it has its certificate, or was refused.
    pub fn drop_pending_key(&self) -> Result<(), CredentialsError> {
        let path = self.path.join(PENDING_KEY);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(CredentialsError::File { path, source }),
            _ => Ok(()),
        }
    }

    /// The stored identity of the host.
    pub fn identity(&self) -> Result<Option<Identity>, CredentialsError> {
        let path = self.path.join(IDENTITY);
        let parse = |text: String| {
            serde_json::from_str(&text).map_err(|error| CredentialsError::Unusable { path, problem: error.to_string() })
        };
        self.read(IDENTITY)?.map(parse).transpose()
    }

    /// Remembers the host.
    pub fn keep_identity(&self, identity: &Identity) -> Result<(), CredentialsError> {
        let text = serde_json::to_vec_pretty(identity).expect("an identity has texts for keys");
        self.write(IDENTITY, &text)
    }

    fn read(&self, name: &str) -> Result<Option<String>, CredentialsError> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CredentialsError::File { path, source }),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), CredentialsError> {
        let path = self.path.join(name);
        write_durably(&path, content, 0o600).map_err(|source| CredentialsError::File { path, source })
    }
}

/// A private key.
pub struct Key {
    pair: KeyPair,
}

impl Key {
    /// A new one, which is nowhere else.
    pub fn generate() -> Result<Self, CredentialsError> {
        Ok(Self { pair: KeyPair::generate()? })
    }

    /// A certificate signing request for a host, in PEM.
    pub fn request(&self, host: &str) -> Result<String, CredentialsError> {
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, HOSTS);
        name.push(DnType::CommonName, format!("{USER}{host}"));
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params.serialize_request(&self.pair)?.pem()?)
    }

    /// The public key, as certificates and requests hold it.
    pub fn public(&self) -> Vec<u8> {
        use rcgen::PublicKeyData as _;
        self.pair.subject_public_key_info()
    }

    /// A few letters that tell this key from others.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.public());
        digest.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a certificate in PEM is for this key.
    pub fn is_of(&self, certificate: &str) -> bool {
        let Ok((_, pem)) = parse_x509_pem(certificate.as_bytes()) else { return false };
        pem.parse_x509().is_ok_and(|certificate| certificate.public_key().raw == self.public())
    }

    /// Whether a request in PEM is for this key.
    pub fn is_of_request(&self, request: &[u8]) -> bool {
        use x509_parser::prelude::FromDer as _;
        let Ok((_, pem)) = parse_x509_pem(request) else { return false };
        let parsed = x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents);
        parsed.is_ok_and(|(_, request)| request.certification_request_info.subject_pki.raw == self.public())
    }
}

/// First and last second of the life of a certificate in PEM.
fn validity(certificate: &str) -> Option<(i64, i64)> {
    let (_, pem) = parse_x509_pem(certificate.as_bytes()).ok()?;
    let validity = pem.parse_x509().ok()?.validity().clone();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

impl Credentials {
    /// When to ask for the next certificate: after 70 to 90 % of the life of this one, each host at its own time.
    pub fn renew_at(&self, host: &str) -> i64 {
        let (begin, end) = self.validity;
        let digest = ring::digest::digest(&ring::digest::SHA256, host.as_bytes());
        let share = 70 + i64::from(digest.as_ref()[0]) * 20 / 255;
        begin + (end - begin) / 100 * share
    }

    /// Whether it has expired at this time.
    pub fn is_expired(&self, now: i64) -> bool {
        now >= self.validity.1
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn credentials_are_kept_for_their_owner_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("agent");
        let state = StateDirectory::open(&directory).unwrap();
        assert!(matches!(StateDirectory::open(&directory), Err(CredentialsError::Locked(_))));
        assert!(state.credentials().unwrap().is_none());
        let key = state.pending_key().unwrap();
        assert_eq!(state.pending_key().unwrap().public(), key.public(), "the same key after a crash");
        let certificate = CertificateParams::default().self_signed(&key.pair).unwrap().pem();
        assert!(key.is_of(&certificate) && !Key::generate().unwrap().is_of(&certificate));
        let request = key.request("node10").unwrap();
        assert!(key.is_of_request(request.as_bytes()));
        state.keep("https://127.0.0.1:6443", "ca", &certificate, &key).unwrap();
        state.drop_pending_key().unwrap();
        let kept = state.credentials().unwrap().unwrap();
        assert_eq!(kept.certificate, certificate);
        for name in [KUBECONFIG, "."] {
            let mode = fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o077;
            assert_eq!(mode, 0, "{name}");
        }
        assert!(!directory.join(PENDING_KEY).exists());
        drop(state);
        StateDirectory::open(&directory).unwrap();
    }

    #[test]
    fn certificates_are_renewed_in_their_last_third_at_a_time_of_each_host() {
        let of = |host: &str| {
            let validity = (1_000_000, 1_000_000 + 10_000);
            let credentials = Credentials { kubeconfig: String::new(), certificate: String::new(), validity };
            assert!(!credentials.is_expired(1_009_999) && credentials.is_expired(1_010_000));
            credentials.renew_at(host) - 1_000_000
        };
        let times: std::collections::BTreeSet<i64> = (0..50).map(|host| of(&format!("node{host}"))).collect();
        assert!(times.len() > 10 && times.iter().all(|time| (7000..=9000).contains(time)), "{times:?}");
    }
}
