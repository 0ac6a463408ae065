//! What is counted when replies are lost.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tower_throttle::{
    BreakerState, DAY, FailureMode, Limit, Limiter, Outcome, Policy, RedisStore, RedisStoreBuilder,
    SECOND, StoreErrorKind,
};

use crate::faults::stage::PLENTY;
use support::proxy::{Proxy, Way};
use support::redis::Server;

pub(crate) const ATTEMPTS: usize = 1_000;

pub(crate) struct Counted {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) limiter: Limiter,
}

impl Counted {
    /// For charges, each of which is a script call of its own.
    async fn start(timeout: Duration) -> Self {
        Self::start_with(Limit::fixed_window(PLENTY, DAY), timeout, |store| store).await
    }

    pub(crate) async fn start_with(
        limit: Limit,
        timeout: Duration,
        said: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
    ) -> Self {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let store = RedisStore::builder(&proxy.url()).max_in_flight(2 * ATTEMPTS);
        let store = said(store).connect().await.unwrap();
        let policy = Policy::new("api", limit);
        let policy = policy.on_store_failure(FailureMode::Deny);
        let builder = Limiter::builder(store, [policy]);
        let limiter = builder.timeout(timeout).build().unwrap();
        // So that the server knows the script.
        let _ = limiter.check("api", "warm").await.unwrap();
        let _ = limiter.reset("api", "warm").await.unwrap();
        Self {
            server,
            proxy,
            limiter,
        }
    }

    /// For all subjects, according to the server.
    fn used(&self) -> usize {
        let keys = self.server.keys();
        if keys.is_empty() {
            return 0;
        }
        let states: Vec<String> = self.server.query(("MGET", keys));
        let counts = states.iter().filter_map(|state| state.rsplit(':').next());
        counts.map(|count| count.parse::<usize>().unwrap()).sum()
    }

    /// All charged at once, each to its own subject. Returns why each failed.
    pub(crate) async fn attempt(
        &self,
        attempts: usize,
        meanwhile: impl AsyncFnOnce(),
    ) -> Vec<Outcome> {
        let attempts = (0..attempts).map(|subject| {
            let limiter = self.limiter.clone();
            let subject = subject as u64;
            tokio::spawn(async move { limiter.charge("api", subject, 1).await.unwrap() })
        });
        let attempts: Vec<_> = attempts.collect();
        meanwhile().await;
        let decisions = join_all(attempts).await;
        let outcomes = decisions
            .into_iter()
            .map(|decision| decision.unwrap().outcome());
        outcomes.collect()
    }

    async fn until_used(&self, permits: usize) {
        let started = Instant::now();
        while self.used() < permits {
            assert!(started.elapsed() < 30 * SECOND, "{}", self.used());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_thousand_questions_on_a_broken_connection_count_once_each() {
    let counted = Counted::start(60 * SECOND).await;
    counted.proxy.set(Way::DropReplies);
    let outcomes = counted
        .attempt(ATTEMPTS, async || {
            counted.until_used(ATTEMPTS).await;
            counted.proxy.set(Way::Pass);
            counted.proxy.cut();
        })
        .await;
    let interrupted = Outcome::FailedClosed(StoreErrorKind::Interrupted);
    assert_eq!(outcomes, vec![interrupted; ATTEMPTS]);
    assert_eq!(counted.used(), ATTEMPTS);
    back(&counted).await;
    assert_eq!(counted.used(), ATTEMPTS, "sent again later");
}

#[tokio::test]
async fn a_thousand_dropped_questions_count_once_each() {
    let counted = Counted::start(2 * SECOND).await;
    counted.proxy.set(Way::DropReplies);
    let outcomes = counted.attempt(ATTEMPTS, async || {}).await;
    let late = Outcome::FailedClosed(StoreErrorKind::TimedOut);
    assert_eq!(outcomes, vec![late; ATTEMPTS]);
    counted.until_used(ATTEMPTS).await;
    counted.proxy.set(Way::Pass);
    back(&counted).await;
    assert_eq!(counted.used(), ATTEMPTS, "sent again later");
}

/// A reply that no script of this crate gives, or an error from something in between, does not show
/// what ran.
#[tokio::test]
async fn a_question_whose_reply_is_no_answer_is_counted_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let limit = || Limit::gcra(100, DAY);
    let policies = [
        ("plain", Policy::new("plain", limit())),
        ("any", Policy::new("any", Limit::fixed_window(100, DAY))),
        ("rates", Policy::new("rates", limit().and(1_000, 2 * DAY))),
        ("one", Policy::new("one", limit()).group("group")),
    ];
    for (number, reply) in [
        &b"+OK\r\n"[..],
        b"$-1\r\n",
        b":-7\r\n",
        b"$5\r\nhello\r\n",
        b"*1\r\n:-7\r\n",
        b"*2\r\n+a\r\n:-7\r\n",
        b"-ERR Connection reset by peer\r\n",
        b"-upstream failure\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let subject = number as u64;
        for (name, policy) in &policies {
            // One with a circuit breaker that has seen no failure.
            let store = RedisStore::connect(&proxy.url()).await.unwrap();
            let limiter = Limiter::builder(store, [policy.clone()]);
            let limiter = limiter.timeout(10 * SECOND).build().unwrap();
            let _ = limiter.check(name, "warm").await.unwrap();
            proxy.set(Way::Garble(reply));
            let decision = limiter.check(name, subject).await.unwrap();
            proxy.set(Way::Pass);
            let told = String::from_utf8_lossy(reply);
            let failure = decision.store_failure();
            assert_eq!(failure, Some(StoreErrorKind::BadReply), "{name}: {told}");
            let left = limiter.peek(name, subject).await.unwrap().remaining();
            assert_eq!(left, 99, "{name}: {told}");
        }
    }
}

/// One at a time, each on its own connection.
#[tokio::test]
async fn a_question_is_not_asked_again_on_the_next_connection() {
    let counted = Counted::start(10 * SECOND).await;
    for attempts in 1..=3 {
        counted.proxy.set(Way::CutReplies);
        let outcomes = counted.attempt(1, async || {}).await;
        let interrupted = Outcome::FailedClosed(StoreErrorKind::Interrupted);
        assert_eq!(outcomes, [interrupted]);
        counted.proxy.set(Way::Pass);
        back(&counted).await;
        assert_eq!(counted.used(), attempts);
    }
    let scripts = counted.server.calls("evalsha");
    assert!(scripts > 0 && counted.proxy.commands() > 0);
}

/// Looks until the store answers again.
pub(crate) async fn back(counted: &Counted) {
    let started = Instant::now();
    loop {
        let decision = counted.limiter.peek("api", "alice").await.unwrap();
        if decision.store_failure().is_none() {
            break;
        }
        assert!(started.elapsed() < 30 * SECOND, "{decision:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(counted.limiter.breaker_state(), BreakerState::Closed);
}
