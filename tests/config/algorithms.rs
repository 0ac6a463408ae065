//! `algorithm`, `limit` and the options: each algorithm accepts its own, and no other's.

use tower_throttle::{
    DAY, HOUR, Limit, MINUTE, Outcome, Policy, Rate, Rules, SECOND, per_minute, per_second,
};

use super::{read, refusal, with_policy};

/// What makes each algorithm allow exactly two, in the lines after its name.
const TWO: [(&str, &str); 8] = [
    ("gcra", "limit = \"2/day\""),
    ("token-bucket", "limit = \"2/day\""),
    ("leaky-bucket", "limit = \"2/day\""),
    ("fixed-window", "limit = \"2/day\""),
    ("sliding-counter", "limit = \"2/day\""),
    ("sliding-window", "limit = \"2/day\""),
    ("sliding-log", "limit = \"2/day\""),
    ("concurrency", "limit = 2\nlease = \"1day\""),
];

/// A file with one policy: its name is in line 4, its algorithm in line 6, followed by these
/// fields.
pub(crate) fn with_limit(algorithm: &str, fields: &str) -> String {
    with_policy(&format!(
        "name = \"client\"\nkey = \"peer\"\nalgorithm = {algorithm:?}\n{fields}"
    ))
}

#[tokio::test]
async fn each_algorithm_makes_a_limiter_that_allows_and_then_denies() {
    for (algorithm, limit) in TWO {
        let config = read(&with_limit(algorithm, limit));
        let limiter = config.connect().await.unwrap();
        for allowed in [true, true, false, false] {
            let decision = limiter.check("client", "somebody").await.unwrap();
            assert_eq!(decision.is_allowed(), allowed, "{algorithm}: {decision:?}");
            assert_eq!(decision.limit(), 2, "{algorithm}");
        }
    }
}

/// An operator closes something by this field alone; what else is said stays for later.
#[tokio::test]
async fn a_limit_of_no_permits_admits_nothing_under_any_algorithm() {
    let options = [
        "burst = 20",
        "capacity = 7",
        "capacity = 7\ndelay = false",
        "aligned = true",
        "",
        "slices = 60",
        "group = \"client\"\npenalty = { denials = 1, within = \"1h\", ban = \"1h\" }",
        "lease = \"1day\"",
    ];
    for ((algorithm, _), options) in TWO.into_iter().zip(options) {
        let limits = match algorithm {
            "concurrency" => vec!["0"],
            _ => vec!["\"0/s\"", "\"0/15min\""],
        };
        for limit in limits {
            let text = with_limit(algorithm, &format!("limit = {limit}\n{options}"));
            let limiter = read(&text).connect().await.unwrap();
            let decision = limiter.check("client", "somebody").await.unwrap();
            assert_eq!(decision.outcome(), Outcome::NeverFits, "{text}");
            assert_eq!(decision.limit(), 0, "{text}");
        }
    }
    assert!(
        refusal(&with_limit("gcra", "limit = [\"0/s\", \"10/min\"]"))
            .contains("line 7: policy \"client\": limit: a rate that admits nothing")
    );
    assert!(
        refusal(&with_limit("gcra", "limit = \"0/s\"\nslices = 3")).contains("is an option of")
    );
    assert!(
        refusal(&with_limit("gcra", "limit = \"1/s\"\nburst = 0")).ends_with(
            "line 8: policy \"client\": burst: got 0, expected 1 to 999999999999999, or limit = \"0/s\""
        )
    );
}

#[test]
fn invalid_limits_are_refused_in_their_line() {
    for (algorithm, fields, refused) in [
        (
            "concurrency",
            "limit = 20\nlease = \"1ms\"",
            "line 8: policy \"client\": lease: got \"1 ms\": expected at least 150 ms",
        ),
        (
            "sliding-log",
            "limit = \"4000000000/s\"",
            "line 7: policy \"client\": limit: got \"a sliding log of 4000000000 permits\"",
        ),
        (
            "sliding-log",
            "limit = \"1/s\"\ntiers = [{ key = \"user\", values = \"a\", limit = \"2000000/s\" }]",
            "line 8: policy \"client\": limit: got \"a sliding log of 2000000 permits\"",
        ),
    ] {
        let found = refusal(&with_limit(algorithm, fields));
        assert!(found.starts_with(refused), "{found}");
    }
    let fast = with_limit("concurrency", "limit = 20\nlease = \"20ms\"");
    let fast = fast.replacen("store", "timeout = \"5ms\"\nstore", 1);
    let _ = read(&fast);
    let varying = "limit = \"4000000000/s\"\ncost = \"header:x-cost\"";
    let _ = read(&with_limit("sliding-log", varying));
}

