//! CI nodes without ZooKeeper: `up --ci-config`, `millpond ci`, the web API, and the binary under other names.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use http::Request;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use millpond_testkit::{EmbeddedServer, free_port};
use serde_json::{Value, json};

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");

/// Hosts that are called fake are not connected to.
fn static_config(port: u16, hosts: usize) -> String {
    let hosts: Vec<Value> = (0..hosts)
        .map(|host| json!({"name": format!("fake-host-{host}"), "labels": "fedora", "username": "ci"}))
        .collect();
    let provider = json!({"name": "rack", "driver": "static", "pools": [{"name": "main", "nodes": hosts}]});
    json!({"webapp": {"port": port}, "labels": [{"name": "fedora"}], "providers": [provider]}).to_string()
}

struct Site {
    server: EmbeddedServer,
    folder: tempfile::TempDir,
    port: u16,
}

impl Site {
    fn start(config: impl Fn(u16) -> String) -> Result<Self> {
        let (folder, port) = (tempfile::tempdir()?, free_port()?);
        let file = folder.path().join("nodepool.yaml");
        std::fs::write(&file, config(port))?;
        let file = file.to_str().context("a path is text")?;
        let server = EmbeddedServer::start(Path::new(MILLPOND), &["--memory", "--ci-config", file])?;
        Ok(Self { server, folder, port })
    }

    fn command(&self, program: &Path, line: &str) -> Output {
        let mut command = Command::new(program);
        command.args(line.split_whitespace()).env("KUBECONFIG", self.server.kubeconfig());
        command.current_dir(self.folder.path()).output().expect("it runs")
    }

