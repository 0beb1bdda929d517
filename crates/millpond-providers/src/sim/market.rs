//! The offerings that can be bought at one moment: stock, reservations and quotas, evaluated for one launch.

use std::collections::BTreeMap;

use millpond_api::amounts::Amounts;
use millpond_api::catalog::CapacityType;
use millpond_api::sim_script::Quota;

use super::millis::Millis;
use super::record::Record;
use super::rules::{Holding, Scripts, is_about};
use crate::{Choice, OfferingKey};

/// The cloud's answer for one choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It can be had.
    Available,
    /// It is out of stock.
    OutOfStock,
    /// The account may not have more of it; which quota.
    OverQuota(String),
}

/// The market for the launches of a class. What is in use is counted once, not once for every choice.
pub(super) struct Market<'s> {
    scripts: Vec<Counted<'s>>,
    /// Reserved instances of the whole cloud by offering.
    reserved: BTreeMap<&'s OfferingKey, u32>,
    now: Millis,
}

/// A script, with the usage of what it limits.
struct Counted<'s> {
    holding: Holding<'s>,
    in_use: BTreeMap<&'s OfferingKey, u32>,
    /// Instances and cores, for each quota.
    quotas: Vec<(u64, u64)>,
}

impl<'s> Market<'s> {
    pub(super) fn new(
        scripts: &'s Scripts,
        class: &'s str,
        records: impl Iterator<Item = &'s Record> + Clone,
        now: Millis,
    ) -> Self {
        let live = records.filter(|record| !record.is_gone(now));
        let scripts = scripts.holding(class).map(|holding| {
            let counts = live.clone().filter(|record| holding.class.is_none_or(|of| record.instance.class == of));
            Counted::new(holding, counts)
        });
        let scripts = scripts.collect();
        let reserved = live.filter(|record| record.instance.offering.capacity_type == CapacityType::Reserved.name());
        Self { scripts, reserved: by_offering(reserved), now }
    }

    /// The cloud's answer for a choice; `most` limits its number of instances.
    pub(super) fn verdict(&self, choice: &Choice, most: Option<u32>) -> Verdict {
        let offering = &choice.offering;
        let used_up = most.is_some_and(|most| most <= count_of(&self.reserved, offering));
        if used_up || self.scripts.iter().any(|script| script.is_out_of_stock(offering, self.now)) {
            return Verdict::OutOfStock;
        }
        let over = self.scripts.iter().find_map(|script| script.over_quota(choice));
        over.map_or(Verdict::Available, Verdict::OverQuota)
    }
}

impl<'s> Counted<'s> {
    fn new(holding: Holding<'s>, live: impl Iterator<Item = &'s Record> + Clone) -> Self {
        let script = &holding.held.script;
        let count = |quota: &Quota| {
            let of = live.clone().filter(|record| {
                is_about(&record.instance.offering, &quota.instance_type, &quota.zone, &quota.capacity_type)
            });
            of.fold((0, 0), |(instances, cores), record| (instances + 1, cores + vcpus(&record.instance.capacity)))
        };
        let quotas = script.quotas.iter().map(count).collect();
        let counts_stock = script.stock_outs.iter().any(|rule| rule.stock.is_some());
        let in_use = if counts_stock { by_offering(live) } else { BTreeMap::new() };
        Self { holding, in_use, quotas }
    }

    fn is_out_of_stock(&self, offering: &OfferingKey, now: Millis) -> bool {
        let mut rules = self.holding.held.script.stock_outs.iter().enumerate();
        rules.any(|(index, rule)| {
            self.holding.is_out(index, rule, offering, now)
                && rule.stock.is_none_or(|stock| stock <= count_of(&self.in_use, offering))
        })
    }

    fn over_quota(&self, choice: &Choice) -> Option<String> {
        let cores = vcpus(&choice.shape.capacity);
        let quotas = self.holding.held.script.quotas.iter().zip(&self.quotas);
        let mut over = quotas.filter_map(|(quota, (used_instances, used_cores))| {
            if !is_about(&choice.offering, &quota.instance_type, &quota.zone, &quota.capacity_type) {
                return None;
            }
            let of = [&quota.instance_type, &quota.zone, &quota.capacity_type];
            let of: Vec<&str> = of.into_iter().filter(|it| !it.is_any()).map(|it| it.0.as_str()).collect();
            let of = if of.is_empty() { String::new() } else { format!(" of {}", of.join(" ")) };
            if let Some(most) = quota.instances.filter(|most| *used_instances >= u64::from(*most)) {
                return Some(format!("the quota of {most} instances{of} is used up"));
            }
            let most = quota.vcpus.filter(|most| used_cores.saturating_add(cores) > *most)?;
            Some(format!("{cores} more vCPUs are above the quota of {most}{of}, {used_cores} of which are in use"))
        });
        over.next()
    }
}

fn by_offering<'s>(live: impl Iterator<Item = &'s Record>) -> BTreeMap<&'s OfferingKey, u32> {
    let mut counts = BTreeMap::new();
    live.for_each(|record| *counts.entry(&record.instance.offering).or_default() += 1);
    counts
}

fn count_of(counts: &BTreeMap<&OfferingKey, u32>, offering: &OfferingKey) -> u32 {
    counts.get(offering).copied().unwrap_or(0)
}

/// Whole cores.
fn vcpus(capacity: &Amounts) -> u64 {
    u64::try_from(capacity.get("cpu").unwrap_or(0)).unwrap_or(0).div_ceil(1000)
}
