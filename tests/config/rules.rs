//! `mode`, `exempt`, `skip_preflights`, `deny`, `allow` and `rejection`.

use std::net::SocketAddr;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use tower_throttle::UserId;
use tower_throttle::{Mode, Peer};

use super::{answers, layer, read, refusal, with_field};

/// One request an hour for everybody together.
const ONE: &str = "[[policy]]\nname = \"client\"\nalgorithm = \"fixed-window\"\nlimit = \"1/h\"\n";

fn file(head: &str, key: &str) -> String {
    format!("store = \"memory\"\n{head}\n{ONE}key = {key:?}\n")
}

fn request(method: Method, path: &str) -> Request<()> {
    let request = Request::builder().method(method).uri(path);
    request.body(()).unwrap()
}

fn get(path: &str) -> Request<()> {
    request(Method::GET, path)
}

fn from(mut request: Request<()>, peer: &str) -> Request<()> {
    let peer = SocketAddr::new(peer.parse().unwrap(), 40_000);
    request.extensions_mut().insert(Peer::from(peer));
    request
}

#[tokio::test]
async fn a_policy_has_the_mode_that_the_file_says() {
    for &mode in Mode::ALL {
        let config = read(&with_field(&format!("mode = \"{mode}\"")));
        let limiter = config.connect().await.unwrap();
        assert_eq!(limiter.mode("client").unwrap(), mode);
    }
}

#[tokio::test]
async fn exempt_requests_pass_and_are_not_counted() {
    for exempt in ["\"GET /health\"", "[\"/metrics\", \"GET /health\"]"] {
        let layer = layer(&file(&format!("exempt = {exempt}"), "everybody"));
        for _ in 0..3 {
            assert_eq!(answers(&layer, get("/health")).await.status(), 200);
        }
        assert_eq!(answers(&layer, get("/")).await.status(), 200);
        assert_eq!(answers(&layer, get("/")).await.status(), 429);
        let other = request(Method::POST, "/health");
        assert_eq!(answers(&layer, other).await.status(), 429);
    }
}

#[tokio::test]
async fn preflights_pass_where_the_file_says_so() {
    for (field, status) in [
        ("skip_preflights = true", 200),
        ("skip_preflights = false", 429),
    ] {
        let layer = layer(&file(field, "everybody"));
        assert_eq!(answers(&layer, get("/")).await.status(), 200);
        let mut preflight = request(Method::OPTIONS, "/");
        let headers = preflight.headers_mut();
        headers.insert("origin", "https://example.com".parse().unwrap());
        headers.insert("access-control-request-method", "PUT".parse().unwrap());
        assert_eq!(answers(&layer, preflight).await.status(), status, "{field}");
    }
}

#[tokio::test]
async fn addresses_on_the_lists_are_refused_or_let_through() {
    let lists = "deny = [\"203.0.113.0/24\", \"2001:db8::1\"]\nallow = [\"198.51.100.7\"]";
    let layer = layer(&file(lists, "everybody"));
    for peer in ["203.0.113.9", "2001:db8::1", "::ffff:203.0.113.9"] {
        let response = answers(&layer, from(get("/"), peer)).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{peer}");
    }
    for (peer, status) in [
        ("198.51.100.7", 200),
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        ("198.51.100.7", 200),
    ] {
        let response = answers(&layer, from(get("/"), peer)).await;
        assert_eq!(response.status(), status, "{peer}");
    }
}

/// Otherwise a listed client would only have to claim that somebody else is asking.
#[tokio::test]
async fn listed_addresses_match_the_client_behind_proxies() {
    let head = "trusted_proxies = [\"10.0.0.0/8\"]\ndeny = [\"203.0.113.9\"]";
    let layer = layer(&file(head, "everybody"));
    for (peer, told, status) in [
        ("10.0.0.1", "203.0.113.9", 403),
        ("10.0.0.1", "192.0.2.1", 200),
        ("203.0.113.9", "192.0.2.1", 403),
    ] {
        let mut request = from(get("/"), peer);
        let header = told.parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", header);
        let response = answers(&layer, request).await;
        assert_eq!(response.status(), status, "{told} by {peer}");
    }
}