#[test]
fn a_file_says_what_a_program_says() {
    for (algorithm, fields, limit) in [
        (
            "gcra",
            "limit = \"100/min\"\nburst = 20",
            Limit::gcra(100, MINUTE).burst(20),
        ),
        (
            "token-bucket",
            "limit = \"50/s\"",
            Limit::token_bucket(50, per_second(50)),
        ),
        (
            "token-bucket",
            "limit = \"50/s\"\ncapacity = 100",
            Limit::token_bucket(100, per_second(50)),
        ),
        (
            "leaky-bucket",
            "limit = \"5/15min\"",
            Limit::leaky_bucket(5, Rate::new(5, 15 * MINUTE)),
        ),
        (
            "leaky-bucket",
            "limit = \"10/min\"\ncapacity = 20\ndelay = true",
            Limit::leaky_bucket(20, per_minute(10)),
        ),
        (
            "leaky-bucket",
            "limit = \"10/min\"\ncapacity = 20\ndelay = false",
            Limit::leaky_bucket(20, per_minute(10)).without_delay(),
        ),
        (
            "fixed-window",
            "limit = \"1000/day\"\naligned = true",
            Limit::fixed_window(1_000, DAY).aligned(),
        ),
        (
            "fixed-window",
            "limit = \"1000/day\"\naligned = false",
            Limit::fixed_window(1_000, DAY),
        ),
        (
            "sliding-counter",
            "limit = \"10/s\"",
            Limit::sliding_counter(10, SECOND),
        ),
        (
            "sliding-window",
            "limit = \"10/s\"",
            Limit::sliding_window(10, SECOND),
        ),
        (
            "sliding-window",
            "limit = \"10/s\"\nslices = 60",
            Limit::sliding_window(10, SECOND).slices(60),
        ),
        (
            "sliding-log",
            "limit = \"5/15min\"",
            Limit::sliding_log(5, 15 * MINUTE),
        ),
        (
            "gcra",
            "limit = [\"10/s\", \"1000/h\"]",
            Limit::gcra(10, SECOND).and(1_000, HOUR),
        ),
        (
            "gcra",
            "limit = [\"10/s\", \"1000/h\"]\nburst = [20, 30]",
            Limit::gcra(10, SECOND).burst(20).and(1_000, HOUR).burst(30),
        ),
        (
            "fixed-window",
            "limit = [\"10/min\", \"100/h\", \"1000/day\"]\naligned = true",
            Limit::fixed_window(10, MINUTE)
                .and(100, HOUR)
                .and(1_000, DAY)
                .aligned(),
        ),
        (
            "sliding-window",
            "limit = [\"10/s\", \"1000/h\"]\nslices = 60",
            Limit::sliding_window(10, SECOND)
                .and(1_000, HOUR)
                .slices(60),
        ),
        (
            "sliding-log",
            "limit = [\"5/15min\"]",
            Limit::sliding_log(5, 15 * MINUTE),
        ),
        ("concurrency", "limit = 20", Limit::concurrency(20)),
        (
            "concurrency",
            "limit = 20\nlease = \"10s\"",
            Limit::concurrency(20).lease(10 * SECOND),
        ),
    ] {
        let config = read(&with_limit(algorithm, fields));
        let rules = Rules::new([Policy::new("client", limit)]);
        assert_eq!(
            format!("{config:?}"),
            format!("Config {{ rules: {rules:?}, .. }}"),
            "{algorithm}: {fields}"
        );
    }
}

