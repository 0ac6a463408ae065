//! A tower layer that limits requests across a whole fleet: the verdict is taken atomically in
//! Redis by a Lua script, or in process by the same algorithm in Rust.
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
//! A [`Policy`] is a named [`Limit`] for a key, on certain requests. A [`Limiter`] is policies over
//! a store; all that apply to a request are decided together, all or nothing. A [`RateLimitLayer`]
//! puts a limiter in front of a service: axum, tonic, plain hyper, or whatever else is a tower
//! service over `http` types. [`Limiter::check`] asks outside of HTTP. A [`ThrottleLayer`] is for
//! the other side: it lets those who send through any tower service wait until the whole fleet may
//! send more.
//!
//! # Which limit
//!
//! | you want | take |
//! |---|---|
//! | a steady rate with some slack for bursts; or you do not know | [`Limit::gcra`] |
//! | the same, said as a bucket and a rate that fills it | [`Limit::token_bucket`] |
//! | requests that leave one after the other at a steady rate | [`Limit::leaky_bucket`] |
//! | "100 a day", counted as people count: all of it back at a certain time | [`Limit::fixed_window`] |
//! | about so many in any such time, for large numbers, where an estimate will do | [`Limit::sliding_counter`] |
//! | never more than so many in *any* such time: logins, text messages | [`Limit::sliding_log`] |
//! | the same for large numbers, a slice of the time late at most | [`Limit::sliding_window`] |
//! | never more than so many *at the same time* | [`Limit::concurrency`] |
//!
//! # Which store
//!
//! `MemoryStore` counts in one process: nothing to install, no trip. `RedisStore` counts for all
//! processes that use the same Redis or Valkey server, or cluster, and prefix: one script call decides a request,
//! on the server's clock, and none is made about a subject that is known to be denied ([`DenyCache`]). The
//! policies are the same, and so are the answers. [`Store`] is the trait
//! behind both.
//!
//! # What if the store fails
//!
//! A decision has 50 ms ([`LimiterBuilder::timeout`]). After that, or when the store answers with
//! an error, the [`FailureMode`] of each policy decides:
//! [`Allow`](FailureMode::Allow) lets the request pass uncounted, which is the default, since an
//! outage of the store is not one of the service. [`Deny`](FailureMode::Deny) answers 503 (gRPC:
//! `UNAVAILABLE`), never 429, for limits that protect something which must not be reached
//! unlimited. `Local` lets this process judge by itself, with a share of the limit. A question that
//! may have been counted is not asked again.
//!
//! A store that fails again and again is left alone: after 5 failures in a row, or when half of at
//! least 20 answers within a second are failures, a circuit breaker opens, and the failure modes
//! decide at once, without a trip. After 250 ms one request asks the store again, while the others
//! go on without it: an answer closes the breaker, a failure doubles the pause, to 5 s at most (each
//! give or take a fifth; to 0.8 s where the store answers that it refuses; at once to 5 s where a
//! password, a right or a certificate is wrong). A store that can tell when it is back is asked within a second of
//! that, if there are requests, whatever is left of the pause: see [`Store::recovered`]. Keys that hold
//! something else and a full memory are no failures of that kind; nor is what fails on some nodes of a
//! cluster, as long as others have answered within a second, unless half of at least 20 questions
//! within a second wait for the deadline in vain. [`Limiter::breaker`] tells the state.
//!
//! # What if there are proxies
//!
//! Then the peer's address is the proxy's, and [`PeerAddr`] puts all clients into one bucket.
//! [`ClientAddr`] reads the client's address from the one header that your proxies write, and from
//! it only what they have written: nothing that a client puts into `X-Forwarded-For` changes whose
//! quota it uses. In `Forwarded`, a quote that a client leaves open makes the line unreadable, and
//! its request one of those without an address. It has to be told who the proxies are. Headers that
//! clients choose freely, as [`Header`] reads them, belong behind authentication or beside a policy by
//! address. So does the [`Host`], where nothing in front checks it.
//!
//! # What can change while it runs
//!
//! Each policy has a [`Mode`]: enforced; in shadow, where it is counted and reported, and denies
//! nobody; or off. [`Limiter::set_mode`] changes it, [`Limiter::replace`] puts other policies in
//! the place of those in force without a moment between them, and [`Limiter::turn_off`] lets
//! everything pass. An [`AccessList`] names clients that are refused, or let through, whatever the
//! policies say.
//!
//! # What can be seen
//!
//! An [`Observer`] is told of every decision, of how the store fares and of the circuit breaker.
//! With the feature `tracing`, denials and failures are events. A handler sees what is left in the
//! [`Verdict`] that [`RateLimitLayer::expose_decisions`] puts into the request's extensions.
//!
//! # Tests of your own
//!
//! [`ManualClock`] makes a `MemoryStore` wait for you; [`AlwaysAllow`] and [`AlwaysDeny`] are stores
//! that always say the same. One that fails is a [`Store`] of a line:
//!
//! ```
//! use tower_throttle::{Answer, Check, FailureMode, Limit, Limiter, MINUTE, Policy, Store};
//! use tower_throttle::{StoreError, StoreErrorKind};
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
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `memory` | yes | `MemoryStore`; `FailureMode::Local` |
//! | `redis` | yes | `RedisStore`: a Redis or Valkey server, one that Sentinel names, or a cluster |
//! | `redis-tls` | | TLS to Redis |
//! | `deadpool-sentinel` | | `RedisStore::from_sentinel_pool` |
//! | `axum` | | reads the peer's address and the matched route as axum tells them; extractors for handlers, and a `Rejection` is their response; `Operator`, a page for whoever is on call |
//! | `tonic` | | reads the peer's address as tonic tells it; a single service can be limited; a `Rejection` becomes a `Status` |
//! | `tonic-tls` | | the same for a server that accepts TLS connections with tokio-rustls itself |
//! | `metrics` | | `Metrics`: what is decided and how the store fares, for the crate `metrics` |
//! | `tracing` | | denials and failures as events, trips to the store as spans |
//! | `config` | | `Config`: the same policies from a file, which is read again when it changes; takes `memory` and `redis` along |
#![cfg_attr(docsrs, feature(doc_cfg))]
// The documentation is that of all stores, of which without these features some are missing.
#![cfg_attr(
    not(all(feature = "memory", feature = "redis")),
    allow(rustdoc::broken_intra_doc_links)
)]
#![forbid(unsafe_code)]

