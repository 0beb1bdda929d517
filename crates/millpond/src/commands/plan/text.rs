//! A plan as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use millpond_plan::model::{PodId, Snapshot};
use millpond_plan::plan::{Outcome, Policy, Preference, Target};

use crate::commands::format::{grouped, plural};
use crate::commands::table::{Side, Table};
use millpond_view::plan::{dollars, pods_by_target};

/// Hours of a month, as clouds count them.
const HOURS_PER_MONTH: f64 = 730.0;
/// Names of pods that a line shows.
const SHOWN: usize = 3;

/// Options of the page besides the plan.
pub(super) struct TextOptions {
    pub(super) policy: Policy,
    pub(super) seconds: f64,
    /// List every node separately.
    pub(super) wide: bool,
}

pub(super) fn page(snapshot: &Snapshot, outcome: &Outcome, options: &TextOptions) -> String {
    let mut text = String::new();
    headline(&mut text, outcome, options);
    additions(&mut text, snapshot, outcome, options.wide);
    removals(&mut text, snapshot, outcome);
    room(&mut text, snapshot, outcome, options.wide);
    money(&mut text, outcome);
    bound(&mut text, outcome, options.policy);
    relaxed(&mut text, outcome);
    unplaced(&mut text, snapshot, outcome);
    text
}

fn headline(text: &mut String, outcome: &Outcome, options: &TextOptions) {
    let report = &outcome.report;
    let by = match options.policy {
        Policy::Millpond => String::new(),
        other => format!(" by the rules of {}", other.name()),
    };
    let pods = match (report.pods, report.unplaced.len()) {
        (0, _) => "No pod needs a place".to_owned(),
        (pods, 0) => format!("{} {} a place", plural(pods, "pod"), if pods == 1 { "gets" } else { "get" }),
        (1, _) => "The pod gets no place".to_owned(),
        (pods, left) if left == pods => format!("None of {} gets a place", plural(pods, "pod")),
        (pods, left) => {
            let verb = if pods - left == 1 { "gets" } else { "get" };
            format!("{} of {} {verb} a place", pods - left, plural(pods, "pod"))
        }
    };
    _ = writeln!(text, "{pods}{by}. Planned in {}.", time(options.seconds));
}

pub(super) fn time(seconds: f64) -> String {
    if seconds < 0.9995 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

fn additions(text: &mut String, snapshot: &Snapshot, outcome: &Outcome, wide: bool) {
    let plan = &outcome.plan;
    if plan.new_nodes.is_empty() {
        return;
    }
    _ = writeln!(text, "\nAdd {}:", plural(plan.new_nodes.len(), "node"));
    let pods = pods_by_target(snapshot, outcome);
    let mut table = Table::new(&[
        (if wide { "NODE" } else { "NODES" }, if wide { Side::Left } else { Side::Right }),
        ("POOL", Side::Left),
        ("TYPE", Side::Left),
        ("ZONE", Side::Left),
        ("CAPACITY", Side::Left),
        ("$/H EACH", Side::Right),
        ("PODS", Side::Right),
    ]);
    let mut groups: BTreeMap<Vec<String>, (usize, usize)> = BTreeMap::new();
    for (index, node) in plan.new_nodes.iter().enumerate() {
        let kind = &snapshot.types[node.instance_type.index()];
        let offering = &kind.offerings[node.offering as usize];
        let cells = vec![
            snapshot.pools[node.pool.index()].name.clone(),
            snapshot.text(kind.name).to_owned(),
            snapshot.text(offering.zone).to_owned(),
            offering.capacity_type.name().to_owned(),
            format!("{:.4}", dollars(u128::from(node.price))),
        ];
        let on_it = pods.get(&Target::New(index as u32)).map_or(0, Vec::len);
        if wide {
            let name = plan.node_name(snapshot, index);
            table.row([vec![name], cells, vec![on_it.to_string()]].concat());
        } else {
            let group = groups.entry(cells).or_default();
            *group = (group.0 + 1, group.1 + on_it);
        }
    }
    for (cells, (nodes, pods)) in groups {
        table.row([vec![nodes.to_string()], cells, vec![pods.to_string()]].concat());
    }
    table.add_to(text);
}

fn removals(text: &mut String, snapshot: &Snapshot, outcome: &Outcome) {
    let plan = &outcome.plan;
    if plan.removals.is_empty() {
        return;
    }
    let count: usize = plan.removals.iter().map(|removal| removal.nodes.len()).sum();
    _ = writeln!(text, "\nTake away {}:", plural(count, "node"));
    let mut table = Table::new(&[
        ("NODE", Side::Left),
        ("POOL", Side::Left),
        ("TYPE", Side::Left),
        ("$/H", Side::Right),
        ("REASON", Side::Left),
        ("REPLACED BY", Side::Left),
        ("STEP SAVES $/H", Side::Right),
        ("PODS MOVED", Side::Right),
    ]);
    for removal in &plan.removals {
        let by: Vec<String> =
            removal.replacements.iter().map(|&node| plan.node_name(snapshot, node as usize)).collect();
        for (index, &id) in removal.nodes.iter().enumerate() {
            let node = &snapshot.nodes[id.index()];
            let moved = plan.placements.iter().filter(|(pod, _)| snapshot.pods[pod.index()].node == Some(id)).count();
            let first = index == 0;
            table.row(vec![
                node.name.clone(),
                node.pool.map_or_else(String::new, |pool| snapshot.pools[pool.index()].name.clone()),
                node.instance_type.map_or_else(String::new, |name| snapshot.text(name).to_owned()),
                node.price.map_or_else(|| "?".to_owned(), |price| format!("{:.4}", dollars(u128::from(price)))),
                removal.reason.name().to_owned(),
                if by.is_empty() { "-".to_owned() } else { some_of(&by) },
                if first { format!("{:.4}", removal.savings as f64 / 1e9) } else { "″".to_owned() },
                moved.to_string(),
            ]);
        }
    }
    table.add_to(text);
}

fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}, {more} more"),
    }
}

