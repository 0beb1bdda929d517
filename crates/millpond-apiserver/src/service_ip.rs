//! Addresses and node ports of services: each service gets its own.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::builtin;
use crate::handlers::call::Call;
use crate::resource::Resource;
use crate::status::{ApiError, FieldError};

/// Where addresses come from; the first one belongs to the API itself.
pub(crate) const RANGE: &str = "10.0.0.0/16";
const NETWORK: u32 = 0x0a00_0000;
const SIZE: u32 = 1 << 16;
/// The address of the `kubernetes` service.
pub(crate) const API_ADDRESS: &str = "10.0.0.1";

/// Keeps writes of services one after the other: each sees the addresses and ports of those before.
#[derive(Debug, Default)]
pub(crate) struct ServiceAddresses {
    turn: Mutex<()>,
}

impl ServiceAddresses {
    /// Waits for its turn if the resource is the service; held until the write is done.
    pub(crate) async fn turn_of(&self, resource: &Resource) -> Option<MutexGuard<'_, ()>> {
        if &*resource.storage == "services" { Some(self.turn.lock().await) } else { None }
    }
}

/// Gives a service its address, or keeps the one it has. What is malformed or contradictory is left to
/// validation, which tells it in the words of the real API server.
pub(crate) fn assign(call: &Call, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let spec = &mut service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok(());
    }
    let given = spec["clusterIP"].as_str().unwrap_or_default();
    let listed = spec["clusterIPs"].as_array().map_or(0, Vec::len);
    let kept = old.and_then(|old| old["spec"]["clusterIP"].as_str()).unwrap_or_default();
    if given.is_empty() && listed == 0 {
        let address = if kept.is_empty() { next(call)? } else { kept.to_owned() };
        spec["clusterIPs"] = json!([address]);
        spec["clusterIP"] = json!(address);
    } else if kept.is_empty() && (listed == 0 || spec["clusterIPs"][0] == given) && given.parse::<IpAddr>().is_ok() {
        claim(call, &name, given)?;
    }
    assign_node_ports(call, spec)
}

/// Ports of services on nodes.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

/// Gives a service the node ports that it needs and does not name.
fn assign_node_ports(call: &Call, spec: &mut Value) -> Result<(), ApiError> {
    let missing = |port: &Value| port["nodePort"].as_i64().unwrap_or_default() == 0;
    let wanted = if builtin::service::needs_node_ports(spec) {
        spec["ports"].as_array().into_iter().flatten().filter(|port| missing(port)).count()
    } else {
        0
    };
    let health = builtin::service::needs_health_port(spec) && spec["healthCheckNodePort"].as_i64().unwrap_or(0) == 0;
    if wanted == 0 && !health {
        return Ok(());
    }
    let mut used = used_node_ports(call);
    let mut take = || {
        let size = NODE_PORTS.end() - NODE_PORTS.start() + 1;
        let start = rand::random_range(0..size);
        let free = (0..size).map(|step| NODE_PORTS.start() + (start + step) % size).find(|port| used.insert(*port));
        free.ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))
    };
    let ports = spec["ports"].as_array_mut().into_iter().flatten().filter(|port| missing(port)).take(wanted);
    // Ports of one number, as DNS has for TCP and UDP, share a node port.
    let mut shared: HashMap<i64, i64> = HashMap::new();
    for port in ports {
        let number = port["port"].as_i64().unwrap_or_default();
        let node_port = match shared.get(&number) {
            Some(known) => *known,
            None => take()?,
        };
        shared.insert(number, node_port);
        port["nodePort"] = json!(node_port);
    }
    if health {
        spec["healthCheckNodePort"] = json!(take()?);
    }
    Ok(())
}

fn used_node_ports(call: &Call) -> HashSet<i64> {
    let services = call.server.store.list("services", "", None, 0, |_, _| true);
    let mut used = HashSet::new();
    for (_, service) in &services.items {
        let spec = &service.to_value()["spec"];
        used.extend(spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_i64()));
        used.extend(spec["healthCheckNodePort"].as_i64());
    }
    used
}

fn used(call: &Call) -> HashSet<u32> {
    let services = call.server.store.list("services", "", None, 0, |_, _| true);
    let addresses =
        services.items.iter().filter_map(|(_, service)| number(service.to_value()["spec"]["clusterIP"].as_str()?));
    addresses.collect()
}

fn number(address: &str) -> Option<u32> {
    address.parse::<Ipv4Addr>().ok().map(u32::from)
}

fn next(call: &Call) -> Result<String, ApiError> {
    let used = used(call);
    // A random start spreads addresses, so that one that was just freed is not given out at once.
    let start = rand::random_range(0..SIZE);
    let free = (0..SIZE)
        .map(|step| NETWORK + (start + step) % SIZE)
        .find(|address| is_usable(*address) && !used.contains(address));
    let address = free.ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
    Ok(Ipv4Addr::from(address).to_string())
}

/// Network, API and broadcast addresses are not for services.
fn is_usable(address: u32) -> bool {
    !matches!(address - NETWORK, 0 | 1) && address - NETWORK != SIZE - 1
}

fn claim(call: &Call, name: &str, wanted: &str) -> Result<(), ApiError> {
    let refuse = |why: &str| {
        let error = FieldError::invalid("spec.clusterIPs", json!([wanted]), why);
        Err(ApiError::invalid("", "Service", name, &[error]))
    };
    let Some(address) = number(wanted).filter(|address| (NETWORK..NETWORK + SIZE).contains(address)) else {
        return refuse(
            "failed to allocate IP: the provided IP is not in the valid range. The range of valid IPs is 10.0.0.0/16",
        );
    };
    if used(call).contains(&address) {
        return refuse("failed to allocate IP: provided IP is already allocated");
    }
    Ok(())
}
