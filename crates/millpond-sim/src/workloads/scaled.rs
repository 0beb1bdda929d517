//! Values that are numbers or percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use millpond_api::capi::IntOrPercent;

/// The direction in which a share is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Towards more.
    Up,
    /// Towards less.
    Down,
}

/// The number that a value means, out of `total`; `None` if it is invalid.
pub fn resolve(value: &IntOrString, total: i32, round: Round) -> Option<i32> {
    match value {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(text) => {
            let percent = IntOrPercent::Percent(text.strip_suffix('%')?.parse().ok()?);
            i32::try_from(percent.of(i64::from(total), round == Round::Up)).ok()
        }
    }
}

/// How many of `replicas` may be unavailable while they are replaced. Something has to give: with neither surge nor
/// unavailability a rollout would stand still.
pub fn most_unavailable(replicas: i64, max_surge: i64, max_unavailable: i64) -> i64 {
    let stands_still = max_surge == 0 && max_unavailable == 0;
    if stands_still { 1.min(replicas) } else { max_unavailable.min(replicas) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_can_always_move() {
        assert_eq!(most_unavailable(3, 0, 0), 1);
        assert_eq!(most_unavailable(0, 0, 0), 0);
        assert_eq!(most_unavailable(2, 0, 10), 2);
        assert_eq!(most_unavailable(2, 1, 0), 0);
    }

    #[test]
    fn percentages_round_as_asked() {
        let quarter = IntOrString::String("25%".into());
        assert_eq!(resolve(&quarter, 10, Round::Up), Some(3));
        assert_eq!(resolve(&quarter, 10, Round::Down), Some(2));
        assert_eq!(resolve(&quarter, 8, Round::Up), Some(2));
        assert_eq!(resolve(&IntOrString::Int(4), 1, Round::Down), Some(4));
        assert_eq!(resolve(&IntOrString::String("many".into()), 1, Round::Down), None);
    }
}
