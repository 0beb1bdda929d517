//! The ports of `millpond controller`, on a running `millpond up`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Request;
use kube::{Client, Config};
use millpond_testkit::{EmbeddedServer, Process};

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");
const PATIENCE: Duration = Duration::from_mins(2);

/// Starts a controller beside the server; it has two ports of its own.
fn controller(server: &EmbeddedServer, address: &str) -> Result<(Process, String, String)> {
    let mut command = Command::new(MILLPOND);
    command.arg("controller").arg("--kubeconfig").arg(server.kubeconfig());
    command.arg("--data-dir").arg(server.folder().join("second"));
    command.args(["--health-bind", &format!("{address}:0"), "--metrics-bind", &format!("{address}:0")]);
    let mut process = Process::spawn("controller", &mut command, server.folder())?;
    let _ = process.wait_for(PATIENCE, |printed| printed.contains("this one waits"))?;
    let printed = process.printed();
    let url = |line: &str| -> Result<String> {
        let line = printed.lines().find(|text| text.trim_start().starts_with(line)).context(printed.clone())?;
        let url = line.split_whitespace().nth(1).context("a URL")?.trim_end_matches(',');
        let (base, _) = url.rsplit_once('/').context("a path")?;
        Ok(base.replace("0.0.0.0", "127.0.0.1"))
    };
    let (health, metrics) = (url("health")?, url("metrics")?);
    Ok((process, health, metrics))
}

/// A client of a port, whose certificate it does not verify: no kubelet and no Prometheus does.
fn client(url: &str, token: Option<&str>) -> Result<Client> {
    let mut config = Config::new(url.parse()?);
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    Ok(Client::try_from(config)?)
}

async fn get(url: &str, path: &str, token: Option<&str>) -> Result<(u16, String)> {
    let answer = client(url, token)?.request_text(Request::get(path).body(Vec::new())?).await;
    Ok(match answer {
        Ok(text) => (200, text),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => return Err(error.into()),
    })
}

#[tokio::test]
async fn a_follower_is_alive_and_ready_and_says_that_it_follows() -> Result<()> {
    let server = EmbeddedServer::start(Path::new(MILLPOND), &["--memory"])?;
    let (mut process, health, metrics) = controller(&server, "127.0.0.1")?;
    assert_eq!(get(&health, "/livez", None).await?, (200, "ok".to_owned()));
    assert_eq!(get(&health, "/readyz", None).await?, (200, "ok".to_owned()));
    let (_, verbose) = get(&health, "/readyz?verbose", None).await?;
    assert_eq!(verbose, "[+]leader-election ok: another controller leads; this one follows\nreadyz check passed\n");
    assert_eq!(get(&metrics, "/metrics", None).await?.0, 200);
    process.stop()?;
    Ok(())
}

#[tokio::test]
async fn metrics_beyond_loopback_need_a_token_that_may_read_them() -> Result<()> {
    let server = EmbeddedServer::start(Path::new(MILLPOND), &["--memory"])?;
    let (mut process, health, metrics) = controller(&server, "0.0.0.0")?;
    assert!(health.starts_with("https://") && metrics.starts_with("https://"), "{health} {metrics}");
    assert_eq!(get(&health, "/livez", None).await?.0, 200);
    assert_eq!(get(&metrics, "/metrics", None).await?.0, 401);
    assert_eq!(get(&metrics, "/metrics", Some("not-a-token-of-this-cluster")).await?.0, 401);
    let admin = server.access().token.as_deref().context("the administrator has a token")?;
    assert_eq!(get(&metrics, "/metrics", Some(admin)).await?.0, 200);
    process.stop()?;
    Ok(())
}
