//! Own hosts: ByoHosts and the machines on them.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use millpond_hosts::run::Prepared;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts the controllers of own hosts, unless this process has no right to let hosts in
/// (`millpond install controller --without own-hosts`).
pub(super) fn start(client: &Client, own_hosts: Prepared, term: &CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    let (client, term) = (client.clone(), term.clone());
    tasks.spawn(async move {
        if may_approve(&client).await {
            own_hosts.start(&term).wait().await;
        } else {
            tracing::info!("own hosts are left alone: this identity may not read Secrets");
        }
    });
    tasks.close();
    tasks
}

/// Whether this identity may read the tokens of hosts. An API server that does not answer is asked by the controllers.
async fn may_approve(client: &Client) -> bool {
    let secrets = ResourceAttributes {
        verb: Some("list".to_owned()),
        resource: Some("secrets".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(secrets), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let api = Api::<SelfSubjectAccessReview>::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    answer.map_or(true, |review| review.status.is_none_or(|status| status.allowed))
}
