//! The certificate authority: its certificate, its key, and what it signs for others.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{Issuer, KeyPair, PublicKeyData as _, SigningKey as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::ParsedExtension;

use super::der::{self, INTEGER, OID, SEQUENCE};
use super::request::SigningRequest;

/// How far before now a signed certificate becomes valid, for clocks that are behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Certificates that live shorter than this keep their full time after now.
const SHORT: SignedDuration = SignedDuration::from_hours(8);

/// A certificate authority.
pub struct Authority {
    pem: String,
    key: KeyPair,
    /// Its name, as DER.
    subject: Vec<u8>,
    /// Identifier of its key, if its certificate names one.
    key_id: Option<Vec<u8>>,
    not_after: Timestamp,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// The permitted uses of a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usages {
    pub(crate) digital_signature: bool,
    pub(crate) key_encipherment: bool,
    pub(crate) server_auth: bool,
    pub(crate) client_auth: bool,
}

impl Authority {
    /// An authority of a certificate in PEM form and its key.
    pub(super) fn new(pem: String, key: KeyPair) -> Result<Self, String> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|problem| problem.to_string())?;
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).map_err(|problem| problem.to_string())?;
        let key_id = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp());
        let (subject, not_after) = (certificate.subject().as_raw().to_vec(), not_after.unwrap_or(Timestamp::MAX));
        Ok(Self { pem, key, subject, key_id, not_after })
    }

    /// Its certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    #[cfg(test)]
    pub(super) fn key(&self) -> &KeyPair {
        &self.key
    }

    pub(super) fn issuer(&self) -> Result<Issuer<'_, &KeyPair>, rcgen::Error> {
        Issuer::from_ca_cert_pem(&self.pem, &self.key)
    }

    /// Signs what was asked for, as kube-controller-manager's signers do: subject and alternative names as they are in
    /// the request, nothing else of it. The answer is PEM.
    pub(crate) fn sign(
        &self,
        request: &SigningRequest,
        usages: Usages,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<String, String> {
        if now >= self.not_after {
            return Err(format!(
                "refusing to sign a certificate that expired in the past: NotAfter={}",
                self.not_after
            ));
        }
        let signature_algorithm = self.signature_algorithm().ok_or("the CA's key has an unknown algorithm")?;
        let end = if lifetime < SHORT { lifetime } else { lifetime - BACKDATE };
        let not_before = now.checked_sub(BACKDATE).unwrap_or(now);
        let not_after = now.checked_add(end).unwrap_or(Timestamp::MAX).min(self.not_after);
        let version = der::element(0xa0, &[INTEGER, 1, 2]);
        let validity = der::constructed(SEQUENCE, &[&der::time(not_before), &der::time(not_after)]);
        let extensions = der::element(0xa3, &der::element(SEQUENCE, &self.extensions(request, usages)));
        let certificate = der::constructed(
            SEQUENCE,
            &[
                &version,
                &serial_number(),
                &signature_algorithm,
                &self.subject,
                &validity,
                &request.subject,
                &request.key,
                &extensions,
            ],
        );
        let signature = self.key.sign(&certificate).map_err(|problem| problem.to_string())?;
        let signed = [certificate.as_slice(), &signature_algorithm, &der::bit_string(&signature)].concat();
        Ok(pem("CERTIFICATE", &der::element(SEQUENCE, &signed)))
    }

    /// A new key with a client certificate for it, both as PEM, valid for a day.
    pub(crate) fn client(&self, user: &str, groups: &[&str], now: Timestamp) -> Result<(String, String), String> {
        let key = KeyPair::generate().map_err(|problem| problem.to_string())?;
        let request = SigningRequest::of(user, groups, key.subject_public_key_info());
        let usages = Usages { digital_signature: true, client_auth: true, ..Usages::default() };
        let certificate = self.sign(&request, usages, SignedDuration::from_hours(24), now)?;
        Ok((certificate, key.serialize_pem()))
    }

    fn extensions(&self, request: &SigningRequest, usages: Usages) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |oid: &[u8], critical: bool, value: &[u8]| all.extend(der::extension(oid, critical, value));
        if let Some(bits) = key_usage(usages) {
            add(&[0x55, 0x1d, 0x0f], true, &bits);
        }
        let purposes = [(usages.server_auth, 1), (usages.client_auth, 2)];
        let purposes: Vec<u8> = purposes
            .iter()
            .filter(|(wanted, _)| *wanted)
            .flat_map(|(_, number)| der::element(OID, &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, *number]))
            .collect();
        if !purposes.is_empty() {
            add(&[0x55, 0x1d, 0x25], false, &der::element(SEQUENCE, &purposes));
        }
        add(&[0x55, 0x1d, 0x13], true, &der::element(SEQUENCE, &[]));
        if let Some(id) = &self.key_id {
            add(&[0x55, 0x1d, 0x23], false, &der::element(SEQUENCE, &der::element(0x80, id)));
        }
        let names = alternative_names(request);
        if !names.is_empty() {
            const EMPTY: &[u8] = &[SEQUENCE, 0];
            add(&[0x55, 0x1d, 0x11], request.subject == EMPTY, &der::element(SEQUENCE, &names));
        }
        all
    }

    /// The AlgorithmIdentifier of the signatures of this key.
    fn signature_algorithm(&self) -> Option<Vec<u8>> {
        const ECDSA: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
        let algorithm = self.key.algorithm();
        let (oid, null): (Vec<u8>, &[u8]) = if algorithm == &rcgen::PKCS_ECDSA_P256_SHA256 {
            ([&ECDSA[..], &[2]].concat(), &[])
        } else if algorithm == &rcgen::PKCS_ECDSA_P384_SHA384 {
            ([&ECDSA[..], &[3]].concat(), &[])
        } else if algorithm == &rcgen::PKCS_ED25519 {
            (vec![0x2b, 0x65, 0x70], &[])
        } else if algorithm == &rcgen::PKCS_RSA_SHA256 {
            (vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], &[0x05, 0x00])
        } else {
            return None;
        };
        Some(der::constructed(SEQUENCE, &[&der::element(OID, &oid), null]))
    }
}

