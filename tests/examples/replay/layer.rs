//! Held against the layer itself: the same log as requests to an axum server on a clock that is
//! moved by hand. Not the example `server`: its clock is the system's, and it does not answer with
//! the statuses of a log, some of which count.

use std::fs;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use reqwest::Client;
use tokio::net::TcpListener;
use tower_throttle::{Config, ManualClock, MemoryStore, Micros};

use super::{committed, run};

/// 2026-03-02 00:00:00 UTC.
const DAY: u64 = 1_772_409_600;

/// Something of everything that a file can say about the requests of a log.
const LIMITS: &str = r#"
store = "memory"
trusted_proxies = ["127.0.0.0/8"]
exempt = "GET /health"
deny = ["198.51.100.3"]
allow = ["198.51.100.4"]

[[policy]]
name = "client"
algorithm = "gcra"
limit = "60/min"
burst = 30
key = "client-addr"
group = "client"

[[policy]]
name = "hourly"
algorithm = "token-bucket"
limit = "100/h"
capacity = 100
key = "client-addr"
group = "client"

[[policy]]
name = "login"
algorithm = "sliding-log"
limit = "5/15min"
key = "client-addr"
on = "POST /login"
count_status = 401
penalty = { denials = 20, within = "15min", ban = "30min" }

[[policy]]
name = "agent"
algorithm = "fixed-window"
limit = "5/min"
aligned = true
key = ["header:user-agent", "everybody"]
tiers = [{ key = "header:user-agent", values = ["scraper/1.0"], limit = "100/min" }]

[[policy]]
name = "search"
algorithm = "sliding-window"
limit = ["10/min", "60/h"]
key = "everybody"
on = "GET /search"
cost = 2

[[policy]]
name = "referred"
algorithm = "sliding-counter"
limit = "2/min"
key = "header:referer"
on_missing_key = "skip"

[[policy]]
name = "shadow"
algorithm = "gcra"
limit = "1/min"
key = "client-addr"
mode = "shadow"
"#;

/// A line of the sample, read without the example.
struct Line<'l> {
    text: &'l str,
    address: &'l str,
    at: Micros,
    method: &'l str,
    path: &'l str,
    status: &'l str,
    /// `Referer` and `User-Agent`.
    headers: [&'l str; 2],
}

fn line(text: &str) -> Option<Line<'_>> {
    let mut quoted = text.split('"');
    let (before, request, numbers) = (quoted.next()?, quoted.next()?, quoted.next()?);
    let (referer, agent) = (quoted.next()?, quoted.nth(1)?);
    let mut request = request.split(' ');
    let (method, path, _) = (request.next()?, request.next()?, request.next()?);
    let (_, time) = before.split_once("[02/Mar/2026:")?;
    let mut time = time
        .get(..8)?
        .split(':')
        .map(|part| part.parse::<u64>().unwrap());
    let secs = time.next()? * 3600 + time.next()? * 60 + time.next()?;
    Some(Line {
        text,
        address: before.split(' ').next()?,
        at: Micros::new((DAY + secs) * 1_000_000),
        method,
        path,
        status: numbers.trim().split(' ').next()?,
        headers: [referer, agent],
    })
}

/// Answers with the status that the request asks for, and says that it was asked.
async fn answer(request: Request) -> Response {
    let status = request.headers()["x-status"].as_bytes();
    let status = StatusCode::from_bytes(status).unwrap();
    (status, [("x-answered", "yes")]).into_response()
}

async fn serve(clock: &ManualClock) -> String {
    let config = Config::from_toml(LIMITS).unwrap();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limiter = config.limiter(store).unwrap();
    let app = Router::new()
        .fallback(answer)
        .layer(config.layer(limiter))
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

#[tokio::test]
async fn a_server_denies_the_same_lines_of_the_log() {
    let log = fs::read_to_string(committed("sample.log")).unwrap();
    let lines: Vec<_> = log.lines().filter_map(line).collect();
    assert!(lines.len() > 1_900, "{}", lines.len());
    let clock = ManualClock::new();
    let url = serve(&clock).await;
    let client = Client::new();
    let mut denied = String::new();
    for line in &lines {
        clock.set(line.at);
        let method = line.method.parse().unwrap();
        let mut request = client
            .request(method, format!("{url}{}", line.path))
            .header("x-forwarded-for", line.address)
            .header("x-status", line.status);
        for (name, value) in ["referer", "user-agent"].into_iter().zip(line.headers) {
            if value != "-" {
                request = request.header(name, value);
            }
        }
        let response = request.send().await.unwrap();
        if !response.headers().contains_key("x-answered") {
            denied += line.text;
            denied += "\n";
        }
    }

    let file = tempfile::NamedTempFile::new().unwrap();
    let output = run(
        LIMITS,
        &["--denied", file.path().to_str().unwrap()],
        log.as_bytes(),
    );
    assert!(output.status.success(), "{output:?}");
    let replayed = fs::read_to_string(file.path()).unwrap();
    assert!(denied.lines().count() > 300, "{denied}");
    assert!(denied.lines().count() < lines.len() / 2, "{denied}");
    assert_eq!(replayed, denied);
    // Each policy has had a part in it, as had the list.
    let printed = String::from_utf8(output.stdout).unwrap();
    for policy in [
        "client", "hourly", "login", "agent", "search", "referred", "shadow",
    ] {
        let denied = super::row(&printed, policy, "denied");
        assert!(!denied.starts_with("0 "), "{policy}: {printed}");
    }
    assert!(
        printed.contains("refused before they were counted, listed: "),
        "{printed}"
    );
}