#[test]
fn a_listed_address_of_a_proxy_is_refused_in_its_line() {
    for list in ["deny", "allow"] {
        for range in ["10.1.2.3", "10.3.0.0/16"] {
            let lists = format!(
                "trusted_proxies = [\"10.0.0.0/8\"]\n{list} = [\n\"203.0.113.9\",\n{range:?}]"
            );
            assert_eq!(
                refusal(&file(&lists, "everybody")),
                format!(
                    "line 5: {list}: got {range:?}: lies within the trusted proxies, so no client \
                     can have it"
                )
            );
            read(&file(&format!("{lists}\ntrusted_hops = 1"), "everybody"));
        }
    }
}

#[tokio::test]
async fn listed_addresses_may_be_like_proxies_where_these_are_counted() {
    let lists = "trusted_proxies = [\"10.0.0.0/8\"]\ntrusted_hops = 1\ndeny = [\"10.3.0.0/16\"]";
    let layer = layer(&file(lists, "everybody"));
    for (told, status) in [("10.3.7.7", 403), ("10.4.7.7", 200)] {
        let mut request = from(get("/"), "10.0.0.1");
        let header = told.parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", header);
        assert_eq!(answers(&layer, request).await.status(), status, "{told}");
    }
}

/// An entry that matches nobody would be copied and relied on.
#[tokio::test]
async fn every_entry_of_the_documented_lists_matches_somebody() {
    let page = include_str!("../../docs/configuration.md");
    let (_, page) = page.split_once("```toml\n").unwrap();
    let (file, _) = page.split_once("```").unwrap();
    let own = |line: &&str| !line.starts_with("store =") && !line.starts_with("secret =");
    let lines: Vec<_> = file.lines().filter(own).collect();
    let file = format!("store = \"memory\"\n{}", lines.join("\n"));
    let layer = layer(&file);
    let limited_is_told = async |header: &str, value: &str| {
        let mut request = from(get("/"), "10.0.0.1");
        let header: http::HeaderName = header.parse().unwrap();
        request.headers_mut().insert(header, value.parse().unwrap());
        let response = answers(&layer, request).await;
        let is_told = response.headers().contains_key("ratelimit");
        (response.status().as_u16(), is_told)
    };
    assert_eq!(
        limited_is_told("x-forwarded-for", "192.0.2.1").await,
        (200, true)
    );
    let file: toml::Table = file.parse().unwrap();
    let mut entries = 0;
    for (list, answer) in [("deny", (403, false)), ("allow", (200, false))] {
        for entry in file[list].as_array().unwrap() {
            let (header, values) = match entry.as_str() {
                Some(range) => ("x-forwarded-for", vec![range.split('/').next().unwrap()]),
                None => {
                    let header = entry["key"].as_str().unwrap().strip_prefix("header:");
                    let values = entry["values"].as_array().unwrap().iter();
                    (
                        header.unwrap(),
                        values.map(|value| value.as_str().unwrap()).collect(),
                    )
                }
            };
            for value in values {
                assert_eq!(
                    limited_is_told(header, value).await,
                    answer,
                    "{list}: {value}"
                );
                entries += 1;
            }
        }
    }
    assert!(entries >= 3);
}

#[tokio::test]
async fn tenants_are_separated_by_host_wherever_it_is() {
    let layer = layer(&file("", "host"));
    let over_http_1 = |host: &str| {
        let mut request = get("/");
        let field = host.parse().unwrap();
        request.headers_mut().insert("host", field);
        request
    };
    let over_http_2 = |host: &str| get(&format!("http://{host}/"));
    for (request, status) in [
        (over_http_1("acme.example.com"), 200),
        (over_http_2("acme.example.com:8080"), 429),
        (over_http_2("zenith.example.com"), 200),
        (over_http_1("ZENITH.example.com"), 429),
    ] {
        let answered = answers(&layer, request).await.status();
        assert_eq!(answered, status);
    }
}

