//! The kinds that Millpond scales by: put in place on the embedded API, asked for on another cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use millpond_api::crd;
use serde_json::Value;

use crate::failure::{Code, Failure};

/// Field manager of the definitions.
const MANAGER: &str = "millpond";

/// Applies every definition, those of Cluster API too, and waits until its kind is served. What is there already is
/// not written again.
pub(crate) async fn install(client: &Client) -> anyhow::Result<()> {
    let api = definitions(client);
    let definitions = [crd::all(), crd::cluster_api()].concat();
    try_join_all(definitions.iter().map(|definition| install_one(&api, definition))).await.map(drop)
}

/// How long kinds that were just applied may take to be served.
pub(crate) const SERVED_WITHIN: Duration = Duration::from_secs(10);

/// Fails if the cluster does not serve all kinds: controllers would wait for them for ever.
pub(crate) async fn require(client: &Client, within: Duration) -> anyhow::Result<()> {
    let give_up = tokio::time::Instant::now() + within;
    loop {
        let missing = missing(client).await.context("cannot ask the cluster for its kinds")?;
        if missing.is_empty() {
            return Ok(());
        }
        if tokio::time::Instant::now() >= give_up {
            let message = format!("the cluster does not know {}", missing.join(", "));
            let hint = Some("`millpond install crds | kubectl apply -f -` brings all kinds".to_owned());
            return Err(Failure { message, code: Some(Code::NotFound), hint }.into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Definitions that controllers can do without: those of GPU jobs begin when their kind is there.
const LATER: [&str; 2] = ["gpuinfoes.topology.corinternal.com", "maintenancewindows.millpond.dev"];

/// Definitions that the cluster does not serve, by name.
async fn missing(client: &Client) -> kube::Result<Vec<String>> {
    let mut served: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    for definition in crd::all() {
        if LATER.contains(&crd::name(&definition)) {
            continue;
        }
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = format!("{}/{}", text(&spec["group"]), text(&spec["versions"][0]["name"]));
        if !served.contains_key(&version) {
            let names = match client.list_api_group_resources(&version).await {
                Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
                Err(kube::Error::Api(status)) if status.code == 404 => BTreeSet::new(),
                Err(error) => return Err(error),
            };
            served.insert(version.clone(), names);
        }
        if !served[&version].contains(&text(&spec["names"]["plural"])) {
            missing.push(crd::name(&definition).to_owned());
        }
    }
    Ok(missing)
}

/// Definitions as trees: nothing here looks into their schemas, which are a lot to read.
fn definitions(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<CustomResourceDefinition>(&()))
}

async fn install_one(api: &Api<DynamicObject>, definition: &Value) -> anyhow::Result<()> {
    let name = crd::name(definition);
    let params = PatchParams::apply(MANAGER).force();
    let applied = api.patch(name, &params, &Patch::Apply(definition)).await;
    applied.with_context(|| format!("cannot put the definition `{name}` in place"))?;
    let served = await_condition(api.clone(), name, is_established).await;
    served.with_context(|| format!("the definition `{name}` is not served"))?;
    Ok(())
}

fn is_established(definition: Option<&DynamicObject>) -> bool {
    let conditions = definition.and_then(|definition| definition.data.pointer("/status/conditions")?.as_array());
    conditions.into_iter().flatten().any(|known| known["type"] == "Established" && known["status"] == "True")
}

#[cfg(test)]
mod tests {
    use millpond_apiserver::auth::Identity;
    use millpond_apiserver::clock::Clock;
    use millpond_apiserver::store::Store;
    use millpond_apiserver::{Server, ServerOptions};

    use super::*;

    #[tokio::test]
    async fn kinds_are_served_and_a_second_start_writes_nothing() {
        let clock = Clock::System;
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
        millpond_apiserver::bootstrap(&server, 443).await.unwrap();
        let client = Client::new(server.service_for(Identity::administrator("test")), "default");
        install(&client).await.unwrap();
        let api = Api::<CustomResourceDefinition>::all(client.clone());
        let versions = || async {
            let list = api.list(&Default::default()).await.unwrap();
            list.items.into_iter().map(|item| (item.metadata.name, item.metadata.resource_version)).collect::<Vec<_>>()
        };
        let first = versions().await;
        assert_eq!(first.len(), crd::all().len() + crd::cluster_api().len());
        install(&client).await.unwrap();
        assert_eq!(versions().await, first);
    }

    #[tokio::test]
    async fn a_cluster_without_the_kinds_gets_a_hint_how_to_install_them() {
        let clock = Clock::System;
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
        millpond_apiserver::bootstrap(&server, 443).await.unwrap();
        let client = Client::new(server.service_for(Identity::administrator("test")), "default");
        let told = crate::failure::describe(&require(&client, Duration::ZERO).await.unwrap_err());
        assert!(told.contains("does not know") && told.contains("nodepools.karpenter.sh"), "{told}");
        assert!(told.ends_with("hint: `millpond install crds | kubectl apply -f -` brings all kinds"), "{told}");
        install(&client).await.unwrap();
        require(&client, Duration::ZERO).await.unwrap();
    }
}
