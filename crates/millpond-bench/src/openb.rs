//! The openb traces (Alibaba, 2023): pods that want GPUs and shares of them, packed one by one and never moved.
//!
//! As the paper on FGD measures: pods arrive in an order that follows from a seed, and again by chance, until they have
//! asked for 130 % of all GPUs. What counts is how much of the GPUs is allocated then. A pod without a place is dropped.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use millpond_plan::gpu::packing::{FULLEST_FIRST, Machine, Models, Popularity, Shape, WHOLE};

use crate::random::Random;

/// The first seed of the paper's ten.
pub const FIRST_SEED: u64 = 42;
/// Percent of all GPUs that is asked for.
const ARRIVING_PERCENT: u64 = 130;
/// The result that the paper publishes for FGD: mean allocation in percent over ten seeds.
const PUBLISHED: [(&str, f64); 3] = [("default", 95.39), ("cpu250", 93.41), ("gpushare100", 86.90)];

/// The published allocation of FGD on a trace.
pub fn published(trace: &str) -> Option<f64> {
    PUBLISHED.iter().find(|(name, _)| *name == trace).map(|(_, percent)| *percent)
}

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file.
    #[error("cannot read `{path}`")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A line.
    #[error("`{path}`, line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
}

/// Nodes, and pods in the order of the file.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Empty nodes.
    pub nodes: Vec<Machine>,
    /// Pods.
    pub pods: Vec<Shape>,
}

impl Trace {
    /// Reads `openb_node_list_gpu_node.csv` and `openb_pod_list_TRACE.csv` of a folder.
    pub fn read(folder: &Path, trace: &str) -> Result<Self, TraceError> {
        let mut models: HashMap<String, Models> = HashMap::new();
        let nodes = rows(&folder.join("openb_node_list_gpu_node.csv"), &["cpu_milli", "memory_mib", "gpu", "model"])?;
        let nodes = nodes.into_iter().map(|row| {
            let next = 1 << (models.len() % 64);
            let model = *models.entry(row.text(3).to_owned()).or_insert(next);
            let gpus = vec![WHOLE; row.number(2)? as usize];
            Ok(Machine { cpu: row.number(0)?, memory: row.number(1)?, gpus, model })
        });
        let nodes = nodes.collect::<Result<_, TraceError>>()?;
        let file = folder.join(format!("openb_pod_list_{trace}.csv"));
        let pods = rows(&file, &["cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"])?;
        let pods = pods.into_iter().map(|row| {
            let gpus = row.number(2)?;
            let of = |name: &str| models.get(name).copied().unwrap_or_default();
            let models =
                if row.text(4).is_empty() { Models::MAX } else { row.text(4).split('|').map(of).fold(0, |a, b| a | b) };
            let milli = if gpus > 0 { row.number(3)? } else { 0 };
            Ok(Shape { cpu: row.number(0)?, memory: row.number(1)?, gpus, milli, models })
        });
        Ok(Self { nodes, pods: pods.collect::<Result<_, TraceError>>()? })
    }

    fn capacity(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.free())).sum()
    }
}

/// Some fields of a line.
struct Row {
    path: PathBuf,
    line: usize,
    fields: Vec<String>,
}

impl Row {
    fn text(&self, at: usize) -> &str {
        &self.fields[at]
    }

    fn number(&self, at: usize) -> Result<u32, TraceError> {
        let text = self.text(at);
        text.parse().map_err(|_| TraceError::Line {
            path: self.path.clone(),
            line: self.line,
            problem: format!("`{text}` is not a number"),
        })
    }
}

/// These columns of a file, row by row.
fn rows(path: &Path, columns: &[&str]) -> Result<Vec<Row>, TraceError> {
    let text = std::fs::read_to_string(path).map_err(|source| TraceError::File { path: path.to_owned(), source })?;
    let wrong = |line: usize, problem: String| TraceError::Line { path: path.to_owned(), line, problem };
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let find = |name: &&str| {
        heads.iter().position(|head| head == name).ok_or_else(|| wrong(1, format!("there is no column `{name}`")))
    };
    let places = columns.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let row = |(at, text): (usize, &str)| {
        let fields: Vec<&str> = text.split(',').collect();
        let field = |place: &usize| fields.get(*place).map(|field| (*field).to_owned());
        let fields = places.iter().map(field).collect::<Option<Vec<_>>>();
        let fields = fields.ok_or_else(|| wrong(at + 2, "the line is too short".to_owned()))?;
        Ok(Row { path: path.to_owned(), line: at + 2, fields })
    };
    lines.enumerate().filter(|(_, text)| !text.is_empty()).map(row).collect()
}

