//! What a question in a cluster does to one subject, and reports of it, when another subject is
//! denied.

use std::fmt::Debug;

use tower_throttle::store::{Acquire, Action, Algorithm, Wait};
use tower_throttle::store::{Check, Decisions, PolicyId};
use tower_throttle::{DAY, Decision, HOUR, Limit, Micros, Outcome, Penalty, Rate, RedisStore};

use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;
use support::until::until;

const ONE: &str = "a";
const OTHER: &str = "b";

/// An enforced check of this policy that takes this many permits.
fn check<'a>(
    policy: &'a PolicyId,
    decide: impl TryInto<Algorithm, Error: Debug>,
    subject: &str,
    cost: u64,
) -> Check<'a> {
    check_of(policy, subject, decide, Action::acquire(cost))
}

fn in_shadow(check: Check<'_>) -> Check<'_> {
    check.in_shadow(true)
}

fn looking(check: Check<'_>) -> Check<'_> {
    check.with_action(Action::look())
}

async fn store(cluster: &Cluster) -> RedisStore {
    let store = cluster.patient().connect().await.unwrap();
    store.without_deny_cache()
}

async fn ask(store: &RedisStore, checks: &[Check<'_>]) -> Decisions {
    pending_answer_of(store, checks).await.unwrap()
}

async fn left(store: &RedisStore, check: Check<'_>) -> u64 {
    ask(store, &[looking(check)]).await[0].remaining()
}

#[tokio::test]
async fn a_shadow_rate_keeps_its_permits_beside_a_denied_rate() {
    let cluster = Cluster::start();
    let store = store(&cluster).await;
    let [open, counted, full] = ["open", "counted", "full"].map(PolicyId::new);
    let hourly = counted.with_extra_rate(Micros::from(HOUR));
    let day = in_shadow(check(&counted, &Limit::fixed_window(10, DAY), ONE, 1));
    let hour = in_shadow(check(&hourly, &Limit::fixed_window(1, HOUR), ONE, 1));
    let checks = [
        check(&open, &Limit::gcra(100, DAY), ONE, 1),
        day,
        hour,
        check(&full, &Limit::gcra(1, DAY), OTHER, 1),
    ];
    assert!(ask(&store, &checks).await.all_allow());
    for _ in 0..3 {
        assert!(!ask(&store, &checks).await[3].is_allowed());
        assert_eq!(left(&store, day).await, 9);
        assert_eq!(left(&store, checks[0]).await, 99);
    }
}

#[tokio::test]
async fn a_shadow_that_fits_for_a_banned_subject_gives_nothing_back() {
    let cluster = Cluster::start();
    let store = store(&cluster).await;
    let [open, counted, full] = ["open", "counted", "full"].map(PolicyId::new);
    let day = in_shadow(check(&counted, &Limit::fixed_window(10, DAY), ONE, 1));
    let ban = in_shadow(check(&counted, &Penalty::after(1, HOUR, HOUR), ONE, 1));
    let too_much = day.with_action(Action::acquire(11));
    let checks = [
        check(&open, &Limit::gcra(100, DAY), ONE, 1),
        day,
        ban,
        check(&full, &Limit::gcra(1, DAY), OTHER, 1),
    ];
    assert!(ask(&store, &checks).await.all_allow());
    ask(&store, &[too_much, ban]).await;
    for _ in 0..3 {
        assert!(!ask(&store, &checks).await[3].is_allowed());
        assert_eq!(left(&store, day).await, 9);
    }
}

#[tokio::test]
async fn subjects_behind_one_that_denies_are_asked_without_taking() {
    let cluster = Cluster::start();
    let store = store(&cluster).await;
    let [full, fuller, small] = ["full", "fuller", "small"].map(PolicyId::new);
    let [open, counted] = ["open", "counted"].map(PolicyId::new);
    let fitting = [
        check(&full, &Limit::gcra(1, HOUR), ONE, 1),
        check(&fuller, &Limit::gcra(1, DAY), OTHER, 1),
        check(&small, &Limit::gcra(2, HOUR), "c", 2),
        check(&open, &Limit::gcra(100, DAY), "d", 1),
        in_shadow(check(&counted, &Limit::gcra(1, DAY), "d", 1)),
        in_shadow(check(&counted, &Limit::gcra(1, DAY), "e", 1)),
    ];
    assert!(ask(&store, &fitting).await.all_allow());
    let mut checks = fitting;
    checks[2].action = Action::acquire(3);
    let denied = ask(&store, &checks).await;
    let outcomes: Vec<_> = denied.iter().map(Decision::outcome).collect();
    let expected = [
        Outcome::Denied,
        Outcome::Denied,
        Outcome::NeverFits,
        Outcome::Allowed,
        Outcome::Denied,
        Outcome::Denied,
    ];
    assert_eq!(outcomes, expected);
    for longer in [1, 4] {
        assert!(denied[longer].retry_after() > Some(HOUR * 2), "{denied:?}");
    }
    assert_eq!(left(&store, checks[3]).await, 99);
}

#[tokio::test]
async fn penalties_count_each_denial_once_in_any_order() {
    let cluster = Cluster::start();
    let store = store(&cluster).await;
    let [open, full, counted] = ["open", "full", "counted"].map(PolicyId::new);
    let (many, one) = (Limit::gcra(100, DAY), Limit::gcra(1, DAY));
    let penalty = Penalty::after(10, DAY, DAY);
    let checks = [
        // Asked before the denial. The one in shadow has already counted its own.
        check(&open, &many, ONE, 1),
        check(&open, &penalty, ONE, 1),
        in_shadow(check(&counted, &one, ONE, 1)),
        in_shadow(check(&counted, &penalty, ONE, 1)),
        // Denies.
        check(&full, &one, OTHER, 1),
        check(&full, &penalty, OTHER, 1),
        // Behind it.
        check(&full, &one, "c", 1),
        check(&full, &penalty, "c", 1),
        check(&open, &many, "d", 1),
        check(&open, &penalty, "d", 1),
        in_shadow(check(&counted, &one, "d", 1)),
        in_shadow(check(&counted, &penalty, "d", 1)),
    ];
    assert!(ask(&store, &checks).await.all_allow());
    for denials in 1..4 {
        let denied = ask(&store, &checks).await;
        for (position, counted) in [(1, 0), (3, 1), (5, 1), (7, 1), (9, 0), (11, 1)] {
            let until_ban = 10 - counted * denials;
            assert_eq!(denied[position].remaining(), until_ban, "{position}");
            assert_eq!(
                left(&store, checks[position]).await,
                until_ban,
                "{position}"
            );
        }
    }
    for fits in [0, 8] {
        assert_eq!(left(&store, checks[fits]).await, 99);
    }
}

/// With a limit that may hold requests up: while it holds nobody up, others may have taken permits
/// meanwhile.
#[tokio::test]
async fn a_patient_policy_gives_back_as_long_as_nobody_waits() {
    let cluster = Cluster::without_full_coverage();
    let store = store(&cluster).await;
    let [(one, _), (other, others_master)] = cluster.apart(&store, &["a", "b", "c", "d"]).await;
    let [patient, full] = ["patient", "full"].map(PolicyId::new);
    let limit = Limit::gcra(100, DAY);
    let waiting = |subject| {
        check(&patient, &limit, subject, 1).with_action(Action::Acquire(
            Acquire::new(1)
                .with_wait(Wait::Strict(Micros::from(HOUR)))
                .consumed(),
        ))
    };
    let one_of_it = check(&full, &Limit::gcra(1, DAY), other, 1);
    assert!(ask(&store, &[one_of_it]).await.all_allow());
    for taken_by_others in 1..=3 {
        cluster.masters[others_master].signal("STOP");
        let both = [waiting(one), one_of_it];
        let mut denied = pending_answer_of(&store, &both);
        until("it is taken", async || {
            let _ = futures_util::poll!(&mut denied);
            left(&store, waiting(one)).await == 100 - taken_by_others
        })
        .await;
        assert!(ask(&store, &[waiting(one)]).await.all_allow());
        cluster.masters[others_master].signal("CONT");
        assert_eq!(denied.await.unwrap().denied_by(), Some(1));
        assert_eq!(left(&store, waiting(one)).await, 100 - taken_by_others);
    }
}

/// Those who wait were told when to go on. A newcomer would take what is given back, and go on
/// together with one of them.
#[tokio::test]
async fn a_policy_that_holds_up_gives_nothing_back_under_waiters() {
    let cluster = Cluster::without_full_coverage();
    let store = store(&cluster).await;
    let [(one, _), (other, others_master)] = cluster.apart(&store, &["a", "b", "c", "d"]).await;
    let [late, full] = ["late", "full"].map(PolicyId::new);
    let one_of_it = check(&full, &Limit::gcra(1, DAY), other, 1);
    assert!(ask(&store, &[one_of_it]).await.all_allow());
    let patient = Wait::Strict(Micros::from(2 * DAY));
    for (limit, wait) in [
        (Limit::gcra(1, DAY), patient),
        (Limit::leaky_bucket(3, Rate::new(1, DAY)), Wait::None),
    ] {
        let take = Acquire::new(1).with_wait(wait).consumed();
        let late = check(&late, &limit, one, 1).with_action(Action::Acquire(take));
        let owed = async || ask(&store, &[looking(late)]).await[0].reset_after();
        cluster.masters[others_master].signal("STOP");
        let mut denied = pending_answer_of(&store, &[late, one_of_it]);
        until("it is taken", async || {
            let _ = futures_util::poll!(&mut denied);
            !owed().await.is_zero()
        })
        .await;
        assert!(ask(&store, &[late]).await[0].delay() > HOUR, "{limit:?}");
        cluster.masters[others_master].signal("CONT");
        assert_eq!(denied.await.unwrap().denied_by(), Some(1));
        assert!(owed().await > DAY + HOUR, "{limit:?}");
    }
}
