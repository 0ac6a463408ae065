use std::cell::Cell;
use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;

#[test]
fn ranges_hold_what_lies_in_them_and_single_addresses_themselves() {
    let ranges = [
        "10.0.0.0/8",
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
        let refusal = AddressRanges::read("trusted_proxies", ["10.0.0.0/8", range]).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!(
                "trusted_proxies: got {range:?}: expected a range such as 10.0.0.0/8 or \
                 2001:db8::/32, or one address"
            )
        );
    }
}

/// Who writes so may mean the one address, and would trust, or refuse, all of its network.
#[test]
fn a_range_that_does_not_begin_with_its_first_address_is_refused() {
    for (range, whole, address) in [
        ("203.0.113.9/24", "203.0.113.0/24", "203.0.113.9"),
        ("10.0.0.1/0", "0.0.0.0/0", "10.0.0.1"),
        ("2001:db8::7/64", "2001:db8::/64", "2001:db8::7"),
        (
            "::ffff:10.0.0.1/104",
            "::ffff:10.0.0.0/104",
            "::ffff:10.0.0.1",
        ),
    ] {
        let refusal = AddressRanges::read("addresses", [range]).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!(
                "addresses: got {range:?}: write {whole} for that range, {address} for the one \
                 address"
            )
        );
        AddressRanges::read("addresses", [whole, address]).unwrap();
    }
    AddressRanges::read("addresses", ["203.0.113.9/32", "2001:db8::7/128"]).unwrap();
}

#[test]
fn a_range_within_another_is_not_kept() {
    let ranges = [
        "10.1.0.0/16",
        "192.0.2.1",
        "10.0.0.0/16",
        "10.0.0.0/8",
        "2001:db8:1::/48",
        "10.1.2.3",
        "192.0.2.1",
        "2001:db8::/32",
        "::ffff:10.2.0.0/112",
    ];
    let given = AddressRanges::read("addresses", ranges).unwrap();
    let kept = ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32"];
    assert_eq!(given, AddressRanges::read("addresses", kept).unwrap());
    assert_eq!((given.v4.0.len(), given.v6.0.len()), (2, 1));
}

#[test]
fn ranges_that_adjoin_are_one() {
    let adjoining = ["10.64.0.0/10", "10.128.0.0/9", "10.0.0.0/10", "10.1.2.3"];
    let given = AddressRanges::read("addresses", adjoining).unwrap();
    assert_eq!(
        given,
        AddressRanges::read("addresses", ["10.0.0.0/8"]).unwrap()
    );
    let ends = AddressRanges::read("addresses", ["255.255.255.255", "0.0.0.0"]).unwrap();
    assert_eq!(ends.v4.0.len(), 2);
}

#[test]
fn a_range_lies_within_others_when_they_have_all_of_it() {
    let ranges = [
        "10.128.0.0/9",
        "10.0.0.0/9",
        "192.0.2.0/25",
        "192.0.2.192/26",
        "2001:db8::/32",
    ];
    let ranges = AddressRanges::read("trusted_proxies", ranges).unwrap();
    for (range, expected) in [
        ("10.1.2.3", true),
        ("10.0.0.0/8", true),
        ("10.255.0.0/16", true),
        ("::ffff:10.3.0.0/112", true),
        ("10.0.0.0/7", false),
        ("11.0.0.0/8", false),
        ("0.0.0.0/0", false),
        ("192.0.2.0/24", false),
        ("192.0.2.128/26", false),
        ("192.0.2.192/27", true),
        ("2001:db8:7::/48", true),
        ("2001:db8::/31", false),
        ("::/0", false),
        ("::/1", false),
        ("64:ff9b::10.0.0.7", false),
    ] {
        let read = read_range("addresses", range).unwrap();
        assert_eq!(ranges.contain_all(&read), expected, "{range}");
    }
}

