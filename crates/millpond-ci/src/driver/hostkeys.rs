//! The host keys of an SSH server, as `ssh-keyscan` gathers them: the key exchange is begun once for each type of key,
//! and left when the server has shown it.
//!
//! The exchange is not completed, so a key is what the server claims. That is what a first contact is worth in any case;
//! keys that are configured are compared.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Types of keys, each with the algorithms that show it.
const TYPES: &[&str] = &[
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512,rsa-sha2-256,ssh-rsa",
];
const EXCHANGES: &str = "curve25519-sha256,curve25519-sha256@libssh.org";
const CIPHERS: &str = "aes128-ctr,aes256-ctr,aes128-gcm@openssh.com,chacha20-poly1305@openssh.com";
const MACS: &str = "hmac-sha2-256,hmac-sha2-512,hmac-sha1";

const DISCONNECT: u8 = 1;
const KEXINIT: u8 = 20;
const ECDH_INIT: u8 = 30;
const ECDH_REPLY: u8 = 31;

/// RFC 4253 asks for packets of 35000 bytes at least.
const LIMIT_PACKET_BYTES: u32 = 256 * 1024;
/// Lines before the server's version, and their length.
const LIMIT_LINES: usize = 64;
const LIMIT_LINE_BYTES: u64 = 8192;

/// The keys that a server shows, as `TYPE BASE64`; an error if it shows none.
pub async fn scan(address: SocketAddr, limit: Duration) -> Result<Vec<String>> {
    let mut keys: Vec<String> = Vec::new();
    let mut last = Error::new(ErrorKind::NotFound, "the server shows no host key");
    for algorithms in TYPES {
        let shown = timeout(limit, key(address, algorithms)).await;
        match shown.unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "no answer in time"))) {
            Ok(Some(key)) if !keys.contains(&key) => keys.push(key),
            Ok(_) => {}
            // A server that cannot be reached is not asked again.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::TimedOut) => {
                return Err(error);
            }
            Err(error) => last = error,
        }
    }
    if keys.is_empty() { Err(last) } else { Ok(keys) }
}

/// The key of a type; `None` if the server has none.
async fn key(address: SocketAddr, algorithms: &str) -> Result<Option<String>> {
    let stream = TcpStream::connect(address).await?;
    let mut stream = BufReader::new(stream);
    greet(&mut stream).await?;
    let ours = packet(&kexinit(algorithms));
    stream.get_mut().write_all(&ours).await?;
    let theirs = next(&mut stream, KEXINIT).await?;
    if !offers(&theirs, algorithms)? {
        return Ok(None);
    }
    // Any 32 bytes are a public key of curve25519.
    let mut begin = vec![ECDH_INIT];
    begin.extend(text(&rand::random::<[u8; 32]>()));
    stream.get_mut().write_all(&packet(&begin)).await?;
    let reply = next(&mut stream, ECDH_REPLY).await?;
    let (key, _) = string(&reply[1..]).ok_or_else(malformed)?;
    let (kind, _) = string(key).ok_or_else(malformed)?;
    let kind = std::str::from_utf8(kind).map_err(|_| malformed())?;
    Ok(Some(format!("{kind} {}", STANDARD.encode(key))))
}

async fn greet(stream: &mut BufReader<TcpStream>) -> Result<()> {
    stream.get_mut().write_all(b"SSH-2.0-Millpond\r\n").await?;
    for _ in 0..LIMIT_LINES {
        let mut line = Vec::new();
        (&mut *stream).take(LIMIT_LINE_BYTES).read_until(b'\n', &mut line).await?;
        if line.starts_with(b"SSH-") {
            return Ok(());
        }
        if line.is_empty() {
            break;
        }
    }
    Err(Error::new(ErrorKind::InvalidData, "the server does not speak SSH"))
}

fn kexinit(algorithms: &str) -> Vec<u8> {
    let mut payload = vec![KEXINIT];
    payload.extend(rand::random::<[u8; 16]>());
    let lists = [EXCHANGES, algorithms, CIPHERS, CIPHERS, MACS, MACS, "none", "none", "", ""];
    for list in lists {
        payload.extend(text(list.as_bytes()));
    }
    // No guessed packet follows; reserved.
    payload.extend([0; 5]);
    payload
}

/// Whether a server's KEXINIT has one of these algorithms for its key.
fn offers(payload: &[u8], algorithms: &str) -> Result<bool> {
    let rest = payload.get(17..).ok_or_else(malformed)?;
    let (_, rest) = string(rest).ok_or_else(malformed)?;
    let (offered, _) = string(rest).ok_or_else(malformed)?;
    let offered = String::from_utf8_lossy(offered);
    Ok(offered.split(',').any(|name| algorithms.split(',').any(|wanted| wanted == name)))
}

/// The payload of the next packet of a kind.
async fn next(stream: &mut (impl AsyncRead + Unpin), wanted: u8) -> Result<Vec<u8>> {
    loop {
        let length = stream.read_u32().await?;
        if !(2..=LIMIT_PACKET_BYTES).contains(&length) {
            return Err(malformed());
        }
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body).await?;
        let padding = usize::from(body[0]);
        let payload = body.get(1..body.len().saturating_sub(padding)).filter(|it| !it.is_empty());
        let payload = payload.ok_or_else(malformed)?;
        match payload[0] {
            kind if kind == wanted => return Ok(payload.to_vec()),
            DISCONNECT => return Err(Error::new(ErrorKind::ConnectionReset, "the server ends the connection")),
            _ => {}
        }
    }
}

fn packet(payload: &[u8]) -> Vec<u8> {
    // Everything together is a multiple of eight, with four bytes of padding at least.
    let padding = 4 + (8 - (payload.len() + 5 + 4) % 8) % 8;
    let mut packet = Vec::new();
    packet.extend(((payload.len() + padding + 1) as u32).to_be_bytes());
    packet.push(padding as u8);
    packet.extend(payload);
    packet.extend(std::iter::repeat_n(0, padding));
    packet
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u32).to_be_bytes().to_vec();
    out.extend(bytes);
    out
}

fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

fn malformed() -> Error {
    Error::new(ErrorKind::InvalidData, "the server's packet cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_padded_to_eight() {
        for length in 0..40 {
            let packet = packet(&vec![1; length]);
            assert_eq!(packet.len() % 8, 0, "{length}");
            assert!(packet[4] >= 4);
        }
    }

    #[test]
    fn algorithms_are_looked_up_in_the_second_list() {
        let payload = kexinit("ssh-ed25519,rsa-sha2-256");
        assert!(offers(&payload, "rsa-sha2-512,rsa-sha2-256").unwrap());
        assert!(!offers(&payload, "ecdsa-sha2-nistp256").unwrap());
        assert!(offers(&payload[..20], "x").is_err());
    }
}
