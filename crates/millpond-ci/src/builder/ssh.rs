//! The builder's SSH key pair and the host keys of image-builders that were accepted: data in a folder (files `priv`,
//! `pub`, `known_hosts`), or in a Secret and a ConfigMap with the same keys.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// The Secret with the key pair, as Software Factory's operator names it.
pub const SECRET: &str = "nodepool-builder-ssh-key";
/// The ConfigMap with accepted host keys.
pub const CONFIG_MAP: &str = "nodepool-builder-known-hosts";
/// The private key, in the Secret and in the folder.
pub const PRIVATE: &str = "priv";
/// The public key.
pub const PUBLIC: &str = "pub";
/// Accepted host keys.
pub const KNOWN_HOSTS: &str = "known_hosts";
/// Where a deployment mounts the Secret and the ConfigMap.
pub const MOUNTS: [&str; 2] = ["/var/lib/nodepool-ssh-key", "/var/lib/nodepool-known-hosts"];
/// How long a host may take to show its keys.
const SCAN_TIMEOUT_S: u32 = 10;

/// The type of generated keys, and the remark behind them.
const KEY_TYPE: &str = "ssh-ed25519";
const KEY_COMMENT: &str = "nodepool-builder";
/// What a private key of OpenSSH begins with, the length of its lines, and of the blocks that its hidden part has.
const KEY_TITLE: &str = "OPENSSH PRIVATE KEY";
const KEY_MAGIC: &[u8] = b"openssh-key-v1\0";
const KEY_LINE: usize = 70;
const KEY_BLOCK: usize = 8;

/// Errors with keys.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// The file system refuses.
    #[error("{verb} `{path}`: {source}")]
    Io {
        /// The operation.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A program of OpenSSH is missing.
    #[error("`{0}` is not there; Debian's package openssh-client has it")]
    NoProgram(&'static str),
    /// A program of OpenSSH failed.
    #[error("`{program}`: {problem}")]
    Program {
        /// Which.
        program: &'static str,
        /// What it said.
        problem: String,
    },
    /// The system gives no random numbers.
    #[error("no key pair can be made: the system gives no random numbers")]
    Generate,
    /// The text names no host.
    #[error("`{0}` is not a host name or address, with or without a port")]
    Host(String),
    /// No key was shown.
    #[error("`{0}` shows no host keys: is it reachable, and does sshd run there?")]
    NoKeys(String),
    /// The host shows another key than the one that was accepted.
    #[error("the host key of `{host}` has changed: accepted was {accepted}, it shows {shown}")]
    Changed {
        /// The host.
        host: String,
        /// The fingerprint that was accepted.
        accepted: String,
        /// The one that it shows.
        shown: String,
    },
}

/// The folder of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshFolder(pub PathBuf);

/// A key pair as texts.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// In OpenSSH's format.
    pub private: String,
    /// As in authorized_keys.
    pub public: String,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyPair({})", self.public.trim())
    }
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SshError {
    let path = path.to_owned();
    move |source| SshError::Io { verb, path, source }
}

impl SshFolder {
    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The key pair, made if there is none.
    pub fn ensure(&self) -> Result<KeyPair, SshError> {
        if let Some(pair) = self.read()? {
            return Ok(pair);
        }
        let pair = generate()?;
        self.write(&pair)?;
        Ok(pair)
    }

