//! A limit that had further rates, or has them in some processes only: during a deployment, and as
//! long as the counts of those rates are kept. Its takes share trips like all others.

use futures_util::future::join_all;
use tower_throttle::store::PolicyId;
use tower_throttle::{Clock as _, DAY, HOUR, Limit, Micros, StoreErrorKind};

use super::model::{Answered, answer, check, is_allowed};
use super::several::{PLENTY, assert_expires_with, key, used_by};
use super::{SLOW, Stage};

/// For each client.
const HOURLY: Limit = Limit::gcra(1, HOUR).burst(3);
/// The rate that comes and goes.
const DAILY: Limit = Limit::gcra(1_000, DAY);

/// What a process asks about a client.
#[derive(Clone, Copy)]
struct Asks {
    hourly: Limit,
    /// Whether it knows that rate.
    daily: bool,
    /// Whether a policy for all clients decides the request, too.
    with_others: bool,
}

/// Of the one rate, under one policy and under two.
const OF_ONE_RATE: [Asks; 2] = [
    Asks {
        hourly: HOURLY,
        daily: false,
        with_others: false,
    },
    Asks {
        hourly: HOURLY,
        daily: false,
        with_others: true,
    },
];

async fn take(stage: &Stage, client: &str, asks: Asks, cost: u64) -> Answered {
    let policy = PolicyId::new(client);
    let further = policy.with_extra_rate(Micros::from(DAY));
    let all = PolicyId::new("all");
    let mut checks = vec![check(&policy, "alice", asks.hourly, cost, false)];
    if asks.daily {
        checks.push(check(&further, "alice", DAILY, cost, false));
    }
    if asks.with_others {
        checks.push(check(&all, "all", PLENTY, cost, false));
    }
    answer(stage, &checks).await
}

/// The answers to this many clients, when they come together.
async fn take_one_each(stage: &Stage, asks: Asks, clients: usize) -> Vec<Answered> {
    let names: Vec<_> = (0..clients)
        .map(|client| format!("client-{client}"))
        .collect();
    join_all(names.iter().map(|name| take(stage, name, asks, 1))).await
}

/// Under both rates, as long as the limit had both.
async fn take_by_both(stage: &Stage, asks: Asks, clients: usize) {
    let asks = Asks {
        daily: true,
        ..asks
    };
    for answer in take_one_each(stage, asks, clients).await {
        assert!(is_allowed(&answer.unwrap()));
    }
}

/// What is stored of both rates.
fn states(stage: &Stage, client: &str) -> [Option<u64>; 2] {
    let hourly = key(client, "alice");
    let daily = hourly.replace("gcra2", "gcra2+86400s");
    [hourly, daily].map(|key| stage.server.query(("GET", key)))
}

/// After this many permits of a day are spent.
fn daily_state(stage: &Stage, taken: u64) -> Option<u64> {
    Some(stage.clock.now().get() + taken * DAY.as_micros() as u64 / 1_000)
}

fn hourly_state(stage: &Stage, taken: u64) -> Option<u64> {
    Some(stage.clock.now().get() + taken * HOUR.as_micros() as u64)
}

#[tokio::test]
async fn a_hot_key_whose_limit_lost_a_rate_is_a_few_scripts() {
    for asks in OF_ONE_RATE {
        let stage = Stage::start().await;
        stage.proxy.set(SLOW);
        let asks = Asks {
            hourly: HOURLY.burst(700),
            ..asks
        };
        take_by_both(&stage, asks, 1).await;
        let (mut taken, scripts) = (1, stage.scripts());
        for _ in 0..4 {
            let takes = (0..200).map(|number| {
                let cost = [1, 1, 2, 3][number % 4];
                let take = take(&stage, "client-0", asks, cost);
                async move { (cost, take.await.unwrap()) }
            });
            let answers = join_all(takes).await.into_iter();
            let let_in = answers.filter(|(_, decisions)| is_allowed(decisions));
            taken += let_in.map(|(cost, _)| cost).sum::<u64>();
        }
        let scripts = stage.scripts() - scripts;
        assert!(scripts <= 50, "{scripts} scripts");
        // A cost of one always fills it up.
        assert_eq!(taken, 700);
        let key = key("client-0", "alice");
        let expected = [hourly_state(&stage, 700), daily_state(&stage, 1)];
        assert_eq!(states(&stage, "client-0"), expected);
        assert_expires_with(&stage, &key, hourly_state(&stage, 700).unwrap());
        assert_eq!(
            used_by(&stage, "all"),
            if asks.with_others { 700 } else { 0 }
        );
    }
}

