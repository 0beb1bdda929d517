//! Secrets: read and written one by one, never watched, so that the controllers need no right to list them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use millpond_runtime::error::{Error, Result};
use millpond_runtime::meta::Key;
use serde_json::json;

use crate::stock::FIELD_MANAGER;

/// A Secret that is to be.
pub(crate) struct Wanted {
    pub(crate) key: Key,
    pub(crate) kind: &'static str,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) owner: Option<OwnerReference>,
    pub(crate) data: BTreeMap<String, Vec<u8>>,
}

/// Reads a Secret; `None` if it is not there.
pub(crate) async fn get(client: &Client, key: &Key) -> Result<Option<Secret>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
    api.get_opt(&key.name).await.map_err(|error| failed("get", key, error))
}

/// Makes a Secret what it is to be.
pub(crate) async fn put(client: &Client, wanted: Wanted) -> Result<()> {
    let Wanted { key, kind, labels, annotations, owner, data } = wanted;
    let api: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        data: Some(data.into_iter().map(|(name, bytes)| (name, ByteString(bytes))).collect()),
        ..Secret::default()
    };
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &secret).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patch = json!({
                "metadata": {
                    "labels": secret.metadata.labels, "annotations": secret.metadata.annotations,
                    "ownerReferences": secret.metadata.owner_references,
                },
                "data": secret.data,
            });
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let patched = api.patch(&key.name, &params, &Patch::Merge(&patch)).await;
            patched.map(drop).map_err(|error| failed("patch", &key, error))
        }
        Err(error) => Err(failed("create", &key, error)),
    }
}

/// Deletes a Secret; one that is gone already counts as deleted.
pub(crate) async fn delete(client: &Client, key: &Key) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
    match api.delete(&key.name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(failed("delete", key, error)),
    }
}

/// An entry of a ConfigMap; `None` if either is not there.
pub(crate) async fn config(client: &Client, key: &Key, entry: &str) -> Result<Option<String>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key.namespace);
    let found = api.get_opt(&key.name).await.map_err(|source| Error::Api {
        verb: "get",
        kind: "ConfigMap".to_owned(),
        key: key.clone(),
        source: Box::new(source),
    })?;
    Ok(found.and_then(|found| found.data?.remove(entry)))
}

fn failed(verb: &'static str, key: &Key, source: kube::Error) -> Error {
    Error::Api { verb, kind: "Secret".to_owned(), key: key.clone(), source: Box::new(source) }
}
