//! The cloud as a pure state machine: its state, its answers, and the events that happen as time passes.
//!
//! Nothing in this module reads a clock or a file. A request that changes something returns [`Change`]s; they take
//! effect with [`State::apply`], which the caller calls after it has written them to the journal.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use millpond_api::sim_script::Script;

use super::chance;
use super::market::{Market, Verdict};
use super::millis::Millis;
use super::record::{Change, NodeTemplate, Record};
use super::rules::{Held, Scripts};
use crate::{Choice, Instance, InstanceEvent, InstanceState, LaunchRequest, Launched, OfferingKey, ProviderError};

/// How long the cloud remembers the token of an instance that is gone. Launches are given up after minutes.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The most offerings that a message names.
const NAMED: usize = 3;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) records: BTreeMap<String, Record>,
    tokens: HashMap<String, String>,
    pub(super) scripts: Scripts,
    /// When the next event of each instance is due.
    due: BTreeSet<(Millis, String)>,
    /// Instances whose Node object is to be created or deleted.
    pub(super) node_work: BTreeSet<String>,
    /// The name of the cloud; empty before it has one.
    pub(super) cloud: String,
    /// The highest term that was seen.
    pub(super) term: u64,
    /// Counts what was applied.
    pub(super) version: u64,
}

/// The result of a launch.
#[derive(Debug)]
pub(super) enum Decision {
    /// The token was used before.
    Known(Result<Box<Instance>, ProviderError>),
    /// An instance is made.
    New { record: Box<Record>, unavailable: Vec<OfferingKey> },
    /// None of the choices is available.
    Refused(ProviderError),
}

impl State {
    pub(super) fn apply(&mut self, change: Change) {
        self.version += 1;
        match change {
            Change::Named { cloud } => self.cloud = cloud,
            Change::Term { term } => self.term = self.term.max(term),
            Change::Script { class, script, since } => self.set_script(class, *script, since),
            Change::Made(record) => {
                let id = record.instance.id.clone();
                self.tokens.insert(record.instance.token.clone(), id.clone());
                self.records.insert(id.clone(), *record);
                self.schedule(&id);
            }
            Change::Registered { id } => self.update(&id, |record| record.registered = true),
            Change::NodeRemoved { id } => self.update(&id, |record| record.node_removed = true),
            Change::Ending { id, ends, node_gone } => self.update(&id, |record| {
                record.ends = Some(ends);
                record.node_gone |= node_gone;
            }),
            Change::Forgotten { id } => {
                self.unschedule(&id);
                self.node_work.remove(&id);
                if let Some(record) = self.records.remove(&id) {
                    self.tokens.remove(&record.instance.token);
                }
            }
        }
    }

