//! `millpond explain machine/X | host/X | pool/X`: own hosts and the machines on them, from a live cluster.

use millpond_api::spelling::nearest;
use millpond_hosts::report::{self, FixReport, HostReport, MachineReport, PoolReport, Verdict};
use millpond_hosts::world::World;

use super::Output;
use crate::commands::format::plural;
use crate::commands::host::session::{find, missing};
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, as_yaml};

/// Explains a machine.
pub(super) fn machine(world: &World, namespace: &str, name: &str, output: Output) -> anyhow::Result<String> {
    let found = world.machine(namespace, name).ok_or_else(|| {
        let hint = nearest(name, world.machines.iter().map(millpond_hosts::kinds::ByoMachine::name));
        let hint = hint.map_or_else(
            || "`kubectl get byomachines` lists all".to_owned(),
            |near| format!("did you mean `machine/{near}`?"),
        );
        missing(&format!("there is no machine `{name}`"), hint)
    })?;
    let report = report::machine(world, found);
    match output {
        Output::Table => Ok(machine_page(&report)),
        Output::Json => as_json(&report),
        Output::Yaml => as_yaml(&report),
    }
}

/// Explains a host.
pub(super) fn host(world: &World, namespace: &str, name: &str, output: Output) -> anyhow::Result<String> {
    let report = report::host(world, find(world, namespace, name)?);
    match output {
        Output::Table => Ok(host_page(&report)),
        Output::Json => as_json(&report),
        Output::Yaml => as_yaml(&report),
    }
}

/// Explains a pool.
pub(super) fn pool(world: &World, namespace: &str, name: &str, output: Output) -> anyhow::Result<String> {
    let pools = world.pools(namespace);
    let found = pools.iter().find(|(deployment, _)| deployment.name() == name);
    let (deployment, template) = found.ok_or_else(|| {
        let other = world.deployments.iter().any(|one| one.namespace() == namespace && one.name() == name);
        let near = nearest(name, pools.iter().map(|(deployment, _)| deployment.name()));
        let hint = match near {
            _ if other => "its machines are not own hosts; `millpond pool get CLUSTER NAME` shows it".to_owned(),
            Some(near) => format!("did you mean `pool/{near}`?"),
            None => "`kubectl get machinedeployments` lists all".to_owned(),
        };
        missing(&format!("there is no pool of own hosts `{name}`"), hint)
    })?;
    let report = report::pool(world, deployment, *template);
    match output {
        Output::Table => Ok(pool_page(&report)),
        Output::Json => as_json(&report),
        Output::Yaml => as_yaml(&report),
    }
}

fn verdicts(page: &mut String, verdicts: &[Verdict]) {
    if verdicts.is_empty() {
        page.push_str("\nNo host is registered in the namespace.\n");
        return;
    }
    page.push('\n');
    let mut table = Table::new(&[("HOST", Side::Left), ("REASON", Side::Left), ("", Side::Left)]);
    for one in verdicts {
        table.row(vec![one.host.clone(), one.reason.clone(), one.message.clone()]);
    }
    table.add_to(page);
}

fn fix(page: &mut String, fix: Option<&FixReport>) {
    if let Some(fix) = fix {
        page.push_str(&format!(
            "\nLabel {} with {} to give it one host:\n  {}\n",
            fix.host,
            fix.labels.join(" "),
            fix.command
        ));
    }
}

