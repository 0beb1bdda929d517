//! Taints and tolerations.

use k8s_openapi::api::core::v1 as core;

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// New pods stay away.
    NoSchedule,
    /// New pods would rather go elsewhere.
    PreferNoSchedule,
    /// New pods stay away and running ones leave.
    NoExecute,
}

impl Effect {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => return None,
        })
    }

    /// Whether the effect keeps new pods away.
    pub fn forbids_scheduling(self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, often empty.
    pub value: String,
    /// Its effect.
    pub effect: Effect,
}

impl Taint {
    /// Reads a taint; one with an unknown effect does nothing and is dropped.
    pub fn view(taint: &core::Taint) -> Option<Self> {
        Some(Self {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: Effect::parse(&taint.effect)?,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    Equal,
    Exists,
    Below,
    Above,
    Unknown,
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    key: String,
    operator: Operator,
    value: String,
    /// The effect it is limited to, in the API's words; empty means every effect.
    effect: String,
    /// For how many seconds a running pod stays; `None` means without limit.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Reads a toleration.
    pub fn view(toleration: &core::Toleration) -> Self {
        let operator = match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => Operator::Equal,
            "Exists" => Operator::Exists,
            "Lt" => Operator::Below,
            "Gt" => Operator::Above,
            _ => Operator::Unknown,
        };
        Self {
            key: toleration.key.clone().unwrap_or_default(),
            operator,
            value: toleration.value.clone().unwrap_or_default(),
            effect: toleration.effect.clone().unwrap_or_default(),
            seconds: toleration.toleration_seconds,
        }
    }

    /// Whether the taint is tolerated.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect_fits = self.effect.is_empty() || Effect::parse(&self.effect) == Some(taint.effect);
        let key_fits = self.key.is_empty() || self.key == taint.key;
        effect_fits && key_fits && self.value_fits(&taint.value)
    }

    /// Whether the toleration covers `PreferNoSchedule` taints.
    pub fn covers_preferences(&self) -> bool {
        self.effect.is_empty() || self.effect == "PreferNoSchedule"
    }

    fn value_fits(&self, value: &str) -> bool {
        let numbers = || Some((value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.operator {
            Operator::Equal => self.value == value,
            Operator::Exists => true,
            Operator::Below => numbers().is_some_and(|(taint, bound)| taint < bound),
            Operator::Above => numbers().is_some_and(|(taint, bound)| taint > bound),
            Operator::Unknown => false,
        }
    }
}

/// Whether a taint that keeps pods away is left untolerated.
pub fn is_kept_away(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect.forbids_scheduling())
        .any(|taint| !tolerations.iter().any(|one| one.tolerates(taint)))
}

/// How many `PreferNoSchedule` taints are left untolerated.
pub fn untolerated_preferences(taints: &[Taint], tolerations: &[Toleration]) -> i64 {
    taints
        .iter()
        .filter(|taint| taint.effect == Effect::PreferNoSchedule)
        .filter(|taint| !tolerations.iter().any(|one| one.covers_preferences() && one.tolerates(taint)))
        .count() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: Effect) -> Taint {
        Taint { key: key.into(), value: value.into(), effect }
    }

    fn toleration(value: serde_json::Value) -> Toleration {
        Toleration::view(&serde_json::from_value(value).expect("a toleration"))
    }

    #[test]
    fn tolerations_match_by_key_operator_value_and_effect() {
        let gpu = taint("gpu", "a100", Effect::NoSchedule);
        let tolerates = |value| toleration(value).tolerates(&gpu);
        assert!(tolerates(serde_json::json!({"operator": "Exists"})));
        assert!(tolerates(serde_json::json!({"key": "gpu", "value": "a100"})));
        assert!(!tolerates(serde_json::json!({"key": "gpu", "value": "t4"})));
        assert!(!tolerates(serde_json::json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"})));
        assert!(!tolerates(serde_json::json!({"key": "other", "operator": "Exists"})));
    }

    #[test]
    fn numeric_tolerations_compare_the_taint() {
        let risk = taint("risk", "950", Effect::NoExecute);
        assert!(toleration(serde_json::json!({"key": "risk", "operator": "Gt", "value": "900"})).tolerates(&risk));
        assert!(!toleration(serde_json::json!({"key": "risk", "operator": "Lt", "value": "900"})).tolerates(&risk));
        assert!(!toleration(serde_json::json!({"key": "risk", "operator": "Gt", "value": "x"})).tolerates(&risk));
    }

    #[test]
    fn preferences_do_not_keep_away() {
        let soft = [taint("spot", "", Effect::PreferNoSchedule)];
        assert!(!is_kept_away(&soft, &[]));
        assert_eq!(untolerated_preferences(&soft, &[]), 1);
        let tolerated = [toleration(serde_json::json!({"key": "spot", "operator": "Exists"}))];
        assert_eq!(untolerated_preferences(&soft, &tolerated), 0);
        assert!(is_kept_away(&[taint("x", "", Effect::NoExecute)], &tolerated));
    }
}
