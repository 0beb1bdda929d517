//! Addresses, networks, URLs, quantities and versions: how they are read, and what they tell.

use std::net::IpAddr;
use std::sync::Arc;

use super::super::value::{Error, Evaluated, Key, List, Map, Value};
use super::semver::Semver;
use crate::go::net::{self, Network};
use crate::go::url;
use crate::print::go_quoted;
use crate::quantity::Quantity;

const NANOS: i128 = 1_000_000_000;

/// Functions that read a text.
pub(super) fn parse<'a>(function: &str, text: &str, values: &[Value<'a>]) -> Evaluated<'a> {
    let lenient = match values.get(1) {
        None => false,
        Some(Value::Bool(flag)) => *flag,
        Some(_) => return Err(Error::NoOverload),
    };
    match function {
        "ip" => address(text).map(Value::Ip),
        "isIP" => Ok(Value::Bool(address(text).is_ok())),
        "ip.isCanonical" => Ok(Value::Bool(address(text)?.to_string() == text)),
        "cidr" => match network(text) {
            Ok(network) => Ok(Value::Cidr(network)),
            Err(error) => {
                Err(Error::new(format!("network address parse error during conversion from string: {error}")))
            }
        },
        "isCIDR" => Ok(Value::Bool(network(text).is_ok())),
        "url" => {
            let parsed = url::parse_request_uri(text).and_then(|_| url::parse_reference(text));
            parsed
                .map(|url| Value::Url(Arc::new(url)))
                .map_err(|problem| Error::new(format!("URL parse error during conversion from string: {problem}")))
        }
        "isURL" => Ok(Value::Bool(url::parse_request_uri(text).is_ok())),
        "quantity" => match Quantity::parse(text) {
            Ok(quantity) => Ok(Value::Quantity(quantity.nanos())),
            Err(error) => Err(Error::new(error.to_string())),
        },
        "isQuantity" => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        "semver" => Semver::parse(text, lenient).map(|version| Value::Semver(Arc::new(version))).map_err(Error::new),
        _ => Ok(Value::Bool(Semver::parse(text, lenient).is_ok())),
    }
}

fn address(text: &str) -> Result<IpAddr, Error> {
    if let Some((plain, _)) = text.split_once('%')
        && net::parse_address(plain).is_some_and(|address| address.is_ipv6())
    {
        return Err(Error::new(format!("IP address {} with zone value is not allowed", go_quoted(text))));
    }
    let Some(address) = net::parse_address(text) else {
        let quoted = go_quoted(text);
        return Err(Error::new(format!(
            "IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): unable to parse IP"
        )));
    };
    if is_mapped(address) {
        return Err(Error::new(format!("IPv4-mapped IPv6 address {} is not allowed", go_quoted(text))));
    }
    Ok(address)
}

fn network(text: &str) -> Result<Network, String> {
    let Some(network) = net::parse_network(text) else {
        return Err(format!(
            "network address parse error during conversion from string: netip.ParsePrefix({}): {}",
            go_quoted(text),
            prefix_problem(text)
        ));
    };
    if is_mapped(network.address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", go_quoted(text)));
    }
    Ok(network)
}

