//! `AddressRanges`: single addresses and ranges of addresses.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::error::ConfigError;

const EXPECTED: &str = "expected a range such as 10.0.0.0/8 or 2001:db8::/32, or one address";

/// Single addresses and ranges of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressRanges {
    v4: Sorted<Ipv4Addr>,
    v6: Sorted<Ipv6Addr>,
}

impl AddressRanges {
    /// Parses CIDR ranges and single addresses. Errors name the field `field`.
    pub(crate) fn read(
        field: &'static str,
        ranges: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let ranges = ranges.into_iter();
        ranges
            .map(|range| read_range(field, range.as_ref()))
            .collect()
    }

    pub(crate) fn are_none(&self) -> bool {
        self.v4.0.is_empty() && self.v6.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.v4.0.len() + self.v6.0.len()
    }

    /// Whether this address is in one of the ranges. An IPv4-mapped address counts as IPv4.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.contain(&address),
            IpAddr::V6(address) => self.v6.contain(&address),
        }
    }

    /// Whether the ranges contain all of these addresses.
    pub(crate) fn contain_all(&self, addresses: &RangeInclusive<IpAddr>) -> bool {
        let ends = [addresses.start(), addresses.end()];
        match ends.map(IpAddr::to_canonical) {
            [IpAddr::V4(first), IpAddr::V4(last)] => self.v4.contain_all(&first, &last),
            [IpAddr::V6(first), IpAddr::V6(last)] => self.v6.contain_all(&first, &last),
            _ => false,
        }
    }
}

/// Both ends of a range must be of the same address family.
impl FromIterator<RangeInclusive<IpAddr>> for AddressRanges {
    fn from_iter<I: IntoIterator<Item = RangeInclusive<IpAddr>>>(ranges: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in ranges {
            match range.into_inner() {
                (IpAddr::V4(first), IpAddr::V4(last)) => v4.push(first..=last),
                (IpAddr::V6(first), IpAddr::V6(last)) => v6.push(first..=last),
                _ => {}
            }
        }
        Self {
            v4: Sorted::new(v4, |v4| {
                v4.to_bits().checked_add(1).map(Ipv4Addr::from_bits)
            }),
            v6: Sorted::new(v6, |v6| {
                v6.to_bits().checked_add(1).map(Ipv6Addr::from_bits)
            }),
        }
    }
}

/// Sorted ranges with a gap between each two. A public block list has tens of thousands, and every
/// request is looked up in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sorted<A>(Vec<RangeInclusive<A>>);

impl<A: Copy + Ord> Sorted<A> {
    /// Two CIDR ranges that overlap are nested. Adjacent ranges are merged.
    fn new(mut ranges: Vec<RangeInclusive<A>>, next: impl Fn(A) -> Option<A>) -> Self {
        // The longest first among those with the same start.
        ranges.sort_unstable_by_key(|range| (*range.start(), Reverse(*range.end())));
        ranges.dedup_by(|range, before| {
            let adjoins = next(*before.end()) == Some(*range.start());
            if adjoins {
                *before = *before.start()..=*range.end();
            }
            adjoins || before.contains(range.start())
        });
        Self(ranges)
    }

    fn contain(&self, address: &A) -> bool {
        self.contain_all(address, address)
    }

    /// Only the last range that starts at or before `first` can contain it and everything up to
    /// `last`.
    fn contain_all(&self, first: &A, last: &A) -> bool {
        let end = self.0.partition_point(|range| range.start() <= first);
        self.0[..end]
            .last()
            .is_some_and(|range| last <= range.end())
    }
}

/// Parses one CIDR range or address. IPv4-mapped addresses are converted to IPv4, since requests
/// are compared as IPv4 where possible.
///
/// Rejects a range with host bits set, such as `10.0.0.7/8`: the whole range may be far more than
/// was meant.
pub(crate) fn read_range(
    field: &'static str,
    text: &str,
) -> Result<RangeInclusive<IpAddr>, ConfigError> {
    match parsed_range(text) {
        Some(range) => whole_range(field, text, range),
        None => Err(ConfigError::malformed(field, text, EXPECTED)),
    }
}

/// Like [`read_range`], for a text that is already parsed.
pub(crate) fn whole_range(
    field: &'static str,
    text: &str,
    range: IpNet,
) -> Result<RangeInclusive<IpAddr>, ConfigError> {
    let (address, whole) = (range.addr(), range.trunc());
    if whole != range {
        let reason = format!("write {whole} for that range, {address} for the one address");
        return Err(ConfigError::malformed(field, text, reason));
    }
    Ok(rewritten(range.network()..=range.broadcast(), |address| {
        address.to_canonical()
    }))
}

/// Parses the address with the standard library: `ipnet` reads `010.0.0.0` as `10.0.0.0`, other
/// programs as `8.0.0.0`.
pub(crate) fn parsed_range(text: &str) -> Option<IpNet> {
    let Some((address, bits)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits = bits.parse().ok().filter(|_| is_number)?;
    IpNet::new(address.parse().ok()?, bits).ok()
}

/// The IPv4 address in an IPv4-mapped address (RFC 4291) or behind NAT64 (RFC 6052).
pub(crate) fn embedded(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        other => other,
    }
}

/// A range of client addresses, each replaced by its [`embedded`] one.
///
/// Not for trusted proxies: a NAT64 address is a client's, whatever IPv4 address it contains. If
/// `10.0.0.0/8` is trusted, `64:ff9b::10.0.0.7` is not.
pub(crate) fn embedded_range(range: RangeInclusive<IpAddr>) -> RangeInclusive<IpAddr> {
    rewritten(range, embedded)
}

/// Converts the ends of a range if both convert to the same family; otherwise the range stays as it
/// is.
fn rewritten(
    range: RangeInclusive<IpAddr>,
    form: impl Fn(IpAddr) -> IpAddr,
) -> RangeInclusive<IpAddr> {
    let (first, last) = (form(*range.start()), form(*range.end()));
    if first.is_ipv4() == last.is_ipv4() {
        first..=last
    } else {
        range
    }
}

#[cfg(test)]
mod tests;
