//! Components: each launcher, builder and pool announces itself with a record that ends with its session.

use serde::{Deserialize, Serialize};

/// The version of the data model that every component announces.
pub(super) const MODEL_API: u32 = 0;

/// What a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComponentKind {
    /// A launcher's process.
    Launcher,
    /// A builder's process.
    Builder,
    /// A pool of a launcher.
    Pool,
}

impl ComponentKind {
    /// Its folder in ZooKeeper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launcher => "launcher",
            Self::Builder => "builder",
            Self::Pool => "pool",
        }
    }
}

/// Whether a component works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComponentState {
    /// It starts.
    Initializing,
    /// It works.
    Running,
    /// It takes no new work.
    Paused,
    /// It does not work.
    Stopped,
}

/// A launcher or builder, keys sorted as Nodepool sorts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// The host that it runs on.
    pub hostname: String,
    /// What it is.
    pub kind: ComponentKind,
    /// The version of the data model.
    #[serde(default)]
    pub model_api: u32,
    /// Whether it works.
    pub state: ComponentState,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
}

impl Component {
    /// A component that runs.
    pub fn running(kind: ComponentKind, hostname: &str, version: &str) -> Self {
        Self {
            hostname: hostname.to_owned(),
            kind,
            model_api: MODEL_API,
            state: ComponentState::Running,
            version: Some(version.to_owned()),
        }
    }
}

/// A pool of a launcher, keys sorted as Nodepool sorts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolComponent {
    /// The host that its launcher runs on.
    pub hostname: String,
    /// What requests name in `declined_by`.
    #[serde(default)]
    pub id: Option<String>,
    /// Always `pool`.
    pub kind: ComponentKind,
    /// The version of the data model.
    #[serde(default)]
    pub model_api: u32,
    /// The pool's name.
    #[serde(default)]
    pub name: Option<String>,
    /// Whether it takes no new requests.
    #[serde(default)]
    pub paused: bool,
    /// Pools with lower numbers get a request first.
    #[serde(default = "hundred")]
    pub priority: i64,
    /// The provider's name.
    #[serde(default)]
    pub provider_name: Option<String>,
    /// Whether it works.
    pub state: ComponentState,
    /// What it can provide.
    #[serde(default)]
    pub supported_labels: Vec<String>,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
}

fn hundred() -> i64 {
    100
}
