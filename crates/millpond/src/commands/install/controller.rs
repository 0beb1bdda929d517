//! `millpond install controller`: everything that runs `millpond controller` in a cluster.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};

use super::Output;
use super::rbac::{Dialect, NAME, NAMESPACE, labels, objects as rights};

const HEALTH_PORT: u16 = 8081;
const METRICS_PORT: u16 = 8443;
/// The user and group of the process: no account of an image, and not root.
const USER: u32 = 65532;
/// Where the controller keeps what is outside the cluster.
const DATA_DIR: &str = "/var/lib/millpond";
/// The end of a namespace's name that kubebuilder leaves out of the names within it, and the end of the Deployment's name.
const NAMESPACE_SUFFIX: &str = "-system";
const MANAGER_SUFFIX: &str = "-controller-manager";
/// The keys of the Secret, and the environment variables with the same names, by which the controller finds vCenter.
const VSPHERE_KEYS: [&str; 3] = ["GOVMOMI_URL", "GOVMOMI_USERNAME", "GOVMOMI_PASSWORD"];

/// Arguments of `millpond install controller`.
#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// Namespace of the Deployment and its service account
    #[arg(short, long, value_name = "NAMESPACE", default_value = NAMESPACE)]
    namespace: String,
    /// Image that has `millpond` on its PATH
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Replicas; one of them leads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=10))]
    replicas: u16,
    /// Secret of the namespace with the address and the credentials of vCenter
    ///
    /// The deployment then has rights on no other Secret, and so none for own hosts and CI nodes.
    #[arg(long, value_name = "NAME")]
    vsphere_secret: Option<String>,
    /// Leave out the rights of a dialect that this cluster does not use
    #[arg(long, value_name = "DIALECT")]
    without: Vec<Dialect>,
    /// A ServiceMonitor as well, for clusters with the Prometheus operator
    #[arg(long)]
    service_monitor: bool,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Output,
}

/// Prints the manifests.
pub(super) fn run(args: &ControllerArgs, out: &mut impl Write) -> anyhow::Result<()> {
    super::print_objects(&objects(args), args.output, out)
}

fn objects(args: &ControllerArgs) -> Vec<Value> {
    // With a vCenter, everything is in one file, including the CRDs.
    let kinds = if args.vsphere_secret.is_some() { millpond_api::crd::all() } else { Vec::new() };
    let without = match args.vsphere_secret {
        Some(_) => &[Dialect::OwnHosts, Dialect::CiNodes],
        None => args.without.as_slice(),
    };
    let mut objects = [kinds, rights(&args.namespace, args.vsphere_secret.as_deref(), without)].concat();
    objects.extend([deployment(args), disruption_budget(args), metrics_service(args)]);
    if args.service_monitor {
        objects.push(service_monitor(args));
    }
    objects
}

fn metadata(args: &ControllerArgs, name: &str) -> Value {
    json!({"name": name, "namespace": args.namespace, "labels": labels()})
}

/// The names of the Deployment and its container. With a vCenter they are those that kubebuilder gives an operator of the
/// namespace: `gpuinfo-controller-manager` and `manager` in `gpuinfo-system`, as the commands of the GPUInfo tutorial have
/// them.
fn names(args: &ControllerArgs) -> (String, &'static str) {
    if args.vsphere_secret.is_none() {
        return (NAME.to_owned(), "controller");
    }
    let prefix = args.namespace.strip_suffix(NAMESPACE_SUFFIX).unwrap_or(&args.namespace);
    (format!("{prefix}{MANAGER_SUFFIX}"), "manager")
}

fn deployment(args: &ControllerArgs) -> Value {
    let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": labels()}, "topologyKey": "kubernetes.io/hostname"},
    }]}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": metadata(args, &names(args).0),
        "spec": {
            "replicas": args.replicas,
            "selector": {"matchLabels": labels()},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    "priorityClassName": "system-cluster-critical",
                    "affinity": affinity,
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    // Time to finish writes that are under way and to give up the Lease.
                    "terminationGracePeriodSeconds": 30,
                    "containers": [container(args)],
                    "volumes": [{"name": "data", "emptyDir": {}}],
                },
            },
        },
    })
}

