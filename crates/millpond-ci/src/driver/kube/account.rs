//! Who Zuul is in a cluster: service accounts, their rights, and tokens that expire.

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use super::super::DriverError;
use super::{created, is_missing, refused};

/// How long a token works: longer than the longest jobs, with the time that a node waits until a job takes it. Whatever is
/// left ends with the account, when the node is deleted.
const TOKEN_SECONDS: i64 = 24 * 3600;
const RBAC: &str = "rbac.authorization.k8s.io";
const ALL_VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

/// Metadata of what belongs to a node.
pub(super) fn metadata(name: &str, labels: &std::collections::BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.clone()), ..ObjectMeta::default() }
}

/// Creates a service account.
pub(super) async fn create(client: &Client, namespace: &str, meta: ObjectMeta) -> Result<(), DriverError> {
    let account =
        ServiceAccount { metadata: meta, automount_service_account_token: Some(false), ..ServiceAccount::default() };
    let api = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    created(api.create(&PostParams::default(), &account).await, "create a service account").map(drop)
}

/// Rights on one pod and on nothing else.
pub(super) fn pod_rules(pod: &str) -> Vec<PolicyRule> {
    let rule = |resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(texts(resources)),
        resource_names: Some(vec![pod.to_owned()]),
        verbs: texts(verbs),
        ..PolicyRule::default()
    };
    vec![
        rule(&["pods"], &["get"]),
        rule(&["pods/log"], &["get"]),
        rule(&["pods/exec", "pods/portforward"], &["create", "get"]),
    ]
}

/// Nodepool's rights in a namespace that has one pod.
pub(super) fn restricted_rules() -> Vec<PolicyRule> {
    let rule = |resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(texts(&[resource])),
        verbs: texts(verbs),
        ..PolicyRule::default()
    };
    vec![
        rule("pods", &["get", "list"]),
        rule("pods/exec", &ALL_VERBS),
        rule("pods/log", &ALL_VERBS),
        rule("pods/portforward", &ALL_VERBS),
    ]
}

/// Nodepool's rights in a namespace that is a node, in the groups that the resources are in today.
pub(super) fn namespace_rules() -> Vec<PolicyRule> {
    let rule = |group: &str, resources: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(texts(resources)),
        verbs: texts(&ALL_VERBS),
        ..PolicyRule::default()
    };
    let core = [
        "pods",
        "pods/exec",
        "pods/log",
        "pods/portforward",
        "services",
        "endpoints",
        "configmaps",
        "secrets",
        "persistentvolumeclaims",
    ];
    vec![
        rule("", &core),
        rule("apps", &["deployments", "replicasets", "statefulsets"]),
        rule("batch", &["cronjobs", "jobs"]),
    ]
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Creates a role and gives it to a service account.
pub(super) async fn allow(
    client: &Client,
    namespace: &str,
    role: ObjectMeta,
    binding: ObjectMeta,
    account: &str,
    rules: Vec<PolicyRule>,
) -> Result<(), DriverError> {
    let name = role.name.clone().unwrap_or_default();
    let role = Role { metadata: role, rules: Some(rules) };
    let api = Api::<Role>::namespaced(client.clone(), namespace);
    created(api.create(&PostParams::default(), &role).await, "create a role")?;
    bind(client, namespace, binding, "Role", &name, account).await
}

/// Gives a role to a service account.
pub(super) async fn bind(
    client: &Client,
    namespace: &str,
    metadata: ObjectMeta,
    kind: &str,
    role: &str,
    account: &str,
) -> Result<(), DriverError> {
    let binding = RoleBinding {
        metadata,
        role_ref: RoleRef { api_group: Some(RBAC.to_owned()), kind: kind.to_owned(), name: role.to_owned() },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: Some(namespace.to_owned()),
            ..Subject::default()
        }]),
    };
    let api = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    created(api.create(&PostParams::default(), &binding).await, "create a role binding").map(drop)
}

/// A token of a service account. Bound to a pod, it ends with it.
pub(super) async fn token(
    client: &Client,
    namespace: &str,
    account: &str,
    pod: Option<&Pod>,
) -> Result<String, DriverError> {
    let bound = pod.map(|pod| BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    });
    let spec = TokenRequestSpec { audiences: None, bound_object_ref: bound, expiration_seconds: Some(TOKEN_SECONDS) };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let api = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let answered = api.create_token_request(account, &PostParams::default(), &request).await;
    let status = answered.map_err(|error| refused("request a token", &error))?.status;
    status.and_then(|status| status.token).ok_or_else(|| DriverError::Transient("the API gave no token".to_owned()))
}

/// The reference that lets a cluster's garbage collector remove something with its pod.
pub(super) fn owned_by(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// Deletes an account with its role and its binding.
pub(super) async fn delete(client: &Client, namespace: &str, name: &str) -> Result<(), DriverError> {
    let params = DeleteParams::default();
    let outcomes = [
        Api::<RoleBinding>::namespaced(client.clone(), namespace).delete(name, &params).await.map(drop),
        Api::<Role>::namespaced(client.clone(), namespace).delete(name, &params).await.map(drop),
        Api::<ServiceAccount>::namespaced(client.clone(), namespace).delete(name, &params).await.map(drop),
    ];
    for outcome in outcomes {
        match outcome {
            Err(error) if is_missing(&error) => {}
            // A provider without rights on accounts has made none.
            Err(kube::Error::Api(status)) if status.is_forbidden() => {}
            done => done.map_err(|error| refused("delete a service account", &error))?,
        }
    }
    Ok(())
}
