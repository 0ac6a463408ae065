//! Limits that are chosen for each request, over real sockets, on every store.

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use reqwest::header::HeaderMap;
use support::bench::Bench;
use support::on_every_store;
use support::web::{Service, eventually};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    Header, Key, Limit, Limiter, MINUTE, MemoryStore, Policy, Rate, RateLimitLayer, Rejection,
    RejectionKind, RequestHead, ResponseHead, per_minute,
};

on_every_store! {
    each_request_is_judged_by_the_limit_of_its_tier
    the_key_chooses_too
    an_upgrade_keeps_the_permits_that_were_used
    a_downgrade_keeps_the_permits_that_were_used
    another_rate_keeps_the_time_until_all_is_back
    there_and_back_again_gives_nothing_away
    what_is_settled_has_the_price_that_the_estimate_had
    a_cost_above_the_chosen_limit_never_fits
    outside_of_http_the_policys_own_limit_holds
    a_limit_that_makes_no_sense_is_the_servers_fault
    a_limit_of_another_algorithm_is_the_servers_fault
    a_limit_of_nothing_denies_for_ever_and_uses_nothing
    a_limit_of_nothing_may_give_way_to_a_chosen_one
    a_reset_under_a_limit_of_nothing_forgets_chosen_limits
}

/// Premium users have their own limit.
fn premium(limit: Limit) -> impl Fn(&RequestHead<'_>, &Key) -> Option<Limit> {
    move |request: &RequestHead<'_>, _: &Key| {
        let tier = request.headers.get("x-tier")?;
        (tier == "premium").then_some(limit)
    }
}

/// A policy by user with two tiers.
fn tiers(basic: Limit, of_premium: Limit) -> Policy {
    Policy::new("user", basic)
        .by(Header::new("x-user"))
        .limit_by(premium(of_premium))
}

fn key(user: &str) -> Key {
    Key::header("x-user", user.as_bytes())
}

/// A service behind one policy, asked by users of some tier.
struct Site {
    url: String,
    service: Service,
}

impl Site {
    async fn behind(limiter: &Limiter) -> Self {
        let service = Service::open();
        let url = service.behind(limiter.clone()).await;
        Self { url, service }
    }

    async fn ask(&self, user: &str, tier: &str) -> reqwest::Response {
        let request = reqwest::Client::new().get(format!("{}/200/0", self.url));
        let request = request.header("x-user", user).header("x-tier", tier);
        request.send().await.unwrap()
    }

    async fn statuses<const N: usize>(&self, user: &str, tier: &str) -> [u16; N] {
        let mut statuses = [0; N];
        for status in &mut statuses {
            *status = self.ask(user, tier).await.status().as_u16();
        }
        statuses
    }
}

fn value_of<'a>(headers: &'a HeaderMap, field: &str) -> &'a str {
    headers[field].to_str().unwrap()
}

/// Limits of each algorithm that differ only in how many permits may be used at once.
type Make = fn(u64) -> Limit;
const AT_ONCE: [(&str, Make); 10] = [
    ("gcra", |most| Limit::gcra(6, MINUTE).burst(most)),
    ("token_bucket", |most| {
        Limit::token_bucket(most, per_minute(6))
    }),
    ("leaky_bucket", |most| {
        Limit::leaky_bucket(most, per_minute(6)).without_delay()
    }),
    ("queue", |most| Limit::leaky_bucket(most, per_minute(6))),
    ("fixed_window", |most| Limit::fixed_window(most, MINUTE)),
    ("aligned_window", |most| {
        Limit::fixed_window(most, MINUTE).aligned()
    }),
    ("sliding_log", |most| Limit::sliding_log(most, MINUTE)),
    ("sliding_window", |most| Limit::sliding_window(most, MINUTE)),
    ("sliding_counter", |most| {
        Limit::sliding_counter(most, MINUTE)
    }),
    ("concurrency", Limit::concurrency),
];

async fn each_request_is_judged_by_the_limit_of_its_tier(bench: &Bench) {
    let limiter = bench.limiter([tiers(
        Limit::gcra(2, MINUTE),
        Limit::gcra(600, 60 * MINUTE).burst(4),
    )]);
    let site = Site::behind(&limiter).await;
    assert_eq!(site.statuses("alice", "basic").await, [200, 200, 429]);
    assert_eq!(
        site.statuses("bob", "premium").await,
        [200, 200, 200, 200, 429]
    );
    assert_eq!(site.service.calls(), 6);

    let basic = site.ask("carol", "basic").await;
    assert_eq!(
        value_of(basic.headers(), "ratelimit-policy"),
        "\"user\";q=2;w=60"
    );
    assert_eq!(value_of(basic.headers(), "ratelimit"), "\"user\";r=1;t=30");
    let premium = site.ask("dave", "premium").await;
    assert_eq!(
        value_of(premium.headers(), "ratelimit-policy"),
        "\"user\";q=600;w=3600"
    );
    assert_eq!(
        value_of(premium.headers(), "ratelimit"),
        "\"user\";r=3;t=18"
    );
}

