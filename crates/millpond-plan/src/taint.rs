//! Taints, which keep pods off a node, and tolerations, which let them on.
//!
//! The rules are kube-scheduler's: `NoSchedule` and `NoExecute` forbid a place, `PreferNoSchedule` only makes it
//! less welcome.

use serde::{Deserialize, Serialize};

use crate::symbol::{Symbol, Symbols};

/// The effect of a taint on pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Effect {
    /// They are not placed there.
    NoSchedule,
    /// They are placed there only if no other node takes them.
    PreferNoSchedule,
    /// They are not placed there, and are evicted if they run there.
    NoExecute,
}

impl Effect {
    /// Whether the effect keeps a pod from being placed.
    pub fn forbids(self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

/// A taint of a node or of the template of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: Symbol,
    /// Its value, empty where none is given.
    pub value: Symbol,
    /// Its effect.
    pub effect: Effect,
}

/// How a toleration compares the value of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Comparison {
    /// Any value.
    Exists,
    /// This value.
    Equal(Symbol),
    /// Taints whose value is an integer greater than this.
    Above(i64),
    /// Taints whose value is an integer less than this.
    Below(i64),
}

/// A toleration of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Toleration {
    /// The key of the tolerated taints; `None` for all keys.
    pub key: Option<Symbol>,
    /// The tolerated values.
    pub value: Comparison,
    /// The tolerated effect; `None` for all effects.
    pub effect: Option<Effect>,
}

impl Toleration {
    /// Whether it tolerates the taint.
    pub fn tolerates(&self, taint: &Taint, symbols: &Symbols) -> bool {
        let number = || symbols.integer(taint.value);
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.is_none_or(|key| key == taint.key)
            && match self.value {
                Comparison::Exists => true,
                Comparison::Equal(value) => value == taint.value,
                Comparison::Above(least) => number().is_some_and(|number| number > least),
                Comparison::Below(most) => number().is_some_and(|number| number < most),
            }
    }
}

/// The first taint, in the order given, that keeps the pod off the node.
pub fn first_forbidding<'t>(taints: &'t [Taint], tolerations: &[Toleration], symbols: &Symbols) -> Option<&'t Taint> {
    untolerated(taints, tolerations, symbols).find(|taint| taint.effect.forbids())
}

/// How many taints make the node less welcome to the pod.
pub fn count_discouraging(taints: &[Taint], tolerations: &[Toleration], symbols: &Symbols) -> usize {
    untolerated(taints, tolerations, symbols).filter(|taint| !taint.effect.forbids()).count()
}

fn untolerated<'t>(
    taints: &'t [Taint],
    tolerations: &[Toleration],
    symbols: &Symbols,
) -> impl Iterator<Item = &'t Taint> {
    taints.iter().filter(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint, symbols)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let mut symbols = Symbols::new();
        let [gpu, team, empty, red, blue, ten] = ["gpu", "team", "", "red", "blue", "10"].map(|t| symbols.intern(t));
        let taint = |key, value, effect| Taint { key, value, effect };
        let toleration = |key, value, effect| Toleration { key, value, effect };
        let of_team = taint(team, red, Effect::NoSchedule);
        let cases = [
            (toleration(Some(team), Comparison::Equal(red), Some(Effect::NoSchedule)), of_team, true),
            (toleration(Some(team), Comparison::Equal(red), None), of_team, true),
            (toleration(Some(team), Comparison::Equal(blue), None), of_team, false),
            (toleration(Some(team), Comparison::Equal(red), Some(Effect::NoExecute)), of_team, false),
            (toleration(Some(gpu), Comparison::Exists, None), of_team, false),
            (toleration(Some(team), Comparison::Exists, None), of_team, true),
            (toleration(None, Comparison::Exists, None), of_team, true),
            (toleration(None, Comparison::Exists, Some(Effect::NoExecute)), of_team, false),
            (toleration(Some(gpu), Comparison::Equal(empty), None), taint(gpu, empty, Effect::NoExecute), true),
            (toleration(Some(gpu), Comparison::Above(9), None), taint(gpu, ten, Effect::NoSchedule), true),
            (toleration(Some(gpu), Comparison::Above(10), None), taint(gpu, ten, Effect::NoSchedule), false),
            (toleration(Some(gpu), Comparison::Below(11), None), taint(gpu, ten, Effect::NoSchedule), true),
            (toleration(Some(gpu), Comparison::Below(11), None), taint(gpu, red, Effect::NoSchedule), false),
        ];
        for (number, (toleration, taint, expected)) in cases.into_iter().enumerate() {
            assert_eq!(toleration.tolerates(&taint, &symbols), expected, "case {number}");
        }
    }

    #[test]
    fn only_some_effects_forbid() {
        let mut symbols = Symbols::new();
        let [a, b, empty] = ["a", "b", ""].map(|text| symbols.intern(text));
        let soft = Taint { key: a, value: empty, effect: Effect::PreferNoSchedule };
        let hard = Taint { key: b, value: empty, effect: Effect::NoExecute };
        let all_of_b = Toleration { key: Some(b), value: Comparison::Exists, effect: None };
        assert_eq!(first_forbidding(&[soft, hard], &[], &symbols), Some(&hard));
        assert_eq!(first_forbidding(&[soft, hard], &[all_of_b], &symbols), None);
        assert_eq!(count_discouraging(&[soft, hard], &[all_of_b], &symbols), 1);
    }
}