#[test]
fn another_algorithms_option_is_refused_with_its_owner() {
    for (option, theirs) in [
        ("burst = 5", "gcra"),
        ("capacity = 5", "token-bucket and leaky-bucket"),
        ("delay = true", "leaky-bucket"),
        ("aligned = true", "fixed-window"),
        ("zone = \"UTC\"", "calendar"),
        ("anchor = 3", "calendar"),
        ("first_day = \"monday\"", "calendar"),
        ("slices = 5", "sliding-window"),
        ("lease = \"5s\"", "concurrency"),
        ("max_wait = \"5s\"", "gcra, token-bucket and leaky-bucket"),
    ] {
        let field = option.split_once(" =").unwrap().0;
        for (algorithm, limit) in TWO {
            let others = limit.lines().filter(|line| !line.starts_with(field));
            let others: Vec<_> = others.collect();
            let text = with_limit(algorithm, &format!("{option}\n{}", others.join("\n")));
            if theirs.split(&[' ', ','][..]).any(|one| one == algorithm) {
                read(&text);
            } else {
                assert_eq!(
                    refusal(&text),
                    format!("line 7: policy \"client\": {field}: is an option of {theirs}"),
                    "{algorithm}"
                );
            }
        }
    }
}

#[test]
fn an_option_that_is_switched_off_may_stand_anywhere() {
    for (algorithm, limit) in TWO {
        let text = with_limit(
            algorithm,
            &format!("{limit}\naligned = false\ndelay = false"),
        );
        read(&text);
    }
}

#[test]
fn an_option_that_cannot_be_switched_off_may_not() {
    for (option, theirs) in [
        ("burst", "gcra"),
        ("capacity", "token-bucket and leaky-bucket"),
        ("slices", "sliding-window"),
        ("lease", "concurrency"),
    ] {
        let text = with_limit(
            "sliding-log",
            &format!("{option} = false\nlimit = \"2/day\""),
        );
        assert_eq!(
            refusal(&text),
            format!("line 7: policy \"client\": {option}: is an option of {theirs}")
        );
    }
}

#[test]
fn an_option_that_makes_no_sense_is_refused_in_its_line() {
    for (algorithm, option, refused) in [
        (
            "token-bucket",
            "capacity = 0",
            "capacity: got 0, expected 1 to 999999999999999, or limit = \"0/s\"",
        ),
        (
            "leaky-bucket",
            "capacity = \"20\"",
            "capacity: got \"20\", expected 1 to 999999999999999",
        ),
        (
            "token-bucket",
            "capacity = 4294967295",
            "capacity: got 4294967295, expected at most what refills within 100 years",
        ),
        (
            "leaky-bucket",
            "delay = \"2s\"",
            "delay: got \"2s\", expected true or false",
        ),
        (
            "fixed-window",
            "aligned = 1",
            "aligned: got 1, expected true or false",
        ),
        (
            "sliding-window",
            "slices = 0",
            "slices: got 0, expected 1 to 1000",
        ),
        (
            "sliding-window",
            "slices = 1001",
            "slices: got 1001, expected 1 to 1000",
        ),
        (
            "sliding-window",
            "slices = 1.5",
            "slices: got 1.5, expected 1 to 1000",
        ),
    ] {
        let text = with_limit(algorithm, &format!("{option}\nlimit = \"2/day\""));
        assert_eq!(
            refusal(&text),
            format!("line 7: policy \"client\": {refused}")
        );
    }
    for (lease, refused) in [
        ("30", "got 30, expected a time, such as \"50ms\" or \"2s\""),
        (
            "\"0ms\"",
            "got \"0ms\", expected 1 ms to 366 days, in whole microseconds",
        ),
        (
            "\"367day\"",
            "got \"367day\", expected 1 ms to 366 days, in whole microseconds",
        ),
    ] {
        let text = with_limit("concurrency", &format!("limit = 2\nlease = {lease}"));
        assert_eq!(
            refusal(&text),
            format!("line 8: policy \"client\": lease: {refused}")
        );
    }
}

