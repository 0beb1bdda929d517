//! Validates a script, and finds names in it that no catalogue has.

use super::{CallError, CallFault, Interruption, LIMIT_RULES, Moment, Pattern, Quota, Script, StockOut, Verb};
use crate::catalog::{CapacityType, Catalog};
use crate::meta::Invalid;
use crate::spelling::nearest;

impl Script {
    /// What cannot be; `field` is where the script stands (`spec.sim`), empty for a file of its own.
    pub fn validate(&self, field: &str) -> Vec<Invalid> {
        let mut found = Found { prefix: field, invalid: Vec::new() };
        let lists = [
            ("stockOuts", self.stock_outs.len()),
            ("quotas", self.quotas.len()),
            ("calls", self.calls.len()),
            ("interruptions", self.interruptions.len()),
        ];
        for (list, _) in lists.into_iter().filter(|(_, count)| *count > LIMIT_RULES) {
            found.add(list, format!("has more than {LIMIT_RULES} rules"));
        }
        if self.image.as_ref().is_some_and(String::is_empty) {
            found.add("image", "is empty");
        }
        if self.throttle.is_some_and(|throttle| throttle.per_second == 0) {
            found.add("throttle.perSecond", "must be above zero");
        }
        if self.throttle.is_some_and(|throttle| throttle.burst == Some(0)) {
            found.add("throttle.burst", "must be above zero");
        }
        each("stockOuts", &self.stock_outs, |at, rule| found.stock_out(&at, rule));
        each("quotas", &self.quotas, |at, rule| found.quota(&at, rule));
        each("calls", &self.calls, |at, rule| found.call(&at, rule));
        each("interruptions", &self.interruptions, |at, rule| found.interruption(&at, rule));
        found.invalid
    }

    /// Types and zones that rules name without a `*` and that are not in the catalogue: such a rule would never do
    /// anything.
    pub fn unknown_names(&self, field: &str, catalog: &Catalog) -> Vec<Invalid> {
        let mut found = Found { prefix: field, invalid: Vec::new() };
        let mut look = |at: String, instance_type: &Pattern, zone: &Pattern| {
            if instance_type.is_literal() && catalog.find(&instance_type.0).is_none() {
                let hint = hint(catalog.nearest(&instance_type.0));
                let problem = format!("catalogue `{}` has no instance type `{instance_type}`{hint}", catalog.name);
                found.add(&format!("{at}.instanceType"), problem);
            }
            if zone.is_literal() && !has_zone(catalog, &zone.0) {
                let hint = hint(nearest(&zone.0, catalog.zones.iter().map(|zone| &**zone)));
                found.add(&format!("{at}.zone"), format!("catalogue `{}` has no zone `{zone}`{hint}", catalog.name));
            }
        };
        each("stockOuts", &self.stock_outs, |at, rule| look(at, &rule.instance_type, &rule.zone));
        each("quotas", &self.quotas, |at, rule| look(at, &rule.instance_type, &rule.zone));
        each("interruptions", &self.interruptions, |at, rule| look(at, &rule.instance_type, &rule.zone));
        found.invalid
    }
}

fn has_zone(catalog: &Catalog, name: &str) -> bool {
    let offered = || catalog.types.iter().flat_map(|of| &of.offerings).any(|offering| *offering.zone == *name);
    catalog.zones.iter().any(|zone| **zone == *name) || offered()
}

fn hint(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; is `{name}` meant?"))
}

fn each<T>(list: &str, rules: &[T], mut look: impl FnMut(String, &T)) {
    rules.iter().enumerate().for_each(|(index, rule)| look(format!("{list}[{index}]"), rule));
}

struct Found<'f> {
    prefix: &'f str,
    invalid: Vec<Invalid>,
}

