//! The headers of one value.

use super::*;
use crate::http::headers::single_value::{DRAFT_6, Values, X_RATELIMIT, tightest};
use crate::limit::Rate;
use crate::time::HOUR;

fn values(limit: u64, remaining: u64, reset: u64) -> Values {
    Values {
        limit,
        remaining,
        reset,
    }
}

/// The values after these decisions, with the reset in seconds from then.
fn shown(each: &[Decision]) -> Option<Values> {
    tightest(each.iter()).map(Values::with_delta)
}

#[test]
fn one_policy_is_shown_with_the_time_to_its_whole_quota() {
    let gcra = decided(Limit::gcra(6, MINUTE), &[2], 0, 1);
    assert_eq!(shown(&[gcra]), Some(values(6, 3, 30)));
    let window = decided(Limit::fixed_window(10, MINUTE), &[1], 12_000_001, 1);
    assert_eq!(shown(&[window]), Some(values(10, 8, 48)));
}

#[test]
fn the_fewest_permits_are_shown_and_not_the_least_share() {
    let few = decided(Limit::gcra(10, MINUTE), &[1], 0, 1);
    let many = decided(Limit::gcra(100, MINUTE), &[78], 0, 1);
    assert_eq!((few.remaining(), many.remaining()), (8, 21));
    for each in [[few, many], [many, few]] {
        assert_eq!(shown(&each), Some(values(10, 8, 12)));
    }
}

#[test]
fn a_burst_below_the_limit_hides_no_policy_with_less_left() {
    let burst = decided(Limit::gcra(100, MINUTE).burst(20), &[6], 0, 1);
    let window = decided(Limit::fixed_window(10, MINUTE), &[6], 0, 1);
    assert_eq!((burst.remaining(), window.remaining()), (13, 3));
    for each in [[burst, window], [window, burst]] {
        assert_eq!(shown(&each), Some(values(10, 3, 60)));
    }
}

#[test]
fn an_almost_empty_bucket_is_not_hidden_by_a_window_of_many() {
    let bucket = Limit::token_bucket(500, Rate::new(10, MINUTE));
    let bucket = decided(bucket, &[489], 0, 1);
    let window = decided(Limit::fixed_window(1_000, MINUTE), &[489], 0, 1);
    assert_eq!((bucket.remaining(), window.remaining()), (10, 510));
    for each in [[bucket, window], [window, bucket]] {
        assert_eq!(shown(&each), Some(values(10, 10, 49 * 60)));
    }
}

#[test]
fn a_burst_that_is_shown_as_the_limit_hides_no_policy_with_less_left() {
    let burst = decided(Limit::gcra(10, SECOND).burst(100), &[], 0, 1);
    let window = decided(Limit::fixed_window(1_000, MINUTE), &[988], 0, 1);
    assert_eq!((burst.remaining(), window.remaining()), (99, 11));
    for each in [[burst, window], [window, burst]] {
        assert_eq!(shown(&each), Some(values(1_000, 11, 60)));
    }
}

#[test]
fn among_equal_numbers_the_latest_reset_is_shown() {
    let minute = decided(Limit::gcra(10, MINUTE), &[], 0, 9);
    let hour = decided(Limit::gcra(2, HOUR), &[], 0, 1);
    for each in [[minute, hour], [hour, minute]] {
        assert_eq!(shown(&each), Some(values(2, 1, 1_800)));
    }
}

#[test]
fn a_denial_is_shown_before_a_policy_nearer_to_exhaustion() {
    let exhausted = decided(Limit::gcra(5, SECOND), &[4], 0, 1);
    let denied = decided(Limit::gcra(60, MINUTE), &[30], 0, 40);
    assert!(exhausted.is_allowed() && !denied.is_allowed());
    for each in [[exhausted, denied], [denied, exhausted]] {
        assert_eq!(shown(&each), Some(values(60, 30, 30)));
    }
}

#[test]
fn the_longest_wait_of_several_denials_is_shown() {
    let short = decided(Limit::fixed_window(9, SECOND), &[9], 0, 1);
    let long = decided(Limit::gcra(60, MINUTE), &[30], 0, 40);
    assert_eq!(shown(&[short, long]), Some(values(60, 30, 30)));

    let never = decided(Limit::gcra(7, SECOND), &[], 0, 8);
    assert_eq!(shown(&[short, never, long]), Some(values(7, 7, 0)));
}

#[test]
fn a_ban_is_shown_with_its_end() {
    let denied = decided(Limit::gcra(5, SECOND), &[5], 0, 1);
    let banned = banned(denied, 3_600_000_000);
    assert_eq!(shown(&[banned]), Some(values(5, 0, 3_600)));
}

#[test]
fn a_burst_above_the_limit_is_shown_as_the_limit() {
    let burst = decided(Limit::gcra(10, SECOND).burst(100), &[], 0, 1);
    assert_eq!(burst.remaining(), 99);
    assert_eq!(shown(&[burst]), Some(values(10, 10, 1)));
}

#[test]
fn a_policy_without_a_reset_or_an_answer_is_not_shown() {
    let in_flight = decided(Limit::concurrency(1), &[1], 0, 1);
    let failed = unanswered(decided(Limit::gcra(5, SECOND), &[4], 0, 1));
    assert_eq!(shown(&[in_flight, failed]), None);
    let let_in = decided(Limit::concurrency(1), &[], 0, 1);
    let beside = decided(Limit::gcra(10, SECOND), &[], 0, 1);
    assert_eq!(shown(&[let_in, beside]), Some(values(10, 9, 1)));
}

