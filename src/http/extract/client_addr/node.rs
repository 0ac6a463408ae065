//! One address as proxies write it, with or without a port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::embedded;

/// Reads IPv4, IPv4:port, IPv6, \[IPv6\] or \[IPv6\]:port, without surrounding blanks.
///
/// Strict: no octal, hexadecimal or shortened IPv4, and not the unspecified address. The zone of an
/// IPv6 address is dropped, and an IPv4-mapped address is read as IPv4.
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    address_and_port(text, is_port)
}

/// As [`address`], with a port that may also be obfuscated, as in RFC 7239: `192.0.2.1:_web`.
pub(super) fn address_with_hidden_port(text: &[u8]) -> Option<IpAddr> {
    address_and_port(text, |port| is_port(port) || is_hidden_port(port))
}

fn address_and_port(text: &[u8], is_port: impl Fn(&str) -> bool) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        if !rest.is_empty() && !is_port(rest.strip_prefix(':')?) {
            return None;
        }
        ipv6(address)?
    } else {
        match text.split_once(':') {
            None => text.parse::<Ipv4Addr>().ok()?.into(),
            Some((address, port)) if is_port(port) => address.parse::<Ipv4Addr>().ok()?.into(),
            Some(_) => ipv6(text)?,
        }
    };
    let address = address.to_canonical();
    (!embedded(address).is_unspecified()).then_some(address)
}

fn ipv6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, zone)) if zone.is_empty() || !zone.bytes().all(is_name_byte) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

fn is_port(text: &str) -> bool {
    // Digits are checked by hand because the standard parser accepts a plus sign too.
    (1..=5).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}

fn is_hidden_port(text: &str) -> bool {
    text.strip_prefix('_')
        .is_some_and(|name| !name.is_empty() && name.bytes().all(is_name_byte))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}
