//! The example `server` from outside: a process, a file, sockets, real clients.
#![cfg(all(unix, feature = "config", feature = "redis"))]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode, Version};
use serde_json::{Value, json};
use support::redis::{Process, Server as Redis};
use support::web::GENEROUS;
use tempfile::NamedTempFile;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::example::program("server"))
}

fn command(config: &str) -> (Command, NamedTempFile) {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), config).unwrap();
    let mut command = Command::new(program());
    command
        .arg("--config")
        .arg(file.path())
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null());
    (command, file)
}

/// Its output when it refuses to start.
fn refused(config: &str) -> Output {
    let (mut command, _file) = command(config);
    command.output().unwrap()
}

/// A running server, stopped with its test.
struct Running {
    process: Process,
    url: String,
    file: NamedTempFile,
}

impl Running {
    fn start(config: &str) -> Self {
        Self::start_with(config, |command| command)
    }

    fn start_with(config: &str, with: impl Fn(&mut Command) -> &mut Command) -> Self {
        let (mut command, file) = command(config);
        let mut process = Process::spawn(with(&mut command).stdout(Stdio::piped()));
        let mut line = String::new();
        let stdout = process.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ");
        let url = format!(
            "http://{}",
            address.expect("the first line tells the address")
        );
        Self { process, url, file }
    }

    async fn get(&self, client: &Client, path: &str) -> Response {
        client
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .unwrap()
    }

    fn terminate(&self) {
        support::redis::send_signal(&self.process, "TERM");
    }

    /// Waits for its end, without a deadline of its own.
    fn ended(mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

/// Two requests an hour for each peer, counted in this process.
const TWO: &str = r#"
store = "memory"
timeout = "60s"

[[policy]]
name = "client"
algorithm = "fixed-window"
limit = "2/h"
key = "peer"
"#;

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).unwrap().to_str().unwrap()
}

async fn runs_out(client: Client, version: Version) {
    let server = Running::start(TWO);
    for remaining in [1, 0] {
        let response = server.get(&client, "/anything").await;
        assert_eq!(response.version(), version);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(
            header(&response, "ratelimit-policy"),
            "\"client\";q=2;w=3600"
        );
        let quota = header(&response, "ratelimit");
        assert!(
            quota.starts_with(&format!("\"client\";r={remaining};t=")),
            "{quota}"
        );
        assert!(!response.headers().contains_key("retry-after"));
        let echo: Value = response.json().await.unwrap();
        assert_eq!(echo, json!({ "method": "GET", "path": "/anything" }));
    }

    let denied = server.get(&client, "/something/else").await;
    assert_eq!(denied.version(), version);
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&denied, "content-type"), "application/problem+json");
    assert_eq!(header(&denied, "cache-control"), "no-store");
    let wait: u64 = header(&denied, "retry-after").parse().unwrap();
    assert!((1..=3_600).contains(&wait), "{wait}");
    let problem: Value = denied.json().await.unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], json!(["client"]));
}

#[tokio::test]
async fn a_quota_runs_out_over_http_1() {
    runs_out(Client::new(), Version::HTTP_11).await;
}

