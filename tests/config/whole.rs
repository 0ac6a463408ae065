//! Whole files: one with every field of the format, and those in the guide.

use std::fs;
use std::path::Path;

use tower_throttle::QuotaHeaders;

use super::read;

pub(super) const WHOLE: &str = r#"
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
tiers = [
    { key = "header:x-api-key", values = ["partner"], limit = "1000/min", burst = 200 },
    { key = "user", values = "ada", limit = "500/min" },
]
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
prefetch = { share = 0.2, max_age = "500ms" }

[[policy]]
name = "tenant"
algorithm = "gcra"
limit = "600/min"
key = ["host", "client-addr"]
show_subject = true

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

[[policy]]
name = "codes"
algorithm = "sliding-log"
limit = "3/day"
on = "none"
"#;

#[tokio::test]
async fn every_field_of_the_format_is_accepted() {
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
        ("codes", 3),
    ] {
        let decision = limiter.peek(policy, "somebody").await.unwrap();
        assert_eq!(decision.remaining(), remaining, "{policy}");
    }
}

/// Whoever copies one starts with it.
#[test]
fn every_whole_file_in_the_guide_is_accepted() {
    let mut found = 0;
    for page in fs::read_dir(Path::new(support::ROOT).join("docs")).unwrap() {
        let page = fs::read_to_string(page.unwrap().path()).unwrap_or_default();
        let blocks = page.split("```toml\n").skip(1);
        let blocks = blocks.map(|behind| behind.split("```").next().unwrap());
        for block in
            blocks.filter(|block| block.contains("store =") && block.contains("[[policy]]"))
        {
            found += 1;
            read(&without_variables(block));
        }
    }
    assert!(found >= 1);
}

/// The same file where no environment variable is set.
fn without_variables(file: &str) -> String {
    let lines = file.lines().filter_map(|line| match line {
        store if store.starts_with("store = { env") => Some("store = \"memory\""),
        other => (!other.contains("{ env = ")).then_some(other),
    });
    lines.collect::<Vec<_>>().join("\n")
}
