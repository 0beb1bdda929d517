//! MachineDeployments and MachineSets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::look::Look;
use super::{MachineTemplate, Problems};
use crate::meta::Condition;

/// A number, or a share of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntOrPercent {
    /// A number.
    Count(i64),
    /// Percent.
    Percent(i64),
}

impl IntOrPercent {
    /// The number, for this total. A surge is rounded up, the number of unavailable machines down.
    pub fn of(self, total: i64, round_up: bool) -> i64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) if round_up => (percent * total + 99).div_euclid(100),
            Self::Percent(percent) => (percent * total).div_euclid(100),
        }
    }

    fn look(look: &Look<'_>, key: &str) -> Option<Self> {
        let value = look.value(key);
        if value.is_null() {
            return None;
        }
        let percent = |text: &str| text.strip_suffix('%')?.parse().ok().map(Self::Percent);
        let count = |text: &str| text.parse().ok().map(Self::Count);
        let read = value.as_i64().map(Self::Count);
        let read = read.or_else(|| value.as_str().and_then(|text| percent(text).or_else(|| count(text))));
        if read.is_none() {
            look.wrong(key, "is neither a number nor a share such as `25%`");
        }
        read
    }
}

/// How machines are replaced by those of a new template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// One after the other.
    RollingUpdate {
        /// How many machines above the desired number may exist.
        max_surge: IntOrPercent,
        /// How many machines below the desired number may be missing.
        max_unavailable: IntOrPercent,
    },
    /// When a client deletes an old one.
    OnDelete,
}

impl Default for Strategy {
    fn default() -> Self {
        Self::RollingUpdate { max_surge: IntOrPercent::Count(1), max_unavailable: IntOrPercent::Count(0) }
    }
}

impl Strategy {
    fn look(look: &Look<'_>) -> Self {
        if look.text("type") == Some("OnDelete") {
            return Self::OnDelete;
        }
        let rolling = look.at("rollingUpdate");
        Self::RollingUpdate {
            max_surge: IntOrPercent::look(&rolling, "maxSurge").unwrap_or(IntOrPercent::Count(1)),
            max_unavailable: IntOrPercent::look(&rolling, "maxUnavailable").unwrap_or(IntOrPercent::Count(0)),
        }
    }
}

/// The order in which surplus machines are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionOrder {
    /// Any.
    #[default]
    Random,
    /// The newest.
    Newest,
    /// The oldest.
    Oldest,
}

impl DeletionOrder {
    fn of(text: Option<&str>) -> Self {
        match text {
            Some("Newest") => Self::Newest,
            Some("Oldest") => Self::Oldest,
            _ => Self::Random,
        }
    }
}

/// A MachineDeployment: a number of machines of a template, replaced step by step when the template changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// The cluster.
    pub cluster_name: String,
    /// Number of machines; absent: one, or what the autoscaler's bounds give.
    pub replicas: Option<i64>,
    /// Labels that select its machines.
    pub selector: BTreeMap<String, String>,
    /// The template of its machines.
    pub template: MachineTemplate,
    /// How they are replaced.
    pub strategy: Strategy,
    /// The order of deletion.
    pub deletion_order: DeletionOrder,
    /// Machines of an unchanged template are replaced too, after this time.
    pub rollout_after: Option<crate::time::Time>,
    /// Number of old sets to keep (v1beta1).
    pub revision_history: Option<i64>,
    /// Whether its controllers ignore it.
    pub paused: bool,
}

impl Deployment {
    /// Reads `spec`.
    pub fn read(spec: &Value, problems: &Problems) -> Self {
        let look = Look::new(spec, "spec", problems);
        let (rollout, old_strategy) = (look.at("rollout"), look.at("strategy"));
        let strategy = rollout.at("strategy");
        let mut template = MachineTemplate::look(&look.at("template"));
        if template.min_ready_s == 0 {
            template.min_ready_s = look.int("minReadySeconds").unwrap_or(0);
        }
        let order = look.at("deletion").text("order");
        let after = rollout.text("after").or_else(|| look.text("rolloutAfter"));
        Self {
            cluster_name: look.owned("clusterName"),
            replicas: look.int("replicas"),
            selector: look.at("selector").texts("matchLabels"),
            template,
            strategy: Strategy::look(if strategy.is_missing() { &old_strategy } else { &strategy }),
            deletion_order: DeletionOrder::of(order.or_else(|| old_strategy.at("rollingUpdate").text("deletePolicy"))),
            rollout_after: after.and_then(crate::time::parse),
            revision_history: look.int("revisionHistoryLimit"),
            paused: look.boolean("paused").unwrap_or(false),
        }
    }