async fn the_key_chooses_too(bench: &Bench) {
    let of_alice = |_: &RequestHead<'_>, user: &Key| {
        (*user == key("alice")).then(|| Limit::fixed_window(3, MINUTE))
    };
    let policy = Policy::new("user", Limit::fixed_window(1, MINUTE))
        .by(Header::new("x-user"))
        .limit_by(of_alice);
    let site = Site::behind(&bench.limiter([policy])).await;
    assert_eq!(site.statuses("alice", "").await, [200, 200, 200, 429]);
    assert_eq!(site.statuses("bob", "").await, [200, 429]);
}

async fn an_upgrade_keeps_the_permits_that_were_used(bench: &Bench) {
    for (name, at_once) in AT_ONCE {
        bench.align(MINUTE);
        let limiter = bench.limiter([tiers(at_once(4), at_once(7))]);
        let _ = limiter.charge("user", key("alice"), 4).await.unwrap();
        let site = Site::behind(&limiter).await;
        assert_eq!(site.ask("alice", "basic").await.status(), 429, "{name}");
        // The queue would hold one more up, and the others know that it is one of three.
        if name != "queue" {
            let upgraded = site.ask("alice", "premium").await;
            assert_eq!(upgraded.status(), 200, "{name}");
            let value = value_of(upgraded.headers(), "ratelimit");
            assert!(value.starts_with("\"user\";r=2"), "{name}: {value}");
        }
        bench.advance(5 * MINUTE);
    }
}

async fn a_downgrade_keeps_the_permits_that_were_used(bench: &Bench) {
    for (name, at_once) in AT_ONCE {
        bench.align(MINUTE);
        let limiter = bench.limiter([tiers(at_once(4), at_once(7))]);
        // Under the policy's own limit, which a charge may exceed: as many as the better tier had.
        let _ = limiter.charge("user", key("alice"), 6).await.unwrap();
        let site = Site::behind(&limiter).await;
        for _ in 0..3 {
            let downgraded = site.ask("alice", "basic").await;
            assert_eq!(downgraded.status(), 429, "{name}");
            let value = value_of(downgraded.headers(), "ratelimit");
            assert!(value.starts_with("\"user\";r=0"), "{name}: {value}");
        }
        // Nothing of it was lost on the way.
        let upgraded = bench.limiter([Policy::new("user", at_once(7))]);
        let looked = upgraded.peek("user", key("alice")).await.unwrap();
        assert_eq!(looked.remaining(), 1, "{name}");
        bench.advance(5 * MINUTE);
    }
}

/// If permits come back one by one, usage is the time that this takes.
async fn another_rate_keeps_the_time_until_all_is_back(bench: &Bench) {
    let makes: [fn(Rate) -> Limit; 3] = [
        |rate| match rate == per_minute(7) {
            true => Limit::gcra(7, MINUTE),
            false => Limit::gcra(1_000, MINUTE),
        },
        |rate| Limit::token_bucket(1_000, rate),
        |rate| Limit::leaky_bucket(1_000, rate).without_delay(),
    ];
    for make in makes {
        let (slow, fast) = (make(per_minute(7)), make(per_minute(1_000)));
        for [from, to] in [[slow, fast], [fast, slow]] {
            let limiter = bench.limiter([tiers(from, to)]);
            let _ = limiter.charge("user", key("alice"), 3).await.unwrap();
            let owed = limiter.peek("user", key("alice")).await.unwrap();
            let changed = bench.limiter([tiers(to, from)]);
            let owes = changed.peek("user", key("alice")).await.unwrap();
            // A fraction of a microsecond is rounded against the caller.
            assert!(owes.reset_after() >= owed.reset_after(), "{from:?} {to:?}");
            let more = owes.reset_after() - owed.reset_after();
            assert!(more <= Duration::from_micros(1), "{from:?} {to:?}");
            let _ = limiter.reset("user", key("alice")).await.unwrap();
        }
    }
}

