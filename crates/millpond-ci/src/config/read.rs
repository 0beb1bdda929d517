//! Files to a [`Config`].

use std::collections::{BTreeMap, BTreeSet};

use millpond_api::document::{Tree, Value as Node, de, yaml};
use millpond_api::spelling::nearest;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::check::Checker;
use super::diskimage::{self, Entry, Origin, Origins};
use super::provider::{
    DEFAULT_PRIORITY, Driver, LabelDetails, MetastaticLabel, OpenStackLabel, OpenStackPool, OpenStackProvider,
    PodLabel, Pool, PoolLabel, Provider, ProviderDetails, StaticHost, limited_resource, limits,
};
use super::substitute::substitute;
use super::words;
use super::{
    BuilderFolders, CORES, Config, DiskImage, File, INSTANCES, Label, RAM, Reading, Resources, ZooKeeper,
    ZooKeeperServer, ZooKeeperTls, schema,
};

/// The largest file that is read; the largest known ones have a few thousand lines.
const LIMIT_BYTES: usize = 16 << 20;

/// The default of `zookeeper-timeout`.
const DEFAULT_TIMEOUT_S: f64 = 10.0;

pub(super) fn read(main: File<'_>, secure: Option<File<'_>>, env: &dyn Fn(&str) -> Option<String>) -> Reading {
    let mut reading = read_main(main, env);
    if let Some(secure) = secure {
        read_secure(secure, env, &mut reading);
    }
    Reading { config: reading.config, errors: reading.errors, warnings: reading.warnings }
}

fn read_main(main: File<'_>, env: &dyn Fn(&str) -> Option<String>) -> Partial<Config> {
    read_file(main, env, |checker, tree| {
        checker.map(tree, &schema::TOP, "");
        checker.config(tree)
    })
}

fn read_secure(secure: File<'_>, env: &dyn Fn(&str) -> Option<String>, reading: &mut Partial<Config>) {
    let mut overrides = read_file(secure, env, |checker, tree| {
        checker.map(tree, &schema::SECURE, "");
        let known = reading.config.as_ref().map(|config| &config.diskimages);
        checker.secure(tree, known)
    });
    reading.errors.append(&mut overrides.errors);
    reading.warnings.append(&mut overrides.warnings);
    if let (Some(config), Some(overrides)) = (&mut reading.config, overrides.config) {
        overrides.apply(config);
    }
}

/// The result of reading one file.
struct Partial<T> {
    config: Option<T>,
    errors: Vec<millpond_api::catalog::import::FileError>,
    warnings: Vec<millpond_api::catalog::import::FileError>,
}

fn read_file<T>(
    file: File<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    each: impl FnOnce(&mut Checker<'_>, &Tree<'_>) -> T,
) -> Partial<T> {
    let source = substitute(file.text, env);
    let mut checker = Checker { file: file.name, source: &source, errors: Vec::new(), warnings: Vec::new() };
    let start = millpond_api::document::Position::START;
    let config = 'config: {
        if file.text.len() > LIMIT_BYTES {
            checker.fail(start, "", "", format!("larger than {} MiB", LIMIT_BYTES >> 20));
            break 'config None;
        }
        let mut documents: Vec<Tree<'_>> = Vec::new();
        if let Err(broken) = yaml::read(&source.text, &mut |tree, in_list| {
            if !in_list {
                documents.push(tree);
            }
        }) {
            checker.fail(broken.place, "", "", broken.problem);
            break 'config None;
        }
        if let Some(second) = documents.get(1) {
            checker.fail(second.place, "", "", "is a second document; a configuration is one");
            break 'config None;
        }
        let empty = Tree { place: start, value: Node::Map(Vec::new()) };
        let tree = documents.first().filter(|tree| !tree.is_null()).unwrap_or(&empty);
        if !matches!(tree.value, Node::Map(_)) {
            checker.fail(tree.place, "", tree.shown(), "is not a map of keys and values");
            break 'config None;
        }
        Some(each(&mut checker, tree))
    };
    for (name, place) in &source.unset {
        // The place is one of the file already.
        checker.warnings.push(millpond_api::catalog::import::FileError {
            file: file.name.to_owned(),
            line: place.line.into(),
            column: place.column.into(),
            field: None,
            text: String::new(),
            problem: format!("the variable `{name}` is not set; `%({name})` is left as it is"),
        });
    }
    Partial { config, errors: checker.errors, warnings: checker.warnings }
}

