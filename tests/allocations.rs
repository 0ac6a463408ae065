//! A decision about a known key allocates nothing, and a log takes the documented memory.
#![cfg(feature = "memory")]
// Counting is the job of a global allocator, and that trait is unsafe to implement.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Mutex;

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response};
use tower::{Layer as _, Service as _, service_fn};
use tower_throttle::store::{Answer, Check, DenyCache, Store};
use tower_throttle::{
    DAY, FailureMode, HOUR, Header, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Peer,
    PeerAddr, Policy, Prefetch, QuotaHeaders, RateLimitLayer, SECOND, StoreError, StoreErrorKind,
};
#[cfg(feature = "metrics")]
use tower_throttle::{Metrics, TopDenied};

use self::asking::{Asked, ask};
use support::same_for_all::SameForAll;

#[path = "store/memory_store/asking.rs"]
mod asking;

/// The system's allocator, which counts each thread's requests separately.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Counts an allocation of this size in place of one of that size.
fn count(size: usize, before: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    BYTES.set(BYTES.get().wrapping_add(size).wrapping_sub(before));
}

// SAFETY: every call is passed unchanged to the system's allocator. The counter has a constant
// initial value and nothing to drop, so counting itself never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn limits() -> [Limit; 5] {
    [
        Limit::gcra(10, SECOND),
        Limit::gcra(10, SECOND).and(100_000, HOUR),
        Limit::fixed_window(10, SECOND)
            .and(10_000, MINUTE)
            .and(100_000, HOUR)
            .and(1_000_000, DAY),
        Limit::fixed_window(10, SECOND),
        Limit::sliding_log(10, SECOND),
    ]
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(7)))), 1);
}

#[test]
fn a_check_of_a_known_key_allocates_nothing_allowed_or_denied() {
    for limit in limits() {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = Limiter::new(store, [Policy::new("api", limit)]).unwrap();
        let mut admitted = 0;
        let mut second = || {
            clock.advance(SECOND);
            for _ in 0..20 {
                let answer = limiter.check("api", "alice").now_or_never();
                admitted += u32::from(answer.unwrap().unwrap().is_allowed());
            }
        };
        // The first round makes the key known, and lets a log grow to its full length.
        second();
        assert_eq!(
            allocations(|| (0..100).for_each(|_| second())),
            0,
            "{limit:?}"
        );
        assert_eq!(admitted, 101 * 10, "{limit:?}");
    }
}

/// A body that nothing has to end with passes as it is.
#[test]
fn a_request_through_the_layer_and_its_body_allocate_nothing() {
    let policy = Policy::new("api", Limit::gcra(1_000_000, SECOND));
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    let layer = RateLimitLayer::new(limiter).headers(QuotaHeaders::NONE);
    let body = Mutex::new(Some(Body::from("hello")));
    let mut service = layer.layer(service_fn(|_: Request<()>| {
        let body = body.lock().unwrap().take().unwrap();
        ready(Ok::<_, Infallible>(Response::new(body)))
    }));
    for request in 0..2_100 {
        let mut response = None;
        let took = allocations(|| {
            response = service.call(Request::new(())).now_or_never();
        });
        *body.lock().unwrap() = Some(response.unwrap().unwrap().into_body());
        // The first ones make the key known, and are followed: a layer inside might count them again.
        assert!(request < 2_000 || took == 0, "{took}");
    }
}

/// Logs of this many requests, of which one is left a second later.
#[test]
fn a_sliding_log_takes_what_the_documentation_of_the_store_says() {
    for requests in [1_usize, 4, 5, 16, 17, 100, 1_000] {
        let clock = ManualClock::new();
        let policies = [
            Policy::new("first", Limit::gcra(1, SECOND)),
            Policy::new("log", Limit::sliding_log(1_000, SECOND)),
        ];
        // The key's slot belongs to the table, not to the log: the other key takes as much, in a
        // store of its own.
        let limiters = policies.map(|policy| {
            let store = MemoryStore::builder().clock(clock.clone()).build();
            Limiter::new(store, [policy]).unwrap()
        });
        let bytes = |policy: &str, requests: usize| {
            let [first, log] = &limiters;
            let limiter = if policy == "log" { log } else { first };
            let before = BYTES.get();
            for _ in 0..requests {
                let answer = limiter.check(policy, "alice").now_or_never();
                assert!(answer.unwrap().unwrap().is_allowed());
            }
            BYTES.get().wrapping_sub(before)
        };
        // What the thread keeps for itself does not belong to the store.
        let other = Limiter::new(MemoryStore::new(), [Policy::new("any", limits()[0])]).unwrap();
        let _ = other.check("any", "alice").now_or_never();
        let table = bytes("first", 1);
        let longest = bytes("log", requests);
        let expected = 48 + (16 * requests).max(64)..=48 + (32 * requests).max(64);
        let log = longest - table;
        assert!(expected.contains(&log), "{requests} requests: {log}");
        clock.advance(SECOND);
        assert_eq!(bytes("log", 1), 0, "it keeps what it took");
    }
}