// Floor 0: values.
mod decision;
mod error;
mod key;
mod labels;
mod limit;
mod mode;
mod per_thread;
mod random;
mod ranges;
mod time;
mod trace;
// Floor 1: the algorithms.
pub mod algorithm;
// Floor 2: the stores, and who is told.
mod observe;
mod store;
// Floor 3: policies and the limiter.
mod access;
mod limiter;
mod policy;
mod request;
mod response;
// Floor 4: HTTP.
mod http;
// Floor 5: tower.
mod tower;
// Floor 6: adapters, and those who are told.
mod by_policy;
#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "axum")]
mod extractor;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "axum")]
mod operator;
mod top_denied;

pub use self::access::AccessList;
#[doc(inline)]
pub use self::algorithm::Penalty;
#[cfg(feature = "config")]
#[doc(inline)]
pub use self::config::{Config, ConfigFile, FileError, OpenError, WatchedConfig};
pub use self::decision::{Decision, Decisions, Outcome, Receipt, Verdict};
pub use self::error::{CheckError, ConfigError, StoreError, StoreErrorKind};
#[cfg(feature = "axum")]
pub use self::extractor::NoDecision;
pub use self::http::extract::{
    ClientAddr, Everybody, Extension, Header, Host, Peer, PeerAddr, PeerNetwork,
};
pub use self::http::{
    HeaderCost, OnRejection, PlainText, ProblemJson, QuotaHeaders, Rejection, RejectionKind,
    ResponseBody, Route,
};
pub use self::key::{Key, Subject};
pub use self::limit::{Limit, Rate, per_hour, per_minute, per_second};
pub use self::limiter::{Held, Limiter, LimiterBuilder, PolicySummary, Rules};
#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
pub use self::mode::Mode;
pub use self::observe::{
    BreakerState, DecisionEvent, DecisionResult, Observer, RefusalEvent, RefusalReason,
};
#[cfg(feature = "axum")]
pub use self::operator::Operator;
pub use self::policy::{OnMissingKey, Policy};
pub use self::request::{
    AddressExtractor, CostError, CostExtractor, KeyError, KeyExtractor, LimitExtractor, NoRequest,
    RequestHead, RequestMatcher,
};
pub use self::response::ResponseHead;
#[cfg(feature = "memory")]
pub use self::store::memory::{MemoryStore, MemoryStoreBuilder};
pub use self::store::{
    AlwaysAllow, AlwaysDeny, Answer, Check, DenyCache, FailureMode, PendingAnswer, PolicyId,
    QuotaLease, Recovered, Store,
};
#[cfg(feature = "redis")]
pub use self::store::{RedisStore, RedisStoreBuilder};
pub use self::time::{Clock, DAY, HOUR, MINUTE, ManualClock, Micros, SECOND, SystemClock};
pub use self::top_denied::{TopDenied, TopDeniedBuilder, TopEntry};
pub use self::tower::{RateLimit, RateLimitLayer, ResponseFuture, Throttle, ThrottleLayer};

/// In the version whose pools [`RedisStore::from_pool`] takes.
#[cfg(feature = "redis")]
pub use deadpool_redis;

/// What the targets in `fuzz/` reach no other way.
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::store::redis::redis_reply;
}

/// The code in the README and in `docs/`, held to what the crate does.
#[cfg(all(doctest, feature = "axum", feature = "config", feature = "tonic"))]
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
    #[doc = include_str!("../docs/quota-leases.md")]
    struct QuotaLeases;
    #[doc = include_str!("../docs/security.md")]
    struct Security;
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../docs/observability.md")]
    struct Observability;
}
