//! A tower layer that limits requests across a whole fleet. A Lua script decides atomically in Redis,
//! or the same algorithm in Rust decides in process.
//!
//! ```
//! use axum::body::Body;
//! use axum::http::{Request, StatusCode};
//! use axum::{Router, routing::get};
//! use tower::ServiceExt;
//! use tower_throttle::{Header, Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::new("user", Limit::gcra(100, MINUTE).burst(2)).by(Header::new("x-user"));
//! let limiter = Limiter::new(MemoryStore::new(), [policy])?;
//! let app = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(RateLimitLayer::new(limiter));
//!
//! for (user, status) in [
//!     ("alice", StatusCode::OK),
//!     ("alice", StatusCode::OK),
//!     ("alice", StatusCode::TOO_MANY_REQUESTS),
//!     ("bob", StatusCode::OK),
//! ] {
//!     let request = Request::get("/").header("x-user", user).body(Body::empty())?;
//!     assert_eq!(app.clone().oneshot(request).await?.status(), status);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Policy`] applies a named [`Limit`] to each key, on certain requests. A [`Limiter`] is a set of
//! policies over a store. All policies that apply to a request are decided together: if one denies,
//! none is charged. A [`RateLimitLayer`] puts a limiter in front of a service: axum, tonic, plain
//! hyper, or any other tower service over `http` types. [`Limiter::check`] is for use outside HTTP. A
//! [`ThrottleLayer`] is for the sending side: callers of any tower service wait until the whole fleet
//! may send more.
//!
//! # Which limit
//!
//! | you want | take |
//! |---|---|
//! | a steady rate with some slack for bursts; the default choice | [`Limit::gcra`] |
//! | the same, expressed as a bucket and its refill rate | [`Limit::token_bucket`] |
//! | requests that leave one after the other at a steady rate | [`Limit::leaky_bucket`] |
//! | "100 a day", as people count: all of it is back at a certain time | [`Limit::fixed_window`] |
//! | a quota a month, a week or a day, in a time zone, as an invoice says it | `Limit::calendar` (feature `calendar`) |
//! | about `n` in any period, for large numbers where an estimate will do | [`Limit::sliding_counter`] |
//! | never more than `n` in *any* period: logins, text messages | [`Limit::sliding_log`] |
//! | the same for large numbers; permits come back up to one slice late | [`Limit::sliding_window`] |
//! | never more than `n` *at the same time* | [`Limit::concurrency`] |
//! | nothing at all, as for a plan that does not include something | [`Limit::nothing`] |
//!
//! # Which store
//!
//! `MemoryStore` counts in one process, with nothing to install and no round trip. `RedisStore` counts
//! for all processes that share a prefix on the same Redis or Valkey server or cluster. One script call
//! decides a request, on the server's clock; no call is made about a subject that is known to be denied
//! ([`DenyCache`](store::DenyCache)). Both take the same policies and give the same answers. For a
//! store of your own, the module [`store`] has the trait behind both.
//!
//! # What if the store fails
//!
//! A decision has 50 ms ([`LimiterBuilder::timeout`]). After that, or when the store answers with
//! an error, the [`FailureMode`] of each policy decides:
//!
//! - [`Allow`](FailureMode::Allow), the default, lets the request pass uncounted: an outage of the
//!   store is not one of the service.
//! - [`Deny`](FailureMode::Deny) answers 503 (gRPC: `UNAVAILABLE`), never 429. It is for what must not
//!   be reached without a limit.
//! - `Local` decides in this process, with a share of the limit.
//!
//! A question that may have been counted is not asked again.
//!
//! A circuit breaker spares a store that keeps failing. It opens after 5 failures in a row, or when
//! half of at least 20 answers within a second are failures; then the failure modes decide at once,
//! without a round trip. After 250 ms one request asks the store again, while the others go on without
//! it. An answer closes the breaker; a failure doubles the pause, up to 5 s (to 0.8 s if the store
//! answers that it refuses; a wrong password, a missing right or a bad certificate makes it 5 s at
//! once). Each pause is longer or shorter by up to a fifth. A store that can tell when it is back is asked
//! within a second of that, if there are requests, whatever is left of the pause: see
//! [`Store::recovered`](store::Store::recovered).
//!
//! Keys of another type and a full memory do not count towards the breaker. Nor do failures on
//! some nodes of a cluster, as long as others have answered within a second, unless half of at least
//! 20 questions within a second time out. [`Limiter::breaker_state`] tells the state.
//!
//! # What if there are proxies
//!
//! Then the peer's address is the proxy's, and [`PeerAddr`] puts all clients into one bucket.
//! [`ClientAddr`] reads the client's address from the one header that your proxies write; you have to
//! tell it who they are. It trusts only what they have written, so nothing that a client puts into
//! `X-Forwarded-For` changes whose quota it uses. In `Forwarded`, a quote that a client leaves open
//! makes the line unreadable, and the request counts as one without an address.
//!
//! Clients choose most headers freely. A policy by such a [`Header`] belongs behind authentication or
//! beside a policy by address. So does one by [`Host`], unless something in front checks it.
//!
//! # What can change while it runs
//!
//! Each policy has a [`Mode`]: enforced; in shadow, where it is counted and reported but denies
//! nobody; or off. [`Limiter::set_mode`] changes it. [`Limiter::replace`] replaces all policies in one
//! step, with no gap in between, and [`Limiter::turn_off`] lets everything pass. An [`AccessList`]
//! names clients that are refused, or let through, whatever the policies say.
//!
//! # What can be seen
//!
//! An [`Observer`] is told of every decision, of the store's answers and failures, and of the circuit
//! breaker's state. With the feature `tracing`, a default one, denials and failures are events. A handler sees what is
//! left in the [`Verdict`] that [`RateLimitLayer::expose_decisions`] puts into the request's extensions.
//!
//! # Tests of your own
//!
//! The feature `test-util` is for your `dev-dependencies`. With it a `MemoryStore` over a `ManualClock`
//! moves only when you say so, and `AlwaysAllow` and `AlwaysDeny` are stores with one answer. A store
//! that fails takes a few lines:
//!
//! ```
//! use tower_throttle::store::{Answer, Check, Store};
//! use tower_throttle::{FailureMode, Limit, Limiter, MINUTE, Policy, StoreError, StoreErrorKind};
//!
//! struct Down;
//!
//! impl Store for Down {
//!     fn ask(&self, _: &[Check<'_>]) -> Answer {
//!         Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable)))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::new("login", Limit::gcra(5, MINUTE)).on_store_failure(FailureMode::Deny);
//! let limiter = Limiter::new(Down, [policy])?;
//! assert!(!limiter.check("login", "alice").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! Whatever waits ([`Limiter::acquire`], [`ThrottleLayer`], [`Policy::max_wait`]) waits on tokio's
//! timer. In a test with tokio's time paused that takes no time, and the store's clock has to be
//! tokio's, too: on a clock that stands still meanwhile no permits come back, and each caller waits
//! for all before it once more.
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tower_throttle::{Clock, Limit, Limiter, MemoryStore, Micros, Policy, per_second};
//!
//! struct TokioClock(Instant);
//!
//! impl Clock for TokioClock {
//!     fn now(&self) -> Micros {
//!         const START: Micros = Micros::new(4_102_444_800_000_000); // 2100-01-01
//!         START.saturating_add(self.0.elapsed().into())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // in a `#[tokio::test(start_paused = true)]`
//! let start = Instant::now();
//! let store = MemoryStore::builder().clock(TokioClock(start)).build();
//! let policy = Policy::new("orders", Limit::token_bucket(1, per_second(1)));
//! let limiter = Limiter::new(store, [policy])?;
//! for _ in 0..5 {
//!     let _permit = limiter.acquire("orders", "us", 1).await?;
//! }
//! assert_eq!(start.elapsed(), Duration::from_secs(3));
//! # Ok(())
//! # }
//! ```
//!
//! Do not pause tokio's time in a test over `RedisStore`, unless the store lives on a
//! [thread of its own](RedisStoreBuilder::own_thread). Paused time jumps ahead whenever all tasks wait,
//! also when they wait for the server. So the deadline of a decision passes before the answer is read:
//! connecting fails, and most decisions follow their failure mode. Test the service's waiting over a
//! `MemoryStore` as above. Over Redis let tokio's time run, and move the time of the limits with a
//! `ManualClock` in `RedisStoreBuilder::clock_for_tests`.
//!
//! Tests that share a limiter, say in a `static`, share its counts: one test uses up what the others
//! expect. Make a limiter for each test, with a [`prefix`](RedisStoreBuilder::prefix) of its own over a
//! common server. They may share its connections: each `#[tokio::test]` has a runtime of its own, and
//! a `RedisStore` that several runtimes ask moves to a thread of its own.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `memory` | yes | `MemoryStore`; `FailureMode::Local` |
//! | `redis` | yes | `RedisStore`: a Redis or Valkey server, one that Sentinel names, or a cluster |
//! | `redis-tls` | | TLS to Redis |
//! | `redis-tls-insecure` | | **dangerous**: `RedisStoreBuilder::danger_accept_invalid_certs`, for self-signed certificates; takes `redis-tls` along |
//! | `deadpool` | | `RedisStore::from_pool`: connections from a pool of deadpool-redis |
//! | `deadpool-sentinel` | | `RedisStore::from_sentinel_pool`; takes `deadpool` along |
//! | `axum` | | the peer's address and the matched route as axum provides them; axum's response body stays what it is; extractors for handlers, which may return a `Rejection` as their response |
//! | `operator` | | `Operator`, a page for whoever is on call, and the same as JSON; takes `axum` along |
//! | `tonic` | | the peer's address as tonic provides it; tonic's response body stays what it is; limits for a single service; a `Rejection` becomes a `Status` |
//! | `tonic-tls` | | the peer's address for a server that accepts TLS connections with tokio-rustls itself |
//! | `metrics` | | `Metrics`: what is decided and how the store fares, for the crate `metrics` |
//! | `tracing` | yes | denials and failures as events, trips to the store as spans |
//! | `calendar` | | `Limit::calendar`: months, weeks and days in a time zone, by the crate jiff |
//! | `config` | | `Config`: the same policies from a file, which is read again when it changes; takes `memory` and `redis` along |
//! | `test-util` | | for tests of services: `ManualClock`, `AlwaysAllow`, `AlwaysDeny`, `clock_for_tests` |
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without these features some of the stores that the documentation links to are missing.
#![cfg_attr(
    not(all(feature = "memory", feature = "redis")),
    allow(rustdoc::broken_intra_doc_links)
)]
#![forbid(unsafe_code)]
// What is copied from an example must compile without a warning of a decision that is not looked at.
#![doc(test(attr(deny(unused_must_use))))]

