//! What the recorder of the crate `metrics` receives, read back as Prometheus reads it.
#![cfg(all(feature = "memory", feature = "metrics"))]

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Bytes;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use support::prometheus::Scrape;
use tower::{Layer, Service, service_fn};
use tower_throttle::{
    AccessList, AlwaysAllow, BreakerState, ClientAddr, FailureMode, HOUR, Header, HeaderCost,
    Limit, Limiter, MINUTE, ManualClock, MemoryStore, Metrics, Mode, Observer, OnMissingKey, Peer,
    Percent, Policy, Prefetch, RateLimitLayer, Rules, StoreErrorKind,
};

use crate::observing::send_to_busy_upstream;
use support::http_store::{TestStore, Trip};

fn recorder() -> PrometheusRecorder {
    let buckets = [0.001, 0.01, 0.1];
    let builder = PrometheusBuilder::new().with_recommended_naming(true);
    let builder = builder.set_buckets_for_metric(Matcher::Suffix("seconds".into()), &buckets);
    builder.unwrap().build_recorder()
}

/// What is recorded while this runs. Everything runs on this thread, as the recorder is local to
/// it.
fn recorded(work: impl FnOnce()) -> Scrape {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, work);
    Scrape::parse(&recorder.handle().render())
}

fn check(limiter: &Limiter, policy: &str, times: usize) {
    for _ in 0..times {
        let answer = limiter.check(policy, "alice").now_or_never();
        let _ = answer.expect("a store in memory").unwrap();
    }
}

const DECISIONS: &str = "tower_throttle_decisions_total";
const PREFETCHED: &str = "tower_throttle_prefetched_total";
const UNANSWERED: &str = "tower_throttle_unanswered_total";
const REFUSALS: &str = "tower_throttle_refusals_total";
const HOLDS: &str = "tower_throttle_holds_total";
const SHADOW_REFUSALS: &str = "tower_throttle_shadow_refusals_total";

#[test]
fn decisions_are_counted_by_policy_and_result() {
    let scrape = recorded(|| {
        let store = MemoryStore::builder().clock(ManualClock::new()).build();
        let limiter = Limiter::builder(
            store,
            [
                Policy::new("api", Limit::sliding_log(10, MINUTE)),
                Policy::new("trial", Limit::sliding_log(1, MINUTE)).mode(Mode::Shadow),
                Policy::new(
                    "queue",
                    Limit::leaky_bucket(5, tower_throttle::per_minute(1)),
                ),
            ],
        )
        .observe(Metrics::new())
        .build()
        .unwrap();
        check(&limiter, "api", 15);
        check(&limiter, "trial", 4);
        check(&limiter, "queue", 3);
    });
    for (policy, result, count) in [
        ("api", "allowed", 8.0),
        // One left, and none.
        ("api", "near_limit", 2.0),
        ("api", "denied", 5.0),
        ("api", "shadow_denied", 0.0),
        ("trial", "near_limit", 1.0),
        ("trial", "shadow_denied", 3.0),
        ("trial", "denied", 0.0),
        ("queue", "waited", 2.0),
    ] {
        let labels = [("policy", policy), ("result", result)];
        assert_eq!(scrape.value(DECISIONS, &labels), Some(count), "{labels:?}");
    }
    let delay = "tower_throttle_delay_seconds";
    let of_queue = [("policy", "queue")];
    assert_eq!(
        scrape.value(&format!("{delay}_count"), &of_queue),
        Some(2.0)
    );
    // The second waits a minute for the first, the third two.
    let sum = scrape.value(&format!("{delay}_sum"), &of_queue);
    assert_eq!(sum, Some(180.0));
}

#[test]
fn decisions_from_a_batch_are_counted_besides() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut prefetched = 0;
    let scrape = recorded(|| {
        let limit = Limit::fixed_window(100_000, MINUTE);
        let limiter = Limiter::builder(
            TestStore::new(Trip::Short),
            [
                Policy::new("hot", limit).prefetch(Prefetch::new()),
                Policy::new("each asked", limit),
            ],
        )
        .observe(Metrics::new())
        .timeout(MINUTE)
        .build()
        .unwrap();
        runtime.block_on(async {
            for _ in 0..1_000 {
                let decision = limiter.check("hot", "everybody").await.unwrap();
                prefetched += u32::from(decision.is_prefetched());
                let decision = limiter.check("each asked", "everybody").await.unwrap();
                assert!(!decision.is_prefetched());
            }
        });
    });
    assert!(prefetched > 100, "{prefetched}");
    for (policy, expected) in [("hot", prefetched), ("each asked", 0)] {
        let labels = [("policy", policy)];
        let counted = scrape.value(PREFETCHED, &labels);
        assert_eq!(counted, Some(expected.into()), "{policy}");
        let results = [("policy", policy), ("result", "allowed")];
        assert_eq!(scrape.value(DECISIONS, &results), Some(1_000.0), "{policy}");
    }
}

