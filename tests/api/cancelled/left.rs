//! What requests may leave behind.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tower_throttle::{
    DAY, Decision, FailureMode, HOUR, Key, Limit, Limiter, Permit, Policy, Route, SECOND,
    StoreErrorKind,
};

use support::redis::Server;
use support::web::{GENEROUS, eventually};

/// The number of questions that may be in flight at once.
pub(crate) const MOST_IN_FLIGHT: usize = 1_024;

/// More than anybody here uses.
const PLENTY: u64 = 1_000_000;

/// The time from one allowed request to the next: so long that none passes in a test, and short
/// enough that as many can wait as come at once.
const PAUSE: Duration = Duration::from_secs(4 * 60);

/// The purpose of the requests for each policy.
pub(crate) const PATHS: [&str; 3] = ["/200/1", "/200/2", "/200/3"];

/// A limiter over a server that waits for as long as a busy machine needs.
pub(crate) async fn patient(
    server: &Server,
    policies: impl IntoIterator<Item = Policy>,
) -> Limiter {
    let policies = policies.into_iter();
    let policies = policies.map(|policy| policy.on_store_failure(FailureMode::Deny));
    let builder = Limiter::builder(server.store().await, policies);
    builder.timeout(60 * SECOND).build().unwrap()
}

/// A limiter over a server, with a policy that counts requests, one whose places are held for
/// longer than any test takes, and one that makes requests wait as long.
pub(crate) async fn limiter(server: &Server) -> Limiter {
    let [rate, places, waiting] = PATHS;
    let policies = [
        Policy::new("rate", Limit::gcra(PLENTY, HOUR)).on(Route::get(rate)),
        Policy::new("places", Limit::concurrency(PLENTY).lease(HOUR)).on(Route::get(places)),
        Policy::new("waiting", Limit::gcra(1, PAUSE).burst(1))
            .max_wait(DAY)
            .on(Route::get(waiting)),
    ];
    let limiter = patient(server, policies).await;
    // The only one that does not have to wait.
    let first = limiter.check("waiting", Key::everybody()).await.unwrap();
    assert!(first.is_allowed() && first.store_failure().is_none());
    limiter
}

/// The store's, and that of the caller.
const CONNECTIONS: u64 = 2;

/// Polls a future this often and drops it. Returns whether it was done by then.
pub(crate) async fn looked_at(times: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        if poll!(future.as_mut()).is_ready() {
            return true;
        }
        yield_now().await;
    }
    false
}

/// The state before the requests.
pub(crate) struct Before {
    tasks: usize,
    /// Held throughout: the task that renews leases ends with the last of them.
    first: Permit,
}

impl Before {
    /// Once everything is there that stays.
    pub(crate) async fn now(server: &Server, limiter: &Limiter) -> Self {
        let first = limiter.admit("places", "first").await.unwrap();
        assert_eq!(leases(server), 1);
        nobody_else_is_connected(server).await;
        let tasks = tasks();
        Self { tasks, first }
    }

    /// Waits until everything is as it was, which happens by itself.
    pub(crate) async fn comes_back(self, server: &Server, limiter: &Limiter) {
        let more = || format!("{} leases, one before", leases(server));
        until(more, || leases(server) == 1).await;
        nobody_waits(limiter).await;
        self.all_tasks_are_over().await;
        all_places_are_free(server, limiter).await;
        nobody_else_is_connected(server).await;
        drop(self.first);
        until(|| "the first lease".to_owned(), || leases(server) == 0).await;
    }

    /// Waits until nothing is in flight any more.
    pub(crate) async fn all_tasks_are_over(&self) {
        let before = self.tasks;
        let more = || format!("{} tasks, {before} before", tasks());
        until(more, || tasks() <= before).await;
    }
}

/// The permits of those who waited are given back.
async fn nobody_waits(limiter: &Limiter) {
    let is_so = |next: &Decision| next.retry_after().is_none_or(|wait| wait <= PAUSE);
    let _ = eventually(limiter, "waiting", Key::everybody(), is_so).await;
}

fn leases(server: &Server) -> usize {
    let of_places = |key: &String| key.contains("places");
    server.keys().iter().filter(|key| of_places(key)).count()
}

async fn nobody_else_is_connected(server: &Server) {
    let all = || format!("{} connections", connections(server));
    until(all, || connections(server) == CONNECTIONS).await;
}

/// As many questions as may be in flight at once are answered, and one more is not.
async fn all_places_are_free(server: &Server, limiter: &Limiter) {
    pause(server);
    let ask = |number| Box::pin(limiter.check("rate", number as u64));
    let mut all: Vec<_> = (0..MOST_IN_FLIGHT).map(ask).collect();
    for (number, asked) in all.iter_mut().enumerate() {
        if let Poll::Ready(answer) = poll!(asked) {
            panic!("question {number} is not sent: {answer:?}");
        }
    }
    let one_more = ask(MOST_IN_FLIGHT).await.unwrap();
    assert_eq!(one_more.store_failure(), Some(StoreErrorKind::Overloaded));
    unpause(server);
    for answer in join_all(all).await {
        assert_eq!(answer.unwrap().store_failure(), None);
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn connections(server: &Server) -> u64 {
    let info = server.info("clients");
    let mut lines = info.lines();
    let count = lines.find_map(|line| line.strip_prefix("connected_clients:"));
    count.unwrap().parse().unwrap()
}

/// The server answers no question until it resumes.
pub(crate) fn pause(server: &Server) {
    server.query::<()>(("CLIENT", "PAUSE", 600_000, "WRITE"));
}

pub(crate) fn unpause(server: &Server) {
    server.query::<()>(("CLIENT", "UNPAUSE"));
}

/// Looks until it is so.
async fn until(what: impl Fn() -> String, is_so: impl Fn() -> bool) {
    let looks = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let looked = tokio::time::timeout(GENEROUS, looks).await;
    assert!(looked.is_ok(), "never back: {}", what());
}
