//! `millpond host release`.

use std::io::Write;

use clap::Args;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use millpond_controllers::kinds::NodeClaim;
use millpond_hosts::kinds::{ByoHost, Machine};
use millpond_hosts::release::{NODE_CLAIM, release_patch};
use millpond_hosts::state::{is_reset_failed, phase_of_claim};
use millpond_hosts::world::World;
use serde_json::json;

use super::session::{PlaceArgs, Session, find};
use crate::commands::print;
use crate::failure::{Code, Failure};

/// Arguments of `millpond host release`.
#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// Name of the host
    #[arg(value_name = "NAME")]
    name: String,
    /// Take the host from its machine at once, without draining its Node
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Runs the command.
pub(super) fn run(args: &ReleaseArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let session = Session::open(&args.place)?;
    let world = session.world(Some(&args.place.namespace))?;
    let host = find(&world, &args.place.namespace, &args.name)?;
    let mut told = Vec::new();
    if let Some(quarantine) = &host.spec.quarantine {
        lift(&session, host)?;
        told.push(format!("quarantine lifted: {}", quarantine.reason));
    }
    if let Some(claim) = &host.spec.claim {
        if args.force {
            // Read again after the quarantine was lifted.
            let world = session.world(Some(&args.place.namespace))?;
            let now = find(&world, &args.place.namespace, &args.name)?;
            session.patch(now, &release_patch(now))?;
            told.push(format!("taken from machine {}; its agent resets it", claim.name));
        } else if is_of_node_claim(host) {
            delete_node_claim(&session, &claim.name)?;
            told.push(format!("NodeClaim {} is drained and deleted; then its agent resets the host", claim.name));
        } else if let Some(machine) = machine(&world, &claim.name, host.namespace()) {
            delete(&session, machine)?;
            told.push(format!("Machine {} is drained and deleted; then its agent resets the host", machine.name()));
        } else {
            let message = format!("host `{}` is held by {}, which no Machine owns", args.name, claim.name);
            let hint = Some("`--force` takes it away at once".to_owned());
            return Err(Failure { message, code: Some(Code::Conflict), hint }.into());
        }
    } else if host.status.machine_ref.is_some() {
        told.push(format!("is being reset ({})", phase_of(host)));
    }
    if told.is_empty() {
        told.push("is free already".to_owned());
    }
    print(out, &format!("byohost/{} {}\n", args.name, told.join("; ")))
}

/// Whether a NodeClaim holds the host, instead of a machine of Cluster API.
fn is_of_node_claim(host: &ByoHost) -> bool {
    host.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(NODE_CLAIM))
}

fn delete_node_claim(session: &Session, name: &str) -> anyhow::Result<()> {
    let resource = ApiResource::erase::<NodeClaim>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &resource);
    session.run(&format!("delete NodeClaim `{name}`"), api.delete(name, &DeleteParams::default())).map(drop)
}

fn phase_of(host: &ByoHost) -> String {
    let view = host.view();
    let phase = phase_of_claim(&view);
    let plan = host.status.plan.as_ref().map(|plan| plan.phase.clone()).unwrap_or_default();
    if phase.is_empty() { plan } else { phase.to_owned() }
}

/// Lifts a quarantine. A host whose reset failed is reset again, with a new epoch.
fn lift(session: &Session, host: &ByoHost) -> anyhow::Result<()> {
    let view = host.view();
    let mut spec = json!({"quarantine": null});
    if is_reset_failed(&view) {
        spec["epoch"] = json!(view.next_epoch());
    }
    session.patch(host, &json!({"spec": spec}))
}

fn machine<'w>(world: &'w World, byo_machine: &str, namespace: &str) -> Option<&'w Machine> {
    world.owner(world.machine(namespace, byo_machine)?)
}

/// Deletes a Machine, marked so that its set replaces this one and no other.
fn delete(session: &Session, machine: &Machine) -> anyhow::Result<()> {
    let resource = ApiResource::erase::<Machine>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(session.client.clone(), machine.namespace(), &resource);
    let mark = json!({"metadata": {"annotations": {millpond_api::capi::names::DELETE_MACHINE: "released"}}});
    let what = format!("delete Machine `{}`", machine.name());
    session.run(&what, api.patch(machine.name(), &PatchParams::default(), &Patch::Merge(&mark)))?;
    session.run(&what, api.delete(machine.name(), &DeleteParams::background())).map(drop)
}
