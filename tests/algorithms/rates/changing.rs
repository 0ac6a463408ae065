//! Rates that are added, removed and reordered, and limits that are chosen.

use std::collections::BTreeSet;

use tower_throttle::{DAY, HOUR, Limit, Limiter, MINUTE, Policy, SECOND};

use super::{check, drain, with_rates};
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    rates_come_and_go_and_what_was_used_stays_used
    a_rate_in_the_first_place_goes_by_what_was_used_there
    policies_and_rates_share_nothing
}

async fn rates_come_and_go_and_what_was_used_stays_used(bench: &Bench) {
    let rates = |others: &[_]| with_rates((10, MINUTE), others);
    let (hour, day) = ((11, HOUR), (12, DAY));
    for position in 0..rates(&[]).len() {
        bench.align(DAY);
        let name = rates(&[])[position].0;
        let limiter = bench.limiter([Policy::new(name, rates(&[])[position].1)]);
        let now_with = |others: &[_]| {
            let policy = Policy::new(name, rates(others)[position].1);
            limiter.replace([policy]).unwrap();
        };
        let takes = |permits| take(&limiter, name, permits);
        let left = takes(1).await;
        assert_eq!(left, 9, "{name}: of the minute");
        now_with(&[hour]);
        assert_eq!(takes(2).await, 7, "{name}: the first rate was there before");
        now_with(&[day, hour]);
        assert_eq!(takes(1).await, 6, "{name}");
        // 3 of the hour are used, 1 of the day.
        now_with(&[]);
        assert_eq!(takes(1).await, 5, "{name}");
        bench.advance(2 * MINUTE);
        now_with(&[hour]);
        assert_eq!(takes(0).await, 8, "{name}: of the hour");
        now_with(&[day, hour]);
        assert_eq!(takes(0).await, 8, "{name}: of the hour, in another place");
    }
}

/// As `docs/configuration.md` warns.
async fn a_rate_in_the_first_place_goes_by_what_was_used_there(bench: &Bench) {
    let hourly_later = Policy::new("gcra", Limit::gcra(10, SECOND).and(1_000, HOUR));
    let hourly_first = Policy::new("gcra", Limit::gcra(1_000, HOUR).and(10, SECOND));
    let limiter = bench.limiter([hourly_later.clone()]);
    let now_with = |policy: &Policy| {
        limiter.replace([policy.clone()]).unwrap();
    };
    let _ = limiter.charge("gcra", "alice", 1_000).await.unwrap();
    bench.advance(10 * SECOND);
    assert!(!check(&limiter, "gcra").await.is_allowed());
    now_with(&hourly_first);
    assert_eq!(take(&limiter, "gcra", 10).await, 0);
    for _ in 0..90 {
        bench.advance(SECOND);
        let _ = take(&limiter, "gcra", 10).await;
    }
    now_with(&hourly_later);
    let owes_the_hour = check(&limiter, "gcra").await;
    let waits = owes_the_hour.retry_after().unwrap();
    assert!(waits > 40 * MINUTE && waits < HOUR, "{waits:?}");
}

/// Takes this many. Returns how many are left.
async fn take(limiter: &Limiter, name: &str, permits: u64) -> u64 {
    let decision = limiter.check_cost(name, "alice", permits).await.unwrap();
    assert!(decision.is_allowed(), "{name}: {decision:?}");
    decision.remaining()
}

async fn policies_and_rates_share_nothing(bench: &Bench) {
    let names = ["api", "api+3600s", "+3600s", "gcra1+3600s:api"];
    let limit = Limit::gcra(2, SECOND).and(3, HOUR);
    let limiter = bench.limiter(names.map(|name| Policy::new(name, limit)));
    for name in names {
        assert_eq!(drain(&limiter, name).await, 2, "{name}");
    }
    bench.advance(2 * SECOND);
    for name in names {
        assert_eq!(drain(&limiter, name).await, 1, "{name}");
    }
    if let Some(server) = bench.server_if_any() {
        let subject = limiter.subject_of("alice");
        let keys_of =
            |name| ["", "+3600s"].map(|rate| format!("throttle:gcra2{rate}:{{{subject}}}:{name}"));
        let expected: BTreeSet<_> = names.into_iter().flat_map(keys_of).collect();
        let keys: BTreeSet<_> = server.keys().into_iter().collect();
        assert_eq!(keys, expected);
    }
    assert!(!check(&limiter, "api").await.is_allowed());
}