    /// The smallest list of changes that recreates the state.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        let script = |class: Option<&String>, held: &Held| Change::Script {
            class: class.cloned(),
            script: Box::new(held.script.clone()),
            since: held.since,
        };
        let classes = self.scripts.classes.iter().map(move |(class, held)| script(Some(class), held));
        let made = self.records.values().map(|record| Change::Made(Box::new(record.clone())));
        let identity = [Change::Named { cloud: self.cloud.clone() }, Change::Term { term: self.term }];
        identity.into_iter().chain([script(None, &self.scripts.cloud)]).chain(classes).chain(made)
    }

    fn set_script(&mut self, class: Option<String>, script: Script, since: Millis) {
        let held = Held { script, since };
        match class {
            None => self.scripts.cloud = held,
            Some(class) => _ = self.scripts.classes.insert(class, held),
        }
        // Interruptions may come at other times now.
        self.due.clear();
        let ids: Vec<String> = self.records.keys().cloned().collect();
        ids.iter().for_each(|id| self.schedule(id));
    }

    fn update(&mut self, id: &str, change: impl FnOnce(&mut Record)) {
        self.unschedule(id);
        if let Some(record) = self.records.get_mut(id) {
            change(record);
        }
        self.schedule(id);
    }

    fn unschedule(&mut self, id: &str) {
        let next = self.records.get(id).and_then(|record| self.next(record));
        next.map(|next| self.due.remove(&(next, id.to_owned())));
    }

    fn schedule(&mut self, id: &str) {
        let Some(record) = self.records.get(id) else { return };
        let next = self.next(record);
        let registers = !record.registered && !record.silent && record.ends.is_none();
        if registers || (record.node_gone && !record.node_removed) {
            self.node_work.insert(id.to_owned());
        } else {
            self.node_work.remove(id);
        }
        if let Some(next) = next {
            self.due.insert((next, id.to_owned()));
        }
    }

    /// When the next event of an instance is due.
    fn next(&self, record: &Record) -> Option<Millis> {
        match record.ends {
            Some(ends) if record.end_told => Some(ends.after(MEMORY)),
            Some(ends) => Some(ends),
            None => self.scripts.notice(record).map(|notice| notice.at),
        }
    }

    /// When the next event is due.
    pub(super) fn next_due(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Performs one event that is due: a change to keep, and an event to report.
    pub(super) fn happened(&mut self, now: Millis) -> Option<(Option<Change>, Option<InstanceEvent>)> {
        let (_, id) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        let record = &self.records[&id];
        match record.ends {
            Some(_) if record.end_told => Some((Some(Change::Forgotten { id }), None)),
            Some(_) => {
                // The end itself was written down when it became known.
                self.update(&id, |record| record.end_told = true);
                Some((None, Some(InstanceEvent::Gone { id })))
            }
            None => {
                // A notice that could not be given in time is given now.
                let notice = self.scripts.notice(record)?;
                let ends = now.after(notice.notice);
                let change = Change::Ending { id: id.clone(), ends, node_gone: notice.node_gone };
                Some((Some(change), Some(InstanceEvent::Interrupted { id, at: ends.time() })))
            }
        }
    }

    /// Whether a call of a term may be made, and what it changes. A call without a term is made by a caller that says of
    /// itself that it is alone.
    pub(super) fn admit(&self, term: Option<u64>) -> Result<Option<Change>, ProviderError> {
        match term {
            Some(term) if term < self.term => {
                let message =
                    format!("another controller leads: this call is of term {term}, the last one was of {}", self.term);
                Err(ProviderError::Fenced { seen: Some(self.term), message })
            }
            Some(term) if term > self.term => Ok(Some(Change::Term { term })),
            _ => Ok(None),
        }
    }

    /// Decides a launch; `most` is the stock of an offering, if it is limited.
    pub(super) fn launch(
        &self,
        request: &LaunchRequest,
        most: impl Fn(&OfferingKey) -> Option<u32>,
        now: Millis,
    ) -> Decision {
        if let Some(record) = self.tokens.get(&request.token).and_then(|id| self.records.get(id)) {
            let gone = || not_found(format!("the instance of token `{}` has ended", request.token));
            return Decision::Known(if record.is_gone(now) { Err(gone()) } else { Ok(Box::new(record.told(now))) });
        }
        let class = request.class.metadata.name.as_str();
        let market = Market::new(&self.scripts, class, self.records.values(), now);
        let (mut unavailable, mut out_of_stock, mut over_quota) = (Vec::new(), false, None);
        for choice in &request.choices {
            match market.verdict(choice, most(&choice.offering)) {
                Verdict::Available => {
                    let record = Box::new(self.make(request, choice, now));
                    return Decision::New { record, unavailable };
                }
                Verdict::OutOfStock => out_of_stock = true,
                Verdict::OverQuota(message) => over_quota = over_quota.or(Some(message)),
            }
            unavailable.push(choice.offering.clone());
        }
        Decision::Refused(match over_quota {
            Some(message) if !out_of_stock => ProviderError::Quota { offerings: unavailable, message },
            _ => ProviderError::CapacityUnavailable { message: none_available(&unavailable), offerings: unavailable },
        })
    }

    fn make(&self, request: &LaunchRequest, choice: &Choice, now: Millis) -> Record {
        let class = request.class.metadata.name.as_str();
        let boot = self.scripts.boot(class, &request.token);
        let labels = choice.labels();
        let mut node_labels = request.labels.clone();
        node_labels.extend(labels.clone());
        let instance = Instance {
            id: self.new_id(class, &request.token),
            token: request.token.clone(),
            claim: request.claim.clone(),
            class: class.to_owned(),
            offering: choice.offering.clone(),
            image: self.scripts.image(class).to_owned(),
            capacity: choice.shape.capacity.clone(),
            allocatable: choice.shape.allocatable.clone(),
            labels,
            created: now.time(),
            state: InstanceState::Pending,
        };
        Record {
            instance,
            created: now,
            boots: now.after(boot.delay),
            silent: boot.silent,
            node: NodeTemplate {
                labels: node_labels,
                annotations: request.annotations.clone(),
                taints: request.taints.clone(),
            },
            kubelet: request.class.spec.kubelet.clone(),
            registered: false,
            ends: None,
            node_gone: false,
            node_removed: false,
            end_told: false,
        }
    }

    /// The id follows from the token, so that one launch cannot have two.
    fn new_id(&self, class: &str, token: &str) -> String {
        let ids = (0u64..).map(|attempt| format!("sim://{class}/i-{:016x}", chance::number(attempt, &["id", token])));
        ids.into_iter().find(|id| !self.records.contains_key(id)).expect("there are more ids than instances")
    }

    /// The answer to the wish for an end, and what it changes.
    pub(super) fn end(&self, id: &str, now: Millis) -> Result<Option<Change>, ProviderError> {
        let record = self.records.get(id).filter(|record| !record.is_gone(now)).ok_or_else(|| no_instance(id))?;
        let ends = now.after(self.scripts.shutdown(&record.instance.class));
        if record.ends.is_some_and(|known| known <= ends) {
            return Ok(None);
        }
        Ok(Some(Change::Ending { id: id.to_owned(), ends, node_gone: record.node_gone }))
    }

    /// The instance of that id, as far as it is visible by now.
    pub(super) fn get(&self, id: &str, now: Millis) -> Result<Instance, ProviderError> {
        let seen = |record: &&Record| is_seen(record, self.scripts.get_lag(&record.instance.class), now);
        self.records.get(id).filter(seen).map(|record| record.told(now)).ok_or_else(|| no_instance(id))
    }

    /// All instances that are visible by now.
    pub(super) fn list(&self, now: Millis) -> Vec<Instance> {
        let seen = |record: &&Record| is_seen(record, self.scripts.list_lag(&record.instance.class), now);
        self.records.values().filter(seen).map(|record| record.told(now)).collect()
    }
}

