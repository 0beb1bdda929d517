//! The real cluster with `millpond controller` beside it, and what tests need to see of both.
//!
//! Nothing here sleeps: watches on pods, nodes and claims tell what happened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::select_all;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt as _};
use millpond_providers::sim::Cloud;
use millpond_testkit::{Access, Process, RealCluster};
use serde_json::{Value, json};

use crate::gate::Gate;

/// How long anything may take; only what never happens takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// Controllers that die at a write live for at most so many: with one alone they would reserve and never buy.
const LONGEST_LIFE: usize = 6;

/// Kinds that are in a namespace.
const NAMESPACED: [&str; 6] =
    ["CapacityBuffer", "Deployment", "Pod", "PodDisruptionBudget", "PodTemplate", "ScalingConstraint"];

/// What the watches tell.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) claims: BTreeMap<String, DynamicObject>,
}

enum News {
    Pod(Box<Event<Pod>>),
    Node(Box<Event<Node>>),
    Claim(Box<Event<DynamicObject>>),
}

pub(crate) struct Stack {
    pub(crate) world: World,
    client: Client,
    news: Pin<Box<dyn Stream<Item = Result<News>> + Send>>,
    engine: Option<Process>,
    starts: usize,
    /// What controllers write goes through it.
    pub(crate) gate: Gate,
    /// Ends after the engine.
    cluster: RealCluster,
}

impl Stack {
    /// A cluster with everything but the controllers.
    pub(crate) async fn start() -> Result<Self> {
        let cluster = RealCluster::builder().controller_manager("*").scheduler().kwok().start()?;
        install_crds(&cluster)?;
        let client = cluster.client().await?;
        let config = watcher::Config::default;
        let pods = watcher(Api::<Pod>::default_namespaced(client.clone()), config());
        let nodes = watcher(Api::<Node>::all(client.clone()), config());
        let claims = watcher(api(&client, "karpenter.sh/v1", "NodeClaim"), config());
        let news = select_all([
            pods.map(|event| Ok(News::Pod(Box::new(event?)))).boxed(),
            nodes.map(|event| Ok(News::Node(Box::new(event?)))).boxed(),
            claims.map(|event| Ok(News::Claim(Box::new(event?)))).boxed(),
        ]);
        let gate = Gate::new(controller_client(&cluster).await?, cluster.folder()).await?;
        let mut stack =
            Self { world: World::default(), client, news: Box::pin(news), engine: None, starts: 0, gate, cluster };
        stack.hire(None)?;
        Ok(stack)
    }

    fn data_dir(&self) -> PathBuf {
        self.cluster.folder().join("millpond")
    }

    /// Starts controllers that may write so often, or without an end.
    fn hire(&mut self, writes: Option<usize>) -> Result<()> {
        self.starts += 1;
        self.gate.open(writes);
        let mut command = Command::new(binary());
        command.arg("controller").arg("--kubeconfig").arg(self.gate.kubeconfig());
        command.arg("--data-dir").arg(self.data_dir()).arg("--no-leader-election");
        command.args(["--health-bind", "0", "--metrics-bind", "0"]);
        let label = format!("millpond-{}", self.starts);
        self.engine = Some(Process::spawn(&label, &mut command, self.cluster.folder())?);
        Ok(())
    }

