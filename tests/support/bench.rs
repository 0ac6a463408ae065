//! A store with a clock that tests move. Every store looks the same from here.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Answer, Check, Decisions, DenyCache, PolicyId, Store};
use tower_throttle::{
    Clock, Decision, Limit, Limiter, LimiterBuilder, MINUTE, ManualClock, MemoryStore, Rules,
    SECOND, StoreError,
};

use super::asking::{answer_of, answered, check_of};
use super::redis::Server;

pub struct Bench {
    pub clock: ManualClock,
    kind: Kind,
}

/// More keys than any test uses itself, and few enough to fill up.
const CAPACITY: u64 = 16_384;

enum Kind {
    Memory(MemoryStore),
    DenyCache(MemoryStore, DenyCache<Trips>),
    Redis(Server, tower_throttle::RedisStore),
}

/// One check: policy, limit, key, cost.
pub type Asked<'a> = (&'a str, Limit, &'a str, u64);

/// One check: policy, algorithm, key, action.
pub type Done<'a> = (&'a str, Algorithm, &'a str, Action);

impl Bench {
    pub fn memory() -> Self {
        let clock = ManualClock::new();
        let store = memory_store(&clock);
        Self {
            clock,
            kind: Kind::Memory(store),
        }
    }

    /// Around a store that takes round trips.
    pub fn deny_cache() -> Self {
        let clock = ManualClock::new();
        let store = memory_store(&clock);
        let cache = DenyCache::new(Trips(store.clone())).clock_for_tests(clock.clone());
        Self {
            clock,
            kind: Kind::DenyCache(store, cache),
        }
    }

    pub async fn redis() -> Self {
        let clock = ManualClock::new();
        let server = Server::start();
        let store = server.builder().clock_for_tests(clock.clone());
        let store = store.connect().await.unwrap();
        Self {
            clock,
            kind: Kind::Redis(server, store),
        }
    }

    pub fn store(&self) -> &dyn Store {
        match &self.kind {
            Kind::Memory(store) => store,
            Kind::DenyCache(_, store) => store,
            Kind::Redis(_, store) => store,
        }
    }

    /// The server of a bench that has one.
    pub fn server(&self) -> &Server {
        match &self.kind {
            Kind::Redis(server, _) => server,
            Kind::Memory(_) | Kind::DenyCache(..) => panic!("this bench counts in memory"),
        }
    }

    /// A limiter over the store.
    pub fn limiter(&self, rules: impl Into<Rules>) -> Limiter {
        self.builder(rules).build().unwrap()
    }

    /// A builder with the defaults of [`limiter`](Self::limiter), but without its deadline: on a
    /// busy machine an answer may be late.
    pub fn builder(&self, rules: impl Into<Rules>) -> LimiterBuilder<Arc<dyn Store>> {
        let store: Arc<dyn Store> = match &self.kind {
            Kind::Memory(store) => Arc::new(store.clone()),
            Kind::DenyCache(_, store) => Arc::new(store.clone()),
            Kind::Redis(_, store) => Arc::new(store.clone()),
        };
        let builder = Limiter::builder(store, rules);
        builder.timeout(MINUTE)
    }

    /// The server, if there is one.
    pub fn server_if_any(&self) -> Option<&Server> {
        match &self.kind {
            Kind::Memory(_) | Kind::DenyCache(..) => None,
            Kind::Redis(server, _) => Some(server),
        }
    }

    /// How many keys the store holds.
    pub fn stored(&self) -> usize {
        match &self.kind {
            Kind::Memory(store) | Kind::DenyCache(store, _) => store.len(),
            Kind::Redis(server, _) => server.keys().len(),
        }
    }

    /// Makes the store full for new keys, or no longer full. In memory, other keys take the room
    /// until a second has passed.
    pub async fn set_full(&self, is_full: bool) {
        match &self.kind {
            Kind::Redis(server, _) => server.set_full(is_full),
            Kind::Memory(store) | Kind::DenyCache(store, _) if is_full => {
                let (others, used_up) = (PolicyId::new("others"), Limit::gcra(1, SECOND));
                // So many that chance leaves no room in any corner of the store.
                for key in 0..2 * CAPACITY {
                    let check = check_of(&others, key, &used_up, Action::acquire(1));
                    let _ = answer_of(store, &[check]).await;
                }
            }
            Kind::Memory(_) | Kind::DenyCache(..) => self.advance(SECOND),
        }
    }