// Floor 0: values.
mod address;
mod decision;
mod error;
mod key;
mod labels;
mod limit;
mod mode;
mod notifications;
mod observer;
mod one_line;
mod random;
mod sharded;
mod task;
mod time;
mod trace;
// Floor 1: the algorithms.
mod algorithm;
// Floor 2: the stores.
pub mod store;
// Floor 3: policies and the limiter.
mod limiter;
mod policy;
mod request;
mod response;
// Floor 4: HTTP.
mod http;
// Floor 5: tower.
mod tower;
// Floor 6: adapters, and observers.
#[cfg(feature = "config")]
pub mod config;
mod observers;
#[cfg(feature = "operator")]
mod operator;

pub use self::algorithm::Penalty;
#[cfg(feature = "config")]
#[doc(inline)]
pub use self::config::{Config, ConfigFile, FileError, OpenError, WatchedConfig};
pub use self::decision::{Decision, Outcome, Verdict};
pub use self::error::{CheckError, ConfigError, StoreError, StoreErrorKind};
#[cfg(feature = "axum")]
pub use self::http::NoDecision;
pub use self::http::extract::{ClientAddr, Extension, Header, Host, Peer, PeerAddr, PeerNetwork};
pub use self::http::{
    BodyKind, HeaderCost, Kept, OnRejection, PlainText, ProblemJson, QuotaHeaders, Rejection,
    RejectionKind, ResponseBody, Route, Wrapped, responder,
};
pub use self::key::{Key, Subject};
#[cfg(feature = "calendar")]
pub use self::limit::{Calendar, Weekday};
pub use self::limit::{Limit, Rate, per_day, per_hour, per_minute, per_second};
pub use self::limiter::{
    AccessList, Denied, Limiter, LimiterBuilder, Permit, PolicySummary, Rules,
};
pub use self::mode::Mode;
pub use self::observer::{
    BreakerState, ChangeEvent, DecisionEvent, DecisionResult, Observer, RefusalEvent, RefusalReason,
};
#[cfg(feature = "metrics")]
pub use self::observers::Metrics;
pub use self::observers::{TopDenied, TopDeniedBuilder, TopEntry};
#[cfg(feature = "operator")]
pub use self::operator::Operator;
pub use self::policy::{OnMissingKey, Policy};
pub use self::request::{
    AddressExtractor, CostError, CostExtractor, Everybody, KeyError, KeyExtractor, KeyKind,
    NoRequest, RequestHead, RequestMatcher, extractor,
};
pub use self::response::{BodyEnd, Ending, Meter, ResponseHead};
pub use self::store::failover::Outage;
#[cfg(any(test, feature = "test-util"))]
pub use self::store::fixed::{AlwaysAllow, AlwaysDeny};
#[cfg(feature = "memory")]
pub use self::store::memory::{MemoryStore, MemoryStoreBuilder};
pub use self::store::policy_id::{FailureMode, Prefetch};
#[cfg(feature = "redis")]
pub use self::store::redis::{RedisCredentials, RedisStore, RedisStoreBuilder};
#[cfg(any(test, feature = "test-util"))]
pub use self::time::ManualClock;
pub use self::time::{Clock, DAY, HOUR, MINUTE, Micros, SECOND, SystemClock};
pub use self::tower::{RateLimit, RateLimitLayer, ResponseFuture, Throttle, ThrottleLayer};

/// In the version whose pools [`RedisStore::from_pool`] takes.
#[cfg(feature = "deadpool")]
pub use deadpool_redis;

/// What the targets in `fuzz/` cannot reach otherwise.
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::store::redis::redis_reply;
}

/// Runs the code in the README and in `docs/` as doctests.
#[cfg(all(
    doctest,
    feature = "config",
    feature = "operator",
    feature = "test-util",
    feature = "tonic"
))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/configuration.md")]
    struct Configuration;
    #[doc = include_str!("../docs/grpc.md")]
    struct Grpc;
    #[doc = include_str!("../docs/headers.md")]
    struct Headers;
    #[doc = include_str!("../docs/migrating.md")]
    struct Migrating;
    #[doc = include_str!("../docs/operations.md")]
    struct Operations;
    #[doc = include_str!("../docs/proxies.md")]
    struct Proxies;
    #[doc = include_str!("../docs/prefetch.md")]
    struct Prefetch;
    #[doc = include_str!("../docs/security.md")]
    struct Security;
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../docs/observability.md")]
    struct Observability;
}
