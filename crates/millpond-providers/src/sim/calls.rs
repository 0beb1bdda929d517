//! The fate of calls: delayed, refused, or carried out without a response. Counts of calls are kept here; they start at
//! zero with the process, as a client's do.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_api::sim_script::{CallError, CallFault, Throttle, Verb};

use super::millis::Millis;
use super::rules::{Held, Holding, Scripts};
use crate::ProviderError;

/// The fault that a script gives one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Fault {
    /// Additional delay.
    pub(super) delay: Duration,
    /// The call is not carried out and fails with this error.
    pub(super) error: Option<ProviderError>,
    /// The call is carried out, and its response is lost.
    pub(super) lost: bool,
}

/// Counts of calls, by the class whose script counts them; the empty name is for the whole cloud.
#[derive(Debug, Default)]
pub(super) struct Calls {
    counts: BTreeMap<String, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// The script that the counts belong to; a new script starts at zero.
    of: Held,
    /// For each rule, the number of calls that it matched.
    rules: Vec<u64>,
    bucket: Option<Bucket>,
}

impl Calls {
    /// Counts a call about a class (`None` for `list`), and returns its fault.
    pub(super) fn begin(&mut self, verb: Verb, class: Option<&str>, scripts: &Scripts, now: Millis) -> Fault {
        let mut fault = Fault::default();
        for holding in scripts.holding(class.unwrap_or_default()) {
            let counts = self.counts.entry(holding.class.unwrap_or_default().to_owned()).or_default();
            if counts.of != *holding.held {
                *counts = Counts { of: holding.held.clone(), ..Counts::default() };
                counts.rules.resize(holding.held.script.calls.len(), 0);
            }
            counts.begin(verb, &holding, now, &mut fault);
        }
        fault
    }
}

impl Counts {
    fn begin(&mut self, verb: Verb, holding: &Holding<'_>, now: Millis, fault: &mut Fault) {
        let script = &holding.held.script;
        if let Some(throttle) = &script.throttle {
            let bucket = self.bucket.get_or_insert_with(|| Bucket::full(throttle, now));
            if let Err(wait) = bucket.take(throttle, now) {
                fault.error.get_or_insert_with(|| throttled(verb, Some(wait)));
            }
        }
        for ((index, rule), count) in script.calls.iter().enumerate().zip(&mut self.rules) {
            let about = rule.verbs.is_empty() || rule.verbs.contains(&verb);
            if !about || !holding.is_within(rule.from, rule.until, now) {
                continue;
            }
            *count += 1;
            let number = count.to_string();
            let by_chance = rule.share.is_none_or(|share| holding.draws(share, &["call", &index.to_string(), &number]));
            if by_chance && (rule.nth.is_empty() || rule.nth.contains(count)) {
                fault.add(rule, verb);
            }
        }
    }
}

impl Fault {
    fn add(&mut self, rule: &CallFault, verb: Verb) {
        self.delay = self.delay.saturating_add(rule.delay.unwrap_or_default().0);
        self.lost |= rule.lost;
        let Some(error) = rule.error else { return };
        self.error.get_or_insert_with(|| {
            let name = name(verb);
            match error {
                CallError::Throttled => throttled(verb, rule.retry_after.map(|span| span.0)),
                CallError::Denied => ProviderError::Denied {
                    message: format!("the account may not call `{name}`, as the script has it"),
                },
                CallError::NotReady => {
                    ProviderError::NotReady { message: "the class cannot be used, as the script has it".to_owned() }
                }
                CallError::Other => {
                    ProviderError::Other { message: format!("`{name}` failed inside the cloud, as the script has it") }
                }
            }
        });
    }
}

/// The word for a verb in messages.
pub(super) fn name(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Delete => "delete",
        Verb::Get => "get",
        Verb::List => "list",
    }
}

fn throttled(verb: Verb, retry_after: Option<Duration>) -> ProviderError {
    ProviderError::Throttled { retry_after, message: format!("too many calls: `{}` was not done", name(verb)) }
}