    /// Like [`Self::read`], ignoring errors.
    pub fn of(spec: &Value) -> Self {
        Self::read(spec, &Problems::new())
    }
}

/// A MachineSet: a number of machines of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSet {
    /// The cluster.
    pub cluster_name: String,
    /// Number of machines.
    pub replicas: Option<i64>,
    /// Labels that select its machines.
    pub selector: BTreeMap<String, String>,
    /// The template of its machines.
    pub template: MachineTemplate,
    /// The order of deletion.
    pub deletion_order: DeletionOrder,
}

impl MachineSet {
    /// Reads `spec`.
    pub fn read(spec: &Value, problems: &Problems) -> Self {
        let look = Look::new(spec, "spec", problems);
        let mut template = MachineTemplate::look(&look.at("template"));
        if template.min_ready_s == 0 {
            template.min_ready_s = look.int("minReadySeconds").unwrap_or(0);
        }
        let order = look.at("deletion").text("order").or_else(|| look.text("deletePolicy"));
        Self {
            cluster_name: look.owned("clusterName"),
            replicas: look.int("replicas"),
            selector: look.at("selector").texts("matchLabels"),
            template,
            deletion_order: DeletionOrder::of(order),
        }
    }

    /// Like [`Self::read`], ignoring errors.
    pub fn of(spec: &Value) -> Self {
        Self::read(spec, &Problems::new())
    }
}

/// The phase that Cluster API gives a MachineDeployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// It has the desired number of machines, ready or not.
    Running,
    /// It has fewer machines than desired.
    ScalingUp,
    /// It has more machines than desired, or is being deleted.
    ScalingDown,
    /// No longer used.
    Failed,
    /// Not set.
    #[default]
    Unknown,
}

impl Phase {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::ScalingUp => "ScalingUp",
            Self::ScalingDown => "ScalingDown",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// As it is read.
    pub fn of(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "running" => Self::Running,
            "scalingup" => Self::ScalingUp,
            "scalingdown" => Self::ScalingDown,
            "failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }

    /// The phase as Cluster API computes it from desired and actual numbers.
    pub fn compute(desired: Option<i64>, actual: i64, deleting: bool) -> Self {
        match desired {
            _ if deleting => Self::ScalingDown,
            None => Self::Unknown,
            Some(desired) if desired == actual => Self::Running,
            Some(desired) if desired < actual => Self::ScalingDown,
            Some(_) => Self::ScalingUp,
        }
    }
}

/// Observed state of a MachineDeployment or MachineSet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeploymentStatus {
    /// The generation that the status is about.
    pub observed_generation: i64,
    /// Machines; absent until they are counted.
    pub replicas: Option<i64>,
    /// Number of ready machines.
    pub ready: i64,
    /// Number of machines that have been ready for long enough.
    pub available: i64,
    /// Number of up-to-date ones.
    pub updated: i64,
    /// Number of missing or unavailable machines.
    pub unavailable: i64,
    /// Cluster API's phase.
    pub phase: Phase,
    /// Labels by which its machines are known, as text.
    pub selector: String,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

impl DeploymentStatus {
    /// Reads `status`.
    pub fn read(status: &Value, problems: &Problems) -> Self {
        let look = Look::new(status, "status", problems);
        let old = look.at("deprecated").at("v1beta1");
        let replicas = look.int("replicas");
        let available = look.int("availableReplicas").or_else(|| old.int("availableReplicas")).unwrap_or(0);
        let updated = look.int("upToDateReplicas").or_else(|| look.int("updatedReplicas"));
        let unavailable = look.int("unavailableReplicas");
        // v1beta1 carries the new conditions beside its own.
        let new_conditions = look.at("v1beta2").conditions("conditions");
        Self {
            observed_generation: look.int("observedGeneration").unwrap_or(0),
            replicas,
            ready: look.int("readyReplicas").or_else(|| old.int("readyReplicas")).unwrap_or(0),
            available,
            updated: updated.or_else(|| old.int("updatedReplicas")).unwrap_or(0),
            unavailable: unavailable.unwrap_or_else(|| (replicas.unwrap_or(0) - available).max(0)),
            phase: Phase::of(look.text("phase").unwrap_or_default()),
            selector: look.owned("selector"),
            conditions: if new_conditions.is_empty() { look.conditions("conditions") } else { new_conditions },
        }
    }

