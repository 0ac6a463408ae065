//! Prefetch over a real Redis Cluster, beside policies about other subjects.
#![cfg(feature = "redis")]

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use support::cluster::Cluster;
use support::until::until;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::{DAY, Header, Key, Limit, Limiter, MINUTE, Policy, Prefetch, RateLimitLayer};

/// Nothing comes back while a test lasts.
const HOT: Limit = Limit::gcra(1_000, Duration::from_secs(366 * 24 * 60 * 60));

async fn limiter(cluster: &Cluster, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let store = cluster.patient().connect().await.unwrap();
    // Every question must reach the servers, and on a busy machine an answer may be late.
    let builder = Limiter::builder(store.without_deny_cache(), policies);
    builder.timeout(MINUTE).build().unwrap()
}

/// Uses up everything under the policy `strict`, whose key is on another node than that of `hot`.
async fn denied_on_another_node(cluster: &Cluster, limiter: &Limiter) -> (String, usize) {
    let (hot, _) = cluster.master_of(":hot");
    for number in 0.. {
        let name = number.to_string();
        let key = Key::header("x-user", name.as_bytes());
        assert!(
            limiter
                .check("strict", key.clone())
                .await
                .unwrap()
                .is_allowed()
        );
        let (strict, _) = cluster.master_of(":strict");
        if strict != hot {
            return (name, strict);
        }
        let _ = limiter.reset("strict", key).await.unwrap();
    }
    unreachable!("one of three nodes has all keys")
}

/// Permits taken in between were told a later time than those that are given back. They would be
/// handed out late, together with the next taker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_denial_gives_nothing_back_under_held_permits() {
    let prefetched = Policy::new("hot", HOT).prefetch(Prefetch::new());
    for (hot, others, left) in [
        (prefetched.clone(), 10, 1_000 - 11),
        (prefetched, 0, 1_000),
        (Policy::new("hot", HOT), 10, 1_000 - 10),
    ] {
        let cluster = Cluster::without_full_coverage();
        let everybody = || Key::header("x-all", b"everybody");
        let strict = Policy::new("strict", Limit::fixed_window(1, DAY));
        let policies = [
            hot.by(Header::new("x-all")),
            strict.by(Header::new("x-user")),
        ];
        let asked = limiter(&cluster, policies).await;
        let other = limiter(&cluster, [Policy::new("hot", HOT)]).await;
        let _ = asked.charge("hot", everybody(), 1).await.unwrap();
        let (user, node) = denied_on_another_node(&cluster, &asked).await;
        let _ = asked.reset("hot", everybody()).await.unwrap();

        cluster.masters[node].signal("STOP");
        let inner = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
        let service = RateLimitLayer::new(asked).wrap_body().layer(inner);
        let request = Request::builder()
            .header("x-all", "everybody")
            .header("x-user", user);
        let answer = tokio::spawn(service.oneshot(request.body(String::new()).unwrap()));
        until("what is not denied is taken", async || {
            other.peek("hot", everybody()).await.unwrap().remaining() < 1_000
        })
        .await;
        if others > 0 {
            let taken = other.check_cost("hot", everybody(), others).await.unwrap();
            assert!(taken.is_allowed());
        }
        cluster.masters[node].signal("CONT");
        let response = answer.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let remaining = other.peek("hot", everybody()).await.unwrap().remaining();
        assert_eq!(remaining, left);
    }
}
