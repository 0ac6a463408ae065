//! Limits, numbers and times: their meaning, and which of them are refused.

use super::{read, refusal, refusal_of, with_field};

#[tokio::test]
async fn a_limit_means_what_it_says() {
    for (limit, permits, ms) in [
        ("1/ms", 1, 1),
        ("20/250ms", 20, 250),
        ("10/s", 10, 1_000),
        ("7/1s", 7, 1_000),
        ("100/min", 100, 60_000),
        ("5/15min", 5, 900_000),
        ("999999999999999/h", 999_999_999_999_999, 3_600_000),
        ("1/day", 1, 86_400_000),
        ("1/366day", 1, 31_622_400_000),
    ] {
        let config = read(&with_field(&format!("limit = {limit:?}")));
        let limiter = config.connect_lazy().unwrap();
        let decision = limiter.peek("client", "somebody").await.unwrap();
        assert_eq!(decision.limit(), permits, "{limit}");
        assert_eq!(decision.window().as_millis(), ms, "{limit}");
    }
}

#[test]
fn a_limit_that_cannot_be_read_is_refused() {
    for limit in [
        "",
        "100",
        "/min",
        "100/",
        "100/minute",
        "-1/s",
        "+1/s",
        "1.5/s",
        "1e3/s",
        "100 / min",
        "1000000000000000/s",
        "1/99999999999s",
        "１/s",
        "1/15",
        "1/s/s",
    ] {
        let expected = format!(
            "line 4: policy \"client\": limit: got {limit:?}, expected permits in a period, such \
             as \"100/min\" or \"5/15min\", with at most 999999999999999 permits and ms, s, min, h or day"
        );
        assert_eq!(refusal_of(&format!("limit = {limit:?}")), expected);
    }
}

#[test]
fn a_number_out_of_range_is_refused_in_its_line() {
    for (field, refused) in [
        (
            "limit = \"1/367day\"",
            "limit: got \"1/367day\", expected a period of 1 ms to 366 days, in whole microseconds",
        ),
        (
            "burst = 0",
            "burst: got 0, expected 1 to 999999999999999, or limit = \"0/s\"",
        ),
        ("burst = -1", "burst: got -1, expected 1 to 999999999999999"),
        (
            "burst = 5_000_000_000_000_000",
            "burst: got 5000000000000000, expected 1 to 999999999999999, or limit = \"0/s\"",
        ),
        ("cost = 0", "cost: got 0, expected 1 to 999999999999999"),
        (
            "cost = 1.5",
            "cost: got 1.5, expected 1 to 999999999999999 permits, or \"header:<name>\"",
        ),
        (
            "name = \"\"",
            "name: got \"\", expected 1 to 64 printable ASCII characters",
        ),
    ] {
        let refused = format!("line 4: policy {:?}: {refused}", named(field));
        assert_eq!(refusal_of(field), refused);
    }
}

fn named(field: &str) -> &'static str {
    match field.starts_with("name") {
        true => "",
        false => "client",
    }
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    for (timeout, refused) in [
        ("\"0ms\"", "timeout: got \"0ms\", expected 1 ms to 60 s"),
        ("\"61s\"", "timeout: got \"61s\", expected 1 ms to 60 s"),
        (
            "\"ms\"",
            "timeout: got \"ms\", expected a time, such as \"50ms\" or \"2s\"",
        ),
        (
            "\"50\"",
            "timeout: got \"50\", expected a time, such as \"50ms\" or \"2s\"",
        ),
        (
            "50",
            "timeout: got 50, expected a time, such as \"50ms\" or \"2s\"",
        ),
    ] {
        let text = format!("store = \"memory\"\ntimeout = {timeout}\n");
        assert_eq!(refusal(&text), format!("line 2: {refused}"));
    }
}