    fn run(&self, line: &str) -> Output {
        self.command(Path::new(MILLPOND), line)
    }

    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "`{line}`: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(line)).expect("JSON")
    }

    async fn get(&self, path: &str, accept: &str) -> Result<(u16, String)> {
        self.ask(Request::get(path).header("accept", accept).body(Vec::new())?, None).await
    }

    async fn ask(&self, request: Request<Vec<u8>>, token: Option<&str>) -> Result<(u16, String)> {
        let mut config = Config::new(format!("http://127.0.0.1:{}", self.port).parse()?);
        config.auth_info.token = token.map(|token| token.to_owned().into());
        Ok(match Client::try_from(config)?.request_text(request).await {
            Ok(text) => (200, text),
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            Err(error) => return Err(error.into()),
        })
    }

    /// Waits until all nodes of the record satisfy a condition.
    async fn until(&self, condition: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("millpond.dev", "v1alpha1", "CINode"));
        let api: Api<DynamicObject> = Api::all_with(self.server.client().await?, &kind);
        let mut events = std::pin::pin!(kube::runtime::watcher(api.clone(), Default::default()));
        use futures::TryStreamExt as _;
        loop {
            events.try_next().await?.context("the watch ended")?;
            let nodes = api.list(&Default::default()).await?.items;
            let nodes: Vec<Value> = nodes.into_iter().map(|node| serde_json::to_value(node).expect("JSON")).collect();
            if condition(&nodes) {
                return Ok(nodes);
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn states(nodes: &[Value]) -> Vec<&str> {
    nodes.iter().map(|node| node["status"]["state"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_request_gets_nodes_and_gives_them_back() -> Result<()> {
    let site = Site::start(|port| static_config(port, 3))?;
    let printed = site.ok("ci request create --label fedora --count 2 --name build-1 --requestor me --wait");
    assert!(printed.starts_with("noderequest.millpond.dev/build-1 fulfilled\n"), "{printed}");
    let request = site.json("ci request get build-1 -o json");
    assert_eq!((&request["kind"], &request["status"]["state"]), (&"NodeRequest".into(), &"fulfilled".into()));
    let nodes = request["status"]["nodes"].as_array().context("nodes")?;
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        assert_eq!(
            (&node["label"], &node["provider"], &node["pool"]),
            (&"fedora".into(), &"rack".into(), &"main".into())
        );
        assert_eq!((&node["connectionPort"], &node["connectionType"]), (&22.into(), &"ssh".into()));
        assert_eq!((&node["username"], &node["hostKeys"][0]), (&"ci".into(), &"ssh-rsa FAKEKEY".into()));
        assert_eq!(node["interfaceIP"], node["hostname"]);
    }
    assert_ne!(nodes[0]["id"], nodes[1]["id"]);

    let listed = site.json("ci list -o json");
    let listed = listed.as_array().context("a list")?;
    let states: Vec<&str> = listed.iter().filter_map(|node| node["state"].as_str()).collect();
    assert_eq!(states.iter().filter(|state| **state == "in-use").count(), 2, "{states:?}");
    let used: Vec<&Value> = listed.iter().filter(|node| node["allocated_to"] == "default/build-1").collect();
    assert!(used.iter().all(|node| node["locked"] == "locked"), "{used:?}");
    let text = site.ok("ci list -o json");
    let place = |key: &str| text.find(&format!("\"{key}\"")).unwrap_or_else(|| panic!("{key} in {text}"));
    assert!(["id", "provider", "label", "server_id", "public_ipv4"].windows(2).all(|it| place(it[0]) < place(it[1])));
    let table = site.ok("ci request list");
    assert!(table.contains("build-1") && table.contains("fedora x2") && table.contains("fulfilled"), "{table}");
    assert!(
        site.ok("ci request-list").contains("| default/build-1 | 0        | fulfilled | me "),
        "the original's columns"
    );

    assert_eq!(site.ok("ci request delete build-1"), "noderequest.millpond.dev \"build-1\" deleted\n");
    let given_back: Vec<String> = nodes.iter().filter_map(|node| node["id"].as_str().map(str::to_owned)).collect();
    let nodes =
        site.until(|nodes| nodes.len() == 3 && nodes.iter().all(|node| node["status"]["state"] == "ready")).await?;
    // A host that was used is registered anew, under another id.
    assert!(nodes.iter().all(|node| !given_back.contains(&node["metadata"]["name"].as_str().unwrap().to_owned())));
    Ok(())
}

#[test]
fn what_can_never_be_met_fails_at_once_and_says_why() -> Result<()> {
    let site = Site::start(|port| static_config(port, 1))?;
    for line in ["ci request create --label none --name a --wait", "ci request create --label none --name b"] {
        let output = site.run(line);
        assert_eq!(output.status.code(), Some(3), "{line}");
        let name = if line.ends_with("--wait") { "a" } else { "b" };
        let told = text(&output.stderr);
        let line = told.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
        assert_eq!(line, format!("error: the request `{name}` failed: no pool has the label `none`"));
    }
    let request = site.json("ci request get a -o json");
    assert_eq!(request["status"]["state"], "failed");
    assert_eq!(request["status"]["declinedBy"], json!(["PoolWorker.rack-main"]));
    assert_eq!(request["status"]["reasons"][0]["reason"], "UnknownLabel");
    let output = site.run("ci request create --label fedora --count 5 --wait");
    assert_eq!(output.status.code(), Some(4));
    // One that has to wait says for what.
    site.ok("ci request create --label fedora --name first --wait");
    let output = site.run("ci request create --label fedora --name second --wait --timeout 1");
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("all hosts with these labels are in use"), "{}", text(&output.stderr));
    let told = site.ok("explain request/second");
    assert!(told.starts_with("Request default/second for fedora: requested\n"), "{told}");
    assert!(told.contains("NoFreeHost") && told.contains("PoolWorker.rack-main"), "{told}");
    // It gets the host as soon as the other one gives it back.
    site.ok("ci request delete first");
    let printed = site.ok("ci request get second -o json");
    assert!(printed.contains("second"));
    assert_eq!(site.run("explain request/none").status.code(), Some(3));
    Ok(())
}

#[tokio::test]
async fn nodes_are_held_and_deleted_by_hand() -> Result<()> {
    let site = Site::start(|port| static_config(port, 2))?;
    let nodes = site.until(|nodes| states(nodes) == ["ready", "ready"]).await?;
    let id = |index: usize| nodes[index]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let printed = site.ok(&format!("ci hold {}", id(0)));
    assert!(printed.contains("| hold ") && printed.lines().count() == 5, "{printed}");
    // Deleted, and the host is there again under another id; the one on hold stays.
    let printed = site.ok(&format!("ci delete {} --now", id(1)));
    assert!(printed.starts_with('+'), "{printed}");
    let nodes = site.until(|nodes| states(nodes) == ["hold", "ready"]).await?;
    assert!(nodes.iter().all(|node| node["metadata"]["name"] != id(1).as_str()));
    let output = site.run("ci hold 0000999999");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "Node id 0000999999 not found\n".to_owned()));
    assert_eq!(site.ok("ci delete none"), "Node id none not found\n");
    let printed = site.ok("ci info rack");
    assert!(printed.starts_with("ZooKeeper data for provider rack\n\nImage data:\n+"), "{printed}");
    assert!(printed.contains("| fake-host-0 |"), "{printed}");
    assert_eq!(
        site.ok("ci image-list").lines().nth(1),
        Some("| Build ID | Upload ID | Provider | Image | Provider Image Name | Provider Image ID | State | Age |")
    );
    Ok(())
}

#[tokio::test]
async fn the_web_api_is_nodepools() -> Result<()> {
    let site = Site::start(|port| static_config(port, 1))?;
    let nodes = site.until(|nodes| states(nodes) == ["ready"]).await?;
    let id = nodes[0]["metadata"]["name"].as_str().context("a name")?;
    assert_eq!(site.get("/ready", "*/*").await?, (200, "OK".to_owned()));
    for prefix in ["", "/nodepool/api"] {
        let (status, table) = site.get(&format!("{prefix}/node-list?fields=id,state"), "*/*").await?;
        assert_eq!(status, 200);
        assert_eq!(table.lines().nth(1), Some("| ID         | State |"));
        let (_, list) = site.get(&format!("{prefix}/node-list"), "application/json").await?;
        let list: Value = serde_json::from_str(&list)?;
        assert_eq!((&list[0]["id"], &list[0]["label"]), (&id.into(), &json!(["fedora"])));
        assert_eq!(site.get(&format!("{prefix}/none"), "*/*").await?.0, 404);
    }
    assert_eq!(site.get("/label-list", "application/json").await?.1, r#"[{"label":"fedora"}]"#);
    let (_, metrics) = site.get("/metrics", "*/*").await?;
    assert!(metrics.contains("nodepool_nodes{state=\"ready\"} 1\n"), "{metrics}");
    let hold = || Request::post(format!("/node/{id}/hold")).body(Vec::new());
    assert_eq!(site.ask(hold()?, None).await?.0, 401);
    assert_eq!(site.ask(hold()?, Some("none")).await?.0, 401);
    let admin = site.server.access().token.clone();
    assert_eq!(site.ask(hold()?, admin.as_deref()).await?.0, 200);
    site.until(|nodes| states(nodes) == ["hold"]).await?;
    Ok(())
}

#[test]
fn under_another_name_the_binary_has_the_verbs_of_that_name() -> Result<()> {
    let site = Site::start(|port| static_config(port, 1))?;
    let link = |name: &str| {
        let path = site.folder.path().join(name);
        std::os::unix::fs::symlink(MILLPOND, &path).map(|()| path)
    };
    let nodepool = link("nodepool")?;
    let listed = site.command(&nodepool, "-c nodepool.yaml list --detail");
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(text(&listed.stdout).contains("| Driver Data |"), "{}", text(&listed.stdout));
    assert_eq!(site.command(&nodepool, "-c nodepool.yaml config-validate").status.code(), Some(0));
    assert_eq!(site.command(&nodepool, "").status.code(), Some(1));
    assert_eq!(site.command(&nodepool, "request list").status.code(), Some(2));
    std::fs::write(site.folder.path().join("bad.yaml"), "labels:\n  - name: a\n    colour: red\n")?;
    let output = site.command(&nodepool, "-c bad.yaml config-validate");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("bad.yaml:3:5"), "{}", text(&output.stderr));
    let sf_operator = link("sf-operator")?;
    let output = site.command(&sf_operator, "--namespace default nodepool get builder-ssh-key");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("Secret nodepool-builder-ssh-key not found in namespace default"));
    Ok(())
}

