//! How hosts come in: tokens that are used once, names, copies.

use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;

use crate::stage::{MILLPOND, Stage, start, until};

async fn tokens(stage: &Stage) -> Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), "kube-system");
    let found = secrets.list(&ListParams::default().labels("millpond.dev/token=host")).await?;
    Ok(found.items.len())
}

#[tokio::test]
async fn a_token_lets_one_host_in_and_is_gone() -> Result<()> {
    let stage = Stage::new().await?;
    let mut machine = stage.network.machine("node10", 10, Path::new(MILLPOND))?;
    machine.add_gpu("0x10de", "0x1eb8")?;
    machine.boot()?;
    let mut entry = stage.entry(&["--ttl", "15m"])?;
    entry.extend(["--label", "purpose=gpu,site=a"].map(str::to_owned));
    let mut agent = start(&machine, &entry)?;
    let host = stage.host_is("node10", "it has facts", |host| !host["status"]["facts"].is_null()).await?;
    assert_eq!(
        (&host["metadata"]["labels"]["purpose"], &host["metadata"]["labels"]["site"]),
        (&"gpu".into(), &"a".into())
    );
    assert_eq!(host["status"]["gpus"], 1);
    assert_eq!(host["status"]["network"][0]["ipAddrs"][0], machine.address());
    let labelled = |host: &serde_json::Value| host["metadata"]["labels"]["gpu"] == "true";
    stage.host_is("node10", "the controllers have labelled it", labelled).await?;
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), "millpond-hosts");
    let holder = leases.get("node10").await?.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    assert!(holder.starts_with("node10/"), "{holder}");
    let mode = machine.sh("stat -c %a /var/lib/millpond-agent/kubeconfig /var/lib/millpond-agent")?;
    assert_eq!(mode, "600\n700\n");
    // With credentials there, the token counts no more, nor do labels.
    agent.stop()?;
    let mut again = entry.clone();
    again.extend(["--label", "purpose=other"].map(str::to_owned));
    let mut agent = start(&machine, &again)?;
    stage.host_is("node10", "it holds its Lease again", |_| true).await?;
    assert_eq!(stage.byo_host("node10").await?["metadata"]["labels"]["purpose"], "gpu");
    agent.ensure_running()?;

    // The same token on another machine.
    let mut other = stage.network.machine("node11", 11, Path::new(MILLPOND))?;
    other.boot()?;
    let mut second = start(&other, &entry)?;
    assert_eq!(second.wait()?.code(), Some(6), "{}", second.printed());
    assert!(second.printed().contains("was used"), "{}", second.printed());
    assert!(stage.hosts().get_opt("node11").await?.is_none());
    assert_eq!(tokens(&stage).await?, 0, "the token is gone");
    Ok(())
}

#[tokio::test]
async fn expired_tokens_let_no_host_in() -> Result<()> {
    let stage = Stage::new().await?;
    let mut machine = stage.network.machine("node10", 10, Path::new(MILLPOND))?;
    machine.boot()?;
    let token = |entry: &[String]| entry[4].clone();
    // Revoked.
    let revoked = stage.entry(&[])?;
    let id = token(&revoked).split_once('.').map(|(id, _)| id.to_owned()).unwrap_or_default();
    let listed = stage.token(&["list"])?;
    assert!(listed.contains(&id) && !listed.contains(&token(&revoked)), "no secrets: {listed}");
    stage.token(&["revoke", &id])?;
    assert!(stage.token(&["revoke", &id]).unwrap_err().to_string().contains("there is no token"));
    // Expired.
    let expired = stage.entry(&["--ttl", "1s"])?;
    // For another host.
    let bound = stage.entry(&["--host", "node12"])?;
    let bound: Vec<String> = bound.into_iter().map(|word| word.replace("node12", "node10")).collect();
    // Of another server.
    let mut foreign = stage.entry(&[])?;
    foreign[6] = format!("sha256:{}", "0a".repeat(32));
    for (entry, why) in [
        (&revoked, "revoked"),
        (&expired, "expired"),
        (&bound, "for the host node12 only"),
        (&foreign, "does not show a certificate authority"),
    ] {
        if why == "expired" {
            let id = token(entry).split_once('.').map(|(id, _)| id.to_owned()).unwrap_or_default();
            let is_valid = |list: &str| list.lines().any(|line| line.starts_with(&id) && line.contains("valid"));
            until("the token expires", || stage.token(&["list"]).is_ok_and(|list| !is_valid(&list))).await?;
        }
        let mut agent = start(&machine, entry)?;
        assert_eq!(agent.wait()?.code(), Some(6), "{why}: {}", agent.printed());
        assert!(agent.printed().contains(why), "{why}: {}", agent.printed());
    }
    assert!(stage.hosts().get_opt("node10").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_copy_of_a_machine_is_no_host() -> Result<()> {
    let stage = Stage::new().await?;
    let mut host = stage.host("node10", 10).await?;
    host.agent.stop()?;
    host.machine.power_off();
    // Its disk with another machine-id: the copy knows that it is one.
    let mut copy = stage.network.machine("node11", 11, Path::new(MILLPOND))?;
    copy.copy_disk(&host.machine)?;
    copy.write("etc/machine-id", "ffffffffffffffffffffffffffffffff\n")?;
    copy.boot()?;
    let mut agent = start(&copy, &["agent".to_owned(), "--name".to_owned(), "node10".to_owned()])?;
    assert_eq!(agent.wait()?.code(), Some(6), "{}", agent.printed());
    assert!(agent.printed().contains("it is a copy of that machine"), "{}", agent.printed());
    copy.power_off();
    // With the same machine-id it finds out by the Lease, while the original is alive.
    host.machine.boot()?;
    host.restart()?;
    let holds =
        |host: &serde_json::Value| host["status"]["facts"]["bootID"].as_str().is_some_and(|id| id.ends_with("-0002"));
    stage.host_is("node10", "the original is back", holds).await?;
    let mut twin = stage.network.machine("node12", 12, Path::new(MILLPOND))?;
    twin.copy_disk(&copy)?;
    twin.copy_identity(&host.machine)?;
    twin.boot()?;
    twin.power_off();
    twin.boot()?;
    twin.power_off();
    twin.boot()?;
    let mut agent = start(&twin, &["agent".to_owned(), "--name".to_owned(), "node10".to_owned()])?;
    let told = agent.wait_for(std::time::Duration::from_secs(90), |log| log.contains("this one is a copy"))?;
    assert_eq!(told, millpond_testkit::Waited::Satisfied, "{}", agent.printed());
    let boot = stage.byo_host("node10").await?["status"]["facts"]["bootID"].clone();
    assert!(boot.as_str().is_some_and(|id| id.ends_with("-0002")), "the copy writes nothing: {boot}");
    Ok(())
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_exit_code_3() -> Result<()> {
    let stage = Stage::new().await?;
    for words in [
        &["get", "node99"][..],
        &["label", "node99", "purpose=gpu"],
        &["release", "node99"],
        &["quarantine", "node99", "--reason", "disk errors"],
    ] {
        let mut command = std::process::Command::new(MILLPOND);
        let output = command.arg("host").args(words).arg("--kubeconfig").arg(stage.server.kubeconfig()).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {told}");
        assert!(told.contains("node99"), "{words:?}: {told}");
    }
    Ok(())
}
