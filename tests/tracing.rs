//! What the log says, at which level, and that it never says of whom.
#![cfg(all(feature = "memory", feature = "redis", feature = "tracing"))]

use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Bytes;
use proptest::prelude::*;
use tower::{Layer, ServiceExt as _, service_fn};
use tower_throttle::{
    AccessList, Answer, BreakerState, Check, ClientAddr, DecisionEvent, DenyCache, FailureMode,
    Header, HeaderCost, Key, Limit, Limiter, MINUTE, MemoryStore, Mode, OnMissingKey, Peer,
    PeerAddr, Penalty, Policy, RateLimitLayer, RedisStore, SECOND, Store, StoreError,
    StoreErrorKind,
};
use tracing::Level;

use self::http_store::{TestStore, Trip};
use self::log::{Entry, Log};
use self::support::cluster::Cluster;
use self::support::redis::Server;

#[path = "support/http_store.rs"]
mod http_store;
#[path = "support/log.rs"]
mod log;
mod support;

fn one_a_minute(name: &str) -> Policy {
    Policy::new(name, Limit::gcra(1, MINUTE)).by(Header::new("x-user"))
}

async fn check(limiter: &Limiter, policy: &str, times: usize) {
    for _ in 0..times {
        let _ = limiter.check(policy, "alice").await.unwrap();
    }
}

/// The only event, which is of this level and this text.
#[track_caller]
fn only(log: &Log, level: Level, text: &str) -> Entry {
    let events = log.events();
    let [event] = &events[..] else {
        panic!("not one: {events:#?}");
    };
    assert_eq!((event.level, &*event.name), (level, text));
    assert!(event.target.starts_with("tower_throttle"), "{event:?}");
    event.clone()
}

#[tokio::test]
async fn what_is_allowed_is_not_worth_a_word() {
    let (log, _listening) = Log::listen();
    let policy = Policy::new("api", Limit::gcra(10, MINUTE));
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    check(&limiter, "api", 10).await;
    assert_eq!(log.entries(), []);
}

#[tokio::test]
async fn a_denial_says_which_policy_whose_hash_and_for_how_long() {
    let (log, _listening) = Log::listen();
    let limiter = Limiter::new(MemoryStore::new(), [one_a_minute("api")]).unwrap();
    check(&limiter, "api", 2).await;
    let denied = only(&log, Level::DEBUG, "denied");
    assert_eq!(
        denied.names(),
        ["banned", "policy", "result", "retry_after_us", "subject"]
    );
    assert_eq!(denied.field("policy"), "api");
    assert_eq!(denied.field("result"), "denied");
    assert_eq!(denied.field("banned"), "false");
    assert_eq!(
        denied.field("subject"),
        limiter.subject_of("alice").to_string()
    );
    let wait: u64 = denied.field("retry_after_us").parse().unwrap();
    assert!((1..=60_000_000).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_ban_is_told_from_a_denial() {
    let (log, _listening) = Log::listen();
    let penalty = Penalty::after(1, MINUTE, MINUTE);
    let policy = one_a_minute("api").penalty(penalty);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    check(&limiter, "api", 3).await;
    let events = log.events();
    assert_eq!(
        events.last().unwrap().field("banned"),
        "true",
        "{events:#?}"
    );
}

#[tokio::test]
async fn a_shadow_denial_says_that_it_is_none() {
    let (log, _listening) = Log::listen();
    let policy = one_a_minute("trial").mode(Mode::Shadow);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    check(&limiter, "trial", 2).await;
    let event = only(&log, Level::DEBUG, "would have been denied");
    assert_eq!(
        event.names(),
        ["policy", "result", "retry_after_us", "subject"]
    );
    assert_eq!(event.field("policy"), "trial");
    assert_eq!(event.field("result"), "shadow_denied");
    assert_eq!(
        event.field("subject"),
        limiter.subject_of("alice").to_string()
    );
}

#[tokio::test]
async fn a_store_that_fails_is_told_with_what_was_made_of_it() {
    for (mode, text, result) in [
        (FailureMode::Allow, "let through uncounted", "failed_open"),
        (
            FailureMode::Deny,
            "refused for want of an answer",
            "failed_closed",
        ),
    ] {
        for trip in [Trip::Fails, Trip::FailsLate] {
            let (log, _listening) = Log::listen();
            let policy = one_a_minute("api").on_store_failure(mode);
            let limiter = Limiter::new(TestStore::new(trip), [policy]).unwrap();
            check(&limiter, "api", 1).await;
            let event = only(&log, Level::DEBUG, text);
            assert_eq!(event.names(), ["failure", "policy", "result"]);
            assert_eq!(event.field("policy"), "api");
            assert_eq!(event.field("result"), result);
            assert_eq!(event.field("failure"), "unreachable");
        }
    }
}

type Body = Empty<Bytes>;

fn from(peer: Option<&str>, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = Request::new(Body::new());
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    if let Some(peer) = peer {
        let address = (peer.parse::<IpAddr>().unwrap(), 1_234);
        request
            .extensions_mut()
            .insert(Peer::from(std::net::SocketAddr::from(address)));
    }
    request
}

async fn answer(limiter: &Limiter, request: Request<Body>) -> Response<()> {
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, ()>(Response::new(Body::new())) });
    let service = RateLimitLayer::new(limiter.clone()).layer(ok);
    service.oneshot(request).await.unwrap().map(drop)
}

