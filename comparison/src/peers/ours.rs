//! This crate, without HTTP.

use futures_util::FutureExt;
use tower_throttle::store::Store;
use tower_throttle::{Key, Limit, Limiter, MINUTE, Policy, RedisStore};

use super::edition::with_prefetch;
use super::{Allowance, name_of};
use crate::load::Decide;
use crate::redis_server::RedisServer;

const POLICY: &str = "api";

pub struct Ours(Limiter);

impl Ours {
    /// Over Redis, with the defaults.
    pub async fn over(redis: &RedisServer, allowance: Allowance) -> Self {
        Self::with(redis.store().await, allowance)
    }

    /// At another address of the server.
    pub async fn at(url: &str, allowance: Allowance) -> Self {
        let store = RedisStore::builder(url).connect().await;
        Self::with(store.expect("the server is there"), allowance)
    }

    /// Without the memory of denials.
    pub async fn asking_always(redis: &RedisServer, allowance: Allowance) -> Self {
        Self::with(redis.store().await.without_deny_cache(), allowance)
    }

    /// With prefetch, so that a hot key is mostly answered from memory.
    pub async fn leased(redis: &RedisServer, allowance: Allowance) -> Self {
        let policy = with_prefetch(policy(POLICY, allowance));
        // Others ask about the same key without prefetch.
        Self::of(redis.store_with_prefix("leased").await, policy)
    }

    /// With another limit, whose state is more than a single integer.
    pub async fn limited(redis: &RedisServer, limit: Limit) -> Self {
        Self::of(redis.store().await, Policy::new(POLICY, limit))
    }

    pub fn with(store: impl Store, allowance: Allowance) -> Self {
        Self::of(store, policy(POLICY, allowance))
    }

    /// Charges this many permits of each key.
    pub async fn owe(&self, keys: u64, permits: u32) {
        for key in 0..keys {
            let charged = self.0.charge(POLICY, key, permits.into()).await;
            let _ = charged.expect("a policy");
        }
    }

    fn of(store: impl Store, policy: Policy) -> Self {
        let limiter = Limiter::builder(store, [policy]);
        // A late answer is no error here: other programs keep the machine busy, too.
        Self(limiter.timeout(MINUTE).build().expect("a sound policy"))
    }

    /// About a subject that can be answered without a round trip.
    pub fn decide_at_once(&self, key: impl Into<Key>) -> bool {
        self.allows(key).now_or_never().expect("no trip")
    }

    async fn allows(&self, key: impl Into<Key>) -> bool {
        let decision = self.0.check(POLICY, key).await.expect("a policy");
        assert_eq!(decision.store_failure(), None);
        decision.is_allowed()
    }
}

impl Decide for Ours {
    async fn decide(&self, key: u64) -> bool {
        self.allows(key).await
    }
}

/// The same, with texts as keys, as others have them.
pub struct ByName(pub Ours);

impl Decide for ByName {
    async fn decide(&self, key: u64) -> bool {
        self.0.allows(name_of(key)).await
    }
}

pub fn policy(name: &str, allowance: Allowance) -> Policy {
    let Allowance {
        permits,
        per,
        burst,
    } = allowance;
    Policy::new(name, Limit::gcra(permits.into(), per).burst(burst.into()))
}
