//! The file format: what it takes, and how it refuses what is wrong.
#![cfg(feature = "config")]

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::{Config, QuotaHeaders, RateLimitLayer, ResponseBody};

#[path = "../support/mod.rs"]
mod support;

mod algorithms;
mod formats;
mod headers;
mod policies;
mod rules;
mod schema;
mod stores;
mod timeout;
mod variables;

/// What a service behind the file's layer answers, with an empty 200 of its own.
async fn answers(
    layer: &RateLimitLayer,
    request: Request<()>,
) -> Response<ResponseBody<Empty<Bytes>>> {
    let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(Empty::new())));
    layer.layer(service).oneshot(request).await.unwrap()
}

/// What a sound text says; the schema allows it too.
fn read(text: &str) -> Config {
    assert!(schema::allows(text), "{text}");
    Config::from_toml(text).unwrap()
}

/// The file's layer, over a store that connects lazily.
fn layer(text: &str) -> RateLimitLayer {
    let config = read(text);
    config.layer(config.connect_lazy().unwrap())
}

/// A file with this policy, which begins in line 3.
fn with_policy(fields: &str) -> String {
    format!("store = \"memory\"\n\n[[policy]]\n{fields}\n")
}

fn refusal(text: &str) -> String {
    Config::from_toml(text).unwrap_err().to_string()
}

