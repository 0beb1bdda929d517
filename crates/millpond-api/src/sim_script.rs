//! What the simulated cloud does to its callers: boot times, stock-outs, quotas, errors, slow and lost answers,
//! late listings, interruptions. `spec.sim` of a NodeClass, or a file for the cloud as a whole.
//!
//! ```yaml
//! seed: 7
//! image: sim-image-2
//! registrationDelay: 20s
//! stockOuts:
//! - {instanceType: "m5.*", zone: us-east-1a, capacityType: spot, from: 10m, until: 25m}
//! - {capacityType: spot, share: 40%, period: 10m}
//! quotas:
//! - {capacityType: spot, vcpus: 256}
//! calls:
//! - {verbs: [create], error: throttled, share: 5%, retryAfter: 2s}
//! - {verbs: [create], lost: true, nth: [3]}
//! interruptions:
//! - {zone: us-east-1b, perHour: 10%}
//! ```
//!
//! Everything may be left out: an empty script is a cloud without faults. Nothing is random: what "by chance" means
//! is a function of [`Script::seed`] and of what is looked at, so that a run can be repeated.
//!
//! This module has the format and its rules ([`Script::validate`], [`parse`]); the cloud itself is in

mod read;
mod validate;
mod values;

use serde::{Deserialize, Serialize};

pub use read::parse;
pub use values::{Moment, Pattern, Share, Span};

/// The image of instances whose class names none.
pub const DEFAULT_IMAGE: &str = "sim-image-1";

/// How long before its end an instance gets a notice, as on EC2.
pub const DEFAULT_NOTICE: Span = Span::from_secs(120);

/// How long a stock-out by [`StockOut::share`] lasts before others are drawn.
pub const DEFAULT_PERIOD: Span = Span::from_secs(600);

/// The most rules of one list: each is looked at for every choice of every launch.
pub const LIMIT_RULES: usize = 100;

/// What the simulated cloud does to its callers.
///
/// In a NodeClass it holds for the instances of that class and the calls that are about them; quotas and stock count
/// only those. The script of the cloud as a whole holds for all, beside the one of a class; where both name an image
/// or a delay, the class's holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    /// Where all chance comes from; 0 where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The image that instances are made from; [`DEFAULT_IMAGE`] where none is given. Instances of another image
    /// have drifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// From launch to the Node object; at once where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_delay: Option<Span>,
    /// Random addition of up to this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_jitter: Option<Span>,
    /// The share of instances that run and never register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_failures: Option<Share>,
    /// From the wish for an instance's end to its end; at once where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown: Option<Span>,
    /// Unavailable offerings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stock_outs: Vec<StockOut>,
    /// Quota of the account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Quota>,
    /// Calls that fail, are slow, or lose their answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallFault>,
    /// How many calls a second are answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// How late `get` and `list` tell of what came and went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
    /// Instances that the cloud interrupts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<Interruption>,
}

/// Unavailable offerings: all that match, or a share of them, or those beyond a number of instances.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StockOut {
    /// Which types: `m5.*`.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub instance_type: Pattern,
    /// Which zones.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub zone: Pattern,
    /// Which capacity types.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub capacity_type: Pattern,
    /// From when; from the beginning where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Moment>,
    /// Until when; for good where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
    /// The share of the offerings, chosen at random; all where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// How long before others are drawn for `share`; [`DEFAULT_PERIOD`] where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Span>,
    /// The number of instances that each offering can have at once; `None` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock: Option<u32>,
}

/// What the account may have at once of offerings that match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quota {
    /// Which types.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub instance_type: Pattern,
    /// Which zones.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub zone: Pattern,
    /// Which capacity types.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub capacity_type: Pattern,
    /// Maximum number of instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<u32>,
    /// The most cores, of whole ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u64>,
}

/// A verb of the cloud's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// A launch.
    Create,
    /// The wish for an end.
    Delete,
    /// A look at one instance.
    Get,
    /// Listing all instances. Only the script of the whole cloud can have rules for it.
    List,
}

/// What a call is answered with instead of being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CallError {
    /// Too many calls.
    Throttled,
    /// The credentials do not allow it.
    Denied,
    /// The class cannot be used.
    NotReady,
    /// An error of the cloud.
    Other,
}

/// Calls that fail, are slow, or whose answer is lost. A delay can stand beside the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallFault {
    /// Which calls; all where none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<Verb>,
    /// From when; from the beginning where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Moment>,
    /// Until when; for good where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
    /// The share of the calls, chosen at random; all where neither this nor `nth` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// The calls of these numbers, counted from 1 over those that the rule is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nth: Vec<u64>,
    /// Slow: so long before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Failing: it is not done, and this is the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// How long to wait, of `throttled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Span>,
    /// Lost: the call succeeds, and its answer is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// How many calls are answered: those above it are throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Throttle {
    /// Calls a second, for good.
    pub per_second: u32,
    /// Calls at once after some quiet; as many as `perSecond` where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// How late the cloud tells of what came and went. Launches and deletions know the truth at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lag {
    /// Of `get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub get: Option<Span>,
    /// Of `list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<Span>,
}

/// Instances that the cloud takes back: at a time, or by chance.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Interruption {
    /// Which types.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub instance_type: Pattern,
    /// Which zones.
    #[serde(default, skip_serializing_if = "Pattern::is_any")]
    pub zone: Pattern,
    /// Which capacity types; `spot` where none is given.
    #[serde(default = "Pattern::spot", skip_serializing_if = "Pattern::is_spot")]
    pub capacity_type: Pattern,
    /// When: notice is given to what is there then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// The share of them, with `at`; all where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// The chance of each in an hour, instead of `at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<Share>,
    /// From the notice to the end; [`DEFAULT_NOTICE`] where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Span>,
    /// Whether the cloud takes the Node object away too, as a cloud's node controller does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_gone: bool,
}

impl Default for Interruption {
    fn default() -> Self {
        Self {
            instance_type: Pattern::default(),
            zone: Pattern::default(),
            capacity_type: Pattern::spot(),
            at: None,
            share: None,
            per_hour: None,
            notice: None,
            node_gone: false,
        }
    }
}

#[cfg(test)]
mod tests;
