//! Node pools of Cluster API as text: the list's table and the page of one pool.

use std::fmt::Write as _;

use millpond_api::amounts;
use millpond_api::capi::{IntOrPercent, Strategy, names};
use millpond_controllers::capi::pools::{Current, PoolView, name_of};
use serde_json::{Value, json};

use crate::commands::format::{plural, span};
use crate::commands::list_output::{Grid, List};
use crate::commands::table::Side::{Left, Right};
use crate::commands::table::Table;

/// The pools of a cluster.
pub(super) struct Pools<'c> {
    pub(super) cluster: &'c str,
    pub(super) all: Vec<PoolView>,
    pub(super) now: i64,
}

impl List for Pools<'_> {
    fn grid(&self, wide: bool) -> Grid {
        let mut columns = vec![
            ("NAME", Left),
            ("NAMESPACE", Left),
            ("PHASE", Left),
            ("REPLICAS", Right),
            ("READY", Right),
            ("UPDATED", Right),
            ("UNAVAILABLE", Right),
        ];
        if wide {
            columns.extend([
                ("DESIRED", Right),
                ("MIN", Right),
                ("MAX", Right),
                ("VERSION", Left),
                ("A NODE OFFERS", Left),
                ("AGE", Right),
            ]);
        }
        let rows = self.all.iter().map(|pool| self.cells(pool, wide)).collect();
        let machines: i64 = self.all.iter().filter_map(|pool| pool.status.replicas).sum();
        let footer = format!(
            "{} of cluster {}, {}",
            plural(self.all.len(), "pool"),
            self.cluster,
            plural(usize::try_from(machines).unwrap_or(0), "machine")
        );
        Grid { columns, rows, age: "AGE", state: "PHASE", footer }
    }

    fn view(&self) -> Value {
        json!({"cluster": self.cluster, "items": self.all.iter().map(PoolView::value).collect::<Vec<_>>()})
    }

    fn names(&self) -> Vec<String> {
        let name = |pool: &PoolView| match &pool.deployment {
            Some(name) => format!("machinedeployment.cluster.x-k8s.io/{name}"),
            None => format!("pool/{}", pool.name),
        };
        self.all.iter().map(name).collect()
    }
}

impl Pools<'_> {
    fn cells(&self, pool: &PoolView, wide: bool) -> Vec<String> {
        let status = &pool.status;
        let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let phase = if pool.deleting { "Deleting" } else { status.phase.name() };
        let mut cells = vec![
            pool.name.clone(),
            pool.namespace.clone(),
            phase.to_owned(),
            status.replicas.unwrap_or(0).to_string(),
            status.ready.to_string(),
            status.updated.to_string(),
            status.unavailable.to_string(),
        ];
        if wide {
            let created = pool.created.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
            cells.extend([
                number(pool.desired),
                number(pool.bounds.map(|(min, _)| min)),
                number(pool.bounds.map(|(_, max)| max)),
                pool.version.clone().unwrap_or_else(|| "-".to_owned()),
                pool.offers(),
                created.map_or_else(|| "?".to_owned(), |then| span(self.now - then.as_second())),
            ]);
        }
        cells
    }
}

/// All about one pool.
pub(super) fn page(current: &Current, pool: &PoolView, wide: bool) -> String {
    let (mut text, status) = (String::new(), &pool.status);
    let phase = if pool.deleting { "Deleting" } else { status.phase.name() };
    _ = writeln!(text, "pool/{} of cluster {}/{}: {phase}", pool.name, current.namespace, current.cluster);
    _ = writeln!(
        text,
        "  machines: {} wanted, {} there, {} ready, {} up to date, {} unavailable",
        pool.desired.map_or_else(|| "?".to_owned(), |it| it.to_string()),
        status.replicas.unwrap_or(0),
        status.ready,
        status.updated,
        status.unavailable
    );
    if let Some((min, max)) = pool.bounds {
        _ = writeln!(text, "  autoscaled between {min} and {max}");
    }
    if pool.paused {
        _ = writeln!(text, "  paused: nothing happens to it");
    }
    let of = pool
        .deployment
        .as_deref()
        .map_or_else(|| "not made yet".to_owned(), |name| format!("MachineDeployment/{name}"));
    let version = pool.version.as_deref().map_or_else(String::new, |version| format!(", Kubernetes {version}"));
    _ = writeln!(text, "  {of}, by {}{version}", current.path.name());
    if let Some(template) = &pool.template {
        _ = writeln!(text, "  machines are made from {template}, replaced {}", strategy(pool.strategy));
    }
    if wide {
        offer(&mut text, pool);
    }
    machines(&mut text, current, pool);
    for condition in status.conditions.iter().filter(|condition| !condition.is_true() && !condition.message.is_empty())
    {
        _ = writeln!(text, "\n{}={} ({}): {}", condition.kind, condition.status, condition.reason, condition.message);
    }
    for warning in &pool.warnings {
        _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

fn offer(text: &mut String, pool: &PoolView) {
    _ = writeln!(text, "\nA node of this pool offers to the scheduler:");
    let offer = &pool.offer;
    for (resource, amount) in offer.capacity.iter() {
        _ = writeln!(text, "  {resource}: {}", amounts::write(resource, amount));
    }
    if !offer.is_sized() {
        let known = offer.machine_type.as_deref().map_or_else(String::new, |it| format!(" beyond its type, {it}"));
        _ = writeln!(text, "  (its size is not known{known})");
    }
    for (key, value) in &offer.labels {
        _ = writeln!(text, "  label {key}={value}");
    }
    for taint in &offer.taints {
        _ = writeln!(text, "  taint {}={}:{:?}", taint.key, taint.value, taint.effect);
    }
}

fn machines(text: &mut String, current: &Current, pool: &PoolView) {
    let of_pool = |machine: &&Value| {
        let of = machine["metadata"]["labels"][names::DEPLOYMENT_NAME].as_str();
        of.is_some() && of == pool.deployment.as_deref()
    };
    let mut table = Table::new(&[("MACHINE", Left), ("PHASE", Left), ("NODE", Left)]);
    let mut count = 0;
    for machine in current.machines.iter().filter(of_pool) {
        let or_dash = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let status = &machine["status"];
        table.row(vec![name_of(machine).to_owned(), or_dash(&status["phase"]), or_dash(&status["nodeRef"]["name"])]);
        count += 1;
    }
    if count > 0 {
        _ = writeln!(text, "\n{}:", plural(count, "machine"));
        table.add_to(text);
    }
}

fn strategy(strategy: Strategy) -> String {
    let amount = |it: IntOrPercent| match it {
        IntOrPercent::Count(count) => count.to_string(),
        IntOrPercent::Percent(percent) => format!("{percent}%"),
    };
    match strategy {
        Strategy::OnDelete => "when they are deleted".to_owned(),
        Strategy::RollingUpdate { max_surge, max_unavailable } => {
            format!("in turn (maxSurge {}, maxUnavailable {})", amount(max_surge), amount(max_unavailable))
        }
    }
}