#[test]
fn a_denial_shows_no_policy_that_does_not_deny() {
    let beside = decided(Limit::gcra(10, SECOND), &[], 0, 1);
    let in_flight = decided(Limit::concurrency(1), &[1], 0, 1);
    let denied = decided(Limit::gcra(5, SECOND), &[5], 0, 1);
    let mut failed = unanswered(beside);
    failed.outcome = Outcome::FailedClosed(StoreErrorKind::TimedOut);
    for cannot_be_shown in [in_flight, banned(in_flight, 5_000_000), failed] {
        assert!(!cannot_be_shown.is_allowed());
        assert_eq!(shown(&[cannot_be_shown, beside]), None);
        let each = [beside, cannot_be_shown, denied];
        assert_eq!(shown(&each), Some(values(5, 0, 1)));
    }
}

#[test]
fn the_epoch_is_rounded_up_together_with_the_reset() {
    let start = START.ceil_secs();
    for (now_us, window_us, reset) in [
        (0, 1_000_000, 1),
        (0, 1_000_001, 2),
        (400_000, 1_600_000, 2),
        (400_000, 1_600_001, 3),
        (999_999, 1_000_000, 2),
    ] {
        let window = std::time::Duration::from_micros(window_us);
        let decision = decided(Limit::fixed_window(5, window), &[], 0, 1);
        let epoch = QuotaHeaders::X_RATELIMIT_EPOCH;
        let fields = fields_at(now_us, epoch, &[("api", decision)]);
        assert_eq!(fields.x_ratelimit, Some(values(5, 4, start + reset)));
        assert_eq!(fields.draft_6, None);
    }
}

/// The headers after an inner layer or the service has written the first values, and ours the
/// second.
fn nested(there: [&str; 3], ours: Values, is_rejection: bool) -> Vec<String> {
    let mut response = Response::new(());
    for (name, value) in X_RATELIMIT.iter().zip(there) {
        let value = HeaderValue::from_str(value).unwrap();
        response.headers_mut().insert(name, value);
    }
    ours.put(&X_RATELIMIT, response.headers_mut(), is_rejection);
    let each = X_RATELIMIT.iter().map(|name| {
        let mut lines = response.headers().get_all(name).iter();
        let only = lines.next().unwrap().to_str().unwrap().to_owned();
        assert_eq!(lines.next(), None);
        only
    });
    each.collect()
}

#[test]
fn the_tighter_of_nested_layers_is_kept() {
    let ours = values(100, 50, 30);
    for (there, kept) in [
        (["60", "51", "60"], ["100", "50", "30"]),
        (["1000", "49", "6"], ["1000", "49", "6"]),
        (["60", "50", "29"], ["100", "50", "30"]),
        (["60", "50", "30"], ["60", "50", "30"]),
        (["60", "50", "31"], ["60", "50", "31"]),
        (
            ["18446744073709551615", "18446744073709551615", "0"],
            ["100", "50", "30"],
        ),
    ] {
        assert_eq!(nested(there, ours, false), kept, "{there:?}");
    }
}

#[test]
fn a_denial_further_in_keeps_its_reason() {
    let ours = values(100, 0, 30);
    let there = ["10", "3", "1"];
    assert_eq!(nested(there, ours, true), there);
    assert_eq!(nested(there, ours, false), ["100", "0", "30"]);
}

#[test]
fn headers_of_the_builder_stay_on_a_denial() {
    let denied = decided(Limit::gcra(5, SECOND), &[5], 0, 1);
    let rejection = Rejection::by([("api", &denied)].into_iter(), &denied);
    let mut response = Response::new(());
    response.extensions_mut().insert(rejection);
    let (own, all) = (
        values(10, 3, 1),
        QuotaHeaders::DRAFT_6.and(QuotaHeaders::X_RATELIMIT_DELTA),
    );
    for names in [&DRAFT_6, &X_RATELIMIT] {
        own.put(names, response.headers_mut(), false);
    }
    fields_at(0, all, &[("api", denied)]).add_to(&mut response);
    for names in [&DRAFT_6, &X_RATELIMIT] {
        assert_eq!(Values::read(names, response.headers()), Some(own));
    }
}

#[test]
fn headers_of_a_service_that_are_no_numbers_are_replaced_as_a_whole() {
    let ours = values(100, 50, 30);
    for there in [
        ["10, 10;w=60", "1", "1"],
        ["10", "-1", "1"],
        ["10", "1", "2026-01-01T00:00:00Z"],
    ] {
        for is_rejection in [false, true] {
            assert_eq!(nested(there, ours, is_rejection), ["100", "50", "30"]);
        }
    }
}

#[test]
fn one_family_that_is_there_leaves_the_other_alone() {
    let mut response = Response::new(());
    let all = QuotaHeaders::DRAFT_6.and(QuotaHeaders::X_RATELIMIT_DELTA);
    values(10, 0, 1).put(&DRAFT_6, response.headers_mut(), false);
    let decision = decided(Limit::gcra(5, SECOND), &[], 0, 1);
    fields_at(0, all, &[("api", decision)]).add_to(&mut response);
    let read = |names| Values::read(names, response.headers());
    assert_eq!(read(&DRAFT_6), Some(values(10, 0, 1)));
    assert_eq!(read(&X_RATELIMIT), Some(values(5, 4, 1)));
}
