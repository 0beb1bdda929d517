//! A certificate signing request of a host or of its kubelet, as a value.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer as _;

/// Names of requests of hosts begin with this; the name of the host follows.
pub(super) const PREFIX: &str = "byoh-csr-";
/// Prefix of the user names of hosts.
pub(super) const HOST_USER: &str = "byoh:host:";
/// Prefix of the user names of kubelets.
pub(super) const NODE_USER: &str = "system:node:";
/// Signer of certificates of clients.
pub(super) const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";
/// Signer of certificates of kubelets as clients.
pub(super) const KUBELETS: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// The requestor, and the requested certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Name of the request.
    pub name: String,
    /// User that made it.
    pub user: String,
    /// Groups of that user.
    pub groups: Vec<String>,
    /// The requested usages.
    pub usages: Vec<String>,
    /// The requested subject.
    pub subject: Subject,
    /// Hash of the key.
    pub key: String,
    /// Host that the subject names.
    pub host: Option<String>,
    /// Whether it is for the host's kubelet.
    pub is_kubelets: bool,
}

/// The subject of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// Common name.
    pub name: String,
    /// Organizations.
    pub organizations: Vec<String>,
    /// Whether the request has more: other attributes, alternative names, extensions that give further rights.
    pub has_more: bool,
}

impl Asked {
    /// The request, if it is about a host or a kubelet.
    pub fn read(request: &CertificateSigningRequest) -> Option<Self> {
        let spec = &request.spec;
        let is_kubelets = match spec.signer_name.as_str() {
            CLIENTS => false,
            KUBELETS => true,
            _ => return None,
        };
        let (_, pem) = x509_parser::pem::parse_x509_pem(&spec.request.0).ok()?;
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).ok()?;
        let subject = Subject::read(&parsed);
        let name = request.metadata.name.clone().unwrap_or_default();
        let prefix = if is_kubelets { NODE_USER } else { HOST_USER };
        let host = subject.name.strip_prefix(prefix).map(str::to_owned);
        if host.is_none() && !name.starts_with(PREFIX) {
            return None;
        }
        let info = &parsed.certification_request_info;
        Some(Self {
            name,
            user: spec.username.clone().unwrap_or_default(),
            groups: spec.groups.clone().unwrap_or_default(),
            usages: spec.usages.clone().unwrap_or_default(),
            key: fingerprint(info.subject_pki.raw),
            subject,
            host,
            is_kubelets,
        })
    }
}

impl Subject {
    fn read(request: &X509CertificationRequest<'_>) -> Self {
        let subject = &request.certification_request_info.subject;
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().unwrap_or_default().to_owned();
        let names: Vec<String> = subject.iter_common_name().map(text).collect();
        let organizations: Vec<String> = subject.iter_organization().map(text).collect();
        let attributes = subject.iter_attributes().count();
        let extensions = request.requested_extensions().into_iter().flatten();
        let gives_more = extensions.into_iter().any(|extension| match extension {
            ParsedExtension::KeyUsage(_) | ParsedExtension::ExtendedKeyUsage(_) => false,
            ParsedExtension::BasicConstraints(constraints) => constraints.ca,
            _ => true,
        });
        Self {
            has_more: gives_more || names.len() != 1 || attributes != names.len() + organizations.len(),
            name: names.into_iter().next().unwrap_or_default(),
            organizations,
        }
    }
}

/// Enough of the hash of a public key to tell it from all others.
fn fingerprint(public_key: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, public_key);
    digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
