//! Which machines of a pool can be types of a catalogue. Others are left out; a pool without any is left out too.

use serde_json::Value;

use super::super::fleet::{Field, Fleet, Machine, Pool};
use super::super::report::{Action, Report};
use crate::catalog::architecture;
use crate::catalog::overhead::MIB;
use crate::labels::is_value;

/// Limits of what a catalogue can say of a machine.
const LIMIT_CPU_MILLI: i64 = 1_000_000_000;
const LIMIT_MEMORY_BYTES: i64 = 1 << 50;

/// The fleet without machines that cannot be bought.
pub(super) fn usable(fleet: &Fleet, report: &mut Report) -> Fleet {
    let mut fleet = fleet.clone();
    for pool in fleet.pools.iter_mut().filter(|pool| pool.original.is_none()) {
        let machines = std::mem::take(&mut pool.machines);
        let kept = machines.into_iter().filter_map(|machine| checked(pool, machine, report)).collect();
        pool.machines = kept;
    }
    fleet.pools.retain(|pool| {
        let empty = pool.machines.is_empty() && pool.original.is_none();
        if empty {
            let reason = "none of its types can be used: the pool is left out";
            report.say(&pool.place.object, pool.path(Field::Name), pool.name.clone(), Action::Dropped, reason);
        }
        !empty
    });
    fleet
}

/// A machine with Kubernetes' name of its architecture, unless something about it cannot be.
fn checked(pool: &Pool, mut machine: Machine, report: &mut Report) -> Option<Machine> {
    let mut refuse = |machine: &Machine, field: &str, value: Value, reason: &str| {
        report.say(&pool.place.object, pool.part(machine, field), value, Action::Dropped, reason);
        None
    };
    if machine.instance_type.is_empty() || !is_value(&machine.instance_type) {
        let reason = "a type is the value of a label, which this cannot be: it is left out";
        return refuse(&machine, "instanceType", machine.instance_type.clone().into(), reason);
    }
    let Some(arch) = architecture(&machine.arch) else {
        let reason = "no kubelet runs on it: the type is left out";
        return refuse(&machine, "architecture", machine.arch.clone().into(), reason);
    };
    let amount = |name: &str| machine.capacity.get(name).unwrap_or(0);
    let least_memory = i64::try_from(MIB).unwrap_or(i64::MAX);
    if !(1..=LIMIT_CPU_MILLI).contains(&amount("cpu"))
        || !(least_memory..=LIMIT_MEMORY_BYTES).contains(&amount("memory"))
    {
        let reason = "a machine has cpu and at least 1Mi of memory: the type is left out";
        return refuse(&machine, "capacity", serde_json::to_value(&machine.capacity).unwrap_or_default(), reason);
    }
    let zones = machine.offers.iter().filter(|offer| !is_value(&offer.zone)).count();
    if zones == machine.offers.len() {
        let value = machine.offers.iter().map(|offer| offer.zone.clone()).collect::<Vec<_>>().into();
        return refuse(&machine, "zones", value, "none of its zones can be the value of a label: it is left out");
    }
    machine.offers.retain(|offer| is_value(&offer.zone));
    arch.clone_into(&mut machine.arch);
    Some(machine)
}