    /// Like [`Self::read`], ignoring errors.
    pub fn of(status: &Value) -> Self {
        Self::read(status, &Problems::new())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_versions_say_the_same() {
        let old = json!({
            "clusterName": "c", "replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "minReadySeconds": 5,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"clusterName": "c"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1, "deletePolicy": "Oldest"}},
            "rolloutAfter": "2026-11-17T09:00:00Z",
        });
        let new = json!({
            "clusterName": "c", "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"clusterName": "c", "minReadySeconds": 5}},
            "rollout": {"after": "2026-11-17T09:00:00Z", "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}},
            "deletion": {"order": "Oldest"},
        });
        let (old, new) = (Deployment::of(&old), Deployment::of(&new));
        assert_eq!(old, new);
        assert_eq!((old.template.min_ready_s, old.deletion_order), (5, DeletionOrder::Oldest));
        assert_eq!(
            MachineSet::of(&json!({"deletePolicy": "Newest"})),
            MachineSet::of(&json!({"deletion": {"order": "Newest"}}))
        );
    }

    #[test]
    fn nothing_said_is_cluster_apis_default() {
        let bare = Deployment::of(&json!({}));
        assert_eq!((bare.replicas, bare.strategy), (None, Strategy::default()));
        assert_eq!(
            Deployment::of(&json!({"rollout": {"strategy": {"type": "OnDelete"}}})).strategy,
            Strategy::OnDelete
        );
    }

    #[test]
    fn shares_are_rounded_as_kubernetes_rounds_them() {
        let quarter = IntOrPercent::Percent(25);
        assert_eq!((quarter.of(3, true), quarter.of(3, false), quarter.of(8, true)), (1, 0, 2));
        let problems = Problems::new();
        _ = Deployment::read(&json!({"strategy": {"rollingUpdate": {"maxSurge": "many"}}}), &problems);
        let told = problems.into_inner();
        assert_eq!(
            told[0].to_string(),
            "spec.strategy.rollingUpdate.maxSurge: is neither a number nor a share such as `25%`"
        );
    }

    #[test]
    fn both_statuses_say_the_same() {
        let old = DeploymentStatus::of(&json!({
            "observedGeneration": 2, "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 1,
            "unavailableReplicas": 1, "phase": "ScalingUp", "selector": "a=b",
        }));
        let new = DeploymentStatus::of(&json!({
            "observedGeneration": 2, "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "upToDateReplicas": 1,
            "phase": "ScalingUp", "selector": "a=b",
        }));
        assert_eq!(old, new);
        assert_eq!((new.unavailable, new.phase.name()), (1, "ScalingUp"));
        assert_eq!(DeploymentStatus::of(&Value::Null), DeploymentStatus::default());
    }

    #[test]
    fn the_phase_is_cluster_apis() {
        assert_eq!(Phase::compute(Some(2), 2, false), Phase::Running);
        assert_eq!(Phase::compute(Some(2), 1, false), Phase::ScalingUp);
        assert_eq!(Phase::compute(Some(2), 3, false), Phase::ScalingDown);
        assert_eq!(Phase::compute(Some(2), 2, true), Phase::ScalingDown);
        assert_eq!(Phase::compute(None, 0, false), Phase::Unknown);
    }
}
