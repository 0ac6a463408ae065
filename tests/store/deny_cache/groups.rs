//! Policies of a group, whose states share a Redis key: which denials are remembered, and what
//! reaches the server.

use std::convert::Infallible;

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::Action;
use tower_throttle::store::{Check, Decisions, PolicyId, Store};
use tower_throttle::{
    DAY, HOUR, Header, Limit, MINUTE, ManualClock, Policy, RateLimitLayer, RedisStore,
};

use super::attack::{attack, limiter};
use super::{MICROSECOND, facts_of};
use support::asking::check_of;
use support::bench::answer;
use support::redis::Server;

/// Plain takes have a script of their own.
const GROUPS: [[Limit; 3]; 3] = [
    [
        Limit::gcra(10, DAY),
        Limit::gcra(500, DAY),
        Limit::gcra(900, DAY),
    ],
    [
        Limit::gcra(900, DAY),
        Limit::fixed_window(500, DAY),
        Limit::gcra(10, DAY),
    ],
    [
        Limit::sliding_window(500, DAY),
        Limit::sliding_counter(10, DAY),
        Limit::fixed_window(900, DAY),
    ],
];

#[tokio::test]
async fn an_attack_on_a_denying_group_costs_ten_scripts_a_second() {
    let server = Server::start();
    for (number, limits) in GROUPS.into_iter().enumerate() {
        let clock = ManualClock::new();
        let policies = (0..).zip(limits).map(|(position, limit)| {
            let policy = Policy::new(format!("policy-{position}"), limit);
            policy
                .by(Header::new("x-user"))
                .group(format!("group-{number}"))
        });
        let limiter = limiter(&server, &clock, policies.collect()).await;
        let inner = service_fn(async |_| Ok::<_, Infallible>(Response::new(())));
        let service = RateLimitLayer::new(limiter).wrap_body().layer(inner);
        let ask = async || {
            let request = Request::builder().header("x-user", "eve").body(());
            let response = service.clone().oneshot(request.unwrap()).await;
            let status = response.unwrap().status();
            assert!(status == 200 || status == 429, "{status}");
            status == 200
        };
        attack(&server, &clock, ask).await;
    }
}

/// A group over a server, on a manual clock, with denials that are remembered for long.
struct Group {
    server: Server,
    clock: ManualClock,
    store: RedisStore,
}

impl Group {
    async fn new() -> Self {
        let (server, clock) = (Server::start(), ManualClock::new());
        let store = server.builder().clock_for_tests(clock.clone());
        let store = store.connect().await.unwrap().deny_cache_max_age(DAY);
        Self {
            server,
            clock,
            store,
        }
    }

    /// Asks the policies with these limits, which are named by their letters, about Eve.
    async fn ask(&self, asked: &[(&str, Limit)]) -> Decisions {
        self.ask_by(&self.store, asked).await
    }

    async fn ask_by(&self, store: &RedisStore, asked: &[(&str, Limit)]) -> Decisions {
        let ids = asked
            .iter()
            .map(|(name, _)| PolicyId::new(name).in_group("client"));
        let ids: Vec<_> = ids.collect();
        let each = asked.iter().zip(&ids);
        let checks = each.map(|((_, limit), policy)| check(policy, *limit));
        answer(store.ask(&checks.collect::<Vec<_>>())).await
    }

    /// How many commands this takes.
    async fn commands(&self, work: impl Future) -> u64 {
        let before = self.server.calls("evalsha");
        work.await;
        self.server.calls("evalsha") - before
    }
}

/// Takes one permit from Eve.
fn check(policy: &PolicyId, limit: Limit) -> Check<'_> {
    check_of(policy, "eve", &limit, Action::consume(1))
}

/// In each group one policy is used up; the others have much left, and never deny.
fn one_that_denies() -> impl Iterator<Item = [(&'static str, Limit); 3]> {
    let tight = [
        Limit::gcra(2, MINUTE),
        Limit::gcra(7, MINUTE).burst(2),
        Limit::fixed_window(2, MINUTE),
        Limit::sliding_window(2, MINUTE),
        Limit::sliding_counter(2, MINUTE),
    ];
    let wide = Limit::gcra(1_000, HOUR);
    tight.into_iter().flat_map(move |tight| {
        (0..3).map(move |position| {
            let mut limits = [wide; 3];
            limits[position] = tight;
            let [a, b, c] = limits;
            [("a", a), ("b", b), ("c", c)]
        })
    })
}

#[tokio::test]
async fn a_denial_in_a_group_is_answered_without_a_command() {
    for policies in one_that_denies() {
        let group = Group::new().await;
        while group.ask(&policies).await.all_allow() {}
        let asked = group.ask(&policies).await;
        let denying = asked.denied_by().unwrap();
        let first = asked[denying].retry_after().unwrap();
        let known = async {
            for _ in 0..100 {
                let known = group.ask(&policies).await;
                assert_eq!(known.denied_by(), Some(denying));
                assert!(known.iter().all(|decision| decision.is_remembered()));
            }
            // What the server would say about the policy that denies.
            group.clock.advance(first / 2);
            let known = group.ask(&policies).await;
            let uncached = group.store.clone().without_deny_cache();
            let by_server = group.ask_by(&uncached, &policies).await;
            assert_eq!(
                facts_of(&known[denying]),
                facts_of(&by_server[denying]),
                "{policies:?}"
            );
            let left = known[denying].retry_after().unwrap();
            group.clock.advance(left - MICROSECOND);
            let last = group.ask(&policies).await;
            assert_eq!(last[denying].retry_after(), Some(MICROSECOND));
        };
        assert_eq!(group.commands(known).await, 1, "{policies:?}");
        group.clock.advance(MICROSECOND);
        let over = async { assert!(group.ask(&policies).await.all_allow(), "{policies:?}") };
        assert_eq!(group.commands(over).await, 1, "{policies:?}");
    }
}

#[tokio::test]
async fn a_denial_of_one_in_a_group_denies_no_question_about_others() {
    for policies in one_that_denies() {
        let group = Group::new().await;
        while group.ask(&policies).await.all_allow() {}
        let denying = group.ask(&policies).await.denied_by().unwrap();
        let others: Vec<_> = (0..3)
            .filter(|at| *at != denying)
            .map(|at| policies[at])
            .collect();
        let asked = async {
            for _ in 0..5 {
                assert!(group.ask(&others).await.all_allow());
            }
        };
        assert_eq!(group.commands(asked).await, 5);
        let alone = group.ask(&policies[denying..=denying]);
        assert_eq!(group.commands(alone).await, 0, "it is known by itself, too");
    }
}

#[tokio::test]
async fn a_denial_does_not_hold_for_the_policy_in_another_group() {
    let group = Group::new().await;
    let policy = PolicyId::new("a");
    let others = ["client", "tenant"].map(|group| policy.clone().in_group(group));
    for policy in [policy].iter().chain(&others) {
        let ask = async || answer(group.store.ask(&[check(policy, Limit::gcra(1, DAY))])).await;
        assert!(ask().await.all_allow(), "{:?}", policy.group());
        assert!(!ask().await.all_allow(), "{:?}", policy.group());
        let known = async { assert!(ask().await[0].is_remembered()) };
        assert_eq!(group.commands(known).await, 0);
    }
}
