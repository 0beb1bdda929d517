//! Evaluates a script for one call or instance at one time. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_api::sim_script::{
    DEFAULT_IMAGE, DEFAULT_NOTICE, DEFAULT_PERIOD, Interruption, Moment, Pattern, Script, Share, StockOut,
};

use super::chance;
use super::millis::Millis;
use super::record::Record;
use crate::OfferingKey;

/// A script, and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Held {
    pub(super) script: Script,
    pub(super) since: Millis,
}

/// All scripts: that of the cloud as a whole, and those of classes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Scripts {
    pub(super) cloud: Held,
    pub(super) classes: BTreeMap<String, Held>,
}

/// One of the scripts that apply to a class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holding<'s> {
    pub(super) held: &'s Held,
    /// The class of the script; `None` for the whole cloud.
    pub(super) class: Option<&'s str>,
    seed: u64,
}

/// How an instance boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Boot {
    pub(super) delay: Duration,
    pub(super) silent: bool,
}

/// When and how an instance is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Notice {
    pub(super) at: Millis,
    pub(super) notice: Duration,
    pub(super) node_gone: bool,
}

impl Scripts {
    /// The script of a class, or of the cloud as a whole.
    pub(super) fn get(&self, class: Option<&str>) -> Option<&Held> {
        class.map_or(Some(&self.cloud), |class| self.classes.get(class))
    }

    /// The scripts that hold for a class, its own first.
    pub(super) fn holding<'s>(&'s self, class: &'s str) -> impl Iterator<Item = Holding<'s>> + Clone {
        let cloud_seed = self.cloud.script.seed.unwrap_or(0);
        let own = self.classes.get(class).map(|held| Holding {
            held,
            class: Some(class),
            seed: held.script.seed.unwrap_or(cloud_seed),
        });
        own.into_iter().chain([Holding { held: &self.cloud, class: None, seed: cloud_seed }])
    }

    fn first<'s, T>(&'s self, class: &'s str, field: impl Fn(&'s Script) -> Option<T>) -> Option<T> {
        self.holding(class).find_map(|holding| field(&holding.held.script))
    }

    pub(super) fn image<'s>(&'s self, class: &'s str) -> &'s str {
        self.first(class, |script| script.image.as_deref()).unwrap_or(DEFAULT_IMAGE)
    }

    pub(super) fn shutdown(&self, class: &str) -> Duration {
        self.first(class, |script| script.shutdown).unwrap_or_default().0
    }

    pub(super) fn get_lag(&self, class: &str) -> Duration {
        self.first(class, |script| script.lag?.get).unwrap_or_default().0
    }

    pub(super) fn list_lag(&self, class: &str) -> Duration {
        self.first(class, |script| script.lag?.list).unwrap_or_default().0
    }

    pub(super) fn boot(&self, class: &str, token: &str) -> Boot {
        let seed = self.holding(class).next().map_or(0, |holding| holding.seed);
        let delay = self.first(class, |script| script.registration_delay).unwrap_or_default().0;
        let jitter = self.first(class, |script| script.registration_jitter).unwrap_or_default().0;
        let most = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let longer = chance::below(most, chance::number(seed, &["boot", token]));
        let failures = self.first(class, |script| script.registration_failures);
        let silent = failures.is_some_and(|share| chance::is_in(share, chance::number(seed, &["silent", token])));
        Boot { delay: delay + Duration::from_millis(longer), silent }
    }

    /// When the cloud takes an instance back, if it ever does.
    pub(super) fn notice(&self, record: &Record) -> Option<Notice> {
        let instance = &record.instance;
        let of_script = |holding: Holding<'_>| {
            let rules = holding.held.script.interruptions.iter().enumerate();
            let matching = rules
                .filter(|(_, rule)| is_about(&instance.offering, &rule.instance_type, &rule.zone, &rule.capacity_type));
            let notices = matching.filter_map(|(index, rule)| {
                let at = holding.interruption_at(index, rule, record)?;
                let notice = rule.notice.unwrap_or(DEFAULT_NOTICE).0;
                Some(Notice { at, notice, node_gone: rule.node_gone })
            });
            notices.min()
        };
        self.holding(&instance.class).filter_map(of_script).min()
    }
}

impl Holding<'_> {
    pub(super) fn moment(&self, moment: Moment) -> Millis {
        match moment {
            Moment::At(time) => Millis::of_seconds(time),
            Moment::After(span) => self.held.since.after(span.0),
        }
    }

    pub(super) fn is_within(&self, from: Option<Moment>, until: Option<Moment>, now: Millis) -> bool {
        from.is_none_or(|from| self.moment(from) <= now) && until.is_none_or(|until| now < self.moment(until))
    }

    pub(super) fn draws(&self, share: Share, parts: &[&str]) -> bool {
        chance::is_in(share, self.number(parts))
    }

    fn number(&self, parts: &[&str]) -> u64 {
        let class = self.class.unwrap_or_default();
        chance::number(self.seed, &[&[class], parts].concat())
    }

    /// Whether a rule takes an offering off the market, its stock aside.
    pub(super) fn is_out(&self, index: usize, rule: &StockOut, offering: &OfferingKey, now: Millis) -> bool {
        if !is_about(offering, &rule.instance_type, &rule.zone, &rule.capacity_type)
            || !self.is_within(rule.from, rule.until, now)
        {
            return false;
        }
        rule.share.is_none_or(|share| {
            let period = rule.period.unwrap_or(DEFAULT_PERIOD).0.as_millis().max(1);
            let drawn = now.since(self.held.since).as_millis() / period;
            self.draws(share, &["stock", &index.to_string(), &offering.to_string(), &drawn.to_string()])
        })
    }

    fn interruption_at(&self, index: usize, rule: &Interruption, record: &Record) -> Option<Millis> {
        let parts = ["interruption", &index.to_string(), &record.instance.id];
        if let Some(at) = rule.at {
            let at = self.moment(at);
            let drawn = rule.share.is_none_or(|share| self.draws(share, &parts));
            return (drawn && record.created <= at).then_some(at);
        }
        let start = record.created.max(self.held.since);
        time_to_interruption(rule.per_hour?, chance::fraction(self.number(&parts))).map(|time| start.after(time))
    }
}

/// How long an instance lasts that is interrupted with the same chance in every hour.
fn time_to_interruption(per_hour: Share, fraction: f64) -> Option<Duration> {
    let chance = f64::from(per_hour.millionths()) / f64::from(Share::WHOLE_MILLIONTHS);
    let hours = match per_hour.millionths() {
        0 => return None,
        // Within the hour for sure.
        Share::WHOLE_MILLIONTHS => fraction,
        _ => fraction.ln() / (1.0 - chance).ln(),
    };
    // Whole seconds: the last digits of a logarithm are not the same on every machine.
    Duration::try_from_secs_f64((hours * 3600.0).round()).ok()
}

/// Whether a rule with these patterns is about an offering.
pub(super) fn is_about(offering: &OfferingKey, instance_type: &Pattern, zone: &Pattern, capacity: &Pattern) -> bool {
    capacity.matches(&offering.capacity_type)
        && zone.matches(&offering.zone)
        && instance_type.matches(&offering.instance_type)
}