/// One policy of which one field is replaced, or added.
fn with_field(field: &str) -> String {
    let name = field.split_once(" =").unwrap().0;
    let sound = [
        "name = \"client\"",
        "algorithm = \"gcra\"",
        "limit = \"100/min\"",
        "key = \"peer\"",
    ];
    let kept = sound
        .iter()
        .copied()
        .filter(|line| line.split_once(" =").unwrap().0 != name);
    with_policy(
        &[field]
            .into_iter()
            .chain(kept)
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

fn refusal_of(field: &str) -> String {
    refusal(&with_field(field))
}

const WHOLE: &str = r#"
store = "memory"
prefix = "demo"
headers = "denials"
timeout = "50ms"
on_store_failure = "allow"
rejection = "plain-text"
exempt = ["GET /health", "/metrics"]
skip_preflights = true
deny = ["203.0.113.0/24", { key = "user", values = ["mallory"] }]
allow = ["::1"]
trusted_proxies = ["127.0.0.0/8", "::1"]
client_address = "x-forwarded-for"
trusted_hops = 2
ipv6_prefix = 56

[[policy]]
name = "client"
algorithm = "gcra"
limit = "100/min"
burst = 20
key = "client-addr"
on = ["POST /login", "/api/{*rest}"]
cost = 1
mode = "enforce"
max_wait = "2s"
on_missing_key = "shared"

[[policy]]
name = "rates"
algorithm = "gcra"
limit = ["10/s", "1000/h"]
burst = [20, 30]
key = "peer"

[[policy]]
name = "login"
algorithm = "sliding-log"
limit = "5/15min"
key = ["header:x-user", "peer"]
on = "POST /login"
count_status = [401, 403]
count_grpc_status = [7, 16]
penalty = { denials = 10, within = "15min", ban = "1h", longest = "24h" }
on_missing_key = "reject"
on_store_failure = "deny"

[[policy]]
name = "everybody"
algorithm = "fixed-window"
limit = "1000/day"
aligned = true
key = "everybody"
cost = "header:x-cost"
on_store_failure = { local = 0.25 }

[[policy]]
name = "user"
algorithm = "gcra"
limit = "20/250ms"
key = "user"
mode = "shadow"
on_missing_key = "skip"

[[policy]]
name = "exports"
algorithm = "token-bucket"
limit = "50/s"
capacity = 100
key = "everybody"
quota_lease = { share = 0.2, max_age = "500ms" }

[[policy]]
name = "tenant"
algorithm = "gcra"
limit = "600/min"
key = ["host", "client-addr"]

[[policy]]
name = "partner"
algorithm = "leaky-bucket"
limit = "10/s"
capacity = 30
delay = false
key = "everybody"

[[policy]]
name = "hourly"
algorithm = "sliding-window"
limit = "60/h"
slices = 60
key = "everybody"

[[policy]]
name = "in-flight"
algorithm = "concurrency"
limit = 40
lease = "10s"
key = "everybody"
"#;

#[tokio::test]
async fn every_field_of_the_format_is_taken() {
    let config = read(WHOLE);
    assert_eq!(config.headers(), QuotaHeaders::DRAFT_11.on_denials());
    let limiter = config.connect().await.unwrap();
    for (policy, remaining) in [
        ("client", 20),
        ("rates", 20),
        ("login", 5),
        ("everybody", 1000),
        ("user", 20),
        ("exports", 100),
        ("tenant", 600),
        ("partner", 30),
        ("hourly", 60),
        ("in-flight", 40),
    ] {
        let decision = limiter.peek(policy, "somebody").await.unwrap();
        assert_eq!(decision.remaining(), remaining, "{policy}");
    }
}

#[tokio::test]
async fn a_limit_means_what_it_says() {
    for (limit, permits, ms) in [
        ("1/ms", 1, 1),
        ("20/250ms", 20, 250),
        ("10/s", 10, 1_000),
        ("7/1s", 7, 1_000),
        ("100/min", 100, 60_000),
        ("5/15min", 5, 900_000),
        ("4294967295/h", u32::MAX, 3_600_000),
        ("1/day", 1, 86_400_000),
        ("1/366day", 1, 31_622_400_000),
    ] {
        let config = read(&with_field(&format!("limit = {limit:?}")));
        let limiter = config.connect_lazy().unwrap();
        let decision = limiter.peek("client", "somebody").await.unwrap();
        assert_eq!(decision.limit(), permits, "{limit}");
        assert_eq!(decision.window().as_millis(), ms, "{limit}");
    }
}

#[test]
fn a_limit_that_cannot_be_read_is_refused() {
    for limit in [
        "",
        "100",
        "/min",
        "100/",
        "100/minute",
        "-1/s",
        "+1/s",
        "1.5/s",
        "1e3/s",
        "100 / min",
        "4294967296/s",
        "1/99999999999s",
        "１/s",
        "1/15",
        "1/s/s",
    ] {
        let expected = format!(
            "line 4: policy \"client\": limit: got {limit:?}, expected permits in a time, as \
             \"100/min\" or \"5/15min\", with 1 to 4294967295 permits and ms, s, min, h or day"
        );
        assert_eq!(refusal_of(&format!("limit = {limit:?}")), expected);
    }
}

#[test]
fn a_number_out_of_range_is_refused_in_its_line() {
    for (field, refused) in [
        (
            "limit = \"0/min\"",
            "limit: got \"0/min\", expected 1 to 4294967295 permits",
        ),
        (
            "limit = \"1/367day\"",
            "limit: got \"1/367day\", expected a period of 1 ms to 366 days, in whole microseconds",
        ),
        ("burst = 0", "burst: got 0, expected 1 to 4294967295"),
        ("burst = -1", "burst: got -1, expected 1 to 4294967295"),
        (
            "burst = 5_000_000_000",
            "burst: got 5000000000, expected 1 to 4294967295",
        ),
        ("cost = 0", "cost: got 0, expected 1 to 4294967295"),
        (
            "cost = 1.5",
            "cost: got 1.5, expected 1 to 4294967295 permits, or \"header:<name>\"",
        ),
        (
            "name = \"\"",
            "name: got \"\", expected 1 to 64 printable ASCII characters",
        ),
    ] {
        let refused = format!("line 4: policy {:?}: {refused}", named(field));
        assert_eq!(refusal_of(field), refused);
    }
}

fn named(field: &str) -> &'static str {
    match field.starts_with("name") {
        true => "",
        false => "client",
    }
}

#[test]
fn a_wrong_word_is_refused_with_the_right_ones() {
    for (field, refused) in [
        (
            "algorithm = \"gcar\"",
            "algorithm: got \"gcar\", expected one of \"gcra\", \"token-bucket\", \"leaky-bucket\", \
             \"fixed-window\", \"sliding-counter\", \"sliding-window\", \"sliding-log\", \
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
        "line 3: policies: is no field here, expected one of store, prefix, secret, headers, \
         rejection, timeout, on_store_failure, trusted_proxies, client_address, trusted_hops, \
         ipv6_prefix, exempt, skip_preflights, deny, allow, policy"
    );
    let refusal = refusal_of("burts = 20");
    assert!(
        refusal.starts_with(
            "line 4: policy \"client\": burts: is no field here, expected one of name,"
        ),
        "{refusal}"
    );
}

#[test]
fn a_field_of_the_file_that_stands_in_a_policy_is_refused_with_its_place() {
    assert_eq!(
        refusal(&format!("{}headers = \"none\"\n", with_field("burst = 20"))),
        "line 9: policy \"client\": headers: is a field of the whole file, write it above the \
         first [[policy]]"
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

#[test]
fn a_name_that_is_used_twice_is_refused_where_it_is_used_again() {
    let one = "[[policy]]\nname = \"a\"\nalgorithm = \"gcra\"\nlimit = \"1/s\"\nkey = \"peer\"\n";
    assert_eq!(
        refusal(&format!("store = \"memory\"\n{one}{one}")),
        "line 8: policy \"a\": name: is used twice, give each policy its own"
    );
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    for (timeout, refused) in [
        ("\"0ms\"", "timeout: got 0ns, expected 1 ms to 60 s"),
        ("\"61s\"", "timeout: got 61s, expected 1 ms to 60 s"),
        (
            "\"ms\"",
            "timeout: got \"ms\", expected a time, as \"50ms\" or \"2s\"",
        ),
        (
            "\"50\"",
            "timeout: got \"50\", expected a time, as \"50ms\" or \"2s\"",
        ),
        (
            "50",
            "timeout: got 50, expected a time, as \"50ms\" or \"2s\"",
        ),
    ] {
        let text = format!("store = \"memory\"\ntimeout = {timeout}\n");
        assert_eq!(refusal(&text), format!("line 2: {refused}"));
    }
}

#[test]
fn a_broken_text_is_refused_in_its_line() {
    for (text, refused) in [
        ("store = \"memory\"\nheaders = \n", "line 2: headers: "),
        (
            "store = \"memory\"\nstore = 1\n",
            "line 2: store: duplicate key",
        ),
        ("store = \"memory\"\n[[policy]\n", "line 2: "),
        ("store = \"redis://:hunter2@h\n", "line 1: store: "),
        ("store: \"redis://:hunter2@h/0?a=b\"\n", "line 1: "),
        ("store \"redis://:hunter2@h\" = 1\n", "line 1: "),
    ] {
        let refusal = refusal(text);
        assert!(refusal.starts_with(refused), "{refusal}");
        assert!(!refusal.contains("hunter2"), "{refusal}");
    }
}

#[test]
fn a_refusal_never_shows_a_password() {
    for store in [
        "redsi://:hunter2@h",
        "redis-cluster://:hunter2@h/1",
        "redis://:hunter2@h:nope",
    ] {
        let refused = refusal(&format!("store = {store:?}\n"));
        assert!(refused.starts_with("line 1: store: "), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    let config = read("store = \"redis://:hunter2@h:1\"\n");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_file_is_named_in_its_refusal() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "store = 5\n").unwrap();
    let refused = Config::from_file(file.path()).unwrap_err();
    assert_eq!(refused.path(), Some(file.path()));
    let text = format!(
        "{}: line 1: store: got 5, expected \"memory\", or ",
        file.path().display()
    );
    assert!(refused.to_string().starts_with(&text), "{refused}");

    let missing = file.path().with_extension("missing");
    let refused = Config::from_file(&missing).unwrap_err();
    assert_eq!(refused.line(), None);
    assert_eq!(
        refused.to_string(),
        format!("{}: the file cannot be read", missing.display())
    );
    assert!(std::error::Error::source(&refused).is_some());
}

#[test]
fn the_file_in_the_readme_is_taken() {
    let readme = include_str!("../../README.md");
    let (_, file) = readme.split_once("```toml\n").unwrap();
    let (file, _) = file.split_once("```").unwrap();
    read(file);
}
