//! Takes of many keys that are not plain, or only need a fraction of a microsecond, share a script,
//! too. Each is answered as if it came alone.

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::PolicyId;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{Clock as _, DAY, HOUR, Limit, SECOND, StoreErrorKind, per_minute};

use super::composed::{action, ask, follow, limits, takes};
use super::many_keys::{
    assert_denied_without_memory, assert_few_scripts_and_all_expire,
    assert_nothing_counted_without_a_master, assert_shared_to_the_last_permit, policies, take_each,
};
use super::model::{answer, check, replies_beside_a_corrupt_key};
use super::{SLOW, Stage, allowed, assert_of_both_kinds};
use support::drawn::drawn;
use support::limits::in_time;

/// One of each algorithm, with three permits at once.
fn limits_of_three() -> [Limit; 8] {
    [
        Limit::gcra(7, HOUR).burst(3),
        Limit::token_bucket(3, tower_throttle::per_hour(7)),
        Limit::leaky_bucket(3, per_minute(1)),
        Limit::leaky_bucket(3, tower_throttle::per_hour(7)).without_delay(),
        Limit::fixed_window(3, HOUR),
        Limit::sliding_log(3, HOUR),
        Limit::sliding_window(3, HOUR),
        Limit::sliding_counter(3, HOUR),
    ]
}

#[tokio::test]
async fn at_one_instant_answers_for_each_key_follow_some_order() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = stage.scripts();
    let (mut asked, mut denied) = (0, 0);
    // Half of them under the same limit, so that they share arguments, too.
    let of_each = (limits(), prop::collection::vec(limits(), 4));
    let of_each = of_each.prop_map(|(one, others)| [vec![one; 4], others].concat());
    let runs = prop::collection::vec((0..8_usize, takes(), 1..8_usize), 1..40);
    for (case, (limits, runs)) in drawn((of_each, runs)).take(60).enumerate() {
        let takes: Vec<_> = runs
            .into_iter()
            .flat_map(|(key, take, times)| [(key, action(limits[key], take))].repeat(times))
            .collect();
        let policies: Vec<_> = (0..8).map(|key| format!("case-{case}-{key}")).collect();
        let answers = takes
            .iter()
            .map(|(key, action)| stage.asking(&policies[*key], limits[*key], *action));
        let answers = join_all(answers).await.into_iter();
        let decisions: Vec<_> = answers.map(|answer| answer.unwrap()[0]).collect();
        let now = stage.clock.now();
        // The server's state is what that order has left.
        let left = policies.iter().zip(&limits);
        let left = join_all(left.map(|(policy, limit)| stage.take(policy, *limit, 1))).await;
        for (key, (limit, left)) in limits.iter().zip(left).enumerate() {
            let algorithm = Algorithm::try_from(limit).unwrap();
            let of_key = takes.iter().zip(&decisions);
            let of_key = of_key.filter(|((of, _), _)| *of == key);
            let of_key: Vec<_> = of_key
                .map(|((_, action), decision)| (*action, *decision))
                .collect();
            let state = follow(&algorithm, algorithm.untouched(), now, &of_key);
            let mut state = state.unwrap_or_else(|how| panic!("{limit:?} {of_key:?}: {how}"));
            let expected = ask(&algorithm, &mut state, now, Action::consume(1));
            assert_eq!(left, Ok(expected), "{limit:?}");
        }
        asked += decisions.len();
        denied += decisions.len() - allowed(&decisions);
        stage.clock.advance(SECOND / 7);
    }
    assert_of_both_kinds(asked, denied);
    // Two or three on average for each of eight kinds.
    let scripts = stage.scripts() - scripts;
    assert!(scripts <= 60 * 20, "{scripts} for {asked}");
}

#[tokio::test]
async fn two_hundred_keys_are_a_few_scripts_and_all_expire() {
    for limit in limits_of_three() {
        // Up to eight go alone, and the others in up to four batches.
        assert_few_scripts_and_all_expire(limit, 200, 5 * 12 + 4).await;
    }
}

/// They are one row of the question, followed by what the last of them is asked besides.
#[tokio::test]
async fn each_key_of_a_row_is_charged_its_own_cost() {
    for (_, limit) in in_time(100, HOUR) {
        let stage = Stage::start().await;
        stage.proxy.set(SLOW);
        let policies = policies(20);
        let of_each = policies.iter().enumerate().flat_map(|(position, policy)| {
            let more = (position % 2 == 1).then_some((policy, 2));
            [(policy, 1); 10].into_iter().chain(more)
        });
        let answers = of_each.map(|(policy, cost)| stage.take(policy, limit, cost));
        for answer in join_all(answers).await {
            assert!(answer.unwrap().is_allowed(), "{limit:?}");
        }
        let looks = policies.iter().map(|policy| stage.take(policy, limit, 0));
        for (position, look) in join_all(looks).await.into_iter().enumerate() {
            let left = 90 - 2 * (position as u64 % 2);
            assert_eq!(look.unwrap().remaining(), left, "{limit:?} {position}");
        }
    }
}

