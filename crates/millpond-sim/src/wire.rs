//! Objects between the API and a mirror: trees of JSON, whatever their kind.
//!
//! kube's client is generic over the kind down to the decoding of each field, and each way in (a list, an event of
//! a watch, the answer to a delete) brings a decoder of its own. For all the kinds of [`crate::kinds`] that was
//! several megabytes of program. So the client moves trees, and a kind is decoded in one place: [`Wire::decode`].

use std::borrow::Cow;

use kube::api::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use kube::{Api, Client};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::kinds::Kind;

/// An object of any kind, and of its metadata what a watch needs.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Wire {
    object: Value,
    #[serde(skip)]
    metadata: ObjectMeta,
}

impl Wire {
    /// Writes an object down.
    pub fn encode<K: Kind>(object: &K) -> kube::Result<Self> {
        let object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        Ok(Self { object, metadata: ObjectMeta::default() })
    }

    /// Reads the object, but not who owns its fields: nobody here asks for that.
    pub fn decode<K: Kind>(mut self) -> kube::Result<K> {
        if let Some(metadata) = self.object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        serde_json::from_value(self.object).map_err(kube::Error::SerdeError)
    }
}

/// The API for objects of a kind: in one namespace, or everywhere.
pub fn api<K: Kind>(client: &Client, namespace: Option<&str>) -> Api<Wire> {
    let resource = ApiResource::erase::<K>(&());
    match namespace.filter(|_| K::NAMESPACED) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

impl<'de> Deserialize<'de> for Wire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let resource_version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        Ok(Self { object, metadata: ObjectMeta { resource_version, ..ObjectMeta::default() } })
    }
}

impl Resource for Wire {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::ResourceExt;
    use kube::api::{ObjectList, WatchEvent};

    use super::*;

    const POD: &str = r#"{"metadata":{"name":"a","resourceVersion":"7","managedFields":[{"manager":"m"}]},
        "spec":{"containers":[]}}"#;

    fn check(wire: Wire) {
        assert_eq!(wire.resource_version().as_deref(), Some("7"));
        let pod: Pod = wire.decode().expect("a pod");
        assert_eq!((pod.name_any(), pod.spec.is_some()), ("a".to_owned(), true));
        assert!(pod.managed_fields().is_empty());
    }

    #[test]
    fn every_way_in_is_read() {
        check(serde_json::from_str(POD).expect("an object"));
        let list = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{POD}]}}"#);
        let list: ObjectList<Wire> = serde_json::from_str(&list).expect("a list");
        list.items.into_iter().for_each(check);
        for event in [format!(r#"{{"type":"ADDED","object":{POD}}}"#), format!(r#"{{"object":{POD},"type":"ADDED"}}"#)]
        {
            let WatchEvent::Added(wire) = serde_json::from_str(&event).expect("an event") else { panic!("{event}") };
            check(wire);
        }
    }

    #[test]
    fn what_goes_out_is_the_object_itself() {
        let node = Node { metadata: ObjectMeta { name: Some("n".into()), ..Default::default() }, ..Default::default() };
        let sent = serde_json::to_value(Wire::encode(&node).expect("a tree")).expect("json");
        assert_eq!(sent, serde_json::to_value(&node).expect("json"));
    }
}
