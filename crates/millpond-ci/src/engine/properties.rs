//! Invariants under any order of events: a simulated launcher carries out every decision, with launches that end or
//! fail, jobs that use and return nodes, and requests that are cancelled.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::config::INSTANCES;
use crate::model::{Json, NodeState, RequestState};

/// Decisions until nothing is left to do; more means that they go in circles.
const LIMIT_ROUNDS: usize = 50;

#[derive(Debug, Clone)]
enum Event {
    Request { labels: Vec<&'static str>, tenant: Option<&'static str>, precedence: u32, reuse: bool, prefers: bool },
    Launched(prop::sample::Index),
    LaunchFailed(prop::sample::Index),
    Taken(prop::sample::Index),
    Returned(prop::sample::Index),
    Held(prop::sample::Index),
    Cancelled(prop::sample::Index),
    LauncherLost,
    Later(u16),
}

fn events() -> impl Strategy<Value = Event> {
    let label = prop::sample::select(vec!["a", "b", "s", "t", "unknown"]);
    let request = (prop::collection::vec(label, 1..4), prop::option::of(prop::sample::select(vec!["x", "y"])));
    let request = (request, 1_u32..4, any::<bool>(), any::<bool>());
    prop_oneof![
        6 => request.prop_map(|((labels, tenant), precedence, reuse, prefers)| {
            Event::Request { labels, tenant, precedence, reuse, prefers }
        }),
        4 => any::<prop::sample::Index>().prop_map(Event::Launched),
        1 => any::<prop::sample::Index>().prop_map(Event::LaunchFailed),
        4 => any::<prop::sample::Index>().prop_map(Event::Taken),
        4 => any::<prop::sample::Index>().prop_map(Event::Returned),
        1 => any::<prop::sample::Index>().prop_map(Event::Held),
        1 => any::<prop::sample::Index>().prop_map(Event::Cancelled),
        1 => Just(Event::LauncherLost),
        1 => (0_u16..2000).prop_map(Event::Later),
    ]
}

struct World {
    snapshot: Snapshot,
    next: u32,
}

fn instances(count: u64) -> Resources {
    Resources::from([(INSTANCES.to_owned(), count)])
}

impl World {
    fn new() -> Self {
        let pool = |provider: &str, name: &str, limit: u64, labels: &[&str]| Pool {
            id: format!("{provider}-{name}"),
            provider: provider.to_owned(),
            name: name.to_owned(),
            priority: 100,
            limits: instances(limit),
            labels: labels.iter().map(|label| ((*label).to_owned(), instances(1))).collect(),
            hosts: None,
            max_concurrency: None,
            ignores_provider_limits: false,
        };
        let host = |name: &str, slots, labels: &[&str]| Host {
            name: name.to_owned(),
            username: "zuul".to_owned(),
            port: 22,
            slots,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        };
        let hosts = Some(vec![host("h1", 2, &["s", "t"]), host("h2", 1, &["s"])]);
        let rack = Pool { hosts, limits: Resources::new(), ..pool("rack", "main", 0, &["s", "t"]) };
        let label = Label { name: "a".to_owned(), min_ready: 1, max_ready_age_s: 600 };
        let snapshot = Snapshot {
            pools: vec![pool("cloud", "one", 3, &["a", "b"]), pool("cloud", "two", 2, &["a"]), rack],
            provider_limits: BTreeMap::from([("cloud".to_owned(), instances(4))]),
            tenant_limits: BTreeMap::from([("x".to_owned(), instances(2))]),
            labels: BTreeMap::from([("a".to_owned(), label)]),
            max_hold_age_s: Some(900),
            ..Snapshot::default()
        };
        Self { snapshot, next: 0 }
    }

    fn id(&mut self) -> String {
        self.next += 1;
        format!("{:010}", self.next)
    }

    fn node(&mut self, pool: &str, labels: Vec<String>, request: Option<&str>) -> String {
        let pool = self.snapshot.pools.iter().find(|it| it.id == pool).unwrap();
        let mut node = Node::new(NodeState::Building, self.snapshot.now);
        node.provider = Some(pool.provider.clone());
        node.pool = Some(pool.name.clone());
        node.resources = labels.first().map(|label| pool.labels[label].clone());
        node.labels = labels;
        node.allocated_to = request.map(ToOwned::to_owned);
        node.tenant_name = request.and_then(|id| self.snapshot.requests[id].record.tenant_name.clone());
        let id = self.id();
        self.snapshot.nodes.insert(id.clone(), Locked { record: node.into(), lock: Lock::Ours });
        id
    }

