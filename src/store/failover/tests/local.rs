//! The local share of each limit, on a stopped clock.

use super::*;
use crate::algorithm::LeaseId;
use crate::limit::per_minute;
use crate::store::failover::local::Local;
use crate::store::memory::MemoryStore;
use crate::time::ManualClock;

const QUARTER: FailureMode = FailureMode::Local { share: 0.25 };

/// A store that fails, with a local share on a manual clock. What both have taken can be told apart
/// by its origin only.
fn failing() -> (Arc<Scripted>, Failover, ManualClock) {
    let clock = ManualClock::at(NOW);
    let (store, mut failover) = over(Way::Fails(GONE));
    let local = MemoryStore::builder().clock(clock.clone()).build();
    count_in(&mut failover, Local::over(local));
    (store, failover, clock)
}

async fn back(store: &Scripted) {
    store.now(Way::Works);
    tokio::time::sleep(SECOND).await;
    store.asked();
}

/// What is left of the local share while the store is down.
async fn left(store: &Scripted, failover: &Failover, limit: Limit) -> u64 {
    store.now(Way::FailsAtOnce(GONE));
    let look = [check("api", limit, QUARTER).to(Action::look())];
    ask(failover, &look).await[0].remaining()
}

fn count_in(failover: &mut Failover, local: Local) {
    let mut fallback = Fallback::new(Arc::clone(&failover.inner));
    fallback.local = local;
    failover.fallback = ShardedArc::new(fallback);
}

#[tokio::test(start_paused = true)]
async fn each_algorithm_admits_its_share_and_the_decision_shows_it() {
    let lease = MINUTE;
    for (limit, quota, at_once) in [
        (Limit::gcra(20, MINUTE), 5, 5),
        (Limit::gcra(20, MINUTE).burst(8), 5, 2),
        (Limit::token_bucket(20, per_minute(40)), 10, 5),
        (Limit::leaky_bucket(20, per_minute(40)), 10, 5),
        (
            Limit::leaky_bucket(20, per_minute(40)).without_delay(),
            10,
            5,
        ),
        (Limit::fixed_window(20, MINUTE), 5, 5),
        (Limit::sliding_log(20, MINUTE), 5, 5),
        (Limit::sliding_window(20, MINUTE), 5, 5),
        (Limit::sliding_counter(20, MINUTE), 5, 5),
        (Limit::concurrency(20).lease(lease), 5, 5),
        // Never nothing at all.
        (Limit::fixed_window(3, MINUTE), 1, 1),
    ] {
        let (_, failover, clock) = failing();
        // What has lapsed is available again.
        for _ in 0..2 {
            for asked in 0..20 {
                let decision = ask(&failover, &[check("api", limit, QUARTER)]).await[0];
                assert_eq!(decision.is_allowed(), asked < at_once, "{limit:?}, {asked}");
                assert!(decision.is_local());
                assert!(decision.store_failure().is_some());
                assert_eq!(decision.limit(), quota, "{limit:?}");
            }
            clock.advance(HOUR);
        }
    }
}

/// An outage noticed by a late answer is decided like one that the breaker knows of.
#[tokio::test(start_paused = true)]
async fn the_share_is_one_whatever_the_reason() {
    let (store, failover, _) = failing();
    let mut admitted = 0;
    for way in [Way::Hangs, Way::AnswersTooLittle, Way::FailsAtOnce(GONE)] {
        store.now(way);
        for _ in 0..3 {
            let limit = Limit::fixed_window(20, MINUTE);
            let decisions = ask(&failover, &[check("api", limit, QUARTER)]).await;
            admitted += u64::from(decisions.all_allow());
        }
    }
    assert_eq!(admitted, 5);
}

#[tokio::test(start_paused = true)]
async fn local_shares_are_acquired_together_or_not_at_all() {
    let (store, failover, _) = failing();
    let wide = Limit::fixed_window(20, MINUTE);
    let narrow = Limit::fixed_window(8, MINUTE);
    let both = || {
        [
            check("api", wide, QUARTER),
            check("narrow", narrow, QUARTER),
        ]
    };
    for _ in 0..2 {
        assert!(ask(&failover, &both()).await.all_allow());
    }
    for _ in 0..3 {
        let denied = outcomes(&ask(&failover, &both()).await);
        assert_eq!(denied, [Outcome::Allowed, Outcome::Denied]);
    }
    assert_eq!(left(&store, &failover, wide).await, 3);
}

#[tokio::test(start_paused = true)]
async fn the_local_share_decides_beside_a_policy_that_lets_requests_pass() {
    let (_, failover, _) = failing();
    let limit = Limit::fixed_window(4, MINUTE);
    let mut open = check("open", limit, FailureMode::Allow);
    for expected in [Outcome::Allowed, Outcome::Denied] {
        let asked = [open, check("api", limit, QUARTER)];
        let decisions = ask(&failover, &asked).await;
        assert_eq!(outcomes(&decisions), [Outcome::FailedOpen(GONE), expected]);
        [open, _] = asked;
    }
}