/// A random positive number of 16 bytes.
fn serial_number() -> Vec<u8> {
    let mut bytes: [u8; 16] = rand::random();
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    der::element(INTEGER, &bytes)
}

fn key_usage(usages: Usages) -> Option<Vec<u8>> {
    match (usages.digital_signature, usages.key_encipherment) {
        (true, true) => Some(vec![der::BIT_STRING, 2, 5, 0xa0]),
        (true, false) => Some(vec![der::BIT_STRING, 2, 7, 0x80]),
        (false, true) => Some(vec![der::BIT_STRING, 2, 5, 0x20]),
        (false, false) => None,
    }
}

fn alternative_names(request: &SigningRequest) -> Vec<u8> {
    let texts = |tag: u8, names: &[String]| -> Vec<u8> {
        names.iter().flat_map(|name| der::element(tag, name.as_bytes())).collect()
    };
    let addresses: Vec<u8> = request.addresses.iter().flat_map(|address| der::element(0x87, address)).collect();
    [texts(0x82, &request.dns_names), texts(0x81, &request.emails), addresses, texts(0x86, &request.uris)].concat()
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> Authority {
        let key = KeyPair::generate().unwrap();
        let pem = super::super::ca_params("2026-01-01T00:00:00Z".parse().unwrap()).self_signed(&key).unwrap().pem();
        Authority::new(pem, key).unwrap()
    }

    #[test]
    fn a_signed_certificate_says_what_the_request_says() {
        let authority = authority();
        let mut params = rcgen::CertificateParams::new(vec!["node.example".to_owned(), "10.1.2.3".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n1");
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = SigningRequest::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(
            (request.common_name.as_str(), &request.organizations[..]),
            ("system:node:n1", &["system:nodes".to_owned()][..])
        );
        assert_eq!((request.dns_names.len(), request.addresses[0].as_slice()), (1, &[10, 1, 2, 3][..]));

        let now: Timestamp = "2026-02-03T04:05:06Z".parse().unwrap();
        let usages = Usages { digital_signature: true, client_auth: true, server_auth: true, key_encipherment: true };
        let signed = authority.sign(&request, usages, SignedDuration::from_secs(600), now).unwrap();
        let der = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
        let (rest, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert!(rest.is_empty());
        assert_eq!(certificate.validity().not_before.timestamp(), now.as_second() - 300);
        assert_eq!(certificate.validity().not_after.timestamp(), now.as_second() + 600);
        assert!(!certificate.is_ca());
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
        let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.client_auth && purposes.server_auth && !purposes.any);
        let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert_eq!(names.len(), 2);
        assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:n1");

        let year = SignedDuration::from_hours(365 * 24);
        let long = authority.sign(&request, usages, year * 20, now).unwrap();
        let der = CertificateDer::from_pem_slice(long.as_bytes()).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(certificate.validity().not_after.timestamp(), authority.not_after.as_second(), "never after the CA");
        assert!(authority.sign(&request, usages, year, authority.not_after).is_err());
    }

    #[test]
    fn a_request_that_another_key_has_signed_is_refused() {
        let pem = rcgen::CertificateParams::default()
            .serialize_request(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
            .unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let mut der = STANDARD.decode(body).unwrap();
        let last = der.len() - 1;
        der[last] ^= 1;
        let forged = super::pem("CERTIFICATE REQUEST", &der);
        assert_eq!(SigningRequest::from_pem(forged.as_bytes()).unwrap_err(), "x509: ECDSA verification failure");
        let wrong = "PEM block type must be CERTIFICATE REQUEST";
        for text in ["", "hello", &forged.replace("CERTIFICATE REQUEST", "CERTIFICATE")] {
            assert_eq!(SigningRequest::from_pem(text.as_bytes()).unwrap_err(), wrong);
        }
    }
}