#[tokio::test]
async fn a_quota_runs_out_over_cleartext_http_2() {
    let client = Client::builder().http2_prior_knowledge().build().unwrap();
    runs_out(client, Version::HTTP_2).await;
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_have_quotas_of_their_own() {
    let config = TWO
        .replace("\"peer\"", "\"client-addr\"")
        .replace("\n\n", "\ntrusted_proxies = [\"127.0.0.0/8\"]\n\n");
    let server = Running::start(&config);
    let client = Client::new();
    for (address, status) in [
        ("203.0.113.9", 200),
        ("203.0.113.9", 200),
        ("198.51.100.1, 203.0.113.9", 429),
        ("198.51.100.1", 200),
    ] {
        let request = client.get(&server.url).header("x-forwarded-for", address);
        assert_eq!(request.send().await.unwrap().status(), status, "{address}");
    }
}

/// Nobody is trusted, so whatever a header claims, the peer is the client.
#[tokio::test]
async fn without_trusted_proxies_the_peer_is_the_client() {
    let server = Running::start(&TWO.replace("\"peer\"", "\"client-addr\""));
    let client = Client::new();
    for (address, status) in [("203.0.113.9", 200), ("203.0.113.8", 200), ("1.1.1.1", 429)] {
        let request = client.get(&server.url).header("x-forwarded-for", address);
        assert_eq!(request.send().await.unwrap().status(), status, "{address}");
    }
}

#[tokio::test]
async fn a_policy_is_about_its_routes_alone() {
    let server = Running::start(&format!(
        "{TWO}on = [\"POST /login\", \"/api/{{*rest}}\"]\n"
    ));
    let client = Client::new();
    for (method, path, status) in [
        ("POST", "/login", 200),
        ("GET", "/login", 200),
        ("PUT", "/api/users/7", 200),
        ("POST", "/login", 429),
        ("GET", "/api/users", 429),
        ("GET", "/", 200),
    ] {
        let request = client.request(method.parse().unwrap(), format!("{}{path}", server.url));
        assert_eq!(
            request.send().await.unwrap().status(),
            status,
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn the_server_answers_as_requested() {
    let server = Running::start("store = \"memory\"\npolicy = []\n");
    let client = Client::new();
    for (path, status) in [
        ("/status/204", 204),
        ("/status/401", 401),
        ("/status/599", 599),
        ("/status/100", 400),
        ("/status/teapot", 400),
        ("/status/204/more", 200),
        ("/slow/1", 200),
        ("/slow/later", 400),
        ("/stream/2", 200),
        ("/stream/-1", 400),
        ("/", 200),
    ] {
        assert_eq!(server.get(&client, path).await.status(), status, "{path}");
    }
    let posted = client
        .post(format!("{}/status/401", server.url))
        .send()
        .await
        .unwrap();
    assert_eq!(posted.status(), StatusCode::OK);
    let echo: Value = posted.json().await.unwrap();
    assert_eq!(echo, json!({ "method": "POST", "path": "/status/401" }));
}

#[tokio::test]
async fn a_stream_costs_what_it_meters() {
    let server = Running::start(
        "store = \"memory\"\n[[policy]]\nname = \"chunks\"\nkey = \"everybody\"\n\
         algorithm = \"fixed-window\"\nlimit = \"100/day\"\ncost = 5\nsettle = \"meter\"\n",
    );
    let client = Client::new();
    let mut left = 100;
    for (path, cost) in [
        ("/stream/7", 7),
        ("/stream/0", 5),
        ("/", 5),
        ("/stream/40", 40),
    ] {
        let response = server.get(&client, path).await;
        // The headers are sent before anything is metered.
        let quota = response.headers()["ratelimit"].to_str().unwrap();
        assert!(
            quota.contains(&format!(";r={};", left - 5)),
            "{path}: {quota}"
        );
        response.bytes().await.unwrap();
        left -= cost;
    }
    assert_eq!(left, 43);
}

#[tokio::test]
async fn two_servers_over_one_redis_count_together() {
    let redis = Redis::start();
    let config = TWO
        .replace(
            "\"memory\"",
            &format!("{:?}\nprefix = \"together\"", redis.url()),
        )
        .replace("2/h", "5/h");
    let servers = [Running::start(&config), Running::start(&config)];
    let client = Client::new();
    for turn in 0..5 {
        let response = servers[turn % 2].get(&client, "/").await;
        assert_eq!(response.status(), StatusCode::OK, "request {turn}");
    }
    for server in &servers {
        let response = server.get(&client, "/").await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    let keys = redis.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(keys[0].starts_with("together:"), "{keys:?}");
}

#[tokio::test]
async fn a_request_under_way_is_answered_before_it_stops() {
    stop_while_it_answers(&Redis::start(), TWO).await;
}

#[tokio::test]
async fn the_server_leaves_no_place_in_use_when_it_stops() {
    let redis = Redis::start();
    let places = "algorithm = \"concurrency\"\nlimit = 1\nlease = \"1h\"";
    let config = TWO.replace("algorithm = \"fixed-window\"\nlimit = \"2/h\"", places);
    stop_while_it_answers(&redis, &config).await;
    assert_eq!(redis.keys(), [""; 0]);
}

/// The same limits, counted there.
fn over(redis: &Redis, config: &str) -> String {
    config.replace("\"memory\"", &format!("{:?}", redis.url()))
}

/// Once a request is counted it has reached the server.
async fn until_counted(redis: &Redis) {
    let counted = async {
        while redis.keys().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let counted = tokio::time::timeout(GENEROUS, counted).await;
    counted.expect("the request never reaches the server");
}

/// Stops a server over Redis while a request is in flight, which is answered.
async fn stop_while_it_answers(redis: &Redis, config: &str) {
    let server = Running::start(&over(redis, config));
    let url = format!("{}/slow/300", server.url);
    let slow = tokio::spawn(async move { Client::new().get(url).send().await.unwrap() });
    until_counted(redis).await;
    server.terminate();
    assert_eq!(slow.await.unwrap().status(), StatusCode::OK);
    let ended = tokio::task::spawn_blocking(|| server.ended())
        .await
        .unwrap();
    assert!(ended.success(), "{ended}");
}

/// Whoever presses Ctrl-C twice does not want to wait for half a minute.
#[tokio::test]
async fn a_second_signal_ends_it_while_a_request_is_under_way() {
    let redis = Redis::start();
    let mut server = Running::start(&over(&redis, TWO));
    let url = format!("{}/slow/60000", server.url);
    let slow = tokio::spawn(async move { Client::new().get(url).send().await });
    until_counted(&redis).await;
    let signalled = Instant::now();
    let ended = loop {
        server.terminate();
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let Some(ended) = server.process.try_wait().unwrap() {
            break ended;
        }
        assert!(signalled.elapsed() < Duration::from_secs(20), "it waits");
    };
    assert!(ended.success(), "{ended}");
    slow.await.unwrap().unwrap_err();
}

#[test]
fn a_wrong_file_is_refused_with_its_line_and_field() {
    let refused = refused(&TWO.replace("2/h", "2/hour"));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(
        text.contains("line 8: policy \"client\": limit: got \"2/hour\""),
        "{text}"
    );
    assert_eq!(refused.stdout, b"");
}

#[tokio::test]
async fn a_status_that_has_no_body_comes_without_one() {
    let server = Running::start("store = \"memory\"\npolicy = []\n");
    for code in [204, 205, 304] {
        let response = server.get(&Client::new(), &format!("/status/{code}")).await;
        assert_eq!(response.status(), code);
        assert!(!response.headers().contains_key("content-type"), "{code}");
        assert_eq!(response.bytes().await.unwrap(), "", "{code}");
    }
}

#[tokio::test]
async fn head_is_answered_as_get_is_without_the_body() {
    let server = Running::start("store = \"memory\"\npolicy = []\n");
    for (path, status) in [("/status/404", 404), ("/slow/later", 400), ("/else", 200)] {
        let head = Client::new().head(format!("{}{path}", server.url));
        let head = head.send().await.unwrap();
        assert_eq!(head.status(), status, "{path}");
        assert_eq!(head.bytes().await.unwrap(), "", "{path}");
    }
}

#[test]
fn arguments_that_are_no_text_are_refused_like_others() {
    use std::os::unix::ffi::OsStrExt;

    let argument = std::ffi::OsStr::from_bytes(b"\xff");
    let refused = Command::new(program()).arg(argument).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text.contains("is no argument, usage: server "), "{text}");
}

#[test]
fn a_missing_store_is_reported_at_the_start() {
    let port = support::redis::free_port();
    let refused = refused(&format!(
        "store = \"redis://:hunter2@127.0.0.1:{port}\"\npolicy = []\n"
    ));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(text.contains("the store cannot be reached"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn the_file_is_read_again_and_the_outcome_is_printed() {
    let mut server = Running::start_with(TWO, |command| command.stderr(Stdio::piped()));
    let stderr = BufReader::new(server.process.stderr.take().unwrap());
    // The other lines are the log's.
    let told = stderr.lines().map(Result::unwrap);
    let mut told = told.filter(|line| line.starts_with("server: "));
    let mut told = || told.next().unwrap();
    let client = Client::new();
    for status in [200, 200, 429] {
        assert_eq!(server.get(&client, "/").await.status(), status);
    }
    let replace = |config: &str| {
        let other = server.file.path().with_extension("new");
        fs::write(&other, config).unwrap();
        fs::rename(other, server.file.path()).unwrap();
    };

    replace(&TWO.replace("2/h", "3/h"));
    assert_eq!(told(), "server: the limits are reloaded");
    for status in [200, 429] {
        assert_eq!(server.get(&client, "/").await.status(), status);
    }

    replace(&TWO.replace("2/h", "9/hour"));
    let refused = told();
    assert!(
        refused.starts_with("server: the limits stay as they were: "),
        "{refused}"
    );
    assert!(
        refused.contains("line 8: policy \"client\": limit: got \"9/hour\""),
        "{refused}"
    );
    assert_eq!(server.get(&client, "/").await.status(), 429);
}

/// The log is on standard error, with the events of the levels in `RUST_LOG`.
#[cfg(feature = "tracing")]
#[tokio::test]
async fn the_log_is_on_standard_error() {
    for (levels, is_debug) in [(None, false), (Some("info,tower_throttle=debug"), true)] {
        let mut server = Running::start_with(TWO, |command| {
            command.env_remove("RUST_LOG").stderr(Stdio::piped());
            command.envs(levels.map(|levels| ("RUST_LOG", levels)))
        });
        let stderr = BufReader::new(server.process.stderr.take().unwrap());
        let client = Client::new();
        for status in [200, 200, 429] {
            assert_eq!(server.get(&client, "/").await.status(), status);
        }
        let other = server.file.path().with_extension("new");
        fs::write(&other, TWO.replace("2/h", "3/h")).unwrap();
        fs::rename(other, server.file.path()).unwrap();
        let mut lines = stderr.lines().map(Result::unwrap);
        let until_reloaded = lines.by_ref().take_while(|line| !line.contains("INFO"));
        let denied =
            until_reloaded.filter(|line| line.contains("DEBUG") && line.contains("denied"));
        assert_eq!(denied.count() > 0, is_debug, "{levels:?}");
    }
}

#[tokio::test]
async fn the_store_and_the_secret_stand_in_the_environment() {
    let redis = Redis::start();
    let config = TWO.replace(
        "\"memory\"",
        "{ env = \"TEST_REDIS_URL\" }\nsecret = { env = \"TEST_LIMITS_SECRET\" }",
    );
    let client = Client::new();
    let mut keys = Vec::new();
    for secret in ["one", "other"] {
        let server = Running::start_with(&config, |command| {
            command
                .env("TEST_REDIS_URL", redis.url())
                .env("TEST_LIMITS_SECRET", secret)
        });
        assert_eq!(server.get(&client, "/").await.status(), 200);
        keys.push(redis.keys().len());
    }
    // With another secret the same client is another subject.
    assert_eq!(keys, [1, 2]);

    let refused = refused(&config);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.contains("line 2: store.env: the variable \"TEST_REDIS_URL\" is not set, set it to "),
        "{text}"
    );
}

/// `TWO` with these further fields of the file and of the policy.
fn two_with(head: &str, policy: &str) -> String {
    format!("{head}\n{TWO}{policy}\n")
}

#[tokio::test]
async fn exempt_requests_and_a_policy_in_shadow_pass_without_headers() {
    let client = Client::new();
    let server = Running::start(&two_with("exempt = [\"GET /health\"]", ""));
    for (path, status) in [("/health", 200), ("/", 200), ("/", 200), ("/", 429)] {
        let response = server.get(&client, path).await;
        assert_eq!(response.status(), status, "{path}");
        let is_told = response.headers().contains_key("ratelimit");
        assert_eq!(is_told, path != "/health", "{path}");
    }
    assert_eq!(server.get(&client, "/health").await.status(), 200);

    let server = Running::start(&two_with("", "mode = \"shadow\""));
    for _ in 0..4 {
        let response = server.get(&client, "/").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key("ratelimit"));
    }
}

#[tokio::test]
async fn a_request_is_held_up_for_as_long_as_the_file_says() {
    let server = Running::start(
        "store = \"memory\"\n[[policy]]\nname = \"client\"\nalgorithm = \"gcra\"\nlimit = \"1/s\"\n\
         burst = 1\nkey = \"peer\"\nmax_wait = \"60s\"\n",
    );
    let client = Client::new();
    let start = std::time::Instant::now();
    for _ in 0..2 {
        assert_eq!(server.get(&client, "/").await.status(), StatusCode::OK);
    }
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn without_its_store_a_server_does_what_the_file_says() {
    let client = Client::new();
    let quarter = "on_store_failure = { local = 0.25 }";
    let deny = "on_store_failure = \"deny\"";
    let allow = "on_store_failure = \"allow\"";
    for (file, policy, expected) in [
        (quarter, "", [200, 200, 429, 429]),
        ("", quarter, [200, 200, 429, 429]),
        (deny, "", [503; 4]),
        (deny, allow, [200; 4]),
    ] {
        let mut redis = Redis::start();
        let config = two_with(file, policy)
            .replace("2/h", "8/h")
            .replace("\"memory\"", &format!("{:?}", redis.url()));
        let server = Running::start(&config);
        redis.kill();
        for status in expected {
            let response = server.get(&client, "/").await;
            assert_eq!(response.status(), status, "{file}: {policy}");
        }
    }
}

/// A field of each of three families, and the redirects that have none.
#[tokio::test]
async fn a_server_tells_the_headers_that_the_file_names() {
    let client = Client::new();
    for (headers, allowed, denied) in [
        ("\"none\"", [false; 3], [false; 3]),
        ("\"denials\"", [false; 3], [true, false, false]),
        ("\"draft-6\"", [false, true, false], [false, true, false]),
        (
            "[\"x-ratelimit-epoch\", \"denials\"]",
            [false; 3],
            [false, false, true],
        ),
        (
            "[\"draft-11\", \"x-ratelimit-delta\"]",
            [true, false, true],
            [true, false, true],
        ),
    ] {
        let server = Running::start(&two_with(&format!("headers = {headers}"), ""));
        for (path, status, told) in [
            ("/", 200, allowed),
            ("/status/302", 302, [false; 3]),
            ("/", 429, denied),
        ] {
            let response = server.get(&client, path).await;
            assert_eq!(response.status(), status);
            let names = ["ratelimit", "ratelimit-reset", "x-ratelimit-reset"];
            let has = names.map(|name| response.headers().contains_key(name));
            assert_eq!(has, told, "{headers} on {status}");
        }
    }
}
