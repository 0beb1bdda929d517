//! Pools in the words of another tool: Karpenter's NodePools with a node class, Gardener's ScalingConstraint, the
//! templates of Cluster Autoscaler's kwok provider. Values in, values out, with a report of every field that has no
//! exact counterpart.
//!
//! ```text
//!   NodePool, NodeClass ─┐                      ┌─▶ NodePool + NodeClass + catalogue     (Millpond)
//!   ScalingConstraint ───┼─ gather ─▶ fleet ────┼─▶ NodePool + KWOKNodeClass + types     (Karpenter with KWOK)
//!   template Nodes ──────┤              ▲       ├─▶ ScalingConstraint + prices           (Scaling Advisor)
//!   instance types ──────┘   catalogue ─┘       └─▶ ConfigMaps with template Nodes       (Cluster Autoscaler)
//!                                  table ─▶ report
//! ```
//!
//! One table ([`table`]) says which field becomes which; a field that it does not mention is reported as dropped.
//! Files, flags and messages belong to the command line.

mod cluster_autoscaler;
mod fleet;
mod gather;
mod karpenter;
mod names;
mod prices;
mod report;
mod scaling_advisor;
pub mod table;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use gather::Input;
pub use report::{Action, Entry, Report};

use crate::catalog::Catalog;
use crate::catalog::import::ImportError;
use crate::catalog::overlay::Overlay;
use crate::duration::Duration;
use crate::karpenter::{
    NodeClaimTemplate, NodeClaimTemplateSpec, NodeClassRef, NodePool, NodePoolSpec, PoolRequirement,
};
use crate::labels;
use crate::meta::{Kind as _, ObjectMeta};
use crate::node_class::{NodeClass, NodeClassSpec};
use crate::selector::Operator;
use fleet::{Fleet, distinct};
use gather::{Class, ClassKind, title};
use prices::Prices;
use table::Source;

/// The format to convert to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// NodePools with Millpond's NodeClass and a catalogue.
    Millpond,
    /// NodePools with a KWOKNodeClass and instance types, for Karpenter with its KWOK provider.
    Kwok,
    /// A ScalingConstraint and prices.
    ScalingAdvisor,
    /// ConfigMaps for Cluster Autoscaler's kwok provider.
    ClusterAutoscaler,
}

impl Target {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 4] = [Self::Millpond, Self::Kwok, Self::ScalingAdvisor, Self::ClusterAutoscaler];

    /// Its name for users.
    pub fn title(self) -> &'static str {
        match self {
            Self::Millpond => "Millpond",
            Self::Kwok => "Karpenter with KWOK",
            Self::ScalingAdvisor => "Scaling Advisor",
            Self::ClusterAutoscaler => "Cluster Autoscaler with kwok",
        }
    }
}

/// Inputs that are not in the objects.
#[derive(Debug, Clone)]
pub struct Settings<'a> {
    /// The name of what is made and belongs to no pool alone.
    pub name: Option<String>,
    /// Types and prices, where no node class names a catalogue.
    pub catalog: &'a Catalog,
    /// Prices of types that the catalogue does not have. Those that it has are as they should be.
    pub overlays: &'a [Overlay],
    /// The region, for sides that need one.
    pub region: Option<String>,
    /// How long draining may take, for pools that do not say.
    pub drain_timeout: Option<Duration>,
    /// The most types of a NodePool; those with the lowest price for a core are kept.
    pub most_types: Option<usize>,
}

impl<'a> Settings<'a> {
    /// Nothing but a catalogue.
    pub fn new(catalog: &'a Catalog) -> Self {
        Self { name: None, catalog, overlays: &[], region: None, drain_timeout: None, most_types: None }
    }

    fn prices(&self) -> Prices<'_> {
        Prices { catalog: self.catalog, overlays: self.overlays }
    }
}

/// A file that is no Kubernetes object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// Kubernetes objects.
    pub objects: Vec<Value>,
    /// Files beside them.
    pub files: Vec<File>,
    /// Every field without an exact counterpart.
    pub report: Report,
}

impl Converted {
    /// Whether no pool is in it.
    fn is_empty(&self) -> bool {
        let pools = |object: &Value| match object["kind"].as_str() {
            Some("NodePool") => 1,
            Some("ScalingConstraint") => object["spec"]["nodePools"].as_array().map_or(0, Vec::len),
            Some("ConfigMap") => {
                usize::from(object["data"]["templates"].as_str().is_some_and(|text| text.contains("kind: Node")))
            }
            _ => 0,
        };
        self.objects.iter().map(pools).sum::<usize>() == 0
    }
}

/// Why a conversion fails.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// There is no pool.
    #[error("there is no pool in what was read")]
    NoPools,
    /// There are pools, but none has a type that the target can have.
    #[error("no pool is left: none of their instance types can be used")]
    NothingLeft {
        /// The problems of each.
        report: Report,
    },
    /// An object is not what its kind says.
    #[error("{object} cannot be read")]
    Object {
        /// The object.
        object: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A text within an object cannot be read.
    #[error("{place} cannot be read: {problem}")]
    Text {
        /// Where.
        place: String,
        /// Why.
        problem: String,
    },
    /// The catalogue of a ConfigMap cannot be read.
    #[error("the catalogue of ConfigMap/{map} cannot be read")]
    Catalog {
        /// The ConfigMap.
        map: String,
        /// Why.
        #[source]
        source: ImportError,
    },
    /// A node class names a catalogue that is not there.
    #[error("{class} names the catalogue `{name}`, which is neither here nor one that comes with Millpond")]
    UnknownCatalog {
        /// The node class.
        class: String,
        /// The catalogue.
        name: String,
        /// A name like it.
        near: Option<String>,
    },
    /// More than an object can hold.
    #[error(
        "{what} has {bytes} bytes: Kubernetes takes no ConfigMap of more than {}",
        crate::catalog::config_map::LIMIT_BYTES
    )]
    TooLarge {
        /// What is too large.
        what: String,
        /// How large.
        bytes: usize,
    },
}