/// Calls that may be made at once, in thousandths.
#[derive(Debug)]
struct Bucket {
    left: u64,
    filled: Millis,
}

impl Bucket {
    const CALL: u64 = 1000;

    fn most(throttle: &Throttle) -> u64 {
        u64::from(throttle.burst.unwrap_or(throttle.per_second).max(1)) * Self::CALL
    }

    fn full(throttle: &Throttle, now: Millis) -> Self {
        Self { left: Self::most(throttle), filled: now }
    }

    /// Takes one call, or returns the time until one is available.
    fn take(&mut self, throttle: &Throttle, now: Millis) -> Result<(), Duration> {
        // A call per second is a thousandth of a call per millisecond.
        let rate = u64::from(throttle.per_second.max(1));
        let elapsed = u64::try_from(now.since(self.filled).as_millis()).unwrap_or(u64::MAX);
        self.left = self.left.saturating_add(elapsed.saturating_mul(rate)).min(Self::most(throttle));
        self.filled = now;
        match self.left.checked_sub(Self::CALL) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Duration::from_millis((Self::CALL - self.left).div_ceil(rate))),
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_api::sim_script::parse;

    use super::*;

    fn scripts(cloud: &str) -> Scripts {
        let script = parse("script", cloud).unwrap();
        Scripts { cloud: Held { script, since: Millis(0) }, ..Scripts::default() }
    }

    #[test]
    fn the_nth_call_of_a_verb_is_hit() {
        let scripts = scripts("calls: [{verbs: [create], nth: [2], lost: true}, {verbs: [get], error: denied}]");
        let mut calls = Calls::default();
        let mut begin = |verb| calls.begin(verb, Some("a"), &scripts, Millis(5));
        assert_eq!(begin(Verb::Create), Fault::default());
        assert!(matches!(begin(Verb::Get).error, Some(ProviderError::Denied { .. })));
        assert!(begin(Verb::Create).lost);
        assert_eq!(begin(Verb::Create), Fault::default());
        assert_eq!(begin(Verb::Delete), Fault::default());
    }

    #[test]
    fn faults_hold_in_their_time() {
        let scripts = scripts("calls: [{from: 1s, until: 2s, delay: 3s}, {from: 1s, delay: 1s}]");
        let mut calls = Calls::default();
        let mut delay = |at| calls.begin(Verb::List, None, &scripts, Millis(at)).delay.as_secs();
        assert_eq!([0, 999, 1000, 1999, 2000].map(&mut delay), [0, 0, 4, 4, 1]);
    }

    #[test]
    fn calls_above_the_rate_are_throttled() {
        let scripts = scripts("throttle: {perSecond: 2, burst: 3}");
        let mut calls = Calls::default();
        let mut wait = |at| match calls.begin(Verb::Create, Some("a"), &scripts, Millis(at)).error {
            None => 0,
            Some(ProviderError::Throttled { retry_after, .. }) => retry_after.unwrap().as_millis(),
            Some(error) => panic!("{error}"),
        };
        assert_eq!([0, 0, 0, 0, 400, 500, 500].map(&mut wait), [0, 0, 0, 500, 100, 0, 500]);
        assert_eq!([60_000, 60_000, 60_000, 60_000].map(&mut wait), [0, 0, 0, 500]);
    }

    #[test]
    fn a_class_counts_its_own_calls() {
        let mut scripts = scripts("calls: [{verbs: [create], nth: [3], delay: 1s}]");
        let own = parse("own", "calls: [{nth: [1], error: other}]").unwrap();
        scripts.classes.insert("b".to_owned(), Held { script: own, since: Millis(0) });
        let mut calls = Calls::default();
        let mut begin = |class| calls.begin(Verb::Create, Some(class), &scripts, Millis(0));
        assert_eq!(begin("a"), Fault::default());
        assert!(begin("b").error.is_some());
        let third = begin("b");
        assert_eq!((third.error, third.delay.as_secs()), (None, 1));
    }
}