/// Of each pair of keys in a row, the one that is asked for more comes after one that fails.
#[tokio::test]
async fn a_key_behind_one_that_fails_is_asked_for_all_its_callers() {
    for limit in limits_of_three() {
        let stage = Stage::start().await;
        stage.proxy.set(SLOW);
        let policies = policies(20);
        for policy in policies.iter().step_by(2) {
            let key = stage.key(limit, policy);
            stage.server.query::<()>(("SET", key, "hello", "EX", 3_600));
        }
        let of_each = policies.iter().enumerate().flat_map(|(position, policy)| {
            let more = (position % 2 == 1).then_some((position, policy, 2));
            [(position, policy, 1)].into_iter().chain(more)
        });
        let takes = of_each.map(|(position, policy, cost)| {
            let taken = stage.take(policy, limit, cost);
            async move { (position, taken.await) }
        });
        for (position, taken) in join_all(takes).await {
            let expected = [Err(StoreErrorKind::CorruptValue), Ok(true)];
            let taken = taken.map(|decision| decision.is_allowed());
            assert_eq!(taken, expected[position % 2], "{limit:?} {position}");
        }
    }
}

#[tokio::test]
async fn a_corrupt_value_fails_alone_and_is_not_changed() {
    for limit in limits_of_three() {
        let stage = Stage::start().await;
        stage.proxy.set(SLOW);
        let policies = policies(40);
        let corrupt = stage.key(limit, &policies[20]);
        for (command, value) in [("SET", "hello"), ("SET", "7:x"), ("SADD", "hello")] {
            stage.server.query::<()>((command, &corrupt, value));
            let answers = take_each(&stage, limit, &policies);
            let case = format!("{limit:?}, {value}");
            replies_beside_a_corrupt_key(&stage, &corrupt, answers, &case).await;
            // A corrupt key need not expire.
            stage.server.query::<()>(("DEL", &corrupt));
        }
    }
}

/// Those before it in the trip are counted, so are those after it, and its own takes are let
/// through.
#[tokio::test]
async fn in_shadow_a_corrupt_value_passes_alone() {
    let limit = Limit::fixed_window(3, HOUR);
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let policies = policies(40);
    stage.server.query::<()>((
        "SET",
        stage.key(limit, &policies[20]),
        "hello",
        "PX",
        3_600_000,
    ));
    for left in [2, 1] {
        let takes = policies.iter().map(async |policy| {
            let policy = PolicyId::new(policy);
            answer(&stage, &[check(&policy, "alice", limit, 1, true)]).await
        });
        for (position, answer) in join_all(takes).await.into_iter().enumerate() {
            let decision = answer.unwrap()[0];
            match position {
                20 => assert_eq!(decision.store_failure(), Some(StoreErrorKind::CorruptValue)),
                _ => assert_eq!(decision.remaining(), left),
            }
        }
    }
}

#[tokio::test]
async fn on_a_server_out_of_memory_denials_stay_denials() {
    for limit in limits_of_three() {
        assert_denied_without_memory(limit).await;
    }
}

#[tokio::test]
async fn a_former_master_fails_them_all_and_counts_nothing() {
    assert_nothing_counted_without_a_master(Limit::fixed_window(3, HOUR)).await;
}

/// One key holds a state of each of some policies.
#[tokio::test]
async fn policies_of_a_group_share_a_key_across_questions() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::fixed_window(30, HOUR);
    let names = policies(10);
    let grouped = names
        .iter()
        .map(|name| PolicyId::new(name).in_group("client"));
    let grouped: Vec<_> = grouped.collect();
    for round in 1..=3 {
        let takes = [0, 1].map(async |_| {
            let takes = grouped.iter().map(async |policy| {
                let answer = answer(&stage, &[check(policy, "alice", limit, 1, false)]).await;
                answer.unwrap()[0].remaining()
            });
            join_all(takes).await
        });
        let left = join_all(takes).await.concat();
        assert_eq!(left.iter().max(), Some(&(30 - 2 * round + 1)));
        assert_eq!(left.iter().min(), Some(&(30 - 2 * round)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_several_threads_share_many_keys_to_the_last_permit() {
    assert_shared_to_the_last_permit(Limit::fixed_window(50, DAY)).await;
}
