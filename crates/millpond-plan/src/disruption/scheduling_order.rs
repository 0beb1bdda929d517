//! Checks that nodes hold a set of pods in whatever order kube-scheduler places them.
//!
//! Pods that move are created again by their controllers, and the planner cannot tell kube-scheduler beforehand which
//! new pod belongs on which node. With one resource, arithmetic is enough: a pod fits nowhere only if each of `n` nodes
//! has less free than it requests, so `n − 1` times the largest request beyond the sum is enough in every order. With
//! two resources it is not: memory-heavy pods can fill the memory of one node while its cores idle, cpu-heavy pods the
//! cores of another, and a pod that requests both fits on neither. Slack that excludes this in every order is far more
//! than kube-scheduler needs in practice; hardly any purchase but a single node would pass.
//!
//! Therefore pods are placed here as kube-scheduler would place them, in several orders ([`orders`]) and with two
//! scoring preferences ([`Preference`]). That proves nothing about the other orders, but few of them fail where none of
//! these does (tests count them). Requiring capacity for one more pod at the end of each order was tried: for an
//! average pod it found few of the failures, for the largest pod it made purchases 3 % more expensive.

use std::cmp::Reverse;

use crate::model::{CPU, MEMORY, ResourceId, Resources};
use crate::pack::{Amounts, MAX_RESOURCES};

/// Shares are counted in parts of this number.
const PARTS: i64 = 10_000;
/// Shuffled orders of few pods. With 12 of them one in seven purchases for random pods failed in some of 200 further
/// orders, with 64 one in seventeen, with 128 one in thirty; twice as many found no more failures.
const MOST_SHUFFLES: usize = 128;
/// Shuffled orders of many pods. Large and small pods even out among many, so fewer orders are enough.
const LEAST_SHUFFLES: usize = 16;
/// Limit on the pods placed in shuffled orders, unless that leaves fewer orders than [`LEAST_SHUFFLES`].
const SHUFFLED_PODS: usize = 64_000;

/// Pods with equal requests that spreading counts together.
#[derive(Debug, Clone)]
struct Kind {
    request: Amounts,
    count: usize,
}

/// The score by which kube-scheduler chooses among nodes that fit. It adds up both of these with weights that depend on
/// its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preference {
    /// Most cores and memory left (`LeastAllocated`).
    Roomiest,
    /// Fewest pods of the same kind (`PodTopologySpread`, whose default constraints apply to the pods of any
    /// controller).
    FewestOfKind,
}

/// The pods to place, and the orders to place them in.
#[derive(Debug)]
pub(super) struct SchedulingOrders {
    resources: Vec<ResourceId>,
    kinds: Vec<Kind>,
    /// The orders to try; each lists the kind of every pod.
    orders: Vec<Vec<usize>>,
}

impl SchedulingOrders {
    /// Takes pods by class: the request of one pod, and their number.
    pub(super) fn new<'r>(pods: impl IntoIterator<Item = (&'r Resources, usize)>) -> Self {
        let pods: Vec<_> = pods.into_iter().collect();
        let resources = asked_for(pods.iter().map(|(request, _)| *request));
        let kind = |&(request, count): &(&Resources, usize)| Kind { request: amounts(&resources, request), count };
        let kinds: Vec<Kind> = pods.iter().map(kind).collect();
        let orders = orders(&kinds, resources.len());
        Self { resources, kinds, orders }
    }

    /// How many pods there are.
    pub(super) fn pods(&self) -> usize {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// The sum of all requests.
    pub(super) fn total(&self) -> Vec<i64> {
        let of = |at: usize| self.kinds.iter().map(|kind| kind.request[at].saturating_mul(kind.count as i64)).sum();
        (0..self.resources.len()).map(of).collect()
    }

    /// The largest request of one pod, for each resource.
    pub(super) fn largest(&self) -> impl Iterator<Item = i64> {
        (0..self.resources.len()).map(|at| self.kinds.iter().map(|kind| kind.request[at]).max().unwrap_or(0))
    }

    /// The free capacity of a node, for the resources that some pod requests.
    pub(super) fn free(&self, node: &Resources) -> Amounts {
        amounts(&self.resources, node)
    }

    /// Whether nodes with this free capacity hold the pods in all orders that are tried.
    pub(super) fn fits(&self, nodes: &[Amounts]) -> bool {
        let holds = |order: &Vec<usize>| {
            let preferences = [Preference::Roomiest, Preference::FewestOfKind];
            preferences.into_iter().all(|preference| self.fits_in_order(nodes, order, preference))
        };
        self.orders.iter().all(holds)
    }

    fn fits_in_order(&self, nodes: &[Amounts], order: &[usize], preference: Preference) -> bool {
        let mut table = Table::new(self, nodes);
        order.iter().all(|&kind| table.deal(kind, preference))
    }

    /// Places the largest pods first, each where most is left. Returns the kinds on each node, by index; `None` if a
    /// pod fits nowhere.
    pub(super) fn deal(&self, nodes: &[Amounts]) -> Option<Vec<Vec<usize>>> {
        let mut table = Table::new(self, nodes);
        let all = self.orders[0].iter().all(|&kind| table.deal(kind, Preference::Roomiest));
        all.then_some(table.there)
    }
}