#[test]
fn a_range_is_one_of_ipv4_where_all_of_it_is_embedded() {
    for (range, form) in [
        ("64:ff9b::203.0.113.9", "203.0.113.9"),
        ("64:ff9b::cb00:0/112", "203.0.0.0/16"),
        ("64:ff9b::/96", "0.0.0.0/0"),
        ("64:ff9b::/95", "64:ff9b::/95"),
        ("64:ff9b:1::/96", "64:ff9b:1::/96"),
        ("::ffff:203.0.113.0/120", "203.0.113.0/24"),
        ("::fffe:0:0/95", "::fffe:0:0/95"),
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::/0", "::/0"),
    ] {
        let read = |text| read_range("addresses", text).unwrap();
        assert_eq!(embedded_range(read(range)), read(form), "{range}");
        let trusted = AddressRanges::read("trusted_proxies", [range]).unwrap();
        let is_nat64 = range.starts_with("64:ff9b::") && form.contains('.');
        let first = *read(form).start();
        assert_eq!(
            trusted.contain(first),
            !is_nat64,
            "{range} as it is trusted"
        );
    }
}

/// An address that counts how often it is compared with another.
#[derive(Clone, Copy)]
struct Compared<'a> {
    bits: u32,
    times: &'a Cell<u32>,
}

impl Ord for Compared<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.times.set(self.times.get() + 1);
        self.bits.cmp(&other.bits)
    }
}

impl PartialOrd for Compared<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Compared<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Compared<'_> {}

/// With almost 2^16 ranges: sixteen steps of binary search, and a comparison or two for what is
/// left.
#[test]
fn an_address_is_looked_up_by_halves_however_many_ranges_there_are() {
    let times = Cell::new(0);
    let address = |bits| Compared {
        bits,
        times: &times,
    };
    let ranges = (0..60_000).map(|number| address(4 * number)..=address(4 * number + 1));
    let ranges = Sorted::new(ranges.collect(), |_| None);
    assert_eq!(ranges.0.len(), 60_000);
    for bits in (0..240_000).step_by(997) {
        times.set(0);
        assert_eq!(ranges.contain(&address(bits)), bits % 4 <= 1, "{bits}");
        assert!(times.get() <= 20, "{} looks", times.get());
    }
}

/// Addresses from so small a set that ranges of them overlap, adjoin and reach either end.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![0..64_u32, 1_000..1_064_u32, (u32::MAX - 63)..=u32::MAX];
    let v6 = prop_oneof![0..64_u128, 1_000..1_064_u128, (u128::MAX - 63)..=u128::MAX];
    prop_oneof![
        v4.clone().prop_map(|bits| Ipv4Addr::from(bits).into()),
        v4.prop_map(|bits| Ipv4Addr::from(bits).to_ipv6_mapped().into()),
        v6.prop_map(|bits| Ipv6Addr::from(bits).into()),
    ]
}

/// Single addresses, small ranges, and now and then one of nearly all addresses of its family.
fn range() -> impl Strategy<Value = String> {
    let short_by = prop_oneof![4 => Just(0_u8), 12 => 1..6_u8, 1 => 20..=32_u8, 1 => Just(128)];
    (address(), short_by).prop_map(|(address, short_by)| {
        let longest: u8 = if address.is_ipv4() { 32 } else { 128 };
        let range = IpNet::new(address, longest.saturating_sub(short_by));
        range.unwrap().trunc().to_string()
    })
}

/// By the numbers: the first 96 bits are those of all IPv4-mapped addresses.
fn unmapped(range: IpNet) -> IpNet {
    match range {
        IpNet::V6(v6) if v6.prefix_len() >= 96 && v6.addr().to_bits() >> 32 == 0xffff => {
            let address = Ipv4Addr::from_bits(v6.addr().to_bits() as u32);
            IpNet::new(address.into(), v6.prefix_len() - 96).unwrap()
        }
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_address_is_found_where_it_lies_in_any_of_the_ranges(
        texts in prop::collection::vec(range(), 0..12),
        addresses in prop::collection::vec(address(), 32),
    ) {
        let ranges = AddressRanges::read("addresses", &texts).unwrap();
        let each: Vec<_> = texts.iter().map(|text| unmapped(text.parse().unwrap())).collect();
        let edges = each.iter().flat_map(|range| [range.network(), range.broadcast()]);
        for address in addresses.iter().copied().chain(edges) {
            let canonical = address.to_canonical();
            let expected = each.iter().any(|range| range.contains(&canonical));
            prop_assert_eq!(ranges.contain(address), expected, "{} in {:?}", address, texts);
        }
        for range in &texts {
            prop_assert!(ranges.contain_all(&read_range("addresses", range).unwrap()), "{}", range);
        }
    }
}