/// What the seed does: a namespace for pods, its context in the providers' Secret, a pod for a label.
#[tokio::test]
async fn pods_of_an_existing_namespace() -> Result<()> {
    let config = |port: u16| {
        let label = json!({"name": "my-pod", "image": "quay.io/fedora/fedora:latest", "labels": {"team": "ci"}});
        let provider = json!({
            "name": "openshift-pods", "driver": "openshiftpods", "context": "openshiftpods",
            "pools": [{"name": "ci-pods", "labels": [label]}],
        });
        json!({"webapp": {"port": port}, "providers": [provider]}).to_string()
    };
    let site = Site::start(config)?;
    let client = site.server.client().await?;
    let sf_operator = site.folder.path().join("sf-operator");
    std::os::unix::fs::symlink(MILLPOND, &sf_operator)?;
    let line = "-n default nodepool create openshiftpods-namespace --nodepool-namespace ci-pods --show-config-template";
    let output = site.command(&sf_operator, line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("Nodepool configuration template:\nproviders:\n"),
        "{}",
        text(&output.stdout)
    );
    Api::<Namespace>::all(client.clone()).get("ci-pods").await?;
    let secret = Api::<Secret>::namespaced(client.clone(), "default").get("nodepool-providers-secrets").await?;
    let kubeconfig = text(&secret.data.context("data")?["kube.config"].0);
    assert!(kubeconfig.contains("current-context: openshiftpods"), "{kubeconfig}");

    // A place for pods, as nothing else runs here.
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        },
    });
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let untainted = json!({"spec": {"taints": null}});
    nodes.patch("worker", &PatchParams::default(), &Patch::Merge(untainted)).await?;

    site.ok("ci request create --label my-pod --name job-1 --wait");
    let request = site.json("ci request get job-1 -o json");
    let node = &request["status"]["nodes"][0];
    assert_eq!((&node["connectionType"], &node["namespace"]), (&"kubectl".into(), &"ci-pods".into()));
    let (pod, secret) = (node["pod"].as_str().context("a pod")?, node["secretName"].as_str().context("a Secret")?);
    assert_eq!(pod, format!("my-pod-{}", node["id"].as_str().context("an id")?));
    let pods = Api::<Pod>::namespaced(client.clone(), "ci-pods");
    let made = pods.get(pod).await?;
    let labels = made.metadata.labels.clone().context("labels")?;
    assert_eq!((labels["team"].as_str(), labels["nodepool_provider_name"].as_str()), ("ci", "openshift-pods"));

    // No token is in a list; the one in the Secret works. What it may do, the real API server judges: `real_pods`.
    let secret = Api::<Secret>::namespaced(client.clone(), "default").get(secret).await?;
    let data = secret.data.context("data")?;
    let token = text(&data["token"].0);
    for line in ["ci list -o json", "ci request list -o json", "ci list --detail"] {
        assert!(!site.ok(line).contains(&token), "{line} shows a token");
    }
    let own = site.folder.path().join("node.kubeconfig");
    std::fs::write(&own, &data["kubeconfig"].0)?;
    let options = kube::config::KubeConfigOptions::default();
    let own = kube::config::Kubeconfig::read_from(&own)?;
    let own = Client::try_from(Config::from_custom_kubeconfig(own, &options).await?)?;
    let seen = Api::<Pod>::namespaced(own.clone(), "ci-pods");
    assert_eq!(seen.get(pod).await?.metadata.uid, made.metadata.uid);

    site.ok("ci request delete job-1");
    let uid = made.metadata.uid.context("a uid")?;
    await_condition(pods, pod, kube::runtime::wait::conditions::is_deleted(&uid)).await?;
    let ended = seen.get(pod).await.err();
    assert!(matches!(&ended, Some(kube::Error::Api(status)) if status.code == 401), "{ended:?}");
    site.until(<[Value]>::is_empty).await?;
    let logs = std::fs::read_dir(site.server.folder())?.filter_map(|entry| Some(entry.ok()?.path()));
    let logs: Vec<_> = logs.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    assert!(!logs.is_empty());
    for log in logs {
        assert!(!std::fs::read_to_string(&log)?.contains(&token), "{} shows a token", log.display());
    }
    Ok(())
}

