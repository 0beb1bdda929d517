//! A canonical order of classes: by content, so that neither the order in which pods were seen nor the numbers of
//! symbols show in a plan.

use crate::model::{AffinityTerm, CPU, ClassId, Labels, MEMORY, Namespaces, PodClass, Snapshot};
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;
use crate::taint::Comparison;

/// Sorts classes into the order of planning: higher priority first, then larger requests, then any other difference.
pub(super) fn planned_order(snapshot: &Snapshot, classes: &mut [ClassId]) {
    let ranks = Ranks::new(snapshot);
    classes.sort_by_cached_key(|class| {
        let of = &snapshot.classes[class.index()];
        let size = (of.requests.get(CPU), of.requests.get(MEMORY));
        (std::cmp::Reverse(of.priority), std::cmp::Reverse(size), ranks.key(of))
    });
}

/// The place of every symbol in the order of texts.
struct Ranks<'s> {
    snapshot: &'s Snapshot,
    by_symbol: Vec<u32>,
    by_resource: Vec<u32>,
}

impl<'s> Ranks<'s> {
    fn new(snapshot: &'s Snapshot) -> Self {
        let mut sorted: Vec<usize> = (0..snapshot.symbols.len()).collect();
        sorted.sort_unstable_by_key(|&index| snapshot.symbols.text_at(index));
        let mut resources: Vec<(&str, usize)> =
            snapshot.resources.iter().map(|(id, name)| (name, id.index())).collect();
        resources.sort_unstable();
        Self {
            snapshot,
            by_symbol: inverse(sorted.into_iter()),
            by_resource: inverse(resources.into_iter().map(|(_, index)| index)),
        }
    }

    fn key(&self, class: &PodClass) -> Vec<i64> {
        let mut key = Key { ranks: self, out: Vec::with_capacity(64) };
        key.class(class);
        key.out
    }
}

fn inverse(order: impl ExactSizeIterator<Item = usize>) -> Vec<u32> {
    let mut ranks = vec![0; order.len()];
    for (rank, index) in order.enumerate() {
        ranks[index] = rank as u32;
    }
    ranks
}

struct Key<'a> {
    ranks: &'a Ranks<'a>,
    out: Vec<i64>,
}

impl Key<'_> {
    fn symbol(&mut self, symbol: Symbol) {
        self.out.push(i64::from(self.ranks.by_symbol[symbol.index()]));
    }

    fn class(&mut self, class: &PodClass) {
        self.symbol(class.namespace);
        let mut requests: Vec<(u32, i64)> =
            class.requests.iter().map(|(id, amount)| (self.ranks.by_resource[id.index()], amount)).collect();
        requests.sort_unstable();
        self.out.extend(requests.into_iter().flat_map(|(rank, amount)| [i64::from(rank), amount]));
        self.labels(&class.labels);
        self.list(&class.node_terms, Self::requirements);
        self.list(&class.volume_terms, |key, terms| key.list(terms, Self::requirements));
        self.list(&class.node_preferences, |key, (weight, term)| {
            key.out.push(i64::from(*weight));
            key.requirements(term);
        });
        self.list(&class.tolerations, |key, toleration| {
            key.list(toleration.key.as_slice(), |key, symbol| key.symbol(*symbol));
            key.out.push(toleration.effect.map_or(-1, |effect| effect as i64));
            match toleration.value {
                Comparison::Exists => key.out.push(0),
                Comparison::Equal(value) => {
                    key.out.push(1);
                    key.symbol(value);
                }
                Comparison::Above(number) => key.out.extend([2, number]),
                Comparison::Below(number) => key.out.extend([3, number]),
            }
        });
        self.list(&class.spread, |key, spread| {
            key.symbol(spread.key);
            let numbers = [i64::from(spread.max_skew), spread.min_domains.map_or(-1, i64::from)];
            key.out.extend(numbers);
            key.out.extend([i64::from(spread.hard), spread.node_affinity as i64, spread.node_taints as i64]);
            key.list(spread.selector.as_slice(), Self::requirements);
        });
        self.list(&class.affinity, Self::term);
        self.list(&class.anti_affinity, Self::term);
        self.list(&class.affinity_preferences, |key, (weight, term)| {
            key.out.push(i64::from(*weight));
            key.term(term);
        });
        self.list(&class.host_ports, |key, port| {
            key.out.extend([port.protocol as i64, i64::from(port.port)]);
            let address = port.address.as_deref().unwrap_or_default();
            key.list(address.as_bytes(), |key, byte| key.out.push(i64::from(*byte)));
        });
        self.out.extend([class.kind as i64, i64::from(class.deletion_cost), i64::from(class.preempts)]);
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.out.push(items.len() as i64);
        for item in items {
            each(self, item);
        }
    }

    fn labels(&mut self, labels: &Labels) {
        let rank = |symbol: Symbol| i64::from(self.ranks.by_symbol[symbol.index()]);
        let mut ranked: Vec<_> = labels.iter().map(|(key, value)| (rank(key), rank(value))).collect();
        ranked.sort_unstable();
        self.out.push(ranked.len() as i64);
        self.out.extend(ranked.into_iter().flat_map(|(key, value)| [key, value]));
    }

    fn requirements(&mut self, requirements: &Requirements) {
        let mut ranked: Vec<_> = requirements.iter().collect();
        ranked.sort_unstable_by_key(|(key, _)| self.ranks.by_symbol[key.index()]);
        self.list(&ranked, |key, (symbol, requirement)| {
            key.symbol(*symbol);
            key.requirement(requirement);
        });
    }

    fn requirement(&mut self, requirement: &Requirement) {
        let (values, complement) = requirement.named();
        let (least, most) = requirement.bounds();
        self.out.extend([i64::from(complement), i64::from(requirement.allows_missing())]);
        self.out.extend([least.unwrap_or(i64::MIN), most.unwrap_or(i64::MAX)]);
        let mut ranks: Vec<i64> = values.iter().map(|v| i64::from(self.ranks.by_symbol[v.index()])).collect();
        ranks.sort_unstable();
        self.list(&ranks, |key, rank| key.out.push(*rank));
    }

    fn term(&mut self, term: &AffinityTerm) {
        self.symbol(term.key);
        self.list(term.selector.as_slice(), Self::requirements);
        match &term.namespaces {
            Namespaces::All => self.out.push(-1),
            Namespaces::These(these) => {
                let mut ranks: Vec<i64> = these.iter().map(|n| i64::from(self.ranks.by_symbol[n.index()])).collect();
                ranks.sort_unstable();
                self.list(&ranks, |key, rank| key.out.push(*rank));
            }
        }
        debug_assert!(self.ranks.by_symbol.len() == self.ranks.snapshot.symbols.len());
    }
}
