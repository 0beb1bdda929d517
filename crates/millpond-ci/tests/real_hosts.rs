//! Static hosts with a real sshd: the keys that they show, keys that are not the configured ones, and hosts that are gone.
//! Ignored by a plain `cargo test`; `cargo xtask test` runs it.

use anyhow::{Context as _, Result};
use millpond_ci::config::{self, File, StaticHost};
use millpond_ci::driver::hosts;
use millpond_testkit::{Scratch, Sshd};

/// A host as nodepool.yaml has it; `more` is added to its keys.
fn host(port: u16, more: &str) -> Result<StaticHost> {
    let text = format!(
        "labels: [{{name: small}}]\nproviders:\n  - name: racks\n    driver: static\n    pools:\n      - name: main\n        \
         nodes: [{{name: 127.0.0.1, labels: small, connection-port: {port}{more}}}]\n"
    );
    let read = config::read(File { name: "nodepool.yaml", text: &text }, None, &|_| None).valid();
    let config = read.map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    config.providers[0].pools[0].hosts.first().cloned().context("a host")
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn real_hosts_show_their_keys() -> Result<()> {
    let hidden = Scratch::new("hidden")?;
    let server = Sshd::start("ssh-ed25519 AAAA", hidden.path(), None)?;
    let port = server.port();
    let public = std::fs::read_to_string(server.host_key().with_extension("pub"))?;
    let key = public.split_whitespace().take(2).collect::<Vec<_>>().join(" ");

    let found = hosts::inspect(&host(port, "")?).await?;
    assert_eq!(
        (found.host_keys.as_slice(), found.public_ipv4.as_deref()),
        ([key.clone()].as_slice(), Some("127.0.0.1"))
    );
    let configured = host(port, &format!(", host-key: '{key}'"))?;
    assert_eq!(hosts::inspect(&configured).await?.host_keys, [key]);
    let other = host(port, ", host-key: 'ssh-ed25519 AAAAC3Nz'")?;
    let refused = hosts::inspect(&other).await.err().context("another key is refused")?.to_string();
    assert!(refused.contains("does not show the configured host key `ssh-ed25519`"), "{refused}");
    // A connection by other means needs an open port and shows no keys.
    let windows = host(port, ", connection-type: winrm")?;
    assert!(hosts::inspect(&windows).await?.host_keys.is_empty());
    hosts::check(&configured).await?;

    drop(server);
    let gone = hosts::inspect(&configured).await.err().context("it is gone")?.to_string();
    assert!(gone.starts_with(&format!("127.0.0.1:{port}: ")), "{gone}");
    assert!(hosts::check(&configured).await.is_err());
    Ok(())
}
