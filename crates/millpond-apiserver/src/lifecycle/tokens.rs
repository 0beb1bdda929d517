//! Bootstrap tokens: expired ones are removed, and those that may sign the description of the cluster in
//! `kube-public/cluster-info`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{delete_quietly, internal_call, resource_of};
use crate::auth::bootstrap_token::{BootstrapToken, KEY_PREFIX};
use crate::handlers::delete::Options;
use crate::handlers::update::{Changed, Part, change};
use crate::server::Server;

/// The description of the cluster: a ConfigMap with a kubeconfig without credentials.
pub(super) const CLUSTER_INFO: &str = "kube-public/cluster-info";
/// Prefix of the keys of signatures; the id of a token follows.
const SIGNATURE: &str = "jws-kubeconfig-";
/// Tokens are looked at once in this time at least.
const IDLE: Duration = Duration::from_secs(24 * 3600);

/// Follows the tokens until the server shuts down.
pub(super) async fn run(server: Arc<Server>) {
    let mut secrets = server.store.subscribe(&"secrets".into());
    let mut config_maps = server.store.subscribe(&"configmaps".into());
    loop {
        secrets.borrow_and_update();
        config_maps.borrow_and_update();
        let tokens = tokens(&server);
        let now = server.clock.now();
        for (key, _) in tokens.iter().filter(|(_, token)| token.has_expired(now)) {
            delete_quietly(&server, "secrets", key, &Options::default()).await;
        }
        sign(&server, &tokens).await;
        let next =
            tokens.iter().filter_map(|(_, token)| token.time_left(now)).filter(jiff::SignedDuration::is_positive).min();
        let next = next.and_then(|left| Duration::try_from(left).ok()).map_or(IDLE, |left| left.min(IDLE));
        tokio::select! {
            _ = secrets.changed() => {}
            _ = config_maps.changed() => {}
            () = tokio::time::sleep(next) => {}
            () = server.shutdown.cancelled() => return,
        }
    }
}

fn tokens(server: &Server) -> Vec<(Arc<str>, BootstrapToken)> {
    let secrets = server.store.list("secrets", KEY_PREFIX, None, 0, |secret, _| !secret.index.deleting);
    let read = |(key, secret): (Arc<str>, Arc<crate::store::StoredObject>)| {
        BootstrapToken::of(&secret.to_value()).map(|token| (key, token))
    };
    secrets.items.into_iter().filter_map(read).collect()
}

/// Brings the signatures in line with the tokens.
async fn sign(server: &Arc<Server>, tokens: &[(Arc<str>, BootstrapToken)]) {
    let Some(stored) = server.store.get("configmaps", CLUSTER_INFO) else { return };
    let object = stored.to_value();
    let Some(content) = object["data"]["kubeconfig"].as_str() else { return };
    let now = server.clock.now();
    let wanted: BTreeMap<String, String> = tokens
        .iter()
        .filter(|(key, token)| token.signs(key, now))
        .map(|(_, token)| (format!("{SIGNATURE}{}", token.id), token.signature(content)))
        .collect();
    let found: BTreeMap<String, String> = object["data"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(SIGNATURE))
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    if wanted == found {
        return;
    }
    let Some(resource) = resource_of(server, "configmaps") else { return };
    let mut call = internal_call(server, &resource, CLUSTER_INFO);
    let seen = stored.revision.to_string();
    let result = change(&mut call, Part::Main, |_, old| {
        let mut object = old.clone();
        if let Some(data) = object["data"].as_object_mut() {
            data.retain(|key, _| !key.starts_with(SIGNATURE));
            data.extend(wanted.iter().map(|(key, value)| (key.clone(), json!(value))));
        }
        // The signature is of the object that was read; if it changed meanwhile, it is signed again.
        Ok(Changed { object, precondition: Some(seen.clone()), track: true })
    });
    match result.await {
        Err(problem) if problem.reason != "Conflict" && problem.reason != "NotFound" => {
            tracing::warn!(%problem, "cannot sign the description of the cluster");
        }
        _ => {}
    }
}
