//! Takes that come together are asked as one, and answered as if they were not.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{PendingAnswer, PolicyId};
use tower_throttle::{
    Decision, Key, Limit, MINUTE, ManualClock, RedisStore, RedisStoreBuilder, SECOND,
    StoreErrorKind, Subject,
};

use support::asking::{check_of, pending_answer_of};
use support::proxy::{Proxy, Way};
use support::redis::Server;

mod all_kinds;
mod answers;
mod any_keys;
mod any_several;
mod composed;
mod failures;
mod far;
mod forms;
mod given_up;
mod groups;
mod many_keys;
mod mixed;
mod model;
mod packs;
mod rates;
mod several;
mod shadows;
mod ten_states;

/// Longer than it takes to ask for many.
const SLOW: Way = Way::Delay(Duration::from_millis(100));
/// Longer than any trip takes: those who wait go together with all others, however slow the machine
/// is.
const PATIENT: Duration = MINUTE;

/// A server, a proxy that can be slow, and a store whose clock stands still.
struct Stage {
    server: Server,
    proxy: Proxy,
    store: RedisStore,
    clock: ManualClock,
}

impl Stage {
    async fn start() -> Self {
        Self::with(|builder| builder.wait_for_batches(PATIENT)).await
    }

    /// With a store where those who wait for a late trip go on another one beside it.
    async fn impatient() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(said: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let clock = ManualClock::new();
        let store = RedisStore::builder(&proxy.url()).clock_for_tests(clock.clone());
        let store = said(store).connect().await.unwrap().without_deny_cache();
        let stage = Self {
            server,
            proxy,
            store,
            clock,
        };
        // So that the server knows the scripts.
        for number in 0..3 {
            let warm_up = format!("warm-up-{number}");
            let takes = [1; 5].map(|cost| stage.take(&warm_up, Limit::gcra(9, SECOND), cost));
            assert!(join_all(takes).await.iter().all(Result::is_ok));
        }
        stage
    }

    /// The question whether permits may be taken for good, not asked yet.
    fn question(&self, policy: &str, limit: Limit, cost: u64) -> PendingAnswer {
        self.asking(policy, limit, Action::consume(cost))
    }

    fn asking(&self, policy: &str, limit: Limit, action: Action) -> PendingAnswer {
        let policy = PolicyId::new(policy);
        pending_answer_of(&self.store, &[check_of(&policy, "alice", &limit, action)])
    }

    async fn take(
        &self,
        policy: &str,
        limit: Limit,
        cost: u64,
    ) -> Result<Decision, StoreErrorKind> {
        let answer = self.question(policy, limit, cost).await;
        let decision = answer.map(|decisions| decisions[0]);
        decision.map_err(|error| error.kind())
    }

    /// The answers when they come together.
    async fn take_all(&self, policy: &str, limit: Limit, costs: &[u64]) -> Vec<Decision> {
        let takes = costs.iter().map(|cost| self.take(policy, limit, *cost));
        let answers = join_all(takes).await;
        answers.into_iter().map(Result::unwrap).collect()
    }

    fn key(&self, limit: Limit, policy: &str) -> String {
        let layout = Algorithm::try_from(&limit).unwrap().name();
        let subject = Subject::from(&Key::from("alice"));
        format!("throttle:{layout}2:{{{subject}}}:{policy}")
    }

    /// The stored instant at which nothing is owed any more.
    fn paid_us(&self, limit: Limit, policy: &str) -> u64 {
        self.server.query(("GET", self.key(limit, policy)))
    }

    fn scripts(&self) -> u64 {
        self.server.calls("evalsha") + self.server.calls("eval")
    }
}

/// How many of them are allowed.
fn allowed<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> usize {
    let decisions = decisions.into_iter();
    decisions.filter(|decision| decision.is_allowed()).count()
}

/// At least a tenth of those asked for was denied, and at least a tenth was not.
fn assert_of_both_kinds(asked: usize, denied: usize) {
    assert!(
        denied * 10 > asked && denied * 10 < asked * 9,
        "{denied} of {asked}"
    );
}
