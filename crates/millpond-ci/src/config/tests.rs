//! Files and what is read from them.

use super::*;

fn read_text(text: &str) -> Reading {
    let env = |name: &str| (name == "NODEPOOL_ZK").then(|| "zk.example.com".to_owned());
    read(File { name: "nodepool.yaml", text }, None, &env)
}

fn valid(text: &str) -> Config {
    read_text(text).valid().unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn errors(text: &str) -> Vec<String> {
    read_text(text).errors.iter().map(ToString::to_string).collect()
}

/// As the documentation of Software Factory's operator has it.
const OPENSHIFT_PODS: &str = "\
providers:
  - name: openshift-pods
    driver: openshiftpods
    context: my-context
    pools:
      - name: main
        labels:
          - name: my-pod
            image: quay.io/fedora/fedora:latest
";

#[test]
fn the_operators_example_is_accepted() {
    let config = valid(OPENSHIFT_PODS);
    let provider = &config.providers[0];
    assert_eq!(provider.driver, Driver::OpenShiftPods);
    assert_eq!(provider.details, ProviderDetails::Pods { context: Some("my-context".to_owned()) });
    assert_eq!(provider.pools[0].name, "main");
    let LabelDetails::Pod(label) = &provider.pools[0].labels["my-pod"].details else { panic!("a pod") };
    assert_eq!((label.kind.as_str(), label.image.as_deref()), ("pod", Some("quay.io/fedora/fedora:latest")));
    // Nothing in `labels` defines it, and Nodepool's validator accepts that.
    assert_eq!(config.labels["my-pod"].min_ready, 0);
}

#[test]
fn defaults_are_nodepools() {
    let config = valid("");
    assert_eq!(config.webapp, WebApp { port: 8005, listen_address: None });
    assert!((config.zookeeper.timeout_s - 10.0).abs() < f64::EPSILON);
    assert_eq!(config.max_hold_age_s, None);
    let config = valid("zookeeper-servers: [{host: zk}]\nmax-hold-age: 0");
    assert_eq!(config.zookeeper.servers, [ZooKeeperServer { host: "zk".to_owned(), port: 2281, chroot: None }]);
    assert_eq!(config.max_hold_age_s, None);
}

#[test]
fn variables_are_replaced() {
    let config = valid("zookeeper-servers:\n  - host: '%(NODEPOOL_ZK)'\n    chroot: /ci\n");
    assert_eq!(config.zookeeper.servers[0].host, "zk.example.com");
    assert_eq!(config.zookeeper.servers[0].chroot.as_deref(), Some("/ci"));
    let reading = read_text("images-dir: /opt/%(NODEPOOL_DIR)");
    assert_eq!(
        reading.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["nodepool.yaml:1:18: the variable `NODEPOOL_DIR` is not set; `%(NODEPOOL_DIR)` is left as it is"]
    );
}

#[test]
fn static_hosts_have_slots_ports_and_labels() {
    let config = valid(
        "labels: [{name: small, min-ready: 2}, {name: large}]
providers:
  - name: rack
    driver: static
    priority: 50
    pools:
      - name: main
        max-servers: 7
        node-attributes: {executor-zone: eu}
        nodes:
          - {name: host-1, labels: small large, ssh-port: 2222, max-parallel-jobs: 3}
          - {name: host-2, labels: [large], connection-port: 5986, connection-type: winrm, host-key: ssh-rsa AAA}
",
    );
    let pool = &config.providers[0].pools[0];
    assert_eq!(pool.priority, 50);
    assert_eq!(pool.limits, Resources::from([(INSTANCES.to_owned(), 7)]));
    assert_eq!(pool.labels.keys().collect::<Vec<_>>(), ["large", "small"]);
    assert_eq!(pool.node_attributes.as_ref().unwrap()["executor-zone"], "eu");
    let [one, two] = &pool.hosts[..] else { panic!("two hosts") };
    assert_eq!((one.port(), one.max_parallel_jobs, one.username.as_str()), (2222, 3, "zuul"));
    assert_eq!((two.port(), two.connection_type.as_str(), two.host_keys.len()), (5986, "winrm", 1));
}

#[test]
fn pods_take_defaults_and_limits_of_their_pool() {
    let config = valid(
        "providers:
  - name: cluster
    driver: kubernetes
    max-cores: 100
    max-resources: {nvidia.com/gpu: 4}
    pools:
      - name: main
        default-label-cpu: 2
        default-label-memory: 512
        default-label-memory-limit: 1024
        labels:
          - {name: small, type: pod, image: fedora}
          - {name: gpu, type: pod, image: fedora, cpu: 8, gpu: 1, gpu-resource: nvidia.com/gpu}
          - {name: space, type: namespace}
          - name: own
            type: pod
            spec: {containers: [{name: own, image: fedora}]}
",
    );
    let provider = &config.providers[0];
    assert_eq!(provider.limits, Resources::from([(CORES.to_owned(), 100), ("nvidia.com/gpu".to_owned(), 4)]));
    let labels = &provider.pools[0].labels;
    assert_eq!(labels["small"].resources[CORES], 2);
    assert_eq!(labels["gpu"].resources["nvidia.com/gpu"], 1);
    let LabelDetails::Pod(small) = &labels["small"].details else { panic!("a pod") };
    assert_eq!((small.cpu_limit, small.memory_limit, small.storage_limit), (Some(2), Some(1024), None));
}

#[test]
fn openstack_and_its_simulation_share_their_keys() {
    let text = |name: &str, driver: &str| {
        format!(
            "labels: [{{name: fedora}}]
diskimages: [{{name: fedora}}]
providers:
  - name: {name}
    {driver}
    cloud: vexxhost
    diskimages: [{{name: fedora}}]
    cloud-images: [{{name: base, image-name: Fedora, username: core}}]
    pools:
      - name: main
        max-servers: 5
        labels:
          - {{name: fedora, diskimage: fedora, min-ram: 8000}}
"
        )
    };
    assert_eq!(valid(&text("cloud", "region-name: eu")).providers[0].driver, Driver::OpenStack);
    assert_eq!(valid(&text("cloud", "driver: fake")).providers[0].driver, Driver::Fake);
    assert_eq!(valid(&text("fake-cloud", "region-name: eu")).providers[0].driver, Driver::Fake);
}

#[test]
fn metastatic_labels_name_their_backing_label() {
    let config = valid(
        "providers:
  - name: slots
    driver: metastatic
    pools:
      - name: main
        labels: [{name: slot, backing-label: large, max-parallel-jobs: 4, grace-time: 10}]
",
    );
    let LabelDetails::Metastatic(label) = &config.providers[0].pools[0].labels["slot"].details else { panic!() };
    assert_eq!((label.backing_label.as_str(), label.max_parallel_jobs, label.grace_time_s), ("large", 4, 10));
}

#[test]
fn tenant_limits_have_the_names_of_resources() {
    let config = valid(
        "tenant-resource-limits:
  - {tenant-name: web, max-servers: 3, max-cores: 20, max-volume-gb: 7, licences: 1}
",
    );
    let limits: Vec<_> = config.tenant_limits["web"].iter().map(|(name, limit)| (name.as_str(), *limit)).collect();
    assert_eq!(limits, [("cores", 20), ("instances", 3), ("licences", 1), ("volume-gb", 7)]);
}

#[test]
fn images_inherit_from_the_farthest_parent_on() {
    let config = valid(
        "diskimages:
  - {name: base, abstract: true, elements: [vm], env-vars: {A: '1', B: '1'}, username: core, metadata: {x: 1}}
  - {name: middle, abstract: true, parent: base, elements: [cloud], formats: [raw], release: 41}
  - {name: fedora, parent: middle, elements: [fedora], env-vars: {B: '2'}, rebuild-age: 60}
",
    );
    assert_eq!(config.diskimages.keys().collect::<Vec<_>>(), ["fedora"]);
    let image = &config.diskimages["fedora"];
    assert_eq!(image.elements, ["vm", "cloud", "fedora"]);
    assert_eq!(image.env_vars, BTreeMap::from([("A".into(), "1".into()), ("B".into(), "2".into())]));
    assert_eq!((image.release.as_str(), image.username.as_str(), image.rebuild_age_s), ("41", "core", 60));
    assert_eq!((image.formats.as_slice(), image.metadata.len()), (["raw".to_owned()].as_slice(), 0));
}

#[test]
fn secure_conf_overrides() {
    let main = "zookeeper-servers: [{host: one}]\ndiskimages: [{name: fedora, env-vars: {A: '1'}}]";
    let secure = "zookeeper-servers: [{host: two, port: 1}]
zookeeper-tls: {cert: c.pem, key: k.pem, ca: ca.pem}
diskimages: [{name: fedora, env-vars: {TOKEN: secret}}]";
    let both = |secure| {
        let file = File { name: "secure.conf", text: secure };
        read(File { name: "nodepool.yaml", text: main }, Some(file), &|_| None)
    };
    let config = both(secure).valid().unwrap();
    assert_eq!(config.zookeeper.servers[0].host, "two");
    assert_eq!(config.zookeeper.tls.unwrap().key, "k.pem");
    assert_eq!(config.diskimages["fedora"].env_vars.len(), 2);
    let errors = both("diskimages: [{name: debian, env-vars: {}}]").errors;
    assert_eq!(errors[0].to_string(), "secure.conf:1:14: field `diskimages[0]`: unknown diskimage `debian`");
}

#[test]
fn mistakes_have_line_and_column_and_are_all_reported() {
    insta::assert_snapshot!(errors("labels:
  - nam: fedora
    min-ready: -1
zookeeper-timeout: soon
webapp: {port: 8005, listen-address: x}
tenant-resource-limits: [{max-cores: 3}]
providers:
  - name: a
    driver: statik
  - name: b
    driver: aws
  - name: c
    driver: static
    pools:
      - name: main
        nodes: [{name: host, label: x}]
  - name: d
    driver: openstack
    pools: [{name: main, labels: [{name: x, diskimage: i, cloud-image: i}]}]
  - name: e
    driver: kubernetes
    pools: [{name: main, labels: [{name: x, type: vm}, {name: y, type: pod, spec: {}, cpu: 1}]}]
  - just text
colour: red
").join("\n"), @r#"
nodepool.yaml:2:5: field `labels[0]`: unknown key `nam`; did you mean `name`?
nodepool.yaml:3:16: field `labels[0].min-ready`: `-1` is not a whole number that is not negative
nodepool.yaml:2:5: field `labels[0]`: the required key `name` is missing
nodepool.yaml:4:20: field `zookeeper-timeout`: `soon` is not a number
nodepool.yaml:5:22: field `webapp`: unknown key `listen-address`; did you mean `listen_address`?
nodepool.yaml:6:26: field `tenant-resource-limits[0]`: the required key `tenant-name` is missing
nodepool.yaml:24:1: unknown key `colour`; known keys: webapp, elements-dir, images-dir, build-log-dir, build-log-retention, zookeeper-servers, zookeeper-tls, zookeeper-timeout, providers, labels, diskimages, max-hold-age, tenant-resource-limits
nodepool.yaml:9:13: field `providers[0].driver`: unknown driver `statik`; did you mean `static`?
nodepool.yaml:11:13: field `providers[1].driver`: the driver `aws` is not built into Millpond; drivers: static, kubernetes, openshift, openshiftpods, openstack, metastatic, fake
nodepool.yaml:16:30: field `providers[2].pools[0].nodes[0]`: unknown key `label`; did you mean `labels`?
nodepool.yaml:16:17: field `providers[2].pools[0].nodes[0]`: the required key `labels` is missing
nodepool.yaml:19:35: field `providers[3].pools[0].labels[0]`: needs one of the keys `min-ram`, `flavor-name`
nodepool.yaml:19:35: field `providers[3].pools[0].labels[0]`: may have only one of the keys `diskimage`, `cloud-image`
nodepool.yaml:17:5: field `providers[3]`: the required key `cloud` is missing
nodepool.yaml:22:87: field `providers[4].pools[0].labels[1]`: unknown key `cpu`; known keys: name, type, spec, labels, dynamic-labels, annotations
nodepool.yaml:23:5: field `providers[5]`: `just text` is not a map of keys and values
"#);
}

#[test]
fn references_are_checked() {
    insta::assert_snapshot!(errors("diskimages:
  - {name: a, parent: b}
  - {name: c, parent: d}
  - {name: d, parent: c}
  - {name: a}
providers:
  - name: cloud
    cloud: x
    diskimages: [{name: none}]
    pools:
      - name: main
        labels:
          - {name: fedora, diskimage: fedora, min-ram: 1}
          - {name: debian, cloud-image: debian, flavor-name: m1}
  - {name: cloud, driver: static}
  - {name: cloud, driver: static}
").join("\n"), @r#"
nodepool.yaml:5:12: the diskimage `a` is already defined
nodepool.yaml:2:23: diskimage `a`: the parent `b` is not defined
nodepool.yaml:3:23: diskimage `c`: inherits from itself through `c`
nodepool.yaml:4:23: diskimage `d`: inherits from itself through `d`
nodepool.yaml:9:18: field `providers[0]`: the diskimage `none` is not defined in the main `diskimages`
nodepool.yaml:13:20: field `providers[0].pools[0].labels[0]`: the label `fedora` is not defined in the main `labels`
nodepool.yaml:13:39: field `providers[0].pools[0].labels[0]`: the diskimage `fedora` is not defined in the main `diskimages`
nodepool.yaml:14:20: field `providers[0].pools[0].labels[1]`: the label `debian` is not defined in the main `labels`
nodepool.yaml:14:41: field `providers[0].pools[0].labels[1]`: the cloud image `debian` is not defined in this provider
nodepool.yaml:15:12: field `providers[1]`: the provider `cloud` is already defined
nodepool.yaml:16:12: field `providers[2]`: the provider `cloud` is already defined
"#);
}

#[test]
fn a_broken_provider_does_not_hide_the_others() {
    let reading = read_text("providers:\n  - {name: a, driver: gce}\n  - {name: b, driver: static}\n");
    assert_eq!(reading.errors.len(), 1);
    let config = reading.config.unwrap();
    assert_eq!(config.providers.iter().map(|provider| provider.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn what_is_no_configuration_is_refused() {
    insta::assert_snapshot!(["- a\n- b", "labels: [", "a: 1\n---\nb: 2", "just text"].map(|text| {
        assert!(read_text(text).config.is_none());
        errors(text).join("\n")
    }).join("\n"), @r#"
nodepool.yaml:1:1: is not a map of keys and values
nodepool.yaml:1:9: is not YAML: unclosed bracket '['
nodepool.yaml:3:1: is a second document; a configuration is one
nodepool.yaml:1:1: `just text` is not a map of keys and values
"#);
}