    /// Asks one policy about one key.
    pub async fn ask(&self, limit: Limit, cost: u64) -> Decision {
        self.ask_all(&[("policy", limit, "key", cost)]).await[0]
    }

    /// Asks several checks at once.
    pub async fn ask_all(&self, asked: &[Asked<'_>]) -> Decisions {
        answer(self.question(asked)).await
    }

    /// The answer, not awaited yet.
    pub fn question(&self, asked: &[Asked<'_>]) -> Answer {
        let done: Vec<_> = asked
            .iter()
            .map(|(policy, limit, key, cost)| {
                let algorithm = Algorithm::try_from(limit).unwrap();
                (*policy, algorithm, *key, Action::acquire(*cost))
            })
            .collect();
        self.asking(&done)
    }

    /// Applies an action under one policy to one key.
    pub async fn act(&self, limit: Limit, action: Action) -> Decision {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        self.act_all(&[("policy", algorithm, "key", action)]).await[0]
    }

    /// The same, if the store may fail.
    pub async fn try_act(&self, limit: Limit, action: Action) -> Result<Decision, StoreError> {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        let answer = answered(self.asking(&[("policy", algorithm, "key", action)])).await;
        answer.map(|decisions| decisions[0])
    }

    /// Applies several actions at once.
    pub async fn act_all(&self, done: &[Done<'_>]) -> Decisions {
        answer(self.asking(done)).await
    }

    /// The same, with some of the policies in shadow.
    pub async fn act_in_shadow(
        &self,
        done: &[Done<'_>],
        is_shadow: impl Fn(&str) -> bool,
    ) -> Decisions {
        answer(ask_in_shadow(self.store(), done, is_shadow)).await
    }

    fn asking(&self, done: &[Done<'_>]) -> Answer {
        ask(self.store(), done)
    }

    /// Asks until it is denied. Returns how many permits were allowed.
    pub async fn drain(&self, limit: Limit, cost: u64) -> u64 {
        let mut had = 0;
        while self.ask(limit, cost).await.is_allowed() {
            had += cost;
        }
        had
    }

    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub fn advance_us(&self, us: u64) {
        self.clock.advance(Duration::from_micros(us));
    }

    /// Sets the clock to the start of an aligned window of this length.
    pub fn align(&self, window: Duration) {
        let into = self.clock.now().get() % window.as_micros() as u64;
        self.advance_us(window.as_micros() as u64 - into);
    }
}

fn memory_store(clock: &ManualClock) -> MemoryStore {
    let builder = MemoryStore::builder().capacity(CAPACITY as usize);
    builder.clock(clock.clone()).build()
}

/// A store whose answers take a round trip, at whose end it decides.
#[derive(Clone)]
struct Trips(MemoryStore);

impl Store for Trips {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let store = self.0.clone();
        let asked = |check: &Check<'_>| {
            let (policy, subject, failure) = (check.policy, check.subject, check.on_store_failure);
            let does = (check.algorithm, check.action, check.is_shadow);
            (policy.clone(), subject, does, failure)
        };
        let asked: Vec<_> = checks.iter().map(asked).collect();
        Answer::Pending(Box::pin(async move {
            let checks = asked.iter().map(|(policy, subject, does, failure)| {
                Check::new(policy, *subject, does.0, does.1)
                    .in_shadow(does.2)
                    .with_failure_mode(*failure)
            });
            let checks: Vec<_> = checks.collect();
            answer_of(&store, &checks).await
        }))
    }
}

/// Applies several actions at once.
pub fn ask(store: &dyn Store, done: &[Done<'_>]) -> Answer {
    ask_in_shadow(store, done, |_| false)
}

/// The same, with some of the policies in shadow.
pub fn ask_in_shadow(
    store: &dyn Store,
    done: &[Done<'_>],
    is_shadow: impl Fn(&str) -> bool,
) -> Answer {
    let policies: Vec<_> = done.iter().map(|done| PolicyId::new(done.0)).collect();
    let checks: Vec<_> = done
        .iter()
        .zip(&policies)
        .map(|((_, algorithm, key, action), policy)| {
            check_of(policy, *key, *algorithm, *action).in_shadow(is_shadow(policy.name()))
        })
        .collect();
    store.ask(&checks)
}

pub async fn answer(answer: Answer) -> Decisions {
    answered(answer).await.unwrap()
}
