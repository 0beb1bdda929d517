//! Time until a node is disturbed: the nearest of host maintenance, scheduled tasks, MaintenanceWindows, expiry and
//! replacement. Without a known event, the time is assumed and marked as such.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use millpond_api::condition::{Conditions, FALSE, READY, TRUE};
use millpond_api::duration::NillableDuration;
use millpond_api::maintenance_window::MaintenanceWindowStatus;
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_api::{condition, labels};
use millpond_plan::disruption::{ScheduleError, Window};
use millpond_plan::gpu::Undisturbed;
use millpond_plan::model::Schedule;
use millpond_vsphere::inventory::ScheduledTask;
use millpond_vsphere::{Inventory, Reference};

use crate::kinds::{MaintenanceWindow, NodeClaim};

/// The pool of a node: that of Karpenter's kinds, or a MachineDeployment of Cluster API.
pub(crate) const POOL_LABELS: [&str; 2] = [labels::NODE_POOL, "cluster.x-k8s.io/deployment-name"];

/// The next disturbance of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of event: the `source` of a status.
    pub source: &'static str,
    /// When it begins; an event without a time has begun.
    pub at: Option<i64>,
    /// The event in words.
    pub message: String,
}

impl Event {
    fn now(source: &'static str, message: String) -> Self {
        Self { source, at: None, message }
    }

    /// How long until it begins.
    pub(crate) fn undisturbed(&self, now: i64) -> Undisturbed {
        match self.at {
            None => Undisturbed::Now,
            Some(at) => Undisturbed::Known(u64::try_from(at - now).unwrap_or_default()),
        }
    }
}

/// Valid windows, and the claims of nodes.
pub(crate) struct Calendar<'f> {
    windows: Vec<(&'f MaintenanceWindow, Span)>,
    claims: HashMap<&'f str, &'f NodeClaim>,
    now: i64,
}

enum Span {
    Recurring(Window),
    Once { start: i64, end: i64 },
}

/// A node with what is known of its host.
pub(crate) struct Subject<'n> {
    pub(crate) node: &'n Node,
    pub(crate) labels: &'n BTreeMap<String, String>,
    pub(crate) host_name: &'n str,
    /// The machine, where vCenter is read.
    pub(crate) vm: Option<(&'n Inventory, &'n Reference)>,
}

impl<'f> Calendar<'f> {
    /// An invalid window disturbs nothing; its status reports the error.
    pub(crate) fn new(windows: &'f [Arc<MaintenanceWindow>], claims: &'f [Arc<NodeClaim>], now: i64) -> Self {
        let read = |window: &'f Arc<MaintenanceWindow>| Some((&**window, span(window).ok()?));
        let windows = windows.iter().filter(|window| !window.spec.suspend).filter_map(read).collect();
        let of_node = |claim: &'f Arc<NodeClaim>| Some((claim.status.as_ref()?.node_name.as_str(), &**claim));
        Self { windows, claims: claims.iter().filter_map(of_node).collect(), now }
    }

    /// The nearest event; `None` if none is known.
    pub(crate) fn next(&self, subject: &Subject<'_>) -> Option<Event> {
        let of_host = subject.vm.and_then(|(inventory, vm)| self.of_host(inventory, vm));
        let windows = self.windows.iter().filter_map(|(window, span)| self.of_window(window, span, subject));
        let claim = self.claims.get(subject.node.metadata.name.as_deref().unwrap_or_default());
        let all = of_host.into_iter().chain(windows).chain(claim.and_then(|claim| self.of_claim(claim)));
        all.min_by_key(|event| event.at)
    }

    /// The same for a host on which no node is looked at: its mode and its windows.
    pub(crate) fn next_of_host(&self, inventory: &Inventory, host: &Reference) -> Option<Event> {
        let found = inventory.hosts.get(host)?;
        let name = &found.name;
        let concerns = |task: &&ScheduledTask| {
            let due = task.next_run.is_some_and(|at| at.as_second() > self.now);
            due && task.disturbs() && (task.entity == *host || found.parent.as_ref() == Some(&task.entity))
        };
        let tasks = inventory.tasks.iter().filter(concerns).filter_map(of_task);
        let named = |window: &MaintenanceWindow| window.spec.hosts.contains(name);
        let windows = self.windows.iter().filter(|(window, _)| named(window));
        let windows = windows.filter_map(|(window, span)| self.of_span(window, span));
        self.of_mode(inventory, host).into_iter().chain(windows).chain(tasks).min_by_key(|event| event.at)
    }

    fn of_host(&self, inventory: &Inventory, vm: &Reference) -> Option<Event> {
        let host = inventory.vms.get(vm)?.host.as_ref()?;
        if let Some(event) = self.of_mode(inventory, host) {
            return Some(event);
        }
        of_task(inventory.next_disturbing_task(vm, Timestamp::from_second(self.now).ok()?)?)
    }

    fn of_mode(&self, inventory: &Inventory, host: &Reference) -> Option<Event> {
        let host = inventory.hosts.get(host)?;
        if host.in_maintenance {
            return Some(Event::now("HostMaintenance", format!("host {} is in maintenance mode", host.name)));
        }
        if host.in_quarantine {
            return Some(Event::now("HostQuarantine", format!("host {} is in quarantine", host.name)));
        }
        None
    }

