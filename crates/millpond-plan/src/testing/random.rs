//! Clusters from a seed, with everything in them that a snapshot can hold.
//!
//! Pods that run do so where kube-scheduler could have put them, one after the other.

use super::cluster::{Cluster, Machine, PodSpec};
use super::rng::Rng;
use super::scheduler::Scheduler;
use crate::model::{
    CapacityType, ClassId, Consolidation, InclusionPolicy, Namespaces, NodeId, NodeState, PodKind, PodState, Problem,
    Snapshot,
};

const ZONES: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 3] = ["default", "shop", "data"];
const TEAMS: [&str; 2] = ["red", "blue"];

/// What a random cluster has. Numbers are at most; what is switched off does not occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// Pods, about.
    pub pods: usize,
    /// Kinds of pods.
    pub groups: usize,
    /// Instance types.
    pub types: usize,
    /// Zones.
    pub zones: usize,
    /// Pools.
    pub pools: usize,
    /// Existing nodes.
    pub nodes: usize,
    /// Pools of different weight.
    pub weights: bool,
    /// Pools that are not ready or of a fixed size.
    pub closed_pools: bool,
    /// Limits of pools and of the cluster, and least numbers of nodes.
    pub limits: bool,
    /// `minValues`.
    pub min_values: bool,
    /// Labels of a type that are chosen at launch.
    pub open_labels: bool,
    /// Spot and reserved capacity, and stock-outs.
    pub stock: bool,
    /// Node selectors, affinities and volumes.
    pub selectors: bool,
    /// Taints.
    pub taints: bool,
    /// Topology spread, hard and soft.
    pub spread: bool,
    /// Pod affinity, and anti-affinity between kinds or by zone.
    pub affinity: bool,
    /// Pods that want no other of their kind on a node.
    pub one_per_host: bool,
    /// Ports of the host.
    pub ports: bool,
    /// Preferences.
    pub preferences: bool,
    /// Daemons.
    pub daemons: bool,
    /// Pods that are going, gated, hopeless, or wait for room.
    pub odd_pods: bool,
    /// Capacity buffers; not in [`Self::everything`].
    pub buffers: bool,
}

impl Recipe {
    /// All there is but buffers, for about so many pods.
    pub fn everything(pods: usize) -> Self {
        Self {
            pods,
            groups: (pods / 3).clamp(2, 14),
            types: 8,
            zones: 3,
            pools: 4,
            nodes: pods / 3 + 1,
            weights: true,
            closed_pools: true,
            limits: true,
            min_values: true,
            open_labels: true,
            stock: true,
            selectors: true,
            taints: true,
            spread: true,
            affinity: true,
            one_per_host: true,
            ports: true,
            preferences: true,
            daemons: true,
            odd_pods: true,
            buffers: false,
        }
    }

    /// Few pods and types, new nodes only, and the rules under which a plan of so few is the cheapest there is.
    pub fn tiny() -> Self {
        Self {
            groups: 4,
            types: 4,
            zones: 2,
            pools: 2,
            nodes: 0,
            weights: false,
            closed_pools: false,
            limits: false,
            min_values: false,
            spread: false,
            affinity: false,
            preferences: false,
            odd_pods: false,
            ..Self::everything(6)
        }
    }

    /// The cluster of a seed.
    pub fn snapshot(self, seed: u64) -> Snapshot {
        self.snapshot_on(Cluster::new(), seed)
    }

    /// The same cluster whose texts got their symbols in another order: one that nothing may depend on.
    pub fn snapshot_with_other_symbols(self, seed: u64) -> Snapshot {
        let first = self.snapshot(seed);
        let symbols = &first.symbols;
        let mut texts: Vec<&str> = first.symbols.iter().map(|symbol| symbols.text(symbol)).collect();
        texts.reverse();
        let cluster = Cluster::new().edit(|snapshot| texts.iter().for_each(|text| _ = snapshot.symbols.intern(text)));
        self.snapshot_on(cluster, seed)
    }

