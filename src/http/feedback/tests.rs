//! What upstreams send, and how it is read.

use std::fmt::Debug;

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

/// Thursday, 2026-11-05 00:00:00.
const NOW: Duration = Duration::from_secs(1_793_836_800);

fn response(status: u16, headers: &[(&'static str, &str)]) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).unwrap();
        response.headers_mut().append(*name, value);
    }
    response
}

fn read(status: u16, headers: &[(&'static str, &str)]) -> Option<Duration> {
    let response = response(status, headers);
    announced(&ResponseHead::new(&response), SystemTime::UNIX_EPOCH + NOW)
}

fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}

fn ms(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

#[track_caller]
fn all_read<T: Debug>(
    cases: impl IntoIterator<Item = (T, Option<Duration>)>,
    headers: impl Fn(&T) -> Vec<(&'static str, &str)>,
) {
    for (case, expected) in cases {
        assert_eq!(read(429, &headers(&case)), expected, "{case:?}");
    }
}

#[test]
fn only_refusals_are_read() {
    let told = [("retry-after", "5")];
    for (status, expected) in [
        (200, None),
        (301, None),
        (404, None),
        (429, secs(5)),
        (500, None),
        (503, secs(5)),
    ] {
        assert_eq!(read(status, &told), expected, "{status}");
    }
    assert_eq!(read(429, &[]), None);
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let cases = [
        ("0", secs(0)),
        ("5", secs(5)),
        (" 7 ", secs(7)),
        ("1.5", ms(1_500)),
        ("0.0000000001", Some(Duration::from_nanos(0))),
        ("99999999999999999999", secs(u64::MAX)),
        ("Thu, 05 Nov 2026 00:00:09 GMT", secs(9)),
        ("Thursday, 05-Nov-26 00:00:09 GMT", secs(9)),
        ("Thu Nov  5 00:00:09 2026", secs(9)),
        ("Wed, 04 Nov 2026 23:59:59 GMT", secs(0)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", secs(0)),
        ("-5", None),
        ("soon", None),
        ("", None),
        (".5", None),
        ("5.", None),
        ("1e3", None),
    ];
    all_read(cases, |value| vec![("retry-after", value)]);
}

#[test]
fn a_date_counts_from_the_date_of_the_response() {
    let date = "Thu, 05 Nov 2026 01:00:00 GMT";
    let later = "Thu, 05 Nov 2026 01:00:30 GMT";
    assert_eq!(
        read(429, &[("date", date), ("retry-after", later)]),
        secs(30)
    );
    let reset = (NOW.as_secs() + 3_645).to_string();
    let headers = [("date", date), ("x-ratelimit-reset", &*reset)];
    assert_eq!(read(429, &headers), secs(45));
}

#[test]
fn the_drafts_are_read_from_the_third_to_the_eleventh() {
    let listed = [
        ("\"a\";r=0;t=5", secs(5)),
        ("a;r=0;t=5", secs(5)),
        ("\"a\";r=3;t=5", None),
        ("\"a\";r=0;t=5, \"b\";r=0;t=9, \"c\";r=1;t=70", secs(9)),
        ("\"a;r=0;t=9, b\";r=1;t=5", None),
        ("\"a\\\";r=0;t=9\" ; t=5 ; r=0", secs(5)),
        ("\"a\";r=0;t=5;t=6;pk=:AA==:", secs(6)),
        ("\"a\";r=0;t=5;t", None),
        ("\"a\";r=0;t=5;t=soon", None),
        ("\"a\";r=0;t=99999999999999999999", secs(u64::MAX)),
        ("\"a\";r=0;t=-1", None),
        ("\"a\";r=0", None),
        ("limit=10, remaining=0, reset=5", secs(5)),
        ("limit=10,remaining=2,reset=5", None),
        ("limit=10,remaining=0,reset=5,reset=6", secs(6)),
        ("limit=10,remaining=0,reset=5,reset", None),
        ("\"", None),
        (",;=,", None),
    ];
    all_read(listed, |value| vec![("ratelimit", value)]);
    let fields = [("0", "5", secs(5)), ("2", "5", None), ("0", "soon", None)];
    for (remaining, reset, expected) in fields {
        let headers = [
            ("ratelimit-limit", "10, 10;w=60"),
            ("ratelimit-remaining", remaining),
            ("ratelimit-reset", reset),
        ];
        assert_eq!(read(429, &headers), expected, "{headers:?}");
    }
}

#[test]
fn without_a_time_the_window_of_the_same_policy_counts() {
    let headers = [
        ("ratelimit-policy", "\"a\";q=10;w=60"),
        ("ratelimit-policy", "\"b\";q=100;w=3600"),
        ("ratelimit", "\"a\";r=0, \"b\";r=7"),
    ];
    assert_eq!(read(429, &headers), secs(60));
    assert_eq!(read(200, &headers), None);
}

#[test]
fn x_ratelimit_is_read_as_what_its_size_says() {
    let cases = [
        ("30", secs(30)),
        ("0.25", ms(250)),
        ("1793836830", secs(30)),
        ("1793836830.5", ms(30_500)),
        ("1793836830000", secs(30)),
        ("1793836830250", ms(30_250)),
        ("1793836799", secs(0)),
        ("1700000000000", secs(0)),
        (
            "99999999999999999999",
            Some(Duration::from_secs(u64::MAX) / 1_000 - NOW),
        ),
        ("Thu, 05 Nov 2026 00:00:30 GMT", secs(30)),
        ("1s", secs(1)),
        ("6m0s", secs(360)),
        ("1h2m3.5s", ms(3_723_500)),
        ("20ms", ms(20)),
        (
            "18446744073709551615h18446744073709551615d",
            Some(Duration::MAX),
        ),
        ("s", None),
        ("1s2", None),
        ("1x", None),
        ("-30", None),
    ];
    all_read(cases, |value| vec![("x-ratelimit-reset", value)]);
}

#[test]
fn x_ratelimit_tells_only_of_what_is_used_up() {
    for (remaining, expected) in [("0", secs(9)), ("1", None)] {
        let headers = [
            ("x-rate-limit-remaining", remaining),
            ("x-rate-limit-reset", "9"),
        ];
        assert_eq!(read(429, &headers), expected);
    }
    let headers = [
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1793836830"),
        ("x-ratelimit-reset-after", "29.5"),
    ];
    assert_eq!(read(429, &headers), ms(29_500));
    let headers = [
        ("x-ratelimit-remaining-requests", "3"),
        ("x-ratelimit-reset-requests", "1h"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m0s"),
        ("x-ratelimit-remaining-days", "0"),
        ("x-ratelimit-reset-days", "12s"),
    ];
    assert_eq!(read(429, &headers), secs(360));
}

#[test]
fn the_first_that_is_understood_counts() {
    let mut headers = vec![
        ("retry-after", "5"),
        ("ratelimit", "\"a\";r=0;t=6"),
        ("x-ratelimit-reset", "7"),
    ];
    assert_eq!(read(429, &headers), secs(5));
    headers[0].1 = "soon";
    assert_eq!(read(429, &headers), secs(6));
    headers[1].1 = "\"a\";r=1;t=6";
    assert_eq!(read(429, &headers), secs(7));
}

/// `google.rpc.Status { code: 8, details: [Any { RetryInfo { retry_delay: 3.25 s } }] }`.
const DETAILS: &str =
    "CAgaNQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIJCgcIAxCA5Zp3";

#[test]
fn grpc_tells_by_pushback_and_by_retry_info() {
    let read = |code, told: &[(&'static str, &str)]| {
        let headers: Vec<_> = [("grpc-status", code)]
            .iter()
            .chain(told)
            .copied()
            .collect();
        read(200, &headers)
    };
    let pushback = ("grpc-retry-pushback-ms", "1500");
    let details = ("grpc-status-details-bin", DETAILS);
    for code in ["8", "14"] {
        assert_eq!(read(code, &[pushback]), ms(1_500));
        assert_eq!(read(code, &[details]), ms(3_250));
        assert_eq!(read(code, &[pushback, details]), ms(3_250));
        assert_eq!(read(code, &[("retry-after", "5")]), None);
    }
    for code in ["0", "7", "10", "x"] {
        assert_eq!(read(code, &[pushback, details]), None, "{code}");
    }
    for told in ["-1", "", "x"] {
        assert_eq!(read("8", &[("grpc-retry-pushback-ms", told)]), None);
    }
    for cut in 0..DETAILS.len() {
        let told = read("8", &[("grpc-status-details-bin", &DETAILS[..cut])]);
        assert!(told.is_none(), "{cut}");
    }
}

const NAMES: [&str; 14] = [
    "date",
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-rate-limit-remaining-tokens",
    "x-rate-limit-reset-tokens",
    "grpc-status",
    "grpc-retry-pushback-ms",
    "grpc-status-details-bin",
];

fn values() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "0",
        "9",
        "18446744073709551615",
        "\"",
        "\\",
        ";",
        ",",
        "=",
        "r=0",
        "t=",
        "w=5",
        "remaining=0",
        "reset=",
        ".",
        "s",
        "ms",
        "h",
        " ",
        "Thu, 05 Nov 2026 00:00:30 GMT",
        "-",
        "CAgaNwood",
        "8",
        "A",
    ]);
    prop_oneof![
        prop::collection::vec(words, 0..12).prop_map(|words| words.concat().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #[test]
    fn nothing_panics_and_no_hold_is_longer_than_the_longest(
        status in prop::sample::select(vec![200, 429, 503]),
        headers in prop::collection::vec((0..NAMES.len(), values()), 0..6),
        longest_ms in 0_u64..100_000,
    ) {
        let mut response = response(status, &[]);
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                response.headers_mut().append(HeaderName::from_static(NAMES[name]), value);
            }
        }
        let longest = Duration::from_millis(longest_ms);
        let held = Feedback::http().max_hold(longest).read(&response);
        prop_assert!(held.is_none_or(|held| !held.is_zero() && held <= longest));
    }

    #[test]
    fn what_a_rejection_says_is_read_as_it_was_meant(ms in 1_u64..10_000_000, code in prop::sample::select(vec![8, 14])) {
        let headers = [("grpc-status", &*code.to_string()), ("grpc-retry-pushback-ms", &*ms.to_string())];
        prop_assert_eq!(read(200, &headers), Some(Duration::from_millis(ms)));
    }
}
