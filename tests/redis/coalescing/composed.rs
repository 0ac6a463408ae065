//! Limits whose takes are decided by the composed script share trips, too.

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::{Acquire, Action, Algorithm, Ask, State, Wait, decide};
use tower_throttle::{
    Clock as _, Decision, HOUR, Limit, Micros, Outcome, SECOND, StoreErrorKind, per_second,
};

use super::{SLOW, Stage, allowed};
use support::drawn::drawn;

/// One after the other, in Rust.
pub(super) fn ask(
    algorithm: &Algorithm,
    state: &mut State,
    now: Micros,
    action: Action,
) -> Decision {
    let reading = algorithm.read(state, now, &action);
    if reading.fits {
        algorithm.commit(state, now, &action, reading);
    }
    decide(
        std::iter::once(Ask::enforced(algorithm, &action)),
        &[reading],
    )[0]
}

pub(super) fn limits() -> impl Strategy<Value = Limit> {
    let limit = 1_u64..60;
    limit.prop_flat_map(|limit| {
        prop::sample::select(vec![
            Limit::fixed_window(limit, HOUR),
            Limit::fixed_window(limit, SECOND).aligned(),
            Limit::sliding_counter(limit, HOUR),
            Limit::sliding_window(limit, HOUR),
            Limit::sliding_log(limit, HOUR),
            // 2/7 of a second.
            Limit::gcra(7, 2 * SECOND).burst(limit),
            Limit::token_bucket(limit, per_second(3)),
            Limit::gcra(1, SECOND).burst(limit),
            Limit::leaky_bucket(limit, per_second(2)),
        ])
    })
}

/// A take for good, one that may be given back, and two that wait, the latter for limits that can
/// be waited for.
pub(super) fn takes() -> impl Strategy<Value = (u8, u64)> {
    (0..4_u8, prop_oneof![3 => Just(1), 1 => 1_u64..70])
}

pub(super) fn action(limit: Limit, (kind, cost): (u8, u64)) -> Action {
    let long = Micros::new(20_000_000);
    let can_wait = matches!(
        Algorithm::try_from(&limit).unwrap().name(),
        "gcra" | "token_bucket" | "leaky_bucket"
    );
    let wait = match kind {
        2 if can_wait => Wait::Strict(long),
        3 if can_wait => Wait::Burst(long),
        _ => Wait::None,
    };
    match kind {
        0 => Action::consume(cost),
        _ => Action::Acquire(Acquire::new(cost).with_wait(wait)),
    }
}

/// The state left by an order of takes at one instant that gives these answers.
pub(super) fn follow(
    algorithm: &Algorithm,
    mut state: State,
    now: Micros,
    takes: &[(Action, Decision)],
) -> Result<State, String> {
    let (mut let_in, denied): (Vec<_>, Vec<_>) = takes
        .iter()
        .partition(|(_, decision)| decision.is_allowed());
    // Where somebody waits nothing remains, and each makes it later.
    let_in.sort_by_key(|(_, decision)| {
        (
            std::cmp::Reverse(decision.remaining()),
            decision.reset_after(),
        )
    });
    let mut states = vec![state.clone()];
    for (action, decision) in let_in {
        let expected = ask(algorithm, &mut state, now, action);
        if expected != decision {
            return Err(format!("{action:?}: {decision:?}, expected {expected:?}"));
        }
        states.push(state.clone());
    }
    for (action, decision) in denied {
        let mut states = states.iter().cloned();
        if !states.any(|mut state| ask(algorithm, &mut state, now, action) == decision) {
            return Err(format!("{action:?} nowhere: {decision:?}"));
        }
    }
    Ok(state)
}

#[tokio::test]
async fn answers_of_other_algorithms_follow_some_order_in_few_scripts() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = stage.scripts();
    let (mut asked, mut denied) = (0, 0);
    let runs = || prop::collection::vec((takes(), 1..20_usize), 1..12);
    let takes = || {
        runs().prop_map(|runs| {
            let runs = runs.into_iter();
            runs.flat_map(|(take, times)| [take].repeat(times))
                .collect::<Vec<_>>()
        })
    };
    let histories = drawn((limits(), takes(), takes())).take(60);
    for (case, (limit, first, second)) in histories.enumerate() {
        let policy = format!("case-{case}");
        let algorithm = Algorithm::try_from(&limit).unwrap();
        let mut state = algorithm.untouched();
        for takes in [first, second] {
            let actions = takes.iter().map(|take| action(limit, *take));
            let answers = actions
                .clone()
                .map(|action| stage.asking(&policy, limit, action));
            let answers = join_all(answers).await.into_iter();
            let decisions: Vec<_> = answers.map(|answer| answer.unwrap()[0]).collect();
            asked += decisions.len();
            denied += decisions.len() - allowed(&decisions);
            let takes: Vec<_> = actions.zip(decisions).collect();
            let followed = follow(&algorithm, state, stage.clock.now(), &takes);
            state = followed.unwrap_or_else(|how| panic!("{limit:?} {takes:?}: {how}"));
            stage.clock.advance(SECOND / 3);
        }
        // The server's state is what that order has left.
        let left = stage.take(&policy, limit, 1).await.unwrap();
        assert_eq!(
            left,
            ask(
                &algorithm,
                &mut state,
                stage.clock.now(),
                Action::consume(1)
            ),
            "{limit:?}"
        );
    }
    assert!(denied > 100, "{denied} of {asked}");
    // Two for each round, or four if some are plain takes and some are not, the one at the end, and
    // those that the server did not know yet.
    let scripts = stage.scripts() - scripts;
    assert!(
        scripts <= 60 * 7 + 30,
        "{scripts} scripts for {asked} takes"
    );
}

/// However many wait, those who ask the same are a few steps.
#[tokio::test]
async fn a_hot_key_is_written_a_few_times_for_each_trip() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::sliding_log(200, HOUR);
    let writes = stage.server.calls("lpush");
    let decisions = stage.take_all("hot", limit, &[1; 400]).await;
    let left = decisions.iter().filter(|decision| decision.is_allowed());
    let mut left: Vec<_> = left.map(Decision::remaining).collect();
    left.sort_unstable();
    assert!(left.into_iter().eq(0..200));
    let writes = stage.server.calls("lpush") - writes;
    assert!(writes <= 12, "{writes} writes");
}

#[tokio::test]
async fn more_than_fit_into_one_trip_take_the_next() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::fixed_window(700, HOUR);
    let decisions = stage.take_all("many", limit, &[1; 1_000]).await;
    assert_eq!(allowed(&decisions), 700);
    let never = stage.take("many", limit, 701).await.unwrap();
    assert_eq!(never.outcome(), Outcome::NeverFits);
}

#[tokio::test]
async fn a_value_that_is_not_ours_fails_each_of_them() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::fixed_window(5, HOUR);
    stage
        .server
        .query::<()>(("SET", stage.key(limit, "api"), "hello", "PX", 3_600_000));
    let answers = join_all((0..20).map(|_| stage.take("api", limit, 1))).await;
    let kinds: Vec<_> = answers.into_iter().map(Result::err).collect();
    assert_eq!(kinds, [Some(StoreErrorKind::CorruptValue); 20]);
}