/// Says in the words of a target what was gathered.
pub fn convert(input: &Input, target: Target, settings: &Settings<'_>) -> Result<Converted, ConvertError> {
    let mut report = Report::default();
    let made;
    let input = if input.has_pools() {
        input
    } else {
        made = with_pools(input, &mut report);
        &made
    };
    let fleet = fleet(input, target, settings, &mut report)?;
    let catalogs: Vec<&Catalog> = input.catalogs.iter().chain([settings.catalog]).collect();
    let mut converted = match target {
        Target::Millpond | Target::Kwok => karpenter::write(&fleet, target, settings, &catalogs, &mut report)?,
        Target::ScalingAdvisor => scaling_advisor::write(&fleet, settings, &mut report),
        Target::ClusterAutoscaler => cluster_autoscaler::write(&fleet, settings, &mut report)?,
    };
    report.sort();
    if converted.is_empty() {
        return Err(ConvertError::NothingLeft { report });
    }
    converted.report = report;
    Ok(converted)
}

/// All pools, and what of their objects the target has no words for.
fn fleet(input: &Input, target: Target, settings: &Settings<'_>, report: &mut Report) -> Result<Fleet, ConvertError> {
    if !input.has_pools() {
        return Err(ConvertError::NoPools);
    }
    let mut fleet = Fleet::default();
    for (constraint, object) in &input.constraints {
        table::drops(Source::Constraint, &title(object), object, target, report);
        scaling_advisor::read(constraint, object, settings, &mut fleet, report);
    }
    for (pool, object) in &input.pools {
        // Karpenter's own come out as they went in.
        if !matches!(target, Target::Millpond | Target::Kwok) {
            table::drops(Source::NodePool, &title(object), object, target, report);
        }
        let read = karpenter::read(pool, object, input, settings, report)?;
        if fleet.name.is_empty() {
            fleet.name.clone_from(&pool.spec.template.spec.node_class_ref.name);
        }
        fleet.pools.push(read);
    }
    for class in &input.classes {
        let passes = match class.kind {
            ClassKind::Millpond => target == Target::Millpond,
            ClassKind::Kwok => target == Target::Kwok,
            _ => false,
        };
        let source = if class.kind == ClassKind::Millpond { Source::NodeClass } else { Source::OtherClass };
        if !passes {
            table::drops(source, &title(&class.object), &class.object, target, report);
        }
    }
    for (_, object) in &input.templates.nodes {
        table::drops(Source::TemplateNode, &title(object), object, target, report);
    }
    fleet.pools.extend(cluster_autoscaler::read(&input.templates, settings, report)?);
    Ok(fleet)
}

/// A pool and a class for each catalogue that no pool speaks of.
fn with_pools(input: &Input, report: &mut Report) -> Input {
    let mut input = input.clone();
    for catalog in &input.catalogs {
        let (pool, class) = pool_of(catalog);
        let reason = "no pool speaks of these types: one that may have all of them was made";
        report.say(&title(&pool.to_object()), "metadata.name", pool.metadata.name.clone(), Action::Defaulted, reason);
        input.pools.push((pool.clone(), pool.to_object()));
        input.classes.push(Class { kind: ClassKind::Millpond, object: class.to_object(), class });
    }
    input
}

/// A pool of all types of a catalogue and its class, both named as it is.
fn pool_of(catalog: &Catalog) -> (NodePool, NodeClass) {
    let (group, kind) = ClassKind::Millpond.names();
    let name = names::fitting(&catalog.name);
    let one_of = |key: &str, values: Vec<String>| PoolRequirement {
        key: key.to_owned(),
        operator: Operator::In,
        values,
        min_values: None,
    };
    let kinds = distinct(catalog.types.iter().flat_map(|of| &of.offerings).map(|offering| offering.capacity_type));
    let kinds = kinds.into_iter().map(|kind| kind.name().to_owned()).collect();
    let mut requirements = vec![one_of(labels::CAPACITY_TYPE, kinds)];
    if catalog.types.iter().any(|of| of.operating_systems.iter().any(|name| name == "linux")) {
        requirements.push(one_of(labels::OS, vec!["linux".to_owned()]));
    }
    let spec = NodeClaimTemplateSpec {
        requirements,
        node_class_ref: NodeClassRef { group: group.to_owned(), kind: kind.to_owned(), name: name.clone() },
        ..NodeClaimTemplateSpec::default()
    };
    let pool = NodePool {
        metadata: ObjectMeta { name: name.clone(), ..ObjectMeta::default() },
        spec: NodePoolSpec {
            template: NodeClaimTemplate { metadata: Default::default(), spec },
            disruption: Default::default(),
            limits: None,
            weight: None,
            replicas: None,
        },
        status: Default::default(),
    };
    let class = NodeClass {
        metadata: ObjectMeta { name, ..ObjectMeta::default() },
        spec: NodeClassSpec {
            provider: Some("sim".to_owned()),
            catalog: Some(catalog.name.clone()),
            ..NodeClassSpec::default()
        },
        ..NodeClass::default()
    };
    (pool, class)
}
