//! The client of ZooKeeper by itself.

use std::process::Command;

use anyhow::{Result, ensure};
use millpond_ci::zk::{Client, CreateMode, Op, ZkError};
use millpond_testkit::{Scratch, ZooKeeper};

use crate::fixture::{PATIENCE, configure};

async fn connect(server: &ZooKeeper, change: impl FnOnce(&mut millpond_ci::config::ZooKeeper)) -> Client {
    let mut config = configure(server, "").zookeeper;
    change(&mut config);
    let client = Client::start(&config, |_| {}).unwrap();
    client.connected(PATIENCE).await.unwrap();
    client
}

#[tokio::test]
#[ignore = "needs Java and ZooKeeper"]
async fn real_zookeeper_answers_every_kind_of_request() -> Result<()> {
    let server = ZooKeeper::start()?;
    let client = connect(&server, |config| config.servers[0].chroot = Some("/a/b".to_owned())).await;
    client.ensure_chroot().await?;
    client.ensure("/one/two").await?;
    let path = client.create("/one/two/n-", b"x".to_vec(), CreateMode::PersistentSequential).await?;
    assert_eq!(path, "/one/two/n-0000000000");
    assert_eq!(client.create("/one", Vec::new(), CreateMode::Persistent).await, Err(ZkError::NodeExists));
    let stat = client.set(&path, b"y".to_vec(), Some(0)).await?;
    assert_eq!(stat.version, 1);
    assert_eq!(client.set(&path, Vec::new(), Some(0)).await, Err(ZkError::BadVersion));
    assert_eq!(client.get(&path).await?.0, b"y");
    assert_eq!(client.children("/one/two").await?, ["n-0000000000"]);
    let parts = |version| {
        vec![
            Op::Create { path: "/one/three".into(), data: Vec::new(), mode: CreateMode::Ephemeral },
            Op::SetData { path: path.clone(), data: b"z".to_vec(), version: Some(version) },
        ]
    };
    assert_eq!(client.multi(parts(7)).await, Err(ZkError::BadVersion));
    assert_eq!(client.exists("/one/three").await?, None, "all or nothing");
    client.multi(parts(1)).await?;
    assert!(client.exists("/one/three").await?.is_some());

    let plain = connect(&server, |config| (config.tls, config.servers[0].port) = (None, server.port())).await;
    assert_eq!(plain.get("/a/b/one/two/n-0000000000").await?.0, b"z");
    client.close().await;
    assert_eq!(plain.exists("/a/b/one/three").await?, None, "closing the session ends what is ephemeral");
    assert_eq!(client.get("/").await, Err(ZkError::ConnectionLoss));
    Ok(())
}

/// The certificates that `openssl x509 -req` makes without an extension file are of version 1.
fn old_certificates() -> Result<Scratch> {
    let folder = Scratch::new("openssl")?;
    let script = "set -e
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca
for name in server client; do
  openssl req -newkey rsa:2048 -nodes -keyout $name.rsa -out $name.csr -subj /CN=$name
  openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out $name.crt
done
openssl pkcs8 -topk8 -nocrypt -in server.rsa -out server.key
cat server.key server.crt > server.pem
cp client.crt client.pem; cp client.rsa client.key
openssl x509 -in server.crt -noout -text | grep 'Version: 1'";
    let output = Command::new("sh").args(["-c", script]).current_dir(folder.path()).output()?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(folder)
}

#[tokio::test]
#[ignore = "needs Java, ZooKeeper and openssl"]
async fn real_zookeeper_with_certificates_of_version_1() -> Result<()> {
    let server = ZooKeeper::start_in(old_certificates()?)?;
    let client = connect(&server, |_| {}).await;
    assert!(client.exists("/zookeeper").await?.is_some());

    let stranger = old_certificates()?;
    let mut config = configure(&server, "").zookeeper;
    config.tls.as_mut().unwrap().ca = stranger.path().join("ca.pem").display().to_string();
    let refused = Client::start(&config, |_| {})?;
    let mut state = refused.state();
    let trouble = state.wait_for(|state| state.trouble.is_some()).await?.trouble.clone().unwrap();
    assert!(trouble.contains("certificate"), "{trouble}");
    Ok(())
}
