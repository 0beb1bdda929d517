//! Classifies the addresses of a server.

use super::client::{Network, Server};

/// The addresses of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) public_v4: Option<String>,
    pub(super) private_v4: Option<String>,
    pub(super) public_v6: Option<String>,
}

impl Addresses {
    /// Floating addresses and those of external networks are public.
    pub(super) fn of(server: &Server, external: &[Network]) -> Self {
        let mut addresses = Self { public_v4: server.access_v4.clone(), ..Self::default() };
        for address in &server.addresses {
            let is_external = external.iter().any(|network| network.name == address.network);
            let slot = match (address.version, address.is_floating || is_external) {
                (6, _) => &mut addresses.public_v6,
                (_, true) => &mut addresses.public_v4,
                (_, false) => &mut addresses.private_v4,
            };
            slot.get_or_insert_with(|| address.address.clone());
        }
        addresses
    }

    /// Whether the server can only be reached from inside its network.
    pub(super) fn needs_floating(&self) -> bool {
        self.public_v4.is_none() && self.private_v4.is_some()
    }

    /// The address that Zuul connects to.
    pub(super) fn interface(&self) -> Option<&str> {
        self.public_v4.as_deref().or(self.public_v6.as_deref()).or(self.private_v4.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Address;
    use super::*;

    fn server(addresses: &[(&str, &str, bool)]) -> Server {
        let address = |(network, address, is_floating): &(&str, &str, bool)| Address {
            network: (*network).to_owned(),
            address: (*address).to_owned(),
            version: if address.contains(':') { 6 } else { 4 },
            is_floating: *is_floating,
        };
        Server { addresses: addresses.iter().map(address).collect(), ..Server::default() }
    }

    #[test]
    fn public_addresses_come_first() {
        let external = [Network { id: "1".to_owned(), name: "outside".to_owned(), is_external: true }];
        let of = |addresses: &[(&str, &str, bool)]| Addresses::of(&server(addresses), &external);
        let inside = of(&[("lan", "10.0.0.5", false)]);
        assert!(inside.needs_floating());
        assert_eq!(inside.interface(), Some("10.0.0.5"));
        let floating = of(&[("lan", "10.0.0.5", false), ("lan", "192.0.2.7", true)]);
        assert!(!floating.needs_floating());
        assert_eq!((floating.interface(), floating.private_v4.as_deref()), (Some("192.0.2.7"), Some("10.0.0.5")));
        assert_eq!(of(&[("outside", "192.0.2.8", false)]).public_v4.as_deref(), Some("192.0.2.8"));
        assert_eq!(of(&[("lan", "10.0.0.5", false), ("lan", "2001:db8::1", false)]).interface(), Some("2001:db8::1"));
        assert_eq!(of(&[]).interface(), None);
    }
}
