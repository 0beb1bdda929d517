//! The arithmetic of a rollout: how large each MachineSet of a MachineDeployment should be next.
//!
//! Unlike a Deployment's, it never counts on which Machine leaves when a set shrinks: taking one away from a set
//! that has an available Machine counts as losing an available one.

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::workloads::scaled::most_unavailable;

/// How a deployment replaces its Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// New ones come while old ones leave.
    Rolling {
        /// Machines above `replicas` that may exist.
        max_surge: i64,
        /// Machines below `replicas` that may be unavailable.
        max_unavailable: i64,
    },
    /// Old Machines leave when a user deletes them.
    OnDelete,
}

/// How a deployment may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Machines wanted.
    pub replicas: i64,
    /// How machines are replaced.
    pub strategy: Strategy,
}

impl Limits {
    /// Machines above `replicas` that may exist.
    pub fn max_surge(&self) -> i64 {
        match self.strategy {
            Strategy::Rolling { max_surge, .. } => max_surge,
            Strategy::OnDelete => 0,
        }
    }

    /// Machines that may be unavailable.
    pub fn max_unavailable(&self) -> i64 {
        match self.strategy {
            Strategy::Rolling { max_surge, max_unavailable } => {
                most_unavailable(self.replicas, max_surge, max_unavailable)
            }
            Strategy::OnDelete => 0,
        }
    }

    /// The most Machines that may exist at a time.
    pub fn most(&self) -> i64 {
        self.replicas + self.max_surge()
    }
}

/// The numbers of a MachineSet that a rollout needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Machines that it should have.
    pub wanted: i64,
    /// Machines that it has, as its status says.
    pub actual: i64,
    /// Machines of it that are available.
    pub available: i64,
    /// When it was made.
    pub created: Timestamp,
    /// The most Machines that the deployment was allowed when the set was last written.
    pub most_before: Option<i64>,
}

/// New sizes; what is not named keeps its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resizes {
    /// The size of the set with the current template.
    pub new: Option<i64>,
    /// The sizes of older sets, by index.
    pub old: Vec<(usize, i64)>,
}

/// The next step of a rollout. `old` has the oldest set first.
pub fn step(limits: &Limits, new: &Size, old: &[Size]) -> Resizes {
    match limits.strategy {
        Strategy::Rolling { .. } => rolling(limits, new, old),
        Strategy::OnDelete => on_delete(limits, new, old),
    }
}

fn rolling(limits: &Limits, new: &Size, old: &[Size]) -> Resizes {
    let grown = grow(limits, new, old);
    let mut sizes: Vec<i64> = old.iter().map(|set| set.wanted).collect();
    shrink(limits, new, grown, old, &mut sizes);
    let mut resizes = Resizes { new: grown, old: changes(old, &sizes) };
    if resizes == Resizes::default()
        && let Some(stuck) = deadlocked(new, old)
    {
        resizes.old.push((stuck, old[stuck].wanted - 1));
    }
    resizes
}

/// The next size of the new set, if it is another one.
fn grow(limits: &Limits, new: &Size, old: &[Size]) -> Option<i64> {
    if new.wanted == limits.replicas {
        return None;
    }
    if new.wanted > limits.replicas {
        return Some(limits.replicas);
    }
    // Machines that are still leaving take up room as well.
    let current: i64 = old.iter().chain([new]).map(|set| set.wanted.max(set.actual)).sum();
    let room = (limits.most() - current).min(limits.replicas - new.wanted);
    (room > 0).then_some(new.wanted + room)
}

fn shrink(limits: &Limits, new: &Size, grown: Option<i64>, old: &[Size], sizes: &mut [i64]) {
    let total_old: i64 = sizes.iter().sum();
    if total_old == 0 {
        return;
    }
    let least = (limits.replicas - limits.max_unavailable()).max(0);
    let leaving = |set: &Size, intent: i64| (set.actual - intent.min(set.wanted)).max(0);
    let pending =
        old.iter().map(|set| leaving(set, set.wanted)).sum::<i64>() + leaving(new, grown.unwrap_or(new.wanted));
    let new_unavailable = (new.wanted - new.available).max(0);
    let mut allowed = total_old + new.wanted - pending - least - new_unavailable;
    let mut available = old.iter().map(|set| set.available).sum::<i64>() + new.available;
    for only_unavailable in [true, false] {
        for (set, size) in old.iter().zip(sizes.iter_mut()) {
            if allowed <= 0 {
                return;
            }
            let most = if only_unavailable { (*size - set.available).max(0) } else { *size };
            let (taken, lost) = take(set, *size, most.min(allowed), available - least);
            *size -= taken;
            allowed -= taken;
            available -= lost;
        }
    }
}