async fn there_and_back_again_gives_nothing_away(bench: &Bench) {
    for (name, at_once) in AT_ONCE {
        // Running requests hold permits of one, and are held up by the other.
        if ["concurrency", "queue"].contains(&name) {
            continue;
        }
        bench.align(MINUTE);
        let limiter = bench.limiter([tiers(at_once(3), at_once(5))]);
        let site = Site::behind(&limiter).await;
        let mut served = 0;
        for round in 0..12 {
            let tier = ["basic", "premium"][round % 2];
            if site.ask("alice", tier).await.status() == 200 {
                served += 1;
            }
        }
        assert_eq!(served, 5, "{name}: never more than the better tier has");
        bench.advance(5 * MINUTE);
    }
}

/// Under the policy's own limit each permit takes ten times as long to come back.
async fn what_is_settled_has_the_price_that_the_estimate_had(bench: &Bench) {
    for (cost, back_after) in [(3, 1_800), (9, 5_400)] {
        let policy = tiers(Limit::gcra(10, MINUTE), Limit::gcra(100, MINUTE));
        let policy = policy.cost(5).settle(move |_: &ResponseHead<'_>| cost);
        let limiter = bench.limiter([policy]);
        let site = Site::behind(&limiter).await;
        let user = format!("user of {cost}");
        assert_eq!(site.statuses(&user, "premium").await, [200]);
        let back_after = Duration::from_millis(back_after);
        let _ = eventually(&limiter, "user", key(&user), |looked| {
            looked.reset_after() == back_after
        })
        .await;
    }
}

async fn a_cost_above_the_chosen_limit_never_fits(bench: &Bench) {
    let policy = tiers(Limit::gcra(10, MINUTE), Limit::gcra(4, MINUTE)).cost(5);
    let site = Site::behind(&bench.limiter([policy])).await;
    let never = site.ask("alice", "premium").await;
    assert_eq!(never.status(), 429);
    assert!(!never.headers().contains_key("retry-after"));
    assert_eq!(site.statuses("alice", "basic").await, [200, 200, 429]);
}

async fn outside_of_http_the_policys_own_limit_holds(bench: &Bench) {
    let limiter = bench.limiter([tiers(Limit::gcra(2, MINUTE), Limit::gcra(4, MINUTE))]);
    let decision = limiter.check("user", key("alice")).await.unwrap();
    assert_eq!((decision.limit(), decision.remaining()), (2, 1));
}

/// What the headers show if this is the premium tier's limit.
async fn refusal(bench: &Bench, own: Limit, chosen: Limit) -> String {
    let limiter = bench.limiter([tiers(own, chosen)]);
    let site = Site::behind(&limiter).await;
    let refused = site.ask("alice", "premium").await;
    assert_eq!(refused.status(), 500);
    assert!(!refused.headers().contains_key("retry-after"));
    assert_eq!(site.service.calls(), 0);
    let problem: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(problem["type"], "about:blank");
    // The others are served, and nothing was charged meanwhile.
    assert_eq!(site.ask("alice", "basic").await.status(), 200);
    let looked = limiter.peek("user", key("alice")).await.unwrap();
    assert_eq!(looked.remaining(), looked.limit() - 1);
    let _ = limiter.reset("user", key("alice")).await.unwrap();
    problem["detail"].as_str().unwrap().to_owned()
}

async fn a_limit_that_makes_no_sense_is_the_servers_fault(bench: &Bench) {
    let own = Limit::gcra(2, MINUTE);
    assert_eq!(
        refusal(bench, own, Limit::gcra(0, MINUTE)).await,
        "policy \"user\": limit_by: limit: got 0, expected 1 to 999999999999999, or `Limit::nothing()`"
    );
    assert_eq!(
        refusal(bench, own, Limit::gcra(1, Duration::ZERO)).await,
        "policy \"user\": limit_by: period: got 0ns, expected 1 ms to 366 days, in whole \
         microseconds"
    );
}

async fn a_limit_of_another_algorithm_is_the_servers_fault(bench: &Bench) {
    assert_eq!(
        refusal(
            bench,
            Limit::gcra(2, MINUTE),
            Limit::fixed_window(2, MINUTE)
        )
        .await,
        "policy \"user\": limit_by: got a limit of fixed_window, expected one of gcra as the \
         policy's own"
    );
}

async fn a_limit_of_nothing_denies_for_ever_and_uses_nothing(bench: &Bench) {
    let two_rates = |most| Limit::fixed_window(most, MINUTE).and(10, 60 * MINUTE);
    let of_several: [(&str, Make); 1] = [("two_rates", two_rates)];
    for (name, limit) in AT_ONCE.into_iter().chain(of_several) {
        let policy = tiers(limit(4), Limit::nothing());
        let all = Policy::new("all", Limit::gcra(9, MINUTE));
        let limiter = bench.limiter([all, policy]);
        let site = Site::behind(&limiter).await;
        let stored = bench.stored();
        for _ in 0..3 {
            let response = site.ask(name, "premium").await;
            assert_eq!(response.status(), 429, "{name}");
            let headers = response.headers();
            assert!(!headers.contains_key("retry-after"), "{name}");
            assert_eq!(
                value_of(headers, "ratelimit-policy"),
                "\"user\";q=0",
                "{name}"
            );
            assert_eq!(value_of(headers, "ratelimit"), "\"user\";r=0", "{name}");
        }
        assert_eq!(bench.stored(), stored, "{name}: no store was asked");
        let untouched = limiter.peek("all", Key::everybody()).await.unwrap();
        assert_eq!(untouched.remaining(), 9, "{name}");
        // The others go on as before.
        assert_eq!(site.ask(name, "basic").await.status(), 200, "{name}");
        assert_eq!(site.ask(name, "premium").await.status(), 429, "{name}");
        let _ = limiter.reset("all", Key::everybody()).await.unwrap();
        let _ = limiter.reset("user", key(name)).await.unwrap();
    }
}

async fn a_limit_of_nothing_may_give_way_to_a_chosen_one(bench: &Bench) {
    for (name, limit) in AT_ONCE {
        let limiter = bench.limiter([tiers(Limit::nothing(), limit(2))]);
        let site = Site::behind(&limiter).await;
        assert_eq!(site.ask(name, "basic").await.status(), 429, "{name}");
        let served = site.ask(name, "premium").await;
        assert_eq!(served.status(), 200, "{name}");
        assert_eq!(site.ask(name, "basic").await.status(), 429, "{name}");
    }
    // Where its other rates count is known by the policy's own.
    let two_rates = Limit::gcra(1, MINUTE).and(5, 60 * MINUTE);
    let limiter = bench.limiter([tiers(Limit::nothing(), two_rates)]);
    let site = Site::behind(&limiter).await;
    assert_eq!(site.ask("alice", "premium").await.status(), 500);
}

async fn a_reset_under_a_limit_of_nothing_forgets_chosen_limits(bench: &Bench) {
    // A place is free as soon as its request has ended.
    for (name, limit) in AT_ONCE
        .into_iter()
        .filter(|(name, _)| *name != "concurrency")
    {
        let limiter = bench.limiter([tiers(Limit::nothing(), limit(1))]);
        let site = Site::behind(&limiter).await;
        assert_eq!(site.statuses(name, "premium").await, [200, 429], "{name}");
        let reset = limiter.reset("user", key(name)).await.unwrap();
        assert!(
            reset.is_allowed() && reset.store_failure().is_none(),
            "{name}"
        );
        assert_eq!(reset.limit(), 0, "{name}");
        assert_eq!(site.statuses(name, "premium").await, [200, 429], "{name}");
    }
}

#[tokio::test]
async fn the_reason_is_there_for_the_layers_outside() {
    let policy = tiers(Limit::gcra(2, MINUTE), Limit::sliding_log(2, MINUTE));
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    let inner = service_fn(
        async |_: Request<()>| -> Result<Response<String>, Infallible> {
            unreachable!("the service is not called")
        },
    );
    let request = Request::builder().header("x-tier", "premium").body(());
    let service = RateLimitLayer::new(limiter).wrap_body().layer(inner);
    let response = service.oneshot(request.unwrap()).await.unwrap();
    let reason: &Rejection = response.extensions().get().unwrap();
    assert_eq!(reason.kind(), RejectionKind::Misconfigured);
    assert_eq!(reason.policies(), ["user"]);
    assert_eq!(reason.retry_after(), None);
    assert!(
        reason
            .to_string()
            .contains("limit_by: got a limit of sliding_log")
    );
}

/// Even if the policy's own limit holds nobody up.
#[tokio::test]
async fn a_request_dropped_in_a_chosen_delay_gives_back_its_permits() {
    let bucket = Limit::leaky_bucket(3, per_minute(3));
    let policy = tiers(bucket.without_delay(), bucket);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let ask = || {
        let request = Request::builder().header("x-tier", "premium");
        let request = request.header("x-user", "alice").body(()).unwrap();
        service.clone().oneshot(request)
    };
    assert_eq!(ask().await.unwrap().status(), 200);
    {
        let mut held_up = pin!(ask());
        let polled = held_up
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        let looked = limiter.peek("user", key("alice")).await.unwrap();
        assert_eq!(looked.remaining(), 1);
    }
    let looked = limiter.peek("user", key("alice")).await.unwrap();
    assert_eq!(looked.remaining(), 2);
}