#[test]
fn failures_of_the_store_and_denials_are_counted_apart() {
    let scrape = recorded(|| {
        let limiter = Limiter::builder(
            TestStore::new(Trip::Fails),
            [
                Policy::new("open", Limit::gcra(1, MINUTE)),
                Policy::new("closed", Limit::gcra(1, MINUTE)).on_store_failure(FailureMode::Deny),
            ],
        )
        .observe(Metrics::new())
        .build()
        .unwrap();
        check(&limiter, "open", 2);
        check(&limiter, "closed", 3);
    });
    for (policy, result, count) in [
        ("open", "failed_open", 2.0),
        ("closed", "failed_closed", 3.0),
    ] {
        let labels = [("policy", policy), ("result", result)];
        assert_eq!(scrape.value(DECISIONS, &labels), Some(count), "{labels:?}");
        let denied = [("policy", policy), ("result", "denied")];
        assert_eq!(scrape.value(DECISIONS, &denied), Some(0.0), "{policy}");
        let why = [("policy", policy), ("kind", "unreachable")];
        assert_eq!(scrape.value(UNANSWERED, &why), Some(count), "{policy}");
    }
}

#[test]
fn a_full_memory_store_shows_in_the_decisions_it_could_not_take() {
    let scrape = recorded(|| {
        let store = MemoryStore::builder()
            .capacity(1)
            .clock(ManualClock::new())
            .build();
        let limiter = Limiter::builder(store, [Policy::new("api", Limit::gcra(1, MINUTE))])
            .observe(Metrics::new())
            .build()
            .unwrap();
        // A key whose quota is used up is never evicted.
        for user in 0_u32..10_000 {
            let _ = limiter.check("api", user).now_or_never().unwrap().unwrap();
        }
    });
    let value = |name, labels| scrape.value(name, labels).unwrap();
    let full = value(UNANSWERED, &[("policy", "api"), ("kind", "full")]);
    assert!(full > 0.0, "{}", scrape.text());
    assert_eq!(
        full,
        value(DECISIONS, &[("policy", "api"), ("result", "failed_open")])
    );
}

/// If another policy denies a request, nobody waits.
#[test]
fn only_delayed_requests_that_go_on_are_counted_as_delayed() {
    let scrape = recorded(|| {
        let store = MemoryStore::builder().clock(ManualClock::new()).build();
        let limiter = Limiter::builder(
            store,
            [
                Policy::new("queue", Limit::gcra(1, MINUTE)).max_wait(HOUR),
                Policy::new("few", Limit::gcra(1, HOUR)),
            ],
        )
        .observe(Metrics::new())
        .build()
        .unwrap();
        assert_eq!(send(&limiter, &[], None), 200);
        assert_eq!(send(&limiter, &[], None), 429);
    });
    let waited = [("policy", "queue"), ("result", "waited")];
    assert_eq!(scrape.value(DECISIONS, &waited), Some(0.0));
    for of in ["count", "sum"] {
        let delays = format!("tower_throttle_delay_seconds_{of}");
        let of_queue = scrape.value(&delays, &[("policy", "queue")]);
        assert_eq!(of_queue.unwrap_or_default(), 0.0, "{}", scrape.text());
    }
}

type Body = Empty<Bytes>;

/// Sends one request from this peer through the layer, with these headers.
fn send(limiter: &Limiter, headers: &[(&'static str, &str)], peer: Option<SocketAddr>) -> u16 {
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, ()>(Response::new(Body::new())) });
    let mut request = Request::new(Body::new());
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    if let Some(peer) = peer {
        request.extensions_mut().insert(Peer::from(peer));
    }
    let answer = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(ok)
        .call(request);
    answer.now_or_never().unwrap().unwrap().status().as_u16()
}