/// How a node is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The planner's: least growth of fragmentation, of like nodes the fullest.
    Millpond,
    /// Least growth of fragmentation alone, as the paper defines it.
    Fgd,
    /// The least that is left over.
    BestFit,
    /// kube-scheduler's defaults: the most that is left over of cores and memory, in balance.
    Kubernetes,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Millpond, Self::Fgd, Self::BestFit, Self::Kubernetes];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Millpond => "millpond",
            Self::Fgd => "fgd",
            Self::BestFit => "bestfit",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// The policy of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Percent of all GPUs that is allocated.
    pub allocated_percent: f64,
    /// Pods that arrived.
    pub arrived: usize,
    /// Pods that found a place.
    pub placed: usize,
}

/// Packs a trace.
pub fn run(trace: &Trace, policy: Policy, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let mut order = trace.pods.clone();
    random.shuffle(&mut order);
    let mut cluster = Cluster::new(trace, policy);
    let capacity = trace.capacity();
    let (mut asked, mut allocated, mut arrived, mut placed) = (0u64, 0u64, 0, 0);
    while asked * 100 < capacity * ARRIVING_PERCENT && !trace.pods.is_empty() {
        let pod = match order.get(arrived) {
            Some(pod) => *pod,
            None => random.pick(&trace.pods),
        };
        arrived += 1;
        let milli = u64::from(pod.gpus * pod.milli);
        asked += milli;
        if cluster.place(&pod) {
            allocated += milli;
            placed += 1;
        }
    }
    Outcome { allocated_percent: allocated as f64 * 100.0 / capacity.max(1) as f64, arrived, placed }
}

/// The score of a node for a shape, as of a version of the node; less is better.
#[derive(Clone, Copy)]
struct Score {
    version: u32,
    value: f64,
    gpu: Option<usize>,
}

struct Cluster<'t> {
    empty: &'t [Machine],
    nodes: Vec<Machine>,
    /// Changes with every pod that a node takes.
    versions: Vec<u32>,
    fragmentation: Vec<f64>,
    popularity: Popularity,
    policy: Policy,
    /// Scores by shape: a node is looked at again only after it has changed.
    scores: HashMap<Shape, Vec<Score>>,
}

impl<'t> Cluster<'t> {
    fn new(trace: &'t Trace, policy: Policy) -> Self {
        let mut counts: HashMap<Shape, u64> = HashMap::new();
        for pod in &trace.pods {
            // Memory hardly ever decides, and would split shapes that are alike.
            *counts.entry(Shape { memory: 0, ..*pod }).or_default() += 1;
        }
        let popularity = Popularity::new(counts.into_iter().collect(), 1.0);
        let fragmentation = trace.nodes.iter().map(|node| popularity.fragmentation(node)).collect();
        let versions = vec![1; trace.nodes.len()];
        let nodes = trace.nodes.clone();
        Self { empty: &trace.nodes, nodes, versions, fragmentation, popularity, policy, scores: HashMap::new() }
    }

    /// Puts a pod on the best node; false if none has room.
    fn place(&mut self, pod: &Shape) -> bool {
        let unknown = Score { version: 0, value: f64::INFINITY, gpu: None };
        let mut scores = self.scores.remove(pod).unwrap_or_else(|| vec![unknown; self.nodes.len()]);
        let mut best: Option<(f64, usize)> = None;
        for (at, score) in scores.iter_mut().enumerate() {
            if score.version != self.versions[at] {
                *score = self.score(at, pod);
            }
            if score.value < best.map_or(f64::INFINITY, |(value, _)| value) {
                best = Some((score.value, at));
            }
        }
        let chosen = best.map(|(_, at)| (at, scores[at].gpu));
        self.scores.insert(*pod, scores);
        let Some((at, gpu)) = chosen else { return false };
        self.nodes[at].take(pod, gpu);
        self.versions[at] += 1;
        self.fragmentation[at] = self.popularity.fragmentation(&self.nodes[at]);
        true
    }

