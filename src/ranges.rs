//! `AddressRanges`: addresses, one by one or by the range.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net};

use crate::error::ConfigError;

/// Addresses, one by one or by the range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddressRanges {
    v4: Sorted<Ipv4Addr>,
    v6: Sorted<Ipv6Addr>,
}

impl AddressRanges {
    /// Reads CIDR ranges and single addresses; `field` is what an error calls them.
    pub(crate) fn read(
        field: &'static str,
        ranges: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in ranges {
            match read_range(field, range.as_ref())? {
                IpNet::V4(range) => v4.push(range.network()..=range.broadcast()),
                IpNet::V6(range) => v6.push(range.network()..=range.broadcast()),
            }
        }
        Ok(Self {
            v4: Sorted::new(v4),
            v6: Sorted::new(v6),
        })
    }

    pub(crate) fn are_none(&self) -> bool {
        self.v4.0.is_empty() && self.v6.0.is_empty()
    }

    /// Whether this address lies in one of the ranges, an IPv4-mapped one as the IPv4 one that it is.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.contain(&address),
            IpAddr::V6(address) => self.v6.contain(&address),
        }
    }
}

/// Ranges in their order, none within another. A public list of those to be blocked has tens of
/// thousands, and every request is looked up in it.
#[derive(Clone, Debug, PartialEq)]
struct Sorted<A>(Vec<RangeInclusive<A>>);

impl<A: Copy + Ord> Sorted<A> {
    /// Of two CIDR ranges that overlap one lies within the other.
    fn new(mut ranges: Vec<RangeInclusive<A>>) -> Self {
        // The longest first of those that begin alike.
        ranges.sort_unstable_by_key(|range| (*range.start(), Reverse(*range.end())));
        ranges.dedup_by(|range, before| before.contains(range.start()));
        Self(ranges)
    }

    /// Only the last that begins no later can hold an address.
    fn contain(&self, address: &A) -> bool {
        let begun = self.0.partition_point(|range| range.start() <= address);
        self.0[..begun]
            .last()
            .is_some_and(|range| address <= range.end())
    }
}

fn read_range(field: &'static str, text: &str) -> Result<IpNet, ConfigError> {
    parsed(text).map(unmapped).ok_or_else(|| {
        ConfigError::malformed(
            field,
            text,
            "right is a range as 10.0.0.0/8 or 2001:db8::/32, or one address",
        )
    })
}

/// The standard parser reads the address: that of `ipnet` takes `010.0.0.0` for `10.0.0.0`, where
/// others take it for `8.0.0.0`.
fn parsed(text: &str) -> Option<IpNet> {
    let Some((address, bits)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits = bits.parse().ok().filter(|_| is_number)?;
    IpNet::new(address.parse().ok()?, bits).ok()
}

/// Addresses are compared in IPv4 where they can be, so an IPv4-mapped range would never match.
fn unmapped(range: IpNet) -> IpNet {
    match (range.addr().to_canonical(), range.prefix_len()) {
        (IpAddr::V4(v4), bits @ 96..) if matches!(range, IpNet::V6(_)) => {
            Ipv4Net::new(v4, bits - 96).map_or(range, IpNet::V4)
        }
        _ => range,
    }
}

#[cfg(test)]
mod tests;