#[tokio::test(start_paused = true)]
async fn local_shares_are_kept_beside_an_enforced_refusal() {
    let (store, failover, _) = failing();
    let limit = Limit::fixed_window(20, MINUTE);
    let question = |is_shadow| {
        let refusing = Asked {
            is_shadow,
            ..check("closed", limit, FailureMode::Deny)
        };
        [check("api", limit, QUARTER), refusing]
    };
    let refused = outcomes(&ask(&failover, &question(false)).await);
    assert_eq!(refused, [Outcome::Allowed, Outcome::FailedClosed(GONE)]);
    assert_eq!(left(&store, &failover, limit).await, 5);
    ask(&failover, &question(true)).await;
    assert_eq!(left(&store, &failover, limit).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_only_the_whole_limit_holds_is_refused_for_now() {
    let (_, failover, _) = failing();
    let limit = Limit::fixed_window(20, MINUTE);
    for (cost, expected) in [
        (5, Outcome::Allowed),
        (6, Outcome::FailedClosed(GONE)),
        (21, Outcome::NeverFits),
    ] {
        let asked = [check("api", limit, QUARTER).to(Action::acquire(cost))];
        assert_eq!(
            outcomes(&ask(&failover, &asked).await),
            [expected],
            "{cost}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn denials_of_the_share_bring_the_ban() {
    let (_, failover, _) = failing();
    let limit = Limit::fixed_window(4, MINUTE);
    let penalty = Penalty::after(2, MINUTE, HOUR);
    let mut bans = Vec::new();
    for _ in 0..4 {
        let guarded = check("api", limit, QUARTER);
        let behind = guarded.penalty(&penalty);
        let decisions = ask(&failover, &[guarded, behind]).await;
        bans.push(decisions[0].under(&decisions[1]).banned_for());
    }
    assert_eq!(bans, [None, None, Some(HOUR), Some(HOUR)]);
}

/// The quota was not exceeded: it cannot be checked.
#[tokio::test(start_paused = true)]
async fn a_cost_that_only_the_whole_limit_holds_brings_no_ban() {
    let (store, failover, _) = failing();
    let (limit, other) = (
        Limit::fixed_window(20, MINUTE),
        Limit::fixed_window(8, MINUTE),
    );
    let penalty = Penalty::after(1, MINUTE, HOUR);
    for (cost, expected) in [
        (6, Outcome::FailedClosed(GONE)),
        (6, Outcome::FailedClosed(GONE)),
        (5, Outcome::Allowed),
        (1, Outcome::Banned),
        (6, Outcome::Banned),
    ] {
        let guarded = check("api", limit, QUARTER).to(Action::acquire(cost));
        let behind = guarded.penalty(&penalty).to(Action::acquire(1));
        let asked = [guarded, behind, check("other", other, QUARTER)];
        let decisions = ask(&failover, &asked).await;
        let decision = decisions[0].under(&decisions[1]);
        assert_eq!(decision.outcome(), expected, "{cost}");
        assert_eq!(decision.store_failure(), Some(GONE), "{cost}");
        assert_eq!(decision.limit(), 5, "{cost}");
    }
    let look = [check("other", other, QUARTER).to(Action::look())];
    store.now(Way::FailsAtOnce(GONE));
    assert_eq!(ask(&failover, &look).await[0].remaining(), 1, "of 2");
}

/// In shadow, too: it would ban nobody if it were enforced.
#[tokio::test(start_paused = true)]
async fn a_cost_that_only_the_whole_limit_holds_brings_no_ban_in_shadow() {
    let (store, failover, _) = failing();
    let wide = Limit::fixed_window(20, MINUTE);
    let penalty = Penalty::after(1, MINUTE, HOUR);
    for (cost, expected) in [
        (6, Outcome::FailedOpen(GONE)),
        (5, Outcome::Allowed),
        (6, Outcome::FailedOpen(GONE)),
        (1, Outcome::Banned),
    ] {
        let guarded = Asked {
            is_shadow: true,
            ..check("api", wide, QUARTER).to(Action::acquire(cost))
        };
        let behind = guarded.penalty(&penalty).to(Action::acquire(1));
        let decisions = ask(&failover, &[guarded, behind, check("other", wide, QUARTER)]).await;
        let decision = decisions[0].under(&decisions[1]);
        assert_eq!(decision.outcome(), expected, "{cost}");
        assert_eq!(decisions[2].outcome(), Outcome::Allowed);
    }
    let look = [check("other", wide, QUARTER).to(Action::look())];
    store.now(Way::FailsAtOnce(GONE));
    assert_eq!(ask(&failover, &look).await[0].remaining(), 1, "of 5");
}

/// Rates of one policy are counted together or not at all.
#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_of_a_shadow_rate_uses_no_rate() {
    let (store, failover, _) = failing();
    let (narrow, wide) = (
        Limit::fixed_window(20, MINUTE),
        Limit::fixed_window(100, HOUR),
    );
    let rate = |limit, action| Asked {
        is_shadow: true,
        ..check("api", limit, QUARTER).to(action)
    };
    let further = |action| Asked {
        policy: PolicyId::new("api").with_extra_rate(HOUR.into()),
        ..rate(wide, action)
    };
    let take = Action::acquire(6);
    let decisions = ask(&failover, &[rate(narrow, take), further(take)]).await;
    let expected = [Outcome::FailedOpen(GONE), Outcome::Allowed];
    assert_eq!(outcomes(&decisions), expected);
    store.now(Way::FailsAtOnce(GONE));
    let looked = ask(&failover, &[further(Action::look())]).await;
    assert_eq!(looked[0].remaining(), 25);
}

#[tokio::test(start_paused = true)]
async fn a_subject_without_room_is_refused() {
    let clock = ManualClock::new();
    let (_, mut failover, _) = failing();
    let small = MemoryStore::builder().clock(clock).capacity(1).build();
    count_in(&mut failover, Local::over(small));
    let mut refused = 0;
    for number in 0..2_000 {
        let limit = Limit::fixed_window(1, HOUR);
        let decisions = ask(&failover, &[check(&number.to_string(), limit, QUARTER)]).await;
        let is_refused = matches!(decisions[0].outcome(), Outcome::FailedClosed(_));
        refused += u64::from(is_refused);
    }
    assert!(refused > 500, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn permits_are_given_back_where_they_were_acquired() {
    let limit = Limit::fixed_window(20, MINUTE);
    let (store, failover, _) = failing();
    let taken_here = ask(&failover, &[check("api", limit, QUARTER)]).await[0].receipt();
    back(&store).await;
    let taken_there = ask(&failover, &[check("api", limit, QUARTER)]).await[0].receipt();
    store.asked();
    for (receipt, left_here) in [(taken_there, 4), (taken_here, 5)] {
        for action in [
            Action::Refund {
                permits: 1,
                receipt,
            },
            Action::Cancel {
                permits: 1,
                receipt,
            },
        ] {
            let asked = [check("api", limit, QUARTER).to(action)];
            for way in [Way::Works, Way::FailsAtOnce(GONE)] {
                store.now(way);
                ask(&failover, &asked).await;
                let is_there = receipt == taken_there;
                let seen = if is_there { action } else { Action::look() };
                assert_eq!(store.asked(), [[seen]]);
                assert_eq!(left(&store, &failover, limit).await, left_here);
                store.asked();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_and_ended_here_and_there() {
    let limit = Limit::concurrency(8).lease(MINUTE);
    let (store, failover, clock) = failing();
    let lease = LeaseId::new();
    let take = Action::Acquire(crate::algorithm::Acquire {
        cost: 1,
        wait: crate::algorithm::Wait::None,
        lease: Some(lease),
        is_final: false,
        takes_fewer: false,
    });
    let places = |action| [check("api", limit, QUARTER).to(action)];
    assert!(ask(&failover, &places(take)).await.all_allow());
    for way in [Way::Works, Way::Fails(GONE)] {
        store.now(way);
        clock.advance(MINUTE / 2);
        store.asked();
        let renewed = ask(&failover, &places(Action::Renew(lease))).await;
        assert_eq!(store.asked(), [[Action::Renew(lease)]]);
        assert_eq!(
            renewed[0].store_failure().is_none(),
            matches!(way, Way::Works)
        );
        clock.advance(MINUTE * 3 / 4);
        assert_eq!(left(&store, &failover, limit).await, 1, "it lives");
        clock.advance(MINUTE / 8);
        let again = ask(&failover, &places(Action::Renew(lease))).await;
        assert!(again[0].is_local());
    }
    store.now(Way::Works);
    store.asked();
    ask(&failover, &places(Action::Release(lease))).await;
    assert_eq!(store.asked(), [[Action::Release(lease)]]);
    assert_eq!(left(&store, &failover, limit).await, 2, "it has ended");
}

#[tokio::test(start_paused = true)]
async fn a_subject_is_forgotten_here_and_there() {
    let limit = Limit::fixed_window(20, MINUTE);
    let (store, failover, _) = failing();
    for way in [Way::Works, Way::Fails(GONE)] {
        store.now(Way::FailsAtOnce(GONE));
        ask(&failover, &[check("api", limit, QUARTER)]).await;
        assert_eq!(left(&store, &failover, limit).await, 4);
        store.now(way);
        store.asked();
        ask(&failover, &[check("api", limit, QUARTER).to(Action::Reset)]).await;
        assert_eq!(store.asked(), [[Action::Reset]]);
        assert_eq!(left(&store, &failover, limit).await, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn charges_and_credits_without_a_receipt_go_where_questions_go() {
    let limit = Limit::fixed_window(20, MINUTE);
    let (store, failover, _) = failing();
    let credit = Action::Credit {
        permits: 1,
        taken_at: None,
    };
    for (action, left_here) in [(Action::Charge(3), 2), (credit, 3)] {
        store.now(Way::Works);
        ask(&failover, &[check("api", limit, QUARTER).to(action)]).await;
        store.now(Way::FailsAtOnce(GONE));
        let done = ask(&failover, &[check("api", limit, QUARTER).to(action)]).await;
        assert_eq!(done[0].remaining(), left_here);
        assert_eq!(left(&store, &failover, limit).await, left_here);
    }
}
