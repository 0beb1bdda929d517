//! `millpond ci create openshiftpods-namespace`: a namespace for pods of the driver `openshiftpods`, with an account that
//! may use it, and a kubeconfig of that account in the Secret `nodepool-providers-secrets`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::{CommonArgs, source};
use crate::commands::{cluster, print};
use crate::failure::Failure;

const ACCOUNT: &str = "nodepool-sa";
const ROLE: &str = "nodepool-role";
const BINDING: &str = "nodepool-rb";
const TOKEN: &str = "nodepool-token";
/// The context of the kubeconfig that is made.
const CONTEXT: &str = "openshiftpods";
const CLUSTER: &str = "OpenshiftPodsCluster";
/// The Secret of all providers' credentials, and its key with contexts.
const PROVIDERS_SECRET: &str = "nodepool-providers-secrets";
const KUBE_CONFIG: &str = "kube.config";
const MANAGER: &str = "millpond";
/// How long the cluster may take to fill in the token of the Secret.
const TOKEN_WITHIN: Duration = Duration::from_secs(3);
/// How long a token lasts that is asked for where the cluster fills in none: as the other one, until it is replaced.
const TOKEN_SECONDS: i64 = 10 * 365 * 24 * 3600;

const ALL_VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

#[derive(Debug, Subcommand)]
pub(crate) enum CreateCommand {
    /// Set up a namespace for pods of the driver `openshiftpods`
    ///
    /// Makes the namespace, the service account `nodepool-sa` with the role `nodepool-role`, and a kubeconfig with the
    /// context `openshiftpods`, which goes into the Secret `nodepool-providers-secrets`. Launchers pick that up.
    #[command(after_help = "Examples:
  millpond ci create openshiftpods-namespace
  millpond ci -n sf create openshiftpods-namespace --nodepool-namespace ci-pods --show-config-template
  millpond ci create openshiftpods-namespace --nodepool-context other --skip-providers-secrets")]
    OpenshiftpodsNamespace(NamespaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NamespaceArgs {
    /// Context of the cluster that gets the namespace; the current one without it
    #[arg(long, value_name = "CONTEXT")]
    nodepool_context: Option<String>,
    /// The namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "nodepool")]
    nodepool_namespace: String,
    /// Print a provider for nodepool.yaml
    #[arg(long)]
    show_config_template: bool,
    /// Print the kubeconfig instead of writing it into the Secret
    #[arg(long)]
    skip_providers_secrets: bool,
}

pub(super) fn run(
    args: &CommonArgs,
    command: &CreateCommand,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let CreateCommand::OpenshiftpodsNamespace(namespace) = command;
    source::runtime()?.block_on(set_up(args, namespace, out, messages))?;
    Ok(ExitCode::SUCCESS)
}

async fn set_up(
    common: &CommonArgs,
    args: &NamespaceArgs,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    let target = Target::find(common, args.nodepool_context.as_deref()).await?;
    let namespace = args.nodepool_namespace.as_str();
    target.prepare(namespace, messages).await?;
    let token = target.token(namespace, messages).await?;
    if target.is_local() {
        writeln!(
            messages,
            "warning: the address of the cluster, {}, is one of this machine: launchers elsewhere cannot use it",
            target.server
        )?;
    }
    let kubeconfig = crate::commands::as_yaml(&target.kubeconfig(namespace, &token))?;
    if args.skip_providers_secrets {
        print(out, &format!("Provider kubeconfig:\n{kubeconfig}"))?;
    } else {
        write_secret(common, &kubeconfig, messages).await?;
    }
    if args.show_config_template {
        print(out, &format!("Nodepool configuration template:\n{}", template(namespace)?))?;
    }
    Ok(())
}

/// The cluster that gets the namespace.
struct Target {
    client: Client,
    server: String,
    ca: Option<String>,
    skip_tls: bool,
}

impl Target {
    async fn find(common: &CommonArgs, context: Option<&str>) -> anyhow::Result<Self> {
        let unusable = "cannot use the kubeconfig";
        let read = match &common.kubeconfig {
            Some(file) => Kubeconfig::read_from(file).with_context(|| format!("cannot read `{}`", file.display()))?,
            None => Kubeconfig::read().context("cannot read the kubeconfig")?,
        };
        let name = context.or(common.context.as_deref()).or(read.current_context.as_deref()).unwrap_or_default();
        let entry = read.contexts.iter().find(|known| known.name == name).and_then(|known| known.context.clone());
        let about = entry.and_then(|entry| {
            read.clusters.iter().find(|known| known.name == entry.cluster).and_then(|known| known.cluster.clone())
        });
        let ca = match about.as_ref().map(|it| (&it.certificate_authority_data, &it.certificate_authority)) {
            Some((Some(data), _)) => Some(data.clone()),
            Some((None, Some(file))) => Some(STANDARD.encode(std::fs::read(PathBuf::from(file)).context(unusable)?)),
            _ => None,
        };
        let options = KubeConfigOptions { context: Some(name.to_owned()), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(read, &options).await.context(unusable)?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let skip_tls = config.accept_invalid_certs;
        let client = Client::try_from(config).context("cannot speak to the cluster")?;
        Ok(Self { client, server, ca, skip_tls })
    }

    fn is_local(&self) -> bool {
        ["https://localhost", "https://127.", "https://[::1]"].iter().any(|start| self.server.starts_with(start))
    }

    /// Namespace, account, role and binding; what is there is left as it is.
    async fn prepare(&self, namespace: &str, messages: &mut impl Write) -> anyhow::Result<()> {
        let meta = |name: &str| json!({"name": name});
        let core = [
            "pods",
            "pods/exec",
            "pods/log",
            "pods/portforward",
            "services",
            "persistentvolumeclaims",
            "configmaps",
            "secrets",
        ];
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        // Beyond the rights of the original: an account for every pod, so that a job's token works for its pod alone.
        let rules = json!([
            rule("", &core, &ALL_VERBS),
            rule("apps", &["deployments", "statefulsets"], &ALL_VERBS),
            rule("", &["serviceaccounts"], &["create", "delete", "get", "list"]),
            rule("", &["serviceaccounts/token"], &["create"]),
            rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &["create", "delete", "get"]),
        ]);
        let subjects = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]);
        let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ROLE});
        let client = &self.client;
        ensure(Api::<Namespace>::all(client.clone()), json!({"metadata": meta(namespace)}), messages).await?;
        let account = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
        ensure(account, json!({"metadata": meta(ACCOUNT)}), messages).await?;
        let role = Api::<Role>::namespaced(client.clone(), namespace);
        ensure(role, json!({"metadata": meta(ROLE), "rules": rules}), messages).await?;
        let binding = json!({"metadata": meta(BINDING), "subjects": subjects, "roleRef": role_ref});
        ensure(Api::<RoleBinding>::namespaced(client.clone(), namespace), binding, messages).await?;
        let annotations = json!({"kubernetes.io/service-account.name": ACCOUNT});
        let secret = json!({
            "metadata": {"name": TOKEN, "annotations": annotations},
            "type": "kubernetes.io/service-account-token",
        });
        ensure(Api::<Secret>::namespaced(client.clone(), namespace), secret, messages).await
    }

    /// The token of the Secret; where the cluster fills in none, one that is bound to the Secret.
    async fn token(&self, namespace: &str, messages: &mut impl Write) -> anyhow::Result<String> {
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let token_in = |secret: &Secret| secret.data.as_ref()?.get("token").map(|token| token.0.clone());
        let filled = |secret: Option<&Secret>| secret.is_some_and(|secret| token_in(secret).is_some());
        if let Ok(filled) = tokio::time::timeout(TOKEN_WITHIN, await_condition(api.clone(), TOKEN, filled)).await {
            let secret = filled.context("cannot watch the Secret with the token")?;
            if let Some(token) = secret.as_ref().and_then(token_in) {
                return String::from_utf8(token).context("the token of the Secret is no text");
            }
        }
        writeln!(messages, "The cluster fills in no token; one is asked for.")?;
        let secret = api.get(TOKEN).await.with_context(|| format!("cannot read the Secret `{namespace}/{TOKEN}`"))?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: secret.metadata.name.clone(),
            uid: secret.metadata.uid.clone(),
        };
        let spec = TokenRequestSpec {
            audiences: None,
            bound_object_ref: Some(bound),
            expiration_seconds: Some(TOKEN_SECONDS),
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let answered = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
        let status = answered.context("cannot get a token for the service account")?.status;
        status.and_then(|status| status.token).context("the cluster gave no token")
    }

    fn kubeconfig(&self, namespace: &str, token: &str) -> Value {
        let mut cluster = json!({"server": self.server});
        if let Some(ca) = &self.ca {
            cluster["certificate-authority-data"] = ca.as_str().into();
        }
        if self.skip_tls {
            cluster["insecure-skip-tls-verify"] = true.into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CLUSTER, "cluster": cluster}],
            "contexts": [{
                "name": CONTEXT, "context": {"cluster": CLUSTER, "namespace": namespace, "user": ACCOUNT},
            }],
            "current-context": CONTEXT,
            "users": [{"name": ACCOUNT, "user": {"token": token}}],
        })
    }
}

