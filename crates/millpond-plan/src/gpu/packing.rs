//! Where on shared GPUs the next pod goes, so that what is left over stays of use: the fragmentation gradient.
//!
//! A GPU is a fragment for a pod that it cannot serve: the pod needs more of it than is left, or the node lacks cores,
//! memory or the model. What is left of a node, weighed by how often each shape of pod comes, is its expected
//! fragmentation (Weng et al., "Beware of Fragmentation", USENIX ATC 2023). The pod goes where that grows least; of nodes
//! that differ little, to the fullest.
//!
//! The order of arrival is the caller's business; nothing is moved.

/// Thousandths of a GPU.
pub const WHOLE: u32 = 1000;
/// How much of the fragmentation that is left over by a choice counts as much as a thousandth of a GPU that stays free on
/// the node: the weight of [`Popularity::gradient`] that packs the openb traces best.
pub const FULLEST_FIRST: f64 = 0.002;
/// How many thousandths of a GPU a thousandth of a core is worth where nodes are compared by what is free on them: those
/// traces have about ten cores to a GPU.
const CPU_WEIGHT: f64 = 0.1;
/// Models are bits of a mask.
pub type Models = u64;

/// What a pod needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Thousandths of a core.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    /// GPUs.
    pub gpus: u32,
    /// Thousandths of each of them; less than [`WHOLE`] for a share of one.
    pub milli: u32,
    /// The models that the pod accepts; all bits set for any.
    pub models: Models,
}

/// A node with its free resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Thousandths of a core.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    /// Thousandths of each GPU.
    pub gpus: Vec<u32>,
    /// The bit of its model.
    pub model: Models,
}

impl Machine {
    /// Whether a pod fits on the machine.
    pub fn fits(&self, shape: &Shape) -> bool {
        if self.cpu < shape.cpu || self.memory < shape.memory {
            return false;
        }
        if shape.gpus == 0 {
            return true;
        }
        let serving = self.gpus.iter().filter(|left| **left >= shape.milli).count();
        self.model & shape.models != 0 && serving >= shape.gpus as usize
    }

    /// Takes a pod, the share of a GPU from `gpu`. Whole GPUs are alike: those that come first are taken.
    pub fn take(&mut self, shape: &Shape, gpu: Option<usize>) {
        self.cpu -= shape.cpu;
        self.memory -= shape.memory;
        if let Some(gpu) = gpu {
            self.gpus[gpu] -= shape.milli;
            return;
        }
        let serving = self.gpus.iter_mut().filter(|left| **left >= shape.milli);
        serving.take(shape.gpus as usize).for_each(|left| *left -= shape.milli);
    }

    /// The sum of what is free on all GPUs, in thousandths.
    pub fn free(&self) -> u32 {
        self.gpus.iter().sum()
    }

    /// GPUs of which a share can be taken, one for each amount that is left.
    pub fn shares(&self, milli: u32) -> impl Iterator<Item = usize> + '_ {
        let is_first = move |at: &usize| self.gpus[*at] >= milli && !self.gpus[..*at].contains(&self.gpus[*at]);
        (0..self.gpus.len()).filter(is_first)
    }
}

/// How often pods of each shape occur.
#[derive(Clone, Debug, Default)]
pub struct Popularity {
    shapes: Vec<(Shape, f64)>,
}

impl Popularity {
    /// Built from shapes with their counts. Only the most frequent shapes are kept, until they make up a share of
    /// `coverage` of all pods.
    pub fn new(mut counts: Vec<(Shape, u64)>, coverage: f64) -> Self {
        counts.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        let mut covered = 0;
        let mut shapes = Vec::new();
        for (shape, count) in counts {
            if covered as f64 >= coverage * all as f64 {
                break;
            }
            covered += count;
            shapes.push((shape, count as f64 / all as f64));
        }
        Self { shapes }
    }

