//! Certificate signing requests (PKCS #10): read, and checked against their own key.

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use super::der::{self, OID, SEQUENCE};

const LABEL: &str = "CERTIFICATE REQUEST";

/// The content of a signing request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SigningRequest {
    /// Common name of the subject.
    pub(crate) common_name: String,
    /// Organizations of the subject, in order.
    pub(crate) organizations: Vec<String>,
    /// DNS names among the subject's alternative names.
    pub(crate) dns_names: Vec<String>,
    /// Mail addresses.
    pub(crate) emails: Vec<String>,
    /// IP addresses, 4 or 16 bytes each.
    pub(crate) addresses: Vec<Vec<u8>>,
    /// URIs.
    pub(crate) uris: Vec<String>,
    /// The subject as DER.
    pub(super) subject: Vec<u8>,
    /// The public key with its algorithm (SubjectPublicKeyInfo) as DER.
    pub(super) key: Vec<u8>,
}

impl SigningRequest {
    /// A request for a user with groups, of a public key in DER.
    pub(super) fn of(user: &str, groups: &[&str], key: Vec<u8>) -> Self {
        const SET: u8 = 0x31;
        const UTF8_STRING: u8 = 0x0c;
        let part = |kind: u8, text: &str| {
            let kind = der::element(OID, &[0x55, 0x04, kind]);
            let pair = der::constructed(SEQUENCE, &[&kind, &der::element(UTF8_STRING, text.as_bytes())]);
            der::element(SET, &pair)
        };
        let mut subject: Vec<u8> = groups.iter().flat_map(|group| part(0x0a, group)).collect();
        subject.extend(part(0x03, user));
        Self { subject: der::element(SEQUENCE, &subject), key, ..Self::default() }
    }

    /// Reads a request in PEM form and verifies that its author holds the key. The errors are Go's.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let wrong = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
        let (pem, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|_| wrong())?;
        if pem.label != LABEL {
            return Err(wrong());
        }
        let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|error| error.to_string())?;
        verify(&request)?;
        let info = &request.certification_request_info;
        let text = |value: Result<&str, _>| value.unwrap_or_default().to_owned();
        let mut read = Self {
            common_name: info.subject.iter_common_name().last().map(|name| text(name.as_str())).unwrap_or_default(),
            organizations: info.subject.iter_organization().map(|name| text(name.as_str())).collect(),
            subject: info.subject.as_raw().to_vec(),
            key: info.subject_pki.raw.to_vec(),
            ..Self::default()
        };
        for attribute in info.iter_attributes() {
            if let ParsedCriAttribute::ExtensionRequest(wanted) = attribute.parsed_attribute() {
                for extension in &wanted.extensions {
                    if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                        names.general_names.iter().for_each(|name| read.add_name(name));
                    }
                }
            }
        }
        Ok(read)
    }

    fn add_name(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(address) => self.addresses.push(address.to_vec()),
            _ => {}
        }
    }
}

/// Whether the request is signed with the key that it names.
fn verify(request: &X509CertificationRequest<'_>) -> Result<(), String> {
    const UNKNOWN: &str = "x509: cannot verify signature: algorithm unimplemented";
    let info = &request.certification_request_info;
    let key = &*info.subject_pki.subject_public_key.data;
    let of = |p256, p384| match key.len() {
        65 => Some(p256),
        97 => Some(p384),
        _ => None,
    };
    let rsa = "crypto/rsa: verification error";
    let ecdsa = "x509: ECDSA verification failure";
    let (algorithm, failure): (Option<&'static dyn VerificationAlgorithm>, _) =
        match request.signature_algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.10045.4.3.2" => {
                (of(&signature::ECDSA_P256_SHA256_ASN1, &signature::ECDSA_P384_SHA256_ASN1).map(|a| a as _), ecdsa)
            }
            "1.2.840.10045.4.3.3" => {
                (of(&signature::ECDSA_P256_SHA384_ASN1, &signature::ECDSA_P384_SHA384_ASN1).map(|a| a as _), ecdsa)
            }
            "1.2.840.113549.1.1.11" => (Some(&signature::RSA_PKCS1_2048_8192_SHA256), rsa),
            "1.2.840.113549.1.1.12" => (Some(&signature::RSA_PKCS1_2048_8192_SHA384), rsa),
            "1.2.840.113549.1.1.13" => (Some(&signature::RSA_PKCS1_2048_8192_SHA512), rsa),
            "1.3.101.112" => (Some(&signature::ED25519), "x509: Ed25519 verification failure"),
            _ => (None, ""),
        };
    let algorithm = algorithm.ok_or(UNKNOWN)?;
    let public = UnparsedPublicKey::new(algorithm, key);
    public.verify(info.raw, &request.signature_value.data).map_err(|_| failure.to_owned())
}
