//! K8sInstallerConfigs: the Secret with the scripts that prepare a host and undo that.
//!
//! The scripts check what kubelet needs and bring nothing along: packages of Kubernetes come with the image of the host
//! or by the administrator's own means. Bundles of the original provider (`bundleRepo`) are OCI images that its tool
//! `imgpkg` unpacks; where one is asked for and kubelet is missing, the script runs that tool, and fails without it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_api::byoh::{K8sInstallerConfigSpec, ObjectReference};
use millpond_api::condition::{Conditions, READY};
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, controller_reference, is_leaving, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;

use crate::kinds::K8sInstallerConfig;
use crate::secrets::{self, Wanted};
use crate::stock::{Stock, enqueue};

/// Keeps the Secrets of K8sInstallerConfigs.
pub struct Installers {
    stock: Arc<Stock>,
}

impl Installers {
    /// The controller, and the work queue that watches fill.
    pub fn new(stock: &Arc<Stock>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        enqueue(&stock.installers, &queue);
        (Arc::new(Self { stock: Arc::clone(stock) }), queue)
    }
}

impl Reconcile for Installers {
    const NAME: &'static str = "k8sinstallerconfig";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(config) = self.stock.installers.get(key).filter(|config| !is_leaving(&**config)) else {
            return Ok(None);
        };
        let observed = config.metadata.generation;
        let seen = millpond_api::condition::find(&config.status.conditions, READY);
        if config.status.ready && seen.and_then(|seen| seen.observed_generation) == observed {
            return Ok(None);
        }
        let name = secret_name(&config);
        let data = [("install", install(&config.spec)), ("uninstall", UNINSTALL.to_owned())];
        let wanted = Wanted {
            key: Key::new(&key.namespace, &name),
            kind: "byoh.infrastructure.cluster.x-k8s.io/installer",
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            owner: Some(controller_reference(&*config)),
            data: data.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect(),
        };
        secrets::put(&self.stock.client, wanted).await?;
        let mut status = config.status.clone();
        status.ready = true;
        status.installation_secret = Some(ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: key.namespace.clone(),
            name,
            ..ObjectReference::default()
        });
        let generation = observed.unwrap_or_default();
        Conditions::new(&mut status.conditions, &[], generation, self.stock.now()).set(Condition::holds(READY));
        if let Some(patch) = status_patch(&*config, Some(&config.status), &status) {
            self.stock.installers.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}

fn secret_name(config: &K8sInstallerConfig) -> String {
    format!("{}-installer", config.name())
}

/// A text as a shell reads it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn install(spec: &K8sInstallerConfigSpec) -> String {
    let fetch = if spec.bundle_repo.is_empty() {
        "echo 'kubelet is not on this host, and bundleRepo of the K8sInstallerConfigTemplate names no bundle' >&2\n  exit 1"
            .to_owned()
    } else {
        format!(
            "command -v imgpkg >/dev/null 2>&1 || {{ echo 'kubelet is not on this host, and neither is imgpkg, which \
             unpacks the bundle' >&2; exit 1; }}\n  bundle=$(mktemp -d)\n  imgpkg pull --bundle {} --output \"$bundle\"\n  \
             tar -C / -xf \"$bundle/conf.tar\"\n  dpkg --install \"$bundle\"/*.deb\n  rm -r \"$bundle\"",
            quoted(&spec.bundle_repo)
        )
    };
    format!("#!/bin/sh\nset -eu\nif ! command -v kubelet >/dev/null 2>&1; then\n  {fetch}\nfi\n")
}

/// Nothing that was there before is taken away.
const UNINSTALL: &str = "#!/bin/sh\nexit 0\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_bring_no_text_of_users_into_the_shell() {
        let plain = install(&K8sInstallerConfigSpec::default());
        assert!(plain.contains("command -v kubelet") && plain.contains("exit 1"), "{plain}");
        let repo = "registry.example/k8s'; touch /tmp/x; '".to_owned();
        let script = install(&K8sInstallerConfigSpec { bundle_repo: repo, ..K8sInstallerConfigSpec::default() });
        assert!(script.contains(r"--bundle 'registry.example/k8s'\''; touch /tmp/x; '\''' --output"), "{script}");
    }
}