#[tokio::test]
async fn clients_are_separated_by_the_files_hops_and_prefix() {
    let head = "trusted_proxies = [\"0.0.0.0/0\", \"::/0\"]\ntrusted_hops = 2";
    let layer = layer(&file(head, "client-addr"));
    for (told, status) in [
        ("192.0.2.1, 10.0.0.1", 200),
        ("198.51.100.1, 192.0.2.1, 10.0.0.1", 429),
        ("192.0.2.2, 10.0.0.1", 200),
    ] {
        let mut request = from(get("/"), "10.0.0.2");
        let header = told.parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", header);
        assert_eq!(answers(&layer, request).await.status(), status, "{told}");
    }
    for key in ["client-addr", "peer"] {
        for (prefix, status) in [("", 200), ("ipv6_prefix = 56", 429)] {
            let layer = super::layer(&file(prefix, key));
            let first = from(get("/"), "2001:db8::1");
            assert_eq!(answers(&layer, first).await.status(), 200);
            let neighbour = from(get("/"), "2001:db8:0:1::1");
            assert_eq!(
                answers(&layer, neighbour).await.status(),
                status,
                "{key} {prefix}"
            );
        }
    }
}

#[tokio::test]
async fn values_of_a_key_are_refused_or_let_through() {
    for (denied, key) in [("header:X-User", "header:x-user"), ("user", "user")] {
        let lists = format!(
            "deny = [{{ key = {denied:?}, values = \"mallory\" }}]\n\
             allow = [{{ key = {key:?}, values = [\"alice\", \"bob\"] }}]"
        );
        let layer = layer(&file(&lists, key));
        for (user, status) in [
            ("mallory", 403),
            ("alice", 200),
            ("alice", 200),
            ("bob", 200),
            ("carol", 200),
            ("carol", 429),
        ] {
            let mut request = get("/");
            match key {
                "user" => drop(request.extensions_mut().insert(UserId::new(user))),
                _ => drop(
                    request
                        .headers_mut()
                        .insert("x-user", user.parse().unwrap()),
                ),
            }
            let answered = answers(&layer, request).await.status();
            assert_eq!(answered, status, "{user} by {key}");
        }
    }
}

/// However the file and the client write it.
#[tokio::test]
async fn hosts_are_refused_or_let_through_or_have_a_tier() {
    let lists = "deny = [{ key = \"host\", values = [\"Mallory.example.com\"] }]\n\
                 allow = [{ key = \"host\", values = [\"alice.example.com.\", \"[2001:DB8::1]\"] }]";
    let tiers = "tiers = [{ values = [\"Gold.example.com\"], limit = \"2/h\" }]";
    let layer = layer(&format!("{}{tiers}\n", file(lists, "host")));
    for (host, status) in [
        ("mallory.example.com:8080", 403),
        ("MALLORY.example.com.", 403),
        ("Alice.example.com", 200),
        ("alice.example.com", 200),
        ("[2001:db8:0::1]:80", 200),
        ("[2001:db8::1]", 200),
        ("carol.example.com", 200),
        ("carol.example.com", 429),
        ("gold.example.com", 200),
        ("gold.example.com:80", 200),
        ("gold.example.com", 429),
        // It might be Mallory's.
        ("mallory.example.com..", 400),
    ] {
        let mut request = get("/");
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(answers(&layer, request).await.status(), status, "{host}");
    }
}

