//! What reaches Redis under attack.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};
#[cfg(feature = "metrics")]
use tower_throttle::Metrics;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{
    DAY, HOUR, Header, HeaderCost, Key, Limit, Limiter, MINUTE, ManualClock, Mode, Penalty, Policy,
    RateLimitLayer, RedisStore, SECOND, Subject,
};

use super::{MICROSECOND, ask};
use support::bench::answer;
use support::limits;
#[cfg(feature = "metrics")]
use support::prometheus::Scrape;
use support::redis::Server;
use support::until::until;

pub(crate) async fn limiter(
    server: &Server,
    clock: &ManualClock,
    policies: Vec<Policy>,
) -> Limiter {
    // On a busy machine a round trip may be late, too, and callers that do not wait for it ask by
    // themselves.
    let store = server.builder().wait_for_batches(60 * SECOND);
    let store = store.clock_for_tests(clock.clone());
    limiter_over(store.connect().await.unwrap(), policies)
}

fn limiter_over(store: RedisStore, policies: Vec<Policy>) -> Limiter {
    let builder = Limiter::builder(store, policies);
    // On a busy machine an answer may be late.
    builder.timeout(60 * SECOND).build().unwrap()
}

/// Asks a thousand times a second, for some seconds, and is denied each time.
pub(crate) async fn attack(server: &Server, clock: &ManualClock, ask: impl AsyncFn() -> bool) {
    while ask().await {}
    for second in 0..3 {
        let before = server.calls("evalsha");
        for _ in 0..1_000 {
            clock.advance(Duration::from_millis(1));
            assert!(!ask().await);
        }
        let calls = server.calls("evalsha") - before;
        assert!(calls < 10, "second {second}: {calls} commands");
        assert!(calls > 0, "a reset elsewhere would not be seen");
    }
}

#[tokio::test]
async fn an_attack_by_one_subject_costs_ten_commands_a_second() {
    let server = Server::start();
    for (name, limit) in limits::in_time(10, DAY) {
        let clock = ManualClock::new();
        let limiter = limiter(&server, &clock, vec![Policy::new(name, limit)]).await;
        let ask = async || limiter.check(name, "eve").await.unwrap().is_allowed();
        attack(&server, &clock, ask).await;
    }
}

/// Otherwise all that shared that trip would ask once more.
#[tokio::test]
async fn a_denial_on_the_trip_of_the_last_permit_is_remembered() {
    let server = Server::start();
    for (name, limit) in limits::in_time(10, DAY) {
        let limiter = limiter(&server, &ManualClock::new(), vec![Policy::new(name, limit)]).await;
        let all_ask = async || {
            let asked = join_all((0..40).map(|_| limiter.check(name, "eve"))).await;
            let decisions = asked.into_iter().map(Result::unwrap);
            decisions.filter(|decision| decision.is_allowed()).count()
        };
        assert_eq!(all_ask().await, 10, "{name}");
        let before = server.calls("evalsha");
        assert_eq!(all_ask().await, 0, "{name}");
        assert_eq!(server.calls("evalsha") - before, 0, "{name}");
    }
}

#[tokio::test]
async fn through_the_layer_an_attack_costs_no_more() {
    let server = Server::start();
    for (name, limit) in limits::in_time(10, DAY) {
        let clock = ManualClock::new();
        let policy = Policy::new(name, limit).by(Header::new("x-user"));
        let limiter = limiter(&server, &clock, vec![policy]).await;
        let layer = RateLimitLayer::new(limiter).wrap_body();
        let inner = service_fn(async |_| Ok::<_, Infallible>(Response::new(())));
        let service = layer.layer(inner);
        let ask = async || {
            let request = Request::builder().header("x-user", "eve").body(());
            let response = service.clone().oneshot(request.unwrap()).await;
            let status = response.unwrap().status();
            assert!(status == 200 || status == 429, "{name}: {status}");
            status == 200
        };
        attack(&server, &clock, ask).await;
    }
}

