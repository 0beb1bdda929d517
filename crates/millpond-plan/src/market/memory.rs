//! The market of one snapshot after the other: it is made anew when something changed that it depends on.

use std::sync::Arc;

use super::{Market, Mentioned};
use crate::model::{InstanceType, PodClass, Pool, Snapshot, Types};
use crate::symbol::Symbol;

/// The last market, and the inputs that it was built from.
///
/// Only for snapshots that share one growing symbol table, as those of a watched cluster do: their older symbols stay
/// valid.
#[derive(Debug, Default)]
pub struct Memory {
    last: Option<(Ground, Arc<Market>)>,
}

/// All inputs of a market.
#[derive(Debug)]
struct Ground {
    mentioned: Mentioned,
    well_known: Vec<Symbol>,
    pools: Vec<Pool>,
    types: Types,
    daemons: Vec<PodClass>,
}

impl Memory {
    /// The market of a snapshot; the last one if its inputs are unchanged.
    pub fn market(&mut self, snapshot: &Snapshot) -> Arc<Market> {
        let mentioned = Mentioned::new(snapshot);
        if let Some((ground, market)) = &self.last
            && ground.is_of(snapshot, &mentioned)
        {
            return Arc::clone(market);
        }
        let market = Arc::new(Market::of(snapshot, &mentioned));
        let ground = Ground {
            mentioned,
            well_known: snapshot.well_known.clone(),
            pools: snapshot.pools.clone(),
            types: snapshot.types.clone(),
            daemons: daemons(snapshot).cloned().collect(),
        };
        self.last = Some((ground, Arc::clone(&market)));
        market
    }
}

impl Ground {
    fn is_of(&self, snapshot: &Snapshot, mentioned: &Mentioned) -> bool {
        self.mentioned == *mentioned
            && self.well_known == snapshot.well_known
            && all_same(&self.pools, &snapshot.pools, same_pool)
            && (self.types.are_one(&snapshot.types) || all_same(&self.types, &snapshot.types, same_type))
            && self.daemons.iter().eq(daemons(snapshot))
    }
}

fn daemons(snapshot: &Snapshot) -> impl Iterator<Item = &PodClass> {
    snapshot.daemons.iter().map(|class| &snapshot.classes[class.index()])
}

fn all_same<T>(known: &[T], now: &[T], same: fn(&T, &T) -> bool) -> bool {
    known.len() == now.len() && known.iter().zip(now).all(|(known, now)| same(known, now))
}

fn same_pool(known: &Pool, now: &Pool) -> bool {
    known.name == now.name
        && known.weight == now.weight
        && known.types == now.types
        && known.taints == now.taints
        && known.requirements == now.requirements
}

/// Labels are shared between snapshots as long as nothing was made anew.
fn same_type(known: &InstanceType, now: &InstanceType) -> bool {
    known.name == now.name
        && Arc::ptr_eq(&known.labels, &now.labels)
        && known.priority == now.priority
        && known.allocatable == now.allocatable
        && known.offerings == now.offerings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;

    #[test]
    fn a_market_is_kept_until_something_changes_that_it_depends_on() {
        let cluster =
            Cluster::new().machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50)).pool("web", |pool| pool);
        let mut snapshot = cluster.pods(2, "web", "cpu=1", |pod| pod).snapshot();
        let mut memory = Memory::default();
        let first = memory.market(&snapshot);
        assert!(Arc::ptr_eq(&first, &memory.market(&snapshot)));
        snapshot.pods.pop();
        snapshot.now += 60;
        assert!(Arc::ptr_eq(&first, &memory.market(&snapshot)), "neither pods nor the time matter");

        snapshot.types[0].offerings[0].available = false;
        let sold_out = memory.market(&snapshot);
        assert_eq!(first.available().iter().count(), sold_out.available().iter().count() + 1);
        snapshot.pools[0].weight = 7;
        assert_eq!(memory.market(&snapshot).offers()[0].rank.0, 7);
        let arch = snapshot.names.arch;
        snapshot.classes[0].spread.push(crate::model::Spread {
            key: arch,
            max_skew: 1,
            min_domains: None,
            hard: true,
            selector: None,
            node_affinity: crate::model::InclusionPolicy::Honor,
            node_taints: crate::model::InclusionPolicy::Ignore,
        });
        assert_eq!(memory.market(&snapshot).values(arch).count(), 1, "another label is in use");
    }
}