    fn of_window(&self, window: &MaintenanceWindow, span: &Span, subject: &Subject<'_>) -> Option<Event> {
        if concerns(window, subject) { self.of_span(window, span) } else { None }
    }

    fn of_span(&self, window: &MaintenanceWindow, span: &Span) -> Option<Event> {
        let name = window.name_any();
        let message = |verb: &str| format!("MaintenanceWindow {name} {verb}");
        let (holds, next) = match span {
            Span::Recurring(recurring) => {
                let holds = recurring.holds(self.now);
                (holds, if holds { None } else { recurring.next_change(self.now) })
            }
            Span::Once { start, end } => {
                ((*start..*end).contains(&self.now), Some(*start).filter(|start| *start > self.now))
            }
        };
        if holds {
            return Some(Event::now("MaintenanceWindow", message("is open")));
        }
        next.map(|at| Event { source: "MaintenanceWindow", at: Some(at), message: message("begins") })
    }

    fn of_claim(&self, claim: &NodeClaim) -> Option<Event> {
        let name = claim.name_any();
        if claim.metadata.deletion_timestamp.is_some() {
            return Some(Event::now("NodeReplacement", format!("NodeClaim {name} is being removed")));
        }
        let drifted = claim.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, "Drifted"));
        if drifted {
            let message = format!("NodeClaim {name} has drifted and will be replaced");
            return Some(Event { source: "NodeReplacement", at: Some(self.now), message });
        }
        let Some(NillableDuration::Seconds(seconds)) = claim.spec.expire_after else { return None };
        let created = claim.metadata.creation_timestamp.as_ref()?.0.as_second();
        Some(Event {
            source: "NodeExpiry",
            at: Some(created.saturating_add(seconds).max(self.now)),
            message: format!("NodeClaim {name} expires"),
        })
    }
}

fn of_task(task: &ScheduledTask) -> Option<Event> {
    let message = format!("vCenter will run the scheduled task `{}` ({})", task.name, task.method);
    Some(Event { source: "ScheduledTask", at: Some(task.next_run?.as_second()), message })
}

fn concerns(window: &MaintenanceWindow, subject: &Subject<'_>) -> bool {
    let spec = &window.spec;
    let name = subject.node.metadata.name.as_deref().unwrap_or_default();
    let has = |list: &[String], value: &str| !value.is_empty() && list.iter().any(|one| one == value);
    let of_pool = |label: &&str| subject.labels.get(*label).is_some_and(|pool| has(&spec.node_pools, pool));
    let selected = || spec.node_selector.iter().all(|(key, value)| subject.labels.get(key) == Some(value));
    has(&spec.hosts, subject.host_name)
        || has(&spec.nodes, name)
        || POOL_LABELS.iter().any(of_pool)
        || (!spec.node_selector.is_empty() && selected())
}

