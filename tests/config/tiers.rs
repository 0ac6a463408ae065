//! `tiers`: other limits for requests in which a key has certain values.

use http::Request;
use tower_throttle::RateLimitLayer;
use tower_throttle::UserId;

use super::{answers, layer, refusal, refusal_of, with_field, with_policy};

/// A policy by `x-api-key` with these tiers.
fn by_api_key(tiers: &str) -> String {
    with_policy(&format!(
        "name = \"client\"\nalgorithm = \"gcra\"\nlimit = \"100/min\"\nkey = \"header:x-api-key\"\ntiers = {tiers}"
    ))
}

fn request<const N: usize>(headers: [(&str, &str); N]) -> Request<()> {
    let request = headers
        .into_iter()
        .fold(Request::builder(), |request, (name, value)| {
            request.header(name, value)
        });
    request.body(()).unwrap()
}

/// The limit and the remaining permits, as a response shows them.
async fn quota_headers(layer: &RateLimitLayer, request: Request<()>) -> [String; 2] {
    let response = answers(layer, request).await;
    ["ratelimit-policy", "ratelimit"]
        .map(|name| response.headers()[name].to_str().unwrap().to_owned())
}

/// The permits and seconds of the limit that a request has.
async fn limit_of(layer: &RateLimitLayer, request: Request<()>) -> String {
    let [policy, _] = quota_headers(layer, request).await;
    policy.strip_prefix("\"client\";").unwrap().to_owned()
}

#[tokio::test]
async fn a_request_has_the_limit_of_its_tier() {
    let layer = layer(&by_api_key(
        "[\n  { values = \"partner\", limit = \"1000/h\", burst = 30 },\n  \
         { values = [\"trial\", \"demo\"], limit = \"5/min\" },\n]",
    ));
    for (key, limit) in [
        ("partner", "q=1000;w=3600"),
        ("trial", "q=5;w=60"),
        ("demo", "q=5;w=60"),
        ("Trial", "q=100;w=60"),
        ("anybody", "q=100;w=60"),
    ] {
        let found = limit_of(&layer, request([("x-api-key", key)])).await;
        assert_eq!(found, limit, "{key}");
    }
    assert_eq!(limit_of(&layer, request([])).await, "q=100;w=60");
    let [_, left] = quota_headers(&layer, request([("x-api-key", "partner")])).await;
    assert!(left.contains("r=28"), "{left}");
}

#[tokio::test]
async fn the_policys_key_and_not_the_tiers_decides_whose_quota_it_is() {
    let layer = layer(&by_api_key(
        "[{ key = \"header:x-plan\", values = [\"gold\"], limit = \"500/min\" }]",
    ));
    for (key, left) in [("a", "r=499"), ("b", "r=499"), ("a", "r=498")] {
        let gold = request([("x-api-key", key), ("x-plan", "gold")]);
        let [_, found] = quota_headers(&layer, gold).await;
        assert!(found.contains(left), "{key}: {found}");
    }
}

#[tokio::test]
async fn a_request_of_several_tiers_has_the_limit_of_the_first() {
    let layer = layer(&by_api_key(
        "[{ values = [\"a\"], limit = \"1/min\" },\
         { key = \"header:x-plan\", values = [\"gold\"], limit = \"2/min\" },\
         { key = \"header:X-API-Key\", values = [\"b\", \"c\"], limit = \"3/min\" },\
         { key = \"user\", values = [\"ada\"], limit = \"4/min\" }]",
    ));
    for (key, plan, limit) in [
        ("a", "gold", "q=1;w=60"),
        ("b", "gold", "q=2;w=60"),
        ("b", "none", "q=3;w=60"),
        ("d", "none", "q=4;w=60"),
    ] {
        let mut request = request([("x-api-key", key), ("x-plan", plan)]);
        request.extensions_mut().insert(UserId::new("ada"));
        assert_eq!(limit_of(&layer, request).await, limit, "{key}, {plan}");
    }
}

