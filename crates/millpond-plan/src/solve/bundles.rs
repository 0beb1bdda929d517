//! Bundles: pods that must share a host are planned together.
//!
//! Classes connected by required affinity on the hostname form a bundle. A bundle that may be split goes to the number
//! of nodes that is cheapest, each with its share of every class; a bundle whose pods all need each other goes to one
//! node.

use crate::model::{ClassId, Resources};

use super::{Solver, offers};

/// Nodes that the splitting of a bundle is tried for at most; beyond that halves the steps matter little.
const MAX_SPLITS: u32 = 64;

impl Solver<'_> {
    /// Buys nodes for bundles.
    pub(super) fn buy_bundles(&mut self) {
        for bundle in self.bundles() {
            self.add_planned_nodes();
            self.buy_bundle(&bundle);
        }
    }

    /// Waiting classes that are tied to each other by host, the tied ones together.
    fn bundles(&self) -> Vec<Vec<ClassId>> {
        let hostname = self.snapshot.names.hostname;
        let topology = self.cluster.topology();
        let waiting = self.waiting();
        let tied: Vec<ClassId> = waiting.iter().copied().filter(|&c| topology.is_affine(c, hostname)).collect();
        let mut bundles: Vec<Vec<ClassId>> = Vec::new();
        for class in tied {
            let mut bundle: Vec<ClassId> = waiting
                .iter()
                .copied()
                .filter(|&other| other == class || topology.follows(class, other, hostname))
                .collect();
            bundles.retain(|known| {
                let meets = known.iter().any(|other| bundle.contains(other));
                if meets {
                    bundle.extend(known);
                }
                !meets
            });
            bundle.sort_unstable();
            bundle.dedup();
            bundles.push(bundle);
        }
        let order = |class: &ClassId| waiting.iter().position(|other| other == class);
        for bundle in &mut bundles {
            // Pods without required affinity come first, so that the others find them there.
            bundle.sort_by_key(|class| (topology.is_affine(*class, hostname), order(class)));
        }
        bundles.sort_by_key(|bundle| bundle.iter().map(order).min());
        bundles
    }

    fn buy_bundle(&mut self, bundle: &[ClassId]) {
        let hostname = self.snapshot.names.hostname;
        let topology = self.cluster.topology();
        let whole = bundle.iter().any(|&c| topology.is_affine(c, hostname) && topology.is_affine_to_itself(c));
        let roots = bundle.iter().filter(|&&c| !topology.is_affine(c, hostname)).map(|&c| self.left(c)).min();
        let most = if whole { 1 } else { roots.unwrap_or(1).clamp(1, MAX_SPLITS) };
        let best = (1..=most).filter_map(|nodes| {
            let offers = self.offers_for(bundle, nodes);
            let first = self.market.offer(*offers.first()?);
            let cost = u128::from(first.price) * u128::from(nodes);
            Some(((std::cmp::Reverse(first.rank), cost, nodes), offers))
        });
        let Some(((.., nodes), offers)) = best.min_by_key(|(key, _)| *key) else { return };
        for index in 0..nodes {
            let contents: Vec<(ClassId, u32)> =
                bundle.iter().map(|&class| (class, self.left(class).div_ceil(nodes - index))).collect();
            let allowed: Vec<usize> = offers.iter().copied().filter(|&o| self.ledger.allows(o).is_ok()).collect();
            let chosen = offers::choose(&allowed, &contents, &self.balance, self.market, self.snapshot);
            let Some(offer) = chosen else { return };
            let node = self.add_planned(offer);
            let spot = self.spot_of(node);
            for (class, count) in contents {
                for _ in 0..count {
                    let allowed = self.left(class) > 0 && self.cluster.check(class, spot).is_ok();
                    if !allowed || !self.stays_flexible(node, class) {
                        break;
                    }
                    self.put(node, class, 1);
                }
            }
            if self.planned[node].contents.is_empty() {
                self.give_back(node);
                return;
            }
        }
    }

    /// The cheapest offers that hold a share of the bundle, by name; those of the greatest weight that has any.
    fn offers_for(&mut self, bundle: &[ClassId], nodes: u32) -> Vec<usize> {
        let mut total = Resources::new();
        let mut candidates = self.on_sale.clone();
        for &class in bundle {
            let share = self.left(class).div_ceil(nodes);
            total.add_times(&self.snapshot.classes[class.index()].requests, i64::from(share));
            candidates.intersect(self.cluster.suiting_offers(class));
        }
        let key = |offer: usize| {
            let of = self.market.offer(offer);
            (std::cmp::Reverse(of.rank), of.price)
        };
        let fits = |offer: &usize| self.market.offer(*offer).free.first_lacking(&total).is_none();
        let mut fitting: Vec<usize> = candidates.iter().filter(fits).collect();
        fitting.retain(|&offer| self.ledger.allows(offer).is_ok());
        if let Some(best) = fitting.iter().map(|&offer| key(offer)).min() {
            fitting.retain(|&offer| key(offer) == best);
        }
        offers::sort_by_name(&mut fitting, self.market, self.snapshot);
        fitting
    }
}
