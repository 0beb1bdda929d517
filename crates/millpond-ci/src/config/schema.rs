//! The keys of nodepool.yaml: which are known, which are required, and the type of each. Tables only; `check` walks a
//! file along them.

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Bool,
    /// Any whole number.
    Int,
    /// A whole number that is not negative.
    Count,
    /// A number, with or without a fraction.
    Number,
    TextOrInt,
    TextOrTexts,
    Texts,
    /// A list of anything.
    AnyList,
    /// A map of anything.
    AnyMap,
    /// A map of texts.
    TextMap,
    /// A map of whole numbers that are not negative.
    CountMap,
    /// One map with a schema.
    Map(&'static Schema),
    /// A list of maps with the same schema.
    List(&'static Schema),
    /// A list of maps: those with the key `spec` have the second schema, the others the first.
    PodLabels(&'static Schema, &'static Schema),
}

/// One known key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) kind: Kind,
}

/// The keys of one map, in groups that several maps share.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) groups: &'static [&'static [Key]],
    /// The type of the values of all other keys; `None` makes them errors.
    pub(super) others: Option<Kind>,
    /// At least one key of each row must be present.
    pub(super) one_of: &'static [&'static [&'static str]],
    /// At most one key of each row may be present.
    pub(super) exclusive: &'static [&'static [&'static str]],
}

impl Schema {
    const fn of(groups: &'static [&'static [Key]]) -> Self {
        Self { groups, others: None, one_of: &[], exclusive: &[] }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

const fn optional(name: &'static str, kind: Kind) -> Key {
    Key { name, required: false, kind }
}

const fn required(name: &'static str, kind: Kind) -> Key {
    Key { name, required: true, kind }
}

/// The whole file. The schema of a provider depends on its driver, see [`provider`].
pub(super) static TOP: Schema = Schema::of(&[&[
    optional("webapp", Kind::Map(&WEBAPP)),
    optional("elements-dir", Kind::Text),
    optional("images-dir", Kind::Text),
    optional("build-log-dir", Kind::Text),
    optional("build-log-retention", Kind::Int),
    optional("zookeeper-servers", Kind::List(&ZOOKEEPER_SERVER)),
    optional("zookeeper-tls", Kind::Map(&ZOOKEEPER_TLS)),
    optional("zookeeper-timeout", Kind::Number),
    optional("providers", Kind::AnyList),
    optional("labels", Kind::List(&LABEL)),
    optional("diskimages", Kind::List(&DISKIMAGE)),
    optional("max-hold-age", Kind::Int),
    optional("tenant-resource-limits", Kind::List(&TENANT_LIMIT)),
]]);

/// The file of secrets.
pub(super) static SECURE: Schema = Schema::of(&[&[
    optional("zookeeper-servers", Kind::List(&ZOOKEEPER_SERVER)),
    optional("zookeeper-tls", Kind::Map(&ZOOKEEPER_TLS)),
    optional("diskimages", Kind::List(&SECURE_DISKIMAGE)),
]]);

static SECURE_DISKIMAGE: Schema = Schema::of(&[&[required("name", Kind::Text), required("env-vars", Kind::TextMap)]]);

static WEBAPP: Schema = Schema::of(&[&[optional("port", Kind::Count), optional("listen_address", Kind::Text)]]);

static ZOOKEEPER_SERVER: Schema =
    Schema::of(&[&[required("host", Kind::Text), optional("port", Kind::Count), optional("chroot", Kind::Text)]]);

static ZOOKEEPER_TLS: Schema =
    Schema::of(&[&[required("cert", Kind::Text), required("key", Kind::Text), required("ca", Kind::Text)]]);

static LABEL: Schema = Schema::of(&[&[
    required("name", Kind::Text),
    optional("min-ready", Kind::Count),
    optional("max-ready-age", Kind::Count),
]]);

static DISKIMAGE: Schema = Schema::of(&[&[
    required("name", Kind::Text),
    optional("abstract", Kind::Bool),
    optional("dib-cmd", Kind::Text),
    optional("pause", Kind::Bool),
    optional("elements", Kind::Texts),
    optional("formats", Kind::Texts),
    optional("keep-formats", Kind::Texts),
    optional("delete-after-upload", Kind::Bool),
    optional("parent", Kind::Text),
    optional("release", Kind::TextOrInt),
    optional("rebuild-age", Kind::Count),
    optional("env-vars", Kind::TextMap),
    optional("username", Kind::Text),
    optional("python-path", Kind::Text),
    optional("shell-type", Kind::Text),
    optional("build-timeout", Kind::Count),
    optional("metadata", Kind::AnyMap),
]]);

static TENANT_LIMIT: Schema = Schema {
    others: Some(Kind::Count),
    ..Schema::of(&[&[
        required("tenant-name", Kind::Text),
        optional("max-cores", Kind::Count),
        optional("max-ram", Kind::Count),
        optional("max-servers", Kind::Count),
        optional("max-volumes", Kind::Count),
        optional("max-volume-gb", Kind::Count),
    ]])
};

/// Keys of every provider.
const PROVIDER: &[Key] = &[
    required("name", Kind::Text),
    optional("driver", Kind::Text),
    optional("max-concurrency", Kind::Int),
    optional("priority", Kind::Int),
];

/// Keys of every pool.
const POOL: &[Key] = &[
    required("name", Kind::Text),
    optional("max-servers", Kind::Count),
    optional("node-attributes", Kind::AnyMap),
    optional("priority", Kind::Int),
];

/// The schema of a provider with this driver.
pub(super) fn provider(driver: super::Driver) -> &'static Schema {
    use super::Driver;
    match driver {
        Driver::Static => &STATIC,
        Driver::Kubernetes => &KUBERNETES,
        Driver::OpenShift => &OPENSHIFT,
        Driver::OpenShiftPods => &OPENSHIFT_PODS,
        Driver::OpenStack | Driver::Fake => &OPENSTACK,
        Driver::Metastatic => &METASTATIC,
    }
}

static STATIC: Schema = Schema::of(&[PROVIDER, &[optional("pools", Kind::List(&STATIC_POOL))]]);

static STATIC_POOL: Schema = Schema::of(&[POOL, &[optional("nodes", Kind::List(&STATIC_NODE))]]);

static STATIC_NODE: Schema = Schema::of(&[&[
    required("name", Kind::Text),
    required("labels", Kind::TextOrTexts),
    optional("username", Kind::Text),
    optional("timeout", Kind::Count),
    optional("host-key-checking", Kind::Bool),
    optional("host-key", Kind::TextOrTexts),
    optional("connection-port", Kind::Count),
    optional("ssh-port", Kind::Count),
    optional("connection-type", Kind::Text),
    optional("shell-type", Kind::Text),
    optional("max-parallel-jobs", Kind::Count),
    optional("python-path", Kind::Text),
]]);

/// Limits of the providers and pools that run pods.
const POD_LIMITS: &[Key] =
    &[optional("max-cores", Kind::Count), optional("max-ram", Kind::Count), optional("max-resources", Kind::CountMap)];

const POD_POOL_DEFAULTS: &[Key] = &[
    optional("default-label-cpu", Kind::Count),
    optional("default-label-memory", Kind::Count),
    optional("default-label-storage", Kind::Count),
    optional("default-label-cpu-limit", Kind::Count),
    optional("default-label-memory-limit", Kind::Count),
    optional("default-label-storage-limit", Kind::Count),
    optional("default-label-extra-resources", Kind::CountMap),
];

const POD_LABEL: &[Key] = &[
    optional("image-pull", Kind::Text),
    optional("python-path", Kind::Text),
    optional("shell-type", Kind::Text),
    optional("cpu", Kind::Count),
    optional("memory", Kind::Count),
    optional("storage", Kind::Count),
    optional("cpu-limit", Kind::Count),
    optional("memory-limit", Kind::Count),
    optional("storage-limit", Kind::Count),
    optional("gpu", Kind::Number),
    optional("gpu-resource", Kind::Text),
    optional("env", Kind::List(&ENVIRONMENT)),
    optional("node-selector", Kind::AnyMap),
    optional("privileged", Kind::Bool),
    optional("scheduler-name", Kind::Text),
    optional("volumes", Kind::AnyList),
    optional("volume-mounts", Kind::AnyList),
    optional("extra-resources", Kind::CountMap),
];

const POD_METADATA: &[Key] = &[
    optional("labels", Kind::AnyMap),
    optional("dynamic-labels", Kind::AnyMap),
    optional("annotations", Kind::AnyMap),
];

static ENVIRONMENT: Schema = Schema::of(&[&[required("name", Kind::Text), required("value", Kind::Text)]]);

const NAME: &[Key] = &[required("name", Kind::Text)];
const NAME_AND_TYPE: &[Key] = &[required("name", Kind::Text), required("type", Kind::Text)];
const IMAGE: &[Key] = &[optional("image", Kind::Text)];
const REQUIRED_IMAGE: &[Key] = &[required("image", Kind::Text)];
const PULL_SECRETS: &[Key] = &[optional("image-pull-secrets", Kind::AnyList)];
const SPEC: &[Key] = &[required("spec", Kind::AnyMap)];

static KUBERNETES_LABEL: Schema = Schema::of(&[NAME_AND_TYPE, IMAGE, POD_LABEL, POD_METADATA]);
static OPENSHIFT_LABEL: Schema = Schema::of(&[NAME_AND_TYPE, IMAGE, PULL_SECRETS, POD_LABEL, POD_METADATA]);
static TYPED_SPEC_LABEL: Schema = Schema::of(&[NAME_AND_TYPE, SPEC, POD_METADATA]);
static OPENSHIFT_PODS_LABEL: Schema = Schema::of(&[NAME, REQUIRED_IMAGE, PULL_SECRETS, POD_LABEL, POD_METADATA]);
static SPEC_LABEL: Schema = Schema::of(&[NAME, SPEC, POD_METADATA]);

static KUBERNETES: Schema = Schema::of(&[
    PROVIDER,
    POD_LIMITS,
    &[
        required("pools", Kind::List(&KUBERNETES_POOL)),
        optional("context", Kind::Text),
        optional("launch-retries", Kind::Count),
        optional("max-servers", Kind::Count),
    ],
]);

static KUBERNETES_POOL: Schema = Schema::of(&[
    POOL,
    POD_LIMITS,
    POD_POOL_DEFAULTS,
    &[required("labels", Kind::PodLabels(&KUBERNETES_LABEL, &TYPED_SPEC_LABEL))],
]);

static OPENSHIFT: Schema = Schema::of(&[
    PROVIDER,
    POD_LIMITS,
    &[
        required("pools", Kind::List(&OPENSHIFT_POOL)),
        required("context", Kind::Text),
        optional("launch-retries", Kind::Count),
        optional("max-projects", Kind::Count),
    ],
]);

static OPENSHIFT_POOL: Schema = Schema::of(&[
    POOL,
    POD_LIMITS,
    POD_POOL_DEFAULTS,
    &[required("labels", Kind::PodLabels(&OPENSHIFT_LABEL, &TYPED_SPEC_LABEL))],
]);

static OPENSHIFT_PODS: Schema = Schema::of(&[
    PROVIDER,
    POD_LIMITS,
    &[
        required("pools", Kind::List(&OPENSHIFT_PODS_POOL)),
        required("context", Kind::Text),
        optional("launch-retries", Kind::Count),
        optional("max-pods", Kind::Count),
    ],
]);

static OPENSHIFT_PODS_POOL: Schema = Schema::of(&[
    POOL,
    POD_LIMITS,
    POD_POOL_DEFAULTS,
    &[required("labels", Kind::PodLabels(&OPENSHIFT_PODS_LABEL, &SPEC_LABEL))],
]);

static OPENSTACK: Schema = Schema::of(&[
    PROVIDER,
    &[
        required("cloud", Kind::Text),
        optional("region-name", Kind::Text),
        optional("boot-timeout", Kind::Count),
        optional("launch-timeout", Kind::Count),
        optional("launch-retries", Kind::Count),
        optional("image-upload-timeout", Kind::Count),
        optional("nodepool-id", Kind::Text),
        optional("rate", Kind::Number),
        optional("image-name-format", Kind::Text),
        optional("clean-floating-ips", Kind::Bool),
        optional("port-cleanup-interval", Kind::Count),
        optional("diskimages", Kind::List(&OPENSTACK_DISKIMAGE)),
        optional("cloud-images", Kind::List(&OPENSTACK_CLOUD_IMAGE)),
        optional("post-upload-hook", Kind::Text),
        optional("pools", Kind::List(&OPENSTACK_POOL)),
    ],
]);

static OPENSTACK_DISKIMAGE: Schema = Schema::of(&[&[
    required("name", Kind::Text),
    optional("pause", Kind::Bool),
    optional("meta", Kind::AnyMap),
    optional("config-drive", Kind::Bool),
    optional("connection-type", Kind::Text),
    optional("connection-port", Kind::Count),
]]);

static OPENSTACK_CLOUD_IMAGE: Schema = Schema {
    exclusive: &[&["image-id", "image-name"]],
    ..Schema::of(&[&[
        required("name", Kind::Text),
        optional("image-id", Kind::Text),
        optional("image-name", Kind::Text),
        optional("config-drive", Kind::Bool),
        optional("connection-type", Kind::Text),
        optional("connection-port", Kind::Count),
        optional("username", Kind::Text),
        optional("python-path", Kind::Text),
        optional("shell-type", Kind::Text),
    ]])
};

static OPENSTACK_POOL: Schema = Schema::of(&[
    POOL,
    &[
        optional("networks", Kind::Texts),
        optional("auto-floating-ip", Kind::Bool),
        optional("host-key-checking", Kind::Bool),
        optional("ignore-provider-quota", Kind::Bool),
        optional("max-cores", Kind::Count),
        optional("max-ram", Kind::Count),
        optional("max-volumes", Kind::Count),
        optional("max-volume-gb", Kind::Count),
        optional("availability-zones", Kind::Texts),
        optional("security-groups", Kind::Texts),
        optional("labels", Kind::List(&OPENSTACK_LABEL)),
    ],
]);

static OPENSTACK_LABEL: Schema = Schema {
    one_of: &[&["min-ram", "flavor-name"], &["diskimage", "cloud-image"]],
    exclusive: &[&["diskimage", "cloud-image"]],
    ..Schema::of(&[&[
        required("name", Kind::Text),
        optional("diskimage", Kind::Text),
        optional("cloud-image", Kind::Text),
        optional("min-ram", Kind::Count),
        optional("flavor-name", Kind::Text),
        optional("key-name", Kind::Text),
        optional("console-log", Kind::Bool),
        optional("boot-from-volume", Kind::Bool),
        optional("volume-size", Kind::Count),
        optional("instance-properties", Kind::AnyMap),
        optional("dynamic-instance-properties", Kind::AnyMap),
        optional("userdata", Kind::Text),
        optional("networks", Kind::Texts),
        optional("host-key-checking", Kind::Bool),
    ]])
};

static METASTATIC: Schema = Schema::of(&[
    PROVIDER,
    &[
        required("pools", Kind::List(&METASTATIC_POOL)),
        optional("boot-timeout", Kind::Count),
        optional("launch-timeout", Kind::Count),
        optional("launch-retries", Kind::Count),
    ],
]);

static METASTATIC_POOL: Schema = Schema::of(&[
    POOL,
    &[required("labels", Kind::List(&METASTATIC_LABEL)), optional("host-key-checking", Kind::Bool)],
]);

static METASTATIC_LABEL: Schema = Schema::of(&[&[
    required("name", Kind::Text),
    required("backing-label", Kind::Text),
    optional("max-parallel-jobs", Kind::Count),
    optional("grace-time", Kind::Count),
    optional("min-retention-time", Kind::Count),
    optional("max-age", Kind::Count),
    optional("host-key-checking", Kind::Bool),
]]);