    fn apply(&mut self, action: Action) {
        let now = self.snapshot.now;
        match action {
            Action::Assign { request, pool, nodes } => {
                let ids: Vec<String> = nodes
                    .into_iter()
                    .map(|source| match source {
                        Source::Launch(label) => self.node(&pool, vec![label], Some(&request)),
                        Source::Ready(id) => {
                            let tenant = self.snapshot.requests[&request].record.tenant_name.clone();
                            let node = self.snapshot.nodes.get_mut(&id).unwrap().edit();
                            assert_eq!((node.state, &node.allocated_to), (NodeState::Ready, &None));
                            node.allocated_to = Some(request.clone());
                            node.tenant_name = tenant;
                            id
                        }
                    })
                    .collect();
                let request = self.snapshot.requests.get_mut(&request).unwrap();
                assert_eq!(request.record.state, RequestState::Requested);
                request.edit().set_state(RequestState::Pending, now);
                request.edit().nodes = ids;
                request.lock = Lock::Ours;
            }
            Action::Fulfil { request } => {
                let request = self.snapshot.requests.get_mut(&request).unwrap();
                request.edit().set_state(RequestState::Fulfilled, now);
                request.lock = Lock::Free;
            }
            Action::Decline { request, declined_by, fails, .. } => {
                let request = self.snapshot.requests.get_mut(&request).unwrap();
                let state = if fails { RequestState::Failed } else { RequestState::Requested };
                request.edit().set_state(state, now);
                request.edit().nodes.clear();
                request.edit().declined_by = declined_by;
                request.lock = Lock::Free;
            }
            Action::Release { request } => {
                let request = self.snapshot.requests.get_mut(&request).unwrap();
                request.edit().set_state(RequestState::Requested, now);
                request.edit().nodes.clear();
                request.lock = Lock::Free;
            }
            Action::Deallocate { node } => {
                let node = self.snapshot.nodes.get_mut(&node).unwrap().edit();
                (node.allocated_to, node.tenant_name) = (None, None);
            }
            Action::Delete { node, .. } => {
                let node = self.snapshot.nodes.remove(&node).unwrap();
                assert_ne!(node.lock, Lock::Other, "a node that is in use was deleted");
            }
            Action::Launch { pool, label } => drop(self.node(&pool, vec![label], None)),
            Action::Register { pool, host, slot } => {
                let pool_of = self.snapshot.pools.iter().find(|it| it.id == pool).unwrap();
                let host = pool_of.hosts.as_ref().unwrap()[host].clone();
                let id = self.node(&pool, host.labels.clone(), None);
                let node = self.snapshot.nodes.get_mut(&id).unwrap();
                node.lock = Lock::Free;
                node.edit().set_state(NodeState::Ready, now);
                node.edit().hostname = Some(host.name);
                node.edit().username = Some(host.username);
                node.edit().slot = Some(slot);
                node.edit().set_port(Json::of(&host.port));
            }
        }
    }

