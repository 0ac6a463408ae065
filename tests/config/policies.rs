//! `max_wait`, `group`, `penalty`, `prefetch`, `count_status`, `count_grpc_status` and
//! `on_store_failure`.

use super::{read, refusal, refusal_of, with_field};

fn accepts(field: &str) {
    read(&with_field(field));
}

#[test]
fn waits_of_up_to_a_day_are_accepted() {
    accepts("max_wait = \"1ms\"");
    accepts("max_wait = \"24h\"");
    for (wait, refused) in [
        ("\"0s\"", "got \"0s\", expected 1 ms to 24 h"),
        ("\"25h\"", "got \"25h\", expected 1 ms to 24 h"),
        ("2", "got 2, expected a time, such as \"50ms\" or \"2s\""),
    ] {
        assert_eq!(
            refusal_of(&format!("max_wait = {wait}")),
            format!("line 4: policy \"client\": max_wait: {refused}")
        );
    }
}

#[test]
fn groups_of_all_limits_that_support_them_are_accepted() {
    accepts("group = \"client\"");
    for (group, refused) in [
        (
            "\"\"",
            "got \"\", expected 1 to 64 printable ASCII characters",
        ),
        ("true", "got true, expected a string, such as \"client\""),
    ] {
        assert_eq!(
            refusal_of(&format!("group = {group}")),
            format!("line 4: policy \"client\": group: {refused}")
        );
    }
}

#[test]
fn penalties_are_accepted_in_every_form_of_table() {
    accepts("penalty = { denials = 10, within = \"15min\", ban = \"1h\" }");
    accepts("penalty = { denials = 10, within = \"15min\", ban = \"1h\", longest = \"24h\" }");
    accepts("penalty = { denials = 100, within = \"1ms\", ban = \"366day\" }");
    accepts("penalty.denials = 10\npenalty.within = \"15min\"\npenalty.ban = \"1h\"");
    let table = "[policy.penalty]\ndenials = 10\nwithin = \"15min\"\nban = \"1h\"\n";
    read(&format!("{}{table}", with_field("cost = 1")));
}

#[test]
fn a_penalty_that_makes_no_sense_is_refused_in_its_line() {
    for (penalty, refused) in [
        (
            "{ denials = 0, within = \"15min\", ban = \"1h\" }",
            "penalty.denials: got 0, expected 1 to 100",
        ),
        (
            "{ denials = 101, within = \"15min\", ban = \"1h\" }",
            "penalty.denials: got 101, expected 1 to 100",
        ),
        (
            "{ denials = \"10\", within = \"15min\", ban = \"1h\" }",
            "penalty.denials: got \"10\", expected 1 to 100",
        ),
        (
            "{ denials = 10, within = \"0s\", ban = \"1h\" }",
            "penalty.within: got \"0s\", expected 1 ms to 366 days, in whole microseconds",
        ),
        (
            "{ denials = 10, within = 15, ban = \"1h\" }",
            "penalty.within: got 15, expected a time, such as \"50ms\" or \"2s\"",
        ),
        (
            "{ denials = 10, within = \"15min\", ban = \"367day\" }",
            "penalty.ban: got \"367day\", expected 1 ms to 366 days, in whole microseconds",
        ),
        (
            "{ denials = 10, within = \"15min\", ban = \"1h\", longest = \"30min\" }",
            "penalty.longest: got \"30min\", expected no less than the first ban",
        ),
        (
            "{ denials = 10, within = \"15min\" }",
            "penalty.ban: is missing, write ban = \"1h\"",
        ),
        (
            "{ denials = 10, ban = \"1h\" }",
            "penalty.within: is missing, write within = \"15min\"",
        ),
        ("{}", "penalty.denials: is missing, write denials = 10"),
        (
            "{ denials = 10, within = \"15min\", ban = \"1h\", doubling = true }",
            "penalty.doubling: is not a field here, expected one of denials, within, ban, longest",
        ),
        (
            "\"1h\"",
            "penalty: got \"1h\", expected a table, such as { denials = 10, within = \"15min\", \
             ban = \"1h\" }",
        ),
    ] {
        assert_eq!(
            refusal_of(&format!("penalty = {penalty}")),
            format!("line 4: policy \"client\": {refused}")
        );
    }
}

#[test]
fn a_wrong_line_of_a_penalty_is_named() {
    // It begins in line 8.
    let policy = format!("{}[policy.penalty]\n", with_field("cost = 1"));
    for (penalty, refused) in [
        (
            "denials = 10\nwithin = \"15min\"\nban = \"0s\"",
            "line 12: policy \"client\": penalty.ban: got \"0s\", expected 1 ms to 366 days, in whole \
             microseconds",
        ),
        (
            "denials = 10\nwithin = \"15min\"\nbann = \"1h\"",
            "line 12: policy \"client\": penalty.bann: is not a field here, expected one of \
             denials, within, ban, longest",
        ),
        (
            "denials = 10\nwithin = \"15min\"",
            "line 9: policy \"client\": penalty.ban: is missing, write ban = \"1h\"",
        ),
    ] {
        assert_eq!(refusal(&format!("{policy}{penalty}\n")), refused);
    }
}