#[test]
fn concurrency_has_a_number_where_the_others_have_a_rate() {
    for (limit, refused) in [
        (
            "\"20/s\"",
            "limit: got \"20/s\", expected 0 to 999999999999999 requests at the same time, such as 20",
        ),
        (
            "-1",
            "limit: got -1, expected 0 to 999999999999999 requests at the same time, such as 20",
        ),
    ] {
        let text = with_limit("concurrency", &format!("limit = {limit}"));
        assert_eq!(
            refusal(&text),
            format!("line 7: policy \"client\": {refused}")
        );
    }
    assert_eq!(
        refusal(&with_limit("concurrency", "")),
        "line 3: policy \"client\": limit: is missing, write limit = 20"
    );
    for (algorithm, _) in TWO.iter().filter(|(name, _)| *name != "concurrency") {
        let refused = refusal(&with_limit(algorithm, "limit = 20"));
        let expected = "line 7: policy \"client\": limit: got 20, expected permits in a period, ";
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn a_rate_out_of_range_is_refused_in_the_line_of_the_limit() {
    for (algorithm, length) in [
        ("gcra", "period"),
        ("token-bucket", "period"),
        ("leaky-bucket", "period"),
        ("fixed-window", "window"),
        ("sliding-counter", "window"),
        ("sliding-window", "window"),
        ("sliding-log", "window"),
    ] {
        assert_eq!(
            refusal(&with_limit(algorithm, "limit = \"1/367day\"")),
            format!(
                "line 7: policy \"client\": limit: got \"1/367day\", expected a {length} of 1 ms to 366 \
                 days, in whole microseconds"
            )
        );
    }
}

#[test]
fn rates_that_make_no_sense_are_refused_in_their_line() {
    let rate = "permits in a period, such as \"100/min\" or \"5/15min\", with at most 999999999999999 \
                permits and ms, s, min, h or day";
    for (algorithm, fields, refused) in [
        (
            "sliding-log",
            "limit = [\n\"10/s\",\n\"0/h\"]",
            "line 9: policy \"client\": limit: a rate that admits nothing needs no others, write \
             limit = \"0/s\" for all of them".to_owned(),
        ),
        (
            "fixed-window",
            "limit = [\n\"10/s\",\n\"10/367day\"]",
            "line 9: policy \"client\": limit: got \"10/367day\", expected a window of 1 ms to 366 \
             days, in whole microseconds"
                .to_owned(),
        ),
        (
            "gcra",
            "limit = [\n\"10/s\",\n20]",
            format!("line 9: policy \"client\": limit: got 20, expected {rate}"),
        ),
        (
            "gcra",
            "limit = []",
            "line 7: policy \"client\": limit: the list is empty, so it has no rate; write at least \
             one, such as \"100/min\""
                .to_owned(),
        ),
        (
            "gcra",
            "limit = [\"10/s\", \"20/1000ms\"]",
            "line 7: policy \"client\": limit: 20 in 1 s: another rate has the same period; give \
             each its own"
                .to_owned(),
        ),
        (
            "gcra",
            "limit = [\"100/s\", \"50/h\"]",
            "line 7: policy \"client\": limit: 100 in 1 s: has no effect beside 50 in a \
             longer period; a shorter period needs fewer permits"
                .to_owned(),
        ),
        (
            "gcra",
            "limit = [\"1/s\", \"2/min\", \"3/h\", \"4/day\", \"5/7day\"]",
            "line 7: policy \"client\": limit: got a list, expected at most 4 rates".to_owned(),
        ),
        (
            "gcra",
            "limit = [\"10/s\", \"1000/h\"]\nburst = 20",
            "line 8: policy \"client\": burst: got 20, expected a list of 2 numbers, one for each \
             rate of the limit"
                .to_owned(),
        ),
        (
            "gcra",
            "limit = [\"10/s\", \"1000/h\"]\nburst = [20]",
            "line 8: policy \"client\": burst: got a list, expected a list of 2 numbers, one for each \
             rate of the limit"
                .to_owned(),
        ),
        (
            "gcra",
            "limit = \"10/s\"\nburst = [20, 30]",
            "line 8: policy \"client\": burst: got a list, expected 1 to 999999999999999".to_owned(),
        ),
        (
            "token-bucket",
            "limit = [\"10/s\", \"1000/h\"]",
            format!("line 7: policy \"client\": limit: got a list, expected {rate}"),
        ),
    ] {
        assert_eq!(refusal(&with_limit(algorithm, fields)), refused, "{algorithm}");
    }
}
