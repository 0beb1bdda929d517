//! Is a server ready? One HTTPS request, so that xtask needs no HTTP client.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::kubeconfig::Access;
use crate::process::{POLL_INTERVAL, Process};

/// A control plane takes 3 s on a quiet machine; this is for a busy one.
const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// An answer to `/readyz` is a few lines; a server that sends more is broken.
const ANSWER_LIMIT: u64 = 64 * 1024;

/// Waits until `/readyz` answers 200, or one of the processes ends. How the
/// server is reached is asked each time: some write their kubeconfig late.
pub(crate) fn wait_ready(access: impl Fn() -> Result<Access>, processes: &mut [Process]) -> Result<Access> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        for process in processes.iter_mut() {
            process.ensure_running()?;
        }
        let last = match access().and_then(|access| Ok((ask(&access, "/readyz")?, access))) {
            Ok((200, access)) => return Ok(access),
            Ok((status, _)) => format!("it answers {status}"),
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= deadline {
            let tail = processes.last().map(Process::log_tail).unwrap_or_default();
            bail!("the API was not ready after {} s: {last}\n{tail}", READY_TIMEOUT.as_secs());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The status of a GET.
fn ask(access: &Access, path: &str) -> Result<u16> {
    let address = access.server.strip_prefix("https://").context("not an https address")?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = ServerName::try_from(host.to_owned()).context("read the host name")?;
    let connection = ClientConnection::new(Arc::new(tls(access)?), name).context("set up TLS")?;
    let socket = TcpStream::connect(address).context("connect")?;
    socket.set_read_timeout(Some(REQUEST_TIMEOUT)).context("set a time-out")?;
    socket.set_write_timeout(Some(REQUEST_TIMEOUT)).context("set a time-out")?;
    let mut stream = StreamOwned::new(connection, socket);

    let authorization =
        access.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{authorization}Connection: close\r\n\r\n")
        .context("send")?;
    let mut answer = Vec::new();
    // A server may close without a TLS goodbye; what was read counts.
    let read = stream.take(ANSWER_LIMIT).read_to_end(&mut answer);
    status(&answer).map_err(|error| read.map_or_else(Into::into, |_| error))
}

/// Reads `HTTP/1.1 200 OK`.
fn status(answer: &[u8]) -> Result<u16> {
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = str::from_utf8(line).context("read the status line")?;
    let code = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).context("not an HTTP answer")?;
    code.parse().context("read the status code")
}

fn tls(access: &Access) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(access.ca_pem.as_bytes()) {
        roots.add(certificate.context("read the CA certificate")?).context("trust the CA certificate")?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("choose TLS versions")?
        .with_root_certificates(roots);
    match &access.client_pem {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
                .collect::<Result<_, _>>()
                .context("read the client certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("read the client key")?;
            builder.with_client_auth_cert(chain, key).context("use the client certificate")
        }
    }
}
