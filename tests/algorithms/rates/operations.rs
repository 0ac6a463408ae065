//! Other actions on the permits of a limit of several rates.

use std::time::Duration;

use tower_throttle::{CheckError, HOUR, Limit, MINUTE, Mode, Outcome, Penalty, Policy, SECOND};

use super::{check, drain, with_rates};
use support::asked::decision;
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    a_charge_counts_under_every_rate_and_a_credit_gives_back
    a_reset_forgets_every_rate
    a_denial_under_any_rate_counts_for_a_penalty
    in_shadow_all_is_counted_as_it_would_be_otherwise
    a_caller_waits_until_it_fits_under_every_rate
}

async fn a_charge_counts_under_every_rate_and_a_credit_gives_back(bench: &Bench) {
    for (name, limit) in with_rates((5, SECOND), &[(20, HOUR)]) {
        let limiter = bench.limiter([Policy::new(name, limit)]);
        let charged = limiter.charge(name, "alice", 19).await.unwrap();
        assert_eq!((charged.limit(), charged.remaining()), (5, 0), "{name}");
        let credited = limiter.credit(name, "alice", 16).await.unwrap();
        assert_eq!(
            (credited.limit(), credited.remaining()),
            (5, 2),
            "{name}: 3 are taken"
        );
        let charged = limiter.charge(name, "alice", 16).await.unwrap();
        assert_eq!(charged.remaining(), 0, "{name}");
        bench.advance(HOUR - SECOND);
        // What exceeds the limit of the second keeps it for longer than that.
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert!(looked.reset_after() <= HOUR, "{name}: {looked:?}");
        bench.advance(2 * HOUR);
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_eq!((looked.limit(), looked.remaining()), (5, 5), "{name}");
    }
}

async fn a_reset_forgets_every_rate(bench: &Bench) {
    for (name, limit) in with_rates((2, SECOND), &[(3, HOUR)]) {
        bench.align(HOUR);
        let limiter = bench.limiter([Policy::new(name, limit)]);
        assert_eq!(drain(&limiter, name).await, 2, "{name}");
        bench.advance(2 * SECOND);
        assert_eq!(drain(&limiter, name).await, 1, "{name}");
        let reset = limiter.reset(name, "alice").await.unwrap();
        assert_eq!((reset.remaining(), reset.limit()), (2, 2), "{name}");
        assert_eq!(reset.reset_after(), Duration::ZERO, "{name}");
        assert_eq!(drain(&limiter, name).await, 2, "{name}");
    }
}

async fn a_denial_under_any_rate_counts_for_a_penalty(bench: &Bench) {
    for (name, limit) in with_rates((2, SECOND), &[(3, HOUR)]) {
        bench.align(HOUR);
        let penalty = Penalty::after(2, MINUTE, 2 * HOUR);
        let limiter = bench.limiter([Policy::new(name, limit).penalty(penalty)]);
        assert_eq!(
            drain(&limiter, name).await,
            2,
            "{name}: one denial by the first"
        );
        bench.advance(2 * SECOND);
        assert!(check(&limiter, name).await.is_allowed(), "{name}");
        let banned = check(&limiter, name).await;
        assert_eq!(banned.outcome(), Outcome::Banned, "{name}: by the other");
        assert_eq!(banned.retry_after(), Some(2 * HOUR), "{name}");
        assert_eq!(banned.remaining(), 0, "{name}");
        bench.advance(2 * HOUR - Duration::from_micros(1));
        assert_eq!(check(&limiter, name).await.outcome(), Outcome::Banned);
        bench.advance_us(1);
        assert_eq!(drain(&limiter, name).await, 2, "{name}");
    }
}

async fn in_shadow_all_is_counted_as_it_would_be_otherwise(bench: &Bench) {
    for (name, limit) in with_rates((2, SECOND), &[(3, 5 * SECOND), (7, MINUTE)]) {
        let limiter = bench.limiter([
            Policy::new("enforced", limit),
            Policy::new("shadow", limit).mode(Mode::Shadow),
        ]);
        let mut denied = 0;
        for step in 0..60_u64 {
            let cost = 1 + step % 2;
            let ask = |policy| limiter.check_cost(policy, name, cost);
            let enforced = ask("enforced").await.unwrap();
            let shadow = ask("shadow").await.unwrap();
            let expected = match enforced.outcome() {
                Outcome::Denied => Outcome::ShadowDenied,
                other => other,
            };
            assert_eq!(shadow.outcome(), expected, "{name}, step {step}");
            assert_eq!(
                shadow.remaining(),
                enforced.remaining(),
                "{name}, step {step}"
            );
            denied += u64::from(expected == Outcome::ShadowDenied);
            bench.advance(Duration::from_millis((step % 7) * 300));
        }
        assert!(denied > 10, "{name}");
    }
}

async fn a_caller_waits_until_it_fits_under_every_rate(bench: &Bench) {
    let brief = Duration::from_millis(20);
    let limit = Limit::gcra(1, brief).and(2, HOUR);
    let limiter = bench.limiter([Policy::new("partner", limit)]);
    let acquire = |timeout| limiter.try_acquire("partner", "us", 1, timeout);
    // The second takes what is not there yet under the first rate, and the third under both.
    for delay in [Duration::ZERO, Duration::ZERO, brief] {
        let got = acquire(HOUR).await;
        assert!(got.is_ok());
        let got = decision(&got);
        assert_eq!(got.delay(), delay);
    }
    let denied = acquire(MINUTE).await;
    assert!(denied.is_err());
    assert_eq!(decision(&denied).delay(), HOUR / 2, "under the other");
    // It has taken nothing: three have, which takes an hour and a half to come back.
    bench.advance(HOUR + HOUR / 2);
    assert_eq!(
        limiter.peek("partner", "us").await.unwrap().reset_after(),
        Duration::ZERO
    );

    for (name, limit) in with_rates((2, SECOND), &[(3, HOUR)]) {
        let limiter = bench.limiter([Policy::new(name, limit)]);
        let answer = limiter.try_acquire(name, "us", 1, SECOND).await;
        let can_wait = name == "gcra";
        let name = name.to_owned();
        match can_wait {
            true => assert!(answer.is_ok()),
            false => assert_eq!(
                answer.unwrap_err().error(),
                Some(&CheckError::CannotWait { name })
            ),
        }
    }
}
