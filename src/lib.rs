//! Rate limits for [tower](https://docs.rs/tower) services: axum, tonic, plain hyper and others. Many servers share
//! their limits over Redis or Valkey; a single process can keep them in memory.
//!
//! ```
//! use axum::body::Body;
//! use axum::http::{Request, StatusCode};
//! use axum::{Router, routing::get};
//! use tower::ServiceExt;
//! use tower_throttle::{
//!     Header, Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limit = Limit::gcra(100, MINUTE).burst(2);
//! let policy = Policy::new("user", limit).by(Header::new("x-user"));
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
//! - A [`Limit`] is an algorithm with its numbers. [`Limit::gcra`] fits most purposes; there are seven others.
//! - A [`Policy`] is a named limit for each key, on certain requests.
//! - A [`Limiter`] checks a request against its policies in one step: if one denies, none is charged.
//! - A [`RateLimitLayer`] puts a limiter in front of a tower service, [`Limiter::check`] asks it outside HTTP, and a
//!   [`ThrottleLayer`] delays the requests that you send.
//! - The store holds the counts: `MemoryStore` those of one process, `RedisStore` those of all processes that share
//!   a server and a key prefix. The module [`store`] has the trait behind both, for a store of your own.
//!
//! Begin with [`guide::start`]. [`guide::limits`] helps to choose a limit, and [`guide`] lists all other guides.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `memory` | yes | `MemoryStore`, `FailureMode::Local` |
//! | `redis` | yes | `RedisStore` for Redis and Valkey: a single server, Sentinel or a cluster |
//! | `redis-tls` | | TLS to Redis, with your own certificate authority or client certificates if you need them |
//! | `redis-tls-insecure` | | **dangerous**: `RedisStoreBuilder::danger_accept_invalid_certs`; enables `redis-tls` |
//! | `deadpool` | | `RedisStore::from_pool`: connections from a pool of deadpool-redis; enables `redis` |
//! | `deadpool-sentinel` | | `RedisStore::from_sentinel_pool`; enables `deadpool` |
//! | `axum` | | axum's peer address and matched route, its response body, and extractors for handlers |
//! | `operator` | | `Operator`, a page for people on call and the same data as JSON; enables `axum` |
//! | `tonic` | | tonic's peer address and response body, limits for a single service, a `Rejection` as a `Status` |
//! | `tonic-tls` | | the peer address where your server accepts TLS with tokio-rustls itself; enables `tonic` |
//! | `calendar` | | `Limit::calendar`: quotas for each month, week or day in a time zone |
//! | `config` | | `Config` and `ConfigFile`: policies in a TOML file; enables `memory` and `redis` |
//! | `metrics` | | `Metrics`, for recorders of the crate `metrics` |
//! | `tracing` | yes | denials and failures as events, calls to the store as spans |
//! | `test-util` | | for your tests: `ManualClock`, `AlwaysAllow`, `AlwaysDeny`, `clock_for_tests` |
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
mod config;
mod observers;
#[cfg(feature = "operator")]
mod operator;

pub use self::algorithm::Penalty;
#[cfg(feature = "config")]
pub use self::config::{Config, ConfigFile, FileError, OpenError, UserId, WatchedConfig};
pub use self::decision::{Decision, Outcome, Verdict};
pub use self::error::{CheckError, ConfigError, StoreError, StoreErrorKind};
#[cfg(feature = "axum")]
pub use self::http::NoDecision;
pub use self::http::extract::{ClientAddr, Extension, Header, Host, Peer, PeerAddr, PeerNetwork};
pub use self::http::{
    BodyKind, Feedback, HeaderCost, HttpHead, Kept, OnRejection, PlainText, ProblemJson,
    QuotaHeaders, ReadHead, Rejection, RejectionKind, ResponseBody, Route, Wrapped, responder,
};
pub use self::key::{Key, Subject};
#[cfg(feature = "calendar")]
pub use self::limit::{Calendar, Weekday};
pub use self::limit::{Limit, Rate, per_day, per_hour, per_minute, per_second};
pub use self::limiter::{
    AccessList, Charging, Denied, Limiter, LimiterBuilder, Meter, Permit, PolicySummary, Rules,
};
pub use self::mode::{Mode, Percent};
pub use self::observer::{
    BreakerState, ChangeEvent, DecisionEvent, DecisionResult, HoldEvent, Observer, RefusalEvent,
    RefusalReason,
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
pub use self::response::{BodyEnd, Ending, ResponseHead};
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
pub use self::tower::{
    RateLimit, RateLimitLayer, ResponseFuture, Throttle, ThrottleFuture, ThrottleLayer,
};

/// In the version whose pools [`RedisStore::from_pool`] takes.
#[cfg(feature = "deadpool")]
pub use deadpool_redis;

/// What the targets in `fuzz/` cannot reach otherwise.
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::store::redis::redis_reply;
}

/// Runs the code in the README.
#[cfg(all(
    doctest,
    feature = "config",
    feature = "metrics",
    feature = "operator",
    feature = "test-util",
    feature = "tonic"
))]
#[doc = include_str!("../README.md")]
mod readme {}

// Only documentation. Its code needs these features to be tested, which docs.rs need not say.
#[cfg_attr(docsrs, doc(auto_cfg = false))]
#[cfg(any(
    all(doc, not(doctest)),
    all(
        doctest,
        feature = "config",
        feature = "metrics",
        feature = "operator",
        feature = "test-util",
        feature = "tonic"
    )
))]
pub mod guide;
