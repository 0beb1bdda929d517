//! Builds the objects of a deployment. Pure.

use std::collections::BTreeMap;

use millpond_api::ci::{Limits, NodepoolSpec};
use serde_json::{Map, Value, json};

use crate::builder::ssh;

/// The Deployment of launchers, its Service, and the value of their label `run`.
pub const LAUNCHER: &str = "nodepool-launcher";
/// The StatefulSet of the image builder, its volume, and the value of its label `run`.
pub(super) const BUILDER: &str = "nodepool-builder";
/// The port of the launcher's web API.
pub const LAUNCHER_PORT: u16 = 8006;
/// The ConfigMap with `nodepool.yaml` and `nodepool-builder.yaml`: what the config repository has, behind what the
/// deployment needs.
pub const CONFIG: &str = "nodepool-config";

/// The Secret with certificates of clients of ZooKeeper.
const ZOOKEEPER_TLS: &str = "zookeeper-client-tls";
/// The Secret with credentials of providers.
const PROVIDERS: &str = "nodepool-providers-secrets";
const PROVIDERS_FOLDER: &str = "/etc/nodepool-providers";
/// The Secret with the token of the web API.
const WEB_TOKEN: &str = "nodepool-web-token";
const WEB_TOKEN_FILE: &str = "/etc/nodepool-web/token";
/// The user and group of the processes: not root. The image has an account for it, without which `ssh` refuses to run.
const USER: u32 = 10001;
/// Where the service of ZooKeeper is in a deployment of Software Factory.
const ZOOKEEPER: (&str, u16) = ("zookeeper", 2281);
/// Defaults of the original.
const DEFAULT_MEMORY: &str = "2Gi";
const DEFAULT_CPU: &str = "500m";
const DEFAULT_STORAGE: &str = "1Gi";

/// The inputs of a deployment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Deployment {
    /// Its namespace.
    pub namespace: String,
    /// The image with `millpond`, and with a shell and an SSH client.
    pub image: String,
    /// The domain: the API is at `https://FQDN/nodepool/api/`.
    pub fqdn: Option<String>,
    /// Launchers; all of them work.
    pub replicas: u32,
    /// Settings of launcher and builder.
    pub nodepool: NodepoolSpec,
    /// Labels of everything.
    pub extra_labels: BTreeMap<String, String>,
    /// Whether the image builder is wanted.
    pub builder: bool,
}

/// Everything, in the order in which it is applied.
pub fn manifests(deployment: &Deployment) -> Vec<Value> {
    let mut objects = vec![service_account(deployment), launcher(deployment), service(deployment), budget(deployment)];
    if deployment.builder {
        objects.push(builder(deployment));
    }
    if let Some(fqdn) = &deployment.fqdn {
        objects.push(ingress(deployment, fqdn));
    }
    objects
}

/// The ConfigMap with what a deployment itself needs of nodepool.yaml. What the config repository has comes behind it, so
/// one that is there already is left as it is. Without servers, ZooKeeper is where Software Factory has it.
pub fn configuration(namespace: &str, servers: &[(String, u16)]) -> Value {
    use std::fmt::Write as _;
    let usual = [(ZOOKEEPER.0.to_owned(), ZOOKEEPER.1)];
    let servers = if servers.is_empty() { &usual } else { servers };
    let mut text = format!("webapp:\n  port: {LAUNCHER_PORT}\n  listen_address: 0.0.0.0\nzookeeper-servers:\n");
    for (host, port) in servers {
        // A text of JSON is one of YAML, whatever is in it.
        let _ = writeln!(text, "  - host: {}\n    port: {port}", Value::from(host.as_str()));
    }
    text += "zookeeper-tls:\n  ca: /tls/client/ca.crt\n  cert: /tls/client/tls.crt\n  key: /tls/client/tls.key\n";
    text += "images-dir: /var/lib/nodepool/dib\nbuild-log-dir: /var/lib/nodepool/builds/logs\n";
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG, "namespace": namespace, "labels": {"app": "sf"}},
        "data": {"nodepool.yaml": text, "nodepool-builder.yaml": text},
    })
}

fn metadata(deployment: &Deployment, name: &str) -> Value {
    json!({"name": name, "namespace": deployment.namespace, "labels": labels(deployment, name)})
}

fn labels(deployment: &Deployment, run: &str) -> Value {
    let mut labels: Map<String, Value> =
        deployment.extra_labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    labels.insert("app".to_owned(), "sf".into());
    labels.insert("run".to_owned(), run.into());
    labels.into()
}

fn selector(run: &str) -> Value {
    json!({"app": "sf", "run": run})
}

fn service_account(deployment: &Deployment) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(deployment, LAUNCHER),
        // With ZooKeeper, the pod does not use this cluster's API.
        "automountServiceAccountToken": false,
    })
}