/// The error in a text that is no CIDR prefix.
fn prefix_problem(text: &str) -> String {
    let Some((address, bits)) = text.rsplit_once('/') else { return "no '/'".to_owned() };
    if net::parse_address(address).is_none() {
        return format!("ParseAddr({}): unable to parse IP", go_quoted(address));
    }
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && (bits.len() == 1 || !bits.starts_with('0')) {
        return "prefix length out of range".to_owned();
    }
    format!("bad bits after slash: {}", go_quoted(bits))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// Functions of what was read.
pub(super) fn accessor<'a>(function: &str, value: &Value<'a>, values: &[Value<'a>]) -> Evaluated<'a> {
    let argument = values.get(1);
    match value {
        Value::Ip(address) => match function {
            "string" => Ok(Value::text(address.to_string())),
            _ => of_address(function, *address),
        },
        Value::Cidr(network) => of_network(function, *network, argument),
        Value::Url(url) => of_url(function, url),
        Value::Quantity(nanos) => of_quantity(function, *nanos, argument),
        Value::Semver(version) => of_version(function, version, argument),
        _ => Err(Error::NoOverload),
    }
}

fn of_address<'a>(function: &str, address: IpAddr) -> Evaluated<'a> {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    Ok(Value::Bool(match function {
        "family" => return Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => address.is_unspecified(),
        "isLoopback" => address.is_loopback(),
        "isLinkLocalUnicast" => link_local,
        "isLinkLocalMulticast" => match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        },
        "isGlobalUnicast" => {
            let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
            !(broadcast || address.is_unspecified() || address.is_loopback() || address.is_multicast() || link_local)
        }
        _ => return Err(Error::NoOverload),
    }))
}

fn of_network<'a>(function: &str, network: Network, argument: Option<&Value<'a>>) -> Evaluated<'a> {
    Ok(match (function, argument) {
        ("ip", None) => Value::Ip(network.address),
        ("masked", None) => Value::Cidr(network.masked()),
        ("prefixLength", None) => Value::Int(i64::from(network.bits)),
        ("string", None) => Value::text(network.to_string()),
        ("containsIP", Some(Value::Ip(other))) => Value::Bool(network.contains(*other)),
        ("containsIP", Some(Value::String(other))) => match address(other) {
            Ok(other) => Value::Bool(network.contains(other)),
            Err(_) => return Err(Error::NoOverload),
        },
        ("containsCIDR", Some(Value::Cidr(other))) => Value::Bool(network.contains_network(*other)),
        ("containsCIDR", Some(Value::String(other))) => {
            let Value::Cidr(other) = parse("cidr", other, &[])? else { return Err(Error::NoOverload) };
            Value::Bool(network.contains_network(other))
        }
        _ => return Err(Error::NoOverload),
    })
}

fn of_url<'a>(function: &str, url: &url::Url) -> Evaluated<'a> {
    Ok(match function {
        "getScheme" => Value::text(url.scheme.as_str()),
        "getHost" => Value::text(url.host.as_str()),
        "getHostname" => Value::text(url.hostname()),
        "getPort" => Value::text(url.port()),
        "getEscapedPath" => Value::text(url.escaped_path()),
        "getQuery" => {
            let entry = |(name, values): (String, Vec<String>)| {
                let values = List::made(values.into_iter().map(Value::text).collect());
                (Key::Text(name.clone()), (Value::text(name), Value::List(values)))
            };
            Value::Map(Map::made(url.query().into_iter().map(entry).collect()))
        }
        _ => return Err(Error::NoOverload),
    })
}

fn of_quantity<'a>(function: &str, nanos: i128, argument: Option<&Value<'a>>) -> Evaluated<'a> {
    let whole = (nanos % NANOS == 0).then(|| i64::try_from(nanos / NANOS).ok()).flatten();
    Ok(match (function, argument) {
        ("sign", None) => Value::Int(nanos.signum() as i64),
        ("isInteger", None) => Value::Bool(whole.is_some()),
        ("asInteger", None) => Value::Int(whole.ok_or_else(|| Error::new("cannot convert value to integer"))?),
        ("asApproximateFloat", None) => Value::Double(nanos as f64 / NANOS as f64),
        ("add", Some(Value::Quantity(other))) => Value::Quantity(nanos.saturating_add(*other)),
        ("add", Some(Value::Int(other))) => Value::Quantity(nanos.saturating_add(i128::from(*other) * NANOS)),
        ("sub", Some(Value::Quantity(other))) => Value::Quantity(nanos.saturating_sub(*other)),
        ("sub", Some(Value::Int(other))) => Value::Quantity(nanos.saturating_sub(i128::from(*other) * NANOS)),
        ("isGreaterThan", Some(Value::Quantity(other))) => Value::Bool(nanos > *other),
        ("isLessThan", Some(Value::Quantity(other))) => Value::Bool(nanos < *other),
        ("compareTo", Some(Value::Quantity(other))) => Value::Int(nanos.cmp(other) as i64),
        _ => return Err(Error::NoOverload),
    })
}

fn of_version<'a>(function: &str, version: &Semver, argument: Option<&Value<'a>>) -> Evaluated<'a> {
    Ok(match (function, argument) {
        ("major", None) => Value::Int(version.major as i64),
        ("minor", None) => Value::Int(version.minor as i64),
        ("patch", None) => Value::Int(version.patch as i64),
        ("isGreaterThan", Some(Value::Semver(other))) => Value::Bool(version.compare(other).is_gt()),
        ("isLessThan", Some(Value::Semver(other))) => Value::Bool(version.compare(other).is_lt()),
        ("compareTo", Some(Value::Semver(other))) => Value::Int(version.compare(other) as i64),
        _ => return Err(Error::NoOverload),
    })
}
