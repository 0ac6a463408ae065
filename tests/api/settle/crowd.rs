//! A thousand requests at once about one key of a real server, under policies whose permits may be
//! given back, and so are not asked for together.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{DAY, Limit, Limiter, Policy, RateLimitLayer, SECOND};

use super::{alice, is_unauthorized, stated};
use support::limits::in_time;
use support::redis::Server;
use support::web::{GENEROUS, eventually};

const REQUESTS: usize = 1_000;
/// Fewer than the requests, and unrelated to their number.
const LIMIT: usize = 397;

/// No permit comes back by itself while a test runs, however slow the machine is.
fn limits() -> [(&'static str, Limit); 8] {
    in_time(LIMIT as u64, 366 * DAY)
}

/// A service that holds all responses until a signal, behind a limiter over a server.
struct Crowded {
    limiter: Limiter,
    inside: Arc<AtomicUsize>,
    door: Arc<Semaphore>,
}

impl Crowded {
    async fn of(server: &Server, policy: Policy) -> Self {
        // Every request must reach the server.
        let store = server.store().await.without_deny_cache();
        let limiter = Limiter::builder(store, [policy.by(alice)]);
        Self {
            // On a busy machine an answer may be late.
            limiter: limiter.timeout(60 * SECOND).build().unwrap(),
            inside: Arc::default(),
            door: Arc::new(Semaphore::new(0)),
        }
    }

    /// Sends all requests at once, with the status that the service is to answer. When this
    /// returns, those that it will not see are denied, and all others are inside.
    async fn send(&self, status: fn(usize) -> u16, let_in: usize) -> Vec<JoinHandle<u16>> {
        let (inside, door) = (Arc::clone(&self.inside), Arc::clone(&self.door));
        let inner = service_fn(move |request: Request<u16>| {
            let (inside, door) = (Arc::clone(&inside), Arc::clone(&door));
            async move {
                inside.fetch_add(1, Ordering::SeqCst);
                door.acquire().await.unwrap().forget();
                let response = Response::builder().status(*request.body());
                Ok::<_, Infallible>(response.header("x-cost", "1").body(()).unwrap())
            }
        });
        let service = RateLimitLayer::new(self.limiter.clone())
            .wrap_body()
            .layer(inner);
        let requests = (0..REQUESTS).map(|number| {
            let response = service.clone().oneshot(Request::new(status(number)));
            tokio::spawn(async move { response.await.unwrap().status().as_u16() })
        });
        let requests: Vec<_> = requests.collect();
        let is_denied = |request: &&JoinHandle<u16>| request.is_finished();
        let all_decided = async {
            while requests.iter().filter(is_denied).count() < REQUESTS - let_in
                || self.inside.load(Ordering::SeqCst) < let_in
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let all_decided = tokio::time::timeout(10 * GENEROUS, all_decided).await;
        let inside = self.inside.swap(0, Ordering::SeqCst);
        assert_eq!(inside, let_in, "in time: {}", all_decided.is_ok());
        requests
    }

    /// Lets everybody out. Returns how many were answered with each of these statuses.
    async fn let_out(&self, requests: Vec<JoinHandle<u16>>, statuses: [u16; 3]) -> [usize; 3] {
        self.door.add_permits(REQUESTS);
        let answered = join_all(requests).await;
        self.door.forget_permits(REQUESTS);
        let answered: Vec<_> = answered.into_iter().map(Result::unwrap).collect();
        statuses.map(|status| answered.iter().filter(|each| **each == status).count())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_requests_at_once_exactly_the_limit_is_let_in() {
    let server = Server::start();
    let counted = limits().map(|(name, limit)| {
        let policy = Policy::new(format!("count_if {name}"), limit);
        policy.count_if(is_unauthorized)
    });
    // Including limits that can be waited for, though not for that long.
    let some = || limits().into_iter().take(3);
    let settled = some().map(|(name, limit)| {
        let policy = Policy::new(format!("settle {name}"), limit);
        policy.settle(stated)
    });
    let waited = some().map(|(name, limit)| {
        let policy = Policy::new(format!("max_wait {name}"), limit);
        policy.max_wait(SECOND)
    });
    for policy in counted.into_iter().chain(settled).chain(waited) {
        let crowded = Crowded::of(&server, policy).await;
        let requests = crowded.send(|_| 401, LIMIT).await;
        let [counted, denied, _] = crowded.let_out(requests, [401, 429, 200]).await;
        assert_eq!([counted, denied], [LIMIT, REQUESTS - LIMIT]);
        let policy = &crowded.limiter.policy_names()[0];
        let left = crowded.limiter.peek(policy, "alice").await.unwrap();
        assert_eq!(left.remaining(), 0, "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_are_let_in_again_as_a_thousand_requests_give_back() {
    let server = Server::start();
    for (name, limit) in limits() {
        let policy = Policy::new(name, limit).count_if(is_unauthorized);
        let crowded = Crowded::of(&server, policy).await;
        let mut left = LIMIT;
        for _ in 0..2 {
            let every_third = |number| if number % 3 == 0 { 401 } else { 200 };
            let requests = crowded.send(every_third, left).await;
            let [used, unused, denied] = crowded.let_out(requests, [401, 200, 429]).await;
            assert_eq!([used + unused, denied], [left, REQUESTS - left], "{name}");
            left = unused;
            let _ = eventually(&crowded.limiter, name, "alice", |looked| {
                looked.remaining() as usize == left
            })
            .await;
        }
        assert!((1..LIMIT).contains(&left), "{name}: {left}");
    }
}
