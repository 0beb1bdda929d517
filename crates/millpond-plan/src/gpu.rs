//! Chooses the node for a long job on accelerators.
//!
//! ```text
//!   Job + Candidates ─▶ filter: one reason for each node that cannot take it ─▶ rank ─▶ keep the last answer? ─▶ Choice
//! ```
//!
//! The rule: of the nodes that stay undisturbed while the job runs and have enough free accelerators, take the one with
//! the least CPU demand. Ties go to the node with the fewest free accelerators left over, then to one whose
//! accelerators are in use already (so that no whole node is broken up), then the shortest sufficient time, then the
//! least memory in use, then the name. A job that needs no accelerator gets no node with accelerators unless it allows
//! that.
//!
//! The same input gives the same choice in whatever order the candidates are. Matching nodes to machines and measuring
//! their use is the caller's work.

pub mod packing;
mod rank;

pub use rank::{Hysteresis, Score};

/// What a job needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Hours that the job needs without a disturbance.
    pub hours: u64,
    /// Number of accelerators; zero for a job that needs none.
    pub gpus: u64,
    /// The model: a name such as `T4`, or vendor and device such as `10de:1eb8`. Compared without regard to case.
    pub model: Option<String>,
    /// Memory of one accelerator.
    pub min_gpu_memory_mib: Option<u64>,
    /// Whether a job without accelerators may run on a node that has some.
    pub allow_gpu_nodes: bool,
}

/// Time until a node is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undisturbed {
    /// Seconds until the nearest known event.
    Known(u64),
    /// No event is known; the caller assumes this many seconds.
    Assumed(u64),
    /// The node is being disturbed: its host is in maintenance or quarantine.
    Now,
}

impl Undisturbed {
    /// Whole hours, rounded down.
    pub fn hours(self) -> u64 {
        self.seconds() / 3600
    }

    fn seconds(self) -> u64 {
        match self {
            Self::Known(seconds) | Self::Assumed(seconds) => seconds,
            Self::Now => 0,
        }
    }
}

/// Why a node is not considered. The caller determines this before it measures the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Excluded {
    /// Several virtual machines match the node.
    AmbiguousVM,
    /// No virtual machine matches the node.
    VMNotFound,
    /// The host of the node's machine is not connected.
    HostDisconnected,
    /// The node's machine or host may not be read.
    PermissionDenied,
    /// The node is not ready.
    NotReady,
    /// The node is cordoned.
    Unschedulable,
    /// The node selector of the job does not select the node.
    SelectorMismatch,
    /// The job does not tolerate a taint of the node.
    UntoleratedTaint,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name, unique among the candidates.
    pub node: String,
    /// Why the node is not considered; `None` if it is.
    pub excluded: Option<Excluded>,
    /// Time until it is disturbed.
    pub undisturbed: Undisturbed,
    /// Accelerators that pods may use: allocatable.
    pub gpus: u64,
    /// Accelerators that are held neither by a pod nor by another job's reservation.
    pub free_gpus: u64,
    /// Names and ids by which the model is known: `Tesla T4`, `T4`, `10de:1eb8`.
    pub models: Vec<String>,
    /// Memory of one accelerator, if known.
    pub gpu_memory_mib: Option<u64>,
    /// CPU demand in MHz.
    pub cpu_demand_mhz: u64,
    /// Memory in use in MiB.
    pub memory_mib: u64,
}

/// Why a node cannot take a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// Not considered at all.
    Excluded(Excluded),
    /// The job needs an accelerator, and the node has none.
    NoGPU,
    /// The job needs no accelerator, and the node has some.
    HasGPU,
    /// The accelerator is another model.
    WrongModel,
    /// Too little memory of an accelerator, or its memory is unknown.
    TooLittleGPUMemory,
    /// The node is being disturbed now.
    InMaintenance,
    /// The node is disturbed before the job would end.
    TimeTooShort,
    /// The node has accelerators, but too few are free.
    NoFreeGPU,
}

