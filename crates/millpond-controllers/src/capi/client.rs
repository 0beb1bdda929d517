//! Detects which version of Cluster API a cluster serves; its client converts requests to that version.
//!
//! Controllers and verbs are written for v1beta2. Where only v1beta1 is served, requests are sent there instead;
//! answers come back as they are, and the views of `millpond_api::capi` read both shapes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use kube::Client;
use kube::client::Body;
use millpond_api::capi::{GROUP, Version};

/// A client of a cluster in which Cluster API is installed.
#[derive(Clone)]
pub struct Connection {
    /// A client that uses v1beta2 types whatever version is served.
    pub client: Client,
    /// The served version, in whose shape objects are read and written.
    pub version: Version,
}

impl Connection {
    /// Uses this version whatever else is served.
    pub fn at(version: Version, client: &Client) -> Self {
        let client = match version {
            Version::V1Beta2 => client.clone(),
            Version::V1Beta1 => Switch::to(version).around(client),
        };
        Self { client, version }
    }
}

/// Finds out which version is served; `None` if Cluster API is not installed.
pub async fn connect(client: &Client) -> kube::Result<Option<Connection>> {
    Ok(served(client).await?.map(|served| Connection::at(served.version, client)))
}

/// What a server serves of Cluster API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Served {
    /// The newest served version that Millpond knows.
    pub(crate) version: Version,
    /// Whether MachinePools are served.
    pub(crate) pools: bool,
}

/// Asks which versions are served; `None` if Cluster API is not installed.
pub(crate) async fn served(client: &Client) -> kube::Result<Option<Served>> {
    for version in [Version::V1Beta2, Version::V1Beta1] {
        match client.list_api_group_resources(&version.api_version()).await {
            Ok(list) => {
                let has = |name: &str| list.resources.iter().any(|resource| resource.name == name);
                if has("machinedeployments") {
                    return Ok(Some(Served { version, pools: has("machinepools") }));
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The version that requests are sent to. Watches are created with their client before the served versions are known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switch(Arc<AtomicBool>);

impl Switch {
    /// Sends requests to this version.
    pub(crate) fn to(version: Version) -> Self {
        let switch = Self::default();
        switch.set(version);
        switch
    }

    /// Sends requests to this version from now on.
    pub(crate) fn set(&self, version: Version) {
        self.0.store(version == Version::V1Beta1, Ordering::Relaxed);
    }

    /// A client whose requests for v1beta2 are sent to the version of the switch.
    pub(crate) fn around(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (inner, old) = (client.clone(), Arc::clone(&self.0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, old) = (inner.clone(), old.load(Ordering::Relaxed));
            async move { inner.send(if old { downgrade(request).await? } else { request }).await }
        });
        Client::new(service, namespace)
    }
}

/// Rewrites the path of a request, and the `apiVersion` of what it brings.
async fn downgrade(request: Request<Body>) -> kube::Result<Request<Body>> {
    let (mut parts, body) = request.into_parts();
    let Some(uri) = old_uri(&parts.uri.to_string()) else { return Ok(Request::from_parts(parts, body)) };
    parts.uri = uri.parse().map_err(|error: http::uri::InvalidUri| kube::Error::HttpError(error.into()))?;
    let bytes = body.collect_bytes().await?;
    let old = serde_json::from_slice(&bytes).ok().and_then(old_body);
    // The length may have changed; it is written anew.
    parts.headers.remove(http::header::CONTENT_LENGTH);
    let body = old.map_or_else(|| Body::from(bytes), Body::from);
    Ok(Request::from_parts(parts, body))
}

fn old_uri(uri: &str) -> Option<String> {
    let new = format!("/apis/{GROUP}/{}", Version::V1Beta2.name());
    let old = format!("/apis/{GROUP}/{}", Version::V1Beta1.name());
    let at = uri.find(&new)?;
    let rest = &uri[at + new.len()..];
    let whole = rest.is_empty() || rest.starts_with(['/', '?']);
    whole.then(|| format!("{}{old}{rest}", &uri[..at]))
}

fn old_body(mut object: serde_json::Value) -> Option<Vec<u8>> {
    let version = object.get_mut("apiVersion")?;
    if version.as_str() != Some(&Version::V1Beta2.api_version()) {
        return None;
    }
    *version = Version::V1Beta1.api_version().into();
    serde_json::to_vec(&object).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_cluster_api_are_rewritten_and_no_others() {
        let path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machinedeployments?watch=true";
        assert_eq!(
            old_uri(path).as_deref(),
            Some("/apis/cluster.x-k8s.io/v1beta1/namespaces/default/machinedeployments?watch=true")
        );
        assert_eq!(
            old_uri("https://a:1/apis/cluster.x-k8s.io/v1beta2").unwrap(),
            "https://a:1/apis/cluster.x-k8s.io/v1beta1"
        );
        for path in
            ["/api/v1/nodes", "/apis/infrastructure.cluster.x-k8s.io/v1beta2/x", "/apis/cluster.x-k8s.io/v1beta20/x"]
        {
            assert_eq!(old_uri(path), None, "{path}");
        }
    }

    #[test]
    fn bodies_follow() {
        let new =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "spec": {"replicas": 1}});
        let old: serde_json::Value = serde_json::from_slice(&old_body(new).unwrap()).unwrap();
        assert_eq!(old["apiVersion"], "cluster.x-k8s.io/v1beta1");
        assert_eq!(old["spec"]["replicas"], 1);
        assert_eq!(old_body(json!({"apiVersion": "autoscaling/v1", "kind": "Scale"})), None);
        assert_eq!(old_body(json!({"metadata": {}})), None);
    }
}