    fn snapshot_on(self, mut cluster: Cluster, seed: u64) -> Snapshot {
        let mut making = Making { recipe: self, rng: Rng::new(seed), gpu: false };
        for namespace in NAMESPACES {
            cluster = cluster.namespace(namespace, &format!("name={namespace}"));
        }
        for number in 0..making.rng.between(1, self.types) {
            cluster = making.machine(cluster, number);
        }
        let pools = making.rng.between(1, self.pools);
        for number in 0..pools {
            cluster = making.pool(cluster, number);
        }
        cluster = making.nodes(cluster, pools);
        cluster = making.daemons(cluster);
        cluster = making.pods(cluster);
        if self.limits && making.rng.chance(15) {
            cluster = cluster.limit(&making.limit());
        }
        let mut snapshot = cluster.snapshot();
        making.settle(&mut snapshot);
        snapshot
    }
}

/// A cluster with everything in it, of about so many pods.
pub fn random_snapshot(seed: u64, size: usize) -> Snapshot {
    Recipe::everything(size).snapshot(seed)
}

struct Making {
    recipe: Recipe,
    rng: Rng,
    /// Whether some type has GPUs.
    gpu: bool,
}

impl Making {
    fn zone(&mut self) -> &'static str {
        ZONES[self.rng.below(self.recipe.zones)]
    }

    fn machine(&mut self, cluster: Cluster, number: usize) -> Cluster {
        let cores = *self.rng.pick(&[1, 2, 4, 4, 8, 16]);
        let per_core = *self.rng.pick(&[2, 4, 8]);
        let family = ["c", "m", "r"][[2, 4, 8].iter().position(|one| *one == per_core).unwrap_or(0)];
        let gpus = if self.rng.chance(15) { self.rng.between(1, 4) } else { 0 };
        self.gpu |= gpus > 0;
        let pods = *self.rng.pick(&[5, 12, 30, 110]);
        let mut capacity = format!("cpu={cores} memory={}Gi pods={pods} storage=50Gi disks={}", cores * per_core, 8);
        if gpus > 0 {
            capacity += &format!(" gpu={gpus}");
        }
        let price = (cores * (20 + 3 * per_core)) as u64 + gpus as u64 * 200 + self.rng.below(30) as u64;
        let zones: Vec<&str> = ZONES[..self.recipe.zones].iter().copied().filter(|_| self.rng.chance(80)).collect();
        let zones = if zones.is_empty() { ZONES[0].to_owned() } else { zones.join(" ") };
        let arm = self.rng.chance(25);
        let mut labels =
            format!("family in {family}; cores in {cores}; arch in {}", if arm { "arm64" } else { "amd64" });
        if self.recipe.open_labels && self.rng.chance(25) {
            labels += "; os in linux,windows";
        }
        if gpus > 0 {
            labels += "; gpu-model in g1";
        }
        let mut describe: Vec<MachineFeature> = Vec::new();
        describe.push(Box::new(move |machine| machine.zones(&zones).price(price).label(&labels)));
        if self.rng.chance(60) {
            let kept = format!("cpu={}m memory={}Mi", self.rng.below(100), self.rng.below(300));
            describe.push(Box::new(move |machine| machine.keeps(&kept)));
        }
        if self.recipe.stock {
            self.stock(&mut describe, price);
        }
        cluster.machine(&format!("{family}{number}.{cores}"), &capacity, |machine| {
            describe.into_iter().fold(machine, |machine, more| more(machine))
        })
    }

    fn stock(&mut self, describe: &mut Vec<MachineFeature>, price: u64) {
        if self.rng.chance(60) {
            let spot = price * self.rng.between(25, 80) as u64 / 100;
            describe.push(Box::new(move |machine| machine.spot(spot)));
        }
        if self.rng.chance(20) {
            let left = self.rng.below(3) as u32;
            describe.push(Box::new(move |machine| machine.reserved(price / 10, left)));
        }
        for zone in ZONES {
            for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
                if self.rng.chance(10) {
                    describe.push(Box::new(move |machine| machine.out_of_stock(zone, capacity_type)));
                }
            }
        }
    }

    fn pool(&mut self, cluster: Cluster, number: usize) -> Cluster {
        let mut texts = Vec::new();
        if self.recipe.selectors {
            let choices = [
                "arch in amd64".to_owned(),
                "arch in amd64,arm64".to_owned(),
                "capacity in on-demand".to_owned(),
                "capacity in spot,on-demand".to_owned(),
                format!("zone in {},{}", self.zone(), self.zone()),
                format!("zone notin {}", self.zone()),
                "cores > 1".to_owned(),
                "cores <= 8".to_owned(),
                "family notin r".to_owned(),
                "gpu-model !exists".to_owned(),
                "os in linux".to_owned(),
                format!("team in {}", self.rng.pick(&TEAMS)),
                "tier in one,two".to_owned(),
                "rack exists".to_owned(),
            ];
            for _ in 0..self.rng.below(3) {
                texts.push(self.rng.pick(&choices).clone());
            }
        }
        let taint = (self.recipe.taints && self.rng.chance(25)).then(|| {
            let effect = *self.rng.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            format!("team={}:{effect}", self.rng.pick(&TEAMS))
        });
        let weight = if self.recipe.weights { *self.rng.pick(&[0, 0, 0, 10, 50]) } else { 0 };
        let limit = (self.recipe.limits && self.rng.chance(25)).then(|| self.limit());
        let min_values = (self.recipe.min_values && self.rng.chance(12)).then(|| {
            let key = *self.rng.pick(&["type exists", "family exists", "zone exists", "cores > 0"]);
            (key, self.rng.between(1, 3) as u32)
        });
        let closed = if self.recipe.closed_pools { self.rng.below(100) } else { 100 };
        let min_nodes = if self.recipe.limits { self.rng.below(2) as u64 } else { 0 };
        let policy = *self.rng.pick(&[
            Consolidation::WhenEmpty,
            Consolidation::WhenEmptyOrUnderutilized,
            Consolidation::Balanced,
        ]);
        cluster.pool(&format!("pool-{number}"), |mut pool| {
            for text in &texts {
                pool = pool.requires(text);
            }
            if let Some(taint) = &taint {
                pool = pool.taint(taint);
            }
            if let Some(limit) = &limit {
                pool = pool.limit(limit);
            }
            if let Some((key, count)) = min_values {
                pool = pool.requires_values(key, count);
            }
            pool = match closed {
                0..6 => pool.not_ready("its node class is not ready"),
                6..10 => pool.replicas(2),
                _ => pool,
            };
            pool.weight(weight).min_nodes(min_nodes).consolidation(policy).startup_taint("starting:NoSchedule")
        })
    }

    fn limit(&mut self) -> String {
        let choices = [
            format!("cpu={}", self.rng.between(4, 60)),
            format!("memory={}Gi cpu={}", self.rng.between(16, 120), self.rng.between(8, 60)),
            format!("nodes={}", self.rng.between(1, 8)),
            format!("price={}", self.rng.between(100, 2000)),
            format!("gpu={}", self.rng.below(4)),
        ];
        self.rng.pick(&choices).clone()
    }

    fn nodes(&mut self, mut cluster: Cluster, pools: usize) -> Cluster {
        if self.recipe.nodes == 0 {
            return cluster;
        }
        for number in 0..self.rng.below(self.recipe.nodes + 1) {
            let pool = (!self.rng.chance(15)).then(|| self.rng.below(pools));
            let state = match self.rng.below(100) {
                0..70 => NodeState::Running,
                70..85 => NodeState::Starting,
                _ => NodeState::Leaving,
            };
            let (kind, offer, odd) = (self.rng.next_u64(), self.rng.next_u64(), self.rng.below(100));
            let rack = format!("rack=r{}", self.rng.below(3));
            let age = self.rng.below(60 * 86_400) as i64;
            let machine = {
                let mut name = String::new();
                cluster = cluster.edit(|snapshot| {
                    let chosen = &snapshot.types[(kind % snapshot.types.len() as u64) as usize];
                    name = snapshot.text(chosen.name).to_owned();
                });
                name
            };
            cluster = cluster.node(&format!("node-{number}"), &machine, |node| {
                let mut node = node.any_offering(offer).state(state).age(age).label(&rack);
                if let Some(pool) = pool {
                    node = node.pool(&format!("pool-{pool}"));
                }
                match odd {
                    0..4 => node.unschedulable(),
                    4..8 => node.taint("odd:NoSchedule"),
                    8..12 => node.edit(|node| node.price = None),
                    12..18 => node.drifted("its template changed"),
                    18..22 => node.edit(|node| node.do_not_disrupt = true),
                    _ => node,
                }
            });
        }
        cluster
    }

    fn daemons(&mut self, mut cluster: Cluster) -> Cluster {
        if !self.recipe.daemons {
            return cluster;
        }
        for number in 0..self.rng.below(3) {
            let (everywhere, picky, port) = (self.rng.chance(60), self.rng.chance(30), self.rng.chance(20));
            let requests = format!("cpu={}m memory={}Mi", self.rng.between(10, 150), self.rng.between(16, 200));
            cluster = cluster.daemon(&format!("kube-system/daemon-{number}"), &requests, |mut pod| {
                if everywhere {
                    pod = pod.tolerates("*");
                }
                if picky {
                    pod = pod.needs("arch in amd64");
                }
                if port {
                    pod = pod.port(9100);
                }
                pod.priority(2_000_000)
            });
        }
        cluster
    }

    fn pods(&mut self, mut cluster: Cluster) -> Cluster {
        let groups = self.rng.between(1, self.recipe.groups);
        let mut left = self.recipe.pods;
        for number in 0..groups {
            let most = (2 * self.recipe.pods / groups).max(1).min(left);
            let count = if left == 0 { break } else { self.rng.between(1, most) };
            left -= count;
            let name = format!("{}/group-{number}", self.rng.pick(&NAMESPACES));
            let requests = self.requests();
            let features = self.features(groups);
            cluster = cluster.pods(count, &name, &requests, |pod| features.into_iter().fold(pod, |pod, add| add(pod)));
            if self.rng.chance(25) {
                let allowed = self.rng.below(3) as u32;
                cluster = cluster.budget(&format!("budget-{number}"), &format!("app in group-{number}"), allowed);
            }
        }
        cluster
    }

    fn requests(&mut self) -> String {
        let cpu = *self.rng.pick(&["0", "100m", "250m", "500m", "900m", "1", "2", "3"]);
        let memory = *self.rng.pick(&["0", "128Mi", "512Mi", "1Gi", "2Gi", "5Gi"]);
        let mut requests = format!("cpu={cpu} memory={memory}");
        if self.gpu && self.rng.chance(12) {
            requests += " gpu=1";
        }
        if self.rng.chance(8) {
            requests += " disks=1 storage=1Gi";
        }
        if self.rng.chance(2) {
            requests += " unobtainium=1";
        }
        requests
    }

    fn features(&mut self, groups: usize) -> Vec<Feature> {
        let mut features: Vec<Feature> = Vec::new();
        if self.recipe.selectors {
            self.add_selectors(&mut features);
        }
        if self.recipe.taints && self.rng.chance(35) {
            let text = *self.rng.pick(&["team=red", "team=blue", "team", "team:NoSchedule", "*"]);
            features.push(Box::new(move |pod| pod.tolerates(text)));
        }
        if self.recipe.spread && self.rng.chance(30) {
            self.add_spread(&mut features);
        }
        if self.recipe.affinity {
            self.add_affinity(&mut features, groups);
        }
        if self.recipe.one_per_host && self.rng.chance(10) {
            features.push(Box::new(|pod| pod.one_per_host()));
        }
        if self.recipe.ports && self.rng.chance(8) {
            let port = *self.rng.pick(&[80, 443, 9100]);
            features.push(Box::new(move |pod| pod.port(port)));
        }
        if self.recipe.preferences && self.rng.chance(15) {
            let zone = self.zone();
            features.push(Box::new(move |pod| pod.prefers(50, &format!("zone in {zone}"))));
        }
        if self.recipe.preferences && self.rng.chance(10) {
            let weight = *self.rng.pick(&[-100, 10]);
            let other = self.rng.below(groups);
            features.push(Box::new(move |pod| pod.likes(weight, "zone", &format!("app in group-{other}"))));
        }
        if self.recipe.odd_pods && self.rng.chance(20) {
            let priority = *self.rng.pick(&[-10, 100, 1000]);
            features.push(Box::new(move |pod| pod.priority(priority)));
        }
        if self.recipe.odd_pods && self.rng.chance(3) {
            features.push(Box::new(|pod| pod.problem(Problem::ClaimMissing("data".into()))));
        }
        if self.recipe.odd_pods && self.rng.chance(6) {
            let kind = *self.rng.pick(&[PodKind::Bare, PodKind::Mirror, PodKind::Daemon]);
            features.push(Box::new(move |pod| pod.kind(kind)));
        }
        if self.rng.chance(6) {
            features.push(Box::new(|pod| pod.do_not_disrupt()));
        }
        if self.recipe.buffers && self.rng.chance(35) {
            features.push(Box::new(|pod| pod.buffer()));
        }
        features
    }

    fn add_selectors(&mut self, features: &mut Vec<Feature>) {
        if self.rng.chance(35) {
            let choices = [
                format!("zone in {}", self.zone()),
                format!("zone notin {}", self.zone()),
                "arch in amd64".to_owned(),
                "arch in arm64,amd64".to_owned(),
                "capacity in spot".to_owned(),
                "capacity notin spot".to_owned(),
                "cores > 2".to_owned(),
                "cores < 8".to_owned(),
                "family in m,r".to_owned(),
                "gpu-model exists".to_owned(),
                "gpu-model !exists".to_owned(),
                "team in red".to_owned(),
                "team notin blue".to_owned(),
                "tier in two".to_owned(),
                "os in windows".to_owned(),
                "os exists".to_owned(),
                "host notin node-0".to_owned(),
                "node in node-1".to_owned(),
                "rack in r1".to_owned(),
                "pool in pool-0".to_owned(),
                "nowhere in x".to_owned(),
            ];
            let text = self.rng.pick(&choices).clone();
            features.push(Box::new(move |pod| pod.needs(&text)));
        }
        if self.rng.chance(12) {
            let (one, other) = (format!("zone in {}", self.zone()), "arch in arm64; cores >= 4");
            features.push(Box::new(move |pod| pod.either(&[&one, other])));
        }
        if self.rng.chance(8) {
            let (one, other) = (format!("zone in {}", self.zone()), format!("zone in {}", self.zone()));
            features.push(Box::new(move |pod| pod.volume(&[&one, &other])));
        }
    }

    fn add_spread(&mut self, features: &mut Vec<Feature>) {
        for _ in 0..self.rng.between(1, 2) {
            let key = *self.rng.pick(&["zone", "zone", "host", "capacity", "rack", "arch"]);
            let skew = self.rng.between(1, 3) as u32;
            let hard = self.rng.chance(75);
            let min_domains = (hard && self.rng.chance(20)).then(|| self.rng.between(1, 3) as u32);
            let none = self.rng.chance(5);
            let policy = |yes| if yes { InclusionPolicy::Honor } else { InclusionPolicy::Ignore };
            let (affinity, taints) = (policy(self.rng.chance(70)), policy(self.rng.chance(40)));
            features.push(Box::new(move |pod| {
                pod.spread_with(key, skew, |spread| {
                    (spread.hard, spread.min_domains) = (hard, min_domains);
                    (spread.node_affinity, spread.node_taints) = (affinity, taints);
                    if none {
                        spread.selector = None;
                    }
                })
            }));
        }
    }

    fn add_affinity(&mut self, features: &mut Vec<Feature>, groups: usize) {
        if self.rng.chance(10) {
            let key = *self.rng.pick(&["zone", "host", "rack"]);
            let other = self.rng.below(groups);
            let everywhere = self.rng.chance(40);
            features.push(Box::new(move |pod| {
                pod.near(key, &format!("app in group-{other}")).edit(|class| {
                    if everywhere {
                        class.affinity[0].namespaces = Namespaces::All;
                    }
                })
            }));
        }
        if self.rng.chance(8) {
            features.push(Box::new(|pod| pod.near("zone", "app exists")));
        }
        if self.rng.chance(12) {
            let key = *self.rng.pick(&["zone", "host", "host", "rack"]);
            let other = self.rng.below(groups);
            let everywhere = self.rng.chance(40);
            features.push(Box::new(move |pod| {
                pod.apart(key, &format!("app in group-{other}")).edit(|class| {
                    if everywhere {
                        class.anti_affinity[0].namespaces = Namespaces::All;
                    }
                })
            }));
        }
    }

    /// Puts some of the pods on nodes, and changes some that are odd.
    fn settle(&mut self, snapshot: &mut Snapshot) {
        if !snapshot.nodes.is_empty() {
            self.bind_daemons(snapshot);
            self.bind_pods(snapshot);
        }
        if !self.recipe.odd_pods {
            return;
        }
        // What is a file on a node is on that node.
        let classes = &snapshot.classes;
        snapshot.pods.retain(|pod| pod.node.is_some() || classes[pod.class.index()].kind != PodKind::Mirror);
        for pod in &mut snapshot.pods {
            let real = !classes[pod.class.index()].is_buffer();
            if real && pod.state == PodState::Pending && pod.node.is_none() && self.rng.chance(3) {
                pod.state = PodState::Gated;
            }
        }
    }

    fn bind_daemons(&mut self, snapshot: &mut Snapshot) {
        let mut there: Vec<(ClassId, usize)> = Vec::new();
        let without = Snapshot { daemons: Vec::new(), ..snapshot.clone() };
        let mut scheduler = Scheduler::new(&without);
        for place in 0..snapshot.nodes.len() {
            for &daemon in &snapshot.daemons {
                let starting = snapshot.nodes[place].state == NodeState::Starting;
                if !starting && scheduler.fits(daemon, place).is_ok() {
                    scheduler.bind(daemon, place);
                    there.push((daemon, place));
                }
            }
        }
        for (class, place) in there {
            snapshot.pods.push(crate::model::Pod {
                name: format!("daemon-{}-{place}", class.0).into(),
                class,
                node: Some(NodeId::from(place)),
                state: PodState::Bound,
                created: snapshot.now - 600,
                started: Some(snapshot.now - 590),
            });
        }
    }

    fn bind_pods(&mut self, snapshot: &mut Snapshot) {
        let share = self.rng.between(0, 80);
        // Pods came before their nodes began to leave or were cordoned.
        let mut open = snapshot.clone();
        for node in &mut open.nodes {
            node.schedulable = true;
            if node.state == NodeState::Leaving {
                node.state = NodeState::Running;
            }
        }
        let mut scheduler = Scheduler::new(&open);
        for index in 0..open.pods.len() {
            if open.pods[index].node.is_some() || !self.rng.chance(share) {
                continue;
            }
            let (class, place) = (open.pods[index].class, self.rng.below(open.nodes.len()));
            if open.classes[class.index()].is_buffer() {
                continue;
            }
            if scheduler.fits(class, place).is_err() {
                continue;
            }
            scheduler.bind(class, place);
            let pod = &mut snapshot.pods[index];
            pod.node = Some(NodeId::from(place));
            let waits = open.nodes[place].state == NodeState::Starting
                || snapshot.classes[class.index()].kind == PodKind::Workload && self.rng.chance(5);
            pod.state = match self.rng.below(100) {
                _ if waits => PodState::Pending,
                0..5 if self.recipe.odd_pods => PodState::Terminating,
                _ => PodState::Bound,
            };
            if pod.state != PodState::Pending {
                pod.started = self.rng.chance(90).then_some(snapshot.now - 300);
            }
        }
    }
}