fn room(text: &mut String, snapshot: &Snapshot, outcome: &Outcome, wide: bool) {
    let mut on: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, target) in &outcome.plan.placements {
        if let Target::Existing(node) = target {
            *on.entry(&snapshot.nodes[node.index()].name).or_default() += 1;
        }
    }
    let pods: usize = on.values().sum();
    if pods == 0 {
        return;
    }
    _ = writeln!(text, "\nRoom on {} takes {}.", plural(on.len(), "node"), plural(pods, "pod"));
    if wide {
        let mut table = Table::new(&[("NODE", Side::Left), ("PODS", Side::Right)]);
        on.into_iter().for_each(|(node, pods)| table.row(vec![node.to_owned(), pods.to_string()]));
        table.add_to(text);
    }
}

fn money(text: &mut String, outcome: &Outcome) {
    let report = &outcome.report;
    let (before, after) = (dollars(report.cost_before), dollars(report.cost_after));
    _ = writeln!(text);
    let mut table =
        Table::new(&[("COST", Side::Left), ("BEFORE", Side::Right), ("AFTER", Side::Right), ("CHANGE", Side::Right)]);
    for (name, hours, digits) in [("per hour", 1.0, 4), ("per month", HOURS_PER_MONTH, 2)] {
        let change = (after - before) * hours;
        let sign = if change < -1e-9 { "-" } else { "+" };
        table.row(vec![
            name.to_owned(),
            format!("${}", grouped(before * hours, digits)),
            format!("${}", grouped(after * hours, digits)),
            format!("{sign}${}", grouped(change, digits)),
        ]);
    }
    let nodes = |count: usize| count.to_string();
    let change = report.nodes_after as i64 - report.nodes_before as i64;
    table.row(vec!["nodes".to_owned(), nodes(report.nodes_before), nodes(report.nodes_after), format!("{change:+}")]);
    _ = writeln!(text, "{}", table.text());
    if report.unpriced_nodes > 0 {
        let verb =
            if report.unpriced_nodes == 1 { "has no known price and counts" } else { "have no known price and count" };
        _ = writeln!(text, "{} {verb} as $0.", plural(report.unpriced_nodes, "node"));
    }
}

fn bound(text: &mut String, outcome: &Outcome, policy: Policy) {
    let report = &outcome.report;
    if policy != Policy::Millpond || report.placed() == 0 || report.bound == 0 {
        return;
    }
    let least = grouped(dollars(report.bound), 4);
    let said = match report.gap() {
        gap if gap <= 0.0 => "this plan is the cheapest there is".to_owned(),
        gap => format!("this plan is within {:.2} % of the cheapest", (gap * 100.0).max(0.01)),
    };
    _ = writeln!(text, "No plan for these pods costs less than ${least} per hour: {said}.");
}

fn relaxed(text: &mut String, outcome: &Outcome) {
    for (preference, pods) in &outcome.report.relaxed {
        let wish = match preference {
            Preference::PodAffinity => "preferred pod affinity",
            Preference::PodAntiAffinity => "preferred pod anti-affinity",
            Preference::NodeAffinity => "preferred node affinity",
            Preference::Spread => "soft topology spread",
            Preference::Taint => "a PreferNoSchedule taint",
        };
        _ = writeln!(text, "Not kept, as it would cost more: {wish} of {}.", plural(*pods, "pod"));
    }
}

fn unplaced(text: &mut String, snapshot: &Snapshot, outcome: &Outcome) {
    let report = &outcome.report;
    if report.unplaced.is_empty() {
        return;
    }
    let verb = if report.unplaced.len() == 1 { "has" } else { "have" };
    _ = writeln!(text, "\n{} {verb} no place:", plural(report.unplaced.len(), "pod"));
    let mut by_message: BTreeMap<(&str, &str), Vec<PodId>> = BTreeMap::new();
    for &(pod, verdict) in &report.unplaced {
        let verdict = &report.verdicts[verdict as usize];
        by_message.entry((verdict.rule.name(), &verdict.message)).or_default().push(pod);
    }
    for ((rule, message), pods) in &by_message {
        let names: Vec<String> = pods.iter().map(|pod| snapshot.pod_name(*pod)).collect();
        _ = writeln!(text, "  {rule}: {message}\n    {}", some_of(&names));
    }
    let first = snapshot.pod_name(report.unplaced[0].0);
    _ = writeln!(text, "\nWhy, and what would help: millpond explain pod/{first}");
}
