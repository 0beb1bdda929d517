//! Builds a plan from a claim: reads the Secrets that the claim names.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_api::byoh::names::host as reasons;
use millpond_api::byoh::{ByoHost, Claim, HostFacts, JoinMode, ObjectReference};
use serde::Deserialize;

use crate::agent::Options;
use crate::cloud_config::Instance;
use crate::join::{self, Installer, Target, TlsBootstrap};
use crate::plan::Plan;
use crate::report::Obstacle;
use crate::session::{Session, SessionError};

/// The result for a claim.
#[derive(Debug)]
pub(crate) enum Bootstrap {
    /// A plan.
    Plan(Plan),
    /// A dependency does not exist yet.
    Waits(Obstacle),
    /// The content can never be executed.
    Refused(String),
}

#[derive(Debug, Default, Deserialize)]
struct Secret {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// Makes the plan of a claim.
pub(crate) async fn plan(
    session: &Session,
    options: &Options,
    facts: &HostFacts,
    host: &ByoHost,
    claim: &Claim,
) -> Result<Bootstrap, SessionError> {
    let bootstrap = Wanted {
        condition: reasons::BOOTSTRAPPED,
        reason: reasons::BOOTSTRAP_SECRET_UNAVAILABLE,
        namespace: &claim.namespace,
        what: "bootstrap data",
    };
    let data = match bootstrap.read(session, host.spec.bootstrap_secret.as_ref()).await? {
        Ok(data) => data,
        Err(obstacle) => return Ok(Bootstrap::Waits(obstacle)),
    };
    let installer = match installer(session, options, host, claim).await? {
        Ok(installer) => installer,
        Err(obstacle) => return Ok(Bootstrap::Waits(obstacle)),
    };
    let target = Target {
        host: options.name.clone(),
        machine_uid: claim.machine_uid.clone(),
        epoch: claim.epoch,
        labels: host.spec.labels.clone(),
        taints: host.spec.taints.clone(),
    };
    let missing = |key: &str| {
        let message = format!("the Secret with bootstrap data has no key `{key}`");
        Ok(Bootstrap::Waits(Obstacle { condition: bootstrap.condition, reason: bootstrap.reason, message }))
    };
    match host.spec.join_mode.unwrap_or_default() {
        JoinMode::Kubeadm => {
            let Some(value) = data.get("value") else { return missing("value") };
            let Ok(text) = std::str::from_utf8(value) else {
                return Ok(Bootstrap::Refused("the bootstrap data is no text".to_owned()));
            };
            let nic = facts.nics.iter().find(|nic| nic.is_default);
            let default_interface = nic.map(|nic| nic.name.clone()).unwrap_or_default();
            let instance = Instance { name: options.name.clone(), default_interface };
            Ok(match join::kubeadm(&target, installer.as_ref(), text, &instance) {
                Ok(plan) => Bootstrap::Plan(plan),
                Err(error) => Bootstrap::Refused(format!("the bootstrap data cannot be executed: {error}")),
            })
        }
        JoinMode::TlsBootstrap => {
            let take = |key: &str| data.get(key).cloned();
            let Some(ca) = take("ca.crt") else { return missing("ca.crt") };
            let Some(bootstrap_kubeconfig) = take("bootstrap-kubeconfig") else {
                return missing("bootstrap-kubeconfig");
            };
            let Some(kubelet_config) = take("kubelet-config.yaml") else { return missing("kubelet-config.yaml") };
            let files = TlsBootstrap { ca, bootstrap_kubeconfig, kubelet_config };
            Ok(Bootstrap::Plan(join::tls_bootstrap(&target, installer.as_ref(), &files)))
        }
    }
}

/// The installation scripts, if any have to run.
async fn installer(
    session: &Session,
    options: &Options,
    host: &ByoHost,
    claim: &Claim,
) -> Result<Result<Option<Installer>, Obstacle>, SessionError> {
    let Some(reference) = host.spec.installation_secret.as_ref().filter(|_| !options.skip_installation) else {
        return Ok(Ok(None));
    };
    let wanted = Wanted {
        condition: reasons::INSTALLED,
        reason: reasons::INSTALLATION_SECRET_UNAVAILABLE,
        namespace: &claim.namespace,
        what: "installation scripts",
    };
    let data = match wanted.read(session, Some(reference)).await? {
        Ok(data) => data,
        Err(obstacle) => return Ok(Err(obstacle)),
    };
    let text = |key: &str| data.get(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let Some(install) = text("install") else {
        let message = "the Secret with installation scripts has no key `install`".to_owned();
        return Ok(Err(Obstacle { condition: wanted.condition, reason: wanted.reason, message }));
    };
    let uninstall = text("uninstall").or_else(|| host.spec.uninstallation_script.clone()).unwrap_or_default();
    Ok(Ok(Some(Installer { install, uninstall })))
}

/// A Secret that a claim names.
struct Wanted<'a> {
    condition: &'static str,
    reason: &'static str,
    namespace: &'a str,
    what: &'static str,
}

impl Wanted<'_> {
    async fn read(
        &self,
        session: &Session,
        reference: Option<&ObjectReference>,
    ) -> Result<Result<BTreeMap<String, Vec<u8>>, Obstacle>, SessionError> {
        let waits = |message: String| Ok(Err(Obstacle { condition: self.condition, reason: self.reason, message }));
        let Some(reference) = reference.filter(|reference| !reference.name.is_empty()) else {
            return waits(format!("the claim names no Secret with {}", self.what));
        };
        let namespace = if reference.namespace.is_empty() { self.namespace } else { &reference.namespace };
        let name = &reference.name;
        let secret: Option<Secret> = match session.get(&format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await
        {
            // The right to read it comes with the claim, a moment later.
            Err(error) if error.is_forbidden() => {
                return waits(format!("the host may not read the Secret {namespace}/{name} with {} yet", self.what));
            }
            read => read?,
        };
        let Some(secret) = secret else {
            return waits(format!("the Secret {namespace}/{name} with {} does not exist", self.what));
        };
        let decode = |(key, value): (String, String)| Some((key, STANDARD.decode(value).ok()?));
        Ok(Ok(secret.data.into_iter().filter_map(decode).collect()))
    }
}
