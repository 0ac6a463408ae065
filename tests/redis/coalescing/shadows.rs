//! Takes in shadow share trips like enforced ones, and are answered like them.

use futures_util::future::join_all;
use tower_throttle::store::PolicyId;
use tower_throttle::{HOUR, Limit, MINUTE, Micros, SECOND, StoreErrorKind};

use super::model::{Answered, answer, check};
use super::{SLOW, Stage};

/// A take: under a policy of this name and limit; with its period if it is a further rate.
type Asked<'a> = (&'a str, Limit, Option<Micros>);

/// One for each kind of trip.
fn limits() -> [Limit; 8] {
    [
        Limit::gcra(1, HOUR).burst(30),
        Limit::gcra(7, HOUR).burst(30),
        Limit::token_bucket(30, tower_throttle::per_minute(1)),
        Limit::leaky_bucket(30, tower_throttle::per_minute(1)),
        Limit::fixed_window(30, HOUR),
        Limit::sliding_counter(30, HOUR),
        Limit::sliding_window(30, HOUR),
        Limit::sliding_log(30, HOUR),
    ]
}

/// All of one subject.
async fn take(stage: &Stage, asked: &[Asked<'_>], is_shadow: bool) -> Answered {
    let policies = asked.iter().map(|(name, _, further)| match further {
        Some(period) => PolicyId::new(name).with_extra_rate(*period),
        None => PolicyId::new(name),
    });
    let policies: Vec<_> = policies.collect();
    let checks = policies.iter().zip(asked);
    let checks = checks.map(|(policy, (_, limit, _))| check(policy, "alice", *limit, 1, is_shadow));
    answer(stage, &checks.collect::<Vec<_>>()).await
}

/// The answers when this many come together, in an order that does not matter.
async fn take_together(
    stage: &Stage,
    asked: &[Asked<'_>],
    is_shadow: bool,
    times: usize,
) -> Vec<String> {
    let takes = (0..times).map(|_| take(stage, asked, is_shadow));
    let answers = join_all(takes).await.into_iter();
    let mut answers: Vec<_> = answers
        .map(|answer| format!("{:?}", answer.unwrap()))
        .collect();
    answers.sort_unstable();
    answers
}

#[tokio::test]
async fn takes_of_one_key_are_answered_alike_in_few_scripts() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    for (position, limit) in limits().into_iter().enumerate() {
        let [enforced, in_shadow] =
            ["enforced", "in-shadow"].map(|name| format!("{name}-{position}"));
        let enforced = take_together(&stage, &[(&enforced, limit, None)], false, 50).await;
        let scripts = stage.scripts();
        let in_shadow = take_together(&stage, &[(&in_shadow, limit, None)], true, 50).await;
        assert_eq!(in_shadow, enforced);
        let scripts = stage.scripts() - scripts;
        assert!(scripts <= 5, "{limit:?}: {scripts} scripts");
        let kinds = |answer: &&String| answer.contains("outcome: Denied");
        assert_eq!(in_shadow.iter().filter(kinds).count(), 20, "{limit:?}");
    }
}

#[tokio::test]
async fn takes_of_many_keys_are_a_few_scripts() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = stage.scripts();
    let names: Vec<_> = (0..500).map(|name| format!("name-{name}")).collect();
    for left in [1, 0] {
        let limit = Limit::gcra(1, HOUR).burst(2);
        let takes = names.iter().map(|name| async {
            let answer = take(&stage, &[(name, limit, None)], true).await;
            assert_eq!(answer.unwrap()[0].remaining(), left);
        });
        join_all(takes).await;
    }
    let scripts = stage.scripts() - scripts;
    // Eight alone and four to six trips, twice at first, as the server does not know their scripts
    // yet.
    assert!(scripts <= 42, "{scripts} scripts");
}

/// All rates of a limit are taken or none, in shadow too.
#[tokio::test]
async fn rates_of_one_limit_are_answered_alike_in_few_scripts() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let minute = Some(Micros::from(MINUTE));
    for (enforced, in_shadow, bursts) in [("a", "b", [30, 40]), ("c", "d", [40, 30])] {
        let limits = [
            Limit::gcra(1, SECOND).burst(bursts[0]),
            Limit::gcra(1, MINUTE).burst(bursts[1]),
        ];
        let of = |name| [(name, limits[0], None), (name, limits[1], minute)];
        let enforced = take_together(&stage, &of(enforced), false, 50).await;
        let scripts = stage.scripts();
        let in_shadow = take_together(&stage, &of(in_shadow), true, 50).await;
        assert_eq!(in_shadow, enforced);
        let scripts = stage.scripts() - scripts;
        assert!(scripts <= 12, "{scripts} scripts");
    }
}

/// It costs nobody's answer, and no policy's failure mode is used.
#[tokio::test]
async fn a_corrupt_shadow_value_passes_all_and_is_not_changed() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    for limit in limits() {
        let key = stage.key(limit, "api");
        stage.server.query::<()>(("SET", &key, "hello"));
        let asked = [("api", limit, None)];
        let takes = (0..20).map(|_| take(&stage, &asked, true));
        for answer in join_all(takes).await {
            let failure = answer.unwrap()[0].store_failure();
            assert_eq!(failure, Some(StoreErrorKind::CorruptValue), "{limit:?}");
        }
        assert_eq!(stage.server.query::<String>(("GET", &key)), "hello");
        stage.server.query::<()>(("DEL", &key));
    }
}

/// Questions that need no write are answered.
#[tokio::test]
async fn on_a_server_out_of_memory_denials_stay_denials() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::gcra(1, HOUR).burst(1);
    let spent = [("one", limit, None), ("two", limit, None)];
    let partly_spent = [("one", limit, None), ("three", limit, None)];
    let spent_last = [("three", limit, None), ("one", limit, None)];
    assert!(take(&stage, &spent, true).await.unwrap()[1].is_allowed());
    stage.server.set_full(true);
    let takes = (0..40).map(|number| {
        let asked = match number {
            0..20 => &spent,
            20..30 => &partly_spent,
            _ => &spent_last,
        };
        take(&stage, asked, true)
    });
    for (position, answer) in join_all(takes).await.into_iter().enumerate() {
        match position {
            0..20 => assert!(
                answer
                    .unwrap()
                    .iter()
                    .all(|decision| !decision.is_allowed())
            ),
            _ => assert_eq!(answer, Err(StoreErrorKind::Full)),
        }
    }
}
