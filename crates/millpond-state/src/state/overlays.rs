//! NodeOverlays of a cluster: which apply, which conflict, and catalogues with them applied.
//!
//! Judging overlays and laying them over a catalogue looks at every offering there is. What came of it is kept until an
//! overlay, a pool, a class or a catalogue changes; so are lists of types in the planner's words.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use millpond_api::catalog::Catalog;
use millpond_api::catalog::overlay::{Conflict, Overlay, Target, apply_for, conflicts};
use millpond_api::karpenter::NodePool;
use millpond_api::labels::NODE_POOL;
use millpond_api::selector::LabelValues;

use super::State;
use crate::lower::select::current_name;
use crate::snapshot::Options;

/// Catalogues that are kept; a cluster with more kinds of pools than this has them made anew.
const LIMIT_KEPT: usize = 64;

/// Overlays of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlays {
    /// Overlays that are applied.
    pub used: Vec<Overlay>,
    /// Overlays that are not, by name.
    pub unused: BTreeMap<String, Conflict>,
}

/// The inputs of a catalogue with overlays, except the overlays.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ground {
    /// The catalogue: its name and its address, which is stable while the catalogue is held.
    catalog: (String, usize),
    labels: LabelValues,
    only: Option<Vec<String>>,
}

/// Earlier results.
#[derive(Debug, Default)]
struct Kept {
    overlays: Option<Arc<Overlays>>,
    catalogs: Vec<(Ground, Arc<Catalog>)>,
}

/// Earlier results; clones of a state share them until one of them changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Kept>>);

impl Memory {
    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// The overlays of the cluster, judged over the catalogues of all pools.
    pub fn overlays(&self, options: &Options) -> Arc<Overlays> {
        if self.overlays.is_empty() {
            return Arc::default();
        }
        if let Some(known) = self.memory.with(|kept| kept.overlays.clone()) {
            return known;
        }
        let judged = Arc::new(self.judge(options));
        self.memory.with(|kept| kept.overlays = Some(Arc::clone(&judged)));
        judged
    }

    fn judge(&self, options: &Options) -> Overlays {
        let all: Vec<Overlay> = self.overlays.values().map(|(overlay, _)| overlay.clone()).collect();
        let mut targets: Vec<Target<'_>> = Vec::new();
        let asked = asked(&all);
        for (pool, _) in self.pools.values() {
            let Some(catalog) = self.catalog_of(pool, options) else { continue };
            let labels = restricted(pool_labels(pool), &asked);
            if !targets.iter().any(|known| std::ptr::eq(known.catalog, catalog) && known.labels == labels) {
                targets.push(Target { catalog, labels });
            }
        }
        let unused = conflicts(&targets, &all);
        let used = all.into_iter().filter(|overlay| !unused.contains_key(&overlay.name)).collect();
        Overlays { used, unused }
    }

    /// A catalogue with overlays on top, for a pool that gives its nodes these labels; nothing if there are no overlays.
    /// Of all overlays only those of some names, if that is said.
    pub fn overlaid(
        &self,
        catalog: &Catalog,
        labels: &LabelValues,
        only: Option<&[String]>,
        options: &Options,
    ) -> Option<Arc<Catalog>> {
        let of_cluster = self.overlays(options);
        let all = options.overlays.iter().chain(&of_cluster.used);
        let named = |overlay: &&Overlay| only.is_none_or(|names| names.contains(&overlay.name));
        let overlays: Vec<Overlay> = all.filter(named).cloned().collect();
        if overlays.is_empty() {
            return None;
        }
        let ground = Ground {
            catalog: (catalog.name.clone(), std::ptr::from_ref(catalog) as usize),
            labels: restricted(labels.clone(), &asked(&overlays)),
            only: only.map(<[String]>::to_vec),
        };
        let find = |kept: &mut Kept| kept.catalogs.iter().find(|(of, _)| *of == ground).map(|(_, it)| Arc::clone(it));
        // Results for overlays from the options are not kept, since these may differ with every call.
        let lasting = options.overlays.is_empty();
        if let Some(known) = self.memory.with(find).filter(|_| lasting) {
            return Some(known);
        }
        let mut changed = catalog.clone();
        apply_for(&mut changed, &ground.labels, &overlays);
        let changed = Arc::new(changed);
        self.memory.with(|kept| {
            if lasting && kept.catalogs.len() < LIMIT_KEPT {
                kept.catalogs.push((ground, Arc::clone(&changed)));
            }
        });
        Some(changed)
    }

    /// A catalogue is another one than before.
    pub(super) fn forget_catalog(&mut self, name: &str) {
        self.memory = Memory::default();
        self.types.retain(|lowered| !lowered.is_of(name));
    }

    /// Drops the results after a change of overlays or their inputs.
    pub(super) fn forget_overlaid(&mut self) {
        self.memory = Memory::default();
        self.types.clear();
    }
}

/// Labels that some overlay asks for.
fn asked(overlays: &[Overlay]) -> HashSet<&str> {
    overlays.iter().flat_map(|overlay| &overlay.requirements).map(|requirement| requirement.key.as_str()).collect()
}

fn restricted(mut labels: LabelValues, asked: &HashSet<&str>) -> LabelValues {
    labels.retain(|key, _| asked.contains(key.as_str()));
    labels
}

/// Labels that a pool gives all its nodes, as overlays ask for them.
pub fn pool_labels(pool: &NodePool) -> LabelValues {
    let own = pool.spec.template.metadata.labels.iter();
    let own = own.map(|(key, value)| (current_name(key).to_owned(), vec![value.clone()]));
    own.chain([(NODE_POOL.to_owned(), vec![pool.metadata.name.clone()])]).collect()
}
