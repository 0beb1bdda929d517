//! Ids of nodes: ten digits that are never used twice, so that an instance of a lost record is never taken for another
//! node's. The next free number is in a ConfigMap; a process takes a block of numbers at a time.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Mutex;

/// The ConfigMap.
const NAME: &str = "millpond-ci-node-ids";
/// Its key.
const KEY: &str = "next";
/// Numbers that a process takes at once: few enough that restarts do not use up ten digits, many enough that a write of
/// the ConfigMap is rare.
const BLOCK: u64 = 1000;
/// Writers of the same ConfigMap are the launchers of one cluster.
const LIMIT_ATTEMPTS: usize = 20;

/// Gives ids.
#[derive(Debug)]
pub(super) struct Ids {
    api: Api<ConfigMap>,
    /// The next number, and the end of the block.
    block: Mutex<(u64, u64)>,
}

impl Ids {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), block: Mutex::new((0, 0)) }
    }

    /// An id that no node has had.
    pub(super) async fn next(&self) -> kube::Result<String> {
        let mut block = self.block.lock().await;
        if block.0 == block.1 {
            *block = self.take_block().await?;
        }
        block.0 += 1;
        Ok(format!("{:010}", block.0 - 1))
    }

    async fn take_block(&self) -> kube::Result<(u64, u64)> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let written = match self.api.get_opt(NAME).await? {
                None => self.write_first().await,
                Some(map) => self.write_next(map).await,
            };
            match written {
                Err(kube::Error::Api(status)) if attempt < LIMIT_ATTEMPTS && is_race(&status) => {}
                taken => return taken,
            }
        }
    }

    async fn write_first(&self) -> kube::Result<(u64, u64)> {
        let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
        let data = [(KEY.to_owned(), (1 + BLOCK).to_string())].into_iter().collect();
        let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        self.api.create(&PostParams::default(), &map).await?;
        Ok((1, 1 + BLOCK))
    }

    async fn write_next(&self, mut map: ConfigMap) -> kube::Result<(u64, u64)> {
        let data = map.data.get_or_insert_default();
        let first = data.get(KEY).and_then(|text| text.parse().ok()).unwrap_or(1);
        data.insert(KEY.to_owned(), (first + BLOCK).to_string());
        // The resource version in it makes this a comparison.
        self.api.replace(NAME, &PostParams::default(), &map).await?;
        Ok((first, first + BLOCK))
    }
}

fn is_race(status: &kube::core::Status) -> bool {
    status.is_conflict() || status.is_already_exists() || status.is_not_found()
}
