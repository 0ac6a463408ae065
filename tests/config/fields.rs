//! Fields and words that do not exist, and fields that are missing or in the wrong place.

use super::{refusal, refusal_of, with_field, with_policy};

#[test]
fn a_wrong_word_is_refused_with_the_right_ones() {
    for (field, refused) in [
        (
            "algorithm = \"gcar\"",
            "algorithm: got \"gcar\", expected one of \"gcra\", \"token-bucket\", \"leaky-bucket\", \
             \"fixed-window\", \"calendar\", \"sliding-counter\", \"sliding-window\", \
             \"sliding-log\", \
             \"concurrency\"",
        ),
        (
            "on_missing_key = \"allow\"",
            "on_missing_key: got \"allow\", expected one of \"shared\", \"reject\", \"skip\"",
        ),
        (
            "mode = \"on\"",
            "mode: got \"on\", expected one of \"enforce\", \"shadow\", \"off\"",
        ),
        (
            "key = \"ip\"",
            "key: got \"ip\", expected \"client-addr\", \"peer\", \"host\", \"header:<name>\", \
             \"user\", \"everybody\" or a list of these",
        ),
        (
            "key = \"header:Host\"",
            "key: header: got \"host\": over HTTP/2 there is no such header; `Host`, in a file `key \
             = \"host\"`, reads the host of either version",
        ),
    ] {
        assert_eq!(
            refusal_of(field),
            format!("line 4: policy \"client\": {refused}")
        );
    }
}

#[test]
fn a_field_that_does_not_exist_is_refused_with_those_that_do() {
    assert_eq!(
        refusal("store = \"memory\"\n\n[[policies]]\nname = \"client\"\n"),
        "line 3: policies: is not a field here, expected one of store, tls, prefix, secret, \
         headers, rejection, timeout, on_store_failure, trusted_proxies, client_address, \
         trusted_hops, ipv6_prefix, exempt, skip_preflights, deny, allow, policy"
    );
    let refusal = refusal_of("burts = 20");
    assert!(
        refusal.starts_with(
            "line 4: policy \"client\": burts: is not a field here, expected one of name,"
        ),
        "{refusal}"
    );
}

#[test]
fn a_file_level_field_in_a_policy_is_refused_with_its_place() {
    assert_eq!(
        refusal(&format!("{}headers = \"none\"\n", with_field("burst = 20"))),
        "line 9: policy \"client\": headers: is a field of the whole file, write it above the \
         first [[policy]]"
    );
}

#[test]
fn a_store_that_stands_in_a_policy_is_refused_with_its_place() {
    let policy = with_field("burst = 20").replace("store = \"memory\"\n", "");
    let refusal = refusal(&format!("{policy}store = \"memory\"\n"));
    assert!(
        refusal.ends_with(
            "policy \"client\": store: is a field of the whole file, write it above the first \
             [[policy]]"
        ),
        "{refusal}"
    );
}

#[test]
fn a_field_that_is_missing_is_refused_with_an_example() {
    assert_eq!(
        refusal(&with_policy(
            "name = \"client\"\nalgorithm = \"gcra\"\nkey = \"peer\""
        )),
        "line 3: policy \"client\": limit: is missing, write limit = \"100/min\""
    );
    assert_eq!(
        refusal(&with_policy("limit = \"1/s\"")),
        "line 3: policy 1: name: is missing, write name = \"client\""
    );
    assert_eq!(
        refusal("prefix = \"demo\""),
        "line 1: store: is missing, write store = \"memory\", or \"redis://127.0.0.1:6379\" for one \
         count of a whole fleet"
    );
}

#[test]
fn a_missing_key_error_suggests_one_that_separates_clients() {
    let policy = "name = \"client\"\nalgorithm = \"gcra\"\nlimit = \"1/s\"";
    let without_key = |trusted: &str| refusal(&format!("{trusted}{}", with_policy(policy)));
    let told = without_key("");
    assert!(told.contains("key: is missing"), "{told}");
    for key in ["\"peer\"", "\"client-addr\"", "trusted_proxies"] {
        assert!(told.contains(key), "{key}: {told}");
    }
    // Behind proxies the peer is the proxy.
    for proxies in ["[\"10.0.0.0/8\"]", "[]"] {
        let told = without_key(&format!("trusted_proxies = {proxies}\n"));
        assert!(told.contains("\"client-addr\""), "{told}");
        assert!(!told.contains("peer"), "{told}");
    }
}