fn machine_page(report: &MachineReport) -> String {
    let MachineReport { machine, pool, selector, .. } = report;
    let of_pool = if pool.is_empty() { String::new() } else { format!(" of pool {pool}") };
    let mut page = match (&report.host, &report.would_get) {
        (Some(host), _) => format!("Machine {machine}{of_pool} has host {host}.\n"),
        (None, Some(host)) => format!("Machine {machine}{of_pool} has no host yet; it gets {host}.\n"),
        (None, None) => format!("Machine {machine}{of_pool} has no host.\n"),
    };
    page.push_str(&format!("  wants   {selector}\n"));
    if let Some(reason) = &report.reason {
        page.push_str(&format!("  reason  {reason}\n"));
    }
    report.notes.iter().for_each(|note| page.push_str(&format!("  note    {note}\n")));
    if let Some(next) = &report.runner_up {
        let by = if next.dearer_by == 0 { "equal".to_owned() } else { format!("worth {} more", next.dearer_by) };
        page.push_str(&format!("  next    {} would be taken next: {by}\n", next.host));
    }
    if !report.also_matched_by.is_empty() {
        page.push_str(&format!(
            "  also    the host matches the selectors of {} too\n",
            report.also_matched_by.join(", ")
        ));
    }
    verdicts(&mut page, &report.hosts);
    fix(&mut page, report.fix.as_ref());
    page
}

/// A host for people.
pub(crate) fn host_page(report: &HostReport) -> String {
    let HostReport { host, state, pool, .. } = report;
    let holder = report.machine.as_ref().map(|machine| format!(", held by machine {machine}")).unwrap_or_default();
    let of_pool = if pool.is_empty() { String::new() } else { format!(" of pool {pool}") };
    let mut page = format!("Host {host} is {state}{holder}{of_pool}.\n");
    if let Some(why) = report.unavailable.as_ref().filter(|_| report.machine.is_none()) {
        page.push_str(&format!("  reason    {why}\n"));
    }
    let capacity: Vec<String> =
        report.capacity.iter().map(|(resource, amount)| format!("{resource} {amount}")).collect();
    if !capacity.is_empty() {
        page.push_str(&format!("  capacity  {}\n", capacity.join(", ")));
    }
    let labels: Vec<String> = report.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !labels.is_empty() {
        page.push_str(&format!("  labels    {}\n", labels.join("\n            ")));
    }
    report.notes.iter().for_each(|note| page.push_str(&format!("  note      {note}\n")));
    if report.pools.is_empty() {
        page.push_str("\nThere is no pool of own hosts in the namespace.\n");
        return page;
    }
    page.push('\n');
    let mut table = Table::new(&[
        ("POOL", Side::Left),
        ("WANTS", Side::Left),
        ("WAITING", Side::Right),
        ("FITS", Side::Left),
        ("", Side::Left),
    ]);
    for served in &report.pools {
        let (fits, why) = match &served.verdict {
            None => ("yes".to_owned(), String::new()),
            Some(verdict) => (verdict.reason.clone(), verdict.message.clone()),
        };
        table.row(vec![served.pool.clone(), served.selector.clone(), served.waiting.to_string(), fits, why]);
    }
    table.add_to(&mut page);
    // Only for a host that can be had, and a pool that waits.
    let helps = report.pools.iter().find(|served| served.waiting > 0 && served.fix.is_some());
    if let Some(helped) = helps.filter(|_| report.unavailable.is_none())
        && let Some(fix) = &helped.fix
    {
        page.push_str(&format!(
            "\nPool {} waits for hosts; this one would serve it with {}:\n  {}\n",
            helped.pool,
            fix.labels.join(" "),
            fix.command
        ));
    }
    page
}

fn pool_page(report: &PoolReport) -> String {
    let PoolReport { pool, replicas, attached, waiting, effective_max, .. } = report;
    let mut page = format!(
        "Pool {pool} asks for {}; {attached} of them {} a host, {waiting} wait.\n",
        plural(usize::try_from(*replicas).unwrap_or(usize::MAX), "machine"),
        if *attached == 1 { "has" } else { "have" },
    );
    page.push_str(&format!("  wants   {}\n", report.selector));
    let bounds = report.bounds.map(|(min, max)| format!(", {min} to {max} by its annotations")).unwrap_or_default();
    page.push_str(&format!("  at most {effective_max} with the hosts that there are{bounds}\n"));
    report.warnings.iter().for_each(|warning| page.push_str(&format!("  warning {warning}\n")));
    page.push_str("\nHosts for one more machine:\n");
    verdicts(&mut page, &report.hosts);
    fix(&mut page, report.fix.as_ref());
    page
}
