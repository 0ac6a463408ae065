//! The canonical form of an address: every spelling of one client's address gives one key.

use std::net::{IpAddr, Ipv6Addr};

use crate::address::embedded;
use crate::error::ConfigError;

/// The number of leading bits of an IPv6 address that form the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ipv6Prefix(u8);

/// One subscriber gets at least a /64 and can use all its addresses (RFC 6177).
impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

impl Ipv6Prefix {
    pub(crate) fn new(bits: u8) -> Self {
        Self(bits)
    }

    pub(crate) fn validate(self) -> Result<(), ConfigError> {
        match self.0 {
            32..=128 => Ok(()),
            bits => Err(ConfigError::out_of_range(
                "ipv6_prefix",
                bits,
                "32 to 128 bits",
            )),
        }
    }

    /// The canonical address of all addresses that share a key with this one.
    pub(crate) fn canonical(self, address: IpAddr) -> IpAddr {
        // Convert first, then mask: in the other order every IPv4 client would share one key.
        match embedded(address) {
            IpAddr::V6(v6) if !v6.is_unicast_link_local() && !v6.is_loopback() => {
                self.masked(v6).into()
            }
            whole => whole,
        }
    }

    fn masked(self, address: Ipv6Addr) -> Ipv6Addr {
        let host_bits = 128_u32.saturating_sub(self.0.into());
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        Ipv6Addr::from_bits(address.to_bits() & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_one_client_is_one_address() {
        for (address, canonical) in [
            ("203.0.113.9", "203.0.113.9"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
            ("64:ff9b::203.0.113.9", "203.0.113.9"),
            ("64:ff9b:1::203.0.113.9", "64:ff9b:1::"),
            ("2001:db8:1::7", "2001:db8:1::"),
            ("2001:DB8:1:0:ffff::8", "2001:db8:1::"),
            ("2001:db8:1:1::7", "2001:db8:1:1::"),
            ("fe80::1:2:3:4", "fe80::1:2:3:4"),
            ("febf::1", "febf::1"),
            ("fec0::1", "fec0::"),
            ("::1", "::1"),
            ("::2", "::"),
        ] {
            let found = Ipv6Prefix::default().canonical(address.parse().unwrap());
            assert_eq!(found, canonical.parse::<IpAddr>().unwrap(), "{address}");
        }
    }

    #[test]
    fn the_prefix_is_32_to_128_bits() {
        let address = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        for (bits, network) in [
            (32, "2001:db8::"),
            (56, "2001:db8:1::"),
            (128, "2001:db8:1:2:3:4:5:6"),
        ] {
            let prefix = Ipv6Prefix::new(bits);
            assert!(prefix.validate().is_ok());
            assert_eq!(
                prefix.canonical(address),
                network.parse::<IpAddr>().unwrap()
            );
        }
        for bits in [0, 31, 129, 255] {
            let prefix = Ipv6Prefix::new(bits);
            let refusal = prefix.validate().unwrap_err().to_string();
            assert_eq!(
                refusal,
                format!("ipv6_prefix: got {bits}, expected 32 to 128 bits")
            );
            prefix.canonical(address);
        }
    }
}
