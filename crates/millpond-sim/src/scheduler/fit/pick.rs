//! Picks the node for one pod; caches the filter result of each node per shape.

use std::collections::HashMap;

use super::cycle::{Cycle, FilterFailure, check_local};
use super::reason::{FitError, Reason};
use super::score::{self, LocalScore};
use super::snapshot::{ShapeId, Slot};

/// Number of shapes whose results are cached; the least recently used one is evicted.
const REMEMBERED_SHAPES: usize = 64;

/// Where a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To the node at this slot.
    Place(Slot),
    /// Nowhere. The slots are those where removing pods could help.
    Refused {
        /// Why.
        error: FitError,
        /// Nodes where removing pods could help.
        resolvable: Vec<Slot>,
    },
}

#[derive(Clone, Debug)]
struct Remembered {
    generation: u64,
    answer: Result<LocalScore, FilterFailure>,
}

#[derive(Debug, Default)]
struct ShapeMemory {
    used: u64,
    nodes: Vec<Option<Remembered>>,
}

/// Filter results of nodes by shape, valid until the node changes.
#[derive(Debug, Default)]
pub struct FitCache {
    shapes: HashMap<ShapeId, ShapeMemory>,
    clock: u64,
}

impl FitCache {
    fn memory(&mut self, shape: ShapeId, slots: usize) -> &mut ShapeMemory {
        self.clock += 1;
        if !self.shapes.contains_key(&shape) && self.shapes.len() >= REMEMBERED_SHAPES {
            let oldest = self.shapes.iter().min_by_key(|(_, memory)| memory.used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                self.shapes.remove(&oldest);
            }
        }
        let memory = self.shapes.entry(shape).or_default();
        memory.used = self.clock;
        if memory.nodes.len() < slots {
            memory.nodes.resize(slots, None);
        }
        memory
    }
}

/// Finds the best node for a pod: the nominated one if it fits, else the best that fits.
pub fn decide(cycle: &Cycle<'_>, cache: &mut FitCache, nominated: Option<&str>) -> Decision {
    let snapshot = cycle.snapshot;
    let mut error = FitError { nodes: snapshot.node_count(), ..FitError::default() };
    if error.nodes == 0 {
        return Decision::Refused { error, resolvable: Vec::new() };
    }
    let tied = cycle.shape().node_filter.tied_names();
    let conflict = tied.as_ref().is_some_and(Vec::is_empty).then(|| "pod affinity terms conflict".to_owned());
    if let Some(reason) = conflict.or_else(|| cycle.volumes.blocked.clone()) {
        error.before_nodes = Some(reason);
        return Decision::Refused { error, resolvable: Vec::new() };
    }
    if let Some(slot) = nominated.and_then(|name| snapshot.slot(name))
        && cycle.check(slot).is_ok()
    {
        return Decision::Place(slot);
    }
    let slots: Vec<Slot> = match &tied {
        Some(names) => names.iter().filter_map(|name| snapshot.slot(name)).collect(),
        None => snapshot.slots().collect(),
    };
    let elsewhere = error.nodes - slots.len();
    if elsewhere > 0 {
        error.reasons.insert(Reason::TiedElsewhere, elsewhere);
    }
    let (candidates, resolvable) = sift(cycle, cache, &slots, &mut error);
    match score::best(snapshot, cycle.shape(), &candidates) {
        Some(slot) => Decision::Place(slot),
        None => Decision::Refused { error, resolvable },
    }
}

/// Splits nodes into those that fit and those where removing pods could help.
fn sift(
    cycle: &Cycle<'_>,
    cache: &mut FitCache,
    slots: &[Slot],
    error: &mut FitError,
) -> (Vec<(Slot, LocalScore)>, Vec<Slot>) {
    let snapshot = cycle.snapshot;
    let shape = cycle.shape();
    let mut without_memory = ShapeMemory::default();
    let memory = if cycle.volumes.is_idle() {
        cache.memory(cycle.pod.id, snapshot.slot_bound())
    } else {
        // The state of claims is no part of the shape, so that nothing may be remembered.
        without_memory.nodes.resize(snapshot.slot_bound(), None);
        &mut without_memory
    };
    let mut candidates = Vec::new();
    let mut resolvable = Vec::new();
    for slot in slots.iter().copied() {
        let state = snapshot.state(slot);
        let remembered = &mut memory.nodes[slot];
        if remembered.as_ref().is_none_or(|known| known.generation != state.generation) {
            let node = snapshot.node(slot);
            let answer =
                check_local(shape, cycle.volumes, node, &state.usage).map(|()| score::local(shape, node, &state.usage));
            *remembered = Some(Remembered { generation: state.generation, answer });
        }
        let Some(Remembered { answer, .. }) = remembered else {
            continue;
        };
        let verdict = match answer {
            Ok(local) if cycle.is_local() && !cycle.has_nominated_pods(slot) => {
                candidates.push((slot, *local));
                continue;
            }
            Ok(local) => cycle.check_with_local(slot, &Ok(())).map(|()| *local),
            // Nominated pods can only make the result worse, and the first failing rule is reported.
            Err(refusal) if !cycle.has_nominated_pods(slot) => Err(refusal.clone()),
            Err(_) => cycle.check(slot).map(|()| LocalScore::default()),
        };
        match verdict {
            Ok(local) => candidates.push((slot, local)),
            Err(refusal) => {
                refusal.reasons.iter().for_each(|reason| error.count(reason));
                if refusal.resolvable {
                    resolvable.push(slot);
                }
            }
        }
    }
    (candidates, resolvable)
}
