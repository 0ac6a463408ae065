//! Every key expires: not before its state is untouched, and not much later.

use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;
use tower_throttle::store::PolicyId;
use tower_throttle::store::{Acquire, Action, Algorithm, LeaseId, Wait};
use tower_throttle::{Clock, DAY, HOUR, Limit, MINUTE, ManualClock, Micros, Penalty, SECOND};

use crate::keys::{LIMITS, RATE, limiter, policies};
use support::asking::{answer_of, check_of};
use support::bench::Bench;
use support::drawn::drawn;
use support::redis::Server;

fn pttl(server: &Server, key: &str) -> Duration {
    let millis: i64 = server.query(("PTTL", key));
    Duration::from_millis(millis.try_into().expect("the key has no TTL"))
}

/// When the only key expires.
pub(crate) fn expires_ms(server: &Server) -> u64 {
    let keys = server.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    key_expires_ms(server, &keys[0])
}

/// When a key expires, to a millisecond: the server's time and the expiry in one step. If the
/// server stands still between the two, the result is too late, so it is asked until it says the
/// same twice.
fn key_expires_ms(server: &Server, key: &str) -> u64 {
    let look = || {
        let script = "return {redis.call('PTTL', KEYS[1]), unpack(redis.call('TIME'))}";
        let (pttl, secs, us): (u64, u64, u64) = server.query(("EVAL", script, 1, key));
        secs * 1_000 + us / 1_000 + pttl
    };
    let mut told = look();
    loop {
        let again = look();
        if again == told {
            return told;
        }
        told = again;
    }
}

/// If it were too short it would forgive debt; if it were missing it would block a client for ever.
#[tokio::test]
async fn every_key_expires_within_a_second_of_being_untouched() {
    let server = Server::start();
    let limiter = limiter(&server, policies()).await;
    for (name, _, _) in LIMITS {
        for cost in [1, 2] {
            let decision = limiter.check_cost(name, "alice", cost).await.unwrap();
            assert!(decision.is_allowed());
            let keys: Vec<_> = server
                .keys()
                .into_iter()
                .filter(|key| key.ends_with(name))
                .collect();
            assert_eq!(keys.len(), 1, "one key for each policy and subject");
            let ttl = pttl(&server, &keys[0]);
            // Time passes between the three looks, so each bounds the other from one side.
            assert!(ttl <= decision.reset_after() + SECOND, "{name}: {ttl:?}");
            let left = limiter.peek(name, "alice").await.unwrap().reset_after();
            assert!(ttl >= left, "{name}: {ttl:?} {left:?}");
        }
    }
}

pub(crate) fn lease(number: u64) -> LeaseId {
    LeaseId::from(NonZeroU64::new(number).unwrap())
}

pub(crate) fn take(cost: u64, wait: Wait, number: u64) -> Action {
    Action::Acquire(Acquire::new(cost).with_wait(wait).with_lease(lease(number)))
}

/// Whatever it does: a charge beyond the limit, a reservation, a credit that shortens the debt.
#[tokio::test]
async fn every_action_that_writes_sets_the_expiry() {
    let paid = Wait::Burst(Micros::from(DAY));
    for (name, _, limit) in LIMITS {
        let bench = Bench::redis().await;
        let first = bench.act(limit, take(2, Wait::None, 1)).await.receipt();
        let actions = [
            take(1, paid, 2),
            Action::Charge(5),
            Action::Credit {
                permits: 2,
                taken_at: None,
            },
            Action::Credit {
                permits: 1,
                taken_at: first.taken_at(),
            },
            Action::Renew(lease(1)),
            Action::Release(lease(1)),
            take(1, paid, 3),
            Action::Charge(1),
        ];
        for action in actions {
            bench.advance(Duration::from_micros(1_234_567));
            let _ = bench.act(limit, action).await;
            let reset = bench.ask(limit, 0).await.reset_after();
            let until = bench.clock.now().saturating_add(reset.into()).ceil_millis();
            let expires = expires_ms(bench.server());
            // Only the millisecond of the expiry is known.
            assert!(expires + 1 >= until, "{name} {action:?}: {expires} {until}");
            assert!(
                expires <= until + 1_000,
                "{name} {action:?}: {expires} {until}"
            );
        }
    }
}