#[tokio::test]
async fn five_hundred_requests_at_once() -> Result<()> {
    let site = Site::start(|port| static_config(port, 500))?;
    site.until(|nodes| nodes.len() == 500 && nodes.iter().all(|node| node["status"]["state"] == "ready")).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("millpond.dev", "v1alpha1", "NodeRequest"));
    let api: Api<DynamicObject> = Api::namespaced_with(site.server.client().await?, "default", &kind);
    let started = std::time::Instant::now();
    let params = PostParams::default();
    let created = (0..500).map(|index| {
        let object = json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeRequest", "metadata": {"name": format!("job-{index}")},
            "spec": {"labels": ["fedora"]},
        });
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let (api, params) = (&api, &params);
        async move { api.create(params, &object).await }
    });
    futures::future::try_join_all(created).await?;
    let fulfilled = |request: &DynamicObject| request.data["status"]["state"] == "fulfilled";
    let mut seen = std::collections::BTreeMap::new();
    let mut events = std::pin::pin!(kube::runtime::watcher(api.clone(), Default::default()));
    use futures::TryStreamExt as _;
    while seen.len() < 500 {
        use kube::runtime::watcher::Event;
        if let Event::Apply(request) | Event::InitApply(request) =
            events.try_next().await?.context("the watch ended")?
            && fulfilled(&request)
        {
            let node = request.data["status"]["nodes"][0]["id"].as_str().context("a node")?.to_owned();
            seen.insert(request.metadata.name.clone().context("a name")?, node);
        }
    }
    println!("500 requests in {:?}", started.elapsed());
    let nodes: std::collections::BTreeSet<&String> = seen.values().collect();
    assert_eq!(nodes.len(), 500, "every request has a node of its own");
    Ok(())
}

