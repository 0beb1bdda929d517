//! What nodes cost over time, as far as this process has seen it.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use serde_json::{Value, json};

use super::Frame;

/// Samples that are kept. When there are more, every second one of the older half is dropped.
const MOST: usize = 4_000;

struct Sample {
    at: i64,
    nodes: usize,
    /// None where a price is not known.
    nanos: Option<i64>,
    unpriced: usize,
    /// By pool, type and zone.
    parts: [BTreeMap<String, Option<i64>>; 3],
}

/// Samples, the oldest first.
#[derive(Default)]
pub(crate) struct Samples(VecDeque<Sample>);

impl Samples {
    pub(super) fn add(&mut self, frame: &Frame) {
        let at = frame.snapshot.now;
        if self.0.back().is_some_and(|last| last.at >= at) {
            self.0.pop_back();
        }
        let mut parts: [BTreeMap<String, Option<i64>>; 3] = Default::default();
        let (mut sum, mut unpriced) = (0_i64, 0);
        for node in &frame.snapshot.nodes {
            let price = node.price.map(|price| i64::try_from(price).unwrap_or(i64::MAX));
            sum = sum.saturating_add(price.unwrap_or_default());
            unpriced += usize::from(price.is_none());
            let pool = node.pool.map_or("", |pool| frame.snapshot.pools[pool.index()].name.as_str());
            let text = |symbol: Option<_>| symbol.map_or("", |symbol| frame.snapshot.text(symbol));
            for (part, name) in parts.iter_mut().zip([pool, text(node.instance_type), text(node.zone)]) {
                let known = part.entry(name.to_owned()).or_insert(Some(0));
                *known = known.zip(price).map(|(known, price)| known.saturating_add(price));
            }
        }
        let nodes = frame.snapshot.nodes.len();
        let nanos = Some(sum).filter(|_| nodes == 0 || unpriced < nodes);
        self.0.push_back(Sample { at, nodes, nanos, unpriced, parts });
        if self.0.len() > MOST {
            let half = MOST / 2;
            let mut place = 0;
            self.0.retain(|_| {
                place += 1;
                place > half || place % 2 == 0
            });
        }
    }

    /// At most so many points of a time, with a series for each pool (0), type (1) or zone (2).
    pub(crate) fn between(&self, from: i64, to: i64, points: usize, by: usize) -> Value {
        let chosen: Vec<&Sample> = self.0.iter().filter(|sample| (from..=to).contains(&sample.at)).collect();
        let step = chosen.len().div_ceil(points.max(1)).max(1);
        let chosen: Vec<&Sample> = chosen.iter().rev().step_by(step).rev().copied().collect();
        let mut names: Vec<&String> = chosen.iter().flat_map(|sample| sample.parts[by].keys()).collect();
        names.sort_unstable();
        names.dedup();
        let series: Vec<Value> = names
            .into_iter()
            .map(|name| {
                let values: Vec<Option<i64>> =
                    chosen.iter().map(|sample| sample.parts[by].get(name).copied().unwrap_or(Some(0))).collect();
                json!({ "name": name, "perHourNanos": values })
            })
            .collect();
        json!({
            "from": chosen.first().map(|sample| sample.at),
            "to": chosen.last().map(|sample| sample.at),
            "step": step,
            "at": chosen.iter().map(|sample| sample.at).collect::<Vec<_>>(),
            "nodes": chosen.iter().map(|sample| sample.nodes).collect::<Vec<_>>(),
            "perHourNanos": chosen.iter().map(|sample| sample.nanos).collect::<Vec<_>>(),
            "series": series,
            "unpriced": chosen.last().map_or(0, |sample| sample.unpriced),
        })
    }
}
