//! What is read of requests: `key`, `cost`, `on`, `trusted_proxies`, `client_address`, `trusted_hops`
//! and `ipv6_prefix`.

use http::Request;
use tower_throttle::Config;

use super::schema::allows;
use super::{answers, layer, read, refusal, refusal_of, with_policy};

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
    for list in ["x-forwarded-for", "forwarded"] {
        let refused = refusal(&format!(
            "store = \"memory\"\nclient_address = \"header:{list}\"\ntrusted_proxies = [\"10.0.0.0/8\"]"
        ));
        assert!(refused.starts_with("line 2: client_address: "), "{refused}");
        assert!(
            refused.ends_with(&format!("in a file {list:?}")),
            "{refused}"
        );
    }
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

#[test]
fn trust_in_every_address_is_refused_unless_proxies_are_counted() {
    for trusted in ["[\"0.0.0.0/0\", \"::/0\"]", "[\"0.0.0.0/0\"]"] {
        let file = format!("store = \"memory\"\ntrusted_proxies = {trusted}\n");
        let refused = refusal(&file);
        assert!(
            refused.starts_with("line 2: trusted_proxies: got \"0.0.0.0/0\": "),
            "{refused}"
        );
        assert!(refused.contains("trusted_hops"), "{refused}");
        assert!(Config::from_toml(&format!("{file}trusted_hops = 1\npolicy = []\n")).is_ok());
    }
}

/// Otherwise a file would seem to separate the clients behind a proxy.
#[test]
fn settings_about_proxies_are_refused_if_none_is_trusted() {
    for field in [
        "client_address = \"forwarded\"",
        "trusted_hops = 2",
        "trusted_hops = 2\nclient_address = \"x-forwarded-for\"",
    ] {
        let file = format!("store = \"memory\"\n{field}\npolicy = []\n");
        let refused = refusal(&file);
        assert!(
            refused.contains("has no effect without trusted_proxies"),
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
    for (list, problem) in [("[]", "the list is empty"), ("[\"none\"]", "")] {
        let refused = refusal_of(&format!("on = {list}"));
        let expected = format!("line 4: policy \"client\": on: {problem}");
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(refused.contains("\"none\""), "{refused}");
    }
}

#[tokio::test]
async fn requests_without_a_key_follow_the_policy() {
    let policy =
        "name = \"user\"\nalgorithm = \"gcra\"\nlimit = \"1/min\"\nkey = \"header:x-user\"";
    for (said, statuses) in [
        ("", [200, 429]),
        ("on_missing_key = \"shared\"", [200, 429]),
        ("on_missing_key = \"reject\"", [400, 400]),
        ("on_missing_key = \"skip\"", [200, 200]),
    ] {
        let layer = layer(&with_policy(&format!("{policy}\n{said}")));
        for status in statuses {
            let response = answers(&layer, Request::new(())).await;
            assert_eq!(response.status(), status, "{said}");
        }
    }
}

/// The server was to identify the user: without one, the limits most likely stand outside of the
/// authentication.
#[tokio::test]
async fn a_request_without_user_is_a_server_error_by_default() {
    for key in ["\"user\"", "[\"header:x-app\", \"user\"]"] {
        let policy =
            format!("name = \"user\"\nalgorithm = \"gcra\"\nlimit = \"1/min\"\nkey = {key}");
        for (said, statuses) in [
            ("", [500, 500]),
            ("on_missing_key = \"shared\"", [200, 429]),
            ("on_missing_key = \"reject\"", [400, 400]),
            ("on_missing_key = \"skip\"", [200, 200]),
        ] {
            let layer = layer(&with_policy(&format!("{policy}\n{said}")));
            for status in statuses {
                let response = answers(&layer, Request::new(())).await;
                assert_eq!(response.status(), status, "{key} {said}");
            }
        }
    }
}

/// Two text messages an hour to each number, which only the handler knows.
const ASKED_BY_HANDLERS: &str =
    "name = \"sms\"\nalgorithm = \"fixed-window\"\nlimit = \"2/h\"\non = \"none\"";

#[tokio::test]
async fn by_a_policy_on_none_handlers_ask_and_no_request_is_judged() {
    let config = read(&with_policy(ASKED_BY_HANDLERS));
    let limiter = config.connect().await.unwrap();
    let layer = config.layer(limiter.clone());
    for _ in 0..3 {
        let response = answers(&layer, Request::new(())).await;
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("ratelimit"));
    }
    for is_allowed in [true, true, false] {
        let decision = limiter.check("sms", "+49 30 1234567").await.unwrap();
        assert_eq!(decision.is_allowed(), is_allowed);
    }
}

#[test]
fn request_settings_are_refused_on_a_policy_for_no_request() {
    for field in [
        "tiers = [{ key = \"user\", values = [\"ada\"], limit = \"3/h\" }]",
        "key = \"header:x-user\"",
        "cost = \"header:x-cost\"",
        "count_status = 401",
        "count_grpc_status = 16",
        "max_wait = \"1s\"",
        "on_missing_key = \"skip\"",
    ] {
        let text = with_policy(&format!("{ASKED_BY_HANDLERS}\n{field}"));
        let (name, _) = field.split_once(' ').unwrap();
        let refused = refusal(&text);
        let expected = format!("line 8: policy \"sms\": {name}: applies to requests");
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(!allows(&text), "{field}");
    }
    read(&with_policy(&format!("{ASKED_BY_HANDLERS}\ncost = 2")));
}
