//! What all nodes of all pools may add up to: the lowest of what options and ClusterLimits say.

use millpond_api::amounts::Amounts;
use millpond_plan::model::{Limits, ResourceTable};

use super::Options;
use crate::state::State;

impl State {
    pub(super) fn limits(&self, options: &Options, resources: &mut ResourceTable) -> Limits {
        let mut limits = Limits { resources: Vec::new(), nodes: options.limit_nodes, price: options.limit_price };
        for (name, most) in &options.limit_resources {
            lower(&mut limits, resources, name, *most);
        }
        for of in self.cluster_limits.values() {
            limits.price = lowest(limits.price, of.dollars_per_hour.as_ref().map(|dollars| dollars.0));
            for (name, most) in of.limits.iter().flat_map(Amounts::iter) {
                lower(&mut limits, resources, name, most);
            }
        }
        limits.resources.sort_unstable();
        limits
    }
}

fn lower(limits: &mut Limits, resources: &mut ResourceTable, name: &str, most: i64) {
    if name == "nodes" {
        limits.nodes = lowest(limits.nodes, Some(u64::try_from(most).unwrap_or(0)));
        return;
    }
    let id = resources.intern(name);
    match limits.resources.iter_mut().find(|(known, _)| *known == id) {
        Some((_, known)) => *known = (*known).min(most),
        None => limits.resources.push((id, most)),
    }
}

fn lowest(known: Option<u64>, more: Option<u64>) -> Option<u64> {
    [known, more].into_iter().flatten().min()
}
