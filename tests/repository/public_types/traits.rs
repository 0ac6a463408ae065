//! Every public type, and every future, can be sent to other tasks; the types can be shared by
//! them.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::routing::Route as AxumRoute;
use bytes::Bytes;
use http_body_util::Full;
use tower_throttle::UserId;
use tower_throttle::store::{Acquire, Action, Algorithm, Ask, LeaseId, Reading, State, Wait};
use tower_throttle::store::{Answer, Check, Decisions, DenyCache, PolicyId, Receipt};
use tower_throttle::{
    AccessList, AlwaysAllow, AlwaysDeny, BreakerState, CheckError, ClientAddr, Config, ConfigError,
    ConfigFile, CostError, Decision, DecisionEvent, DecisionResult, Denied, Everybody, Extension,
    FailureMode, FileError, Header, HeaderCost, HoldEvent, Host, Kept, Key, KeyError, Limit,
    Limiter, LimiterBuilder, ManualClock, MemoryStore, MemoryStoreBuilder, Metrics, Micros, Mode,
    NoDecision, NoRequest, OnMissingKey, OpenError, Operator, Outcome, Peer, PeerAddr, PeerNetwork,
    Penalty, Permit, PlainText, Policy, PolicySummary, Prefetch, ProblemJson, QuotaHeaders, Rate,
    RateLimit, RateLimitLayer, RedisCredentials, RedisStore, RedisStoreBuilder, RefusalEvent,
    RefusalReason, Rejection, RejectionKind, RequestHead, ResponseBody, ResponseFuture,
    ResponseHead, Route, Rules, StoreError, StoreErrorKind, Subject, SystemClock, Throttle,
    ThrottleLayer, TopDenied, TopDeniedBuilder, TopEntry, Verdict, WatchedConfig, Wrapped,
};

macro_rules! each {
    ($holds:ident: $($type:ty),+ $(,)?) => {
        $($holds::<$type>();)+
    };
}

#[test]
fn all_types_can_be_sent_shared_and_shown() {
    fn plain<T: Send + Sync + Unpin + Debug>() {}
    each!(plain:
        AccessList, Action, Algorithm, AlwaysAllow, AlwaysDeny, Ask<'_>, BreakerState, Check<'_>, ClientAddr, Config,
        ConfigFile, Decision, DecisionEvent<'_>, DecisionResult, Decisions, DenyCache<MemoryStore>, Everybody,
        Extension<UserId>, FailureMode, Header, HeaderCost, HoldEvent<'_>, Host, Kept, Key, LeaseId, Limit, Limiter,
        LimiterBuilder<MemoryStore>, ManualClock, MemoryStore, MemoryStoreBuilder, Metrics, Micros, Mode, NoRequest,
        OnMissingKey, Operator, Outcome, Wait, Peer, PeerAddr, PeerNetwork, Penalty, Permit, PlainText, Policy, PolicyId,
        PolicySummary, ProblemJson, QuotaHeaders, Prefetch, Rate, RateLimit<()>, RateLimitLayer, Reading, Receipt,
        RedisCredentials, RedisStore, RedisStoreBuilder, RefusalEvent<'_>, RefusalReason, Rejection, RejectionKind, RequestHead<'_>,
        ResponseBody<Full<Bytes>>, ResponseHead<'_>, Route, Rules, State, StoreErrorKind, Subject, SystemClock, Acquire,
        Throttle<()>, ThrottleLayer, TopDenied, TopDeniedBuilder, TopEntry, UserId, Verdict, WatchedConfig, Wrapped,
        RateLimit<(), Wrapped>, RateLimitLayer<Wrapped>,
    );
    fn sent<T: Send + Unpin + Debug>() {}
    sent::<Answer>();
    fn future<F: Future + Send + Debug>() {}
    future::<ResponseFuture<AxumRoute, Body>>();
    future::<ResponseFuture<AxumRoute, Body, Wrapped>>();
}

#[test]
fn all_errors_can_be_handed_on_by_any_task() {
    fn error<E: Error + Send + Sync + 'static>() {}
    each!(error:
        CheckError, ConfigError, CostError, Denied, FileError, KeyError, NoDecision, OpenError, Rejection,
        StoreError,
    );
}

#[test]
fn every_public_future_is_send() {
    fn sent<F: Future + Send>(_: F) {}
    let policy = Policy::new("api", Limit::gcra(1, Duration::from_secs(1)));
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    sent(limiter.check("api", "alice"));
    sent(limiter.check_cost("api", "alice", 1));
    sent(limiter.peek("api", "alice"));
    sent(limiter.charge("api", "alice", 1));
    sent(limiter.credit("api", "alice", 1));
    sent(limiter.reset("api", "alice"));
    sent(limiter.acquire("api", "alice", 1));
    sent(limiter.try_acquire("api", "alice", 1, Duration::ZERO));
    sent(limiter.admit("api", "alice"));
    sent(limiter.admit_all([("api", "alice", 1)]));
    sent(limiter.flush());
    sent(limiter.peek_subject("api", limiter.subject_of("alice")));
    sent(limiter.reset_subject("api", limiter.subject_of("alice")));
    sent(RedisStore::connect("redis://127.0.0.1"));
    sent(RedisStore::builder("redis://127.0.0.1").connect());
    sent(ConfigFile::new("limits.toml").open());
    let config: Config = "store = \"memory\"\npolicy = []".parse().unwrap();
    sent(config.connect());
}