/// Fails after a round trip.
struct Gone;

impl Store for Gone {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        let error = StoreError::new(StoreErrorKind::Unreachable);
        Answer::Pending(Box::pin(async { Err(error) }))
    }
}

#[tokio::test]
async fn no_failure_mode_allocates_without_the_store() {
    let mut policies = Vec::new();
    for (name, mode) in [
        ("open", FailureMode::Allow),
        ("closed", FailureMode::Deny),
        ("local", FailureMode::Local { share: 0.5 }),
    ] {
        policies.push(Policy::new(name, Limit::gcra(10, MINUTE)).on_store_failure(mode));
    }
    let limiter = Limiter::new(Gone, policies).unwrap();
    let ask = |name| {
        let answer = limiter.check(name, "alice").now_or_never();
        answer.expect("it fails at once").unwrap()
    };
    // Opens the breaker, and makes the key known.
    for _ in 0..10 {
        let _ = ask("local");
    }
    let mut left_alone = 0;
    for name in ["open", "closed", "local"] {
        // The next probe may come at any time; the pauses between probes allocate nothing.
        let least = (0..20).map(|_| {
            allocations(|| {
                let failure = ask(name).store_failure();
                left_alone += u32::from(failure == Some(StoreErrorKind::BreakerOpen));
            })
        });
        assert_eq!(least.min(), Some(0), "{name}");
    }
    assert!(left_alone > 0);
}

#[test]
fn three_policies_asked_at_once_allocate_nothing_either() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let asked: Vec<Asked> = ["one", "two", "three"]
        .into_iter()
        .zip(limits())
        .map(|(policy, limit)| Asked::new(policy, limit, "alice", 1))
        .collect();
    let checks = [asked[0].check(), asked[1].check(), asked[2].check()];
    let mut admitted = 0;
    let mut second = || {
        clock.advance(SECOND);
        for _ in 0..20 {
            admitted += u32::from(ask(&store, &checks).unwrap().all_allow());
        }
    };
    second();
    assert_eq!(allocations(|| (0..100).for_each(|_| second())), 0);
    assert_eq!(admitted, 101 * 10);
}

#[tokio::test]
async fn a_permit_of_a_batch_is_handed_out_without_an_allocation() {
    let limits = [
        Limit::gcra(1_000_000, MINUTE),
        Limit::fixed_window(1_000_000, MINUTE),
    ];
    for limit in limits {
        let policy = Policy::new("api", limit).prefetch(Prefetch::new());
        let limiter = Limiter::new(SameForAll(MemoryStore::new()), [policy]).unwrap();
        for _ in 0..2_000 {
            let _ = limiter.check("api", "alice").await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut in_hand = 0;
        let rounds = (0..50).map(|_| {
            allocations(|| {
                for _ in 0..20 {
                    let answer = limiter.check("api", "alice").now_or_never();
                    in_hand += u32::from(answer.unwrap().unwrap().is_allowed());
                }
            })
        });
        // One of the rounds asks for the next batch.
        assert_eq!(rounds.min(), Some(0), "{limit:?}");
        assert_eq!(in_hand, 50 * 20, "{limit:?}");
    }
}

fn remembering(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let cache = DenyCache::new(SameForAll(MemoryStore::new()));
    // Age would make it ask again, however fast the machine is.
    Limiter::new(cache.max_age(DAY), policies).unwrap()
}

#[tokio::test]
async fn a_remembered_denial_allocates_nothing() {
    let limits = [
        Limit::gcra(1, DAY),
        Limit::fixed_window(1, DAY),
        Limit::sliding_log(1, DAY),
    ];
    for limit in limits {
        let limiter = remembering([Policy::new("api", limit)]);
        while limiter.check("api", "alice").await.unwrap().is_allowed() {}
        let denied = || {
            let answer = limiter.check("api", "alice").now_or_never();
            assert!(!answer.unwrap().unwrap().is_allowed());
        };
        let took = allocations(|| (0..1_000).for_each(|_| denied()));
        assert_eq!(took, 0, "{limit:?}");
    }
}

#[tokio::test]
async fn a_flood_of_denied_subjects_takes_no_more_than_is_documented() {
    let limiter = remembering([Policy::new("api", Limit::gcra(1, DAY))]);
    while limiter.check("api", 0_u64).await.unwrap().is_allowed() {}
    let flood = async |subjects: std::ops::Range<u64>| {
        let before = BYTES.get();
        for subject in subjects {
            let decision = limiter.check("api", subject).await.unwrap();
            assert!(!decision.is_allowed());
        }
        BYTES.get().wrapping_sub(before)
    };
    // So many that no place is left.
    let first = flood(1..400_000).await;
    assert!((1..=14 << 20).contains(&first), "{first}");
    assert_eq!(flood(400_000..450_000).await, 0);
}

#[test]
fn a_returning_key_allocates_nothing() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limit = Limit::gcra(100, MINUTE);
    let limiter = Limiter::new(store.clone(), [Policy::new("api", limit)]).unwrap();
    let check = |key: u64| {
        let answer = limiter.check("api", key).now_or_never();
        assert!(answer.unwrap().unwrap().is_allowed());
    };
    (0..10_000).for_each(check);
    assert_eq!(store.len(), 10_000);
    // Each pays for its share of the hand's steps.
    assert_eq!(allocations(|| (0..10_000).for_each(check)), 0);
}