    /// Decides until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..LIMIT_ROUNDS {
            let decision = decide(&self.snapshot);
            assert_eq!(decision, decide(&self.snapshot));
            if decision.actions.is_empty() {
                return self.check_waiting(&decision);
            }
            for action in decision.actions {
                self.apply(action);
                self.check();
            }
        }
        panic!("decisions go in circles: {:?}", decide(&self.snapshot).actions);
    }

    fn check(&self) {
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for (id, request) in &self.snapshot.requests {
            for node in &request.record.nodes {
                assert_eq!(owners.insert(node, id), None, "node {node} is in two requests");
            }
        }
        let (mut used, mut slots) = (BTreeMap::<String, u64>::new(), BTreeSet::new());
        for node in self.snapshot.nodes.values().map(|node| &node.record) {
            let (provider, pool) = (node.provider.clone().unwrap(), node.pool.clone().unwrap());
            *used.entry(format!("{provider}-{pool}")).or_default() += 1;
            *used.entry(provider).or_default() += 1;
            if let Some(tenant) = &node.tenant_name {
                *used.entry(format!("tenant {tenant}")).or_default() += 1;
            }
            if let Some(slot) = node.slot {
                assert!(slots.insert((node.hostname.clone(), slot)), "a slot is registered twice");
            }
        }
        for (name, limit) in [("cloud", 4), ("cloud-one", 3), ("cloud-two", 2), ("rack", 3), ("tenant x", 2)] {
            let used = used.get(name).copied().unwrap_or(0);
            assert!(used <= limit, "{name} has {used} nodes, the limit is {limit}");
        }
    }

    /// Whatever waits has a reason for every pool, and not only final ones.
    fn check_waiting(&self, decision: &Decision) {
        for (id, request) in &self.snapshot.requests {
            if request.record.state == RequestState::Requested {
                let verdicts = &decision.waiting[id];
                assert!(verdicts.iter().any(|verdict| !verdict.reason.is_final()), "{id}: {verdicts:?}");
                assert_eq!(verdicts.len(), self.snapshot.pools.len(), "{id}: {verdicts:?}");
            }
        }
    }

    fn nodes_in(&self, state: NodeState, lock: Lock) -> Vec<String> {
        let fits = |node: &Locked<Node>| node.record.state == state && node.lock == lock;
        self.snapshot.nodes.iter().filter(|(_, node)| fits(node)).map(|(id, _)| id.clone()).collect()
    }

    fn set(&mut self, id: &str, state: NodeState, lock: Lock) {
        let now = self.snapshot.now;
        let node = self.snapshot.nodes.get_mut(id).unwrap();
        node.edit().set_state(state, now);
        node.lock = lock;
    }

    fn requests_in(&self, state: RequestState) -> Vec<String> {
        let requests = self.snapshot.requests.iter();
        requests.filter(|(_, request)| request.record.state == state).map(|(id, _)| id.clone()).collect()
    }

    fn happen(&mut self, event: Event) {
        let pick = |from: &[String], index: prop::sample::Index| (!from.is_empty()).then(|| index.get(from).clone());
        match event {
            Event::Request { labels, tenant, precedence, reuse, prefers } => {
                let labels = labels.into_iter().map(ToOwned::to_owned).collect();
                let mut request = NodeRequest::new(labels, self.snapshot.now);
                request.tenant_name = tenant.map(ToOwned::to_owned);
                request.reuse = reuse;
                request.provider = prefers.then(|| "cloud".to_owned());
                let id = format!("{precedence}00-{}", self.id());
                self.snapshot.requests.insert(id, Locked { record: request.into(), lock: Lock::Free });
            }
            Event::Launched(index) => {
                if let Some(id) = pick(&self.nodes_in(NodeState::Building, Lock::Ours), index) {
                    self.set(&id, NodeState::Ready, Lock::Free);
                }
            }
            Event::LaunchFailed(index) => {
                if let Some(id) = pick(&self.nodes_in(NodeState::Building, Lock::Ours), index) {
                    self.set(&id, NodeState::Failed, Lock::Free);
                }
            }
            Event::Taken(index) => {
                if let Some(id) = pick(&self.requests_in(RequestState::Fulfilled), index) {
                    let request = self.snapshot.requests.remove(&id).unwrap().record;
                    assert_eq!(request.nodes.len(), request.node_types.len());
                    for (node, label) in request.nodes.iter().zip(&request.node_types) {
                        let record = &self.snapshot.nodes[node].record;
                        assert_eq!((record.state, record.allocated_to.as_ref()), (NodeState::Ready, Some(&id)));
                        assert!(record.labels.contains(label), "labels are in order");
                        self.set(node, NodeState::InUse, Lock::Other);
                    }
                }
            }
            Event::Returned(index) => {
                if let Some(id) = pick(&self.nodes_in(NodeState::InUse, Lock::Other), index) {
                    self.set(&id, NodeState::Used, Lock::Free);
                }
            }
            Event::Held(index) => {
                if let Some(id) = pick(&self.nodes_in(NodeState::InUse, Lock::Other), index) {
                    self.set(&id, NodeState::Hold, Lock::Free);
                }
            }
            Event::Cancelled(index) => {
                let ids: Vec<String> = self.snapshot.requests.keys().cloned().collect();
                if let Some(id) = pick(&ids, index) {
                    self.snapshot.requests.remove(&id);
                }
            }
            Event::LauncherLost => {
                let locks = self.snapshot.nodes.values_mut().map(|node| &mut node.lock);
                let locks = locks.chain(self.snapshot.requests.values_mut().map(|request| &mut request.lock));
                locks.filter(|lock| **lock == Lock::Ours).for_each(|lock| *lock = Lock::Free);
            }
            Event::Later(seconds) => self.snapshot.now += f64::from(seconds),
        }
    }

    /// Ends all work: every request must end.
    fn drain(&mut self) {
        for _ in 0..1000 {
            self.snapshot.now += 1000.0;
            self.settle();
            let building = self.nodes_in(NodeState::Building, Lock::Ours);
            building.iter().for_each(|id| self.set(id, NodeState::Ready, Lock::Free));
            for id in self.requests_in(RequestState::Fulfilled) {
                let nodes = self.snapshot.requests.remove(&id).unwrap().record.nodes.clone();
                nodes.iter().for_each(|node| self.set(node, NodeState::InUse, Lock::Other));
            }
            let used = self.nodes_in(NodeState::InUse, Lock::Other);
            used.iter().for_each(|id| self.set(id, NodeState::Used, Lock::Free));
            if self.requests_in(RequestState::Failed).len() == self.snapshot.requests.len() {
                return;
            }
        }
        panic!("requests never end: {:?}", decide(&self.snapshot).waiting);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nodes_have_one_owner_limits_hold_and_every_request_ends(events in prop::collection::vec(events(), 0..60)) {
        let mut world = World::new();
        world.settle();
        for event in events {
            world.happen(event);
            world.check();
            world.settle();
        }
        world.drain();
    }
}
