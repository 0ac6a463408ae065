//! Which families a response gets, and how they combine with those of inner layers.

use super::*;

const ALL: QuotaHeaders = QuotaHeaders::DRAFT_11
    .and(QuotaHeaders::DRAFT_6)
    .and(QuotaHeaders::X_RATELIMIT_DELTA);

/// The names of the headers after this decision.
fn sent(headers: QuotaHeaders, decision: Decision) -> Vec<String> {
    let mut response = Response::new(());
    fields_at(0, headers, &[("api", decision)]).add_to(&mut response);
    let names = response.headers().keys();
    let mut names: Vec<_> = names.map(ToString::to_string).collect();
    names.sort();
    names
}

fn names(headers: QuotaHeaders) -> Vec<String> {
    let names = headers.names().into_iter();
    let mut names: Vec<_> = names.map(|name| name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn names_for_a_cors_layer_are_exactly_those_written() {
    let x_names = [
        "retry-after",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    for (headers, expected) in [
        (QuotaHeaders::NONE, &["retry-after"][..]),
        (
            QuotaHeaders::DRAFT_11,
            &["ratelimit", "ratelimit-policy", "retry-after"],
        ),
        (
            QuotaHeaders::DRAFT_6,
            &[
                "ratelimit-limit",
                "ratelimit-remaining",
                "ratelimit-reset",
                "retry-after",
            ],
        ),
        (QuotaHeaders::X_RATELIMIT_DELTA, &x_names),
        (QuotaHeaders::X_RATELIMIT_EPOCH.on_denials(), &x_names),
    ] {
        assert_eq!(names(headers), expected, "{headers:?}");
    }
    assert_eq!(ALL.names().len(), 9);
}

#[test]
fn the_headers_written_are_those_that_names_lists() {
    let decision = decided(Limit::gcra(5, SECOND), &[], 0, 1);
    for headers in [
        ALL,
        QuotaHeaders::NONE,
        QuotaHeaders::DRAFT_11,
        QuotaHeaders::DRAFT_6,
        QuotaHeaders::X_RATELIMIT_DELTA,
        QuotaHeaders::X_RATELIMIT_EPOCH,
        QuotaHeaders::DRAFT_6.and(QuotaHeaders::X_RATELIMIT_EPOCH),
    ] {
        let mut sent = sent(headers, decision);
        sent.push("retry-after".to_owned());
        sent.sort();
        assert_eq!(sent, names(headers), "{headers:?}");
    }
}

#[test]
fn each_family_is_written_always_or_on_denials() {
    let allowed = decided(Limit::gcra(5, SECOND), &[], 0, 1);
    let denied = decided(Limit::gcra(5, SECOND), &[5], 0, 1);
    assert_eq!(sent(ALL.on_denials(), allowed), [""; 0]);
    assert_eq!(sent(ALL.on_denials(), denied), sent(ALL, denied));

    let mixed = QuotaHeaders::DRAFT_11.and(QuotaHeaders::DRAFT_6.on_denials());
    assert_eq!(sent(mixed, allowed), ["ratelimit", "ratelimit-policy"]);
    assert_eq!(sent(mixed, denied).len(), 5);
}

#[test]
fn the_later_of_two_formats_of_one_header_holds() {
    let both = QuotaHeaders::X_RATELIMIT_DELTA.and(QuotaHeaders::X_RATELIMIT_EPOCH);
    assert_eq!(both, QuotaHeaders::X_RATELIMIT_EPOCH);
    let again = QuotaHeaders::DRAFT_11.on_denials().and(ALL);
    assert_eq!(again, ALL);
    assert_eq!(ALL.and(QuotaHeaders::NONE), ALL);
}

#[test]
fn lists_are_appended_to_those_of_a_layer_further_in() {
    let mut response = Response::new(());
    for name in ["inner", "outer"] {
        let decision = decided(Limit::gcra(5, SECOND), &[], 0, 1);
        fields_at(0, ALL, &[(name, decision)]).add_to(&mut response);
    }
    for (name, lines) in [
        (&POLICY, 2),
        (&QUOTA, 2),
        (&super::super::single_value::DRAFT_6[0], 1),
        (&super::super::single_value::X_RATELIMIT[0], 1),
    ] {
        assert_eq!(response.headers().get_all(name).iter().count(), lines);
    }
}
