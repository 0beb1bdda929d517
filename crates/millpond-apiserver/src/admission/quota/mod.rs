//! Resource quotas: what an object takes is charged to the quotas of its namespace before it is written.
//!
//! A quota's `status.hard` and the first count in `status.used` come from kube-controller-manager, which also recounts
//! when objects go; a quota that has not been counted yet has no `status.hard` and limits nothing. `usage` says how
//! much an object takes, this module compares and charges.

mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use self::usage::Measure;
use crate::builtin::json::{Fields, Fill};
use crate::builtin::resources::Amounts;
use crate::handlers::call::{Call, key_of};
use crate::handlers::create::unavailable;
use crate::handlers::update::Part;
use crate::status::ApiError;
use crate::store::{CommitError, EncodedObject, Expect, StoredObject, Write};

const QUOTAS: &str = "resourcequotas";
/// How often a charge is tried again while a controller counts the same quotas.
const RETRIES: usize = 64;

/// Charges what a new or changed object takes to the quotas that count it, or refuses it.
pub(super) async fn charge(call: &Call, new: &Value, old: Option<&Value>, part: Part) -> Result<(), ApiError> {
    if !call.resource.namespaced || quotas(call).is_empty() {
        return Ok(());
    }
    let Some(measure) = Measure::of(&call.resource).filter(|measure| measure.concerns(new, old, part)) else {
        return Ok(());
    };
    let name = new.at("metadata").text("name");
    if old.is_none()
        && call.server.store.get(&call.resource.storage, &key_of(&call.resource, call.namespace(), name)).is_some()
    {
        // The write itself tells that the name is taken.
        return Ok(());
    }
    // Requests are charged one at a time, so each sees the charges before it; only controllers can interfere.
    let _turn = call.server.quota_turn.lock().await;
    let change = Change { call, measure, new, old, status: part == Part::Status, now: call.server.clock.now() };
    let mut charged = BTreeSet::new();
    for _ in 0..RETRIES {
        let mut open = quotas(call);
        open.retain(|(key, _)| !charged.contains(key));
        let refuse = |why: String| ApiError::forbidden(&call.resource.group, &call.resource.plural, name, &why);
        let due = change.due(&open).map_err(refuse)?;
        if call.query.dry_run {
            return Ok(());
        }
        let mut raced = false;
        for (key, quota, stored) in due {
            match write(call, key.clone(), &quota, &stored).await {
                Ok(()) => {
                    charged.insert(key);
                }
                Err(CommitError::Raced) => raced = true,
                Err(error) => return Err(unavailable(&error)),
            }
        }
        if !raced {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    Err(ApiError::conflict("", QUOTAS, "", "the quotas of the namespace keep changing; please try again"))
}

/// The quotas of the request's namespace.
fn quotas(call: &Call) -> Vec<(Arc<str>, Arc<StoredObject>)> {
    call.server.store.list(QUOTAS, &format!("{}/", call.namespace()), None, 0, |_, _| true).items
}

async fn write(call: &Call, key: Arc<str>, quota: &Value, stored: &StoredObject) -> Result<(), CommitError> {
    let write = Write {
        collection: Arc::from(QUOTAS),
        key,
        expect: Expect::Revision(stored.revision),
        draft: EncodedObject::update_of(stored, quota)?,
        delete: false,
    };
    call.server.store.commit(write).await.map(|_| ())
}

/// A quota to be written: its key, its new state, and what is stored.
type Due = (Arc<str>, Value, Arc<StoredObject>);

/// An object that comes or changes.
struct Change<'a> {
    call: &'a Call,
    measure: Measure,
    new: &'a Value,
    old: Option<&'a Value>,
    /// The change came through `/status`: usage is counted but never refused.
    status: bool,
    now: Timestamp,
}

impl Change<'_> {
    /// The quotas as they are after the change, those that it touches; the error says which one is in its way.
    fn due(&self, quotas: &[(Arc<str>, Arc<StoredObject>)]) -> Result<Vec<Due>, String> {
        let mut concerned = Vec::new();
        for (key, stored) in quotas {
            let quota = stored.to_value();
            if self.matches(&quota, self.new) {
                self.check_countable(&quota)?;
                concerned.push((key.clone(), quota, stored.clone()));
            }
        }
        if concerned.is_empty() {
            return Ok(concerned);
        }
        let taken = self.measure.usage(&self.call.resource, self.new, self.now);
        let before = self.old.map(|old| self.measure.usage(&self.call.resource, old, self.now));
        let mut due = Vec::new();
        for (key, mut quota, stored) in concerned {
            let counted_before = before.as_ref().filter(|_| self.old.is_some_and(|old| self.matches(&quota, old)));
            let more = more_than(&taken, counted_before);
            if let Some(used) = self.charged(&quota, &more)? {
                quota.object("status").put("used", used.to_value());
                due.push((key, quota, stored));
            }
        }
        Ok(due)
    }

    /// Whether a quota counts something of the object, and the object is in its scope.
    fn matches(&self, quota: &Value, object: &Value) -> bool {
        let counts = quota.at("status").entries("hard").any(|(name, _)| self.measure.covers(&self.call.resource, name));
        counts && usage::scopes(quota).iter().all(|scope| self.measure.is_in_scope(scope, object))
    }

    /// The object says how much it takes, and the quota how much is used.
    fn check_countable(&self, quota: &Value) -> Result<(), String> {
        let (name, status) = (quota.at("metadata").text("name"), quota.at("status"));
        let covered = |(resource, _): &(&str, &Value)| self.measure.covers(&self.call.resource, resource);
        let names: Vec<&str> = status.entries("hard").filter(covered).map(|(resource, _)| resource).collect();
        self.measure.check_named(&names, self.new).map_err(|why| format!("failed quota: {name}: {why}"))?;
        if names.iter().any(|resource| !status.at("used").has(resource)) {
            return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
        }
        Ok(())
    }

    /// The usage after the change; `None` if the quota counts none of it.
    fn charged(&self, quota: &Value, more: &Amounts) -> Result<Option<Amounts>, String> {
        let hard = Amounts::of(quota.at("status").at("hard"));
        let used = Amounts::of(quota.at("status").at("used"));
        let requested = more.only(|name| hard.0.contains_key(name));
        if requested.0.is_empty() {
            return Ok(None);
        }
        let mut after = used.clone();
        after.add(&requested);
        let exceeds = |name: &str| {
            let (Some(after), Some(hard)) = (after.0.get(name), hard.0.get(name)) else { return false };
            requested.0.contains_key(name) && after > hard && !after.same_amount(hard)
        };
        let beyond = requested.only(exceeds);
        if !self.status && !beyond.0.is_empty() {
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota.at("metadata").text("name"),
                shown(&beyond),
                shown(&used.only(exceeds)),
                shown(&hard.only(exceeds)),
            ));
        }
        Ok(Some(after))
    }
}

/// The increase of usage.
fn more_than(taken: &Amounts, before: Option<&Amounts>) -> Amounts {
    let mut more = Amounts::default();
    for (name, amount) in &taken.0 {
        let amount = match before.and_then(|before| before.0.get(name)) {
            Some(before) => amount.minus(before),
            None => amount.clone(),
        };
        if !amount.is_zero() && !amount.is_negative() {
            more.0.insert(name.clone(), amount);
        }
    }
    more
}

fn shown(amounts: &Amounts) -> String {
    let parts: Vec<String> = amounts.0.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}
