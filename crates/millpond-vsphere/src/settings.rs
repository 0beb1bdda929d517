//! The address of vCenter, the credentials, and the accepted certificates.
//!
//! The names are those of govmomi's tools: `GOVMOMI_URL` is a bare host, `host:port` or a URL; `VC_HOST`, `VC_USER` and
//! `VC_PASS` are read where it is not given.

use std::path::PathBuf;

use secrecy::SecretString;

/// The path of the SOAP API where a URL names none.
const SDK_PATH: &str = "/sdk";

/// The settings of a connection. `Debug` does not show the password.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where vCenter is.
    pub endpoint: Endpoint,
    /// The account.
    pub user: String,
    /// Its password.
    pub password: SecretString,
    /// The accepted certificates.
    pub trust: Trust,
}

/// Where the SOAP API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `https` unless a URL says `http`.
    pub tls: bool,
    /// Host name or address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path: `/sdk`.
    pub path: String,
}

/// The accepted certificates of vCenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that the operating system trusts.
    #[default]
    System,
    /// Certificates signed by a CA in this file.
    CaFile(PathBuf),
    /// Exactly the one with this thumbprint (SHA-1 or SHA-256), whichever CA signed it.
    Thumbprint(Thumbprint),
    /// Any. Only on explicit request: a machine in the middle can read the password.
    Insecure,
}

/// The digest of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thumbprint(Vec<u8>);

impl Thumbprint {
    /// Reads `AB:CD:…` or `abcd…`, 20 bytes (SHA-1) or 32 (SHA-256).
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let invalid = || SettingsError::Thumbprint(text.to_owned());
        let digits: String = text.chars().filter(|c| *c != ':' && !c.is_whitespace()).collect();
        if !digits.is_ascii() || !matches!(digits.len(), 40 | 64) {
            return Err(invalid());
        }
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| invalid());
        (0..digits.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>().map(Self)
    }

    /// Whether this is the digest of a certificate.
    pub(crate) fn matches(&self, certificate: &[u8]) -> bool {
        let algorithm = match self.0.len() {
            20 => &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
            _ => &ring::digest::SHA256,
        };
        ring::digest::digest(algorithm, certificate).as_ref() == self.0
    }
}

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Neither `GOVMOMI_URL` nor `VC_HOST`.
    #[error("no vCenter is named: set GOVMOMI_URL (or VC_HOST)")]
    NoAddress,
    /// A vCenter without an account.
    #[error("no account for vCenter: set {0}")]
    Missing(&'static str),
    /// The text is not a host, `host:port` or URL.
    #[error("`{0}` is not a host, host:port or URL")]
    Address(String),
    /// The text is not a digest.
    #[error("`{0}` is not a SHA-1 or SHA-256 thumbprint")]
    Thumbprint(String),
}

impl Endpoint {
    /// Reads a bare host, `host:port`, or a URL. An account within a URL is left out: it is read by [`Settings::read`].
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        parse_address(text).map(|(endpoint, _)| endpoint)
    }

    /// Host and port, for messages.
    pub fn address(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.address(), self.path)
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

/// User and password within a URL, percent-decoded.
type Account = (String, Option<String>);

fn parse_address(text: &str) -> Result<(Endpoint, Option<Account>), SettingsError> {
    // The text may hold a password, so the message names only what comes after it.
    let invalid = || SettingsError::Address(text.rsplit('@').next().unwrap_or_default().to_owned());
    let text = text.trim();
    let (tls, rest) = match text.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        Some(_) => return Err(invalid()),
        None => (true, text),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let (account, authority) = match authority.rsplit_once('@') {
        Some((account, authority)) => (Some(decode_account(account).ok_or_else(invalid)?), authority),
        None => (None, authority),
    };
    let default_port = if tls { 443 } else { 80 };
    let (host, port) = split_port(authority).ok_or_else(invalid)?;
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(invalid)?,
        None => default_port,
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(allowed) {
        return Err(invalid());
    }
    let path = if path.is_empty() || path == "/" { SDK_PATH } else { path };
    Ok((Endpoint { tls, host: host.to_owned(), port, path: path.to_owned() }, account))
}

/// Host and port of `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare IPv6 address.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match authority.matches(':').count() {
        1 => authority.split_once(':').map(|(host, port)| (host, Some(port))),
        _ => Some((authority, None)),
    }
}