fn container(args: &ControllerArgs) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "health", "scheme": "HTTPS"}});
    let mut container = json!({
        "name": names(args).1,
        "image": args.image,
        "command": ["millpond", "controller"],
        "args": [
            format!("--health-bind=:{HEALTH_PORT}"),
            format!("--metrics-bind=:{METRICS_PORT}"),
            format!("--leader-namespace={}", args.namespace),
            format!("--data-dir={DATA_DIR}"),
        ],
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "livenessProbe": probe("/livez"),
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": DATA_DIR}],
    });
    if let Some(secret) = &args.vsphere_secret {
        let from_secret =
            |key: &&str| json!({"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}});
        let place = format!("--vsphere-secret={}/{secret}", args.namespace);
        container["args"].as_array_mut().expect("the arguments are a list").push(place.into());
        container["env"] = VSPHERE_KEYS.iter().map(from_secret).collect();
    }
    container
}

fn disruption_budget(args: &ControllerArgs) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata(args, NAME),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
    })
}

fn metrics_service(args: &ControllerArgs) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(args, "millpond-controller-metrics"),
        "spec": {
            "selector": labels(),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
        },
    })
}

fn service_monitor(args: &ControllerArgs) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": metadata(args, NAME),
        "spec": {
            "selector": {"matchLabels": labels()},
            "endpoints": [{
                "port": "metrics", "scheme": "https", "path": "/metrics",
                "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                // The certificate lives as long as the process.
                "tlsConfig": {"insecureSkipVerify": true},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ControllerArgs,
    }

    fn kinds(line: &str) -> Vec<String> {
        let words = format!("controller --image=millpond:1 {line}");
        let args = Cli::parse_from(words.split_whitespace()).args;
        objects(&args).iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn everything_comes_in_the_order_in_which_it_is_applied() {
        let rights = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
        let rest = ["Deployment", "PodDisruptionBudget", "Service"];
        let printed = kinds("");
        assert!(printed.starts_with(&rights.map(str::to_owned)), "{printed:?}");
        assert!(printed.ends_with(&rest.map(str::to_owned)), "{printed:?}");
        let policy = printed.iter().position(|kind| kind == "ValidatingAdmissionPolicy");
        assert!(policy.is_some_and(|at| printed[at + 1] == "ValidatingAdmissionPolicyBinding"), "{printed:?}");
        assert_eq!(kinds("--service-monitor").last().unwrap(), "ServiceMonitor");
    }

    #[test]
    fn the_deployment_has_the_names_of_the_tutorial() {
        let names = |line: &str| {
            let words = format!("controller --image=millpond:1 {line}");
            let objects = objects(&Cli::parse_from(words.split_whitespace()).args);
            let deployment = objects.iter().find(|one| one["kind"] == "Deployment").unwrap();
            let metadata = &deployment["metadata"];
            let container = &deployment["spec"]["template"]["spec"]["containers"][0]["name"];
            [&metadata["namespace"], &metadata["name"], container].map(|name| name.as_str().unwrap().to_owned())
        };
        let tutorial = names("--namespace=gpuinfo-system --vsphere-secret=vc-creds");
        assert_eq!(tutorial, ["gpuinfo-system", "gpuinfo-controller-manager", "manager"]);
        let scaffold = names("--namespace=accelerator-operator-system --vsphere-secret=vc-creds");
        assert_eq!(scaffold[1..], ["accelerator-operator-controller-manager", "manager"]);
        assert_eq!(names("--namespace=gpu --vsphere-secret=vc-creds")[1], "gpu-controller-manager");
        assert_eq!(names(""), ["millpond-system", "millpond-controller", "controller"]);
    }

    #[test]
    fn credentials_are_references_to_a_secret_that_is_not_printed() {
        let words = ["controller", "--image=millpond:1", "--namespace=gpuinfo-system", "--vsphere-secret=vc-creds"];
        let args = Cli::parse_from(words).args;
        let objects = objects(&args);
        assert!(objects.iter().all(|one| one["kind"] != "Secret"));
        let deployment = objects.iter().find(|one| one["kind"] == "Deployment").unwrap();
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let reference = json!({"secretKeyRef": {"name": "vc-creds", "key": "GOVMOMI_PASSWORD"}});
        assert_eq!(env[2], json!({"name": "GOVMOMI_PASSWORD", "valueFrom": reference}));
        assert_eq!(env.as_array().unwrap().len(), 3);
        let kinds: Vec<&str> = objects.iter().map(|one| one["kind"].as_str().unwrap()).collect();
        assert!(kinds.starts_with(&["CustomResourceDefinition"]), "{kinds:?}");
        // Secrets are read by name alone, in the namespace alone.
        for role in objects.iter().filter(|one| matches!(one["kind"].as_str(), Some("Role" | "ClusterRole"))) {
            for rule in role["rules"].as_array().unwrap() {
                if rule["resources"].as_array().unwrap().contains(&json!("secrets")) {
                    assert_eq!((&role["kind"], &rule["resourceNames"]), (&json!("Role"), &json!(["vc-creds"])));
                }
            }
        }
    }
}
