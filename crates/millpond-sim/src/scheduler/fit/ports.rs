//! Host ports in use on a node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;

/// The address that means every address of the host.
const EVERY_ADDRESS: &str = "0.0.0.0";

/// A port on the host that a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    protocol: String,
    port: i32,
    address: String,
}

impl HostPort {
    /// The host ports of the containers that run as long as the pod does.
    pub fn of_pod(spec: &PodSpec) -> Vec<Self> {
        let sidecars = spec
            .init_containers
            .iter()
            .flatten()
            .filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let mut ports = Vec::new();
        for container in spec.containers.iter().chain(sidecars) {
            for port in container.ports.iter().flatten() {
                if let Some(number) = port.host_port.filter(|number| *number > 0) {
                    ports.push(Self {
                        protocol: non_empty(port.protocol.as_deref(), "TCP"),
                        port: number,
                        address: non_empty(port.host_ip.as_deref(), EVERY_ADDRESS),
                    });
                }
            }
        }
        ports
    }

    fn conflicts_with(&self, address: &str) -> bool {
        self.address == EVERY_ADDRESS || address == EVERY_ADDRESS || self.address == address
    }
}

fn non_empty(value: Option<&str>, default: &str) -> String {
    value.filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
}

/// The host ports that the pods of a node hold, with the number of holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortsInUse(BTreeMap<HostPort, u32>);

impl PortsInUse {
    /// Takes ports into use.
    pub fn take(&mut self, ports: &[HostPort]) {
        for port in ports {
            *self.0.entry(port.clone()).or_default() += 1;
        }
    }

    /// Gives ports back.
    pub fn give_back(&mut self, ports: &[HostPort]) {
        for port in ports {
            if let Some(holders) = self.0.get_mut(port) {
                *holders -= 1;
                if *holders == 0 {
                    self.0.remove(port);
                }
            }
        }
    }

    /// Whether one of the wanted ports is held already.
    pub fn conflicts(&self, wanted: &[HostPort]) -> bool {
        !self.0.is_empty()
            && wanted.iter().any(|want| {
                self.0.keys().any(|held| {
                    held.protocol == want.protocol && held.port == want.port && want.conflicts_with(&held.address)
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(protocol: &str, port: i32, address: &str) -> HostPort {
        HostPort { protocol: protocol.into(), port, address: address.into() }
    }

    #[test]
    fn wildcard_addresses_conflict_with_every_address() {
        let mut used = PortsInUse::default();
        used.take(&[port("TCP", 80, "10.0.0.1")]);
        assert!(used.conflicts(&[port("TCP", 80, EVERY_ADDRESS)]));
        assert!(used.conflicts(&[port("TCP", 80, "10.0.0.1")]));
        assert!(!used.conflicts(&[port("TCP", 80, "10.0.0.2")]));
        assert!(!used.conflicts(&[port("UDP", 80, EVERY_ADDRESS)]));
        used.take(&[port("TCP", 80, "10.0.0.1")]);
        used.give_back(&[port("TCP", 80, "10.0.0.1")]);
        assert!(used.conflicts(&[port("TCP", 80, "10.0.0.1")]), "one holder is left");
        used.give_back(&[port("TCP", 80, "10.0.0.1")]);
        assert_eq!(used, PortsInUse::default());
    }
}