/// The error of a window: the reason in one word, and the message.
type Mistake = (&'static str, String);

fn span(window: &MaintenanceWindow) -> Result<Span, Mistake> {
    let spec = &window.spec;
    let duration = millpond_api::duration::parse_seconds(&spec.duration)
        .map_err(|error| ("InvalidDuration", format!("spec.duration: {error}")))?;
    match (&spec.schedule, spec.start) {
        (Some(cron), None) => {
            let schedule = Schedule { cron: cron.clone(), time_zone: spec.time_zone.clone(), duration };
            Window::new(&schedule).map(Span::Recurring).map_err(mistake)
        }
        (None, Some(Time(start))) => Ok(Span::Once { start, end: start.saturating_add(duration) }),
        _ => Err(("InvalidSchedule", "spec: give either 'schedule' or 'start'".to_owned())),
    }
}

fn mistake(error: ScheduleError) -> Mistake {
    let (reason, field) = match error {
        ScheduleError::Cron(_) => ("InvalidSchedule", "schedule"),
        ScheduleError::Zone(_) => ("InvalidTimeZone", "timeZone"),
        ScheduleError::Duration(_) => ("InvalidDuration", "duration"),
    };
    (reason, format!("spec.{field}: {error}"))
}

/// The status of a window: whether its schedule is valid.
pub(crate) fn window_status(window: &MaintenanceWindow, now: i64) -> MaintenanceWindowStatus {
    let mut status = window.status.clone().unwrap_or_default();
    let generation = window.metadata.generation.unwrap_or_default();
    Conditions::new(&mut status.conditions, &[], generation, Time(now)).set(match span(window) {
        Err((reason, message)) => Condition::fails(READY, reason, message),
        Ok(_) if window.spec.suspend => Condition::new(READY, FALSE, "Suspended", "it does not happen for now"),
        Ok(_) => Condition::new(READY, TRUE, "Scheduled", "the nodes that it names are known to be disturbed then"),
    });
    status.observed_generation = generation;
    status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_794_803_400; // 2026-11-16T04:30:00Z, a Monday

    fn next(windows: &[Value], claims: &[Value]) -> Option<(String, Option<i64>)> {
        let window =
            |spec: &Value| Arc::new(serde_json::from_value(json!({"metadata": {"name": "w"}, "spec": spec})).unwrap());
        let windows: Vec<Arc<MaintenanceWindow>> = windows.iter().map(window).collect();
        let claims: Vec<Arc<NodeClaim>> =
            claims.iter().map(|claim| Arc::new(serde_json::from_value(claim.clone()).unwrap())).collect();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        let labels = [(labels::NODE_POOL, "gpu"), ("cluster.x-k8s.io/deployment-name", "md-gpu")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let calendar = Calendar::new(&windows, &claims, NOW);
        let subject = Subject { node: &node, labels: &labels, host_name: "esxi-1", vm: None };
        calendar.next(&subject).map(|event| (event.source.to_owned(), event.at.map(|at| at - NOW)))
    }

    #[test]
    fn the_nearest_event_counts() {
        let of = |source: &str, at: Option<i64>| Some((source.to_owned(), at));
        assert_eq!(next(&[], &[]), None);
        let tuesday = json!({"schedule": "0 2 * * 2", "duration": "4h", "hosts": ["esxi-1"]});
        assert_eq!(next(std::slice::from_ref(&tuesday), &[]), of("MaintenanceWindow", Some(77_400)));
        let open = json!({"schedule": "0 2 * * 1", "duration": "4h", "nodePools": ["gpu"]});
        assert_eq!(next(&[tuesday.clone(), open.clone()], &[]), of("MaintenanceWindow", None));
        let of_cluster_api = json!({"schedule": "0 2 * * 1", "duration": "4h", "nodePools": ["md-gpu"]});
        assert_eq!(next(&[tuesday.clone(), of_cluster_api], &[]), of("MaintenanceWindow", None));
        let mut suspended = open;
        suspended["suspend"] = json!(true);
        assert_eq!(next(&[suspended], &[]), None);
        let other = json!({"schedule": "0 2 * * 1", "duration": "4h", "nodes": ["b"]});
        assert_eq!(next(&[other], &[]), None);
        let once =
            json!({"start": "2026-11-16T05:30:00Z", "duration": "1h", "nodeSelector": {labels::NODE_POOL: "gpu"}});
        assert_eq!(next(&[once], &[]), of("MaintenanceWindow", Some(3600)));
        let past = json!({"start": "2026-11-16T02:30:00Z", "duration": "1h", "nodes": ["a"]});
        assert_eq!(next(&[past], &[]), None);
        let claim = |expire: &str, conditions: Value| {
            json!({
                "metadata": {"name": "c", "creationTimestamp": "2026-11-16T04:00:00Z"},
                "spec": {"expireAfter": expire, "nodeClassRef": {"group": "", "kind": "", "name": ""}},
                "status": {"nodeName": "a", "conditions": conditions},
            })
        };
        assert_eq!(next(&[tuesday], &[claim("2h", json!([]))]), of("NodeExpiry", Some(5400)));
        assert_eq!(next(&[], &[claim("Never", json!([]))]), None);
        let drifted = json!([{"type": "Drifted", "status": "True"}]);
        assert_eq!(next(&[], &[claim("2h", drifted)]), of("NodeReplacement", Some(0)));
    }
    #[test]
    fn a_window_says_what_is_wrong_with_it() {
        let check = |spec: Value, expected: (&str, &str, &str)| {
            let window: MaintenanceWindow =
                serde_json::from_value(json!({"metadata": {"name": "w", "generation": 3}, "spec": spec})).unwrap();
            let status = window_status(&window, NOW);
            let ready = condition::find(&status.conditions, READY).expect("a condition");
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), (expected.0, expected.1));
            assert!(ready.message.contains(expected.2), "{}", ready.message);
            assert_eq!((status.observed_generation, ready.observed_generation), (3, Some(3)));
            // The same window again is no reason to write.
            let told = MaintenanceWindow { status: Some(status.clone()), ..window };
            assert_eq!(window_status(&told, NOW + 60), status);
        };
        let weekly = |schedule: &str| json!({"schedule": schedule, "duration": "4h", "nodes": ["a"]});
        check(weekly("0 2 * * 2"), ("True", "Scheduled", "disturbed"));
        check(weekly("0 25 * * 2"), ("False", "InvalidSchedule", "spec.schedule: "));
        check(weekly("0 25 * * 2"), ("False", "InvalidSchedule", "column 3 of `0 25 * * 2`"));
        check(weekly("every tuesday"), ("False", "InvalidSchedule", "spec.schedule: "));
        let mut elsewhere = weekly("0 2 * * 2");
        elsewhere["timeZone"] = json!("Europe/Berlinn");
        check(elsewhere, ("False", "InvalidTimeZone", "`Europe/Berlinn` is not a time zone"));
        let mut suspended = weekly("0 2 * * 2");
        suspended["suspend"] = json!(true);
        check(suspended, ("False", "Suspended", "for now"));
        check(
            json!({"start": "2026-11-16T05:30:00Z", "duration": "soon"}),
            ("False", "InvalidDuration", "spec.duration"),
        );
    }
}