/// What the log would warn of is looked for in every request.
#[tokio::test]
async fn looking_for_mistakes_allocates_nothing() {
    let policies = [
        Policy::new("client", Limit::gcra(1_000_000, MINUTE)).by(PeerAddr),
        Policy::new("user", Limit::gcra(1_000_000, MINUTE)).by(Header::new("x-user")),
    ];
    let limiter = Limiter::new(SameForAll(MemoryStore::new()), policies).unwrap();
    let ok = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let mut service = RateLimitLayer::new(limiter).layer(ok);
    let mut serve = |peer: [u8; 4], header: &'static str, times: u32| {
        let mut request = Request::new(());
        let peer = Peer::from(SocketAddr::from((peer, 80)));
        request.extensions_mut().insert(peer);
        let value = HeaderValue::from_static("203.0.113.9");
        request.headers_mut().insert(header, value);
        let requests: Vec<_> = (0..times).map(|_| request.clone()).collect();
        allocations(|| {
            for request in requests {
                let answer = service.call(request).now_or_never();
                assert!(answer.unwrap().unwrap().status().is_success());
            }
        })
    };
    let loopback = [127, 0, 0, 1];
    // A hundred times without a key; and the first thousand requests are followed.
    serve(loopback, "x-forwarded-for", 2_000);
    let with_mistakes = serve(loopback, "x-forwarded-for", 1_000);
    serve([198, 51, 100, 1], "x-user", 1_000);
    let without = serve([198, 51, 100, 1], "x-user", 1_000);
    assert_eq!(with_mistakes, without);
}

#[cfg(feature = "metrics")]
#[test]
fn telling_of_a_decision_allocates_nothing_either() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let (metrics, top) = (Metrics::new(), TopDenied::new(10));
        let limiter = Limiter::builder(
            store,
            ["api", "login"].map(|name| Policy::new(name, Limit::gcra(10, SECOND))),
        )
        .observe(metrics)
        .observe(top.clone())
        .build()
        .unwrap();
        let second = || {
            clock.advance(SECOND);
            for _ in 0..20 {
                for policy in ["api", "login"] {
                    let _ = limiter
                        .check(policy, "alice")
                        .now_or_never()
                        .unwrap()
                        .unwrap();
                }
            }
        };
        second();
        assert_eq!(allocations(|| (0..100).for_each(|_| second())), 0);
        let text = recorder.handle().render();
        let counted = |result: &str, count: u32| {
            let labels = format!(r#"{{policy="api",result="{result}"}} {count}"#);
            assert!(text.contains(&labels), "{labels}: {text}");
        };
        counted("allowed", 101 * 8);
        counted("near_limit", 101 * 2);
        counted("denied", 101 * 10);
        assert_eq!(top.list()[0].denials, 101 * 10);
    });
}
