//! Finds convertible objects among JSON values: pools, node classes, constraints, templates, catalogues.

use serde::Deserialize;
use serde_json::Value;

use super::ConvertError;
use super::cluster_autoscaler::{self, Templates};
use crate::catalog::{Catalog, Provider, config_map};
use crate::karpenter::NodePool;
use crate::node_class::NodeClass;
use crate::scaling_advisor::ScalingConstraint;

/// The annotation in which kubectl keeps what was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All objects that can be converted.
#[derive(Debug, Clone, Default)]
pub struct Input {
    pub(super) pools: Vec<(NodePool, Value)>,
    pub(super) classes: Vec<Class>,
    pub(super) constraints: Vec<(ScalingConstraint, Value)>,
    pub(super) templates: Templates,
    pub(super) catalogs: Vec<Catalog>,
    /// Kinds in the input that have nothing to do with pools.
    others: Vec<String>,
}

/// A node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) kind: ClassKind,
    pub(super) class: NodeClass,
    pub(super) object: Value,
}

/// Whose node class it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClassKind {
    Millpond,
    Ec2,
    Gce,
    Kwok,
}

impl ClassKind {
    const ALL: [Self; 4] = [Self::Millpond, Self::Ec2, Self::Gce, Self::Kwok];

    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Millpond => ("millpond.dev", "NodeClass"),
            Self::Ec2 => ("karpenter.k8s.aws", "EC2NodeClass"),
            Self::Gce => ("karpenter.k8s.gcp", "GCENodeClass"),
            Self::Kwok => ("karpenter.kwok.sh", "KWOKNodeClass"),
        }
    }

    pub(super) fn of(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.names() == (group, kind))
    }

    /// Whose machines its nodes are; Millpond's says it itself.
    pub(super) fn provider(self) -> Option<Provider> {
        match self {
            Self::Millpond => None,
            Self::Ec2 => Some(Provider::Aws),
            Self::Gce => Some(Provider::Gcp),
            Self::Kwok => Some(Provider::Kwok),
        }
    }
}

impl Input {
    /// Takes what can be converted out of objects. Lists, and requests to Scaling Advisor, are looked into.
    pub fn gather(objects: impl IntoIterator<Item = Value>) -> Result<Self, ConvertError> {
        let mut input = Self::default();
        for object in objects {
            input.add(object)?;
        }
        Ok(input)
    }

    /// Adds a catalogue of types that nodes may be of.
    pub fn add_catalog(&mut self, catalog: Catalog) {
        self.catalogs.push(catalog);
    }

    /// Whether there is a pool of any tool.
    pub(super) fn has_pools(&self) -> bool {
        self.pools.len() + self.constraints.len() + self.templates.nodes.len() > 0
    }

    /// Kinds in the input that have nothing to do with pools, each once.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    fn add(&mut self, mut object: Value) -> Result<(), ConvertError> {
        if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        let said = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (said("apiVersion"), said("kind"));
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if let Some(class) = ClassKind::of(group, &kind) {
            let read = read(&object)?;
            self.classes.push(Class { kind: class, class: read, object });
            return Ok(());
        }
        match (group, kind.as_str()) {
            (_, "") => self.add_without_kind(object)?,
            ("", "ConfigMap") => self.add_config_map(&object)?,
            ("karpenter.sh", "NodePool") => self.pools.push((read(&object)?, object)),
            ("sa.gardener.cloud", "ScalingConstraint" | "ScalingConstraints" | "ClusterScalingConstraint") => {
                self.constraints.push((read(&object)?, object));
            }
            _ => self.add_other(kind),
        }
        Ok(())
    }

    fn add_without_kind(&mut self, mut object: Value) -> Result<(), ConvertError> {
        if let Some(constraint) = object.get_mut("constraint").map(Value::take).filter(|value| !value.is_null()) {
            self.constraints.push((read(&constraint)?, constraint));
        } else if object.pointer("/spec/nodePools").is_some() {
            self.constraints.push((read(&object)?, object));
        }
        Ok(())
    }

    fn add_config_map(&mut self, object: &Value) -> Result<(), ConvertError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let name = text("/metadata/name");
        let label = object.pointer("/metadata/labels").and_then(|labels| labels.get(config_map::LABEL));
        if let Some(catalog) = label.and_then(Value::as_str) {
            let read = config_map::read(name, catalog, text("/data/catalog"));
            self.catalogs.push(read.map_err(|source| ConvertError::Catalog { map: name.to_owned(), source })?);
            return Ok(());
        }
        if cluster_autoscaler::read_config_map(name, object, &mut self.templates)? || self.add_types(name, object)? {
            return Ok(());
        }
        self.add_other("ConfigMap".to_owned());
        Ok(())
    }

    /// Takes the instance types of KWOK that a ConfigMap carries for Karpenter to mount; false if there are none.
    fn add_types(&mut self, name: &str, object: &Value) -> Result<bool, ConvertError> {
        let texts = object.get("data").and_then(Value::as_object).into_iter().flatten();
        let types = |text: &&str| text.trim_start().starts_with('[') && text.contains("\"offerings\"");
        let Some(text) = texts.filter_map(|(_, value)| value.as_str()).find(types) else { return Ok(false) };
        let read = config_map::read(name, name, text);
        self.catalogs.push(read.map_err(|source| ConvertError::Catalog { map: name.to_owned(), source })?);
        Ok(true)
    }

    fn add_other(&mut self, kind: String) {
        if !self.others.contains(&kind) {
            self.others.push(kind);
        }
    }
}

fn read<T: for<'de> Deserialize<'de>>(object: &Value) -> Result<T, ConvertError> {
    T::deserialize(object).map_err(|source| ConvertError::Object { object: title(object), source })
}

/// Kind and name of an object.
pub(super) fn title(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let kind = Some(text("/kind")).filter(|kind| !kind.is_empty()).unwrap_or("ScalingConstraint");
    match text("/metadata/name") {
        "" => kind.to_owned(),
        name => format!("{kind}/{name}"),
    }
}
