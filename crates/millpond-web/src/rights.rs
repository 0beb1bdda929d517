//! What a user may do, as the API server says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::respond::Problem;
use crate::session::Session;

/// Rights are asked for again after this; every write is decided by the API server anyway.
const ASKED_AGAIN: Duration = Duration::from_secs(10);

/// A right that buttons depend on.
struct Right {
    name: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

const fn right(
    name: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
) -> Right {
    Right { name, verb, group, resource, subresource }
}

const RIGHTS: &[Right] = &[
    right("view", "list", "", "nodes", ""),
    right("view", "list", "", "pods", ""),
    right("view", "list", "karpenter.sh", "nodepools", ""),
    right("cordon", "patch", "", "nodes", ""),
    right("drain", "create", "", "pods", "eviction"),
    right("hold", "patch", "", "nodes", ""),
    right("deleteNode", "delete", "karpenter.sh", "nodeclaims", ""),
    right("editPools", "patch", "karpenter.sh", "nodepools", ""),
];

/// What a user may do.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// Whether, by name.
    pub(crate) can: BTreeMap<&'static str, bool>,
    /// Why not.
    pub(crate) why_not: BTreeMap<&'static str, String>,
}

impl Rights {
    async fn ask(client: &Client) -> Result<Self, kube::Error> {
        let answers = try_join_all(RIGHTS.iter().map(|right| allowed(client, right))).await?;
        let mut rights = Self::default();
        for (right, allowed) in RIGHTS.iter().zip(answers) {
            let can = rights.can.entry(right.name).or_insert(true);
            *can &= allowed;
            if !allowed && !rights.why_not.contains_key(right.name) {
                rights.why_not.insert(right.name, right.refusal());
            }
        }
        let view = rights.can["view"];
        rights.can.insert("decisions", view);
        if let (false, Some(why)) = (view, rights.why_not.get("view").cloned()) {
            rights.why_not.insert("decisions", why);
        }
        Ok(rights)
    }
}

impl Right {
    fn refusal(&self) -> String {
        let Self { verb, group, resource, subresource, .. } = self;
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        format!("you may not {verb} {resource}{part}{group} in the whole cluster")
    }
}

async fn allowed(client: &Client, right: &Right) -> Result<bool, kube::Error> {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let attributes = ResourceAttributes {
        verb: text(right.verb),
        group: text(right.group),
        resource: text(right.resource),
        subresource: text(right.subresource),
        ..ResourceAttributes::default()
    };
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api = Api::<SelfSubjectAccessReview>::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The rights of a session's user, as asked lately.
pub(crate) async fn of(session: &Session) -> Result<Arc<Rights>, Problem> {
    let mut known = session.rights.lock().await;
    if let Some((asked, rights)) = &*known
        && asked.elapsed() < ASKED_AGAIN
    {
        return Ok(Arc::clone(rights));
    }
    let rights = Arc::new(Rights::ask(&session.user.client).await?);
    *known = Some((Instant::now(), Arc::clone(&rights)));
    Ok(rights)
}

/// Refuses users who may not see the whole cluster: the state is one for all viewers.
pub(crate) async fn require_view(session: &Session) -> Result<(), Problem> {
    match of(session).await?.why_not.get("view") {
        None => Ok(()),
        Some(why) => Err(Problem::forbidden(why.clone())),
    }
}
