//! Addresses for nodes and pods.

use std::collections::HashSet;
use std::net::Ipv4Addr;

/// Pods live in 10.128.0.0/9.
const POD_NET: u32 = 0x0a80_0000;
const POD_BITS: u32 = 23;
/// Nodes live in 10.64.0.0/10.
const NODE_NET: u32 = 0x0a40_0000;
const NODE_BITS: u32 = 22;

/// Hands out pod addresses, and knows which are taken.
#[derive(Debug, Default)]
pub struct Addresses {
    taken: HashSet<u32>,
    last: u32,
}

impl Addresses {
    /// The address of a node: the same for the same name.
    pub fn of_node(&self, name: &str) -> String {
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        // Neither the first nor the last address of the range.
        let offset = hash % ((1 << NODE_BITS) - 2) + 1;
        Ipv4Addr::from(NODE_NET + offset).to_string()
    }

    /// A free address for a pod. It counts as taken once it stands in a status.
    pub fn next_pod(&mut self) -> String {
        let size = (1 << POD_BITS) - 2;
        for _ in 0..size {
            self.last = self.last % size + 1;
            if !self.taken.contains(&self.last) {
                break;
            }
        }
        Ipv4Addr::from(POD_NET + self.last).to_string()
    }

    /// Notes an address that a pod has.
    pub fn take(&mut self, address: &str) {
        if let Some(offset) = pod_offset(address) {
            self.taken.insert(offset);
        }
    }

    /// Notes that a pod has an address no more.
    pub fn give_back(&mut self, address: &str) {
        if let Some(offset) = pod_offset(address) {
            self.taken.remove(&offset);
        }
    }
}

fn pod_offset(address: &str) -> Option<u32> {
    let number = u32::from(address.parse::<Ipv4Addr>().ok()?);
    number.checked_sub(POD_NET).filter(|offset| *offset < 1 << POD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_not_given_twice() {
        let mut addresses = Addresses::default();
        addresses.take("10.128.0.2");
        let first = addresses.next_pod();
        addresses.take(&first);
        assert_eq!(first, "10.128.0.1");
        assert_eq!(addresses.next_pod(), "10.128.0.3");
        addresses.give_back("10.128.0.2");
        addresses.last = 1;
        assert_eq!(addresses.next_pod(), "10.128.0.2");
        assert_eq!(addresses.of_node("n1"), addresses.of_node("n1"));
        assert_ne!(addresses.of_node("n1"), addresses.of_node("n2"));
    }
}