async fn send(limiter: &Limiter, request: Request<Body>) -> u16 {
    answer(limiter, request).await.status().as_u16()
}

#[tokio::test]
async fn a_refusal_says_why() {
    let policy = || one_a_minute("user").on_missing_key(OnMissingKey::Reject);
    let denied = AccessList::new().keys([Key::header("x-user", b"mallory")]);
    let limiter = Limiter::builder(MemoryStore::new())
        .policy(policy())
        .deny(denied);
    let limiter = limiter.build().unwrap();
    for (headers, status, reason) in [
        (&[][..], 400, "missing_key"),
        (&[("x-user", "mallory")], 403, "listed"),
    ] {
        let (log, _listening) = Log::listen();
        assert_eq!(send(&limiter, from(None, headers)).await, status);
        let event = only(&log, Level::DEBUG, "refused without asking");
        assert_eq!(event.names(), ["policy", "reason"]);
        assert_eq!(event.field("policy"), "user");
        assert_eq!(event.field("reason"), reason);
    }
}

#[tokio::test]
async fn a_server_that_lacks_what_a_policy_needs_is_warned_with_what_to_do() {
    let (log, _listening) = Log::listen();
    let policy = Policy::new("client", Limit::gcra(1, MINUTE)).by(PeerAddr);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    assert_eq!(send(&limiter, from(None, &[])).await, 500);
    let event = only(&log, Level::WARN, "refused without asking");
    assert_eq!(event.field("policy"), "client");
    assert_eq!(event.field("reason"), "misconfigured");
    let why = event.field("explanation");
    assert!(why.contains("into_make_service_with_connect_info"), "{why}");
}

#[tokio::test]
async fn a_trip_to_the_store_is_a_span_that_says_how_it_came_out() {
    let (log, _listening) = Log::listen();
    let policies = [
        one_a_minute("user"),
        Policy::new("all", Limit::gcra(10, MINUTE)),
    ];
    let limiter = Limiter::new(TestStore::new(Trip::Short), policies).unwrap();
    for (status, allowed) in [(200, "true"), (429, "false")] {
        assert_eq!(
            send(&limiter, from(None, &[("x-user", "alice")])).await,
            status
        );
        let spans = log.entries();
        let mut spans = spans.iter().rev().filter(|entry| !entry.is_event);
        let (answer, question) = (spans.next().unwrap(), spans.next().unwrap());
        assert_eq!(
            (question.level, &*question.name),
            (Level::DEBUG, "rate_limit")
        );
        assert_eq!(question.names(), ["policies"]);
        assert_eq!(question.field("policies"), "2");
        assert_eq!(answer.names(), ["allowed"]);
        assert_eq!(answer.field("allowed"), allowed);
    }
}