/// A gateway may add its header to one that the client has sent, or join the two.
#[tokio::test]
async fn a_header_that_says_more_than_one_value_belongs_to_no_tier() {
    let layer = layer(&by_api_key(
        "[{ key = \"header:x-plan\", values = [\"gold\"], limit = \"500/min\" }]",
    ));
    let plan = |value| ("x-plan", value);
    for (request, limit) in [
        (request([plan("gold")]), "q=500;w=60"),
        (request([plan(" gold\t")]), "q=500;w=60"),
        (request([plan("gold"), plan("free")]), "q=100;w=60"),
        (request([plan("gold"), plan("gold")]), "q=100;w=60"),
        (request([plan("gold"), plan("")]), "q=100;w=60"),
        (request([plan("gold, free")]), "q=100;w=60"),
    ] {
        let headers = format!("{:?}", request.headers());
        assert_eq!(limit_of(&layer, request).await, limit, "{headers}");
    }
}

/// The policy says for all its tiers how to count.
#[tokio::test]
async fn every_algorithm_has_tiers() {
    for (policy, tier, limit) in [
        (
            "gcra\"\nlimit = \"1/s\"\nburst = 5",
            "limit = \"9/s\", burst = 50",
            "q=9;w=1",
        ),
        (
            "token-bucket\"\nlimit = \"1/s\"\ncapacity = 5",
            "limit = \"9/s\", capacity = 50",
            "q=9;w=1",
        ),
        (
            "leaky-bucket\"\nlimit = \"1/s\"\ndelay = false",
            "limit = \"9/s\", capacity = 50",
            "q=9;w=1",
        ),
        (
            "fixed-window\"\nlimit = \"1/min\"\naligned = true",
            "limit = \"9/min\"",
            "q=9;w=60",
        ),
        (
            "sliding-window\"\nlimit = \"1/min\"\nslices = 60",
            "limit = \"9/min\"",
            "q=9;w=60",
        ),
        (
            "sliding-counter\"\nlimit = \"1/min\"",
            "limit = \"9/min\"",
            "q=9;w=60",
        ),
        (
            "sliding-log\"\nlimit = \"1/min\"",
            "limit = \"9/min\"",
            "q=9;w=60",
        ),
        (
            "gcra\"\nlimit = [\"1/s\", \"60/h\"]\nburst = [1, 2]",
            "limit = [\"9/s\", \"90/h\"], burst = [9, 9]",
            "q=90;w=3600",
        ),
        (
            "concurrency\"\nlimit = 1\nlease = \"10s\"",
            "limit = 9",
            "q=9;qu=\"concurrent-requests\"",
        ),
    ] {
        let policy = format!(
            "name = \"client\"\nkey = \"everybody\"\nalgorithm = \"{policy}\n\
             tiers = [{{ key = \"header:x-plan\", values = [\"gold\"], {tier} }}]"
        );
        let layer = layer(&with_policy(&policy));
        let found = limit_of(&layer, request([("x-plan", "gold")])).await;
        assert_eq!(found, limit, "{policy}");
    }
}

