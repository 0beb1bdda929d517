//! Objects as JSON text: what lists, watches and writes handle until the typed object is needed.
//!
//! Reading JSON into a kind is code that the compiler writes anew for every pair of a kind and a reader, and a client
//! has several readers. So everything that speaks to the API is here once, for all kinds, on text; the text of a kind
//! is read in one place, [`Kind::read`].

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Resource};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::kinds::Kind;
use crate::mirror::Writer;

/// An object whose kind was not looked at.
#[derive(Clone, Debug)]
pub struct RawObject {
    /// The metadata that the client needs: name, namespace, uid and version.
    head: ObjectMeta,
    /// The object without its managed fields: no controller reads them, and they are half of the text.
    text: Box<RawValue>,
}

impl RawObject {
    /// The object that the text is of.
    pub fn read<K: Kind>(&self) -> serde_json::Result<K> {
        K::read(self.text.get())
    }

    /// An object as text.
    pub fn of<K: Kind>(object: &K) -> serde_json::Result<Self> {
        Ok(Self { head: ObjectMeta::default(), text: object.write()? })
    }
}

/// The part of an object that identifies it.
#[derive(Deserialize)]
struct Named<'t> {
    #[serde(default, borrow)]
    metadata: Head<'t>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Head<'t> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    #[serde(borrow)]
    managed_fields: Option<&'t RawValue>,
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let Named { metadata: Head { name, namespace, uid, resource_version, managed_fields } } =
            serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let head = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        let shorter = managed_fields.and_then(|list| without(text.get(), list.get()));
        Ok(Self { head, text: shorter.unwrap_or(text) })
    }
}

/// The text of an object without a member whose value is this part of the text.
fn without(text: &str, value: &str) -> Option<Box<RawValue>> {
    let begins = (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let (before, after) = (text.get(..begins)?, text.get(begins + value.len()..)?.trim_ascii_start());
    // The name, and the comma on one side or the other.
    let before = before.get(..before.rfind(MANAGED_FIELDS)?)?;
    let (before, after) = match after.strip_prefix(',') {
        Some(after) => (before, after),
        None => (before.trim_ascii_end().strip_suffix(',').unwrap_or(before), after),
    };
    RawValue::from_string([before, after].concat()).ok()
}

const MANAGED_FIELDS: &str = r#""managedFields""#;

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }
    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }
    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }
    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }
    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.head
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.head
    }
}

/// Hands on the events of a watch until the token is cancelled. `absent` says whether the API server does not serve the
/// kind.
pub(crate) fn follow<'a>(
    api: Api<RawObject>,
    config: Config,
    kind: Cow<'static, str>,
    token: &'a CancellationToken,
    absent: &'a AtomicBool,
    take: &'a (dyn Fn(Event<RawObject>) + Send + Sync),
) -> BoxFuture<'a, ()> {
    async move {
        let events = watcher::watcher(api, config).default_backoff().take_until(token.cancelled());
        pin_mut!(events);
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    absent.store(false, Ordering::Relaxed);
                    take(event);
                }
                Ok(None) => return,
                Err(error) => {
                    absent.store(is_of_absent_kind(&error), Ordering::Relaxed);
                    tracing::debug!(%kind, %error, "watch interrupted");
                }
            }
        }
    }
    .boxed()
}

/// Whether a list failed because there is no such kind.
fn is_of_absent_kind(error: &watcher::Error) -> bool {
    match error {
        // The answer for an unknown group is plain text, so the reason is not `NotFound`.
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

// The futures are boxed so that the code behind them is made here, once, and not wherever something is written.
impl Writer {
    pub(crate) fn create(&self, api: Api<RawObject>, object: RawObject) -> BoxFuture<'_, kube::Result<RawObject>> {
        async move {
            let params = PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
            let _permit = self.permits.acquire().await;
            api.create(&params, &object).await
        }
        .boxed()
    }

    pub(crate) fn patch<'a>(
        &'a self,
        api: Api<RawObject>,
        name: &'a str,
        subresource: Option<&'static str>,
        patch: &'a Value,
    ) -> BoxFuture<'a, kube::Result<RawObject>> {
        async move {
            let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
            let patch = Patch::Merge(patch);
            let _permit = self.permits.acquire().await;
            match subresource {
                Some(part) => api.patch_subresource(part, name, &params, &patch).await,
                None => api.patch(name, &params, &patch).await,
            }
        }
        .boxed()
    }

    /// The object as it was left, unless it is gone.
    pub(crate) fn delete<'a>(
        &'a self,
        api: Api<RawObject>,
        name: &'a str,
        params: DeleteParams,
    ) -> BoxFuture<'a, kube::Result<Option<RawObject>>> {
        async move {
            let _permit = self.permits.acquire().await;
            Ok(api.delete(name, &params).await?.left())
        }
        .boxed()
    }
}

/// Reads one object past all copies.
pub(crate) fn fetch(api: Api<RawObject>, name: &str) -> BoxFuture<'_, kube::Result<RawObject>> {
    async move { api.get(name).await }.boxed()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{ObjectList, WatchEvent};

    use super::*;

    #[test]
    fn objects_of_lists_and_watches_are_read_when_asked_for() {
        let pod = r#"{"metadata":{"name":"a","namespace":"ns","resourceVersion":"7"},"spec":{"containers":[]}}"#;
        let broken = r#"{"metadata":{"name":"b"},"spec":{"containers":"none"}}"#;
        let list: ObjectList<RawObject> =
            serde_json::from_str(&format!(r#"{{"kind":"PodList","apiVersion":"v1","items":[{pod},{broken}]}}"#))
                .unwrap();
        assert_eq!(list.items[0].read::<Pod>().unwrap().metadata.name.as_deref(), Some("a"));
        assert!(list.items[1].read::<Pod>().is_err());
        assert_eq!(list.items[1].meta().name.as_deref(), Some("b"), "it can still be named");
        let event: WatchEvent<RawObject> =
            serde_json::from_str(&format!(r#"{{"type":"ADDED","object":{pod}}}"#)).unwrap();
        let WatchEvent::Added(object) = event else { panic!("another event") };
        assert_eq!(object.meta().resource_version.as_deref(), Some("7"));
        assert_eq!(serde_json::to_string(&object).unwrap(), pod, "it goes out as it came in");
    }

    #[test]
    fn managed_fields_are_left_out() {
        let list = r#""managedFields": [{"manager": "a", "fieldsV1": {"f:spec": {}}}]"#;
        let texts = [
            (format!(r#"{{"metadata":{{"name":"a",{list}}},"spec":{{}}}}"#), r#"{"metadata":{"name":"a"},"spec":{}}"#),
            (format!(r#"{{"metadata":{{{list} , "name":"a"}}}}"#), r#"{"metadata":{ "name":"a"}}"#),
            (format!(r#"{{"metadata":{{{list}}}}}"#), r#"{"metadata":{}}"#),
            (
                r#"{"metadata":{"name":"a","managedFields":null}}"#.to_owned(),
                r#"{"metadata":{"name":"a","managedFields":null}}"#,
            ),
            (format!(r#"{{"spec":{{{list}}}}}"#), &*format!(r#"{{"spec":{{{list}}}}}"#)),
        ];
        for (text, shorter) in texts {
            let raw: RawObject = serde_json::from_str(&text).unwrap();
            assert_eq!(raw.text.get(), shorter, "{text}");
        }
    }
}