#[test]
fn images_that_no_record_names_are_aliens() -> Result<()> {
    let site = Site::start(|port| {
        let providers = json!([
            {"name": "fake-cloud", "driver": "fake", "cloud": "fake", "pools": []},
            {"name": "cloud", "driver": "openstack", "cloud": "nowhere", "pools": []},
        ]);
        json!({"webapp": {"port": port}, "images-dir": "images", "providers": providers}).to_string()
    })?;
    let image =
        |id: &str, metadata: Value| json!({"id": id, "name": "fedora-1", "status": "READY", "metadata": metadata});
    let marked = || json!({"nodepool_build_id": "b"});
    let images = json!([image("known", marked()), image("lost", marked()), image("other", json!({}))]);
    std::fs::create_dir(site.folder.path().join("images"))?;
    std::fs::write(site.folder.path().join("images/.fake-cloud-fake-cloud.json"), images.to_string())?;
    let build = "/nodepool/images/fedora/builds/0123456789abcdef0123456789abcdef";
    let records = json!({
        build: json!({"state": "ready", "state_time": 1.0}).to_string(),
        format!("{build}/providers/fake-cloud/images/0000000001"):
            json!({"state": "ready", "state_time": 1.0, "external_id": "known", "external_name": "fedora-1"}).to_string(),
    });
    std::fs::write(site.folder.path().join("records.json"), records.to_string())?;
    site.ok("ci -c nodepool.yaml import-image-data records.json");
    let table = "\
+------------+----------+----------+
| Provider   | Name     | Image ID |
+------------+----------+----------+
| fake-cloud | fedora-1 | lost     |
+------------+----------+----------+
";
    let output = site.run("ci -c nodepool.yaml alien-image-list");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), table));
    // A cloud that cannot be asked is named, and the others are listed.
    assert!(text(&output.stderr).contains("warning: images of `cloud` are not listed"), "{}", text(&output.stderr));
    assert_eq!(site.ok("ci -c nodepool.yaml alien-image-list fake-cloud"), table);
    let all = json!([{"provider": "fake-cloud", "name": "fedora-1", "image_id": "lost"}]);
    assert_eq!(site.json("ci -c nodepool.yaml alien-image-list fake-cloud -o json"), all);
    // The export is what was imported.
    site.ok("ci -c nodepool.yaml export-image-data exported.json");
    let exported: Value = serde_json::from_str(&std::fs::read_to_string(site.folder.path().join("exported.json"))?)?;
    let keys = |value: &Value| value.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
    assert_eq!(keys(&exported), keys(&records));
    Ok(())
}