/// The nodes while the pods of one order are placed.
struct Table<'d> {
    dealing: &'d SchedulingOrders,
    whole: &'d [Amounts],
    left: Vec<Amounts>,
    /// For each node, the number of pods of each kind.
    there: Vec<Vec<usize>>,
    /// For each node, the share of cores and memory that is left.
    room: Vec<i64>,
}

impl<'d> Table<'d> {
    fn new(dealing: &'d SchedulingOrders, whole: &'d [Amounts]) -> Self {
        let there = vec![vec![0; dealing.kinds.len()]; whole.len()];
        let mut table = Self { dealing, whole, left: whole.to_vec(), there, room: vec![0; whole.len()] };
        (0..whole.len()).for_each(|node| table.measure(node));
        table
    }

    fn measure(&mut self, node: usize) {
        let (left, whole) = (&self.left[node], &self.whole[node]);
        let scored = self.dealing.resources.iter().enumerate().filter(|(_, id)| [CPU, MEMORY].contains(*id));
        self.room[node] = scored.map(|(at, _)| left[at].saturating_mul(PARTS) / whole[at].max(1)).sum();
    }

    /// The node that kube-scheduler would choose for the next pod of a kind.
    fn place(&self, kind: usize, preference: Preference) -> Option<usize> {
        let request = &self.dealing.kinds[kind].request;
        let fits = |left: &Amounts| left.iter().zip(request).all(|(left, asked)| *asked == 0 || asked <= left);
        let nodes = (0..self.left.len()).filter(|&node| fits(&self.left[node]));
        match preference {
            Preference::Roomiest => nodes.max_by_key(|&node| self.room[node]),
            Preference::FewestOfKind => nodes.min_by_key(|&node| (self.there[node][kind], Reverse(self.room[node]))),
        }
    }

    fn deal(&mut self, kind: usize, preference: Preference) -> bool {
        let Some(node) = self.place(kind, preference) else { return false };
        let request = &self.dealing.kinds[kind].request;
        self.left[node].iter_mut().zip(request).for_each(|(left, asked)| *left -= asked);
        self.there[node][kind] += 1;
        self.measure(node);
        true
    }
}

/// The orders: largest first, smallest first, for each resource the pods first that request more of it than of others,
/// and shuffled orders.
fn orders(kinds: &[Kind], resources: usize) -> Vec<Vec<usize>> {
    let total =
        |at: usize| kinds.iter().map(|kind| i128::from(kind.request[at]) * kind.count as i128).sum::<i128>().max(1);
    let totals: Vec<i128> = (0..resources).map(total).collect();
    // In parts of the sum of all requests, so that resources can be compared.
    let part = |kind: usize, at: usize| i128::from(kinds[kind].request[at]) * 1_000_000_000 / totals[at];
    let size = |kind: usize| (0..resources).map(|at| part(kind, at)).max().unwrap_or(0);
    let pods = |mut order: Vec<usize>, key: &dyn Fn(usize) -> i128| -> Vec<usize> {
        order.sort_by_key(|&kind| key(kind));
        order.into_iter().flat_map(|kind| std::iter::repeat_n(kind, kinds[kind].count)).collect()
    };
    let all: Vec<usize> = (0..kinds.len()).collect();
    let large_first = pods(all.clone(), &|kind| -size(kind));
    let mut orders = vec![large_first.clone(), pods(all.clone(), &size)];
    for at in 0..resources {
        // How much of this resource the kind requests, in thousandths of what it requests of all resources.
        let leaning =
            |kind: usize| -part(kind, at) * 1000 / (0..resources).map(|at| part(kind, at)).sum::<i128>().max(1);
        orders.push(pods(all.clone(), &leaning));
    }
    orders.extend((0..shuffles(large_first.len())).map(|number| shuffled(&large_first, number)));
    orders
}

fn shuffles(pods: usize) -> usize {
    (SHUFFLED_PODS / pods.max(1)).clamp(LEAST_SHUFFLES, MOST_SHUFFLES)
}

/// Shuffles the pods; the same `number` always gives the same order.
fn shuffled(order: &[usize], number: usize) -> Vec<usize> {
    let key = |index: usize| scatter((number * order.len() + index) as u64);
    let mut scattered: Vec<(u64, usize)> = order.iter().enumerate().map(|(index, &kind)| (key(index), kind)).collect();
    scattered.sort_unstable();
    scattered.into_iter().map(|(_, kind)| kind).collect()
}

/// A well-mixed number for each input: the last steps of splitmix64.
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Resources that some pod requests, up to the number that the kernel counts.
fn asked_for<'r>(requests: impl Iterator<Item = &'r Resources>) -> Vec<ResourceId> {
    let mut asked: Vec<ResourceId> =
        requests.flat_map(Resources::iter).filter(|(_, amount)| *amount > 0).map(|(id, _)| id).collect();
    asked.sort_unstable();
    asked.dedup();
    asked.truncate(MAX_RESOURCES);
    asked
}

fn amounts(resources: &[ResourceId], of: &Resources) -> Amounts {
    let mut amounts = [0; MAX_RESOURCES];
    amounts.iter_mut().zip(resources).for_each(|(amount, id)| *amount = of.get(*id).max(0));
    amounts
}
