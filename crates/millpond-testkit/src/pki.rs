//! Keys and certificates of one real control plane.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::kubeconfig::write_private;

/// Names that a client may know the API server by.
const SERVER_NAMES: &[&str] =
    &["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1"];

/// The CA's key, which kube-controller-manager signs certificates with.
pub(crate) const CA_KEY: &str = "ca.key";

/// Files that kube-apiserver and kube-controller-manager are started with.
#[derive(Debug)]
pub(crate) struct Pki {
    pub(crate) ca_pem: String,
    pub(crate) ca_file: PathBuf,
    pub(crate) server_file: PathBuf,
    pub(crate) server_key_file: PathBuf,
    /// What kube-apiserver shows to kubelets, for the logs of pods.
    pub(crate) kubelet_client_file: PathBuf,
    pub(crate) kubelet_client_key_file: PathBuf,
    pub(crate) service_account_key_file: PathBuf,
    pub(crate) service_account_public_file: PathBuf,
}

impl Pki {
    /// Creates a CA, a serving certificate and a service account key in `folder`. The certificate also names `address`.
    pub(crate) fn create(folder: &Path, address: &str) -> Result<Self> {
        let (ca, ca_pem, ca_key_pem) = authority()?;
        let account_key = service_account_key()?;
        let (server_pem, server_key_pem) = server(&ca, Some(address))?;
        let (client_pem, client_key_pem) = kubelet_client(&ca)?;
        // The chain ends with the CA: machines that join know it by its hash.
        let server_pem = server_pem + &ca_pem;
        let file = |name: &str, contents: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            write_private(&path, contents.as_bytes())?;
            Ok(path)
        };
        file(CA_KEY, &ca_key_pem)?;
        Ok(Self {
            ca_file: file("ca.crt", &ca_pem)?,
            server_file: file("server.crt", &server_pem)?,
            server_key_file: file("server.key", &server_key_pem)?,
            kubelet_client_file: file("kubelet-client.crt", &client_pem)?,
            kubelet_client_key_file: file("kubelet-client.key", &client_key_pem)?,
            service_account_key_file: file("sa.key", &account_key.serialize_pem())?,
            service_account_public_file: file("sa.pub", &account_key.public_key_pem())?,
            ca_pem,
        })
    }
}

/// Makes a serving certificate for loopback, as `tls.crt` and `tls.key` in `folder`; gives the certificate of the
/// authority that signed it.
pub(crate) fn serving(folder: &Path) -> Result<String> {
    let (ca, ca_pem, _) = authority()?;
    let (server_pem, server_key_pem) = server(&ca, None)?;
    write_private(&folder.join("tls.crt"), server_pem.as_bytes())?;
    write_private(&folder.join("tls.key"), server_key_pem.as_bytes())?;
    Ok(ca_pem)
}

/// Makes what ZooKeeper and its clients need: `ca.pem`, `client.pem` and `client.key`, and `server.pem` with the
/// server's key and certificate. No certificate has a name that a client could compare, as is usual there.
pub(crate) fn zookeeper(folder: &Path) -> Result<()> {
    let (ca, ca_pem, _) = authority()?;
    let member = |name: &str| -> Result<(String, String)> {
        let key = KeyPair::generate().context("make a key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &ca).context("sign a certificate")?;
        Ok((certificate.pem(), key.serialize_pem()))
    };
    let (server, server_key) = member("zookeeper")?;
    let (client, client_key) = member("client")?;
    for (name, text) in
        [("ca.pem", ca_pem), ("server.pem", server_key + &server), ("client.pem", client), ("client.key", client_key)]
    {
        write_private(&folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// A key that service account tokens are signed with.
pub(crate) fn service_account_key() -> Result<KeyPair> {
    KeyPair::generate().context("make a service account key")
}

/// A CA with its certificate and its key, in PEM.
fn authority() -> Result<(Issuer<'static, KeyPair>, String, String)> {
    let key = KeyPair::generate().context("make a CA key")?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "millpond-testkit");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let certificate = params.self_signed(&key).context("sign the CA certificate")?;
    let key_pem = key.serialize_pem();
    Ok((Issuer::new(params, key), certificate.pem(), key_pem))
}

fn server(ca: &Issuer<'static, KeyPair>, address: Option<&str>) -> Result<(String, String)> {
    let key = KeyPair::generate().context("make a server key")?;
    let names: Vec<String> = SERVER_NAMES.iter().copied().chain(address).map(str::to_owned).collect();
    let mut params = CertificateParams::new(names).context("name the server")?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, ca).context("sign the server certificate")?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn kubelet_client(ca: &Issuer<'static, KeyPair>) -> Result<(String, String)> {
    let key = KeyPair::generate().context("make a client key")?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, ca).context("sign the client certificate")?;
    Ok((certificate.pem(), key.serialize_pem()))
}