    /// The key pair, if there is one.
    pub fn read(&self) -> Result<Option<KeyPair>, SshError> {
        let read = |name: &str| match fs::read_to_string(self.file(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.file(name))(error)),
        };
        let (private, public) = (read(PRIVATE)?, read(PUBLIC)?);
        Ok(private.zip(public).map(|(private, public)| KeyPair { private, public }))
    }

    /// Puts a key pair there; what is the same already is not written.
    pub fn write(&self, pair: &KeyPair) -> Result<(), SshError> {
        if self.read()?.as_ref() == Some(pair) {
            return Ok(());
        }
        self.put(PUBLIC, &pair.public, 0o644)?;
        self.put(PRIVATE, &pair.private, 0o600)
    }

    /// Takes over the key pair and the accepted host keys of a mounted Secret and ConfigMap, as far as they are there, and
    /// tells `ssh` of people in this container to use that key and to write accepted host keys where builds look for them.
    /// `home` is the home folder there. Gives whether there is a key pair.
    pub fn adopt(&self, [key, known_hosts]: [&Path; 2], home: &Path) -> Result<bool, SshError> {
        let accepted = Self(known_hosts.to_owned()).known_hosts()?;
        if !accepted.is_empty() {
            self.write_known_hosts(&merge(&accepted, &self.known_hosts()?))?;
        }
        let Some(pair) = Self(key.to_owned()).read()? else { return Ok(false) };
        self.write(&pair)?;
        let config = Self(home.join(".ssh"));
        if !config.file("config").exists() {
            let (key, known) = (self.file(PRIVATE), self.file(KNOWN_HOSTS));
            let text = format!(
                "Host *\n    IdentityFile {}\n    UserKnownHostsFile {}\n    ServerAliveInterval 60\n",
                key.display(),
                known.display()
            );
            config.put("config", &text, 0o600)?;
        }
        Ok(true)
    }

    /// Accepted host keys.
    pub fn known_hosts(&self) -> Result<String, SshError> {
        match fs::read_to_string(self.file(KNOWN_HOSTS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(failed("read", &self.file(KNOWN_HOSTS))),
        }
    }

    /// Puts accepted host keys there.
    pub fn write_known_hosts(&self, text: &str) -> Result<(), SshError> {
        if self.file(KNOWN_HOSTS).exists() && self.known_hosts()? == text {
            return Ok(());
        }
        self.put(KNOWN_HOSTS, text, 0o644)
    }

    /// Replaces a file at once: a reader sees the old or the new one.
    fn put(&self, name: &str, text: &str, mode: u32) -> Result<(), SshError> {
        let folder = &self.0;
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create", folder))?;
        let new = self.file(&format!(".{name}.new"));
        let written =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new).and_then(|mut file| {
                file.set_permissions(Permissions::from_mode(mode))?;
                file.write_all(text.as_bytes())?;
                file.sync_all()
            });
        written.map_err(failed("write", &new))?;
        fs::rename(&new, self.file(name)).map_err(failed("write", &self.file(name)))
    }
}

/// Makes a key pair. `ssh-keygen` is not needed: the controller of a deployment makes one, and its image has no programs.
pub fn generate() -> Result<KeyPair, SshError> {
    let failed = || SshError::Generate;
    let seed: [u8; 32] = ring::rand::generate(&SystemRandom::new()).map_err(|_| failed())?.expose();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| failed())?;
    let check: [u8; 4] = ring::rand::generate(&SystemRandom::new()).map_err(|_| failed())?.expose();
    Ok(openssh(&seed, pair.public_key().as_ref(), check))
}

/// A key pair in OpenSSH's own format (its PROTOCOL.key), without a passphrase. `check` is any number; it tells a reader
/// with a passphrase that it has the right one.
fn openssh(seed: &[u8; 32], public: &[u8], check: [u8; 4]) -> KeyPair {
    let text = |bytes: &[u8]| -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        [&length.to_be_bytes(), bytes].concat()
    };
    let shown = [text(KEY_TYPE.as_bytes()), text(public)].concat();
    let both = [seed.as_slice(), public].concat();
    let mut hidden =
        [check.to_vec(), check.to_vec(), shown.clone(), text(&both), text(KEY_COMMENT.as_bytes())].concat();
    hidden.extend((1..).take((KEY_BLOCK - hidden.len() % KEY_BLOCK) % KEY_BLOCK));
    let count = 1_u32.to_be_bytes().to_vec();
    let blob =
        [KEY_MAGIC.to_vec(), text(b"none"), text(b"none"), text(b""), count, text(&shown), text(&hidden)].concat();
    let encoded = STANDARD.encode(blob);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(KEY_LINE).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    KeyPair {
        private: format!("-----BEGIN {KEY_TITLE}-----\n{}\n-----END {KEY_TITLE}-----\n", lines.join("\n")),
        public: format!("{KEY_TYPE} {} {KEY_COMMENT}\n", STANDARD.encode(shown)),
    }
}

/// Accepted keys, and those of `local` for hosts that have none among them.
pub fn merge(accepted: &str, local: &str) -> String {
    let host = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let known: Vec<String> = accepted.lines().map(host).collect();
    let mut text: String = accepted.lines().map(|line| format!("{line}\n")).collect();
    for line in local.lines().filter(|line| !line.trim().is_empty() && !known.contains(&host(line))) {
        text.push_str(&format!("{line}\n"));
    }
    text
}

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address.
    pub name: String,
    /// Port of its sshd.
    pub port: u16,
}

