//! Against a small Keystone, Nova and Neutron of our own on loopback.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;
use crate::config::{self, Config, File};
use crate::driver::{LaunchImage, UploadedImage};
use crate::model::NodeRequest;

#[derive(Default)]
struct Fake {
    logins: Vec<String>,
    servers: Vec<Value>,
    floating: Vec<Value>,
    created: Vec<Value>,
    /// What a new server fails with.
    fault: Option<&'static str>,
    /// The answer to a create: its status, and whether the server is made all the same.
    refuses: Option<(u16, bool)>,
}

impl Fake {
    fn create(&mut self, body: &Value) -> Value {
        let id = format!("server-{}", self.created.len() + 1);
        self.created.push(body.clone());
        let asked = &body["server"];
        let mut server = json!({
            "id": id, "name": asked["name"], "metadata": asked["metadata"], "flavor": {"id": asked["flavorRef"]},
            "status": "BUILD", "created": format!("2026-01-01T00:00:0{}Z", self.created.len()), "hostId": "h",
            "OS-EXT-AZ:availability_zone": asked["availability_zone"], "accessIPv4": "",
            "addresses": {"lan": [{"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"}]},
        });
        if let Some(fault) = self.fault {
            server["fault"] = json!({"message": fault, "code": 500});
        }
        self.servers.push(server);
        json!({"server": {"id": id}})
    }

    /// All servers; those that were new are up afterwards.
    fn list(&mut self) -> Value {
        let seen = self.servers.clone();
        for server in &mut self.servers {
            server["status"] = if server["fault"].is_null() { "ACTIVE" } else { "ERROR" }.into();
        }
        json!({"servers": seen})
    }

    fn answer(&mut self, base: &str, method: &str, path: &str, query: &str, body: &Value) -> (u16, Value) {
        match (method, path) {
            ("POST", "/identity/v3/auth/tokens") => {
                let user = &body["auth"]["identity"]["password"]["user"];
                self.logins.push(user["name"].as_str().unwrap().to_owned());
                let service = |kind: &str, path: &str| json!({"type": kind, "endpoints": [{"region_id": "one", "interface": "public", "url": format!("{base}{path}")}]});
                let catalog =
                    [service("compute", "/compute/v2.1"), service("network", "/network"), service("image", "/image")];
                (201, json!({"token": {"catalog": catalog}}))
            }
            ("GET", "/compute/v2.1/flavors/detail") => (
                200,
                json!({"flavors": [
                    {"id": "1", "name": "tiny", "vcpus": 1, "ram": 512},
                    {"id": "3", "name": "large-cpu", "vcpus": 16, "ram": 8192},
                    {"id": "2", "name": "medium-cpu", "vcpus": 4, "ram": 4096},
                ]}),
            ),
            ("GET", "/compute/v2.1/limits") => (
                200,
                json!({"limits": {"absolute": {
                    "maxTotalCores": 20, "maxTotalInstances": -1, "maxTotalRAMSize": 40960,
                    "totalCoresUsed": 9, "totalInstancesUsed": 3, "totalRAMUsed": 9216,
                }}}),
            ),
            ("GET", "/compute/v2.1/servers/detail") => (200, self.list()),
            ("POST", "/compute/v2.1/servers") => match self.refuses {
                Some((status, is_made)) => {
                    if is_made {
                        self.create(body);
                    }
                    (status, json!({"forbidden": {"message": "Quota exceeded for cores: Requested 4"}}))
                }
                None => (202, self.create(body)),
            },
            ("DELETE", path) if path.starts_with("/compute/v2.1/servers/") => {
                let before = self.servers.len();
                self.servers.retain(|server| !path.ends_with(server["id"].as_str().unwrap()));
                (if self.servers.len() < before { 204 } else { 404 }, Value::Null)
            }
            ("GET", "/network/v2.0/networks") => (
                200,
                json!({"networks": [
                    {"id": "net-1", "name": "lan", "router:external": false},
                    {"id": "net-2", "name": "outside", "router:external": true},
                ]}),
            ),
            ("GET", "/network/v2.0/ports") => {
                (200, json!({"ports": [{"id": query.replace("device_id=", "port-of-")}]}))
            }
            ("GET", "/network/v2.0/floatingips") => {
                let port = query.trim_start_matches("port_id=");
                let found: Vec<&Value> = self.floating.iter().filter(|it| it["port_id"] == port).collect();
                (200, json!({"floatingips": found}))
            }
            ("POST", "/network/v2.0/floatingips") => {
                let mut made = body["floatingip"].clone();
                (made["id"], made["floating_ip_address"]) = ("float-1".into(), "192.0.2.7".into());
                self.floating.push(made.clone());
                (201, json!({"floatingip": made}))
            }
            ("DELETE", "/network/v2.0/floatingips/float-1") => {
                self.floating.clear();
                (204, Value::Null)
            }
            ("GET", "/image/v2/images") => {
                (200, json!({"images": [{"id": "image-9", "name": "Fedora"}], "next": null}))
            }
            other => (500, json!({"unknown": format!("{other:?}")})),
        }
    }
}