    /// Ends the controllers with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut engine) = self.engine.take() {
            engine.kill()?;
        }
        Ok(())
    }

    /// Starts controllers that are killed at their first write, then others that are killed at their second, and so on,
    /// until the world is as wanted; tells how many died.
    pub(crate) async fn die_until(
        &mut self,
        what: &str,
        wanted: impl Fn(&World) -> bool,
        mut look: impl FnMut(&World) -> Result<()>,
    ) -> Result<usize> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for (deaths, writes) in (1..=LONGEST_LIFE).cycle().enumerate() {
            self.kill()?;
            self.hire(Some(writes))?;
            loop {
                tokio::select! {
                    () = self.gate.shut() => break,
                    news = self.news.next() => self.world.take(news.context("the watches ended")??),
                    () = tokio::time::sleep_until(deadline) => bail!("waited in vain for {what}\n{}", self.describe()),
                }
                look(&self.world).with_context(|| format!("while {what}\n{}", self.describe()))?;
                if wanted(&self.world) {
                    self.kill()?;
                    self.hire(None)?;
                    return Ok(deaths);
                }
            }
        }
        unreachable!("lives go on without an end")
    }

    /// Stops the controllers and tells the ids of all machines that there are.
    pub(crate) fn machines(&mut self) -> Result<Vec<String>> {
        self.kill()?;
        let cloud = Cloud::open(self.data_dir().join("cloud.json"))?;
        let mut ids: Vec<String> =
            cloud.instances(jiff::Timestamp::now()).into_iter().map(|machine| machine.id).collect();
        ids.sort();
        drop(cloud);
        self.hire(None)?;
        Ok(ids)
    }

    /// Creates an object of any kind.
    pub(crate) async fn create(&self, object: Value) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = object["metadata"]["name"].clone();
        let object: DynamicObject = serde_json::from_value(object)?;
        let api = api(&self.client, &version, &kind);
        api.create(&PostParams::default(), &object).await.with_context(|| format!("create {kind} {name}"))?;
        Ok(())
    }

    /// One `kubectl apply`.
    pub(crate) async fn apply(&self, list: Value) -> Result<()> {
        let kubectl = self.cluster.kubectl()?;
        // The gate goes on meanwhile.
        let applying = move || kubectl.run_with_input(&["apply", "-f", "-"], &list.to_string()).map(drop);
        tokio::task::spawn_blocking(applying).await.context("kubectl apply")?
    }

    pub(crate) async fn patch(&self, of: (&str, &str, &str), patch: Value) -> Result<()> {
        let (version, kind, name) = of;
        let api = api(&self.client, version, kind);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("patch {name}"))?;
        Ok(())
    }

    pub(crate) async fn delete(&self, of: (&str, &str, &str)) -> Result<()> {
        let (version, kind, name) = of;
        let api = api(&self.client, version, kind);
        api.delete(name, &DeleteParams::background()).await.with_context(|| format!("delete {name}"))?;
        Ok(())
    }

    pub(crate) async fn class(&self, name: &str, more: Value) -> Result<()> {
        let mut spec = json!({"provider": "sim", "catalog": "kwok"});
        merge(&mut spec, &more);
        let version = "millpond.dev/v1alpha1";
        self.create(json!({"apiVersion": version, "kind": "NodeClass", "metadata": {"name": name}, "spec": spec})).await
    }

    /// A pool of linux nodes of the class `default` that nothing disrupts, and more.
    pub(crate) async fn pool(&self, name: &str, more: Value) -> Result<()> {
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                    "requirements": requirements(&[]),
                }},
                "disruption": {"consolidateAfter": "Never"},
            },
        });
        merge(&mut pool, &more);
        self.create(pool).await
    }

    /// A Deployment of pods that ask for cores.
    pub(crate) async fn deployment(&self, name: &str, replicas: i32, cpu: &str, more: Value) -> Result<()> {
        let mut pod = json!({
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}],
        });
        merge(&mut pod, &more);
        self.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        }))
        .await
    }

    pub(crate) async fn scale(&self, name: &str, replicas: i32) -> Result<()> {
        self.patch(("apps/v1", "Deployment", name), json!({"spec": {"replicas": replicas}})).await
    }

    /// Follows the watches until the world is as wanted.
    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&World) -> bool) -> Result<()> {
        self.until_and(what, wanted, |_| Ok(())).await
    }

    /// The same, and looks at the world after each change.
    pub(crate) async fn until_and(
        &mut self,
        what: &str,
        wanted: impl Fn(&World) -> bool,
        mut look: impl FnMut(&World) -> Result<()>,
    ) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !wanted(&self.world) {
            match tokio::time::timeout_at(deadline, self.news.next()).await {
                Ok(news) => self.world.take(news.context("the watches ended")??),
                Err(_) => bail!("waited in vain for {what}\n{}", self.describe()),
            }
            look(&self.world).with_context(|| format!("while {what}\n{}", self.describe()))?;
        }
        if let Some(engine) = &mut self.engine {
            engine.ensure_running()?;
        }
        Ok(())
    }

    /// Waits until the controllers have written nothing for so long.
    pub(crate) async fn until_quiet_for(&self, time: Duration) -> Result<()> {
        let quiet = tokio::time::timeout(PATIENCE, self.gate.until_quiet_for(time)).await;
        quiet.with_context(|| format!("they never stop writing\n{}", self.describe()))
    }

    fn describe(&self) -> String {
        let log = self.engine.as_ref().map(Process::log_tail).unwrap_or_default();
        format!("{}\n{log}", self.world.describe())
    }

    pub(crate) async fn until_running(&mut self, app: &str, count: usize) -> Result<()> {
        self.until(&format!("{count} pods of {app} run"), |world| world.running(app) == count).await
    }

    /// Takes everything away that a case made, and waits until nothing is left.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        for (version, kind) in
            [("apps/v1", "Deployment"), ("policy/v1", "PodDisruptionBudget"), ("karpenter.sh/v1", "NodePool")]
        {
            let api = api(&self.client, version, kind);
            api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        }
        self.until("everything goes", |world| {
            world.pods.is_empty() && world.nodes.is_empty() && world.claims.is_empty()
        })
        .await?;
        let classes = api(&self.client, "millpond.dev/v1alpha1", "NodeClass");
        classes.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        Ok(())
    }
}

impl World {
    fn take(&mut self, news: News) {
        match news {
            News::Pod(event) => follow(&mut self.pods, *event),
            News::Node(event) => follow(&mut self.nodes, *event),
            News::Claim(event) => follow(&mut self.claims, *event),
        }
    }

    pub(crate) fn of_app<'w>(&'w self, app: &'w str) -> impl Iterator<Item = &'w Pod> {
        self.pods.values().filter(move |pod| pod.labels().get("app").is_some_and(|label| label == app))
    }

    /// Pods that run and stay.
    pub(crate) fn running(&self, app: &str) -> usize {
        self.of_app(app).filter(|pod| is_running(pod) && pod.metadata.deletion_timestamp.is_none()).count()
    }