#[tokio::test]
async fn five_hundred_keys_whose_limit_lost_a_rate_are_a_few_scripts() {
    for asks in OF_ONE_RATE {
        let stage = Stage::start().await;
        stage.proxy.set(SLOW);
        take_by_both(&stage, asks, 500).await;
        let scripts = stage.scripts();
        for round in 0..4 {
            for answer in take_one_each(&stage, asks, 500).await {
                let decisions = answer.unwrap();
                assert_eq!(is_allowed(&decisions), round < 2);
                assert_eq!(decisions[0].remaining(), if round == 0 { 1 } else { 0 });
            }
        }
        let scripts = stage.scripts() - scripts;
        // In each round eight alone, twice as their keys have another form, and up to six trips; in
        // the first all twice, as the server does not know their scripts yet.
        assert!(scripts <= 110, "{scripts} scripts");
        for client in 0..500 {
            let client = format!("client-{client}");
            let key = key(&client, "alice");
            let expected = [hourly_state(&stage, 3), daily_state(&stage, 1)];
            assert_eq!(states(&stage, &client), expected);
            assert_expires_with(&stage, &key, hourly_state(&stage, 3).unwrap());
        }
    }
}

/// Some under one policy, some under two, some under one rate, some under both: each permit is had
/// once.
#[tokio::test]
async fn a_rate_that_comes_and_goes_loses_and_doubles_no_permit() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let ways = [[false, false], [false, true], [true, false], [true, true]];
    let ways = ways.map(|[daily, with_others]| Asks {
        hourly: HOURLY.burst(300),
        daily,
        with_others,
    });
    let takes = (0..600).map(|number| take(&stage, "client", ways[number % 4], 1));
    let answers = join_all(takes).await.into_iter().map(Result::unwrap);
    let is_let_in: Vec<_> = answers.map(|decisions| is_allowed(&decisions)).collect();
    let let_in = |way: usize| {
        let of_way = is_let_in.iter().skip(way).step_by(4);
        of_way.filter(|is_let_in| **is_let_in).count() as u64
    };
    let [one, beside_all, both, both_beside_all] = [0, 1, 2, 3].map(let_in);
    assert_eq!(one + beside_all + both + both_beside_all, 300);
    let daily = daily_state(&stage, both + both_beside_all);
    assert_eq!(states(&stage, "client"), [hourly_state(&stage, 300), daily]);
    assert_eq!(used_by(&stage, "all"), beside_all + both_beside_all);
}

/// Questions that need no write are answered, as if nobody had asked who needs one.
#[tokio::test]
async fn on_a_full_server_denials_hold_and_nothing_is_acquired() {
    for asks in OF_ONE_RATE {
        let stage = Stage::start().await;
        stage.proxy.set(SLOW);
        take_by_both(&stage, asks, 40).await;
        for _ in 0..2 {
            take_one_each(&stage, asks, 20).await;
        }
        let all = used_by(&stage, "all");
        stage.server.set_full(true);
        let answers = take_one_each(&stage, asks, 40).await;
        for (position, answer) in answers.into_iter().enumerate() {
            match position {
                0..20 => assert!(!answer.unwrap()[0].is_allowed(), "{position}"),
                _ => assert_eq!(answer, Err(StoreErrorKind::Full), "{position}"),
            }
        }
        assert_eq!(used_by(&stage, "all"), all);
        stage.server.set_full(false);
        for answer in take_one_each(&stage, asks, 40).await.split_off(20) {
            assert_eq!(answer.unwrap()[0].remaining(), 1);
        }
    }
}
