//! The places that all requests of a test share, and how many of them are taken.

use std::time::Duration;

use tower_throttle::store::Store;
use tower_throttle::{
    FailureMode, Limit, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, RequestHead,
    Wrapped,
};

use support::redis::Server;

/// How many there are.
pub(crate) const PLACES: u64 = 2;

/// How long a lease lives on the store's clock, which only the test moves.
pub(crate) const LIFE: Duration = Duration::from_millis(600);

/// The policy's name, and the key of all requests.
pub(crate) const POLICY: &str = "places";
pub(crate) const EVERYBODY: &str = "everybody";

pub(crate) fn policy(limit: Limit) -> Policy {
    let policy = Policy::new(POLICY, limit).by(|_: &RequestHead<'_>| Some(EVERYBODY));
    policy.on_store_failure(FailureMode::Deny)
}

/// How long a decision may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A limiter that waits for as long as a busy machine needs.
pub(crate) fn patient(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let builder = Limiter::builder(store, policies);
    builder.timeout(TIMEOUT).build().unwrap()
}

/// How many places are taken.
pub(crate) async fn in_use(limiter: &Limiter) -> u64 {
    let decision = limiter.peek(POLICY, EVERYBODY).await.unwrap();
    assert_eq!(decision.store_failure(), None);
    decision.limit() - decision.remaining()
}

/// Waits until this many places are taken.
pub(crate) async fn come_to(limiter: &Limiter, expected: u64) {
    let what = format!("{expected} places taken");
    until(&what, async || in_use(limiter).await == expected).await;
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let looks = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let looked = tokio::time::timeout(GENEROUS, looks).await;
    assert!(looked.is_ok(), "never came: {what}");
}

/// Ends a test that waits for something that never happens.
pub(crate) async fn in_time<T>(test: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(2 * GENEROUS, test).await;
    ended.expect("the test waits for what never comes")
}

/// Far longer than anything takes here.
const GENEROUS: Duration = Duration::from_secs(60);

/// A limiter over a store whose clock the test moves.
pub(crate) struct Places {
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
    pub(crate) redis: Option<Server>,
}

impl Places {
    pub(crate) fn memory() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self::over(store, clock, None)
    }

    pub(crate) async fn redis() -> Self {
        let clock = ManualClock::new();
        let server = Server::start();
        let store = server.builder().clock_for_tests(clock.clone());
        Self::over(store.connect().await.unwrap(), clock, Some(server))
    }

    fn over(store: impl Store, clock: ManualClock, redis: Option<Server>) -> Self {
        Self {
            limiter: patient(store, [policy(Limit::concurrency(PLACES).lease(LIFE))]),
            clock,
            redis,
        }
    }

    pub(crate) fn layer(&self) -> RateLimitLayer<Wrapped> {
        RateLimitLayer::new(self.limiter.clone()).wrap_body()
    }

    pub(crate) async fn in_use(&self) -> u64 {
        in_use(&self.limiter).await
    }

    pub(crate) async fn come_to(&self, expected: u64) {
        come_to(&self.limiter, expected).await;
    }

    /// Waits until nothing is held or stored any more.
    pub(crate) async fn empty(&self) {
        self.come_to(0).await;
        if let Some(redis) = &self.redis {
            assert_eq!(redis.keys(), [""; 0]);
        }
    }
}

/// Makes a test on each store of every `async fn name(places: &Places)` that is named.
macro_rules! on_both_stores {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                let places = crate::concurrency::places::Places::memory();
                crate::concurrency::places::in_time(super::$name(&places)).await;
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $name() {
                let places = crate::concurrency::places::Places::redis().await;
                crate::concurrency::places::in_time(super::$name(&places)).await;
            })*
        }
    };
}
pub(crate) use on_both_stores;