type State = Arc<Mutex<Fake>>;

async fn answer(state: State, base: String, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default();
    let (status, value) = state.lock().answer(&base, head.method.as_str(), head.uri.path(), query, &body);
    let response = Response::builder().status(status).header("X-Subject-Token", "t");
    Ok(response.body(Full::from(value.to_string())).unwrap())
}

const CONFIG: &str = "
labels: [{name: vm}, {name: image}, {name: huge}]
diskimages: [{name: built, username: builder}]
providers:
  - name: cloud
    cloud: mine
    region-name: one
    rate: 10000
    diskimages: [{name: built, config-drive: true}]
    cloud-images: [{name: fedora, image-name: Fedora, username: fedora}]
    pools:
      - name: main
        networks: [lan]
        security-groups: [ci]
        availability-zones: [a]
        host-key-checking: false
        labels:
          - {name: vm, cloud-image: fedora, min-ram: 4000, flavor-name: cpu, key-name: k, userdata: hi,
             instance-properties: {team: 7}, dynamic-instance-properties: {who: '{request.tenant_name}'}}
          - {name: image, diskimage: built, flavor-name: tiny, boot-from-volume: true, volume-size: 20}
          - {name: huge, cloud-image: fedora, min-ram: 99999}
";

struct World {
    state: State,
    config: Config,
    driver: OpenStack,
    secret: watch::Sender<Option<String>>,
    base: String,
}

impl World {
    async fn new() -> Self {
        Self::of(CONFIG).await
    }

