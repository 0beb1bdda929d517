//! Numbers that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a share of a pod is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Towards more.
    Up,
    /// Towards less.
    Down,
}

/// The number that a value stands for, out of `total`; `None` when it is no number.
pub fn resolve(value: &IntOrString, total: i32, round: Round) -> Option<i32> {
    match value {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent * i64::from(total);
            let share = match round {
                Round::Up => product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0),
                Round::Down => product.div_euclid(100),
            };
            i32::try_from(share).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