#[test]
fn prefetch_that_makes_no_sense_is_refused() {
    accepts("prefetch = true");
    accepts("prefetch = { share = 1, max_age = \"10ms\" }");
    accepts("prefetch = { share = 0.001, max_age = \"60s\" }");
    let share = "expected a share of the limit, above 0 and at most 1";
    for (prefetch, refused) in [
        (
            "1",
            "prefetch: got 1, expected true, or a table, such as { share = 0.1, max_age = \
             \"1s\" }"
                .to_owned(),
        ),
        ("{ share = 0 }", format!("prefetch.share: got 0, {share}")),
        (
            "{ share = 1.5 }",
            format!("prefetch.share: got 1.5, {share}"),
        ),
        (
            "{ max_age = \"61s\" }",
            "prefetch.max_age: got \"61s\", expected 10 ms to 60 s".to_owned(),
        ),
        (
            "{ maxage = \"1s\" }",
            "prefetch.maxage: is not a field here, expected one of share, max_age".to_owned(),
        ),
    ] {
        assert_eq!(
            refusal_of(&format!("prefetch = {prefetch}")),
            format!("line 4: policy \"client\": {refused}")
        );
    }
    for (other, name) in [
        ("max_wait = \"2s\"", "max_wait"),
        ("count_status = 401", "count_status"),
        ("count_grpc_status = 16", "count_grpc_status"),
        (
            "penalty = { denials = 10, within = \"15min\", ban = \"1h\" }",
            "penalty",
        ),
    ] {
        assert_eq!(
            refusal_of(&format!("prefetch = true\n{other}")),
            format!(
                "line 4: policy \"client\": prefetch: {name} needs the store for each request, \
                 leave one of the two out"
            )
        );
    }
    let text = "store = \"memory\"\n[[policy]]\nname = \"client\"\nkey = \"peer\"\n\
                algorithm = \"sliding-log\"\nlimit = \"20/s\"\nprefetch = true\n";
    assert_eq!(
        refusal(text),
        "line 7: policy \"client\": prefetch: is an option of gcra, token-bucket, fixed-window \
         and a leaky-bucket without delay"
    );
}

#[test]
fn statuses_that_count_are_one_or_a_list() {
    accepts("count_status = 401");
    accepts("count_status = [100, 599]");
    let expected = "expected a status from 100 to 599, such as 401, or a list of statuses";
    for (given, text) in [
        ("99", "99"),
        ("600", "600"),
        ("4010000", "4010000"),
        ("-401", "-401"),
        ("\"401\"", "\"401\""),
        ("[\"4xx\"]", "\"4xx\""),
        ("[[401]]", "a list"),
    ] {
        assert_eq!(
            refusal_of(&format!("count_status = {given}")),
            format!("line 4: policy \"client\": count_status: got {text}, {expected}")
        );
    }
    assert_eq!(
        refusal_of("count_status = [\n  401,\n  40,\n]"),
        format!("line 6: policy \"client\": count_status: got 40, {expected}")
    );
    assert_eq!(
        refusal_of("count_status = []"),
        "line 4: policy \"client\": count_status: the list is empty, so no request would count; \
         leave the field out for every request"
    );
}

#[test]
fn grpc_statuses_that_count_are_one_or_a_list() {
    accepts("count_grpc_status = 1");
    accepts("count_grpc_status = [7, 16]");
    accepts("count_status = 401\ncount_grpc_status = 16");
    let expected = "expected a gRPC status from 1 to 16, such as 16 for UNAUTHENTICATED, or a list of \
         statuses";
    for (given, text) in [
        ("0", "0"),
        ("17", "17"),
        ("401", "401"),
        ("\"UNAUTHENTICATED\"", "\"UNAUTHENTICATED\""),
        ("[[16]]", "a list"),
    ] {
        assert_eq!(
            refusal_of(&format!("count_grpc_status = {given}")),
            format!("line 4: policy \"client\": count_grpc_status: got {text}, {expected}")
        );
    }
    assert_eq!(
        refusal_of("count_grpc_status = []"),
        "line 4: policy \"client\": count_grpc_status: the list is empty, so no request would \
         count; leave the field out for every request"
    );
}

#[test]
fn a_share_for_which_a_policy_is_enforced_is_in_whole_percent() {
    for share in ["0%", "5%", "100%"] {
        accepts(&format!("enforce = \"{share}\""));
    }
    let expected = "expected a share of the keys, \"0%\" to \"100%\"";
    for (given, text) in [("5", "5"), ("\"5\"", "\"5\""), ("\"101%\"", "\"101%\"")] {
        assert_eq!(
            refusal_of(&format!("enforce = {given}")),
            format!("line 4: policy \"client\": enforce: got {text}, {expected}")
        );
    }
}