impl Host {
    /// `HOST`, `HOST:PORT` or `[HOST]:PORT`.
    pub fn parse(text: &str) -> Result<Self, SshError> {
        let wrong = || SshError::Host(text.to_owned());
        let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, "")) => (name, None),
            Some((name, rest)) => (name, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            // An IPv6 address has several colons.
            None if text.matches(':').count() == 1 => {
                text.split_once(':').map(|(name, port)| (name, Some(port))).ok_or_else(wrong)?
            }
            None => (text, None),
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':' | '%');
        if name.is_empty() || name.starts_with('-') || name.len() > 255 || !name.chars().all(is_name) {
            return Err(wrong());
        }
        let port = port.map_or(Ok(22), |port| port.parse().map_err(|_| wrong()))?;
        Ok(Self { name: name.to_owned(), port })
    }

    /// Its name in known_hosts.
    pub fn pattern(&self) -> String {
        if self.port == 22 { self.name.clone() } else { format!("[{}]:{}", self.name, self.port) }
    }
}

/// A host key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey {
    /// ssh-ed25519, ssh-rsa …
    pub kind: String,
    /// The key in base64.
    pub key: String,
}

impl HostKey {
    /// As `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> String {
        let blob = STANDARD.decode(&self.key).unwrap_or_default();
        format!("SHA256:{}", STANDARD_NO_PAD.encode(digest(&SHA256, &blob)))
    }
}

/// Asks a host for its keys.
pub fn scan(host: &Host) -> Result<Vec<HostKey>, SshError> {
    let mut command = Command::new("ssh-keyscan");
    command.args(["-T", &SCAN_TIMEOUT_S.to_string(), "-p", &host.port.to_string(), "--", &host.name]);
    command.stdin(Stdio::null());
    // The command fails if one kind of key is missing, but still prints the others.
    let shown = match command.output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(SshError::NoProgram("ssh-keyscan")),
        Err(error) => return Err(SshError::Program { program: "ssh-keyscan", problem: error.to_string() }),
    };
    let mut keys: Vec<HostKey> = lines(&shown).map(|(_, key)| key).collect();
    keys.sort();
    keys.dedup();
    if keys.is_empty() { Err(SshError::NoKeys(host.pattern())) } else { Ok(keys) }
}

/// Lines of known_hosts that name hosts in clear.
fn lines(known_hosts: &str) -> impl Iterator<Item = (&str, HostKey)> {
    known_hosts.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (host, kind, key) = (words.next()?, words.next()?, words.next()?);
        if host.starts_with(['#', '@']) || STANDARD.decode(key).is_err() {
            return None;
        }
        Some((host, HostKey { kind: kind.to_owned(), key: key.to_owned() }))
    })
}

/// Accepted keys of a host.
pub fn accepted(known_hosts: &str, host: &Host) -> Vec<HostKey> {
    let pattern = host.pattern();
    let keys = lines(known_hosts).filter(|(hosts, _)| hosts.split(',').any(|name| name == pattern));
    keys.map(|(_, key)| key).collect()
}