/// The values that secure.conf overrides.
struct Overrides {
    servers: Vec<ZooKeeperServer>,
    tls: Option<ZooKeeperTls>,
    env_vars: Vec<(String, BTreeMap<String, String>)>,
}

impl Overrides {
    fn apply(self, config: &mut Config) {
        if !self.servers.is_empty() {
            config.zookeeper.servers = self.servers;
        }
        if self.tls.is_some() {
            config.zookeeper.tls = self.tls;
        }
        for (image, variables) in self.env_vars {
            if let Some(image) = config.diskimages.get_mut(&image) {
                image.secret_vars.extend(variables.keys().cloned());
                image.env_vars.extend(variables);
            }
        }
    }
}

/// Reads a value that the schema has accepted; what a narrower type refuses is an error too.
fn typed<'de, T: Deserialize<'de>>(checker: &mut Checker<'_>, tree: &'de Tree<'_>, path: &str) -> Option<T> {
    match T::deserialize(tree) {
        Ok(value) => Some(value),
        Err(mistake) => {
            let separator = if mistake.field.is_empty() || mistake.field.starts_with('[') { "" } else { "." };
            let field = format!("{path}{separator}{}", mistake.field);
            checker.fail(mistake.place.unwrap_or(tree.place), &field, &mistake.text, mistake.problem);
            None
        }
    }
}

fn entries<'t, 'a>(tree: &'t Tree<'a>, key: &str) -> &'t [Tree<'a>] {
    match tree.get(key).map(|tree| &tree.value) {
        Some(Node::List(entries)) => entries,
        _ => &[],
    }
}

fn present<'t, 'a>(tree: &'t Tree<'a>, key: &str) -> Option<&'t Tree<'a>> {
    tree.get(key).filter(|value| !value.is_null())
}