impl Rejection {
    /// The reason as one word, as status fields show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Excluded(Excluded::AmbiguousVM) => "AmbiguousVM",
            Self::Excluded(Excluded::VMNotFound) => "VMNotFound",
            Self::Excluded(Excluded::HostDisconnected) => "HostDisconnected",
            Self::Excluded(Excluded::PermissionDenied) => "PermissionDenied",
            Self::Excluded(Excluded::NotReady) => "NotReady",
            Self::Excluded(Excluded::Unschedulable) => "Unschedulable",
            Self::Excluded(Excluded::SelectorMismatch) => "SelectorMismatch",
            Self::Excluded(Excluded::UntoleratedTaint) => "UntoleratedTaint",
            Self::NoGPU => "NoGPU",
            Self::HasGPU => "HasGPU",
            Self::WrongModel => "WrongModel",
            Self::TooLittleGPUMemory => "TooLittleGPUMemory",
            Self::InMaintenance => "InMaintenance",
            Self::TimeTooShort => "TimeTooShort",
            Self::NoFreeGPU => "NoFreeGPU",
        }
    }
}

/// The result: indexes into the candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Nodes that can take the job, best first. The first one is the answer.
    pub suitable: Vec<(usize, Score)>,
    /// The others, by name, with the first rule that failed.
    pub rejected: Vec<(usize, Rejection)>,
    /// Whether the last answer was kept although another node ranks higher.
    pub kept: bool,
}

impl Choice {
    /// The chosen node.
    pub fn best(&self) -> Option<usize> {
        self.suitable.first().map(|(index, _)| *index)
    }
}

/// Chooses a node. `last` is the node of the previous answer, which stays unless another one is clearly better.
pub fn choose(job: &Job, candidates: &[Candidate], last: Option<&str>, hysteresis: &Hysteresis) -> Choice {
    let mut choice = Choice::default();
    for (index, candidate) in candidates.iter().enumerate() {
        match reject(job, candidate) {
            Some(rejection) => choice.rejected.push((index, rejection)),
            None => choice.suitable.push((index, Score::of(job, candidate))),
        }
    }
    choice.rejected.sort_by(|(one, _), (other, _)| candidates[*one].node.cmp(&candidates[*other].node));
    choice.suitable.sort_by(|(one, first), (other, second)| {
        first.cmp(second).then_with(|| candidates[*one].node.cmp(&candidates[*other].node))
    });
    let kept = choice.suitable.iter().position(|(index, _)| Some(candidates[*index].node.as_str()) == last);
    if let Some(kept) = kept.filter(|at| *at > 0)
        && hysteresis.keeps(&choice.suitable[kept].1, &choice.suitable[0].1)
    {
        choice.suitable[..=kept].rotate_right(1);
        choice.kept = true;
    }
    choice
}

/// The first rule that a node fails.
fn reject(job: &Job, candidate: &Candidate) -> Option<Rejection> {
    if let Some(excluded) = candidate.excluded {
        return Some(Rejection::Excluded(excluded));
    }
    let needs_gpu = job.gpus > 0;
    if needs_gpu && candidate.gpus == 0 {
        return Some(Rejection::NoGPU);
    }
    if !needs_gpu && candidate.gpus > 0 && !job.allow_gpu_nodes {
        return Some(Rejection::HasGPU);
    }
    if needs_gpu && job.model.as_deref().is_some_and(|model| !is_model(candidate, model)) {
        return Some(Rejection::WrongModel);
    }
    let least = job.min_gpu_memory_mib.filter(|_| needs_gpu);
    if least.is_some_and(|least| candidate.gpu_memory_mib.is_none_or(|has| has < least)) {
        return Some(Rejection::TooLittleGPUMemory);
    }
    if candidate.undisturbed == Undisturbed::Now {
        return Some(Rejection::InMaintenance);
    }
    if candidate.undisturbed.hours() < job.hours {
        return Some(Rejection::TimeTooShort);
    }
    (candidate.free_gpus < job.gpus).then_some(Rejection::NoFreeGPU)
}

