//! How an address may be written, and what is none.

use super::*;

#[test]
fn an_address_may_have_a_port_brackets_a_zone_and_any_case() {
    let network = || client("2001:db8:1::");
    assert_rows(
        &x_forwarded_for(),
        "x-forwarded-for",
        &[
            (&["203.0.113.9:51234"], client("203.0.113.9")),
            (&["203.0.113.9:0"], client("203.0.113.9")),
            (&["203.0.113.9:65535"], client("203.0.113.9")),
            (&["203.0.113.9:00080"], client("203.0.113.9")),
            (&["2001:db8:1::7"], network()),
            (&["[2001:db8:1::7]"], network()),
            (&["[2001:db8:1::7]:443"], network()),
            (&["2001:DB8:1:0:0:0:0:8"], network()),
            (&["2001:db8:1::7%eth0"], network()),
            (&["[2001:db8:1::7%25en1]:443"], network()),
            (&["fe80::7%eth0"], client("fe80::7")),
            (&["::1"], client("::1")),
            (&["::ffff:203.0.113.9"], client("203.0.113.9")),
            (&["[::FFFF:203.0.113.9]:1"], client("203.0.113.9")),
            (&["::ffff:cb00:7109"], client("203.0.113.9")),
            (&["64:ff9b::203.0.113.9"], client("203.0.113.9")),
            // No proxy of 10/8 is behind NAT64, so this is no way to pass for one.
            (&["1.1.1.1, 64:ff9b::10.0.0.7"], client("10.0.0.7")),
        ],
    );
}

#[test]
fn text_that_is_no_address_is_never_repaired() {
    for text in [
        "203.0.113.9:99999",
        "203.0.113.9:65536",
        "203.0.113.9:",
        "203.0.113.9:+80",
        "203.0.113.9:80:80",
        "203.0.113.9:_web",
        "203.0.113.9:000080",
        "203.0.113.9 :80",
        "unknown",
        "_hidden",
        "localhost",
        "010.0.0.1",
        "203.0.113.09",
        "0xcb.0.113.9",
        "3405803785",
        "203.0.113",
        "203.0.113.9.1",
        "203.0.113.256",
        "203.0.113.9/32",
        "a/32",
        "0.0.0.0",
        "0.0.0.0:80",
        "::",
        "[::]",
        "[::]:80",
        "::ffff:0.0.0.0",
        "64:ff9b::",
        "[203.0.113.9]",
        "[203.0.113.9]:80",
        "[2001:db8::7",
        "2001:db8::7]",
        "[2001:db8::7]80",
        "[2001:db8::7]:",
        "[2001:db8::7]:99999",
        "[[2001:db8::7]]",
        "[2001:db8::7]x",
        "[]",
        "[]:80",
        "2001:db8::7::1",
        "2001:db8:00001::7",
        "2001:db8::7%",
        "2001:db8::7%a b",
        "203.0.113.9%eth0",
        "::ffff:010.0.0.1",
        ":80",
        "\"203.0.113.9\"",
        "for=203.0.113.9",
        "203.0.113.9;x",
        "203.0.113.9 1.1.1.1",
        "-203.0.113.9",
        "203.0.113.9\u{a0}",
        "２03.0.113.9",
    ] {
        for (extractor, header) in [
            (x_forwarded_for(), "x-forwarded-for"),
            (single(), "cf-connecting-ip"),
        ] {
            let request = request(tcp(PROXY), header, &[text]);
            assert!(key(&extractor, &request) == unattributed(PROXY), "{text:?}");
        }
    }
}

#[test]
fn bytes_outside_ascii_are_no_address_and_hide_no_client() {
    let extractor = x_forwarded_for();
    let read = |line: &[u8]| key(&extractor, &request(tcp(PROXY), "x-forwarded-for", &[line]));
    assert!(read(b"203.0.113.9\xff") == unattributed(PROXY));
    assert!(read(b"\x80, 10.0.0.7") == unattributed("10.0.0.7"));
    assert!(read(b"\xff\xfe\x80, 203.0.113.9") == client("203.0.113.9"));
}

#[test]
fn ipv6_clients_are_separated_by_the_prefix() {
    let line = ["2001:db8:1:2:3:4:5:6"];
    for (bits, network) in [(32, "2001:db8::"), (48, "2001:db8:1::"), (128, line[0])] {
        let extractor = x_forwarded_for().ipv6_prefix(bits);
        assert!(extractor.validate().is_ok());
        assert_rows(&extractor, "x-forwarded-for", &[(&line, client(network))]);
    }
}