#[test]
fn tiers_that_make_no_sense_are_refused() {
    let missing_key = "tiers.key: is missing, write key = \"header:<name>\", \"host\" or \"user\", as \
                       that of the policy is none of these";
    for (tiers, refused) in [
        (
            "\"hunter2\"",
            "tiers: expected a list of tables, such as [{ key = \"header:x-plan\", values = \
             [\"gold\"], limit = \"1000/min\" }]",
        ),
        (
            "[{ key = \"user\", values = [\"a\"], limit = \"1/s\" }, \"hunter2\"]",
            "tiers: expected a list of tables, such as [{ key = \"header:x-plan\", values = \
             [\"gold\"], limit = \"1000/min\" }]",
        ),
        (
            "[]",
            "tiers: the list is empty, so there are no tiers; leave it out",
        ),
        ("[{ values = [\"a\"], limit = \"1/s\" }]", missing_key),
        (
            "[{ key = \"peer\", values = [\"::1\"], limit = \"1/s\" }]",
            "tiers.key: got \"peer\", expected \"header:<name>\", \"host\" or \"user\"",
        ),
        (
            "[{ key = \"host\", values = [\"hunter2:80\"], limit = \"1/s\" }]",
            "tiers.values: a value is no host, such as \"acme.example.com\", without a port",
        ),
        (
            "[{ key = \"host\", values = [\"a.example\", \"A.example.\"], limit = \"1/s\" }]",
            "tiers.values: a value is listed twice, leave one of the two out",
        ),
        (
            "[{ key = \"user\", limit = \"1/s\" }]",
            "tiers.values: is missing, write values = [\"gold\"]",
        ),
        (
            "[{ key = \"user\", values = [], limit = \"1/s\" }]",
            "tiers.values: the list is empty, so it matches nobody; leave it out",
        ),
        (
            "[{ key = \"user\", values = [\"hunter2 \"], limit = \"1/s\" }]",
            "tiers.values: a value is empty or has spaces around it, which no key has",
        ),
        (
            "[{ key = \"user\", values = [\"hunter2\", \"hunter2\"], limit = \"1/s\" }]",
            "tiers.values: a value is listed twice, leave one of the two out",
        ),
        (
            "[{ key = \"user\", values = [\"a\"] }]",
            "tiers.limit: is missing, write limit = \"100/min\"",
        ),
        (
            "[{ key = \"user\", values = [\"a\"], limit = \"1/s\", burst = 0 }]",
            "tiers.burst: got 0, expected 1 to 999999999999999, or limit = \"0/s\"",
        ),
        (
            "[{ key = \"user\", values = [\"a\"], limit = \"1/s\", capacity = 5 }]",
            "tiers.capacity: is an option of token-bucket and leaky-bucket",
        ),
        (
            "[{ key = \"user\", values = [\"a\"], limit = [\"1/s\", \"9/min\"] }]",
            "tiers.limit: expected as many rates as the policy's own limit has: 1",
        ),
        (
            "[{ key = \"user\", values = [\"a\"], limit = \"1/s\", slices = 5 }]",
            "tiers.slices: is not a field here, expected one of key, values, limit, burst, \
             capacity",
        ),
    ] {
        assert_eq!(
            refusal_of(&format!("tiers = {tiers}")),
            format!("line 4: policy \"client\": {refused}")
        );
    }
}

/// Otherwise it would be denied each time, without a reason.
#[test]
fn a_tier_too_small_for_the_cost_is_refused_in_its_line() {
    let tiers = "[\n{ key = \"user\", values = [\"a\"], limit = \"30/s\" },\n\
                 { key = \"user\", values = [\"b\"], limit = \"29/s\" }]";
    assert_eq!(
        refusal(&format!("{}tiers = {tiers}\n", with_field("cost = 30"))),
        "line 11: policy \"client\": cost: got 30, expected at most the limit, or its burst or \
         capacity: more is never available at once"
    );
}

#[test]
fn a_value_of_the_same_key_belongs_to_one_tier() {
    let tiers = "[{ values = [\"hunter2\"], limit = \"1/s\" },\n\
                 { key = \"header:X-Api-Key\", values = [\"hunter2\"], limit = \"2/s\" }]";
    assert_eq!(
        refusal(&by_api_key(tiers)),
        "line 9: policy \"client\": tiers.values: a value is listed twice, leave one of the two out"
    );
}

#[tokio::test]
async fn a_tier_may_have_nothing_while_others_have_something() {
    let two_rates = "name = \"client\"\nalgorithm = \"gcra\"\nlimit = [\"9/s\", \"99/h\"]\n\
                     key = \"header:x-api-key\"\n\
                     tiers = [{ values = \"free\", limit = \"0/s\" }]";
    let closed = "name = \"client\"\nalgorithm = \"sliding-log\"\nlimit = \"0/s\"\n\
                  key = \"header:x-api-key\"\n\
                  tiers = [{ values = \"paid\", limit = \"9/h\" }]";
    for policy in [two_rates, closed] {
        let layer = layer(&with_policy(policy));
        for (plan, status) in [("paid", 200), ("free", 429), ("paid", 200), ("free", 429)] {
            let response = answers(&layer, request([("x-api-key", plan)])).await;
            assert_eq!(response.status(), status, "{plan}: {policy}");
            assert!(
                !response.headers().contains_key("retry-after"),
                "{plan}: {policy}"
            );
        }
    }
}
