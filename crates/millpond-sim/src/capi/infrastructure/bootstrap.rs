//! Stand-in for bootstrap providers: creates an empty bootstrap secret and reports it ready.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, PostParams};
use millpond_api::capi::names;
use millpond_controllers::kinds::Machine;
use serde_json::json;

use super::super::externals::External;
use super::super::{Capi, text};
use crate::error::{Error, Result};

/// The type of Cluster API's secrets.
const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

/// Makes the data of a configuration, and reports it.
pub async fn make_data(capi: &Capi, config: &External, machine: &Machine) -> Result<()> {
    let key = config.key();
    let secret = secret(config, text(&machine.spec, &["clusterName"]).unwrap_or_default());
    let api: Api<Secret> = Api::namespaced(capi.cluster.client.clone(), &key.namespace);
    match api.create(&PostParams::default(), &secret).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(source) => {
            let (kind, source) = ("Secret".to_owned(), Box::new(source));
            return Err(Error::Api { verb: "create", kind, key, source });
        }
    }
    let patch = json!({"status": {
        "dataSecretName": key.name, "initialization": {"dataSecretCreated": true}, "ready": true,
    }});
    capi.externals.patch_status(config, &patch).await.map(drop)
}

fn secret(config: &External, cluster: &str) -> Secret {
    let owner = OwnerReference {
        api_version: config.resource.api_version.clone(),
        kind: config.resource.kind.clone(),
        name: config.object.name_any(),
        uid: config.object.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            name: Some(config.object.name_any()),
            namespace: config.object.namespace(),
            labels: Some([(names::CLUSTER_NAME.to_owned(), cluster.to_owned())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(
            [
                ("format".to_owned(), bytes("cloud-config")),
                ("value".to_owned(), bytes("#cloud-config\n# A simulated machine reads nothing from here.\n")),
            ]
            .into(),
        ),
        ..Secret::default()
    }
}
