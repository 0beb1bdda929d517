//! `millpond up` with a real kubelet: it joins with nothing but a bootstrap token, and kubectl reaches its pods.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use millpond_testkit::machines::Network;
use millpond_testkit::real::{CLUSTER_PARTS, Parts};
use millpond_testkit::{Access, BUSYBOX, EmbeddedServer, Kubectl, Process, RealNode, Waited};
use serde_json::{Value, json};

use crate::objects::{BOOTSTRAP_TOKEN, apply, bootstrap_token};
use crate::{MILLPOND, PATIENCE, READY};

const FORWARDS_WITHIN: Duration = Duration::from_secs(60);

struct Stage {
    // In this order: the node ends before its server, both before the bridge.
    node: RealNode,
    server: EmbeddedServer,
    kubectl: Kubectl,
    _network: Network,
}

impl Stage {
    /// A node that joins `millpond up` with a bootstrap token.
    fn new() -> Result<Self> {
        let parts = Parts::ensure_each(CLUSTER_PARTS)?;
        let network = Network::new()?;
        let server = EmbeddedServer::start(Path::new(MILLPOND), &["--memory", "--bind", &network.address()])?;
        let kubectl = Kubectl::new(&parts, &server.kubeconfig(), server.folder())?;
        let mut node = RealNode::boot(&network, "node-1", 2)?;
        apply(&kubectl, &bootstrap_token())?;
        node.join(&Access { token: Some(BOOTSTRAP_TOKEN.into()), client_pem: None, ..server.access().clone() })?;
        Ok(Self { node, server, kubectl, _network: network })
    }

    /// Runs kubectl; what kubelet logged last is part of the error.
    fn run(&mut self, words: &[&str]) -> Result<String> {
        self.node.ensure_running()?;
        let log = self.node.kubelet().map(Process::log_tail).unwrap_or_default();
        self.kubectl.run(words).with_context(|| format!("kubelet:\n{log}"))
    }

    fn wait_for_pod(&mut self, name: &str, condition: &str) -> Result<()> {
        self.run(&["wait", &format!("pod/{name}"), condition, PATIENCE]).map(drop)
    }
}

/// A pod of one container that runs a script.
fn pod(name: &str, script: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
        },
    })
}

/// Kubelet has a certificate of its own, which it asked for with the token.
fn joined_by_certificate(stage: &mut Stage) -> Result<()> {
    stage.run(&["wait", "node/node-1", "--for=create", PATIENCE])?;
    stage.run(&["wait", "node/node-1", READY, PATIENCE])?;
    let requests = stage.run(&["get", "csr", "-o", "json"])?;
    let requests: Value = serde_json::from_str(&requests)?;
    let of_node = requests["items"].as_array().into_iter().flatten().find(|request| {
        request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
            && request["spec"]["username"] == "system:bootstrap:abcdef"
    });
    let request = of_node.with_context(|| format!("kubelet asked for no certificate: {requests}"))?;
    ensure!(request["status"]["certificate"].is_string(), "its request was not signed: {request}");
    let kubeconfig = std::fs::read_to_string(stage.node.machine().path("etc/kubernetes/kubelet.conf")?)?;
    ensure!(kubeconfig.contains("client-certificate"), "kubelet does not use its certificate: {kubeconfig}");
    // The token is not needed any more.
    stage.run(&["-n", "kube-system", "delete", "secret", "bootstrap-token-abcdef"])?;
    Ok(())
}

/// Logs and exec: streams in both directions, and the exit code.
fn logs_and_exec(stage: &mut Stage) -> Result<()> {
    ensure!(stage.run(&["logs", "web"])? == "begun\n");
    ensure!(stage.run(&["exec", "web", "--", "/bin/sh", "-c", "cat /tmp/index.html; echo seen"])? == "page\nseen\n");
    let echoed = stage.kubectl.run_with_input(&["exec", "-i", "web", "--", "/bin/cat"], "through\n")?;
    ensure!(echoed == "through\n", "{echoed}");
    let failed = stage.kubectl.command().args(["exec", "web", "--", "/bin/sh", "-c", "exit 3"]).output()?;
    ensure!(failed.status.code() == Some(3), "{failed:?}");
    let missing = stage.kubectl.run(&["logs", "web", "-c", "other"]).unwrap_err().to_string();
    ensure!(missing.contains("container other is not valid for pod web"), "{missing}");
    Ok(())
}

/// What is typed reaches the first process of the container.
fn attach(stage: &Stage) -> Result<()> {
    let heard = stage.kubectl.run_with_input(&["attach", "-i", "-q", "listener"], "hello\n")?;
    ensure!(heard.contains("heard hello"), "{heard}");
    Ok(())
}

fn port_forward(stage: &Stage) -> Result<()> {
    let mut command = stage.kubectl.command();
    command.args(["port-forward", "pod/web", ":8080"]);
    let mut forward = Process::spawn("port-forward", &mut command, stage.server.folder())?;
    let began = forward.wait_for(FORWARDS_WITHIN, |log| log.contains("Forwarding from 127.0.0.1:"))?;
    ensure!(began == Waited::Satisfied, "{}", forward.log_tail());
    let printed = forward.printed();
    let port = printed.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).context("no port")?;
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse::<u16>()?))?;
    stream.set_read_timeout(Some(FORWARDS_WITHIN))?;
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.ends_with("page\n"), "{answer}");
    Ok(())
}

#[test]
#[ignore = "needs the real parts"]
fn real_kubelet_joins_with_a_token_and_kubectl_reaches_its_pods() {
    let mut stage = Stage::new().unwrap();
    joined_by_certificate(&mut stage).unwrap();

    let serve = "echo page > /tmp/index.html; echo begun; exec httpd -f -p 8080 -h /tmp";
    let ready = json!({"readinessProbe": {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1}});
    apply(&stage.kubectl, &pod("web", serve, &ready)).unwrap();
    let stdin = json!({"stdin": true, "stdinOnce": true});
    apply(&stage.kubectl, &pod("listener", "read line; echo \"heard $line\"; sleep 1", &stdin)).unwrap();
    stage.wait_for_pod("web", READY).unwrap();
    stage.wait_for_pod("listener", READY).unwrap();
    let address = stage.run(&["get", "pod", "web", "-o", "jsonpath={.status.podIP}"]).unwrap();
    assert!(address.starts_with("10.250.2."), "kubelet runs it, no stand-in: {address}");

    logs_and_exec(&mut stage).unwrap();
    attach(&stage).unwrap();
    port_forward(&stage).unwrap();

    // Kubelet ends the container and then removes the pod itself.
    stage.run(&["delete", "pod", "web", PATIENCE]).unwrap();
    let node = stage.run(&["get", "node", "node-1", "-o", "jsonpath={.status.addresses[0].address}"]).unwrap();
    assert_eq!(node, stage.node.machine().address());
}