/// The operator's numbers agree with the server's.
#[cfg(feature = "metrics")]
#[tokio::test]
async fn the_metrics_tell_how_many_questions_were_saved() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let metrics = metrics::with_local_recorder(&recorder, Metrics::new);
    // Each series is made on its first count, for the recorder of the thread.
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let (server, clock) = (Server::start(), ManualClock::new());
    let store = server.builder().clock_for_tests(clock.clone());
    let store = store.connect().await.unwrap();
    let connected = server.calls("evalsha");
    let policy = Policy::new("api", Limit::gcra(10, DAY));
    let builder = Limiter::builder(store.clone(), [policy]).observe(metrics);
    let limiter = builder.timeout(60 * SECOND).build().unwrap();
    let ask = async || limiter.check("api", "eve").await.unwrap().is_allowed();
    attack(&server, &clock, ask).await;

    let scrape = Scrape::parse(&recorder.handle().render());
    let count = |result| {
        let labels = [("policy", "api"), ("result", result)];
        scrape
            .value("tower_throttle_decisions_total", &labels)
            .unwrap()
    };
    let hits = store.deny_cache_hits();
    assert_eq!(count("denied_from_memory"), hits as f64);
    assert!(hits > 2_900, "{hits}");
    let by_server = count("allowed") + count("near_limit") + count("denied");
    assert_eq!(by_server, (server.calls("evalsha") - connected) as f64);
}

/// A subject denied by one policy cannot cause load by varying what other policies count.
#[tokio::test]
async fn an_attack_that_changes_another_subject_costs_no_more() {
    let server = Server::start();
    let clock = ManualClock::new();
    let store = server.builder().clock_for_tests(clock.clone());
    let store = store.connect().await.unwrap();
    // A connection tries scripts out before it is used.
    let connected = server.calls("evalsha");
    let algorithm = |limit| Algorithm::try_from(&limit).unwrap();
    let address = algorithm(Limit::gcra(10, HOUR));
    let name = algorithm(Limit::sliding_log(10, HOUR));
    let take = Action::acquire(1);
    let mut calls = 0;
    for request in 0..2_000 {
        if request == 1_000 {
            calls = server.calls("evalsha");
        }
        clock.advance(Duration::from_millis(1));
        let user = format!("made up {request}");
        let asked = [
            ("address", address, "eve", take),
            ("name", name, &user, take),
        ];
        let decisions = answer(ask(&store, &asked)).await;
        assert_eq!(decisions.all_allow(), request < 10);
        if request >= 10 {
            assert_eq!(decisions.denied_by(), Some(0));
        }
    }
    let all_calls = server.calls("evalsha");
    assert!(all_calls - calls < 10, "{} in a second", all_calls - calls);
    assert_eq!(store.deny_cache_hits(), 2_000 - (all_calls - connected));
}

/// Nor by a cost that another policy never has, whatever subject it names.
#[tokio::test]
async fn an_attack_with_a_cost_another_policy_lacks_costs_no_more() {
    let server = Server::start();
    let algorithm = |limit| Algorithm::try_from(&limit).unwrap();
    let address = algorithm(Limit::gcra(1, HOUR));
    for limit in [Limit::sliding_log(10, HOUR), Limit::concurrency(10)] {
        let other = algorithm(limit);
        let clock = ManualClock::new();
        let store = server.builder().clock_for_tests(clock.clone());
        let store = store.connect().await.unwrap();
        let requests = AtomicU64::new(0);
        let eve = format!("eve {limit:?}");
        let both = async || {
            let request = requests.fetch_add(1, Ordering::SeqCst);
            let cost = if request == 0 { 1 } else { 11 };
            let user = format!("made up {request}");
            let asked = [
                ("address", address, &*eve, Action::acquire(1)),
                ("other", other, &*user, Action::acquire(cost)),
            ];
            answer(ask(&store, &asked)).await.all_allow()
        };
        attack(&server, &clock, both).await;
    }
}

/// A banned subject cannot cause load by varying the cost, with one rate or two.
#[tokio::test]
async fn an_attack_with_changing_costs_costs_no_more_under_a_ban() {
    let server = Server::start();
    let penalty = Penalty::after(1, MINUTE, HOUR);
    let two_rates = Limit::sliding_window(1_000, DAY).and(2_000, 2 * DAY);
    let limits = limits::in_time(1_000, DAY)
        .into_iter()
        .chain([("two_rates", two_rates)]);
    for (name, limit) in limits {
        for costs in [2, 3, 4, 5, 1_000] {
            let clock = ManualClock::new();
            let policy = Policy::new(name, limit).penalty(penalty);
            let limiter = limiter(&server, &clock, vec![policy]).await;
            let key = format!("eve {costs}");
            let all = limiter.check_cost(name, &key, 1_000).await.unwrap();
            assert!(all.is_allowed());
            let requests = AtomicU64::new(0);
            let ask = async || {
                let cost = 1 + requests.fetch_add(1, Ordering::SeqCst) % costs;
                let decision = limiter.check_cost(name, &key, cost).await.unwrap();
                decision.is_allowed()
            };
            attack(&server, &clock, ask).await;
        }
    }
}

