//! `grpc-retry-pushback-ms`: when a client that retries automatically may try again.
//!
//! See <https://github.com/grpc/proposal/blob/master/A6-client-retries.md>, "Pushback".

use std::time::Duration;

use http::HeaderValue;

use crate::random::random;

/// With a longer wait, the call had better fail: its deadline would hardly let it see the answer.
const LONGEST: Duration = Duration::from_secs(10);

/// Retrying does not help, or not soon.
const NEVER: HeaderValue = HeaderValue::from_static("-1");

pub(super) fn after(wait: Option<Duration>) -> HeaderValue {
    match wait {
        Some(wait) if wait <= LONGEST => millis(wait, random()).into(),
        _ => NEVER,
    }
}

/// For a wait of at most `LONGEST`; never too early.
///
/// A client waits exactly as long as it is told. Up to a tenth more, or 10 ms, keeps clients that
/// were denied together from returning together.
fn millis(wait: Duration, random: u64) -> u64 {
    let millis = 1_000 * wait.as_secs() + u64::from(wait.subsec_nanos().div_ceil(1_000_000));
    let jitter = (millis / 10).max(10);
    millis + random % (jitter + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_shortest_and_the_longest_pushback_of_a_wait() {
        for (wait, shortest, longest) in [
            (Duration::ZERO, 0, 10),
            (Duration::from_nanos(1), 1, 11),
            (Duration::from_millis(20), 20, 30),
            (Duration::from_micros(20_001), 21, 31),
            (Duration::from_secs(1), 1_000, 1_100),
            (LONGEST, 10_000, 11_000),
        ] {
            let jitters = longest - shortest;
            assert_eq!(millis(wait, 0), shortest);
            assert_eq!(millis(wait, jitters), longest);
            assert_eq!(millis(wait, jitters + 1), shortest);
        }
    }

    #[test]
    fn a_long_wait_and_one_that_does_not_help_are_not_to_be_retried() {
        let longer = LONGEST + Duration::from_micros(1);
        for wait in [None, Some(longer), Some(Duration::MAX)] {
            assert_eq!(after(wait), "-1", "{wait:?}");
        }
        assert_ne!(after(Some(LONGEST)), "-1");
    }

    #[test]
    fn clients_denied_together_are_told_different_pushbacks() {
        let told: HashSet<_> = (0..100).map(|_| after(Some(LONGEST))).collect();
        assert!(told.len() > 50, "{told:?}");
    }

    proptest! {
        #[test]
        fn nobody_is_told_to_come_back_before_the_time(micros in 0..=10_000_000_u64) {
            let wait = Duration::from_micros(micros);
            let told = after(Some(wait));
            let told = Duration::from_millis(told.to_str().unwrap().parse().unwrap());
            prop_assert!(told >= wait);
            // The tenth is taken of the whole milliseconds.
            let rounded = wait + Duration::from_millis(1);
            prop_assert!(told <= rounded + (rounded / 10).max(Duration::from_millis(10)));
        }
    }
}