    fn score(&self, at: usize, pod: &Shape) -> Score {
        let (node, version) = (&self.nodes[at], self.versions[at]);
        if !node.fits(pod) {
            return Score { version, value: f64::INFINITY, gpu: None };
        }
        let share = pod.gpus == 1 && pod.milli < WHOLE;
        let (value, gpu) = match self.policy {
            Policy::Millpond => self.popularity.gradient(node, self.fragmentation[at], pod, FULLEST_FIRST),
            Policy::Fgd => self.popularity.gradient(node, self.fragmentation[at], pod, 0.0),
            Policy::BestFit => {
                let tightest = node.shares(pod.milli).min_by_key(|gpu| node.gpus[*gpu]);
                (left_over(&self.empty[at], node, pod), tightest.filter(|_| share))
            }
            Policy::Kubernetes => {
                (most_allocated(&self.empty[at], node, pod), node.shares(pod.milli).next().filter(|_| share))
            }
        };
        Score { version, value, gpu }
    }
}

fn part(left: u32, all: u32) -> f64 {
    if all == 0 { 0.0 } else { f64::from(left) / f64::from(all) }
}

/// Shares of cores, memory and GPUs that stay free, added up.
fn left_over(empty: &Machine, node: &Machine, pod: &Shape) -> f64 {
    let gpus = node.free() - pod.gpus * pod.milli;
    part(node.cpu - pod.cpu, empty.cpu) + part(node.memory - pod.memory, empty.memory) + part(gpus, empty.free())
}

/// How full a node gets, and how unevenly: what `NodeResourcesFit` (LeastAllocated) and
/// `NodeResourcesBalancedAllocation` look at, with their equal weights.
fn most_allocated(empty: &Machine, node: &Machine, pod: &Shape) -> f64 {
    let cpu = 1.0 - part(node.cpu - pod.cpu, empty.cpu);
    let memory = 1.0 - part(node.memory - pod.memory, empty.memory);
    f64::midpoint(cpu, memory) + (cpu - memory).abs() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let folder = tempfile::tempdir().expect("a folder");
        let nodes = "sn,cpu_milli,memory_mib,gpu,model\na,32000,131072,4,T4\nb,32000,131072,2,P100\n";
        let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
                    p0,4000,8192,1,500,\np1,4000,8192,1,1000,T4\np2,1000,1024,0,0,\np3,8000,8192,2,1000,P100|T4\n";
        std::fs::write(folder.path().join("openb_node_list_gpu_node.csv"), nodes).unwrap();
        std::fs::write(folder.path().join("openb_pod_list_tiny.csv"), pods).unwrap();
        Trace::read(folder.path(), "tiny").expect("a trace")
    }

    #[test]
    fn a_trace_is_read_and_packed_the_same_each_time() {
        let trace = trace();
        assert_eq!((trace.nodes.len(), trace.pods.len(), trace.capacity()), (2, 4, 6000));
        assert_eq!(trace.pods[1].models & trace.nodes[1].model, 0);
        for policy in Policy::ALL {
            let outcome = run(&trace, policy, FIRST_SEED);
            assert!(outcome.allocated_percent > 50.0 && outcome.allocated_percent <= 100.0, "{policy}: {outcome:?}");
            assert!(outcome.placed <= outcome.arrived);
            assert_eq!(run(&trace, policy, FIRST_SEED), outcome);
            assert_eq!(Policy::of(policy.name()), Some(policy));
        }
    }

    #[test]
    fn mistakes_name_the_line() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(
            folder.path().join("openb_node_list_gpu_node.csv"),
            "sn,cpu_milli,memory_mib,gpu,model\na,x,1,1,T4\n",
        )
        .unwrap();
        let error = Trace::read(folder.path(), "tiny").unwrap_err();
        assert!(error.to_string().ends_with("line 2: `x` is not a number"), "{error}");
    }
}
