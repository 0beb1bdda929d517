//! Options of a snapshot that no object carries.

use std::sync::Arc;

use millpond_api::catalog::overlay::Overlay;
use millpond_api::catalog::{Catalog, built_in};

use crate::groups::NodeGroups;

/// How objects become a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The catalogue of pools whose NodeClass names none; EC2's by default.
    pub catalog: Option<Arc<Catalog>>,
    /// Catalogues that node classes can name, before those that come with the binary.
    pub catalogs: Vec<Arc<Catalog>>,
    /// Price overlays. A node class that names some has just those, all others have all.
    pub overlays: Vec<Overlay>,
    /// Where no pool is given, plan with one over the general families of the catalogue.
    pub default_pool: bool,
    /// Whether nodes without a pool get a price too, from the default catalogue.
    pub price_unmanaged: bool,
    /// Pods of workloads that have none yet: for files with a Deployment and no pods.
    pub expand_workloads: bool,
    /// Spread constraints of pods that have none, as kube-scheduler's configuration can say.
    pub default_spread: Vec<DefaultSpread>,
    /// Further schedulers whose pods are planned for.
    pub schedulers: Vec<String>,
    /// Nodes of all pools together.
    pub limit_nodes: Option<u64>,
    /// Resources of all pools together.
    pub limit_resources: Vec<(String, i64)>,
    /// Nano-dollars per hour of all pools together.
    pub limit_price: Option<u64>,
    /// The pools that may be used.
    pub pools_of: PoolsOf,
    /// Leave aside what node classes say is out of stock: for callers that know it better.
    pub ignore_stock: bool,
    /// A pool whose NodeClass is missing or being deleted is not ready. If false, a missing class is replaced by a
    /// catalogue as long as there is no class at all: for files that leave classes out.
    pub require_classes: bool,
    /// The snapshot is of a cluster in which controllers act: what they have written is believed, and pools that none of
    /// them looks after are not ready.
    pub believe_status: bool,
    /// Leave pods out: what pools can make does not depend on them.
    pub without_pods: bool,
    /// How node groups of Cluster API become pools.
    pub node_groups: NodeGroups,
    /// The revision of the snapshot; by default a count of changes.
    pub revision: Option<String>,
}

/// The pools that may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PoolsOf {
    /// All pools.
    #[default]
    Everyone,
    /// NodePools.
    NodePools,
    /// The pools of one ScalingConstraint.
    Constraint {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl PoolsOf {
    pub(super) fn has_node_pools(&self) -> bool {
        !matches!(self, Self::Constraint { .. })
    }

    pub(super) fn has_constraint(&self, of_namespace: &str, of_name: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::NodePools => false,
            Self::Constraint { namespace, name } => namespace == of_namespace && name == of_name,
        }
    }
}

/// A spread constraint of pods that have none. It counts pods with the same owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultSpread {
    /// The label whose values are the domains.
    pub key: String,
    /// How uneven it may be.
    pub max_skew: u32,
    /// `DoNotSchedule`; otherwise a wish.
    pub hard: bool,
}

impl DefaultSpread {
    /// kube-scheduler's defaults without configuration.
    pub fn system() -> Vec<Self> {
        let soft = |key: &str, max_skew| Self { key: key.to_owned(), max_skew, hard: false };
        vec![soft("kubernetes.io/hostname", 3), soft("topology.kubernetes.io/zone", 5)]
    }
}

impl Options {
    /// For commands that look at a cluster in which controllers act: they plan as these do.
    #[must_use]
    pub fn of_cluster(self) -> Self {
        Self { default_pool: false, expand_workloads: false, require_classes: true, believe_status: true, ..self }
    }

    /// The catalogue of that name.
    pub(super) fn find_catalog(&self, name: &str) -> Option<&Catalog> {
        let default = self.catalog.iter().filter(|catalog| catalog.name == name);
        let own = self.catalogs.iter().filter(|catalog| catalog.name == name);
        own.chain(default).map(|catalog| &**catalog).next().or_else(|| built_in(name))
    }

    /// The catalogue of pools whose NodeClass names none.
    pub(super) fn default_catalog(&self) -> &Catalog {
        let shipped = || built_in("aws").expect("it comes with the binary");
        self.catalog.as_deref().unwrap_or_else(shipped)
    }
}
