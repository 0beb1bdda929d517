//! Decisions for people.

use std::fmt::Write as _;

use millpond_runtime::history::{Action, Decision, Nanos, Outcome};

use crate::commands::format::{grouped, span};
use crate::commands::node_totals::moment;
use crate::commands::table::Side::{Left, Right};
use crate::commands::table::Table;

/// Names of pods that a page shows of one action.
const MAX_PODS: usize = 10;

/// One line for each decision.
pub(super) fn table(decisions: &[&Decision], now: i64) -> String {
    if decisions.is_empty() {
        return "No decision is kept here yet.\n".to_owned();
    }
    let columns = [
        ("ID", Left),
        ("AGE", Right),
        ("KIND", Left),
        ("NODES", Right),
        ("PODS", Right),
        ("$/HOUR", Right),
        ("WHAT", Left),
    ];
    let mut table = Table::new(&columns);
    for decision in decisions {
        table.row(vec![
            decision.id(),
            span(now - decision.at),
            decision.kind.name().to_owned(),
            (decision.actions.len() + decision.more_actions).to_string(),
            decision.pods_in_all().to_string(),
            decision.delta_nanos().map_or_else(|| "?".to_owned(), signed),
            told(decision),
        ]);
    }
    table.text() + "\n"
}

/// One line as it happens.
pub(super) fn line(decision: &Decision) -> String {
    format!("{} {}   {}   {}\n", time(decision.at), decision.id(), decision.kind.name(), told(decision))
}

fn told(decision: &Decision) -> String {
    let failed = decision.actions.iter().find_map(|action| action.outcome.failed.as_deref());
    failed.map_or_else(|| decision.sentence.clone(), |why| format!("{} (failed: {why})", decision.sentence))
}

/// Everything about one decision.
pub(super) fn page(decision: &Decision, has_snapshot: bool) -> String {
    let mut text = head(decision);
    for action in &decision.actions {
        of_action(&mut text, action);
    }
    if decision.more_actions > 0 {
        _ = writeln!(text, "  and {} more", decision.more_actions);
    }
    if decision.actions.is_empty() {
        pods(&mut text, &decision.pods, decision.more_pods);
    }
    for unplaced in &decision.unplaced {
        _ = writeln!(text, "  without a place: {} pods: {}", unplaced.pods, unplaced.sentence);
    }
    if let (Some(before), Some(after)) = (decision.cost_before_nanos, decision.cost_after_nanos) {
        let bound = decision.bound_nanos.filter(|bound| *bound > 0);
        let bound = bound.map_or_else(String::new, |bound| format!("; no plan could be below {}", dollars(bound)));
        _ = writeln!(text, "\n{} an hour before, {} after{bound}", dollars(before), dollars(after));
    }
    if !decision.revision.is_empty() {
        _ = writeln!(text, "made from snapshot {}", decision.revision);
    }
    if has_snapshot {
        let id = decision.id();
        _ = writeln!(text, "the same plan again: millpond history {id} --save {id}.json && millpond plan -f {id}.json");
    }
    text
}

/// All that happened to one object, the oldest decision first.
pub(super) fn life(decisions: &[&Decision]) -> String {
    if decisions.is_empty() {
        return "No decision that is kept is about it.\n".to_owned();
    }
    let page = |decision: &&Decision| {
        let mut text = head(decision);
        decision.actions.iter().for_each(|action| of_action(&mut text, action));
        text
    };
    decisions.iter().map(page).collect::<Vec<_>>().join("\n")
}

fn head(decision: &Decision) -> String {
    let refused = if decision.refused { ", refused" } else { "" };
    format!(
        "{}   {}   {}{refused}, by {}\n{}\n",
        decision.id(),
        time(decision.at),
        decision.kind.name(),
        decision.by,
        decision.sentence
    )
}

fn of_action(text: &mut String, action: &Action) {
    let node = action.node.as_deref().filter(|node| *node != action.object.name);
    let node = node.map_or_else(String::new, |node| format!(" (node {node})"));
    let facts = [&action.instance_type, &action.zone, &action.capacity_type].into_iter().flatten();
    let facts: String = facts.map(|fact| format!(" {fact}")).collect();
    let price = action.price_nanos.map_or_else(String::new, |price| format!(" {}/h", dollars(price)));
    let kind = action.object.kind.to_lowercase();
    _ = writeln!(text, "  {} {kind}/{}{node}{facts}{price}: {}", action.verb, action.object.name, action.reason);
    let steps = steps(&action.outcome);
    if !steps.is_empty() {
        _ = writeln!(text, "    {}", steps.join(", "));
    }
    if let Some(why) = &action.outcome.failed {
        _ = writeln!(text, "    failed: {why}");
    }
    pods(text, &action.pods, action.more_pods);
}

fn pods(text: &mut String, names: &[String], more: usize) {
    if names.is_empty() {
        return;
    }
    let shown = names.len().min(MAX_PODS);
    let more = more + names.len() - shown;
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    _ = writeln!(text, "    pods {}{rest}", names[..shown].join(", "));
}

/// The first step with its time, the others with their distance from it.
fn steps(outcome: &Outcome) -> Vec<String> {
    let all = [
        ("created", outcome.created),
        ("launched", outcome.launched),
        ("registered", outcome.registered),
        ("ready", outcome.ready),
        ("leaving", outcome.leaving),
        ("drained", outcome.drained),
        ("gone", outcome.gone),
    ];
    let mut first = None;
    let step = |(word, at): (&str, Option<i64>)| {
        let at = at?;
        Some(match first {
            None => {
                first = Some(at);
                format!("{word} {}", time(at))
            }
            Some(begin) => format!("{word} after {}", span(at - begin)),
        })
    };
    all.into_iter().filter_map(step).collect()
}

fn time(seconds: i64) -> String {
    moment(seconds).unwrap_or_else(|| "?".to_owned())
}

fn dollars(nanos: Nanos) -> String {
    let sign = if nanos < 0 { "−" } else { "" };
    format!("{sign}${}", grouped(nanos as f64 / 1e9, 4))
}

fn signed(nanos: Nanos) -> String {
    let sign = match nanos {
        ..0 => "-",
        0 => "",
        1.. => "+",
    };
    format!("{sign}{}", grouped(nanos as f64 / 1e9, 4))
}