    async fn of(config: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = State::default();
        let (shared, url) = (Arc::clone(&state), base.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, base) = (Arc::clone(&shared), url.clone());
                let service = service_fn(move |request| answer(Arc::clone(&state), base.clone(), request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        let config = config::read(File { name: "nodepool.yaml", text: config }, None, &|_| None).valid().unwrap();
        let (secret, clouds) = watch::channel(Some(Self::clouds(&base, "me")));
        let driver = OpenStack::new(&config.providers[0], Clouds::of_secret(clouds)).unwrap();
        Self { state, config, driver, secret, base }
    }

    fn clouds(base: &str, user: &str) -> String {
        format!(
            "clouds: {{mine: {{auth: {{auth_url: '{base}/identity', username: {user}, password: hunter2, project_name: ci}}}}}}"
        )
    }

    fn launch(&self, node_id: &str, label: &str) -> Launch {
        let pool = Arc::new(self.config.providers[0].pools[0].clone());
        let mut request = NodeRequest::new(vec![label.to_owned()], 0.0);
        request.tenant_name = Some("acme".to_owned());
        Launch {
            node_id: node_id.to_owned(),
            provider: "cloud".to_owned(),
            details: Arc::new(pool.labels[label].clone()),
            pool,
            label: label.to_owned(),
            request: Some(("200-1".to_owned(), Arc::new(request))),
            image: None,
        }
    }
}

fn instance(node_id: &str) -> Instance {
    Instance { node_id: node_id.to_owned(), pool: None, external_id: None }
}

#[tokio::test]
async fn servers_are_made_followed_and_deleted() {
    let world = World::new().await;
    let launched = world.driver.launch(&world.launch("0000000007", "vm")).await.unwrap();
    let server = json!({"server": {
        "name": "np0000000007", "flavorRef": "2", "imageRef": "image-9", "key_name": "k", "user_data": "aGk=",
        "availability_zone": "a", "networks": [{"uuid": "net-1"}], "security_groups": [{"name": "ci"}],
        "metadata": {
            "groups": "cloud,fedora,vm", "team": "7", "who": "acme", "nodepool_node_id": "0000000007",
            "nodepool_pool_name": "main", "nodepool_provider_name": "cloud",
        },
    }});
    assert_eq!(world.state.lock().created, [server]);
    let texts =
        [&launched.external_id, &launched.hostname, &launched.interface_ip, &launched.private_ipv4, &launched.az];
    let texts = texts.map(|text| text.as_deref().unwrap_or_default());
    assert_eq!(texts, ["server-1", "np0000000007", "192.0.2.7", "10.0.0.5", "a"]);
    assert_eq!((launched.image_id.as_deref(), launched.username.as_deref()), (Some("fedora"), Some("fedora")));
    let size = [("cores", 4), ("instances", 1), ("ram", 4096)].map(|(name, amount)| (name.to_owned(), amount));
    assert_eq!(launched.resources, Some(Resources::from(size)));

    // The same node again is the same server, with the same address.
    let again = world.driver.launch(&world.launch("0000000007", "vm")).await.unwrap();
    assert_eq!((&again.external_id, &again.interface_ip), (&launched.external_id, &launched.interface_ip));
    assert_eq!(world.state.lock().created.len(), 1);
    assert_eq!(world.state.lock().floating.len(), 1);

    let listed = world.driver.list().await.unwrap();
    assert_eq!((listed.len(), listed[0].node_id.as_str(), listed[0].pool.as_deref()), (1, "0000000007", Some("main")));
    // Found by its node alone: the id may not have been written yet.
    world.driver.delete(&instance("0000000007")).await.unwrap();
    world.driver.delete(&instance("0000000007")).await.unwrap();
    let state = world.state.lock();
    assert!(state.servers.is_empty() && state.floating.is_empty());
    assert_eq!(state.logins, ["me"]);
}

#[tokio::test]
async fn disk_images_boot_from_their_upload() {
    let world = World::new().await;
    let without = world.driver.launch(&world.launch("1", "image")).await.unwrap_err();
    assert_eq!(without, DriverError::Capacity("no upload of `built` is ready".to_owned()));
    let upload = UploadedImage { external_id: "glance-3".to_owned(), path: "/nodepool/images/built/…".to_owned() };
    let image =
        LaunchImage { upload, username: "builder".to_owned(), python_path: "auto".to_owned(), shell_type: None };
    let launched = world.driver.launch(&Launch { image: Some(image), ..world.launch("1", "image") }).await.unwrap();
    let volume = json!([{"boot_index": 0, "uuid": "glance-3", "source_type": "image", "destination_type": "volume",
        "volume_size": 20, "delete_on_termination": true}]);
    let created = world.state.lock().created[0]["server"].clone();
    assert_eq!((&created["block_device_mapping_v2"], &created["config_drive"]), (&volume, &json!(true)));
    assert_eq!(
        (launched.image_id.as_deref(), launched.username.as_deref()),
        (Some("/nodepool/images/built/…"), Some("builder"))
    );
    assert_eq!(launched.resources.unwrap()["volume-gb"], 20);
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_makes_one_server() {
    let world = World::new().await;
    world.state.lock().refuses = Some((502, true));
    assert!(matches!(world.driver.launch(&world.launch("1", "vm")).await, Err(DriverError::Transient(_))));
    world.state.lock().refuses = None;
    let launched = world.driver.launch(&world.launch("1", "vm")).await.unwrap();
    assert_eq!((launched.external_id.as_deref(), world.state.lock().servers.len()), (Some("server-1"), 1));
    // One more than there should be goes; the oldest stays.
    let body = world.state.lock().created[0].clone();
    world.state.lock().create(&body);
    let launched = world.driver.launch(&world.launch("1", "vm")).await.unwrap();
    assert_eq!((launched.external_id.as_deref(), world.state.lock().servers.len()), (Some("server-1"), 1));
}

#[tokio::test]
async fn what_the_cloud_lacks_is_told_apart() {
    let world = World::new().await;
    world.state.lock().refuses = Some((403, false));
    let full = world.driver.launch(&world.launch("1", "vm")).await.unwrap_err();
    assert!(matches!(&full, DriverError::Capacity(text) if text.contains("Quota exceeded for cores")), "{full}");
    world.state.lock().refuses = None;
    world.state.lock().fault = Some("No valid host was found. There are not enough hosts available.");
    let full = world.driver.launch(&world.launch("2", "vm")).await.unwrap_err();
    assert!(matches!(&full, DriverError::Capacity(text) if text.contains("No valid host")), "{full}");
    world.state.lock().fault = Some("the hypervisor broke");
    let broken = world.driver.launch(&world.launch("3", "vm")).await.unwrap_err();
    assert!(matches!(&broken, DriverError::Transient(text) if text.contains("the hypervisor broke")), "{broken}");
    let huge = world.driver.launch(&world.launch("4", "huge")).await.unwrap_err();
    assert_eq!(huge, DriverError::Permanent("the cloud has no flavor of 99999 MiB or more".to_owned()));
}

#[tokio::test]
async fn a_zone_without_a_host_comes_last() {
    let world = World::of(&CONFIG.replace("[a]", "[a, b, c]")).await;
    let zone = |index: usize| world.state.lock().created[index]["server"]["availability_zone"].clone();
    world.state.lock().fault = Some("No valid host was found. There are not enough hosts available.");
    world.driver.launch(&world.launch("1", "vm")).await.unwrap_err();
    world.state.lock().fault = None;
    // Nodes of one request share a zone, but for one that is full.
    for node in ["2", "3"] {
        world.driver.launch(&world.launch(node, "vm")).await.unwrap();
    }
    assert_ne!(zone(0), zone(1));
    assert_eq!(zone(1), zone(2));
}

#[tokio::test]
async fn quota_and_sizes_come_from_the_cloud() {
    let world = World::new().await;
    world.driver.launch(&world.launch("1", "vm")).await.unwrap();
    // 9 cores are used, 4 of them by a node: 5 of 20 are for others.
    let limits = world.driver.limits().await.unwrap();
    assert_eq!(limits, Resources::from([("cores".to_owned(), 15), ("ram".to_owned(), 40960 - (9216 - 4096))]));
    let sizes = world.driver.sizes().await.unwrap();
    let of = |label: &str| sizes.get(&("main".to_owned(), label.to_owned()));
    assert_eq!((of("vm").unwrap()["cores"], of("image").unwrap()["volumes"], of("huge")), (4, 1, None));
}

#[tokio::test]
async fn changed_credentials_are_used_for_the_next_call() {
    let world = World::new().await;
    world.driver.list().await.unwrap();
    world.secret.send_replace(Some(World::clouds(&world.base, "other")));
    world.driver.list().await.unwrap();
    assert_eq!(world.state.lock().logins, ["me", "other"]);
    world.secret.send_replace(Some("clouds: {}".to_owned()));
    let missing = world.driver.list().await.unwrap_err().to_string();
    assert!(missing.contains("no cloud `mine`") && !missing.contains("hunter2"), "{missing}");
}