impl Checker<'_> {
    fn config(&mut self, tree: &Tree<'_>) -> Config {
        let refused = self.errors.len();
        let mut config = Config {
            zookeeper: self.zookeeper(tree),
            webapp: self.optional(tree, "webapp").unwrap_or_default(),
            builder: BuilderFolders {
                elements_dir: self.optional(tree, "elements-dir"),
                images_dir: self.optional(tree, "images-dir"),
                build_log_dir: self.optional(tree, "build-log-dir"),
                build_log_retention: self.optional(tree, "build-log-retention"),
            },
            max_hold_age_s: self.optional::<i64>(tree, "max-hold-age").and_then(|age| u64::try_from(age).ok()),
            tenant_limits: self.tenant_limits(tree),
            labels: BTreeMap::new(),
            diskimages: BTreeMap::new(),
            providers: Vec::new(),
        };
        config.max_hold_age_s = config.max_hold_age_s.filter(|age| *age > 0);
        config.labels = self.labels(tree);
        if refused > 0 {
            // The schema reported these errors already, so those of the typed reading are dropped.
            self.errors.truncate(refused);
        }
        config.diskimages = self.diskimages(tree);
        self.providers(tree, &mut config);
        config
    }

    fn secure(&mut self, tree: &Tree<'_>, known: Option<&BTreeMap<String, DiskImage>>) -> Overrides {
        if !self.errors.is_empty() {
            return Overrides { servers: Vec::new(), tls: None, env_vars: Vec::new() };
        }
        let mut env_vars = Vec::new();
        for (index, entry) in entries(tree, "diskimages").iter().enumerate() {
            let path = format!("diskimages[{index}]");
            let name: Option<String> = entry.get("name").and_then(|name| typed(self, name, &path));
            let variables = entry.get("env-vars").and_then(|variables| typed(self, variables, &path));
            let (Some(name), Some(variables)) = (name, variables) else { continue };
            if known.is_some_and(|known| !known.contains_key(&name)) {
                self.fail(entry.place, &path, "", format!("unknown diskimage `{name}`"));
                continue;
            }
            env_vars.push((name, variables));
        }
        Overrides {
            servers: self.optional(tree, "zookeeper-servers").unwrap_or_default(),
            tls: self.optional(tree, "zookeeper-tls"),
            env_vars,
        }
    }

    fn optional<'de, T: Deserialize<'de>>(&mut self, tree: &'de Tree<'_>, key: &str) -> Option<T> {
        present(tree, key).and_then(|value| typed(self, value, key))
    }

    fn zookeeper(&mut self, tree: &Tree<'_>) -> ZooKeeper {
        ZooKeeper {
            servers: self.optional(tree, "zookeeper-servers").unwrap_or_default(),
            tls: self.optional(tree, "zookeeper-tls"),
            timeout_s: self.optional(tree, "zookeeper-timeout").unwrap_or(DEFAULT_TIMEOUT_S),
        }
    }

    fn tenant_limits(&mut self, tree: &Tree<'_>) -> BTreeMap<String, Resources> {
        let mut limits = BTreeMap::new();
        for entry in entries(tree, "tenant-resource-limits") {
            let Some(name) = entry.get("tenant-name").and_then(Tree::text) else { continue };
            let Ok(values) = Map::<String, Value>::deserialize(entry) else { continue };
            let resources = values.iter().filter(|(key, _)| *key != "tenant-name");
            let resources =
                resources.filter_map(|(key, limit)| Some((limited_resource(key).to_owned(), limit.as_u64()?)));
            limits.insert(name.to_owned(), resources.collect());
        }
        limits
    }

    fn labels(&mut self, tree: &Tree<'_>) -> BTreeMap<String, Label> {
        let mut labels = BTreeMap::new();
        for (index, entry) in entries(tree, "labels").iter().enumerate() {
            let Some(label) = typed::<Label>(self, entry, &format!("labels[{index}]")) else { continue };
            labels.insert(label.name.clone(), label);
        }
        labels
    }

    fn diskimages(&mut self, tree: &Tree<'_>) -> BTreeMap<String, DiskImage> {
        let mut read: Vec<(Entry, &Tree<'_>)> = Vec::new();
        for entry in entries(tree, "diskimages") {
            // The schema has reported what is wrong with it.
            let Ok(mut image) = Entry::deserialize(entry) else { continue };
            image.origins = self.origins(entry);
            self.paths(&image, entry);
            if read.iter().any(|(other, _)| other.name == image.name) {
                let place = entry.get("name").map_or(entry.place, |name| name.place);
                self.fail(place, "", "", format!("the diskimage `{}` is already defined", image.name));
                continue;
            }
            read.push((image, entry));
        }
        let all: BTreeMap<&str, &Entry> = read.iter().map(|(image, _)| (image.name.as_str(), image)).collect();
        let mut images = BTreeMap::new();
        for (image, entry) in &read {
            match diskimage::resolve(image, &all) {
                Ok(resolved) if !image.is_abstract => drop(images.insert(image.name.clone(), resolved)),
                Ok(_) => {}
                Err(problem) => {
                    let place = entry.get("parent").map_or(entry.place, |parent| parent.place);
                    self.fail(place, "", "", format!("diskimage `{}`: {problem}", image.name));
                }
            }
        }
        images
    }

    fn origins(&self, entry: &Tree<'_>) -> Origins {
        let origin = |key: &str| {
            let place = entry.get(key).map_or(entry.place, |value| value.place);
            Origin::new(self.file, self.source.original(place))
        };
        Origins { entry: origin("name"), dib_cmd: origin("dib-cmd"), formats: origin("formats") }
    }

    /// Names and formats become names of files in the images directory, and may not lead out of it. A command must be one
    /// that a shell could split into words.
    fn paths(&mut self, image: &Entry, entry: &Tree<'_>) {
        let place = |key: &str| entry.get(key).map_or(entry.place, |value| value.place);
        let name = &image.name;
        if !is_file_name(name) {
            let problem = format!("the diskimage `{name}` cannot be a file in the images directory");
            self.fail(place("name"), "", "", problem);
        }
        for format in image.formats.iter().filter(|format| !is_file_name(format) || format.contains(['.', ','])) {
            let problem = format!("diskimage `{name}`: the format `{format}` cannot be the end of a file name");
            self.fail(place("formats"), "", "", problem);
        }
        if let Some(problem) = image.dib_cmd.as_deref().and_then(|command| words::split(command).err()) {
            self.fail(place("dib-cmd"), "", "", format!("diskimage `{name}`: the dib-cmd {problem}"));
        }
    }

    fn providers(&mut self, tree: &Tree<'_>, config: &mut Config) {
        let mut names = BTreeSet::new();
        for (index, entry) in entries(tree, "providers").iter().enumerate() {
            let path = format!("providers[{index}]");
            let Some(driver) = self.driver(entry, &path) else { continue };
            let before = self.errors.len();
            self.map(entry, schema::provider(driver), &path);
            if self.errors.len() > before {
                continue;
            }
            let Some(provider) = self.provider(entry, driver, &path) else { continue };
            if !names.insert(provider.name.clone()) {
                let place = entry.get("name").map_or(entry.place, |name| name.place);
                self.fail(place, &path, "", format!("the provider `{}` is already defined", provider.name));
                continue;
            }
            self.references(entry, &provider, &path, config);
            if self.errors.len() == before {
                config.providers.push(provider);
            }
        }
    }

    fn driver(&mut self, entry: &Tree<'_>, path: &str) -> Option<Driver> {
        if !matches!(entry.value, Node::Map(_)) {
            self.fail(entry.place, path, entry.shown(), "is not a map of keys and values");
            return None;
        }
        // Old configurations name the simulated cloud by its provider's name only.
        if entry.get("name").and_then(Tree::text).is_some_and(|name| name.starts_with("fake")) {
            return Some(Driver::Fake);
        }
        let Some(tree) = present(entry, "driver") else { return Some(Driver::OpenStack) };
        let Some(name) = tree.text() else {
            self.fail(tree.place, &format!("{path}.driver"), tree.shown(), "is not the name of a driver");
            return None;
        };
        let driver = Driver::parse(name);
        if driver.is_none() {
            let names = Driver::ALL.map(Driver::name);
            let problem = if Driver::NOT_BUILT.contains(&name) {
                format!("the driver `{name}` is not built into Millpond; drivers: {}", names.join(", "))
            } else {
                let name = de::shorten(name);
                let hint = nearest(&name, names)
                    .map_or_else(|| format!("drivers: {}", names.join(", ")), |like| format!("did you mean `{like}`?"));
                format!("unknown driver `{name}`; {hint}")
            };
            self.fail(tree.place, &format!("{path}.driver"), "", problem);
        }
        driver
    }

    fn provider(&mut self, entry: &Tree<'_>, driver: Driver, path: &str) -> Option<Provider> {
        let values: Map<String, Value> = typed(self, entry, path)?;
        let number = |key: &str| values.get(key).and_then(Value::as_i64);
        let details = match driver {
            Driver::Static => ProviderDetails::None,
            Driver::Kubernetes | Driver::OpenShift | Driver::OpenShiftPods => {
                ProviderDetails::Pods { context: values.get("context").and_then(Value::as_str).map(ToOwned::to_owned) }
            }
            Driver::OpenStack | Driver::Fake => {
                ProviderDetails::OpenStack(Box::new(typed::<OpenStackProvider>(self, entry, path)?))
            }
            Driver::Metastatic => ProviderDetails::Metastatic {
                boot_timeout_s: number("boot-timeout").map_or(120, i64::unsigned_abs),
                launch_timeout_s: number("launch-timeout").map_or(3600, i64::unsigned_abs),
            },
        };
        let priority = number("priority").unwrap_or(DEFAULT_PRIORITY);
        let mut pools: Vec<Pool> = Vec::new();
        for (index, entry) in entries(entry, "pools").iter().enumerate() {
            let path = format!("{path}.pools[{index}]");
            let pool = self.pool(entry, driver, priority, &path)?;
            if pools.iter().any(|other| other.name == pool.name) {
                self.fail(entry.place, &path, "", format!("the pool `{}` is already defined", pool.name));
            }
            pools.push(pool);
        }
        Some(Provider {
            name: values.get("name").and_then(Value::as_str)?.to_owned(),
            driver,
            max_concurrency: number("max-concurrency").and_then(|limit| u64::try_from(limit).ok()),
            limits: limits(&values),
            launch_retries: number("launch-retries").map_or(3, i64::unsigned_abs),
            details,
            pools,
        })
    }

    fn pool(&mut self, entry: &Tree<'_>, driver: Driver, priority: i64, path: &str) -> Option<Pool> {
        let values: Map<String, Value> = typed(self, entry, path)?;
        let hosts: Vec<StaticHost> = match present(entry, "nodes") {
            Some(nodes) => typed(self, nodes, &format!("{path}.nodes"))?,
            None => Vec::new(),
        };
        let openstack = match driver {
            Driver::OpenStack | Driver::Fake => Some(typed::<OpenStackPool>(self, entry, path)?),
            _ => None,
        };
        let mut labels = BTreeMap::new();
        for host in &hosts {
            for label in &host.labels {
                let resources = Resources::from([(INSTANCES.to_owned(), 1)]);
                labels.insert(label.clone(), PoolLabel { resources, details: LabelDetails::Static });
            }
        }
        for (index, entry) in entries(entry, "labels").iter().enumerate() {
            let path = format!("{path}.labels[{index}]");
            let name = entry.get("name").and_then(Tree::text)?;
            let label = self.pool_label(entry, driver, &values, &path)?;
            labels.insert(name.to_owned(), label);
        }
        Some(Pool {
            name: values.get("name").and_then(Value::as_str)?.to_owned(),
            priority: values.get("priority").and_then(Value::as_i64).unwrap_or(priority),
            limits: limits(&values),
            node_attributes: values.get("node-attributes").and_then(Value::as_object).cloned(),
            labels,
            hosts,
            openstack,
        })
    }

    fn pool_label(
        &mut self,
        entry: &Tree<'_>,
        driver: Driver,
        pool: &Map<String, Value>,
        path: &str,
    ) -> Option<PoolLabel> {
        let mut resources = Resources::from([(INSTANCES.to_owned(), 1)]);
        let details = match driver {
            Driver::Static => LabelDetails::Static,
            Driver::Metastatic => LabelDetails::Metastatic(typed::<MetastaticLabel>(self, entry, path)?),
            Driver::OpenStack | Driver::Fake => {
                LabelDetails::OpenStack(Box::new(typed::<OpenStackLabel>(self, entry, path)?))
            }
            Driver::Kubernetes | Driver::OpenShift | Driver::OpenShiftPods => {
                let mut label: PodLabel = typed(self, entry, path)?;
                apply_pool_defaults(&mut label, pool);
                let kinds: &[&str] = match driver {
                    Driver::Kubernetes => &["namespace", "pod"],
                    Driver::OpenShift => &["project", "pod"],
                    _ => &["pod"],
                };
                if !kinds.contains(&label.kind.as_str()) {
                    let place = entry.get("type").map_or(entry.place, |kind| kind.place);
                    let problem = format!("is not one of {}", kinds.join(", "));
                    self.fail(place, &format!("{path}.type"), &label.kind, problem);
                    return None;
                }
                resources.extend(pod_resources(&label));
                LabelDetails::Pod(Box::new(label))
            }
        };
        Some(PoolLabel { resources, details })
    }

    /// Labels and images that a provider names and the file has to define.
    fn references(&mut self, entry: &Tree<'_>, provider: &Provider, path: &str, config: &mut Config) {
        let cloud_images: Option<Vec<&str>> = match &provider.details {
            ProviderDetails::OpenStack(details) => {
                for tree in entries(entry, "diskimages") {
                    let Some(name) = tree.get("name").and_then(Tree::text) else { continue };
                    if provider.driver == Driver::OpenStack && !config.diskimages.contains_key(name) {
                        let problem = format!("the diskimage `{name}` is not defined in the main `diskimages`");
                        self.fail(tree.place, path, "", problem);
                    }
                }
                Some(details.cloud_images.iter().map(|image| image.name.as_str()).collect())
            }
            _ => None,
        };
        for (pool_index, pool_tree) in entries(entry, "pools").iter().enumerate() {
            for (index, label) in entries(pool_tree, "labels").iter().enumerate() {
                let path = format!("{path}.pools[{pool_index}].labels[{index}]");
                let Some(name) = label.get("name") else { continue };
                if provider.driver == Driver::OpenStack && !config.labels.contains_key(name.shown()) {
                    let problem = format!("the label `{}` is not defined in the main `labels`", name.shown());
                    self.fail(name.place, &path, "", problem);
                }
                if let Some(image) = label.get("diskimage")
                    && provider.driver == Driver::OpenStack
                    && !config.diskimages.contains_key(image.shown())
                {
                    let problem = format!("the diskimage `{}` is not defined in the main `diskimages`", image.shown());
                    self.fail(image.place, &path, "", problem);
                }
                if let Some(image) = label.get("cloud-image")
                    && cloud_images.as_ref().is_some_and(|images| !images.contains(&image.shown()))
                {
                    let problem = format!("the cloud image `{}` is not defined in this provider", image.shown());
                    self.fail(image.place, &path, "", problem);
                }
            }
        }
        self.undefined_labels(entry, provider, path, config);
    }

    /// A label that no entry of `labels` defines works, with nothing kept ready.
    fn undefined_labels(&mut self, entry: &Tree<'_>, provider: &Provider, path: &str, config: &mut Config) {
        for name in provider.pools.iter().flat_map(|pool| pool.labels.keys()) {
            if config.labels.contains_key(name) {
                continue;
            }
            let problem = format!("the label `{name}` is not defined in the main `labels`; it is taken as defined");
            if provider.driver != Driver::OpenStack {
                self.warn(entry.place, path, "", problem);
            }
            let label = Label { name: name.clone(), min_ready: 0, max_ready_age_s: 0 };
            config.labels.insert(name.clone(), label);
        }
    }
}