/// Creates an object unless there is one of that name.
async fn ensure<K>(api: Api<K>, object: Value, messages: &mut impl Write) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let kind = K::kind(&()).into_owned();
    let mut object = object;
    object["apiVersion"] = K::api_version(&()).into_owned().into();
    object["kind"] = kind.clone().into();
    let object: K = serde_json::from_value(object).context("write an object")?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => writeln!(messages, "{kind} {name} created")?,
        Err(kube::Error::Api(status)) if status.is_already_exists() => writeln!(messages, "{kind} {name} is there")?,
        Err(error) => return Err(anyhow::Error::new(error).context(format!("cannot create {kind} `{name}`"))),
    }
    Ok(())
}

/// Puts the kubeconfig into the Secret of providers; its other keys stay.
async fn write_secret(common: &CommonArgs, kubeconfig: &str, messages: &mut impl Write) -> anyhow::Result<()> {
    let namespace = common.namespace();
    let client = cluster::connect(common.kubeconfig.as_deref(), common.context.as_deref()).await?;
    let api = Api::<Secret>::namespaced(client, namespace);
    let doing = || format!("cannot write the Secret `{namespace}/{PROVIDERS_SECRET}`");
    let there = api.get_opt(PROVIDERS_SECRET).await.with_context(doing)?;
    let known = there.as_ref().and_then(|secret| secret.data.as_ref()?.get(KUBE_CONFIG));
    if known.is_some_and(|known| known.0 == kubeconfig.as_bytes()) {
        writeln!(messages, "Secret \"{PROVIDERS_SECRET}\" already up to date, doing nothing")?;
        return Ok(());
    }
    let data = json!({KUBE_CONFIG: ByteString(kubeconfig.as_bytes().to_vec())});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": PROVIDERS_SECRET}, "data": data,
    });
    let params = PatchParams::apply(MANAGER).force();
    let written = api.patch(PROVIDERS_SECRET, &params, &Patch::Apply(&secret)).await;
    if let Err(kube::Error::Api(status)) = &written
        && status.is_not_found()
    {
        return Err(Failure {
            message: format!("there is no namespace `{namespace}`"),
            code: Some(crate::failure::Code::NotFound),
            hint: Some("`-n NAMESPACE` names the namespace of the launchers".to_owned()),
        }
        .into());
    }
    written.with_context(doing)?;
    writeln!(messages, "Secret {PROVIDERS_SECRET} written")?;
    Ok(())
}

/// A provider for nodepool.yaml.
fn template(namespace: &str) -> anyhow::Result<String> {
    let label = json!({"name": "fedora-latest", "image": "quay.io/fedora/fedora:latest"});
    crate::commands::as_yaml(&json!({"providers": [{
        "name": "openshiftpods",
        "driver": "openshiftpods",
        "context": CONTEXT,
        "pools": [{"name": namespace, "labels": [label]}],
    }]}))
}

#[cfg(test)]
mod tests {
    use millpond_ci::config::{self, File};

    use super::*;

    #[test]
    fn the_template_is_a_configuration() {
        let text = template("ci-pods").unwrap();
        let config = config::read(File { name: "nodepool.yaml", text: &text }, None, &|_| None).valid().unwrap();
        let provider = &config.providers[0];
        assert_eq!((provider.name.as_str(), provider.pools[0].name.as_str()), ("openshiftpods", "ci-pods"));
        assert!(provider.pools[0].labels.contains_key("fedora-latest"));
    }
}
