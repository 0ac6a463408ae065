//! The headers' promises hold in all states.

use std::time::Duration;

use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::http::headers::single_value::{DRAFT_6, Values, X_RATELIMIT};
use crate::limit::MOST_PERMITS;

fn limits() -> impl Strategy<Value = Limit> {
    let large = (0..50_u32, any::<u64>())
        .prop_map(|(bits, n): (u32, u64)| 1 + n % (1_u64 << bits).min(MOST_PERMITS));
    let permits = prop_oneof![1..200_u64, large];
    let us = prop_oneof![
        (1..400_u64).prop_map(|secs| secs * 1_000_000),
        1_000..3_000_000_000_u64,
        (1..=366_u64).prop_map(|days| days * 86_400_000_000),
    ];
    (0..5, permits, us, 1..300_u64).prop_map(|(which, permits, us, burst)| {
        let window = Duration::from_micros(us);
        match which {
            0 => Limit::gcra(permits.min(us.saturating_mul(1_000_000)), window)
                .burst(burst.min(100 * permits)),
            1 => Limit::fixed_window(permits, window),
            2 => Limit::sliding_window(permits, window),
            3 => Limit::sliding_counter(permits, window),
            _ => Limit::sliding_log(permits, window),
        }
    })
}

/// A policy's key: its limit, the costs asked for at the start, the cost asked for now, and how
/// long a denial of it bans.
type Asked = (Limit, Vec<u64>, u64, Option<u64>);

fn asked() -> impl Strategy<Value = Asked> {
    let ban = prop::option::weighted(0.2, 1..20_000_000_000_u64);
    let before = prop::collection::vec(0..300_u64, 0..6);
    (limits(), before, 0..300_u64, ban)
}

/// The key's history, and the decision on the cost asked for now.
fn decide((limit, before, cost, ban): Asked, after_us: u64) -> (History, Decision) {
    let mut history = History::of(limit);
    for cost in before {
        let _ = history.ask(0, cost);
    }
    let decision = history.ask(after_us, cost);
    match ban {
        Some(ban) if decision.retry_after().is_some() => (history, banned(decision, ban)),
        _ => (history, decision),
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// All headers after these decisions, and the values of draft 6.
fn all_headers(after_us: u64, each: &[(&str, Decision)]) -> (HeaderMap, Values) {
    let all = QuotaHeaders::DRAFT_11
        .and(QuotaHeaders::DRAFT_6)
        .and(QuotaHeaders::X_RATELIMIT_EPOCH);
    let mut response = Response::new(());
    fields_at(after_us, all, each).add_to(&mut response);
    let headers = response.into_parts().0.headers;
    let values = Values::read(&DRAFT_6, &headers).expect("numbers");
    (headers, values)
}

proptest! {
    #[test]
    fn remaining_over_time_never_promises_more_than_the_quota(
        asked in asked(),
        after_us in 0..200_000_000_u64,
    ) {
        let (mut history, decision) = decide(asked, after_us);
        let fields = lists(&[("p", decision)]);
        let [(_, q, w)] = items(&fields.policy, ["q", "w"])[..] else { panic!() };
        let [(_, r, t)] = items(&fields.quota, ["r", "t"])[..] else { panic!() };
        prop_assert!(w >= 1 && t >= 1 && r >= 0);
        // A fixed window tells the time to its end, however near that is; a client denied for a
        // high cost learns when that cost fits.
        if !decision.renews_whole && decision.retry_after().is_none() {
            prop_assert!(i128::from(r) * i128::from(w) <= i128::from(q) * i128::from(t));
        }
        if r == 0 && decision.banned_for().is_none() {
            // At the announced instant there are more permits.
            let renewed = history.ask(after_us + t.unsigned_abs() * 1_000_000, 0);
            prop_assert!(renewed.remaining() > 0);
        }
        if let Some(wait) = decision.retry_after() {
            let secs = retry_after_secs(&decision).unwrap();
            prop_assert_eq!(u128::from(secs), wait.as_micros().div_ceil(1_000_000).max(1));
            prop_assert!(i128::from(secs) >= i128::from(t));
        }
    }

    #[test]
    fn headers_of_one_value_tell_what_the_lists_tell_of_the_tightest_policy(
        each in prop::collection::vec(asked(), 1..=4),
        after_us in 0..200_000_000_u64,
    ) {
        let decisions = each.into_iter().map(|asked| decide(asked, after_us).1);
        let each: Vec<_> = NAMES.into_iter().zip(decisions).collect();
        let (headers, values) = all_headers(after_us, &each);
        let policies = items(&headers[POLICY], ["q", "w"]);
        let quotas = items(&headers[QUOTA], ["r", "t"]);
        prop_assert!(values.limit > 0 && values.remaining <= values.limit);

        // Of the policies that deny, the one with the longest wait; else any.
        let denies = |decision: &Decision| match decision.is_allowed() {
            true => Duration::ZERO,
            false => decision.retry_after().unwrap_or(Duration::MAX),
        };
        let longest = each.iter().map(|(_, decision)| denies(decision)).max().unwrap();
        let mut tightest = Vec::new();
        for ((_, decision), ((_, q, _), (_, r, _))) in each.iter().zip(policies.iter().zip(&quotas)) {
            if denies(decision) == longest {
                tightest.push((r.unsigned_abs(), q.unsigned_abs()));
            }
        }
        let (fewest, _) = *tightest.iter().min().unwrap();
        tightest.retain(|(r, _)| *r == fewest);
        let mut shown = tightest.iter().map(|(r, q)| (*r.min(q), *q));
        let is_shown = shown.any(|shown| shown == (values.remaining, values.limit));
        prop_assert!(is_shown, "{values:?} while {tightest:?} are the tightest");
    }

    #[test]
    fn by_the_reset_the_whole_quota_is_back_and_the_wait_over(
        asked in asked(),
        after_us in 0..200_000_000_u64,
    ) {
        let whole = History::of(asked.0).ask(0, 0).remaining();
        let (mut history, decision) = decide(asked, after_us);
        let (_, values) = all_headers(after_us, &[("p", decision)]);
        let reset = Duration::from_secs(values.reset);
        prop_assert!(decision.retry_after().unwrap_or_default() <= reset);
        let reset_us = values.reset * 1_000_000;
        prop_assert_eq!(history.ask(after_us + reset_us, 0).remaining(), whole);
    }

    #[test]
    fn the_reset_since_the_epoch_is_at_most_a_second_late_and_never_early(
        asked in asked(),
        after_us in 0..200_000_000_u64,
    ) {
        let (_, decision) = decide(asked, after_us);
        let (headers, values) = all_headers(after_us, &[("p", decision)]);
        let epoch = Values::read(&X_RATELIMIT, &headers).unwrap();
        prop_assert_eq!((epoch.limit, epoch.remaining), (values.limit, values.remaining));
        let reset = decision.reset_after().max(decision.retry_after().unwrap_or_default());
        let exact = START.to_duration() + Duration::from_micros(after_us) + reset;
        let late = Duration::from_secs(epoch.reset).checked_sub(exact);
        prop_assert!(late.is_some_and(|late| late < Duration::from_secs(1)), "{late:?}");
    }

    #[test]
    fn every_allowed_name_comes_back_from_its_structured_field(name in "[ -~]{1,64}") {
        let fields = lists(&[(&name, decided(Limit::gcra(5, SECOND), &[], 0, 1))]);
        prop_assert_eq!(&items(&fields.policy, ["q", "w"])[0].0, &name);
        prop_assert_eq!(&items(&fields.quota, ["r", "t"])[0].0, &name);
    }
}
