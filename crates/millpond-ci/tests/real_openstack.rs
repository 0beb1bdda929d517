//! The driver `openstack` with a real Nova: its scheduler, its quota, its states. Ignored by a plain `cargo test`;
//! `cargo xtask test` runs it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use millpond_ci::config::{self, Config, File};
use millpond_ci::driver::{Driver, DriverError, Instance, Launch, Launched, OpenStack};
use millpond_ci::openstack::Clouds;

/// A bound for what takes seconds; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Flavors and the image are those of Nova's fixtures: `m1.xlarge` needs more memory than the one host has.
const NODEPOOL: &str = "
labels: [{name: small}, {name: huge}, {name: nowhere}]
providers:
  - name: cloud
    driver: openstack
    cloud: mine
    rate: 100
    cloud-images: [{name: base, image-id: 155d900f-4e14-4e4c-a73d-069cbf4541e6, username: fedora}]
    pools:
      - name: main
        networks: [private]
        host-key-checking: false
        labels:
          - {name: small, cloud-image: base, min-ram: 2048, instance-properties: {team: ci}}
          - {name: huge, cloud-image: base, flavor-name: m1.xlarge}
          - {name: nowhere, cloud-image: base, flavor-name: m9.none}
";

struct Site {
    server: millpond_testkit::OpenStack,
    config: Config,
    driver: OpenStack,
}

impl Site {
    fn start(cores: u32) -> Result<Self> {
        let server = millpond_testkit::OpenStack::start(cores)?;
        let read = config::read(File { name: "nodepool.yaml", text: NODEPOOL }, None, &|_| None).valid();
        let config = read.map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
        let file = server.folder().join("clouds.yaml");
        std::fs::write(&file, server.clouds_yaml(true))?;
        let driver = OpenStack::new(&config.providers[0], Clouds::of_file(file))?;
        Ok(Self { server, config, driver })
    }

    async fn launch(&self, node_id: &str, label: &str) -> Result<Result<Launched, DriverError>> {
        let pool = Arc::new(self.config.providers[0].pools[0].clone());
        let launch = Launch {
            node_id: node_id.to_owned(),
            provider: "cloud".to_owned(),
            details: Arc::new(pool.labels[label].clone()),
            pool,
            label: label.to_owned(),
            request: None,
            image: None,
        };
        let launched = tokio::time::timeout(PATIENCE, self.driver.launch(&launch)).await;
        launched.with_context(|| self.server.log_tail())
    }

    async fn delete(&self, node_id: &str, external_id: Option<String>) -> Result<()> {
        let pool = Some("main".to_owned());
        let instance = Instance { node_id: node_id.to_owned(), pool, external_id };
        let deleted = tokio::time::timeout(PATIENCE, self.driver.delete(&instance)).await;
        Ok(deleted.with_context(|| self.server.log_tail())??)
    }

    async fn known(&self) -> Result<Vec<String>> {
        let mut known: Vec<String> = self.driver.list().await?.into_iter().map(|instance| instance.node_id).collect();
        known.sort();
        Ok(known)
    }
}

#[tokio::test]
#[ignore = "needs Nova from PyPI"]
async fn real_servers_are_made_counted_and_deleted() -> Result<()> {
    let site = Site::start(2)?;
    let limits = site.driver.limits().await?;
    assert_eq!((limits["cores"], limits["instances"]), (2, 10));
    let sizes = site.driver.sizes().await?;
    let small = &sizes[&("main".to_owned(), "small".to_owned())];
    assert_eq!((small["cores"], small["ram"]), (1, 2048));

    let first = site.launch("0000000001", "small").await??;
    assert_eq!(first.hostname.as_deref(), Some("np0000000001"));
    assert_eq!((first.username.as_deref(), first.az.as_deref()), (Some("fedora"), Some("nova")));
    let address = first.interface_ip.clone().context("an address")?;
    assert!(address.starts_with("192.168.1."), "{address}");
    assert_eq!(first.resources.as_ref(), Some(small));
    // The same node never has two servers.
    assert_eq!(site.launch("0000000001", "small").await??.external_id, first.external_id);
    assert_eq!(site.known().await?, ["0000000001"]);

    // The quota is Nova's: the third server is one core too many.
    site.launch("0000000002", "small").await??;
    let refused = site.launch("0000000003", "small").await?;
    assert!(matches!(&refused, Err(DriverError::Capacity(why)) if why.contains("403")), "{refused:?}");
    assert_eq!(site.known().await?, ["0000000001", "0000000002"]);

    site.delete("0000000001", first.external_id.clone()).await?;
    site.delete("0000000001", first.external_id).await?;
    assert_eq!(site.known().await?, ["0000000002"]);
    site.launch("0000000003", "small").await??;
    // Without the provider's id the node id is enough.
    site.delete("0000000002", None).await?;
    site.delete("0000000003", None).await?;
    assert!(site.known().await?.is_empty());
    Ok(())
}

#[tokio::test]
#[ignore = "needs Nova from PyPI"]
async fn real_clouds_say_what_they_lack() -> Result<()> {
    let site = Site::start(20)?;
    // Nova takes the request, and its scheduler finds no host: the server is there, in the state ERROR.
    let full = site.launch("0000000001", "huge").await?;
    assert!(matches!(&full, Err(DriverError::Capacity(why)) if why.contains("No valid host")), "{full:?}");
    assert_eq!(site.known().await?, ["0000000001"], "it is deleted like every other one");
    site.delete("0000000001", None).await?;
    assert!(site.known().await?.is_empty());
    let unknown = site.launch("0000000002", "nowhere").await?;
    let expected = DriverError::Permanent("the cloud has no flavor `m9.none`".to_owned());
    assert_eq!(unknown, Err(expected));

    // Credentials may change at any time; the wrong ones are not shown.
    std::fs::write(site.server.folder().join("clouds.yaml"), site.server.clouds_yaml(false))?;
    let refused = site.launch("0000000003", "small").await?;
    let why = refused.err().context("Keystone refuses the password")?.to_string();
    assert!(why.contains("Keystone refuses the credentials") && !why.contains("horse"), "{why}");
    std::fs::write(site.server.folder().join("clouds.yaml"), site.server.clouds_yaml(true))?;
    site.launch("0000000003", "small").await??;
    site.delete("0000000003", None).await?;
    Ok(())
}