fn is_model(candidate: &Candidate, model: &str) -> bool {
    candidate.models.iter().any(|known| known.eq_ignore_ascii_case(model.trim()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(name: &str) -> Candidate {
        Candidate {
            node: name.to_owned(),
            excluded: None,
            undisturbed: Undisturbed::Known(400 * 3600 + 3599),
            gpus: 2,
            free_gpus: 2,
            models: vec!["Tesla T4".to_owned(), "T4".to_owned(), "10de:1eb8".to_owned()],
            gpu_memory_mib: Some(16384),
            cpu_demand_mhz: 100,
            memory_mib: 300,
        }
    }

    fn job() -> Job {
        Job { hours: 100, gpus: 1, ..Job::default() }
    }

    /// `job`, `node` → reason, or `ok`.
    fn check(job: &Job, change: impl FnOnce(&mut Candidate), expected: &str) {
        let mut candidate = node("a");
        change(&mut candidate);
        let choice = choose(job, &[candidate], None, &Hysteresis::default());
        let found = choice.rejected.first().map_or("ok", |(_, rejection)| rejection.as_str());
        assert_eq!(found, expected);
    }

    #[test]
    fn every_rule_has_its_reason() {
        check(&job(), |_| {}, "ok");
        check(&job(), |node| node.excluded = Some(Excluded::AmbiguousVM), "AmbiguousVM");
        check(&job(), |node| (node.gpus, node.free_gpus) = (0, 0), "NoGPU");
        check(&job(), |node| node.free_gpus = 0, "NoFreeGPU");
        check(&Job { gpus: 3, ..job() }, |_| {}, "NoFreeGPU");
        check(&job(), |node| node.undisturbed = Undisturbed::Now, "InMaintenance");
        check(&job(), |node| node.undisturbed = Undisturbed::Known(100 * 3600 - 1), "TimeTooShort");
        check(&job(), |node| node.undisturbed = Undisturbed::Known(100 * 3600), "ok");
        check(&job(), |node| node.undisturbed = Undisturbed::Assumed(100 * 3600), "ok");
        // No hours are asked for, but a host in maintenance takes nothing.
        check(&Job { hours: 0, ..job() }, |node| node.undisturbed = Undisturbed::Now, "InMaintenance");
        for model in ["t4", "10DE:1EB8", "tesla t4"] {
            check(&Job { model: Some(model.to_owned()), ..job() }, |_| {}, "ok");
        }
        check(&Job { model: Some("A100".to_owned()), ..job() }, |_| {}, "WrongModel");
        check(&Job { min_gpu_memory_mib: Some(16385), ..job() }, |_| {}, "TooLittleGPUMemory");
        check(&Job { min_gpu_memory_mib: Some(1), ..job() }, |node| node.gpu_memory_mib = None, "TooLittleGPUMemory");
        let without = Job { hours: 100, ..Job::default() };
        check(&without, |_| {}, "HasGPU");
        check(&without, |node| node.gpus = 0, "ok");
        check(&Job { allow_gpu_nodes: true, ..without }, |_| {}, "ok");
    }

    fn best(candidates: &[Candidate], last: Option<&str>) -> String {
        let choice = choose(&job(), candidates, last, &Hysteresis::default());
        candidates[choice.best().expect("a suitable node")].node.clone()
    }

    #[test]
    fn the_least_cpu_demand_wins_and_ties_are_broken() {
        let busy = Candidate { cpu_demand_mhz: 101, ..node("a") };
        assert_eq!(best(&[busy, node("b")], None), "b");
        let full = Candidate { free_gpus: 1, ..node("b") };
        assert_eq!(best(&[node("a"), full], None), "b", "the fewest free accelerators are left over");
        let used = Candidate { gpus: 4, free_gpus: 2, ..node("b") };
        assert_eq!(best(&[node("a"), used], None), "b", "both leave one over; a node that is wholly free stays whole");
        let short = Candidate { undisturbed: Undisturbed::Known(101 * 3600), ..node("b") };
        assert_eq!(best(&[node("a"), short], None), "b", "the shortest sufficient time");
        let light = Candidate { memory_mib: 299, ..node("b") };
        assert_eq!(best(&[node("a"), light], None), "b", "the least memory in use");
        assert_eq!(best(&[node("b"), node("a")], None), "a", "the name");
        // A known time is worth more than an assumption of the same length.
        let assumed = Candidate { undisturbed: Undisturbed::Assumed(400 * 3600 + 3599), ..node("a") };
        assert_eq!(best(&[assumed, node("b")], None), "b");
    }

    #[test]
    fn the_last_answer_stays_until_another_is_clearly_better() {
        let with_demand = |name: &str, cpu_demand_mhz| Candidate { cpu_demand_mhz, ..node(name) };
        let last = Some("a");
        assert_eq!(best(&[with_demand("a", 1050), with_demand("b", 1000)], last), "a");
        assert_eq!(best(&[with_demand("a", 1000), with_demand("b", 700)], last), "b");
        // Small numbers differ by noise.
        assert_eq!(best(&[with_demand("a", 90), with_demand("b", 10)], last), "a");
        // The last answer must still be suitable.
        let gone = Candidate { undisturbed: Undisturbed::Now, ..with_demand("a", 10) };
        assert_eq!(best(&[gone, with_demand("b", 1000)], last), "b");
        let choice = choose(&job(), &[node("b"), node("a")], Some("b"), &Hysteresis::default());
        assert!(choice.kept);
        assert_eq!(choice.suitable.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (0u64..4, 0u64..5, 0u64..200, 0u64..4, 0u64..3, any::<bool>());
        prop::collection::vec(one, 0..12).prop_map(|nodes| {
            let build =
                |(at, (gpus, free, hours, cpu, memory, assumed)): (usize, (u64, u64, u64, u64, u64, bool))| Candidate {
                    gpus,
                    free_gpus: free.min(gpus),
                    undisturbed: match (assumed, hours) {
                        (_, 0) => Undisturbed::Now,
                        (true, hours) => Undisturbed::Assumed(hours * 3600),
                        (false, hours) => Undisturbed::Known(hours * 3600),
                    },
                    cpu_demand_mhz: cpu * 500,
                    memory_mib: memory,
                    ..node(&format!("node-{at:02}"))
                };
            nodes.into_iter().enumerate().map(build).collect()
        })
    }

    proptest! {
        #[test]
        fn each_node_is_suitable_or_rejected(nodes in candidates(), gpus in 0u64..3, last in 0usize..12) {
            let job = Job { gpus, ..job() };
            let last = format!("node-{last:02}");
            let choice = choose(&job, &nodes, Some(&last), &Hysteresis::default());
            let mut all: Vec<usize> = choice.suitable.iter().map(|(index, _)| *index).collect();
            for index in &all {
                let node = &nodes[*index];
                prop_assert!(node.free_gpus >= gpus && node.undisturbed.hours() >= job.hours);
                prop_assert_eq!(node.gpus > 0, gpus > 0);
            }
            all.extend(choice.rejected.iter().map(|(index, _)| *index));
            all.sort_unstable();
            prop_assert_eq!(all, (0..nodes.len()).collect::<Vec<_>>());
        }

        #[test]
        fn the_order_of_candidates_does_not_matter(nodes in candidates(), turn in 0usize..12, last in 0usize..12) {
            let last = format!("node-{last:02}");
            let names = |nodes: &[Candidate]| {
                let choice = choose(&job(), nodes, Some(&last), &Hysteresis::default());
                let suitable: Vec<_> = choice.suitable.iter().map(|(index, _)| nodes[*index].node.clone()).collect();
                let rejected: Vec<_> = choice.rejected.iter().map(|(index, why)| (nodes[*index].node.clone(), *why)).collect();
                (suitable, rejected, choice.kept)
            };
            let mut turned = nodes.clone();
            turned.rotate_left(turn.min(nodes.len()));
            prop_assert_eq!(names(&nodes), names(&turned));
        }

        #[test]
        fn an_answer_that_is_given_again_stays(nodes in candidates()) {
            let first = choose(&job(), &nodes, None, &Hysteresis::default());
            if let Some(best) = first.best() {
                let again = choose(&job(), &nodes, Some(&nodes[best].node), &Hysteresis::default());
                prop_assert_eq!(again.best(), Some(best));
            }
        }
    }
}