/// Whether a listing that is so late tells of an instance.
fn is_seen(record: &Record, lag: Duration, now: Millis) -> bool {
    record.created.after(lag) <= now && record.ends.is_none_or(|ends| now < ends.after(lag))
}

fn not_found(message: String) -> ProviderError {
    ProviderError::NotFound { message }
}

fn no_instance(id: &str) -> ProviderError {
    not_found(format!("there is no instance `{id}`"))
}

fn none_available(offerings: &[OfferingKey]) -> String {
    let named: Vec<String> = offerings.iter().take(NAMED).map(ToString::to_string).collect();
    match (offerings.len(), named.join(", ")) {
        (0, _) => "nothing was asked for: the launch has no choices".to_owned(),
        (1, name) => format!("{name} is out of stock"),
        (count, names) if count <= NAMED => format!("none of {count} offerings is available: {names}"),
        (count, names) => format!("none of {count} offerings is available: {names} and {} more", count - NAMED),
    }
}

impl Decision {
    /// The answer to give once the instance, if one is made, is written down.
    pub(super) fn answer(self, now: Millis) -> (Option<Change>, Result<Launched, ProviderError>) {
        match self {
            Self::Known(known) => {
                (None, known.map(|instance| Launched { instance: *instance, unavailable: Vec::new() }))
            }
            Self::Refused(error) => (None, Err(error)),
            Self::New { record, unavailable } => {
                let launched = Launched { instance: record.told(now), unavailable };
                (Some(Change::Made(record)), Ok(launched))
            }
        }
    }
}
