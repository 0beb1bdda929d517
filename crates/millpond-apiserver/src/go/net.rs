//! IP addresses, networks and MAC addresses as Go reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// The address as written; bits beyond the prefix may be set.
    pub(crate) address: IpAddr,
    /// Number of leading bits.
    pub(crate) bits: u8,
}

/// An address as `netip.ParseAddr` takes it: no leading zeros. A zone is refused.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// A network as `netip.ParsePrefix` takes it.
pub(crate) fn parse_network(text: &str) -> Option<Network> {
    let (address, bits) = text.rsplit_once('/')?;
    let address = parse_address(address)?;
    let plain = !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && (bits.len() == 1 || !bits.starts_with('0'));
    let bits: u8 = if plain { bits.parse().ok()? } else { return None };
    (bits <= width(address)).then_some(Network { address, bits })
}

/// Whether the text is an IPv4 address; leading zeros are tolerated, as Go did before 1.17. An IPv6 address
/// with an embedded IPv4 one passes too, as upstream's check has it.
pub(crate) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && parse_sloppy_address(text).is_some()
}

/// Whether the text is an IPv6 address.
pub(crate) fn is_ipv6(text: &str) -> bool {
    text.contains(':') && parse_address(text).is_some()
}

/// Whether the text is a network; leading zeros of IPv4 numbers are tolerated.
pub(crate) fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.rsplit_once('/') else { return false };
    let Some(address) = parse_sloppy_address(address) else { return false };
    let digits = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
    digits && bits.parse::<u16>().is_ok_and(|bits| bits <= u16::from(width(address)))
}

fn parse_sloppy_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return parse_address(text);
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = part.trim_start_matches('0');
        *octet = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    }
    parts.next().is_none().then(|| IpAddr::from(octets))
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Network {
    /// The same network with all bits beyond the prefix cleared.
    pub(crate) fn masked(self) -> Self {
        Self { address: mask(self.address, self.bits), bits: self.bits }
    }

    /// Whether the address lies in the network.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && mask(address, self.bits) == mask(self.address, self.bits)
    }

    /// Whether the other network lies in this one.
    pub(crate) fn contains_network(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & keep))
        }
        IpAddr::V6(address) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & keep))
        }
    }
}

/// Whether the text is a MAC address of 6, 8 or 20 bytes, in one of the three usual notations.
pub(crate) fn is_mac(text: &str) -> bool {
    let pairs = |separator: char| {
        let mut count = 0;
        let fine = text.split(separator).all(|part| {
            count += 1;
            part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        fine.then_some(count)
    };
    let quads = || {
        let mut count = 0;
        let fine = text.split('.').all(|part| {
            count += 2;
            part.len() == 4 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        fine.then_some(count)
    };
    let bytes = match text.as_bytes().get(2) {
        Some(b':') => pairs(':'),
        Some(b'-') => pairs('-'),
        _ => quads(),
    };
    matches!(bytes, Some(6 | 8 | 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, four, six) in [
            ("10.0.0.1", true, false),
            ("010.000.0.1", true, false),
            ("10.0.0.256", false, false),
            ("10.0.0", false, false),
            ("::1", false, true),
            ("::ffff:1.2.3.4", true, true),
            ("fe80::1%eth0", false, false),
        ] {
            assert_eq!((is_ipv4(text), is_ipv6(text)), (four, six), "{text}");
        }
    }

    #[test]
    fn networks() {
        assert!(is_network("010.0.0.0/8"));
        assert!(!is_network("10.0.0.0/33"));
        assert!(!is_network("10.0.0.0"));
        assert!(parse_network("10.0.0.0/08").is_none());
        let network = parse_network("10.1.2.3/16").unwrap();
        assert_eq!(network.masked().to_string(), "10.1.0.0/16");
        assert!(network.contains("10.1.255.1".parse().unwrap()));
        assert!(!network.contains("10.2.0.1".parse().unwrap()));
        assert!(!network.contains("::1".parse().unwrap()));
        assert!(network.contains_network(parse_network("10.1.9.0/24").unwrap()));
        assert!(!network.contains_network(parse_network("10.0.0.0/8").unwrap()));
        assert!(parse_network("0.0.0.0/0").unwrap().contains("1.2.3.4".parse().unwrap()));
    }

    #[test]
    fn mac_addresses() {
        for (text, fine) in [
            ("00:00:5e:00:53:01", true),
            ("00-00-5e-00-53-01", true),
            ("0000.5e00.5301", true),
            ("02:00:5e:10:00:00:00:01", true),
            ("00:00:5e:00:53", false),
            ("00:00-5e:00:53:01", false),
            ("", false),
            ("é", false),
        ] {
            assert_eq!(is_mac(text), fine, "{text}");
        }
    }
}
