//! IP addresses and networks as Kubernetes takes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const EXAMPLE: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Problems of an address that must be written in canonical form.
pub(crate) fn problems(text: &str) -> Vec<String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(address) if address.to_string() == text => Vec::new(),
        Ok(address) => vec![format!("must be in canonical form (\"{address}\")")],
        Err(_) if has_leading_zeros(text) => vec!["must not have leading 0s".to_owned()],
        Err(_) => vec![EXAMPLE.to_owned()],
    }
}

/// Problems of an address that need not be in canonical form.
pub(super) fn lax_problems(text: &str) -> Vec<String> {
    problems(text).into_iter().filter(|problem| !problem.starts_with("must be in canonical form")).collect()
}

/// An address, leading zeros allowed.
pub(super) fn parse_legacy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let parts: Vec<u8> = text.split('.').map(decimal).collect::<Option<_>>()?;
    let octets: [u8; 4] = parts.try_into().ok()?;
    Some(Ipv4Addr::from(octets).into())
}

/// An address and a prefix length.
pub(super) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_legacy(address)?;
    let length = decimal(length)?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

/// Problems of a network that need not be in canonical form.
pub(super) fn network_problems(text: &str) -> Vec<String> {
    let problem = match parse_cidr(text) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some((address, length)) => {
            let (written, bits) = text.split_once('/').unwrap_or_default();
            if (bits.len() > 1 && bits.starts_with('0')) || has_leading_zeros(written) {
                "must not have leading 0s in IP or prefix length"
            } else if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
                "must not have an IPv4-mapped IPv6 address"
            } else if network(address, length) != address {
                "must not have bits set beyond the prefix length"
            } else {
                return Vec::new();
            }
        }
    };
    vec![problem.to_owned()]
}

/// Problems of a network that must be written in canonical form.
pub(super) fn canonical_network_problems(text: &str) -> Vec<String> {
    let problems = network_problems(text);
    match parse_cidr(text) {
        Some((address, length)) if problems.is_empty() && format!("{address}/{length}") != text => {
            vec![format!("must be in canonical form (\"{address}/{length}\")")]
        }
        _ => problems,
    }
}

/// The unspecified, loopback and link-local addresses, which no service may name.
pub(super) fn special_problem(address: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let link_local_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    if address.is_unspecified() {
        Some("may not be unspecified (0.0.0.0 or ::)")
    } else if address.is_loopback() {
        Some("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    } else if link_local {
        Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    } else if link_local_multicast {
        Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    } else {
        None
    }
}

/// First address of a network.
pub(super) fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or_default();
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or_default();
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

fn decimal(text: &str) -> Option<u8> {
    (!text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

fn has_leading_zeros(text: &str) -> bool {
    text.split('.').any(|part| part.len() > 1 && part.starts_with('0')) && parse_legacy(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_canonical() {
        for good in ["10.0.0.1", "::1", "2001:db8::ffff"] {
            assert!(problems(good).is_empty(), "{good}");
        }
        assert_eq!(problems("010.0.0.1"), ["must not have leading 0s"]);
        assert_eq!(problems("2001:DB8::1"), ["must be in canonical form (\"2001:db8::1\")"]);
        assert_eq!(problems("1.2.3"), [EXAMPLE]);
        assert!(lax_problems("2001:DB8::1").is_empty());
        assert_eq!(lax_problems("010.0.0.1"), ["must not have leading 0s"]);
    }

    #[test]
    fn networks_are_read() {
        assert_eq!(parse_cidr("10.1.2.3/8"), Some((IpAddr::from([10, 1, 2, 3]), 8)));
        assert_eq!(parse_cidr("10.1.2.3/33"), None);
        assert_eq!(network(IpAddr::from([10, 1, 2, 3]), 8), IpAddr::from([10, 0, 0, 0]));
        assert_eq!(network(IpAddr::from([10, 1, 2, 3]), 0), IpAddr::from([0, 0, 0, 0]));
    }
}
