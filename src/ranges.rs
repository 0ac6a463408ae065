//! `AddressRanges`: addresses, one by one or by the range.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::error::ConfigError;

/// Addresses, one by one or by the range.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AddressRanges(Vec<IpNet>);

impl AddressRanges {
    /// Reads CIDR ranges and single addresses; `field` is what an error calls them.
    pub(crate) fn read(
        field: &'static str,
        ranges: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        ranges
            .into_iter()
            .map(|range| read_range(field, range.as_ref()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether this address lies in one of the ranges, an IPv4-mapped one as the IPv4 one that it is.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|range| range.contains(&address))
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
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_lies_in_them_and_single_addresses_themselves() {
        let ranges = [
            "10.1.2.3/8",
            "192.0.2.1",
            "2001:db8::/32",
            "::ffff:172.16.0.0/108",
        ];
        let ranges = AddressRanges::read("trusted_proxies", ranges).unwrap();
        for (address, expected) in [
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::ffff:192.0.2.1", true),
            ("::ffff:192.0.2.2", false),
            ("172.31.255.255", true),
            ("172.32.0.0", false),
        ] {
            assert_eq!(
                ranges.contain(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn a_range_that_cannot_be_read_is_named() {
        for range in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "10.0.0.0/",
            "/8",
            " 10.0.0.0/8",
            "localhost",
            "010.0.0.0/8",
            "10.0.0.0-10.0.0.9",
            "10.0.0.1:80",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "fe80::1%eth0",
        ] {
            let refusal =
                AddressRanges::read("trusted_proxies", ["10.0.0.0/8", range]).unwrap_err();
            assert_eq!(
                refusal.to_string(),
                format!(
                    "trusted_proxies: got {range:?}: right is a range as 10.0.0.0/8 or \
                     2001:db8::/32, or one address"
                )
            );
        }
    }
}