#[test]
fn a_list_that_makes_no_sense_is_refused_in_its_line() {
    let expected = "expected a list of addresses, ranges and values of keys, such as ";
    for (list, refused) in [
        ("\"10.0.0.1\"", format!("line 2: deny: {expected}")),
        (
            "[\n\"10.0.0.1\",\n\"10.0.0.0/33\"]",
            format!("line 4: deny: {expected}"),
        ),
        (
            "[\"203.0.113.9/24\"]",
            "line 2: deny: got \"203.0.113.9/24\": write 203.0.113.0/24 for that range, \
             203.0.113.9 for the one address"
                .to_owned(),
        ),
        ("[5]", format!("line 2: deny: {expected}")),
        ("[8271936451]", format!("line 2: deny: {expected}")),
        ("[\"8271936451\"]", format!("line 2: deny: {expected}")),
        (
            "[{}]",
            "line 2: deny.key: is missing, write key = ".to_owned(),
        ),
        (
            "[{ key = \"peer\", values = [\"::1\"] }]",
            "line 2: deny.key: got \"peer\", expected \"header:<name>\", \"host\" or \"user\", \
             as it is the key of a policy"
                .to_owned(),
        ),
        (
            "[{ key = \"user\", values = [\"mallory\"] }]",
            "line 2: deny.key: no policy has the key \"user\", so the list would match nobody"
                .to_owned(),
        ),
        (
            "[{ key = \"header:x-user\", values = [] }]",
            "line 2: deny.values: the list is empty, so it matches nobody; leave it out".to_owned(),
        ),
        (
            "[{ key = \"header:x-user\", values = [\"hunter2 \"] }]",
            "line 2: deny.values: a value is empty or has spaces around it, which no key has"
                .to_owned(),
        ),
        (
            "[{ key = \"header:x-user\", values = [\"\"] }]",
            "line 2: deny.values: a value is empty or has spaces around it, which no key has"
                .to_owned(),
        ),
        (
            "[{ key = \"header:x-user\", values = [\"hunter\\u00002\"] }]",
            "line 2: deny.values: a value contains a character that no header can carry".to_owned(),
        ),
        (
            "[{ key = \"header:x-user\", values = [8271936451] }]",
            "line 2: deny.values: expected a list of strings, such as [\"mallory\"]".to_owned(),
        ),
        (
            "[{ header = \"x-user\" }]",
            "line 2: deny.header: is not a field here, expected one of key, values".to_owned(),
        ),
    ] {
        let refusal = refusal(&file(&format!("deny = {list}"), "header:x-user"));
        assert!(refusal.starts_with(&refused), "{refusal}");
        assert!(!refusal.contains("8271936451"), "{refusal}");
        let other = refusal.replace("deny", "allow");
        let refusal = super::refusal(&file(&format!("allow = {list}"), "header:x-user"));
        assert_eq!(refusal, other);
    }
}

#[tokio::test]
async fn a_rejection_has_the_body_that_the_file_says() {
    for (field, media_type, start) in [
        ("", "application/problem+json", "{\"type\":"),
        (
            "rejection = \"problem-json\"",
            "application/problem+json",
            "{\"type\":",
        ),
        (
            "rejection = \"plain-text\"",
            "text/plain; charset=utf-8",
            "policy \"client\":",
        ),
    ] {
        let layer = layer(&file(field, "everybody"));
        assert_eq!(answers(&layer, get("/")).await.status(), 200);
        let denied = answers(&layer, get("/")).await;
        assert_eq!(denied.headers()["content-type"], media_type);
        let body = denied.into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(start.as_bytes()), "{body:?}");
    }
}

#[test]
fn words_that_do_not_exist_are_refused() {
    for (field, refused) in [
        (
            "rejection = \"html\"",
            "rejection: got \"html\", expected one of \"problem-json\", \"plain-text\"",
        ),
        (
            "skip_preflights = \"yes\"",
            "skip_preflights: got \"yes\", expected true or false",
        ),
        (
            "exempt = []",
            "exempt: the list is empty, so nothing is exempt; leave the field out",
        ),
        ("exempt = 5", "exempt: got 5, expected a route, such as "),
    ] {
        let refusal = refusal(&file(field, "everybody"));
        assert!(
            refusal.starts_with(&format!("line 2: {refused}")),
            "{refusal}"
        );
    }
}