fn launcher(deployment: &Deployment) -> Value {
    let probe = json!({"httpGet": {"path": "/ready", "port": "nlwebapp", "scheme": "HTTPS"}});
    let mut container = container(deployment, "launcher", deployment.nodepool.launcher.limits.as_ref());
    container["command"] =
        json!(["millpond", "ci", "launcher", "-c", "/etc/nodepool/nodepool.yaml", "--token-file", WEB_TOKEN_FILE,]);
    container["env"] = env(deployment.nodepool.launcher.log_level.as_deref());
    container["ports"] = json!([{"name": "nlwebapp", "containerPort": LAUNCHER_PORT}]);
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        container[name] = probe.clone();
    }
    container["startupProbe"]["failureThreshold"] = 30.into();
    push(&mut container["volumeMounts"], mount("web-token", "/etc/nodepool-web"));
    let mut volumes = volumes();
    push(&mut volumes, secret("web-token", WEB_TOKEN));
    let spread = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": selector(LAUNCHER)}, "topologyKey": "kubernetes.io/hostname"},
    }]}});
    let mut pod = pod(container, volumes);
    pod["affinity"] = spread;
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(deployment, LAUNCHER),
        "spec": {
            "replicas": deployment.replicas,
            "selector": {"matchLabels": selector(LAUNCHER)},
            "template": {"metadata": {"labels": labels(deployment, LAUNCHER)}, "spec": pod},
        },
    })
}

fn builder(deployment: &Deployment) -> Value {
    let spec = &deployment.nodepool.builder;
    let mut container = container(deployment, BUILDER, spec.limits.as_ref());
    container["command"] = json!(["millpond", "ci", "builder", "-c", "/etc/nodepool/nodepool-builder.yaml"]);
    container["env"] = env(spec.log_level.as_deref());
    push(&mut container["volumeMounts"], mount(BUILDER, "/var/lib/nodepool"));
    for (volume, path) in ["ssh-key", "known-hosts"].into_iter().zip(ssh::MOUNTS) {
        push(&mut container["volumeMounts"], mount(volume, path));
    }
    let mut volumes = volumes();
    push(&mut volumes, secret("ssh-key", ssh::SECRET));
    push(&mut volumes, json!({"name": "known-hosts", "configMap": {"name": ssh::CONFIG_MAP, "optional": true}}));
    let mut claim = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": spec.storage.size.as_deref().unwrap_or(DEFAULT_STORAGE)}},
    });
    if let Some(class) = &spec.storage.class_name {
        claim["storageClassName"] = class.as_str().into();
    }
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata(deployment, BUILDER),
        "spec": {
            "replicas": 1,
            "serviceName": BUILDER,
            "selector": {"matchLabels": selector(BUILDER)},
            "template": {
                "metadata": {"labels": labels(deployment, BUILDER)}, "spec": pod(container, volumes),
            },
            "volumeClaimTemplates": [{"metadata": {"name": BUILDER}, "spec": claim}],
        },
    })
}

fn container(deployment: &Deployment, name: &str, limits: Option<&Limits>) -> Value {
    let limit = |of: fn(&Limits) -> Option<&String>, default: &str| {
        limits.and_then(of).cloned().unwrap_or_else(|| default.to_owned())
    };
    json!({
        "name": name,
        "image": deployment.image,
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {
                "cpu": limit(|it| it.cpu.as_ref(), DEFAULT_CPU), "memory": limit(|it| it.memory.as_ref(), DEFAULT_MEMORY),
            },
        },
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            mount("config", "/etc/nodepool"),
            mount("zookeeper-client-tls", "/tls/client"),
            mount("providers", PROVIDERS_FOLDER),
        ],
    })
}

fn env(log_level: Option<&str>) -> Value {
    let level = log_level.unwrap_or("INFO").to_lowercase();
    json!([
        {"name": "MILLPOND_LOG", "value": level},
        // Mounted as a folder, so that a changed Secret arrives without a restart.
        {"name": "KUBECONFIG", "value": format!("{PROVIDERS_FOLDER}/kube.config")},
        {"name": "OS_CLIENT_CONFIG_FILE", "value": format!("{PROVIDERS_FOLDER}/clouds.yaml")},
    ])
}

fn volumes() -> Value {
    json!([
        {"name": "config", "configMap": {"name": CONFIG}},
        secret("zookeeper-client-tls", ZOOKEEPER_TLS),
        secret("providers", PROVIDERS),
    ])
}

/// A volume with a Secret that may come later.
fn secret(volume: &str, name: &str) -> Value {
    json!({"name": volume, "secret": {"secretName": name, "optional": true, "defaultMode": 0o440}})
}