/// What is written for the same window, slice or second keeps the key's expiry, and nothing else
/// does.
#[tokio::test]
async fn a_key_expires_no_earlier_than_what_it_holds() {
    let limits: [fn(Duration) -> Limit; 6] = [
        |window| Limit::fixed_window(20, window),
        |window| Limit::fixed_window(20, window).aligned(),
        |window| Limit::sliding_window(20, window),
        |window| Limit::sliding_counter(20, window),
        // 1/7 of a second, and more; 1/3.
        |window| Limit::gcra(7, window / 10).burst(20),
        |window| Limit::gcra(3, window / 10).burst(20),
    ];
    let windows = [10, 15, 20].map(|seconds| seconds * SECOND);
    let pause = prop_oneof![2 => 0_u64..700_000, 1 => 0_u64..25_000_000];
    let action = prop_oneof![
        4 => (1_u64..4).prop_map(Action::consume),
        1 => (1_u64..4).prop_map(Action::Charge),
        1 => (1_u64..4).prop_map(|permits| Action::Credit { permits, taken_at: None }),
    ];
    // Mostly with the same window.
    let window = prop_oneof![8 => Just(0_usize), 1 => Just(1), 1 => Just(2)];
    let steps = prop::collection::vec((pause, action, window), 1..40);
    for (limit, history) in limits.iter().cycle().zip(drawn(steps).take(120)) {
        let bench = Bench::redis().await;
        for (step, (pause, action, window)) in history.iter().enumerate() {
            bench.advance(Duration::from_micros(*pause));
            let limit = limit(windows[*window]);
            let _ = bench.act(limit, *action).await;
            let reset = bench.ask(limit, 0).await.reset_after();
            let until = bench.clock.now().saturating_add(reset.into()).ceil_millis();
            if reset > Duration::ZERO {
                let expires = expires_ms(bench.server());
                let case = || format!("{limit:?} {:?}", &history[..=step]);
                assert!(expires + 1 >= until, "{expires} {until}: {}", case());
                // No such window lasts for longer, nor do two of the longest in a row.
                assert!(expires <= until + 40_000, "{expires} {until}: {}", case());
            }
        }
    }
}

/// The debt of those who were let in ahead of time lasts longer than the capacity takes.
#[tokio::test]
async fn a_reservation_is_kept_until_it_is_paid() {
    let bench = Bench::redis().await;
    let limit = Limit::token_bucket(1, tower_throttle::per_second(1));
    let wait = Wait::Burst(Micros::from(DAY));
    let _ = bench.act(limit, take(3_600, wait, 1)).await;
    assert!(expires_in(&bench, HOUR));
}

/// Whether the only key expires this far ahead, or at the end of that second. Only the millisecond
/// of the expiry is known.
pub(crate) fn expires_in(bench: &Bench, ahead: Duration) -> bool {
    is_in(bench, ahead, expires_ms(bench.server()))
}

/// The same for one key among others.
pub(crate) fn key_expires_in(bench: &Bench, key: &str, ahead: Duration) -> bool {
    is_in(bench, ahead, key_expires_ms(bench.server(), key))
}

fn is_in(bench: &Bench, ahead: Duration, expires_ms: u64) -> bool {
    let until = bench.clock.now().saturating_add(ahead.into()).ceil_millis();
    (until..=until + 1_000).contains(&(expires_ms + 1))
}

#[tokio::test]
async fn a_key_is_gone_once_everything_was_given_back() {
    for (name, _, limit) in LIMITS {
        let bench = Bench::redis().await;
        let _ = bench.act(limit, Action::Charge(3)).await;
        let back = |permits| Action::Credit {
            permits,
            taken_at: None,
        };
        let _ = bench.act(limit, back(2)).await;
        assert_eq!(bench.stored(), 1, "{name}");
        let _ = bench.act(limit, back(2)).await;
        assert_eq!(bench.stored(), 0, "{name}");
        let _ = bench.act(limit, Action::Charge(3)).await;
        let _ = bench.act(limit, Action::Reset).await;
        assert_eq!(bench.stored(), 0, "{name}");
    }
}

#[tokio::test]
async fn leases_expire_with_the_last_of_them() {
    let bench = Bench::redis().await;
    let limit = Limit::concurrency(9).lease(MINUTE);
    let _ = bench.act(limit, take(1, Wait::None, 1)).await;
    bench.advance(10 * SECOND);
    let _ = bench.act(limit, take(1, Wait::None, 2)).await;
    assert!(expires_in(&bench, MINUTE));
    let _ = bench.act(limit, Action::Release(lease(2))).await;
    assert!(expires_in(&bench, 50 * SECOND));
    let _ = bench.act(limit, Action::Renew(lease(1))).await;
    assert!(expires_in(&bench, MINUTE));
    let _ = bench.act(limit, Action::Release(lease(1))).await;
    assert_eq!(bench.stored(), 0);
}

/// During a deployment that shortens leases, there are leases of both lengths.
#[tokio::test]
async fn a_lease_that_is_renewed_leaves_the_others_their_time() {
    let bench = Bench::redis().await;
    let [long, short] = [MINUTE, 10 * SECOND].map(|life| Limit::concurrency(9).lease(life));
    let _ = bench.act(long, take(1, Wait::None, 1)).await;
    let _ = bench.act(short, take(1, Wait::None, 2)).await;
    let _ = bench.act(short, Action::Renew(lease(2))).await;
    assert!(expires_in(&bench, MINUTE));
}