#[test]
fn refusals_are_counted_by_reason_and_policy() {
    let scrape = recorded(|| {
        let client = ClientAddr::forwarded(["10.1.1.1"]).unwrap();
        let denied = AccessList::new()
            .addresses(client, ["10.6.6.0/24"])
            .unwrap();
        let limiter = Limiter::builder(
            MemoryStore::new(),
            Rules::new([Policy::new("user", Limit::gcra(100, MINUTE))
                .by(Header::new("x-user"))
                .on_missing_key(OnMissingKey::Reject)
                .cost_by(HeaderCost::new("x-cost"))])
            .deny(denied),
        )
        .observe(Metrics::new())
        .build()
        .unwrap();
        let listed = "10.6.6.6:1".parse().unwrap();
        let proxy = "10.1.1.1:1".parse().unwrap();
        let user = ("x-user", "a");
        assert_eq!(send(&limiter, &[user], Some(proxy)), 200);
        assert_eq!(send(&limiter, &[], Some(proxy)), 400);
        assert_eq!(send(&limiter, &[], Some(proxy)), 400);
        assert_eq!(
            send(&limiter, &[user, ("x-cost", "much")], Some(proxy)),
            400
        );
        let unreadable = ("forwarded", "for=\"mallory");
        assert_eq!(send(&limiter, &[user, unreadable], Some(proxy)), 400);
        assert_eq!(send(&limiter, &[user], Some(listed)), 403);
        assert_eq!(send(&limiter, &[user], None), 500);
    });
    let count = |labels: &[(&str, &str)]| scrape.value(REFUSALS, labels).unwrap();
    assert_eq!(count(&[("policy", "user"), ("reason", "missing_key")]), 2.0);
    assert_eq!(count(&[("policy", "user"), ("reason", "bad_cost")]), 1.0);
    assert_eq!(count(&[("reason", "listed")]), 1.0);
    assert_eq!(count(&[("reason", "misconfigured")]), 1.0);
    assert_eq!(count(&[("reason", "bad_address")]), 1.0);
}

#[test]
fn refusals_in_shadow_have_a_metric_of_their_own() {
    let scrape = recorded(|| {
        let policy = Policy::new("user", Limit::gcra(100, MINUTE))
            .by(Header::new("x-user"))
            .on_missing_key(OnMissingKey::Reject);
        let limiter = Limiter::builder(MemoryStore::new(), [policy])
            .observe(Metrics::new())
            .build()
            .unwrap();
        for (mode, status, times) in [(Mode::Shadow, 200, 3), (Mode::Enforce, 400, 1)] {
            limiter.set_mode("user", mode).unwrap();
            for _ in 0..times {
                assert_eq!(send(&limiter, &[], None), status);
            }
        }
    });
    let missing_key = [("policy", "user"), ("reason", "missing_key")];
    assert_eq!(scrape.value(SHADOW_REFUSALS, &missing_key), Some(3.0));
    assert_eq!(scrape.value(REFUSALS, &missing_key), Some(1.0));
}

#[test]
fn holds_are_counted_by_policy() {
    let scrape = recorded(|| {
        let policies = ["busy", "idle"].map(|name| Policy::new(name, Limit::gcra(1, MINUTE)));
        for times in [1, 2] {
            let limiter = Limiter::builder(MemoryStore::new(), policies.clone());
            let limiter = limiter.observe(Metrics::new()).build().unwrap();
            let sent = send_to_busy_upstream(&limiter, "busy", times);
            sent.now_or_never().expect("a store in memory");
        }
    });
    for (policy, holds) in [("busy", 2.0), ("idle", 0.0)] {
        assert_eq!(scrape.value(HOLDS, &[("policy", policy)]), Some(holds));
    }
}

#[test]
fn store_latency_and_failures_are_recorded_by_kind() {
    let scrape = recorded(|| {
        let metrics = Metrics::new();
        metrics.on_store_answer(Duration::from_millis(2), None);
        metrics.on_store_answer(Duration::from_millis(200), None);
        metrics.on_store_answer(Duration::from_millis(50), Some(StoreErrorKind::TimedOut));
        metrics.on_store_answer(Duration::from_micros(500), Some(StoreErrorKind::Full));
        metrics.on_store_answer(Duration::from_micros(500), Some(StoreErrorKind::Full));
        metrics.on_store_answer(Duration::ZERO, Some(StoreErrorKind::BreakerOpen));
    });
    let duration = "tower_throttle_store_duration_seconds";
    let bucket = |result, le| {
        let labels = [("result", result), ("le", le)];
        scrape
            .value(&format!("{duration}_bucket"), &labels)
            .unwrap()
    };
    assert_eq!(bucket("ok", "0.001"), 0.0);
    assert_eq!(bucket("ok", "0.01"), 1.0);
    assert_eq!(bucket("ok", "+Inf"), 2.0);
    assert_eq!(bucket("timed_out", "+Inf"), 1.0);
    let failures = |kind| scrape.value("tower_throttle_store_failures_total", &[("kind", kind)]);
    assert_eq!(failures("full"), Some(2.0));
    assert_eq!(failures("timed_out"), Some(1.0));
    for &kind in StoreErrorKind::ALL {
        // All others are there from the start.
        let is_unasked = matches!(
            kind,
            StoreErrorKind::Overloaded | StoreErrorKind::BreakerOpen
        );
        assert_eq!(failures(kind.as_str()).is_none(), is_unasked, "{kind:?}");
    }
}