/// How many of `wish` a set of this size can give away while `spare` available Machines may be lost; and how many
/// are lost at worst.
fn take(set: &Size, size: i64, wish: i64, spare: i64) -> (i64, i64) {
    if wish <= 0 || set.available <= 0 {
        return (wish.max(0), 0);
    }
    let deleted = (set.actual - (size - wish)).max(0);
    if deleted == 0 {
        return (wish, 0);
    }
    if deleted <= spare {
        return (wish, set.available.min(deleted));
    }
    let smaller = (set.actual - spare.max(0)).min(size);
    let deleted = (set.actual - smaller).max(0);
    ((size - smaller).max(0), set.available.min(deleted))
}

/// An old set with an unavailable Machine that holds everything up: nothing moves, and nothing is about to.
fn deadlocked(new: &Size, old: &[Size]) -> Option<usize> {
    let actual: i64 = old.iter().map(|set| set.actual).sum();
    let available: i64 = old.iter().map(|set| set.available).sum();
    let moving = old.iter().chain([new]).any(|set| set.wanted != set.actual);
    if actual == 0 || actual == available || moving || new.available != new.actual {
        return None;
    }
    old.iter().position(|set| set.available != set.actual && set.wanted > 0)
}

fn on_delete(limits: &Limits, new: &Size, old: &[Size]) -> Resizes {
    let grown = grow(limits, new, old);
    let mut sizes: Vec<i64> = old.iter().map(|set| set.wanted).collect();
    let total: i64 = sizes.iter().sum::<i64>() + grown.unwrap_or(new.wanted);
    let mut excess = (total - limits.replicas).max(0);
    // Machines that a user deleted are not created again here.
    for (set, size) in old.iter().zip(sizes.iter_mut()) {
        let gone = (set.wanted - set.actual).max(0).min(*size);
        *size -= gone;
        excess -= gone;
    }
    for size in &mut sizes {
        let step = (*size).min(excess).max(0);
        *size -= step;
        excess -= step;
    }
    Resizes { new: grown, old: changes(old, &sizes) }
}

/// Spreads a change of `replicas` over the sets of a paused deployment, by their size.
pub fn proportionally(limits: &Limits, sets: &[Size], known_replicas: i64) -> Vec<(usize, i64)> {
    let allowed = if limits.replicas > 0 { limits.most() } else { 0 };
    let to_add = allowed - sets.iter().map(|set| set.wanted).sum::<i64>();
    let mut order: Vec<usize> = (0..sets.len()).collect();
    if to_add > 0 {
        order.sort_by_key(|index| (Reverse(sets[*index].wanted), Reverse(sets[*index].created)));
    } else {
        order.sort_by_key(|index| (Reverse(sets[*index].wanted), sets[*index].created));
    }
    let mut sizes: Vec<i64> = sets.iter().map(|set| set.wanted).collect();
    let mut added = 0;
    for index in order.iter().copied().filter(|index| sets[*index].wanted > 0) {
        if added == to_add {
            break;
        }
        let share = share_of(limits, &sets[index], known_replicas);
        let left = to_add - added;
        let step = if to_add > 0 { share.min(left) } else { share.max(left) };
        sizes[index] += step;
        added += step;
    }
    if let Some(first) = order.first() {
        sizes[*first] = (sizes[*first] + to_add - added).max(0);
    }
    changes(sets, &sizes)
}

fn share_of(limits: &Limits, set: &Size, known_replicas: i64) -> i64 {
    if limits.replicas == 0 {
        return -set.wanted;
    }
    match set.most_before.unwrap_or(known_replicas) {
        0 => 0,
        before => (set.wanted as f64 * limits.most() as f64 / before as f64).round() as i64 - set.wanted,
    }
}

