use super::*;
use crate::limit::{ANY_COST, Rate, per_hour, per_second};
use crate::time::{DAY, HOUR, MINUTE, SECOND};

fn refusal(limit: Limit) -> String {
    limit.valid().unwrap_err().to_string()
}

#[test]
fn the_whole_documented_range_is_accepted() {
    for limit in [
        Limit::gcra(1, 366 * DAY),
        Limit::gcra(1_000_000_000, Duration::from_millis(1)),
        Limit::gcra(MOST_PERMITS, 1_000 * SECOND),
        Limit::gcra(1, 366 * DAY).burst(100),
        Limit::fixed_window(MOST_PERMITS, 366 * DAY).aligned(),
        Limit::fixed_window(MOST_PERMITS, Duration::from_millis(1)),
        Limit::concurrency(MOST_PERMITS),
        Limit::sliding_log(1, Duration::from_millis(1)),
    ] {
        assert!(limit.valid().is_ok(), "{limit:?}");
    }
}

#[test]
fn a_refusal_names_the_field_the_input_and_what_would_be_right() {
    assert_eq!(
        refusal(Limit::gcra(0, SECOND)),
        "limit: got 0, expected 1 to 999999999999999, or `Limit::nothing()`"
    );
    assert_eq!(
        refusal(Limit::fixed_window(MOST_PERMITS + 1, SECOND)),
        "limit: got 1000000000000000, expected 1 to 999999999999999, or `Limit::nothing()`"
    );
    assert_eq!(
        refusal(Limit::gcra(1, SECOND).burst(u64::MAX)),
        "burst: got 18446744073709551615, expected 1 to 999999999999999, or `Limit::nothing()`"
    );
    assert_eq!(
        refusal(Limit::token_bucket(1, Rate::new(MOST_PERMITS, SECOND))),
        "limit: got 999999999999999 in 1 s, expected at most 1000000000000 permits a second"
    );
    assert_eq!(
        refusal(Limit::gcra(1, SECOND).burst(0)),
        "burst: got 0, expected 1 to 999999999999999, or `Limit::nothing()`"
    );
    assert_eq!(
        refusal(Limit::fixed_window(1, Duration::from_micros(999))),
        "window: got 999µs, expected 1 ms to 366 days, in whole microseconds"
    );
}

#[test]
fn what_errors_call_the_range_is_the_range() {
    let range = format!("1 to {MOST_PERMITS}");
    assert_eq!(ANY_COST, range);
    assert_eq!(ANY_PERMITS, format!("{range}, or `Limit::nothing()`"));
}

#[test]
fn a_window_outside_the_range_or_finer_than_a_microsecond_is_refused() {
    for window in [
        Duration::ZERO,
        367 * DAY,
        SECOND + Duration::from_nanos(1),
        Duration::MAX,
    ] {
        assert!(refusal(Limit::sliding_log(1, window)).starts_with("window: "));
    }
}

#[test]
fn an_option_of_another_algorithm_is_refused() {
    assert_eq!(
        refusal(Limit::sliding_log(1, SECOND).burst(2)),
        "burst: is an option of gcra"
    );
    assert_eq!(
        refusal(Limit::gcra(1, SECOND).aligned()),
        "aligned: is an option of fixed_window"
    );
    assert_eq!(
        refusal(Limit::gcra(1, SECOND).lease(Duration::ZERO)),
        "lease: is an option of concurrency"
    );
}

#[test]
fn a_burst_that_takes_centuries_to_come_back_is_refused() {
    assert!(refusal(Limit::gcra(1, 366 * DAY).burst(101)).contains("100 years"));
}

fn refusal_together(limit: Limit) -> String {
    limit.refuse_rates_together().unwrap_err().to_string()
}

#[test]
fn four_rates_are_accepted_in_any_order() {
    for limit in [
        Limit::gcra(10, SECOND),
        Limit::gcra(10, SECOND).and(1_000, HOUR),
        Limit::gcra(1_000, HOUR).and(10, SECOND),
        Limit::gcra(10, SECOND)
            .and(100, MINUTE)
            .and(1_000, HOUR)
            .and(5_000, DAY),
        Limit::fixed_window(1, SECOND).and(2, MINUTE).aligned(),
        Limit::sliding_window(1, SECOND).slices(4).and(2, MINUTE),
        Limit::sliding_counter(1, SECOND).and(2, MINUTE),
        Limit::sliding_log(1, SECOND).and(2, MINUTE),
        // It spaces requests out, which the hourly rate does not.
        Limit::gcra(100, SECOND).burst(1).and(50, HOUR),
    ] {
        assert_eq!(limit.refuse_rates_together(), Ok(()), "{limit}");
    }
}

#[test]
fn limits_of_other_algorithms_may_not_have_several_rates() {
    for limit in [
        Limit::token_bucket(10, per_second(1)),
        Limit::leaky_bucket(10, per_hour(1)),
        Limit::concurrency(10),
    ] {
        assert_eq!(
            refusal_together(limit.and(1_000, DAY)),
            "and: is an option of gcra, fixed_window, sliding_counter, sliding_window and \
             sliding_log"
        );
    }
}

#[test]
fn a_fifth_rate_is_refused_and_no_number_of_them_panics() {
    let mut limit = Limit::gcra(1, SECOND);
    for more in 2..=6 {
        limit = limit.and(more.into(), more * SECOND);
    }
    assert_eq!(
        refusal_together(limit.burst(3)),
        "and: got 6 rates, expected at most 4 rates"
    );
}

#[test]
fn rates_that_make_no_sense_together_are_refused_in_words() {
    assert_eq!(
        refusal_together(Limit::gcra(1, SECOND).and(9, MINUTE).and(5, SECOND)),
        "and: got \"5 in 1 s\": another rate has the same period; give each its own"
    );
    for limit in [
        Limit::gcra(100, SECOND).and(50, HOUR),
        Limit::gcra(50, HOUR).and(100, SECOND),
    ] {
        assert_eq!(
            refusal_together(limit),
            "and: got \"100 in 1 s\": has no effect beside 50 in a longer period; a \
             shorter period needs fewer permits"
        );
    }
}

#[cfg(feature = "calendar")]
#[test]
fn a_calendar_has_its_own_options_and_no_others() {
    use crate::limit::{Calendar, Weekday};

    let month = Limit::calendar(5, Calendar::month());
    for (limit, refused) in [
        (
            Limit::calendar(0, Calendar::day()),
            "limit: got 0, expected 1 to 999999999999999, or `Limit::nothing()`",
        ),
        (
            Limit::calendar(5, Calendar::month().anchor(0)),
            "anchor: got 0, expected 1 to 31",
        ),
        (
            Limit::calendar(5, Calendar::month().anchor(32)),
            "anchor: got 32, expected 1 to 31",
        ),
        (
            Limit::calendar(5, Calendar::day().anchor(3)),
            "anchor: is an option of month",
        ),
        (
            Limit::calendar(5, Calendar::month().first_day(Weekday::Sunday)),
            "first_day: is an option of week",
        ),
        (month.aligned(), "aligned: is an option of fixed_window"),
        (month.burst(3), "burst: is an option of gcra"),
        (
            month.and(9, DAY),
            "and: is an option of gcra, fixed_window, sliding_counter, sliding_window and sliding_log",
        ),
    ] {
        assert_eq!(refusal(limit), refused);
    }
    let most = Limit::calendar(MOST_PERMITS, Calendar::month().anchor(31));
    assert!(most.valid().is_ok());
}