fn decode_account(text: &str) -> Option<Account> {
    match text.split_once(':') {
        Some((user, password)) => Some((percent_decode(user)?, Some(percent_decode(password)?))),
        None => Some((percent_decode(text)?, None)),
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

impl Settings {
    /// Reads settings from names and values: the environment, or the keys of a Secret. `trust` holds unless
    /// `GOVMOMI_INSECURE` asks for none.
    pub fn read(value: impl Fn(&str) -> Option<String>, trust: &Trust) -> Result<Self, SettingsError> {
        let first = |names: [&str; 2]| {
            names.into_iter().find_map(|name| value(name).map(|text| trim_line(&text)).filter(|text| !text.is_empty()))
        };
        let address = first(["GOVMOMI_URL", "VC_HOST"]).ok_or(SettingsError::NoAddress)?;
        let (endpoint, account) = parse_address(&address)?;
        let (url_user, url_password) = account.map_or((None, None), |(user, password)| (Some(user), password));
        let user = first(["GOVMOMI_USERNAME", "VC_USER"]).or(url_user);
        let user = user.ok_or(SettingsError::Missing("GOVMOMI_USERNAME (or VC_USER)"))?;
        let password = first(["GOVMOMI_PASSWORD", "VC_PASS"]).or(url_password);
        let password = password.ok_or(SettingsError::Missing("GOVMOMI_PASSWORD (or VC_PASS)"))?;
        let is_insecure = value("GOVMOMI_INSECURE").is_some_and(|text| is_true(&text));
        let trust = if is_insecure { Trust::Insecure } else { trust.clone() };
        Ok(Self { endpoint, user, password: SecretString::from(password), trust })
    }

    /// Whether two settings lead to the same session.
    pub fn is_same(&self, other: &Self) -> bool {
        use secrecy::ExposeSecret as _;
        self.endpoint == other.endpoint
            && self.user == other.user
            && self.trust == other.trust
            && self.password.expose_secret() == other.password.expose_secret()
    }
}

/// A value without the line break that `kubectl create secret --from-file` leaves at its end; spaces may belong to a
/// password.
fn trim_line(text: &str) -> String {
    text.trim_end_matches(['\n', '\r']).to_owned()
}

/// Whether Go's `strconv.ParseBool` parses the text as true.
fn is_true(text: &str) -> bool {
    matches!(text.trim(), "1" | "t" | "T" | "true" | "TRUE" | "True")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn addresses_are_hosts_ports_or_urls() {
        for (text, url) in [
            ("192.168.0.100", "https://192.168.0.100:443/sdk"),
            ("vc.example.com:8989", "https://vc.example.com:8989/sdk"),
            ("https://vc.example.com", "https://vc.example.com:443/sdk"),
            ("https://vc.example.com/", "https://vc.example.com:443/sdk"),
            ("https://user:p%40ss@vc:8443/sdk", "https://vc:8443/sdk"),
            ("http://127.0.0.1:8989/sdk?x=1", "http://127.0.0.1:8989/sdk"),
            ("[fd00::1]:444", "https://[fd00::1]:444/sdk"),
            ("fd00::1", "https://[fd00::1]:443/sdk"),
            ("  vc \n", "https://vc:443/sdk"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().url(), url, "{text}");
        }
        for text in ["", "https://", "ftp://vc", "vc:port", "vc:0", "vc:70000", "v c", "[fd00::1", "a@b@:x"] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    fn read(values: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::read(value, &Trust::System)
    }

    #[test]
    fn both_sets_of_names_are_read() {
        let settings = read(&[("VC_HOST", "vc"), ("VC_USER", "root"), ("VC_PASS", "a<&\"b \n")]).unwrap();
        assert_eq!((settings.user.as_str(), settings.password.expose_secret()), ("root", "a<&\"b "));
        let settings = read(&[
            ("GOVMOMI_URL", "https://in-url:secret%21@vc"),
            ("GOVMOMI_USERNAME", "administrator@vsphere.local"),
            ("GOVMOMI_INSECURE", "true"),
            ("VC_HOST", "other"),
        ])
        .unwrap();
        assert_eq!((settings.endpoint.host.as_str(), settings.user.as_str()), ("vc", "administrator@vsphere.local"));
        assert_eq!(settings.password.expose_secret(), "secret!");
        assert_eq!(settings.trust, Trust::Insecure);
        assert_eq!(read(&[]).unwrap_err(), SettingsError::NoAddress);
        assert!(matches!(read(&[("VC_HOST", "vc")]).unwrap_err(), SettingsError::Missing(_)));
    }

    #[test]
    fn a_password_is_not_shown() {
        let settings = read(&[("VC_HOST", "vc"), ("VC_USER", "root"), ("VC_PASS", "hunter2")]).unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
        let error = Endpoint::parse("https://root:hunter2@").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn thumbprints_are_digests() {
        let print = Thumbprint::parse("A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D").unwrap();
        assert!(print.matches(b"abc"));
        assert!(!print.matches(b"abd"));
        assert!(
            Thumbprint::parse("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
                .unwrap()
                .matches(b"abc")
        );
        for text in ["", "AB:CD", "zz", &"é".repeat(20)] {
            assert!(Thumbprint::parse(text).is_err());
        }
    }
}