    /// The expected fragmentation of a node.
    pub fn fragmentation(&self, machine: &Machine) -> f64 {
        let free = machine.free();
        if free == 0 {
            return 0.0;
        }
        let whole = machine.gpus.iter().filter(|left| **left == WHOLE).count() as u32;
        let broken = free - whole * WHOLE;
        let largest = machine.gpus.iter().copied().max().unwrap_or_default();
        let mut sum = 0.0;
        for (shape, share) in &self.shapes {
            let serves = shape.gpus > 0
                && machine.cpu >= shape.cpu
                && machine.memory >= shape.memory
                && machine.model & shape.models != 0;
            let fragment = if !serves {
                free
            } else if shape.milli == WHOLE {
                if whole >= shape.gpus { broken } else { free }
            } else if largest >= shape.milli {
                machine.gpus.iter().filter(|left| **left < shape.milli).sum()
            } else {
                free
            };
            sum += share * f64::from(fragment);
        }
        sum
    }

    /// How much the expected fragmentation of a node grows with a pod, for the best of its GPUs, and which that is. `tie`
    /// weighs how full the node is.
    pub fn gradient(&self, machine: &Machine, before: f64, shape: &Shape, tie: f64) -> (f64, Option<usize>) {
        let after = |gpu: Option<usize>| {
            let mut taken = machine.clone();
            taken.take(shape, gpu);
            let room = f64::from(taken.free()) + CPU_WEIGHT * f64::from(taken.cpu);
            self.fragmentation(&taken) - before + tie * room
        };
        if shape.gpus != 1 || shape.milli == WHOLE {
            return (after(None), None);
        }
        let tried = machine.shares(shape.milli).map(|gpu| (after(Some(gpu)), Some(gpu)));
        tried.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or((f64::INFINITY, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpu: u32, gpus: &[u32]) -> Machine {
        Machine { cpu, memory: 1 << 20, gpus: gpus.to_vec(), model: 1 }
    }

    fn pod(gpus: u32, milli: u32) -> Shape {
        Shape { cpu: 1000, memory: 0, gpus, milli, models: Models::MAX }
    }

    #[test]
    fn what_no_pod_can_use_is_a_fragment() {
        let popularity = Popularity::new(vec![(pod(1, 500), 1), (pod(1, WHOLE), 1)], 1.0);
        let check = |cpu, gpus: &[u32], expected: f64| {
            let found = popularity.fragmentation(&machine(cpu, gpus));
            assert!((found - expected).abs() < 1e-9, "{cpu} {gpus:?}: {found}");
        };
        check(4000, &[WHOLE, WHOLE], 0.0);
        check(4000, &[400, WHOLE], 400.0);
        check(4000, &[600], 300.0);
        // Without a core nothing can use them.
        check(500, &[WHOLE], 1000.0);
        check(4000, &[0], 0.0);
    }

    #[test]
    fn a_share_goes_where_it_breaks_nothing() {
        let popularity = Popularity::new(vec![(pod(1, 500), 1), (pod(1, WHOLE), 1)], 1.0);
        let shape = pod(1, 500);
        let node = machine(4000, &[WHOLE, 500]);
        let before = popularity.fragmentation(&node);
        let (growth, gpu) = popularity.gradient(&node, before, &shape, FULLEST_FIRST);
        assert_eq!(gpu, Some(1));
        let whole = machine(4000, &[WHOLE]);
        let (other, _) = popularity.gradient(&whole, popularity.fragmentation(&whole), &shape, FULLEST_FIRST);
        assert!(growth < other, "{growth} {other}");
    }

    #[test]
    fn pods_that_are_taken_need_what_they_say() {
        let mut node = machine(4000, &[WHOLE, 300, WHOLE]);
        let two = pod(2, WHOLE);
        assert!(node.fits(&two) && !node.fits(&pod(3, WHOLE)));
        node.take(&two, None);
        assert_eq!((node.gpus.as_slice(), node.cpu), ([0, 300, 0].as_slice(), 3000));
        assert!(!node.fits(&Shape { models: 2, ..pod(1, 100) }));
    }
}
