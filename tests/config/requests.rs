//! What is read of requests: `key`, `cost`, `on`, `trusted_proxies`, `client_address`, `trusted_hops`
//! and `ipv6_prefix`.

use tower_throttle::Config;

use super::{refusal, refusal_of};

#[test]
fn a_key_that_makes_no_sense_is_refused() {
    let refused = refusal_of("key = \"header:x user\"");
    assert!(
        refused.starts_with("line 4: policy \"client\": key: "),
        "{refused}"
    );
    assert!(refused.contains("\"x user\""), "{refused}");
    let refused = refusal_of("key = []");
    assert!(
        refused.starts_with("line 4: policy \"client\": key: the list is empty"),
        "{refused}"
    );
    let refused = refusal_of("key = [\n  \"peer\",\n  \"header:\",\n]");
    assert!(
        refused.starts_with("line 6: policy \"client\": key: "),
        "{refused}"
    );
    let refused = refusal_of("key = [[\"peer\"]]");
    assert!(
        refused.starts_with("line 4: policy \"client\": key: got a list, expected"),
        "{refused}"
    );
}

#[test]
fn a_cost_that_no_header_can_state_is_refused() {
    for (cost, refused) in [
        ("header:x cost", "line 4: policy \"client\": cost: "),
        (
            "x-cost",
            "line 4: policy \"client\": cost: got \"x-cost\", expected ",
        ),
    ] {
        let refusal = refusal_of(&format!("cost = {cost:?}"));
        assert!(refusal.starts_with(refused), "{refusal}");
    }
}

#[test]
fn proxies_that_cannot_be_read_are_refused_in_their_line() {
    let refused = refusal(
        "store = \"memory\"\ntrusted_proxies = [\n  \"10.0.0.0/8\",\n  \"10.0.0.0/33\",\n]",
    );
    assert!(
        refused.starts_with("line 4: trusted_proxies: got \"10.0.0.0/33\""),
        "{refused}"
    );
    assert!(refused.contains("\"10.0.0.0/33\""), "{refused}");
    let refused = refusal("store = \"memory\"\ntrusted_proxies = \"10.0.0.0/8\"");
    assert!(
        refused.starts_with("line 2: trusted_proxies: got \"10.0.0.0/8\", expected a list"),
        "{refused}"
    );
    let refused = refusal("store = \"memory\"\nclient_address = \"x-real-ip\"");
    assert!(
        refused.ends_with("expected \"x-forwarded-for\", \"forwarded\" or \"header:<name>\""),
        "{refused}"
    );
    let refused = refusal("store = \"memory\"\nclient_address = \"header:a b\"");
    assert!(refused.starts_with("line 2: client_address: "), "{refused}");
    for (field, refused) in [
        ("trusted_hops = 0", "trusted_hops: got 0, expected 1 to 64"),
        (
            "trusted_hops = \"2\"",
            "trusted_hops: got \"2\", expected 1 to 64",
        ),
        (
            "ipv6_prefix = 24",
            "ipv6_prefix: got 24, expected 32 to 128 bits",
        ),
        (
            "ipv6_prefix = 320",
            "ipv6_prefix: got 320, expected 32 to 128 bits",
        ),
    ] {
        let refusal = refusal(&format!("store = \"memory\"\n{field}\n"));
        assert_eq!(refusal, format!("line 2: {refused}"));
    }
}

/// Nobody should believe that the clients behind a proxy are told apart.
#[test]
fn what_is_said_of_proxies_is_refused_where_none_is_trusted() {
    for field in [
        "client_address = \"forwarded\"",
        "trusted_hops = 2",
        "trusted_hops = 2\nclient_address = \"x-forwarded-for\"",
    ] {
        let file = format!("store = \"memory\"\n{field}\n");
        let refused = refusal(&file);
        assert!(
            refused.contains("says nothing without trusted_proxies"),
            "{refused}"
        );
        let trusting = format!("{file}trusted_proxies = [\"10.0.0.0/8\"]\n");
        assert!(Config::from_toml(&trusting).is_ok());
        assert!(Config::from_toml(&format!("{file}trusted_proxies = []\n")).is_ok());
    }
}

#[test]
fn a_route_that_cannot_be_read_is_refused_in_its_line() {
    let refused = refusal_of("on = [\n  \"POST /login\",\n  \"POST login\",\n]");
    assert!(
        refused.starts_with("line 6: policy \"client\": on: "),
        "{refused}"
    );
    let refused = refusal_of("on = \"POST login\"");
    assert!(
        refused.starts_with("line 4: policy \"client\": on: "),
        "{refused}"
    );
    let refused = refusal_of("on = []");
    assert!(
        refused.starts_with("line 4: policy \"client\": on: the list is empty"),
        "{refused}"
    );
}