/// Whether a text is a valid file name. ZooKeeper's paths have the same rule.
fn is_file_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && !name.starts_with('-')
        && name.len() <= 200
        && !name.contains(|letter: char| letter == '/' || letter.is_whitespace() || letter.is_control())
}

/// What a pod requests if its label does not say, and its limits: those of the label, of the pool, or the requests.
fn apply_pool_defaults(label: &mut PodLabel, pool: &Map<String, Value>) {
    let default = |key: &str| pool.get(key).and_then(Value::as_u64);
    label.cpu = label.cpu.or_else(|| default("default-label-cpu"));
    label.memory = label.memory.or_else(|| default("default-label-memory"));
    label.storage = label.storage.or_else(|| default("default-label-storage"));
    label.cpu_limit = label.cpu_limit.or_else(|| default("default-label-cpu-limit")).or(label.cpu);
    label.memory_limit = label.memory_limit.or_else(|| default("default-label-memory-limit")).or(label.memory);
    label.storage_limit = label.storage_limit.or_else(|| default("default-label-storage-limit")).or(label.storage);
    if let Some(Value::Object(extra)) = pool.get("default-label-extra-resources") {
        for (name, amount) in extra {
            label.extra_resources.entry(name.clone()).or_insert_with(|| amount.as_u64().unwrap_or_default());
        }
    }
}

fn pod_resources(label: &PodLabel) -> Resources {
    let named = [(CORES, label.cpu), (RAM, label.memory), ("storage", label.storage)];
    let mut resources: Resources =
        named.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))).collect();
    resources.extend(label.extra_resources.clone());
    if let (Some(gpu), Some(name)) = (label.gpu, &label.gpu_resource) {
        resources.insert(name.clone(), gpu.ceil() as u64);
    }
    resources
}
