//! Types in the format of Karpenter's KWOK provider.
//!
//! Two keys are ours, and left out where that provider would assume the same: `requirements` has the labels of a
//! type beyond those that the provider gives it, `overhead` what the node keeps for itself.

use std::io::Write;

use millpond_api::labels::{ARCH, CAPACITY_TYPE, INSTANCE_TYPE, OS, ZONE};
use millpond_api::money;
use millpond_plan::model::{CPU, InstanceType, MEMORY, Offering, Resources, Snapshot};
use millpond_plan::requirement::Requirements;
use serde_json::{Value, json};

use super::{SaveError, amounts, expressions, inexpressible};

/// Labels that the format has other places for.
const ELSEWHERE: [&str; 5] = [INSTANCE_TYPE, ARCH, OS, ZONE, CAPACITY_TYPE];

pub(super) fn values(snapshot: &Snapshot) -> Result<Vec<Value>, SaveError> {
    snapshot.types.iter().map(|of| value(snapshot, of)).collect()
}

/// One type per line: a file of a thousand types can still be read and compared.
pub(super) fn write(values: &[Value], file: &mut dyn Write) -> std::io::Result<()> {
    for (number, value) in values.iter().enumerate() {
        file.write_all(if number == 0 { b"[\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *file, value)?;
    }
    file.write_all(if values.is_empty() { b"[]\n" } else { b"\n]\n" })
}

fn value(snapshot: &Snapshot, of: &InstanceType) -> Result<Value, SaveError> {
    let name = snapshot.text(of.name);
    let only = |key: &str| {
        let missing = || inexpressible(format!("the type `{name}` without a value of `{key}`"));
        named_values(snapshot, of, key).ok_or_else(missing)
    };
    let architectures = only(ARCH)?;
    let [architecture] = &architectures[..] else {
        return Err(inexpressible(format!("the type `{name}` with several architectures")));
    };
    let mut value = json!({
        "name": name,
        "architecture": architecture,
        "operatingSystems": only(OS)?,
        "resources": amounts(snapshot, &of.capacity),
        "offerings": of.offerings.iter().map(|one| offering(snapshot, one)).collect::<Vec<_>>(),
    });
    let mut further = Requirements::new();
    for (key, requirement) in of.labels.iter() {
        if !ELSEWHERE.contains(&snapshot.text(key)) {
            further.add(key, requirement.clone(), &snapshot.symbols);
        }
    }
    if !further.is_empty() {
        value["requirements"] = expressions(&further, &snapshot.symbols).into();
    }
    let mut overhead = of.capacity.clone();
    overhead.subtract(&of.allocatable);
    if overhead != kwok_overhead() {
        value["overhead"] = amounts(snapshot, &overhead).into();
    }
    Ok(value)
}

/// The resources that the KWOK provider reserves on every node.
fn kwok_overhead() -> Resources {
    [(CPU, 100), (MEMORY, 10 << 20)].into_iter().collect()
}

fn named_values(snapshot: &Snapshot, of: &InstanceType, key: &str) -> Option<Vec<String>> {
    let requirement = of.labels.get(snapshot.symbols.find(key)?)?;
    match &requirement.expressions(&snapshot.symbols)[..] {
        [(millpond_plan::requirement::Operator::In, values)] => Some(values.clone()),
        _ => None,
    }
}

fn offering(snapshot: &Snapshot, of: &Offering) -> Value {
    let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let mut value = json!({
        "Price": money::dollars(of.price),
        "Available": of.available,
        "Requirements": [is(CAPACITY_TYPE, of.capacity_type.name()), is(ZONE, snapshot.text(of.zone))],
    });
    if let Some(left) = of.left {
        value["ReservationCapacity"] = left.into();
    }
    value
}
