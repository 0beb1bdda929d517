//! The arithmetic of a rollout: how large each ReplicaSet should be next.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::scaled::{Round, most_unavailable, resolve};

/// Default of `maxSurge` and `maxUnavailable`.
const DEFAULT_STEP: &str = "25%";

/// How a deployment may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pods wanted.
    pub replicas: i32,
    /// Whether new pods come before all old ones have gone.
    pub rolling: bool,
    /// Pods above `replicas` that may exist.
    pub max_surge: i32,
    /// Pods below `replicas` that may be unavailable.
    pub max_unavailable: i32,
}

impl Limits {
    /// Reads a deployment.
    pub fn of(deployment: &Deployment) -> Self {
        let empty = DeploymentSpec::default();
        let spec = deployment.spec.as_ref().unwrap_or(&empty);
        let replicas = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate");
        if !rolling {
            return Self { replicas, rolling, max_surge: 0, max_unavailable: 0 };
        }
        let steps = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let read = |value: Option<&IntOrString>, round| {
            let default = IntOrString::String(DEFAULT_STEP.to_owned());
            resolve(value.unwrap_or(&default), replicas, round).unwrap_or_default()
        };
        let max_surge = read(steps.and_then(|steps| steps.max_surge.as_ref()), Round::Up);
        let max_unavailable = read(steps.and_then(|steps| steps.max_unavailable.as_ref()), Round::Down);
        let [all, surge, unavailable] = [replicas, max_surge, max_unavailable].map(i64::from);
        let max_unavailable = i32::try_from(most_unavailable(all, surge, unavailable)).unwrap_or(replicas);
        Self { replicas, rolling, max_surge, max_unavailable }
    }

    /// The most pods that may exist at a time.
    pub fn most(&self) -> i32 {
        self.replicas + self.max_surge
    }

    fn min_available(&self) -> i32 {
        self.replicas - self.max_unavailable
    }
}

/// The numbers of a ReplicaSet that a rollout needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pods it should have.
    pub replicas: i32,
    /// Pods of it that are available.
    pub available: i32,
    /// When it was made.
    pub created: Timestamp,
    /// The most pods the deployment was allowed when the set was last scaled.
    pub most_before: Option<i32>,
}

/// A new size for the set at an index.
pub type Resize = (usize, i32);

/// The next size of the new set.
pub fn grow(limits: &Limits, new: i32, total: i32) -> i32 {
    if new >= limits.replicas {
        return limits.replicas;
    }
    if !limits.rolling {
        return limits.replicas;
    }
    let room = limits.most() - total;
    if room <= 0 { new } else { new + room.min(limits.replicas - new) }
}

/// Shrinks old sets: first pods that are not available anyway, then as many as availability allows.
pub fn shrink(limits: &Limits, new: &Size, old: &[Size]) -> Vec<Resize> {
    let mut sizes: Vec<i32> = old.iter().map(|set| set.replicas).collect();
    let total_old: i32 = sizes.iter().sum();
    let new_unavailable = new.replicas - new.available;
    let spare = total_old + new.replicas - limits.min_available() - new_unavailable;
    if total_old == 0 || spare <= 0 {
        return Vec::new();
    }
    let mut by_age: Vec<usize> = (0..old.len()).collect();
    by_age.sort_by_key(|index| (old[*index].created, *index));

    let mut cleaned = 0;
    for index in by_age.iter().copied() {
        let broken = (sizes[index] - old[index].available).max(0);
        let step = broken.min(spare - cleaned);
        sizes[index] -= step;
        cleaned += step;
    }
    let available: i32 = old.iter().map(|set| set.available).sum::<i32>() + new.available;
    let mut allowance = available - limits.min_available();
    for index in by_age {
        if allowance <= 0 {
            break;
        }
        let step = sizes[index].min(allowance);
        sizes[index] -= step;
        allowance -= step;
    }
    changes(old, &sizes)
}