impl Found<'_> {
    fn add(&mut self, field: &str, problem: impl Into<String>) {
        let dot = if self.prefix.is_empty() { "" } else { "." };
        self.invalid.push(Invalid::new(format!("{}{dot}{field}", self.prefix), problem));
    }

    fn patterns(&mut self, at: &str, instance_type: &Pattern, zone: &Pattern, capacity_type: &Pattern) {
        for (name, pattern) in [("instanceType", instance_type), ("zone", zone), ("capacityType", capacity_type)] {
            if pattern.0.is_empty() {
                self.add(&format!("{at}.{name}"), "is empty; `*` stands for all");
            }
        }
        let names = || CapacityType::ALL.map(CapacityType::name);
        if !capacity_type.0.is_empty() && !names().iter().any(|name| capacity_type.matches(name)) {
            let hint = hint(nearest(&capacity_type.0, names()));
            let problem = format!("`{capacity_type}` is none of {}{hint}", names().join(", "));
            self.add(&format!("{at}.capacityType"), problem);
        }
    }

    fn window(&mut self, at: &str, from: Option<Moment>, until: Option<Moment>) {
        let empty = match (from, until) {
            (Some(Moment::At(from)), Some(Moment::At(until))) => from >= until,
            (Some(Moment::After(from)), Some(Moment::After(until))) => from >= until,
            (None, Some(Moment::After(until))) => until.0.is_zero(),
            _ => false,
        };
        if empty {
            self.add(&format!("{at}.until"), "is not after `from`");
        }
    }

    fn stock_out(&mut self, at: &str, rule: &StockOut) {
        self.patterns(at, &rule.instance_type, &rule.zone, &rule.capacity_type);
        self.window(at, rule.from, rule.until);
        if rule.period.is_some() && rule.share.is_none() {
            self.add(&format!("{at}.period"), "says how often the `share` is drawn, and there is none");
        }
        if rule.period.is_some_and(|period| period.0.is_zero()) {
            self.add(&format!("{at}.period"), "must be above zero");
        }
    }

    fn quota(&mut self, at: &str, rule: &Quota) {
        self.patterns(at, &rule.instance_type, &rule.zone, &rule.capacity_type);
        if rule.instances.is_none() && rule.vcpus.is_none() {
            self.add(at, "limits nothing: give `instances` or `vcpus`");
        }
    }

    fn call(&mut self, at: &str, rule: &CallFault) {
        self.window(at, rule.from, rule.until);
        if rule.delay.is_none() && rule.error.is_none() && !rule.lost {
            self.add(at, "does nothing: give `delay`, `error` or `lost`");
        }
        if rule.error.is_some() && rule.lost {
            self.add(&format!("{at}.lost"), "stands beside `error`; a call that fails has no answer to lose");
        }
        if rule.share.is_some() && !rule.nth.is_empty() {
            self.add(&format!("{at}.share"), "stands beside `nth`; only one of them may");
        }
        if rule.nth.contains(&0) {
            self.add(&format!("{at}.nth"), "counts from 1");
        }
        if rule.retry_after.is_some() && rule.error != Some(CallError::Throttled) {
            self.add(&format!("{at}.retryAfter"), "goes with `error: throttled` only");
        }
        if !self.prefix.is_empty() && rule.verbs.contains(&Verb::List) {
            let problem = "`list` is about no class; only the script of the cloud as a whole can speak of it";
            self.add(&format!("{at}.verbs"), problem);
        }
    }

    fn interruption(&mut self, at: &str, rule: &Interruption) {
        self.patterns(at, &rule.instance_type, &rule.zone, &rule.capacity_type);
        match (rule.at, rule.per_hour) {
            (None, None) => self.add(at, "never happens: give `at` or `perHour`"),
            (Some(_), Some(_)) => self.add(&format!("{at}.perHour"), "stands beside `at`; only one of them may"),
            _ => {}
        }
        if rule.share.is_some() && rule.at.is_none() {
            self.add(&format!("{at}.share"), "goes with `at`; by chance it is `perHour`");
        }
    }
}