/// By a limit whose denials hold for one cost at a time, alone or beside others.
#[tokio::test]
async fn an_attack_with_changing_costs_costs_no_more_without_a_ban() {
    const COSTS: [&[u64]; 2] = [
        &[10, 9, 8, 7, 6, 5],
        &[4, 1, 2, 11, 3, 50, 5, 6, 1_000, 7, 8, 9, 10],
    ];
    let server = Server::start();
    let sliding = limits::in_time(10, DAY).into_iter();
    for (name, limit) in sliding.filter(|(name, _)| name.starts_with("sliding")) {
        let [policy, other] = [("api", limit), ("other", limit.and(20, 2 * DAY))]
            .map(|(name, limit)| Policy::new(name, limit).by(Header::new("x-user")))
            .map(|policy| policy.cost_by(HeaderCost::new("x-cost")));
        let shadow = |policy: &Policy| policy.clone().mode(Mode::Shadow);
        let group = |policy: &Policy| policy.clone().group("group");
        let mut sets = vec![
            vec![policy.clone()],
            vec![other.clone()],
            vec![policy.clone(), other.clone()],
            vec![policy.clone(), shadow(&other)],
            vec![shadow(&policy), shadow(&other)],
        ];
        // A log shares no key with others.
        if name != "sliding_log" {
            sets.push(vec![group(&policy), group(&other)]);
        }
        for (which, policies) in sets.into_iter().enumerate() {
            for costs in COSTS {
                let clock = ManualClock::new();
                let limiter = limiter(&server, &clock, policies.clone()).await;
                let user = format!("{name} {which} {}", costs.len());
                attack_by_costs(&server, &clock, limiter, &user, costs).await;
            }
        }
    }
}

/// Uses up ten permits, and then asks for each of these costs in turn.
async fn attack_by_costs(
    server: &Server,
    clock: &ManualClock,
    limiter: Limiter,
    user: &str,
    costs: &[u64],
) {
    let is_in_shadow = limiter.summary("api").or(limiter.summary("other"));
    let is_in_shadow = is_in_shadow.unwrap().mode == Mode::Shadow;
    let service = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter).wrap_body().layer(service);
    let request = async |cost: u64| {
        let request = Request::builder().header("x-user", user);
        let request = request.header("x-cost", cost).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap().status()
    };
    for _ in 0..10 {
        assert_eq!(request(1).await, 200);
    }
    // Each cost below the known ones is learned once, and so are the waits of the first larger
    // ones.
    for &cost in costs.iter().chain(costs).chain(costs) {
        request(cost).await;
    }
    let requests = AtomicU64::new(0);
    let ask = async || {
        let turn = requests.fetch_add(1, Ordering::SeqCst) as usize;
        // If all policies are in shadow, requests are let in, but the store is asked no more often.
        request(costs[turn % costs.len()]).await == 200 && !is_in_shadow
    };
    attack(server, clock, ask).await;
}

/// Keeps a place, asks for another a thousand times in a second, and is denied each time. Returns
/// what that costs Redis.
async fn attack_on_a_place<S, B>(
    server: &Server,
    clock: &ManualClock,
    user: &str,
    service: S,
) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone,
{
    let request = async || {
        let request = Request::builder().header("x-user", user).body(());
        let answered = service.clone().oneshot(request.unwrap()).await;
        answered.unwrap()
    };
    let kept = request().await;
    assert_eq!(kept.status(), 200, "{user}");
    for _ in 0..20 {
        assert_eq!(request().await.status(), 429, "{user}");
    }
    let before = server.calls("evalsha");
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(1));
        assert_eq!(request().await.status(), 429, "{user}");
    }
    server.calls("evalsha") - before
}

