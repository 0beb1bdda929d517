//! Static hosts: whether they answer, and the keys that they show.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{DriverError, Launched, hostkeys};
use crate::config::StaticHost;

/// Hosts that are looked at at a time.
static AT_ONCE: Semaphore = Semaphore::const_new(64);

/// Hosts of tests have this in their names; nothing of theirs is asked, as in Nodepool.
const FAKE: &str = "fake";

/// Looks at a host before it is registered: its address and, where they are wanted, its keys.
pub async fn inspect(host: &StaticHost) -> Result<Launched, DriverError> {
    let _permit = AT_ONCE.acquire().await;
    let mut launched = Launched { host_keys: host.host_keys.clone(), ..Launched::default() };
    let shows_keys = matches!(host.connection_type.as_str(), "ssh" | "network_cli");
    let is_fake = host.name.contains(FAKE);
    if !is_fake {
        let address = resolve(host).await?;
        match address {
            SocketAddr::V4(address) => launched.public_ipv4 = Some(address.ip().to_string()),
            SocketAddr::V6(address) => launched.public_ipv6 = Some(address.ip().to_string()),
        }
    }
    if shows_keys && !host.host_key_checking {
        return Ok(launched);
    }
    launched.host_keys = match (shows_keys, is_fake) {
        (false, true) => Vec::new(),
        (true, true) => vec!["ssh-rsa FAKEKEY".to_owned()],
        (false, false) => {
            connect(host).await?;
            Vec::new()
        }
        (true, false) => {
            let address = resolve(host).await?;
            let keys = hostkeys::scan(address, limit(host)).await;
            keys.map_err(|error| DriverError::Transient(format!("{}: {error}", place(host))))?
        }
    };
    match host.host_keys.iter().find(|key| !launched.host_keys.contains(key)) {
        Some(key) if shows_keys => {
            let kind = key.split_whitespace().next().unwrap_or_default();
            Err(DriverError::Transient(format!("{} does not show the configured host key `{kind}`", place(host))))
        }
        _ => Ok(launched),
    }
}

/// Whether a host answers.
pub async fn check(host: &StaticHost) -> Result<(), DriverError> {
    if host.name.contains(FAKE) {
        return Ok(());
    }
    connect(host).await.map(drop)
}

fn place(host: &StaticHost) -> String {
    format!("{}:{}", host.name, host.port())
}

fn limit(host: &StaticHost) -> Duration {
    Duration::from_secs(host.timeout_s.max(1))
}

async fn resolve(host: &StaticHost) -> Result<SocketAddr, DriverError> {
    let failed = |error: String| DriverError::Transient(format!("{}: {error}", place(host)));
    let mut addresses =
        lookup_host((host.name.as_str(), host.port())).await.map_err(|error| failed(error.to_string()))?;
    addresses.next().ok_or_else(|| failed("no address".to_owned()))
}

async fn connect(host: &StaticHost) -> Result<TcpStream, DriverError> {
    let failed = |error: String| DriverError::Transient(format!("{}: {error}", place(host)));
    let connected = timeout(limit(host), TcpStream::connect((host.name.as_str(), host.port()))).await;
    connected.map_err(|_| failed("no answer in time".to_owned()))?.map_err(|error| failed(error.to_string()))
}