fn changes(sets: &[Size], sizes: &[i64]) -> Vec<(usize, i64)> {
    sizes.iter().copied().enumerate().filter(|(index, size)| sets[*index].wanted != *size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolling_limits(replicas: i64, max_surge: i64, max_unavailable: i64) -> Limits {
        Limits { replicas, strategy: Strategy::Rolling { max_surge, max_unavailable } }
    }

    fn size(wanted: i64, actual: i64, available: i64) -> Size {
        Size { wanted, actual, available, created: Timestamp::UNIX_EPOCH, most_before: None }
    }

    #[test]
    fn one_step_at_a_time() {
        let surge = rolling_limits(3, 1, 0);
        let careful = rolling_limits(3, 0, 1);
        let on_delete = Limits { replicas: 3, strategy: Strategy::OnDelete };
        type Case<'a> = (&'a str, Limits, Size, Vec<Size>, Option<i64>, Vec<(usize, i64)>);
        let cases: Vec<Case<'_>> = vec![
            ("from nothing", surge, size(0, 0, 0), vec![], Some(3), vec![]),
            ("one more than wanted", surge, size(0, 0, 0), vec![size(3, 3, 3)], Some(1), vec![]),
            ("the new one is not there yet", surge, size(1, 1, 0), vec![size(3, 3, 3)], None, vec![]),
            ("it is: one may leave", surge, size(1, 1, 1), vec![size(3, 3, 3)], None, vec![(0, 2)]),
            ("who leaves takes up room", surge, size(1, 1, 1), vec![size(2, 3, 3)], None, vec![]),
            ("it has left", surge, size(1, 1, 1), vec![size(2, 2, 2)], Some(2), vec![]),
            ("no surge: one leaves first", careful, size(0, 0, 0), vec![size(3, 3, 3)], None, vec![(0, 2)]),
            ("and is replaced", careful, size(0, 0, 0), vec![size(2, 2, 2)], Some(1), vec![]),
            ("scaled down meanwhile", rolling_limits(1, 1, 0), size(3, 3, 3), vec![], Some(1), vec![]),
            ("a broken old one holds up, and goes", surge, size(1, 1, 1), vec![size(3, 3, 2)], None, vec![(0, 2)]),
            ("nothing but broken ones", surge, size(1, 1, 1), vec![size(2, 2, 0)], Some(2), vec![]),
            ("on delete: nothing by itself", on_delete, size(0, 0, 0), vec![size(3, 3, 3)], None, vec![]),
            ("on delete: one was deleted", on_delete, size(0, 0, 0), vec![size(3, 2, 2)], None, vec![(0, 2)]),
            ("on delete: and is replaced", on_delete, size(0, 0, 0), vec![size(2, 2, 2)], Some(1), vec![]),
        ];
        for (name, limits, new, old, grown, shrunk) in cases {
            assert_eq!(step(&limits, &new, &old), Resizes { new: grown, old: shrunk }, "{name}");
        }
    }

    #[test]
    fn limits_cannot_stand_still() {
        assert_eq!(rolling_limits(3, 0, 0).max_unavailable(), 1);
        assert_eq!(rolling_limits(0, 0, 0).max_unavailable(), 0);
        assert_eq!(rolling_limits(2, 0, 10).max_unavailable(), 2);
        assert_eq!(Limits { replicas: 3, strategy: Strategy::OnDelete }.most(), 3);
    }

    #[test]
    fn a_whole_rollout_ends_and_keeps_its_limits() {
        for (replicas, surge, unavailable) in [(1, 1, 0), (10, 3, 2), (10, 0, 1), (7, 7, 0), (50, 13, 12), (3, 0, 3)] {
            let limits = rolling_limits(replicas, surge, unavailable);
            let (mut new, mut old) = (size(0, 0, 0), [size(replicas, replicas, replicas)]);
            let mut steps = 0;
            while (new.available, old[0].actual) != (replicas, 0) {
                let resizes = step(&limits, &new, &old);
                new.wanted = resizes.new.unwrap_or(new.wanted);
                for (index, to) in resizes.old {
                    old[index].wanted = to;
                }
                // One Machine comes, becomes available, or leaves at a time.
                if old[0].actual > old[0].wanted {
                    old[0].actual -= 1;
                    old[0].available = old[0].available.min(old[0].actual);
                } else if new.available < new.actual {
                    new.available += 1;
                } else if new.actual < new.wanted {
                    new.actual += 1;
                }
                assert!(new.actual + old[0].actual <= replicas + surge, "{limits:?}");
                assert!(new.available + old[0].available >= replicas - unavailable, "{limits:?}");
                steps += 1;
                assert!(steps < 1000, "{limits:?} does not end");
            }
        }
    }

    #[test]
    fn an_unavailable_old_machine_does_not_hold_up_for_ever() {
        // Surge is used up, and shrinking the old set might lose one of the two that work.
        let limits = rolling_limits(3, 1, 0);
        let (new, old) = (size(1, 1, 1), [size(3, 3, 1)]);
        assert_eq!(step(&limits, &new, &old), Resizes { new: None, old: vec![(0, 2)] });
        let waiting = size(1, 1, 0);
        assert_eq!(step(&limits, &waiting, &old), Resizes::default(), "the new one is waited for first");
    }

    #[test]
    fn a_paused_deployment_is_scaled_by_share() {
        let with = |wanted| Size { most_before: Some(13), ..size(wanted, wanted, wanted) };
        let bigger = rolling_limits(20, 5, 5);
        assert_eq!(proportionally(&bigger, &[with(8), with(5)], 13), [(0, 15), (1, 10)]);
        let none = rolling_limits(0, 0, 0);
        assert_eq!(proportionally(&none, &[with(8), with(5)], 13), [(0, 0), (1, 0)]);
    }
}
