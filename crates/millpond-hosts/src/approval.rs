//! Certificates for hosts and their kubelets: approves requests that a token or the host's own certificate justifies,
//! denies invalid ones, and leaves all others alone.
//!
//! [`mod@judge`] decides and is pure. A token lets one key in: the key is written on the token before the request is
//! approved, and the token is removed when its host has registered.

mod judge;
mod request;

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use millpond_runtime::error::{Error, Result};
use millpond_runtime::meta::Key;
use millpond_runtime::mirror::{Mirror, Writer};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::{self, Reconcile};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub use judge::{Circumstances, Verdict, judge};
pub use request::{Asked, Subject};

use crate::access;
use crate::stock::{FIELD_MANAGER, Stock, enqueue};
use crate::token::{self, Token, UsedBy};

/// A token is removed this long after its request was approved, even if its host did not come.
const TOKEN_KEPT: SignedDuration = SignedDuration::from_mins(2);
/// Time to the next look at a token that waits for its host.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Runs the approver until the token is cancelled.
pub fn run(stock: &Arc<Stock>, token: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
    let stock = Arc::clone(stock);
    let writer = Writer::new(stock.client.clone(), FIELD_MANAGER, stock.options.writes_in_flight);
    let requests = Arc::new(Mirror::<CertificateSigningRequest>::new(writer, None));
    let queue = Arc::new(Queue::new());
    enqueue(&requests, &queue);
    // A host that has registered no longer needs its token, so its request is judged again.
    let own = Arc::clone(&queue);
    stock.hosts.on_change(move |before, after| {
        if let (None, Some(host)) = (before, after) {
            own.add(Key::new("", &format!("{}{}", request::PREFIX, host.name())));
        }
    });
    let approver = Arc::new(Approver { stock: Arc::clone(&stock), requests: Arc::clone(&requests) });
    let streaming = stock.options.streaming_lists;
    let watching = Arc::clone(&requests).run(streaming, token.clone());
    let working = async move {
        tokio::select! {
            () = token.cancelled() => return,
            () = async { tokio::join!(requests.wait_until_ready(), stock.hosts.wait_until_ready()); } => {}
        }
        worker::run(approver, queue, 4, token.clone()).await;
    };
    async move {
        tokio::join!(watching, working);
    }
}

struct Approver {
    stock: Arc<Stock>,
    requests: Arc<Mirror<CertificateSigningRequest>>,
}

impl Reconcile for Approver {
    const NAME: &'static str = "host-certificates";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(request) = self.requests.get(key) else { return Ok(None) };
        let Some(asked) = Asked::read(&request) else { return Ok(None) };
        if is_decided(&request) {
            return self.clean_up(&request, &asked).await;
        }
        let token = self.token(&asked).await?;
        let host = asked.host.as_deref().and_then(|host| self.stock.host(host));
        let now = self.stock.options.clock.now();
        let circumstances = Circumstances {
            token: token.as_ref(),
            is_registered: host.is_some(),
            is_claimed: host.is_some_and(|host| host.spec.claim.is_some()),
            now,
        };
        match judge(&asked, circumstances) {
            Verdict::Leave(why) => {
                tracing::info!(request = key.name, why, "leaves a request for a certificate to an administrator");
                Ok(None)
            }
            Verdict::Deny(why) => {
                tracing::warn!(request = key.name, user = asked.user, why, "denies a certificate");
                self.decide(key, "Denied", "NotAllowed", &why).await?;
                Ok(None)
            }
            Verdict::Approve { host, why } => {
                if let Some(token) = token.as_ref().filter(|token| token.kubelet_of.is_none()) {
                    self.use_up(token, &UsedBy { host: host.clone(), key: asked.key.clone() }).await?;
                }
                if !asked.is_kubelets {
                    access::welcome(&self.stock, &host).await?;
                }
                tracing::info!(request = key.name, host, why, "approves a certificate");
                self.decide(key, "Approved", "HostAdmitted", &why).await?;
                Ok(None)
            }
        }
    }
}

impl Approver {
    /// The token that the request was made with; `None` if it no longer exists.
    async fn token(&self, asked: &Asked) -> Result<Option<Token>> {
        let Some(id) = asked.user.strip_prefix(token::USER) else { return Ok(None) };
        let name = token::secret_name(id);
        let secret = self.secrets().get_opt(&name).await.map_err(|error| failed("read", "Secret", &name, error))?;
        Ok(secret.as_ref().and_then(Token::read))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.stock.client.clone(), token::NAMESPACE)
    }

    /// Records on the token which host uses it, unless that is recorded. If two writers race, one gets a conflict, and
    /// its request is judged again.
    async fn use_up(&self, token: &Token, used: &UsedBy) -> Result<()> {
        if token.used_by.as_ref() == Some(used) {
            return Ok(());
        }
        let name = token::secret_name(&token.id);
        let patch = json!({"metadata": {
            "resourceVersion": token.version, "annotations": {token::USED_BY: used.text()},
        }});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.secrets().patch(&name, &params, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| failed("use", "Secret", &name, error))
    }

    async fn decide(&self, key: &Key, kind: &str, reason: &str, message: &str) -> Result<()> {
        let now = self.stock.now();
        let patch = json!({"status": {"conditions": [{
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": now,
        }]}});
        let api: Api<CertificateSigningRequest> = Api::all(self.stock.client.clone());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let decided = api.patch_subresource("approval", &key.name, &params, &Patch::Merge(patch)).await;
        decided.map(drop).map_err(|error| failed("decide", "CertificateSigningRequest", &key.name, error))
    }

    /// Removes the token of a host that has registered. kube-controller-manager removes the request.
    async fn clean_up(&self, request: &CertificateSigningRequest, asked: &Asked) -> Result<Option<Duration>> {
        let is_agents = condition(request, "Approved") && !asked.is_kubelets;
        let Some(host) = asked.host.as_deref().filter(|_| is_agents) else { return Ok(None) };
        let Some(token) = self.token(asked).await? else { return Ok(None) };
        let is_its_own = token.used_by.as_ref().is_some_and(|used| used.host == host && used.key == asked.key);
        if !is_its_own {
            return Ok(None);
        }
        let now = self.stock.options.clock.now();
        let created = request.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let registered = self.stock.host(host).and_then(|host| host.metadata.creation_timestamp.clone());
        let has_come = registered.is_some_and(|time| time.0 >= created);
        if !has_come && now.duration_since(created) < TOKEN_KEPT {
            return Ok(Some(LOOK_AGAIN));
        }
        let name = token::secret_name(&token.id);
        match self.secrets().delete(&name, &DeleteParams::default()).await {
            Ok(_) => tracing::info!(token = token.id, host, "removes a token that was used"),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(failed("remove", "Secret", &name, error)),
        }
        Ok(None)
    }
}

fn condition(request: &CertificateSigningRequest, kind: &str) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == kind)
}

fn is_decided(request: &CertificateSigningRequest) -> bool {
    ["Approved", "Denied", "Failed"].iter().any(|kind| condition(request, kind))
}

pub(crate) fn failed(verb: &'static str, kind: &str, name: &str, source: kube::Error) -> Error {
    Error::Api { verb, kind: kind.to_owned(), key: Key::new("", name), source: Box::new(source) }
}