/// Spreads a change of `replicas` in the middle of a rollout over the sets, by their size.
pub fn proportionally(limits: &Limits, sets: &[Size], known_replicas: i32) -> Vec<Resize> {
    let allowed = if limits.replicas > 0 { limits.most() } else { 0 };
    let to_add = allowed - sets.iter().map(|set| set.replicas).sum::<i32>();
    let mut order: Vec<usize> = (0..sets.len()).collect();
    if to_add > 0 {
        order.sort_by_key(|index| (Reverse(sets[*index].replicas), Reverse(sets[*index].created)));
    } else {
        order.sort_by_key(|index| (Reverse(sets[*index].replicas), sets[*index].created));
    }
    let mut sizes: Vec<i32> = sets.iter().map(|set| set.replicas).collect();
    let mut added = 0;
    for index in order.iter().copied() {
        if to_add == 0 || added == to_add || sets[index].replicas == 0 {
            continue;
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
    // All sets, including those that keep their size: their annotations have to be updated.
    sizes.into_iter().enumerate().collect()
}

fn share_of(limits: &Limits, set: &Size, known_replicas: i32) -> i32 {
    if limits.replicas == 0 {
        return -set.replicas;
    }
    let before = set.most_before.filter(|most| *most != 0).unwrap_or(known_replicas);
    if before == 0 {
        return 0;
    }
    let size = f64::from(set.replicas) * f64::from(limits.most()) / f64::from(before);
    size.round() as i32 - set.replicas
}

fn changes(old: &[Size], sizes: &[i32]) -> Vec<Resize> {
    sizes.iter().copied().enumerate().filter(|(index, size)| old[*index].replicas != *size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(replicas: i32, max_surge: i32, max_unavailable: i32) -> Limits {
        Limits { replicas, rolling: true, max_surge, max_unavailable }
    }

    fn size(replicas: i32, available: i32, age: i64) -> Size {
        let created = Timestamp::from_second(1_000_000 - age).expect("a time");
        Size { replicas, available, created, most_before: None }
    }

    fn deployment(strategy: serde_json::Value) -> Deployment {
        serde_json::from_value(serde_json::json!({"spec": {
            "replicas": 10, "strategy": strategy, "selector": {}, "template": {},
        }}))
        .expect("a deployment")
    }

    #[test]
    fn limits_round_surge_up_and_unavailable_down() {
        let read = |value| Limits::of(&deployment(value));
        assert_eq!(read(serde_json::json!({})), limits(10, 3, 2));
        let exact =
            serde_json::json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "5%"}});
        assert_eq!(read(exact), limits(10, 0, 1), "both would be zero");
        let recreate = read(serde_json::json!({"type": "Recreate"}));
        assert_eq!((recreate.rolling, recreate.most()), (false, 10));
    }

    #[test]
    fn growth_keeps_within_the_surge() {
        let limits = limits(10, 3, 2);
        assert_eq!(grow(&limits, 0, 10), 3);
        assert_eq!(grow(&limits, 3, 13), 3);
        assert_eq!(grow(&limits, 3, 11), 5);
        assert_eq!(grow(&limits, 8, 9), 10, "never more than wanted");
        assert_eq!(grow(&limits, 12, 12), 10);
    }

    #[test]
    fn old_sets_shrink_as_far_as_availability_allows() {
        let limits = limits(10, 3, 2);
        let fresh = size(3, 0, 0);
        assert_eq!(shrink(&limits, &fresh, &[size(10, 10, 5)]), [(0, 8)]);
        assert_eq!(shrink(&limits, &fresh, &[size(8, 8, 5)]), [], "8 available is the least");
        assert_eq!(shrink(&limits, &size(5, 3, 0), &[size(8, 8, 5)]), [(0, 5)]);
        assert_eq!(shrink(&limits, &size(10, 10, 0), &[size(3, 3, 5)]), [(0, 0)]);
    }

    #[test]
    fn pods_that_do_not_work_go_first() {
        let limits = limits(10, 3, 2);
        // The older set is broken: its pods are of no use, so they go although the total is low.
        let sets = [size(4, 4, 1), size(6, 0, 9)];
        assert_eq!(shrink(&limits, &size(3, 0, 0), &sets), [(1, 4)]);
    }

    #[test]
    fn a_whole_rollout_ends_and_never_breaks_its_limits() {
        for (replicas, surge, unavailable) in [(1, 1, 0), (10, 3, 2), (10, 0, 1), (7, 7, 0), (50, 13, 12), (3, 0, 3)] {
            let limits = limits(replicas, surge, unavailable);
            let (mut new, mut old) = (size(0, 0, 0), [size(replicas, replicas, 9)]);
            let mut steps = 0;
            while (new.available, old[0].replicas) != (replicas, 0) {
                let grown = grow(&limits, new.replicas, new.replicas + old[0].replicas);
                if grown == new.replicas {
                    for (index, to) in shrink(&limits, &new, &old) {
                        old[index] =
                            Size { replicas: to, available: old[index].available.min(to), ..old[index].clone() };
                    }
                }
                new.replicas = grown;
                assert!(new.replicas + old[0].replicas <= replicas + surge, "{limits:?}");
                assert!(new.available + old[0].available >= replicas - unavailable, "{limits:?}");
                // One pod becomes available at a time.
                new.available = (new.available + 1).min(new.replicas);
                steps += 1;
                assert!(steps < 1000, "{limits:?} does not end");
            }
        }
    }

    #[test]
    fn scaling_in_the_middle_is_shared_by_size() {
        let with = |replicas, age| Size { most_before: Some(13), ..size(replicas, replicas, age) };
        let bigger = limits(20, 5, 5);
        assert_eq!(proportionally(&bigger, &[with(8, 9), with(5, 1)], 13), [(0, 15), (1, 10)]);
        let smaller = limits(5, 2, 1);
        let shrunk = proportionally(&smaller, &[with(8, 9), with(5, 1)], 13);
        assert_eq!(shrunk.iter().map(|(_, size)| size).sum::<i32>(), 7);
        let none = limits(0, 0, 0);
        assert_eq!(proportionally(&none, &[with(8, 9), with(5, 1)], 13), [(0, 0), (1, 0)]);
    }
}
