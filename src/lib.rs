//! A tower layer that limits requests across a whole fleet.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

// Floor 0: values.
mod decision;
mod error;
mod key;
mod limit;
mod time;
// Floor 1: the algorithms.
pub mod algorithm;
// Floor 2: the stores.
mod store;
// Floor 3: policies and the limiter.
mod limiter;
mod policy;
mod request;
// Floor 4: HTTP.
mod http;
// Floor 5: tower.
mod tower;
// Floor 6: adapters.

pub use self::decision::{Decision, Decisions, Outcome};
pub use self::error::{CheckError, ConfigError, StoreError, StoreErrorKind};
pub use self::http::extract::{
    ClientAddr, Everybody, Extension, Header, Peer, PeerAddr, PeerNetwork,
};
pub use self::http::{
    HeaderCost, OnRejection, PlainText, ProblemJson, QuotaHeaders, Rejection, RejectionKind,
    ResponseBody, Route,
};
pub use self::key::{Key, Subject};
pub use self::limit::Limit;
pub use self::limiter::{Limiter, LimiterBuilder};
pub use self::policy::{OnMissingKey, Policy};
pub use self::request::{
    CostError, CostExtractor, KeyError, KeyExtractor, RequestHead, RequestMatcher,
};
#[cfg(feature = "memory")]
pub use self::store::memory::{MemoryStore, MemoryStoreBuilder};
pub use self::store::{Answer, Check, FailureMode, PendingAnswer, PolicyId, Store};
#[cfg(feature = "redis")]
pub use self::store::{RedisStore, RedisStoreBuilder};
pub use self::time::{Clock, DAY, HOUR, MINUTE, ManualClock, Micros, SECOND, SystemClock};
pub use self::tower::{RateLimit, RateLimitLayer, ResponseFuture};
