//! Whose request it is behind proxies: one row for each thing that a header may say.

use std::net::IpAddr;

use http::{HeaderValue, Request};
use tower_throttle::{ClientAddr, ConfigError, Key, KeyError, KeyExtractor, Peer, RequestHead};

mod addresses;
mod forwarded;
mod hops;
mod properties;
mod reference;

/// The proxies of every test.
const TRUSTED: [&str; 2] = ["10.0.0.0/8", "2001:db8:aaaa::/48"];
const PROXY: &str = "10.0.0.5";

fn x_forwarded_for() -> ClientAddr {
    ClientAddr::x_forwarded_for(TRUSTED).unwrap()
}

fn forwarded() -> ClientAddr {
    ClientAddr::forwarded(TRUSTED).unwrap()
}

fn single() -> ClientAddr {
    ClientAddr::header("CF-Connecting-IP", TRUSTED).unwrap()
}

/// A request from `peer`, with these lines of a header.
fn request(peer: impl Into<Peer>, header: &'static str, lines: &[impl AsRef<[u8]>]) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(peer.into());
    for line in lines {
        let line = HeaderValue::from_bytes(line.as_ref()).unwrap();
        request.headers_mut().append(header, line);
    }
    request
}

fn tcp(address: &str) -> Peer {
    let address: IpAddr = address.parse().unwrap();
    Peer::Address((address, 51_234).into())
}

fn key(extractor: &ClientAddr, request: &Request<()>) -> Key {
    extractor.extract(&RequestHead::new(request)).unwrap()
}

fn client(address: &str) -> Key {
    Key::address(address.parse().unwrap())
}

fn unattributed(last_hop: &str) -> Key {
    Key::unattributed(last_hop.parse().unwrap())
}

/// Checks a table of header lines and keys against an extractor, behind the proxy.
fn assert_rows(extractor: &ClientAddr, header: &'static str, rows: &[(&[&str], Key)]) {
    for (lines, expected) in rows {
        let found = key(extractor, &request(tcp(PROXY), header, lines));
        assert!(found == *expected, "{header}: {lines:?}");
    }
}

#[test]
fn x_forwarded_for_is_read_from_the_right_to_the_first_client() {
    assert_rows(
        &x_forwarded_for(),
        "x-forwarded-for",
        &[
            (&["203.0.113.9"], client("203.0.113.9")),
            (&["1.1.1.1, 203.0.113.9"], client("203.0.113.9")),
            (&["1.1.1.1", "203.0.113.9"], client("203.0.113.9")),
            (&["203.0.113.9, 10.0.0.7"], client("203.0.113.9")),
            (&["203.0.113.9", "10.0.0.7"], client("203.0.113.9")),
            (&["203.0.113.9,10.0.0.8,,10.0.0.7"], client("203.0.113.9")),
            (&["203.0.113.9, 2001:db8:aaaa::1"], client("203.0.113.9")),
            (&["203.0.113.9, ::ffff:10.0.0.7"], client("203.0.113.9")),
            (&[" \t203.0.113.9\t ,", "", " , "], client("203.0.113.9")),
            (&["unknown, 203.0.113.9"], client("203.0.113.9")),
            (&["\"1.1.1.1, 203.0.113.9"], client("203.0.113.9")),
            (&["127.0.0.1"], client("127.0.0.1")),
            (&["11.0.0.1, 10.0.0.7"], client("11.0.0.1")),
        ],
    );
}

#[test]
fn requests_without_a_client_use_the_last_trusted_hop() {
    assert_rows(
        &x_forwarded_for(),
        "x-forwarded-for",
        &[
            (&[], unattributed(PROXY)),
            (&[""], unattributed(PROXY)),
            (&[", ,"], unattributed(PROXY)),
            (&["", " \t "], unattributed(PROXY)),
            (&["10.0.0.8, 10.0.0.7"], unattributed("10.0.0.8")),
            (&["10.0.0.8", "10.0.0.7"], unattributed("10.0.0.8")),
            (&["1.1.1.1, unknown"], unattributed(PROXY)),
            (&["1.1.1.1, unknown, 10.0.0.7"], unattributed("10.0.0.7")),
            (
                &["1.1.1.1", "unknown", "10.0.0.7"],
                unattributed("10.0.0.7"),
            ),
            (&["::ffff:10.0.0.8"], unattributed("10.0.0.8")),
        ],
    );
}

