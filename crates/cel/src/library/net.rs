//! Addresses and networks.

use std::net::IpAddr;

use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Value, no_overload};

pub(super) const TABLE: &[Row] = &[
    ("ip", Price::Address, ip, &["(string) ip", ".(cidr) ip"]),
    ("isIP", Price::Traverse, |args, _| is_readable(args, |text| address(text).is_some()), TEXT),
    ("ip.isCanonical", Price::TraverseTwice, is_canonical, TEXT),
    ("family", Price::One, family, &[".(ip) int"]),
    ("isUnspecified", Price::One, |args, _| has(args, IpAddr::is_unspecified), TEST),
    ("isLoopback", Price::One, |args, _| has(args, IpAddr::is_loopback), TEST),
    ("isLinkLocalMulticast", Price::One, |args, _| has(args, is_link_local_multicast), TEST),
    ("isLinkLocalUnicast", Price::One, |args, _| has(args, is_link_local), TEST),
    ("isGlobalUnicast", Price::One, |args, _| has(args, is_global), TEST),
    ("cidr", Price::Traverse, cidr, &["(string) cidr"]),
    ("isCIDR", Price::Traverse, |args, _| is_readable(args, |text| network(text).is_some()), TEXT),
    ("containsIP", Price::ContainsIp, contains_ip, &[".(cidr, string) bool", ".(cidr, ip) bool"]),
    (
        "containsCIDR",
        Price::ContainsCidr,
        contains_cidr,
        &[".(cidr, string) bool", ".(cidr, cidr) bool"],
    ),
    ("prefixLength", Price::One, prefix_length, &[".(cidr) int"]),
    ("masked", Price::One, masked, &[".(cidr) cidr"]),
];

const TEXT: &[&str] = &["(string) bool"];
const TEST: &[&str] = &[".(ip) bool"];

/// Parses an address. IPv4-mapped IPv6 and zones are rejected.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        _ => Some(address),
    }
}

/// Parses a network: an address, a slash and the prefix length.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, bits) = text.rsplit_once('/')?;
    let address = address(ip)?;
    let is_number = bits.bytes().all(|b| b.is_ascii_digit());
    if !is_number || (bits.len() > 1 && bits.starts_with('0')) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// The address as 128 bits, left-aligned.
fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Whether two addresses of one family have the same first bits.
fn agree(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    a.is_ipv4() == b.is_ipv4() && number(a) & mask == number(b) & mask
}

fn no_address(text: &str) -> Fault {
    Fault::because(format!("{text:?} is not an IP address"))
}

fn no_network(text: &str) -> Fault {
    Fault::because(format!("{text:?} is not a network in CIDR notation"))
}

fn ip<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => address(text).map(Value::Ip).ok_or_else(|| no_address(text)),
        [Value::Cidr(ip, _)] => Ok(Value::Ip(*ip)),
        _ => Err(no_overload("ip", args)),
    }
}

fn is_readable<'a>(args: &[Value<'a>], test: fn(&str) -> bool) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(test(text))),
        _ => Err(no_overload("a test for an address", args)),
    }
}

fn is_canonical<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => match address(text) {
            Some(ip) => Ok(Value::Bool(ip.to_string() == **text)),
            None => Err(no_address(text)),
        },
        _ => Err(no_overload("ip.isCanonical", args)),
    }
}

fn family<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Ip(ip)] => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        _ => Err(no_overload("family", args)),
    }
}

fn has<'a>(args: &[Value<'a>], test: fn(&IpAddr) -> bool) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Ip(ip)] => Ok(Value::Bool(test(ip))),
        _ => Err(no_overload("a test of an address", args)),
    }
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_global(ip: &IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(is_broadcast
        || ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_multicast()
        || is_link_local(ip))
}

fn cidr<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(text)] => match network(text) {
            Some((ip, bits)) => Ok(Value::Cidr(ip, bits)),
            None => Err(no_network(text)),
        },
        _ => Err(no_overload("cidr", args)),
    }
}

fn contains_ip<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (ip, bits, other) = match args {
        [Value::Cidr(ip, bits), Value::Ip(other)] => (ip, bits, *other),
        [Value::Cidr(ip, bits), Value::String(text)] => {
            (ip, bits, address(text).ok_or_else(|| no_address(text))?)
        }
        _ => return Err(no_overload("containsIP", args)),
    };
    Ok(Value::Bool(agree(*ip, other, *bits)))
}

fn contains_cidr<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (ip, bits, (other, other_bits)) = match args {
        [Value::Cidr(ip, bits), Value::Cidr(other, other_bits)] => {
            (ip, bits, (*other, *other_bits))
        }
        [Value::Cidr(ip, bits), Value::String(text)] => {
            (ip, bits, network(text).ok_or_else(|| no_network(text))?)
        }
        _ => return Err(no_overload("containsCIDR", args)),
    };
    Ok(Value::Bool(*bits <= other_bits && agree(*ip, other, *bits)))
}

fn prefix_length<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Cidr(_, bits)] => Ok(Value::Int((*bits).into())),
        _ => Err(no_overload("prefixLength", args)),
    }
}

fn masked<'a>(args: &[Value<'a>], _: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Cidr(IpAddr::V4(v4), bits)] => {
            let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
            Ok(Value::Cidr(IpAddr::V4((v4.to_bits() & mask).into()), *bits))
        }
        [Value::Cidr(IpAddr::V6(v6), bits)] => {
            let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
            Ok(Value::Cidr(IpAddr::V6((v6.to_bits() & mask).into()), *bits))
        }
        _ => Err(no_overload("masked", args)),
    }
}