#[test]
fn one_gauge_of_the_breakers_is_on() {
    for (changes, on) in [
        (&[][..], "closed"),
        (&[BreakerState::Open], "open"),
        (&[BreakerState::Open, BreakerState::HalfOpen], "half_open"),
        (
            &[
                BreakerState::Open,
                BreakerState::HalfOpen,
                BreakerState::Closed,
            ],
            "closed",
        ),
    ] {
        let scrape = recorded(|| {
            let metrics = Metrics::new();
            changes.iter().for_each(|state| metrics.on_breaker(*state));
        });
        for state in ["closed", "open", "half_open"] {
            let value = scrape.value("tower_throttle_breaker_state", &[("state", state)]);
            assert_eq!(
                value,
                Some(if state == on { 1.0 } else { 0.0 }),
                "{changes:?}: {state}"
            );
        }
    }
}

#[test]
fn keys_in_memory_are_read_when_they_are_asked_for() {
    const KEYS: &str = "tower_throttle_memory_keys";
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        let store = MemoryStore::new();
        let metrics = Metrics::new().watch_memory(store.clone());
        let policy = Policy::new("api", Limit::gcra(1, MINUTE));
        let limiter = Limiter::builder(store, [policy]).observe(metrics.clone());
        let limiter = limiter.build().unwrap();
        let keys = || Scrape::parse(&recorder.handle().render()).value(KEYS, &[]);
        assert_eq!(keys(), Some(0.0));
        for user in 0_u32..7 {
            let _ = limiter.check("api", user).now_or_never().unwrap().unwrap();
        }
        assert_eq!(keys(), Some(0.0));
        metrics.collect();
        assert_eq!(keys(), Some(7.0));
    });
}

const ENABLED: &str = "tower_throttle_enabled";
const POLICY_MODE: &str = "tower_throttle_policy_mode";
const POLICY_ENFORCED: &str = "tower_throttle_policy_enforced_ratio";

/// The modes that are shown for a policy.
fn modes_of(scrape: &Scrape, policy: &str) -> Vec<&'static str> {
    let is_on =
        |mode: &&str| scrape.value(POLICY_MODE, &[("policy", policy), ("mode", mode)]) == Some(1.0);
    ["enforce", "shadow", "off"]
        .into_iter()
        .filter(is_on)
        .collect()
}

#[test]
fn gauges_show_the_switch_and_each_policys_mode_from_the_start() {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        let now = || Scrape::parse(&recorder.handle().render());
        let policy = |name| Policy::new(name, Limit::gcra(10, MINUTE));
        let limiter = Limiter::builder(
            AlwaysAllow,
            [policy("api"), policy("trial").mode(Mode::Shadow)],
        )
        .observe(Metrics::new())
        .build()
        .unwrap();
        assert_eq!(now().value(ENABLED, &[]), Some(1.0));
        assert_eq!(modes_of(&now(), "api"), ["enforce"]);
        assert_eq!(modes_of(&now(), "trial"), ["shadow"]);

        let enforced = || now().value(POLICY_ENFORCED, &[("policy", "api")]);
        assert_eq!(enforced(), Some(1.0));
        limiter
            .set_enforced_for("api", Percent::new(5).unwrap())
            .unwrap();
        assert_eq!(enforced(), Some(0.05));

        limiter.turn_off();
        limiter.set_mode("api", Mode::Off).unwrap();
        assert_eq!(now().value(ENABLED, &[]), Some(0.0));
        assert_eq!(modes_of(&now(), "api"), ["off"]);

        limiter.turn_on();
        let rules = Rules::new([policy("api").mode(Mode::Shadow), policy("new")]);
        limiter.replace(rules).unwrap();
        assert_eq!(now().value(ENABLED, &[]), Some(1.0));
        assert_eq!(modes_of(&now(), "api"), ["shadow"]);
        assert_eq!(modes_of(&now(), "new"), ["enforce"]);
        assert!(modes_of(&now(), "trial").is_empty());
    });
}