/// known_hosts with the keys of a host accepted. A key that differs from an accepted one of the same kind is refused
/// unless it may replace it.
pub fn accept(known_hosts: &str, host: &Host, keys: &[HostKey], replace: bool) -> Result<String, SshError> {
    let before = accepted(known_hosts, host);
    for shown in keys {
        if let Some(old) = before.iter().find(|old| old.kind == shown.kind && old.key != shown.key)
            && !replace
        {
            return Err(SshError::Changed {
                host: host.pattern(),
                accepted: old.fingerprint(),
                shown: shown.fingerprint(),
            });
        }
    }
    let pattern = host.pattern();
    let is_of_host = |line: &&str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        first.split(',').any(|name| name == pattern)
    };
    let mut text: String = known_hosts
        .lines()
        .filter(|line| !line.trim().is_empty() && (!replace || !is_of_host(line)))
        .map(|line| format!("{line}\n"))
        .collect();
    for key in keys {
        if replace || !before.contains(key) {
            text.push_str(&format!("{pattern} {} {}\n", key.kind, key.key));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, key: &str) -> HostKey {
        HostKey { kind: kind.to_owned(), key: STANDARD.encode(key) }
    }

    #[test]
    fn hosts() {
        let host = |text: &str| Host::parse(text).map(|host| (host.name, host.port)).ok();
        assert_eq!(host("builder.example.com"), Some(("builder.example.com".to_owned(), 22)));
        assert_eq!(host("10.0.0.1:2222"), Some(("10.0.0.1".to_owned(), 2222)));
        assert_eq!(host("[::1]:2222"), Some(("::1".to_owned(), 2222)));
        assert_eq!(host("::1"), Some(("::1".to_owned(), 22)));
        for wrong in ["", "-oProxyCommand=x", "a b", "a:b", "a:99999", "$(x)", "[::1]22"] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn host_keys_are_pinned() {
        let host = Host::parse("builder:2222").unwrap();
        let (one, other, rsa) = (key("ssh-ed25519", "one"), key("ssh-ed25519", "other"), key("ssh-rsa", "rsa"));
        let text = accept("# kept\n", &host, std::slice::from_ref(&one), false).unwrap();
        assert_eq!(text, "# kept\n[builder]:2222 ssh-ed25519 b25l\n");
        assert_eq!(accepted(&text, &host), std::slice::from_ref(&one));
        assert_eq!(accepted(&text, &Host::parse("builder").unwrap()), []);
        // Again: the same. Another kind: added. Another key: refused.
        assert_eq!(accept(&text, &host, std::slice::from_ref(&one), false).unwrap(), text);
        assert_eq!(accepted(&accept(&text, &host, &[rsa], false).unwrap(), &host).len(), 2);
        let refused = accept(&text, &host, std::slice::from_ref(&other), false).unwrap_err().to_string();
        assert!(refused.contains(&one.fingerprint()) && refused.contains(&other.fingerprint()), "{refused}");
        let replaced = accept(&text, &host, std::slice::from_ref(&other), true).unwrap();
        assert_eq!(accepted(&replaced, &host), [other]);
        assert!(replaced.starts_with("# kept\n"));
    }

    #[test]
    fn fingerprints_are_opensshs() {
        // `ssh-keygen -lf` of this key.
        let key = HostKey {
            kind: "ssh-ed25519".to_owned(),
            key: "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl".to_owned(),
        };
        assert_eq!(key.fingerprint(), "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU");
    }

    #[test]
    fn key_pairs_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let ssh = SshFolder(folder.path().join("ssh"));
        assert_eq!(ssh.read().unwrap(), None);
        let pair = KeyPair { private: "private\n".to_owned(), public: "public\n".to_owned() };
        ssh.write(&pair).unwrap();
        assert_eq!(ssh.ensure().unwrap(), pair);
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(ssh.0.clone()), mode(ssh.file(PRIVATE)), mode(ssh.file(PUBLIC))), (0o700, 0o600, 0o644));
        assert!(!format!("{pair:?}").contains("private"));
        let (adopter, home) = (SshFolder(folder.path().join("other")), folder.path().join("home"));
        let nothing = Path::new("/no/such/mount");
        assert!(!adopter.adopt([nothing, nothing], &home).unwrap());
        // Accepted host keys come with or without the key pair, and those that `ssh` accepted here stay.
        adopter.write_known_hosts("here ssh-ed25519 AAAA\nboth ssh-ed25519 AAAA\n").unwrap();
        let mount = SshFolder(folder.path().join("known-hosts"));
        mount.write_known_hosts("both ssh-ed25519 BBBB\n").unwrap();
        assert!(!adopter.adopt([nothing, &mount.0], &home).unwrap());
        assert_eq!(adopter.known_hosts().unwrap(), "both ssh-ed25519 BBBB\nhere ssh-ed25519 AAAA\n");
        assert!(adopter.adopt([&ssh.0, &mount.0], &home).unwrap());
        assert_eq!(adopter.read().unwrap(), Some(pair));
        let config = fs::read_to_string(home.join(".ssh/config")).unwrap();
        assert!(config.contains(&format!("IdentityFile {}", adopter.file(PRIVATE).display())), "{config}");
    }

    #[test]
    fn generated_keys_are_opensshs() {
        let folder = tempfile::tempdir().unwrap();
        let ssh = SshFolder(folder.path().to_owned());
        let pair = ssh.ensure().unwrap();
        assert_ne!(pair, generate().unwrap());
        let printed = Command::new("ssh-keygen").arg("-y").arg("-f").arg(ssh.file(PRIVATE)).output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), pair.public);
    }
}
