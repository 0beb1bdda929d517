//! The disruption cost of pods, in thousandths of an ordinary pod.

use super::residents::Residents;
use crate::model::{NodeId, PodClass, Snapshot};

/// The cost of removing a node apart from its evictions: cordon, drain, and waiting for the replacement. Equal to one
/// ordinary pod.
pub const NODE_DISRUPTION: i64 = 1_000;

/// The cost of evicting a pod: one ordinary pod's, more for a high priority or deletion cost, less for low ones.
///
/// `clamp(1 + deletionCost / 2²⁷ + priority / 2²⁵, −10, 10)`, in thousandths, rounded down.
pub fn eviction_cost(class: &PodClass) -> i64 {
    let units = (1_i64 << 27) + i64::from(class.deletion_cost) + 4 * i64::from(class.priority);
    (1_000 * units).div_euclid(1 << 27).clamp(-10_000, 10_000)
}

/// The cost of evicting a node's pods that have to move. A pod with a negative cost counts as zero, so that it does not
/// offset the others.
pub fn pods_cost(snapshot: &Snapshot, residents: &Residents, node: NodeId) -> i64 {
    let classes = residents.mover_classes(snapshot, node);
    classes.map(|class| eviction_cost(&snapshot.classes[class.index()]).max(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::Symbols;

    #[test]
    fn priority_and_deletion_cost_count() {
        let mut symbols = Symbols::new();
        for (priority, deletion_cost, expected) in [
            (0, 0, 1_000),
            (1 << 25, 0, 2_000),
            (0, 1 << 27, 2_000),
            (0, -(1 << 27), 0),
            (0, -(1 << 28), -1_000),
            (1 << 24, 1 << 26, 2_000),
            (1_000_000_000, 0, 10_000),
            (2_000_001_000, i32::MAX, 10_000),
            (i32::MIN, i32::MIN, -10_000),
            (1_000, 100, 1_000),
            (33_555, 0, 1_001),
        ] {
            let mut class = PodClass::new(symbols.intern("default"));
            (class.priority, class.deletion_cost) = (priority, deletion_cost);
            assert_eq!(eviction_cost(&class), expected, "priority {priority}, deletion cost {deletion_cost}");
        }
    }
}