#[test]
fn a_meter_settles_alone_and_by_a_name_that_is_not_empty() {
    accepts("settle = \"meter\"");
    accepts("settle = \"meter:cents\"");
    let expected = "expected \"meter\", or \"meter:<name>\" for the meter of a name";
    for (given, text) in [
        ("1", "1"),
        ("\"meters\"", "\"meters\""),
        ("\"meter:\"", "\"meter:\""),
    ] {
        assert_eq!(
            refusal_of(&format!("settle = {given}")),
            format!("line 4: policy \"client\": settle: got {text}, {expected}")
        );
    }
    assert_eq!(
        refusal_of("settle = \"meter\"\ncount_status = 401"),
        "line 4: policy \"client\": settle: a policy counts by the status of its responses or by a \
         meter, leave one of them out"
    );
    assert_eq!(
        refusal_of("settle = \"meter\"\nprefetch = true"),
        "line 5: policy \"client\": prefetch: settle needs the store for each request, leave one of \
         the two out"
    );
}

#[test]
fn a_response_settles_nothing_of_what_is_held_until_it_ends() {
    for (field, name) in [
        ("settle = \"meter\"", "settle"),
        ("count_status = 401", "count_status"),
        ("count_grpc_status = 16", "count_grpc_status"),
    ] {
        let text = format!(
            "store = \"memory\"\n[[policy]]\nname = \"client\"\nkey = \"peer\"\n\
             algorithm = \"concurrency\"\nlimit = 20\n{field}\n"
        );
        assert_eq!(
            refusal(&text),
            format!(
                "line 7: policy \"client\": {name}: a concurrency limit gets its permits back \
                 when the request ends, so there is nothing to settle, leave it out"
            )
        );
    }
}

/// How many of ten requests pass without a store.
async fn allowed_without_store(head: &str, policy: &str) -> usize {
    let port = support::redis::free_port();
    let config = read(&format!(
        "store = \"redis://127.0.0.1:{port}\"\ntimeout = \"60s\"\n{head}\n[[policy]]\n\
         name = \"client\"\nkey = \"peer\"\nalgorithm = \"fixed-window\"\nlimit = \"8/day\"\n{policy}\n"
    ));
    let limiter = config.connect_lazy().unwrap();
    let mut allowed = 0;
    for _ in 0..10 {
        let decision = limiter.check("client", "somebody").await.unwrap();
        allowed += usize::from(decision.is_allowed());
    }
    allowed
}

#[tokio::test]
async fn a_policy_without_a_store_follows_its_or_the_files_mode() {
    let [allow, deny, quarter, whole] =
        ["\"allow\"", "\"deny\"", "{ local = 0.25 }", "{ local = 1 }"]
            .map(|mode| format!("on_store_failure = {mode}"));
    for (file, policy, allowed) in [
        ("", "", 10),
        (&*allow, "", 10),
        (&deny, "", 0),
        (&quarter, "", 2),
        (&deny, &*allow, 10),
        (&deny, &quarter, 2),
        (&quarter, &whole, 8),
        (&allow, &deny, 0),
    ] {
        let passed = allowed_without_store(file, policy).await;
        assert_eq!(passed, allowed, "{file}: {policy}");
    }
}

#[test]
fn a_failure_mode_that_makes_no_sense_is_refused() {
    let share = "expected a share of the limit, above 0 and at most 1";
    let word = "expected \"allow\", \"deny\", or a share of the limit for this process, such as { \
                local = 0.25 }";
    for (mode, refused) in [
        ("true", format!("on_store_failure: got true, {word}")),
        (
            "\"local\"",
            format!("on_store_failure: got \"local\", {word}"),
        ),
        (
            "{ local = 0 }",
            format!("on_store_failure.local: got 0, {share}"),
        ),
        (
            "{ local = 1.01 }",
            format!("on_store_failure.local: got 1.01, {share}"),
        ),
        (
            "{ local = -0.5 }",
            format!("on_store_failure.local: got -0.5, {share}"),
        ),
        (
            "{ local = nan }",
            format!("on_store_failure.local: got nan, {share}"),
        ),
        (
            "{ local = \"1/4\" }",
            format!("on_store_failure.local: got \"1/4\", {share}"),
        ),
        (
            "{}",
            "on_store_failure.local: is missing, write local = 0.25".to_owned(),
        ),
        (
            "{ share = 0.25 }",
            "on_store_failure.share: is not a field here, expected one of local".to_owned(),
        ),
    ] {
        assert_eq!(
            refusal_of(&format!("on_store_failure = {mode}")),
            format!("line 4: policy \"client\": {refused}")
        );
        let text = format!("store = \"memory\"\non_store_failure = {mode}\n");
        assert_eq!(refusal(&text), format!("line 2: {refused}"));
    }
}

#[tokio::test]
async fn a_policy_shows_whom_it_denies_only_if_the_file_says_so() {
    for (field, shown) in [
        ("", None),
        ("show_subject = false", None),
        ("show_subject = true", Some("alice")),
    ] {
        let top = tower_throttle::TopDenied::new(1);
        let config = read(&with_field(&format!("key = \"user\"\n{field}"))).observe(top.clone());
        let limiter = config.connect_lazy().unwrap();
        for _ in 0..101 {
            let alice = tower_throttle::UserId::new("alice");
            let _ = limiter.check("client", alice).await.unwrap();
        }
        assert_eq!(top.list()[0].shown_subject.as_deref(), shown, "{field}");
    }
}