/// A place may become free at any moment, so nothing is remembered. What denies charges no other
/// policy of the same request.
#[tokio::test]
async fn an_attack_on_a_place_costs_a_command_unless_banned() {
    let (server, clock) = (Server::start(), ManualClock::new());
    let places = || Policy::new("places", Limit::concurrency(1).lease(HOUR));
    let places = || places().by(Header::new("x-user"));
    let rate = || Policy::new("rate", Limit::gcra(10, DAY)).by(Header::new("x-user"));
    let banned = || places().penalty(Penalty::after(10, MINUTE, HOUR));
    let layer =
        async |policies| RateLimitLayer::new(limiter(&server, &clock, policies).await).wrap_body();
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));

    let alone = layer(vec![places()]).await.layer(inner);
    let beside = layer(vec![rate(), places()]).await.layer(inner);
    for (user, service) in [("alone", alone), ("beside", beside)] {
        let calls = attack_on_a_place(&server, &clock, user, service).await;
        assert_eq!(calls, 1_000, "{user}");
    }
    let banned = layer(vec![banned()]).await.layer(inner);
    let calls = attack_on_a_place(&server, &clock, "banned", banned).await;
    assert!(calls < 10, "banned: {calls}");
    let outside = layer(vec![rate()]).await;
    let outside = outside.layer(layer(vec![places()]).await.layer(inner));
    let calls = attack_on_a_place(&server, &clock, "outside", outside).await;
    assert!(calls < 10, "outside: {calls}");
}

/// Names whose hashes begin and end alike. Anybody can find them.
fn names_alike(count: usize) -> Vec<String> {
    let ends = |name: &String| {
        let hash = Subject::from(&Key::from(name)).to_u128();
        (hash >> 122, hash & 0xff)
    };
    let names = (0..).map(|number| format!("user {number}"));
    let alike = names.filter(|name| ends(name) == (0, 0));
    alike.take(count).collect()
}

/// Subjects that a client has chosen so that there is no room for all of them in one place.
#[tokio::test]
async fn an_attack_by_subjects_whose_hashes_are_alike_costs_no_more() {
    const NAMES: usize = 6;
    let (server, clock) = (Server::start(), ManualClock::new());
    let limiter = limiter(
        &server,
        &clock,
        vec![Policy::new("api", Limit::gcra(1, DAY))],
    )
    .await;
    let names = names_alike(NAMES);
    let turn = AtomicU64::new(0);
    let ask = async || {
        let turn = turn.fetch_add(1, Ordering::Relaxed) as usize;
        let decision = limiter.check("api", &names[turn % NAMES]).await;
        decision.unwrap().is_allowed()
    };
    for _ in 0..NAMES {
        assert!(ask().await);
    }
    let before = server.calls("evalsha");
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(1));
        assert!(!ask().await);
    }
    let calls = server.calls("evalsha") - before;
    assert!(calls < 10 * NAMES as u64, "{calls} commands");
}

#[tokio::test]
async fn without_the_deny_cache_every_question_is_asked() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let limiter = limiter_over(store.clone(), vec![Policy::new("api", Limit::gcra(1, DAY))]);
    let _ = limiter.check("api", "alice").await.unwrap();
    let before = server.calls("evalsha");
    for _ in 0..10 {
        assert!(!limiter.check("api", "alice").await.unwrap().is_allowed());
    }
    assert_eq!(server.calls("evalsha") - before, 10);
    assert_eq!(store.deny_cache_hits(), 0);
}

#[tokio::test]
async fn a_reset_elsewhere_is_seen_after_the_most_age() {
    let server = Server::start();
    let clock = ManualClock::new();
    let policies = || vec![Policy::new("api", Limit::gcra(1, DAY))];
    let here = limiter(&server, &clock, policies()).await;
    let elsewhere = limiter(&server, &clock, policies()).await;
    assert!(here.check("api", "alice").await.unwrap().is_allowed());
    assert!(!here.check("api", "alice").await.unwrap().is_allowed());
    let _ = elsewhere.reset("api", "alice").await.unwrap();
    clock.advance(SECOND - MICROSECOND);
    // Whether it was seen earlier depends on how often the subject asks.
    let _ = here.check("api", "bob").await.unwrap();
    clock.advance(MICROSECOND);
    assert!(here.check("api", "alice").await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_place_that_becomes_free_is_granted_at_once() {
    let server = Server::start();
    let policies = vec![Policy::new("exports", Limit::concurrency(1))];
    let limiter = limiter(&server, &ManualClock::new(), policies).await;
    for _ in 0..20 {
        let held = limiter.admit("exports", "alice").await;
        assert!(held.is_ok());
        assert!(limiter.admit("exports", "alice").await.is_err());
        drop(held);
        // The release is a task of its own.
        until("the place", async || {
            limiter.peek("exports", "alice").await.unwrap().remaining() > 0
        })
        .await;
    }
}