#[test]
fn a_peer_that_is_no_proxy_is_the_client_whatever_it_writes() {
    for extractor in [x_forwarded_for(), x_forwarded_for().trusted_hops(1)] {
        for (peer, expected) in [
            ("203.0.113.9", "203.0.113.9"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
            ("64:ff9b::203.0.113.9", "203.0.113.9"),
            ("2001:db8:1::7", "2001:db8:1::"),
            ("::1", "::1"),
        ] {
            for line in ["1.1.1.1", "10.0.0.7", "unknown"] {
                let request = request(tcp(peer), "x-forwarded-for", &[line]);
                assert!(
                    key(&extractor, &request) == client(expected),
                    "{peer}, {line}"
                );
            }
        }
    }
}

#[test]
fn a_proxy_on_a_dual_stack_socket_is_the_same_proxy() {
    let request = request(tcp("::ffff:10.0.0.5"), "x-forwarded-for", &["203.0.113.9"]);
    assert!(key(&x_forwarded_for(), &request) == client("203.0.113.9"));
}

#[test]
fn a_unix_socket_is_a_proxy_without_an_address() {
    let read = |lines: &[&str]| {
        let request = request(Peer::UnixSocket, "x-forwarded-for", lines);
        key(&x_forwarded_for(), &request)
    };
    assert!(read(&["1.1.1.1, 203.0.113.9"]) == client("203.0.113.9"));
    assert!(read(&["10.0.0.8"]) == unattributed("10.0.0.8"));
    assert!(read(&[]) == unattributed("0.0.0.0"));
}

#[test]
fn sixty_four_entries_are_read_and_no_more() {
    let hops = |count| vec!["10.0.0.7"; count].join(",");
    let junk = "x,".repeat(10_000);
    let many_lines: Vec<String> = (0..70).map(|_| hops(1)).collect();
    for (extractor, header, element) in [
        (x_forwarded_for(), "x-forwarded-for", ""),
        (forwarded(), "forwarded", "for="),
    ] {
        let read = |lines: &[String]| {
            let lines: Vec<_> = lines
                .iter()
                .map(|line| line.replace("10.0.0.7", &format!("{element}10.0.0.7")))
                .collect();
            key(&extractor, &request(tcp(PROXY), header, &lines))
        };
        let found = client("203.0.113.9");
        assert!(read(&[format!("{junk}, {element}203.0.113.9")]) == found);
        assert!(read(&[format!("{element}203.0.113.9,{}", hops(63))]) == found);
        assert!(read(&[format!("{element}203.0.113.9"), hops(40), hops(23)]) == found);
        let nobody = unattributed("10.0.0.7");
        assert!(read(&[format!("{element}203.0.113.9,{}", hops(64))]) == nobody);
        assert!(read(&[format!("{element}203.0.113.9"), hops(40), hops(24)]) == nobody);
        assert!(read(&many_lines) == nobody);
        // Empty entries are read too.
        let commas = ",".repeat(64);
        assert!(read(&[format!("{element}203.0.113.9{commas}")]) == unattributed(PROXY));
        let fewer = ",".repeat(63);
        assert!(read(&[format!("{element}203.0.113.9{fewer}")]) == found);
    }
}

#[test]
fn a_header_of_one_address_holds_one_and_is_sent_once() {
    assert_rows(
        &single(),
        "cf-connecting-ip",
        &[
            (&["203.0.113.9"], client("203.0.113.9")),
            (&[" 2001:db8:1::7 "], client("2001:db8:1::")),
            (&["10.0.0.8"], unattributed("10.0.0.8")),
            (&[], unattributed(PROXY)),
            (&[""], unattributed(PROXY)),
            (&["1.1.1.1, 203.0.113.9"], unattributed(PROXY)),
            (&["203.0.113.9,"], unattributed(PROXY)),
            (&["203.0.113.9", "203.0.113.9"], unattributed(PROXY)),
            (&["", "203.0.113.9"], unattributed(PROXY)),
        ],
    );
    let anybody = ClientAddr::header("cf-connecting-ip", ["0.0.0.0/0", "::/0"]).unwrap();
    let set = (&["203.0.113.9"][..], client("203.0.113.9"));
    assert_rows(&anybody.trusted_hops(1), "cf-connecting-ip", &[set]);
}

#[test]
fn only_the_configured_header_is_consulted() {
    let mut request = request(tcp(PROXY), "forwarded", &["for=203.0.113.9"]);
    let headers = request.headers_mut();
    headers.insert("x-real-ip", HeaderValue::from_static("203.0.113.9"));
    headers.insert("cf-connecting-ip", HeaderValue::from_static("203.0.113.9"));
    assert!(key(&x_forwarded_for(), &request) == unattributed(PROXY));
    assert!(key(&forwarded(), &request) == client("203.0.113.9"));
}

#[test]
fn invalid_settings_are_refused_with_the_remedy() {
    let refusal = |extractor: ClientAddr| extractor.validate().unwrap_err().to_string();
    assert_eq!(
        refusal(x_forwarded_for().ipv6_prefix(24)),
        "ipv6_prefix: got 24, expected 32 to 128 bits"
    );
    for hops in [0, 65, usize::MAX] {
        assert_eq!(
            refusal(forwarded().trusted_hops(hops)),
            format!("trusted_hops: got {hops}, expected 1 to 64")
        );
    }
    assert_eq!(
        refusal(single().trusted_hops(2)),
        "trusted_hops: got 2, expected 1 for a header that holds one address"
    );
    let refusal = ClientAddr::x_forwarded_for(["10.0.0.0/8", "10.0.0.0/40"]).unwrap_err();
    assert!(
        refusal
            .to_string()
            .starts_with("trusted_proxies: got \"10.0.0.0/40\": ")
    );
    let refusal = ClientAddr::header("cf connecting ip", TRUSTED).unwrap_err();
    assert!(
        refusal
            .to_string()
            .starts_with("header: got \"cf connecting ip\": ")
    );
}

/// A request whose address is missing is on no list. One whose address cannot be read is refused if
/// addresses are denied.
#[test]
fn absent_and_unreadable_headers_differ() {
    let address = |lines: &[&str]| {
        let request = request(tcp(PROXY), "cf-connecting-ip", lines);
        tower_throttle::AddressExtractor::address(&single(), &RequestHead::new(&request))
    };
    assert_eq!(address(&[]), Err(KeyError::Missing));
    assert_eq!(
        address(&["198.51.100.1, 198.51.100.2"]),
        Err(KeyError::Malformed)
    );
}

/// Nearly all requests would be unattributed, and share one quota.
#[test]
fn a_list_is_not_read_as_one_address() {
    for (name, reader) in [
        ("X-Forwarded-For", "ClientAddr::x_forwarded_for"),
        ("forwarded", "ClientAddr::forwarded"),
    ] {
        let refusal = ClientAddr::header(name, TRUSTED).unwrap_err().to_string();
        assert!(refusal.contains(&format!("{name:?}")), "{refusal}");
        assert!(refusal.contains(reader), "{refusal}");
    }
}

/// Otherwise clients could choose whose quota they use: each address they make up is a proxy's.
#[test]
fn trusting_every_address_needs_trusted_hops() {
    type Make = fn(&[&'static str]) -> Result<ClientAddr, ConfigError>;
    let each: [Make; 3] = [
        |trusted| ClientAddr::x_forwarded_for(trusted),
        |trusted| ClientAddr::forwarded(trusted),
        |trusted| ClientAddr::header("cf-connecting-ip", trusted),
    ];
    for make in each {
        for (trusted, named) in [
            (&["0.0.0.0/0", "::/0"][..], "0.0.0.0/0"),
            (&["10.0.0.0/8", "::/0"], "::/0"),
            (&["::ffff:0:0/96"], "0.0.0.0/0"),
            (&["128.0.0.0/1", "0.0.0.0/1"], "0.0.0.0/0"),
            (&["8000::/1", "4000::/2", "::/2"], "::/0"),
        ] {
            let trusting = make(trusted).unwrap();
            assert_eq!(
                trusting.validate().unwrap_err().to_string(),
                format!(
                    "trusted_proxies: got {named:?}: if all addresses are trusted, clients choose \
                     their own address; list the proxies' addresses, or count the proxies with \
                     trusted_hops"
                )
            );
            assert_eq!(trusting.trusted_hops(1).validate(), Ok(()));
        }
        let most = make(&["0.0.0.0/1", "8000::/1"]).unwrap();
        assert_eq!(most.validate(), Ok(()));
    }
}

#[test]
fn a_request_without_peer_is_a_server_error_not_a_shared_key() {
    let request = Request::builder()
        .header("x-forwarded-for", "203.0.113.9")
        .body(())
        .unwrap();
    let error = x_forwarded_for().extract(&RequestHead::new(&request));
    assert!(matches!(error, Err(KeyError::Misconfigured(_))));
}