/// Launcher and builder of a SoftwareFactory come, and its other parts are named.
#[tokio::test]
async fn a_software_factory_has_launcher_and_builder() -> Result<()> {
    let site = Site::start(|port| static_config(port, 1))?;
    let client = site.server.client().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sf"}});
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("sf.softwarefactory-project.io", "v1", "SoftwareFactory"));
    let kind = ApiResource { plural: "softwarefactories".to_owned(), ..kind };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "sf", &kind);
    let object = json!({
        "apiVersion": "sf.softwarefactory-project.io/v1", "kind": "SoftwareFactory", "metadata": {"name": "my-sf"},
        "spec": {
            "fqdn": "sf.example.com", "zuul": {"scheduler": {}},
            "nodepool": {"launcher": {"logLevel": "DEBUG"}, "builder": {"storage": {"size": "5Gi"}}},
        },
    });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let told = |object: Option<&DynamicObject>| {
        let conditions = object.and_then(|object| object.data.pointer("/status/conditions")?.as_array());
        conditions.is_some_and(|all| all.iter().any(|it| it["message"] == "not managed by Millpond: zuul"))
    };
    let object = await_condition(api.clone(), "my-sf", told).await?.context("it is there")?;
    assert_eq!(object.data["spec"]["zuul"], json!({"scheduler": {}}), "other parts are kept");
    let launchers = Api::<k8s_openapi::api::apps::v1::Deployment>::namespaced(client.clone(), "sf");
    let launcher = launchers.get("nodepool-launcher").await?;
    let pod = launcher.spec.context("a spec")?.template;
    assert_eq!(pod.metadata.context("metadata")?.labels.context("labels")?["run"], "nodepool-launcher");
    let builders = Api::<k8s_openapi::api::apps::v1::StatefulSet>::namespaced(client.clone(), "sf");
    builders.get("nodepool-builder").await?;
    // The builder's key pair is made once, and the configuration waits for the config repository.
    let secrets = Api::<Secret>::namespaced(client.clone(), "sf");
    let keys = secrets.get("nodepool-builder-ssh-key").await?.data.context("data")?;
    let printed = site.ok("ci -n sf builder-ssh-key");
    assert!(printed.starts_with("ssh-ed25519 "), "{printed}");
    assert_eq!((text(&keys["pub"].0), keys.len()), (printed.clone(), 2));
    assert_eq!(site.ok("ci -n sf get builder-ssh-key"), printed);
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client, "sf");
    let config = maps.get("nodepool-config").await?.data.context("data")?;
    assert!(config["nodepool.yaml"].contains("host: \"zookeeper\""), "{config:?}");
    // A change of the spec keeps both.
    let changed = json!({"spec": {"nodepool": {"launcher": {"logLevel": "WARN"}}}});
    api.patch("my-sf", &PatchParams::default(), &Patch::Merge(&changed)).await?;
    let warns = |deployment: Option<&k8s_openapi::api::apps::v1::Deployment>| {
        let pod = deployment.and_then(|it| it.spec.as_ref()?.template.spec.as_ref());
        let level = pod.and_then(|pod| pod.containers[0].env.as_ref()?[0].value.clone());
        level.as_deref() == Some("warn")
    };
    await_condition(launchers, "nodepool-launcher", warns).await?;
    assert_eq!(site.ok("ci -n sf builder-ssh-key"), printed);
    Ok(())
}

/// The driver `kubernetes` gives a job a namespace.
#[tokio::test]
async fn namespaces_as_nodes() -> Result<()> {
    use k8s_openapi::api::core::v1::ConfigMap;
    let config = |port: u16| {
        let labels = json!([{"name": "my-namespace", "type": "namespace", "labels": {"team": "ci"}}]);
        let provider =
            json!({"name": "cluster", "driver": "kubernetes", "pools": [{"name": "main", "labels": labels}]});
        json!({"webapp": {"port": port}, "providers": [provider]}).to_string()
    };
    let site = Site::start(config)?;
    let client = site.server.client().await?;
    let kubeconfig = std::fs::read_to_string(site.server.kubeconfig())?;
    let secret = json!({"metadata": {"name": "nodepool-providers-secrets"}, "stringData": {"kube.config": kubeconfig}});
    let secrets = Api::<Secret>::namespaced(client.clone(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    site.ok("ci request create --label my-namespace --name job-1 --wait");
    let request = site.json("ci request get job-1 -o json");
    let node = &request["status"]["nodes"][0];
    let namespace = node["namespace"].as_str().context("a namespace")?;
    assert_eq!(node["connectionType"], "namespace");
    assert_eq!(namespace, format!("main-{}", node["id"].as_str().context("an id")?));
    let namespaces = Api::<Namespace>::all(client.clone());
    let made = namespaces.get(namespace).await?;
    let labels = made.metadata.labels.context("labels")?;
    assert_eq!((labels["team"].as_str(), labels["nodepool_pool_name"].as_str()), ("ci", "main"));
    let secret = secrets.get(node["secretName"].as_str().context("a Secret")?).await?;
    let own = kube::config::Kubeconfig::from_yaml(&text(&secret.data.context("data")?["kubeconfig"].0))?;
    let own = Client::try_from(Config::from_custom_kubeconfig(own, &Default::default()).await?)?;
    let map = json!({"metadata": {"name": "mine"}});
    let maps = Api::<ConfigMap>::namespaced(own, namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    site.ok("ci request delete job-1");
    let uid = made.metadata.uid.context("a uid")?;
    await_condition(namespaces, namespace, kube::runtime::wait::conditions::is_deleted(&uid)).await?;
    site.until(<[Value]>::is_empty).await?;
    Ok(())
}