    pub(crate) fn ready(&self, app: &str) -> usize {
        self.of_app(app).filter(|pod| is_ready(pod)).count()
    }

    /// The node of the only pod of an app.
    pub(crate) fn node_of(&self, app: &str) -> Result<&Node> {
        let pod = self.of_app(app).next().with_context(|| format!("no pod of {app}"))?;
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("the pod has no node")?;
        self.nodes.get(name).with_context(|| format!("no node {name}"))
    }

    /// Nodes by type.
    pub(crate) fn types(&self) -> BTreeMap<&str, usize> {
        let mut types = BTreeMap::new();
        for node in self.nodes.values() {
            *types.entry(label(node, "node.kubernetes.io/instance-type")).or_default() += 1;
        }
        types
    }

    /// Ids of the machines that claims name.
    pub(crate) fn machines(&self) -> Vec<String> {
        let id = |claim: &DynamicObject| claim.data["status"]["providerID"].as_str().unwrap_or_default().to_owned();
        let mut ids: Vec<String> = self.claims.values().map(id).collect();
        ids.sort();
        ids
    }

    fn describe(&self) -> String {
        let mut lines = Vec::new();
        for (name, claim) in &self.claims {
            let conditions = claim.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let conditions =
                conditions.iter().map(|one| format!("{}={} {}", one["type"], one["status"], one["message"]));
            let leaving = claim.metadata.deletion_timestamp.is_some();
            lines.push(format!("claim {name} leaving={leaving} {}", conditions.collect::<Vec<_>>().join("; ")));
        }
        for (name, node) in &self.nodes {
            lines.push(format!(
                "node {name} gone={:?} {:?}",
                node.metadata.deletion_timestamp,
                node.spec.as_ref().and_then(|spec| spec.taints.as_ref())
            ));
        }
        for (name, pod) in &self.pods {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            lines.push(format!("pod {name} {phase:?} on {node:?}, nominated {nominated:?}"));
        }
        lines.join("\n")
    }
}

fn follow<K: kube::Resource>(known: &mut BTreeMap<String, K>, event: Event<K>) {
    match event {
        Event::Init => known.clear(),
        Event::InitApply(object) | Event::Apply(object) => drop(known.insert(object.name_any(), object)),
        Event::Delete(object) => drop(known.remove(&object.name_any())),
        Event::InitDone => {}
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// The label of a node.
pub(crate) fn label<'n>(node: &'n Node, key: &str) -> &'n str {
    node.labels().get(key).map_or("", String::as_str)
}

/// Whether a condition of a claim is true.
pub(crate) fn holds(claim: &DynamicObject, condition: &str) -> bool {
    let conditions = claim.data["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["status"] == "True"))
}

/// On-demand linux nodes, of so many cores if that is said.
pub(crate) fn requirements(cores: &[&str]) -> Value {
    let one_of = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let mut all = vec![
        one_of("kubernetes.io/os", &["linux"]),
        one_of("kubernetes.io/arch", &["amd64"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
    ];
    if !cores.is_empty() {
        all.push(one_of("karpenter.kwok.sh/instance-cpu", cores));
    }
    Value::Array(all)
}

/// Merges objects, the second into the first.
pub(crate) fn merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        if value.is_object() && target[key].is_object() {
            merge(&mut target[key], value);
        } else {
            target[key] = value.clone();
        }
    }
}

fn api(client: &Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = match (GroupVersionKind::gvk(group, version, kind), kind) {
        // No plural that can be told from the kind.
        (kind, "ClusterLimits") => ApiResource::from_gvk_with_plural(&kind, "clusterlimits"),
        (kind, _) => ApiResource::from_gvk(&kind),
    };
    if NAMESPACED.contains(&kind) {
        Api::default_namespaced_with(client.clone(), &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_millpond"))
}

/// A client with the rights that `millpond install rbac` gives, and no other ones.
async fn controller_client(cluster: &RealCluster) -> Result<Client> {
    let kubectl = cluster.kubectl()?;
    kubectl.run_with_input(
        &["apply", "-f", "-"],
        &printed(&["install", "rbac", "--without", "own-hosts", "--without", "ci-nodes"])?,
    )?;
    let arguments = ["create", "token", "millpond-controller", "--namespace=millpond-system", "--duration=4h"];
    let access = Access { token: Some(kubectl.run(&arguments)?.trim().to_owned()), ..cluster.access().clone() };
    let file = cluster.folder().join("controller.kubeconfig");
    access.write(&file)?;
    let kubeconfig = Kubeconfig::read_from(&file)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// What a command of the binary prints.
pub(crate) fn printed(arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary()).args(arguments).output().context("run millpond")?;
    ensure!(output.status.success(), "`millpond {arguments:?}`: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn install_crds(cluster: &RealCluster) -> Result<()> {
    let kubectl = cluster.kubectl()?;
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &printed(&["install", "crds"])?)?;
    kubectl.run(&["wait", "--for=condition=Established", "--timeout=60s", "crds", "--all"])?;
    Ok(())
}