#[cfg(feature = "config")]
#[test]
fn gauges_show_whether_and_when_the_file_was_last_read() {
    const SUCCESSFUL: &str = "tower_throttle_config_last_reload_successful";
    const SUCCESS_TIME: &str = "tower_throttle_config_last_reload_success_timestamp_seconds";
    let since_epoch = || {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
        since.unwrap().as_secs_f64()
    };
    let before = since_epoch();
    let scrape = recorded(|| {
        let config = tower_throttle::Config::from_toml("store = \"memory\"\npolicy = []").unwrap();
        config.observe(Metrics::new()).connect_lazy().unwrap();
    });
    assert_eq!(scrape.value(SUCCESSFUL, &[]), Some(1.0));
    let read_at = scrape.value(SUCCESS_TIME, &[]).unwrap();
    assert!((before..=since_epoch()).contains(&read_at), "{read_at}");
    // Without a file there is nothing to report.
    let scrape = recorded(|| {
        let limiter = Limiter::builder(AlwaysAllow, []).observe(Metrics::new());
        limiter.build().unwrap();
    });
    assert_eq!(scrape.value(SUCCESSFUL, &[]), None);
}

#[test]
fn limiters_with_names_have_series_of_their_own() {
    let scrape = recorded(|| {
        for (name, times) in [("public", 3), ("internal", 2)] {
            let limiter =
                Limiter::builder(AlwaysAllow, [Policy::new("api", Limit::gcra(100, MINUTE))])
                    .observe(Metrics::named(name))
                    .build()
                    .unwrap();
            check(&limiter, "api", times);
        }
    });
    for (name, count) in [("public", 3.0), ("internal", 2.0)] {
        let labels = [("limiter", name), ("policy", "api"), ("result", "allowed")];
        assert_eq!(scrape.value(DECISIONS, &labels), Some(count));
        let breaker = [("limiter", name), ("state", "closed")];
        assert_eq!(
            scrape.value("tower_throttle_breaker_state", &breaker),
            Some(1.0)
        );
    }
}

#[test]
fn nothing_a_client_sends_becomes_a_label() {
    let scrape = recorded(|| {
        let limiter = Limiter::builder(
            MemoryStore::new(),
            [Policy::new("user", Limit::gcra(1, MINUTE)).by(Header::new("x-user"))],
        )
        .observe(Metrics::new())
        .build()
        .unwrap();
        for user in 0..500 {
            send(&limiter, &[("x-user", &format!("mallory-{user}"))], None);
        }
    });
    let sum: f64 = scrape.series(DECISIONS).map(|(_, value)| value).sum();
    assert_eq!(sum, 500.0);
    assert_eq!(
        scrape.series(DECISIONS).count(),
        tower_throttle::DecisionResult::ALL.len()
    );
    assert!(!scrape.text().contains("mallory"));
}

#[test]
fn every_metric_has_a_type_and_words_that_say_what_it_is() {
    let scrape = recorded(|| {
        let metrics = Metrics::new().watch_memory(MemoryStore::new());
        metrics.on_store_answer(Duration::from_millis(1), None);
        let policy = Policy::new("api", Limit::gcra(100, MINUTE));
        let limiter = Limiter::builder(AlwaysAllow, [policy]);
        check(&limiter.observe(metrics).build().unwrap(), "api", 1);
    });
    for (name, kind) in [
        (DECISIONS, "counter"),
        (PREFETCHED, "counter"),
        (UNANSWERED, "counter"),
        (REFUSALS, "counter"),
        (HOLDS, "counter"),
        ("tower_throttle_delay_seconds", "histogram"),
        ("tower_throttle_store_duration_seconds", "histogram"),
        ("tower_throttle_store_failures_total", "counter"),
        ("tower_throttle_breaker_state", "gauge"),
        (ENABLED, "gauge"),
        (POLICY_MODE, "gauge"),
        (POLICY_ENFORCED, "gauge"),
        ("tower_throttle_memory_keys", "gauge"),
    ] {
        let text = scrape.text();
        assert!(
            text.contains(&format!("# TYPE {name} {kind}\n")),
            "{name}: {text}"
        );
        assert!(text.contains(&format!("# HELP {name} ")), "{name}: {text}");
    }
}
