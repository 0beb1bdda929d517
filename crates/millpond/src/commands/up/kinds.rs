//! The kinds that Millpond scales by, put in place on the embedded API.

use anyhow::Context as _;
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use millpond_api::crd;
use serde_json::Value;

/// Who these definitions belong to.
const MANAGER: &str = "millpond";

/// Applies every definition and waits until its kind is served. What is there already is not written again.
pub(crate) async fn install(client: &Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let definitions = crd::all();
    try_join_all(definitions.iter().map(|definition| install_one(&api, definition))).await.map(drop)
}

async fn install_one(api: &Api<CustomResourceDefinition>, definition: &Value) -> anyhow::Result<()> {
    let name = crd::name(definition);
    let params = PatchParams::apply(MANAGER).force();
    let applied = api.patch(name, &params, &Patch::Apply(definition)).await;
    applied.with_context(|| format!("cannot put the definition `{name}` in place"))?;
    let served = await_condition(api.clone(), name, conditions::is_crd_established()).await;
    served.with_context(|| format!("the definition `{name}` is not served"))?;
    Ok(())
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
        assert_eq!(first.len(), crd::all().len());
        install(&client).await.unwrap();
        assert_eq!(versions().await, first);
    }
}