/// It includes a subject's denials while they count, and its last ban while that is remembered.
#[tokio::test]
async fn a_penalty_expires_when_all_is_forgotten() {
    let bench = Bench::redis().await;
    let guard = Algorithm::try_from(&Limit::gcra(1, SECOND)).unwrap();
    let penalty = Penalty::after(2, MINUTE, HOUR).doubling_up_to(3 * HOUR);
    let penalty = Algorithm::try_from(&penalty).unwrap();
    // It never fits, and so leaves only the penalty.
    let denied = [guard, penalty].map(|algorithm| ("policy", algorithm, "key", Action::acquire(2)));
    bench.act_all(&denied).await;
    assert!(expires_in(&bench, MINUTE));
    bench.advance(10 * SECOND);
    bench.act_all(&denied).await;
    assert!(expires_in(&bench, 4 * HOUR));
    // Hammering is not counted.
    bench.advance(10 * SECOND);
    bench.act_all(&denied).await;
    assert!(expires_in(&bench, 4 * HOUR - 10 * SECOND));
    bench.advance(HOUR);
    bench.act_all(&denied).await;
    bench.act_all(&denied).await;
    assert!(expires_in(&bench, 5 * HOUR));
    // The denials before a ban are forgotten with it, however short it is.
    bench.advance(6 * HOUR);
    let brief = Algorithm::try_from(&Penalty::after(2, HOUR, MINUTE)).unwrap();
    let denied = [guard, brief].map(|algorithm| ("policy", algorithm, "key", Action::acquire(2)));
    bench.act_all(&denied).await;
    assert!(expires_in(&bench, HOUR));
    bench.act_all(&denied).await;
    assert!(expires_in(&bench, MINUTE), "no later ban is any longer");
}

/// A TTL in whole seconds would forgive debt, or block for longer than it says.
#[tokio::test]
async fn sliding_log_expires_to_the_millisecond() {
    let server = Server::start();
    let clock = ManualClock::new();
    let store = server.builder().clock_for_tests(clock.clone());
    let store = store.connect().await.unwrap();
    let window = Duration::from_micros(90_123_456);
    let (policy, limit) = (PolicyId::new("log"), Limit::sliding_log(2, window));
    let act = async |action| {
        let check = check_of(&policy, "alice", &limit, action);
        answer_of(&store, &[check]).await.unwrap()[0]
    };
    let assert_lapses_with = |newest: Micros| {
        let lapses = newest.saturating_add(Micros::from(window));
        let late_ms = expires_ms(&server).abs_diff(lapses.ceil_millis());
        assert!(late_ms <= 1, "{late_ms} ms");
    };
    let mut taken = Vec::new();
    for _ in 0..2 {
        clock.advance(Duration::from_micros(12_345));
        assert!(act(Action::acquire(1)).await.is_allowed());
        taken.push(clock.now());
        assert_lapses_with(clock.now());
    }
    let back = Action::Credit {
        permits: 1,
        taken_at: Some(taken[1]),
    };
    assert_eq!(act(back).await.remaining(), 1);
    assert_lapses_with(taken[0]);
}

/// A key that is incremented keeps its expiry until the end of a second. If it is paid in a later
/// one, the expiry is moved in the same step.
#[tokio::test]
async fn a_key_that_is_counted_up_never_expires_before_it_is_paid() {
    let bench = Bench::redis().await;
    // Three in a second, and one that is longer than a second.
    for (limit, cost) in [
        (Limit::gcra(4, SECOND).burst(1_000), 1),
        (Limit::gcra(4, SECOND).burst(1_000), 9),
        (
            Limit::token_bucket(1_000, tower_throttle::per_second(1_000)),
            1,
        ),
        (Limit::leaky_bucket(1_000, RATE).without_delay(), 1),
    ] {
        let _ = bench.act(limit, Action::Reset).await;
        let counted = bench.server().calls("incrby");
        for _ in 0..50 {
            let spent = bench.act(limit, Action::consume(cost)).await;
            assert!(spent.is_allowed());
            assert!(expires_in(&bench, spent.reset_after()), "{limit:?}");
            bench.advance(Duration::from_micros(567));
        }
        assert!(bench.server().calls("incrby") - counted >= 40, "{limit:?}");
        let _ = bench.act(limit, Action::Reset).await;
    }
}

/// A crash between a count and its `EXPIRE` would leave a key for ever. And a comparison of a
/// number with a string, which never holds, once skipped the branch that sets the expiry.
#[tokio::test]
async fn a_value_is_written_with_its_expiry_by_one_command_every_time() {
    let server = Server::start();
    let limiter = limiter(&server, policies()).await;
    let others = ["expire", "pexpire", "pexpireat", "incr", "incrby"];
    let at_start = others.map(|command| server.calls(command));
    // The others are incremented in place: see above.
    for name in ["queue", "windows", "aligned", "slices", "counter"] {
        for sets in 1..=3 {
            let before = server.calls("set");
            assert!(limiter.check(name, "alice").await.unwrap().is_allowed());
            assert_eq!(server.calls("set") - before, 1);
            let key = server.keys().into_iter().find(|key| key.ends_with(name));
            assert!(pttl(&server, &key.unwrap()) > SECOND, "{name} {sets}");
        }
    }
    assert_eq!(others.map(|command| server.calls(command)), at_start);
}