#[tokio::test]
async fn what_the_store_says_while_it_is_asked_is_within_the_span() {
    #[derive(Clone)]
    struct Talkative(TestStore);

    impl Store for Talkative {
        fn ask(&self, checks: &[Check<'_>]) -> Answer {
            let answer = self.0.ask(checks);
            Answer::Pending(Box::pin(async move {
                tracing::info!("on the way");
                match answer {
                    Answer::Ready(answer) => answer,
                    Answer::Pending(answer) => answer.await,
                }
            }))
        }
    }

    let (log, _listening) = Log::listen();
    let store = Talkative(TestStore::new(Trip::Short));
    let limiter = Limiter::new(store, [one_a_minute("user")]).unwrap();
    assert_eq!(
        send(&limiter, from(None, &[("x-user", "alice")])).await,
        200
    );
    let events = log.events();
    assert_eq!(events[0].name, "on the way");
    assert_eq!(events[0].within, ["rate_limit"]);
}

/// Everything that is said of requests of this user and this peer, and all that can be shown.
async fn everything_said(user: &str, peer: IpAddr) -> String {
    let (log, _listening) = Log::listen();
    let shown = Arc::new(Mutex::new(String::new()));
    for trip in [Trip::None, Trip::Short, Trip::Fails, Trip::FailsLate] {
        let by_address = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).unwrap();
        let policies = [
            one_a_minute("enforced"),
            one_a_minute("trial").mode(Mode::Shadow),
            one_a_minute("closed").on_store_failure(FailureMode::Deny),
            Policy::new("listed", Limit::gcra(1_000, MINUTE)).by(Header::new("x-listed")),
            Policy::new("client", Limit::gcra(2, MINUTE)).by(by_address),
            Policy::new("cost", Limit::gcra(1_000, MINUTE)).cost_by(HeaderCost::new("x-cost")),
        ];
        let denied = AccessList::new().keys([Key::header("x-listed", user.as_bytes())]);
        let told = Arc::clone(&shown);
        let limiter = Limiter::builder(TestStore::new(trip))
            .policies(policies.clone())
            .deny(denied.clone())
            .on_decision(move |event: &DecisionEvent<'_>| {
                told.lock().unwrap().push_str(&format!("{event:?}\n"));
            })
            .build()
            .unwrap();
        let mut rejections = String::new();
        for headers in [
            &[("x-user", user)][..],
            &[("x-user", user)],
            &[("x-listed", user)],
            &[("x-cost", user)],
            &[],
            &[],
        ] {
            let request = from(Some(&peer.to_string()), headers);
            rejections.push_str(&format!("{:?}\n", answer(&limiter, request).await));
        }
        for policy in ["enforced", "trial", "closed"] {
            for key in [Key::from(user), Key::from(user), Key::address(peer)] {
                rejections.push_str(&format!("{:?}\n", limiter.check(policy, &key).await));
                rejections.push_str(&format!("{key:?} {:?}\n", limiter.subject_of(&key)));
            }
        }
        let shapes = format!("{limiter:?} {policies:?} {denied:?}\n");
        shown.lock().unwrap().push_str(&(rejections + &shapes));
    }
    let events = log.events();
    for text in ["denied", "would have been denied", "let through uncounted"] {
        assert!(
            events.iter().any(|event| event.name == text),
            "{text}: {events:#?}"
        );
    }
    let shown = shown.lock().unwrap();
    format!("{shown}\n{:#?}", log.entries())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nothing_that_is_said_shows_whom_it_is_about(
        user in "[a-zA-Z0-9@._-]{7,30}",
        peer in any::<[u8; 16]>().prop_map(IpAddr::from),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = runtime.block_on(everything_said(&user, peer));
        prop_assert!(!said.contains(&user), "{user}: {said}");
        prop_assert!(!said.contains(&peer.to_string()), "{peer}: {said}");
    }
}

