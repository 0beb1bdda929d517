//! Network interfaces with their addresses, from `/proc/net` and `/sys/class/net`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use millpond_api::byoh::{HostFacts, NetworkStatus};

/// `status.network` of the host under a root directory.
pub fn read(root: &Path, facts: &HostFacts) -> Vec<NetworkStatus> {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut addresses = ipv4(&text("proc/net/fib_trie"), &text("proc/net/route"));
    for (interface, address) in ipv6(&text("proc/net/if_inet6")) {
        addresses.entry(interface).or_default().push(address);
    }
    let network = |nic: &millpond_api::byoh::facts::Nic| NetworkStatus {
        connected: nic.state == "up",
        ip_addrs: addresses.get(&nic.name).cloned().unwrap_or_default(),
        mac_addr: nic.mac.clone(),
        network_interface_name: nic.name.clone(),
        is_default: nic.is_default,
    };
    facts.nics.iter().map(network).collect()
}

/// The host's own IPv4 addresses, each with the interface whose route leads to its network.
fn ipv4(trie: &str, routes: &str) -> BTreeMap<String, Vec<String>> {
    let networks: Vec<_> = routes.lines().skip(1).filter_map(network).collect();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last.filter(|address| !address.is_loopback())
        {
            let of = networks.iter().filter(|(_, prefix, mask)| u32::from(address) & mask == *prefix);
            if let Some((interface, ..)) = of.max_by_key(|(.., mask)| *mask) {
                let list = found.entry(interface.clone()).or_default();
                let text = address.to_string();
                if !list.contains(&text) {
                    list.push(text);
                }
            }
        }
    }
    found
}

/// A line of `/proc/net/route`: interface, network and mask, the numbers with their lowest byte first.
fn network(line: &str) -> Option<(String, u32, u32)> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok().map(u32::swap_bytes);
    let (prefix, mask) = (number(1)?, number(7)?);
    // The default route says nothing of whose address it is.
    (mask != 0).then(|| ((*fields.first().unwrap_or(&"")).to_owned(), prefix, mask))
}

/// IPv6 addresses of global scope.
fn ipv6(table: &str) -> Vec<(String, String)> {
    let address = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let bits = u128::from_str_radix(fields.first()?, 16).ok()?;
        let (scope, interface) = (fields.get(3)?, fields.get(5)?);
        (*scope == "00").then(|| ((*interface).to_owned(), Ipv6Addr::from(bits).to_string()))
    };
    table.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_api::byoh::facts::Nic;

    #[test]
    fn addresses_are_those_of_their_interface() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        \
                    /24 link UNICAST\n     |-- 192.0.2.2\n        /32 host LOCAL\nLocal:\n     |-- 192.0.2.2\n        \
                    /32 host LOCAL\n";
        let route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n\
                     eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        let inet6 =
            "fd000000000000000000000000000002 04 40 00 82 eth0\nfe800000000000000000000000000001 04 40 20 80 eth0\n";
        for (name, text) in [("fib_trie", trie), ("route", route), ("if_inet6", inet6)] {
            fs::write(root.path().join("proc/net").join(name), text).unwrap();
        }
        let nic = Nic {
            name: "eth0".into(),
            mac: "52:54:00:00:00:01".into(),
            state: "up".into(),
            is_default: true,
            ..Nic::default()
        };
        let facts = HostFacts { nics: vec![nic], ..HostFacts::default() };
        let network = &read(root.path(), &facts)[0];
        assert_eq!(network.ip_addrs, ["192.0.2.2", "fd00::2"]);
        assert!(network.connected && network.is_default);
    }
}