fn mount(volume: &str, path: &str) -> Value {
    let read_only = volume != BUILDER;
    json!({"name": volume, "mountPath": path, "readOnly": read_only})
}

fn push(list: &mut Value, value: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(value);
    }
}

fn pod(container: Value, volumes: Value) -> Value {
    json!({
        "serviceAccountName": LAUNCHER,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        // Time to give back locks and to finish writes.
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": volumes,
    })
}

fn service(deployment: &Deployment) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(deployment, LAUNCHER),
        "spec": {
            "selector": selector(LAUNCHER),
            "ports": [{"name": "nlwebapp", "port": LAUNCHER_PORT, "targetPort": "nlwebapp"}],
        },
    })
}

fn budget(deployment: &Deployment) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(deployment, LAUNCHER),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(LAUNCHER)}},
    })
}

fn ingress(deployment: &Deployment, fqdn: &str) -> Value {
    let mut metadata = metadata(deployment, LAUNCHER);
    // The launcher speaks TLS, with a certificate of its own.
    metadata["annotations"] = json!({"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"});
    let backend = json!({"service": {"name": LAUNCHER, "port": {"name": "nlwebapp"}}});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata,
        "spec": {"rules": [{
            "host": fqdn,
            "http": {"paths": [{"path": "/nodepool/api", "pathType": "Prefix", "backend": backend}]},
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Deployment {
        Deployment {
            namespace: "sf".to_owned(),
            image: "millpond:1".to_owned(),
            fqdn: Some("sf.example.com".to_owned()),
            replicas: 2,
            builder: true,
            ..Deployment::default()
        }
    }

    #[test]
    fn names_are_those_of_software_factory() {
        let objects = manifests(&deployment());
        let names: Vec<(&str, &str)> =
            objects.iter().filter_map(|it| Some((it["kind"].as_str()?, it["metadata"]["name"].as_str()?))).collect();
        assert_eq!(
            names,
            [
                ("ServiceAccount", "nodepool-launcher"),
                ("Deployment", "nodepool-launcher"),
                ("Service", "nodepool-launcher"),
                ("PodDisruptionBudget", "nodepool-launcher"),
                ("StatefulSet", "nodepool-builder"),
                ("Ingress", "nodepool-launcher"),
            ]
        );
        let template = &objects[1]["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["run"], "nodepool-launcher");
        assert_eq!(template["spec"]["containers"][0]["name"], "launcher");
        assert_eq!(objects[4]["spec"]["template"]["spec"]["containers"][0]["name"], "nodepool-builder");
        assert_eq!(objects[5]["spec"]["rules"][0]["http"]["paths"][0]["path"], "/nodepool/api");
    }

    #[test]
    fn the_builder_has_its_key_and_accepted_host_keys_as_folders() {
        let objects = manifests(&deployment());
        let pod = &objects[4]["spec"]["template"]["spec"];
        let mounted = |path: &str| {
            let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
            let name = &mounts.iter().find(|it| it["mountPath"] == path).unwrap()["name"];
            pod["volumes"].as_array().unwrap().iter().find(|it| it["name"] == *name).unwrap().clone()
        };
        assert_eq!(mounted(ssh::MOUNTS[0])["secret"]["secretName"], "nodepool-builder-ssh-key");
        let accepted = mounted(ssh::MOUNTS[1]);
        assert_eq!(accepted["configMap"], json!({"name": "nodepool-builder-known-hosts", "optional": true}));
    }

    #[test]
    fn settings_reach_the_containers() {
        let mut deployment = deployment();
        deployment.nodepool = serde_json::from_value(json!({
            "launcher": {"logLevel": "DEBUG", "limits": {"memory": "4Gi", "cpu": "2"}},
            "builder": {"storage": {"size": "20Gi", "className": "fast"}},
        }))
        .unwrap();
        let objects = manifests(&deployment);
        let container = &objects[1]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"], json!({"cpu": "2", "memory": "4Gi"}));
        assert_eq!(container["env"][0], json!({"name": "MILLPOND_LOG", "value": "debug"}));
        let claim = &objects[4]["spec"]["volumeClaimTemplates"][0]["spec"];
        assert_eq!(
            (&claim["resources"]["requests"]["storage"], &claim["storageClassName"]),
            (&"20Gi".into(), &"fast".into())
        );
    }

    #[test]
    fn no_secret_is_printed_and_every_one_may_come_later() {
        for object in manifests(&deployment()) {
            assert_ne!(object["kind"], "Secret");
            let volumes = object["spec"]["template"]["spec"]["volumes"].as_array().cloned().unwrap_or_default();
            for volume in volumes.iter().filter(|volume| volume["secret"].is_object()) {
                assert_eq!(volume["secret"]["optional"], true, "{volume}");
            }
        }
    }
}