#[test]
fn nor_does_it_of_an_address_of_four_bytes() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let peer = "203.0.113.77".parse().unwrap();
    let said = runtime
        .unwrap()
        .block_on(everything_said("mallory@example.com", peer));
    assert!(!said.contains("203.0.113"), "{said}");
}

#[tokio::test]
async fn junk_in_the_place_of_an_address_is_not_said_after() {
    let client = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    let policy = Policy::new("client", Limit::gcra(1, MINUTE)).by(client.clone());
    let limiter = Limiter::builder(MemoryStore::new())
        .policy(policy)
        .deny(
            AccessList::new()
                .addresses(client, ["203.0.113.9"])
                .unwrap(),
        )
        .build()
        .unwrap();
    let (log, _listening) = Log::listen();
    for status in [200, 429] {
        let junk = &[("x-forwarded-for", "junk-of-mallory\t level=ERROR")];
        let response = answer(&limiter, from(Some("10.0.0.5"), junk)).await;
        assert_eq!(response.status(), status);
        assert!(!format!("{response:?}").contains("mallory"), "{response:?}");
    }
    only(&log, Level::DEBUG, "denied");
    assert!(!format!("{:?}", log.entries()).contains("mallory"));
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_keeps_its_password_to_itself() {
    let (log, _listening) = Log::listen();
    // Nobody listens there: the port was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("redis://operator:open-sesame@127.0.0.1:{port}");
    let failed = RedisStore::connect(&url).await.unwrap_err();
    let mut said = format!("{failed:?} {failed}");
    let mut source = failed.source();
    while let Some(error) = source {
        said.push_str(&format!(" {error:?} {error}"));
        source = error.source();
    }
    let store = RedisStore::builder(&url).connect_lazy().unwrap();
    said.push_str(&format!("{store:?}"));
    let limiter = Limiter::new(store, [one_a_minute("api")]).unwrap();
    check(&limiter, "api", 10).await;
    let mut events = log.events();
    assert_eq!(events.len(), 11, "{events:#?}");
    events.retain(|event| event.level == Level::WARN);
    let warning = events.first().expect("the breaker has opened");
    let why = warning.field("error");
    assert!(why.contains("Connection refused"), "{why}");
    said.push_str(&format!("{:#?}", log.entries()));
    assert!(!said.contains("open-sesame"), "{said}");
}

/// Does not work until it is mended.
#[derive(Clone)]
struct Broken(Arc<AtomicBool>);

impl Store for Broken {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let is_mended = self.0.load(Ordering::SeqCst);
        let trip = if is_mended {
            Trip::Short
        } else {
            Trip::FailsLate
        };
        TestStore::new(trip).ask(checks)
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_warned_of_once_and_so_is_its_end() {
    let (log, _listening) = Log::listen();
    let store = Broken(Arc::default());
    let limiter = Limiter::new(store.clone(), [one_a_minute("api")]).unwrap();
    check(&limiter, "api", 100).await;
    store.0.store(true, Ordering::SeqCst);
    // Longer than any pause before the store is asked again.
    tokio::time::sleep(MINUTE).await;
    check(&limiter, "api", 1).await;
    let mut events = log.events();
    events.retain(|event| event.level < Level::DEBUG);
    let [began, ended] = &events[..] else {
        panic!("not two: {events:#?}");
    };
    let text = "the store failed too often: it is left alone and the failure modes decide";
    assert_eq!((began.level, &*began.name), (Level::WARN, text));
    let text = "the store is back after it had failed too often";
    assert_eq!((ended.level, &*ended.name), (Level::INFO, text));
    for event in [began, ended] {
        assert_eq!(event.names(), ["reason"]);
        assert_eq!(event.field("reason"), "the store cannot be reached");
    }
}

/// As a cluster of which one node is away.
#[tokio::test(start_paused = true)]
async fn a_store_of_which_a_part_fails_is_warned_of_once_a_minute_and_asked_on() {
    /// Every second question is about what has gone.
    struct HalfGone(AtomicBool);

    impl Store for HalfGone {
        fn ask(&self, checks: &[Check<'_>]) -> Answer {
            if !self.0.fetch_not(Ordering::SeqCst) {
                return TestStore::new(Trip::Short).ask(checks);
            }
            let gone = StoreError::with_source(StoreErrorKind::Unreachable, "no route to it");
            Answer::Pending(Box::pin(async { Err(gone) }))
        }

        fn fails_in_parts(&self) -> bool {
            true
        }
    }

    let (log, _listening) = Log::listen();
    let store: Arc<dyn Store> = Arc::new(HalfGone(AtomicBool::default()));
    let limiter = Limiter::new(DenyCache::new(store), [one_a_minute("api")]).unwrap();
    for _ in 0..150 {
        check(&limiter, "api", 20).await;
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(limiter.breaker(), BreakerState::Closed);
    let mut warnings = log.events();
    warnings.retain(|event| event.level == Level::WARN);
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    for warning in warnings {
        let text = "a part of the store fails: the failure modes decide about its keys";
        assert_eq!(&*warning.name, text);
        assert_eq!(warning.field("reason"), "the store cannot be reached");
        assert_eq!(warning.field("error"), "no route to it");
    }
}

/// A wrong password is somebody's to change, who may have missed the first line.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_configured_wrongly_is_warned_of_once_a_minute() {
    struct Refusing;

    impl Store for Refusing {
        fn ask(&self, _: &[Check<'_>]) -> Answer {
            let refused = StoreError::new(StoreErrorKind::Configuration);
            Answer::Pending(Box::pin(async { Err(refused) }))
        }
    }

    let (log, _listening) = Log::listen();
    let limiter = Limiter::new(Refusing, [one_a_minute("api")]).unwrap();
    // Half a minute after the third line, and long before the next.
    for _ in 0..150 {
        check(&limiter, "api", 5).await;
        tokio::time::sleep(SECOND).await;
    }
    let mut warnings = log.events();
    warnings.retain(|event| event.level == Level::WARN);
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    for warning in warnings {
        assert!(warning.name.starts_with("the store refuses this process"));
        assert_eq!(warning.field("reason"), "the store is configured wrongly");
    }
}

/// The warnings of a store that is configured wrongly.
fn refusals(log: &Log) -> Vec<Entry> {
    let mut events = log.events();
    events.retain(|event| event.name.starts_with("the store refuses this process"));
    for event in &events {
        assert_eq!(event.level, Level::WARN);
        assert_eq!(event.field("reason"), "the store is configured wrongly");
    }
    events
}

/// The text of the only warning, in which the password of these tests is not.
#[track_caller]
fn only_refusal(log: &Log) -> String {
    let said = format!("{:#?}", log.entries());
    assert!(!said.contains("open-sesame"), "{said}");
    match &refusals(log)[..] {
        [warning] => warning.field("error").to_owned(),
        _ => panic!("not one: {said}"),
    }
}

/// Of a limit that nobody reaches here.
async fn ask(store: RedisStore, subjects: u64) -> Limiter {
    let policy = Policy::new("api", Limit::gcra(1_000, MINUTE));
    let limiter = Limiter::builder(store).policy(policy).timeout(SECOND);
    let limiter = limiter.build().unwrap();
    for subject in 0..subjects {
        let _ = limiter.check("api", subject).await.unwrap();
    }
    limiter
}

/// Which is right about a third of the keys, so that the breaker opens and closes.
#[tokio::test]
async fn who_asks_one_node_of_a_cluster_is_told_once_what_to_use_instead() {
    let cluster = Cluster::start();
    let url = cluster.masters[0].url();
    let pool = deadpool_redis::Config::from_url(&url);
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1));
    let lazy = RedisStore::builder(&url).connect_lazy();
    for store in [RedisStore::from_pool(pool.unwrap()), lazy.unwrap()] {
        let (log, _listening) = Log::listen();
        ask(store, 200).await;
        let told = only_refusal(&log);
        assert!(told.contains("use redis-cluster://"), "{told}");
        assert_eq!(told.matches("Moved").count(), 1, "{told}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_url_is_told_also_without_a_look_at_start_up() {
    let server = Server::start_with(&["--requirepass", "right"]);
    for (login, database, advice) in [
        ("", "", "the server wants a password"),
        (":open-sesame@", "", "refuses the user or the password"),
        (":right@", "/99", "has no database of this number"),
    ] {
        let url = format!("redis://{login}127.0.0.1:{}{database}", server.port());
        let (log, _listening) = Log::listen();
        ask(RedisStore::builder(&url).connect_lazy().unwrap(), 20).await;
        let told = only_refusal(&log);
        assert!(told.contains(advice), "{told}");
    }
}

/// It answers with the login that it was sent.
#[tokio::test]
async fn a_server_that_does_not_know_how_to_log_in_has_no_password_told() {
    let server = Server::start_with(&["--rename-command", "HELLO", ""]);
    let place = format!("127.0.0.1:{}", server.port());
    let pool = format!("redis://:open-sesame@{place}/?protocol=resp3");
    let pool = deadpool_redis::Config::from_url(pool);
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1));
    let (log, _listening) = Log::listen();
    ask(RedisStore::from_pool(pool.unwrap()), 20).await;
    let told = only_refusal(&log);
    assert!(told.contains("HELLO"), "{told}");
}

#[tokio::test]
async fn what_was_right_once_is_told_when_it_is_not_any_more() {
    for (change, advice) in [
        ("-evalsha", "the server's user lacks a right"),
        (">another", "refuses the user or the password"),
    ] {
        let server = Server::start();
        let user = |rules: &[&str]| {
            let mut user = redis::cmd("ACL");
            user.arg("SETUSER").arg("limiter").arg(rules);
            server.query::<()>(user);
        };
        user(&["on", ">open-sesame", "~*", "+@all"]);
        let url = format!("redis://limiter:open-sesame@127.0.0.1:{}", server.port());
        let (log, _listening) = Log::listen();
        let limiter = ask(RedisStore::connect(&url).await.unwrap(), 20).await;
        assert_eq!(log.events(), []);
        user(&["<open-sesame", ">open-sesame", change]);
        if change.starts_with('>') {
            user(&["<open-sesame"]);
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("USER").arg("limiter");
            server.query::<()>(kill);
        }
        for _ in 0..200 {
            check(&limiter, "api", 1).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let told = only_refusal(&log);
        assert!(told.contains(advice), "{told}");
    }
}

/// Refuses one question of three, so that there are never too many failures.
struct Particular {
    questions: AtomicUsize,
    is_quick: bool,
}

impl Store for Particular {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let question = self.questions.fetch_add(1, Ordering::SeqCst);
        if !question.is_multiple_of(3) {
            return TestStore::new(Trip::Short).ask(checks);
        }
        let refused = StoreError::with_source(StoreErrorKind::Configuration, "read the manual");
        match self.is_quick {
            true => Answer::Ready(Err(refused)),
            false => Answer::Pending(Box::pin(async { Err(refused) })),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_only_an_operator_mends_is_warned_of_also_while_the_breaker_stays_closed() {
    for is_quick in [false, true] {
        let (log, _listening) = Log::listen();
        let store = Particular {
            questions: AtomicUsize::default(),
            is_quick,
        };
        let limiter = Limiter::new(store, [one_a_minute("api")]).unwrap();
        for _ in 0..150 {
            check(&limiter, "api", 30).await;
            assert_eq!(limiter.breaker(), BreakerState::Closed);
            tokio::time::sleep(SECOND).await;
        }
        let warnings = refusals(&log);
        assert_eq!(warnings.len(), 3, "{warnings:#?}");
        for warning in warnings {
            assert_eq!(warning.field("error"), "read the manual");
        }
    }
}
