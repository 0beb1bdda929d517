//! The rights of a host: its own ByoHost, its own Lease, and the Secrets that its claim names.
//!
//! Each host has a Role of its own in every namespace where it may read something, with the names of the objects; the
//! ValidatingAdmissionPolicy of [`crate::rights`] checks what Roles cannot say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use millpond_api::byoh::names::LEASE_NAMESPACE;
use millpond_runtime::error::Result;
use millpond_runtime::meta::Key;
use millpond_runtime::mirror::{Mirror, Writer};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::{self, Reconcile};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::approval::failed;
use crate::kinds::ByoHost;
use crate::stock::{FIELD_MANAGER, Stock, enqueue};

/// Label of the Roles, with the name of the host.
pub const LABEL: &str = "millpond.dev/host";
/// Prefix of the user names of hosts.
const USER: &str = "byoh:host:";

/// Name of the Roles and RoleBindings of a host.
pub fn role_name(host: &str) -> String {
    format!("byoh-host-{host}")
}

/// Gives a host that comes in its Lease and the right to renew it.
pub(crate) async fn welcome(stock: &Stock, host: &str) -> Result<()> {
    put(stock, host, LEASE_NAMESPACE, &lease_rules(host)).await?;
    let api: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(stock.client.clone(), LEASE_NAMESPACE);
    let lease = serde_json::from_value(json!({"metadata": {"name": host, "namespace": LEASE_NAMESPACE}, "spec": {}}));
    let lease = lease.expect("a Lease without a holder");
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &lease).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(failed("create", "Lease", host, error)),
    }
}

/// Keeps the Roles of hosts until the token is cancelled.
pub fn run(stock: &Arc<Stock>, token: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
    let stock = Arc::clone(stock);
    let writer = Writer::new(stock.client.clone(), FIELD_MANAGER, stock.options.writes_in_flight);
    let roles =
        Arc::new(Mirror::<Role>::new(writer, Some(|role: &Role| role.labels().get(LABEL).cloned())).labelled(LABEL));
    let queue = Arc::new(Queue::new());
    enqueue(&stock.hosts, &queue);
    let own = Arc::clone(&queue);
    stock.hosts.on_change(move |before, after| {
        if let (Some(host), None) = (before, after) {
            own.add(Key::of(&**host));
        }
    });
    let access = Arc::new(Access { stock: Arc::clone(&stock), roles: Arc::clone(&roles) });
    let watching = Arc::clone(&roles).run(stock.options.streaming_lists, token.clone());
    let working = async move {
        tokio::select! {
            () = token.cancelled() => return,
            () = async { tokio::join!(roles.wait_until_ready(), stock.hosts.wait_until_ready()); } => {}
        }
        worker::run(access, queue, 8, token.clone()).await;
    };
    async move {
        tokio::join!(watching, working);
    }
}

struct Access {
    stock: Arc<Stock>,
    roles: Arc<Mirror<Role>>,
}

impl Reconcile for Access {
    const NAME: &'static str = "host-access";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let host = self.stock.hosts.get(key);
        let wanted = host.as_ref().map(|host| wanted(host)).unwrap_or_default();
        let present = self.roles.indexed(&key.name);
        for (namespace, rules) in &wanted {
            let role = present.iter().find(|role| role.namespace().as_ref() == Some(namespace));
            let same = role.is_some_and(|role| serde_json::to_value(&role.rules).is_ok_and(|now| now == *rules));
            if !same {
                put(&self.stock, &key.name, namespace, rules).await?;
            }
        }
        for role in present.iter().filter(|role| role.namespace().is_none_or(|of| !wanted.contains_key(&of))) {
            self.remove(role).await?;
        }
        Ok(None)
    }
}

impl Access {
    async fn remove(&self, role: &Role) -> Result<()> {
        let (name, namespace) = (role.name_any(), role.namespace().unwrap_or_default());
        let bindings: Api<RoleBinding> = Api::namespaced(self.stock.client.clone(), &namespace);
        match bindings.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(failed("delete", "RoleBinding", &name, error)),
        }
        self.roles.delete(role, None).await
    }
}

/// The rules of a host by namespace.
fn wanted(host: &ByoHost) -> BTreeMap<String, Value> {
    let name = host.name();
    let mut secrets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    if let Some(claim) = &host.spec.claim {
        let named = [&host.spec.bootstrap_secret, &host.spec.installation_secret];
        for secret in named.into_iter().flatten().filter(|secret| !secret.name.is_empty()) {
            let namespace = if secret.namespace.is_empty() { &claim.namespace } else { &secret.namespace };
            secrets.entry(namespace).or_default().insert(&secret.name);
        }
    }
    let rules = host_rules(name);
    let mut wanted =
        BTreeMap::from([(LEASE_NAMESPACE.to_owned(), lease_rules(name)), (host.namespace().to_owned(), rules)]);
    for (namespace, names) in secrets {
        let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]});
        if let Some(rules) = wanted.entry(namespace.to_owned()).or_insert_with(|| json!([])).as_array_mut() {
            rules.push(rule);
        }
    }
    wanted
}

fn host_rules(host: &str) -> Value {
    let group = "infrastructure.cluster.x-k8s.io";
    json!([
        {"apiGroups": [group], "resources": ["byohosts"], "resourceNames": [host], "verbs": ["get", "watch"]},
        {"apiGroups": [group], "resources": ["byohosts/status"], "resourceNames": [host], "verbs": ["get", "patch"]},
    ])
}

fn lease_rules(host: &str) -> Value {
    json!([{
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [host],
        "verbs": ["get", "patch", "update"],
    }])
}

/// Writes the Role and the RoleBinding of a host in a namespace.
async fn put(stock: &Stock, host: &str, namespace: &str, rules: &Value) -> Result<()> {
    let name = role_name(host);
    let metadata = json!({"name": name, "namespace": namespace, "labels": {LABEL: host}});
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules,
    });
    let roles: Api<Role> = Api::namespaced(stock.client.clone(), namespace);
    let put = roles.patch(&name, &params, &Patch::Apply(role)).await;
    put.map_err(|error| failed("apply", "Role", &name, error))?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{USER}{host}")}],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(stock.client.clone(), namespace);
    let put = bindings.patch(&name, &params, &Patch::Apply(binding)).await;
    put.map(drop).map_err(|error| failed("apply", "RoleBinding", &name, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_api::byoh::{Claim, ObjectReference};

    #[test]
    fn a_host_reads_the_secrets_of_its_claim_only() {
        let mut host = ByoHost::new(Default::default(), Default::default());
        host.metadata.name = Some("node1".into());
        host.metadata.namespace = Some("default".into());
        let free = wanted(&host);
        assert_eq!(free.keys().collect::<Vec<_>>(), ["default", LEASE_NAMESPACE]);
        assert!(!format!("{free:?}").contains("secrets"));
        // Secrets of a claim that has ended are left out.
        let secret = |name: &str, namespace: &str| {
            Some(ObjectReference { name: name.into(), namespace: namespace.into(), ..ObjectReference::default() })
        };
        host.spec.bootstrap_secret = secret("m1", "other");
        assert_eq!(wanted(&host), free);
        host.spec.claim = Some(Claim { namespace: "default".into(), ..Claim::default() });
        host.spec.installation_secret = secret("install", "");
        let claimed = wanted(&host);
        assert_eq!(claimed["other"][0]["resourceNames"], json!(["m1"]));
        assert_eq!(claimed["default"][2]["resourceNames"], json!(["install"]));
        assert_eq!(claimed["default"][0]["resourceNames"], json!(["node1"]));
    }
}