type Feature = Box<dyn for<'a> FnOnce(PodSpec<'a>) -> PodSpec<'a>>;
type MachineFeature = Box<dyn for<'a> FnOnce(Machine<'a>) -> Machine<'a>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_cluster() {
        let text = |seed| format!("{:?}", random_snapshot(seed, 30).pods);
        assert_eq!(text(5), text(5));
        assert_ne!(text(5), text(6));
    }

    #[test]
    fn everything_occurs() {
        let mut seen = [0usize; 22];
        for seed in 0..150 {
            let snapshot = random_snapshot(seed, 30);
            let classes = || snapshot.classes.iter();
            let states = |state| snapshot.nodes.iter().any(|node| node.state == state);
            let pods = |state| snapshot.pods.iter().any(|pod| pod.state == state);
            let offerings = || snapshot.types.iter().flat_map(|one| &one.offerings);
            let waiting = |pod: &crate::model::Pod| pod.state == PodState::Pending && pod.node.is_some();
            let found = [
                states(NodeState::Running),
                states(NodeState::Starting),
                states(NodeState::Leaving),
                pods(PodState::Bound),
                pods(PodState::Terminating),
                pods(PodState::Gated),
                snapshot.pods.iter().any(waiting),
                !snapshot.daemons.is_empty(),
                !snapshot.disruption_budgets.is_empty(),
                !snapshot.limits.is_empty(),
                classes().any(|class| class.spread.iter().any(|spread| spread.hard)),
                classes().any(|class| class.spread.iter().any(|spread| !spread.hard)),
                classes().any(|class| !class.affinity.is_empty()),
                classes().any(|class| !class.anti_affinity.is_empty()),
                classes().any(|class| !class.host_ports.is_empty()),
                classes().any(|class| !class.volume_terms.is_empty()),
                classes().any(|class| class.node_terms.len() > 1),
                classes().any(|class| class.problem.is_some()),
                offerings().any(|one| !one.available),
                offerings().any(|one| one.left.is_some()),
                snapshot.pools.iter().any(|pool| pool.not_ready.is_some()),
                snapshot.pools.iter().any(|pool| pool.requirements.iter().any(|(_, one)| one.min_values().is_some())),
            ];
            for (count, found) in seen.iter_mut().zip(found) {
                *count += usize::from(found);
            }
        }
        assert!(seen.iter().all(|count| *count >= 5), "{seen:?}");
    }

    #[test]
    fn running_pods_are_where_they_may_be() {
        for seed in 0..100 {
            let snapshot = random_snapshot(seed, 30);
            let mut used = vec![crate::model::Resources::new(); snapshot.nodes.len()];
            for pod in &snapshot.pods {
                if let Some(node) = pod.node {
                    used[node.index()].add(&snapshot.classes[pod.class.index()].requests);
                }
            }
            for (node, used) in snapshot.nodes.iter().zip(&used) {
                assert_eq!(node.allocatable.first_lacking(used), None, "seed {seed}, {}", node.name);
            }
        }
    }
}
