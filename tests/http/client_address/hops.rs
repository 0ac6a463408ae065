//! A number of trusted hops instead of their addresses.

use super::*;

#[test]
fn a_number_of_trusted_hops_counts_from_the_right() {
    assert_rows(
        &x_forwarded_for().trusted_hops(2),
        "x-forwarded-for",
        &[
            (&["1.1.1.1, 203.0.113.9, 10.0.0.7"], client("203.0.113.9")),
            (
                &["1.1.1.1, 203.0.113.9, 198.51.100.1"],
                client("203.0.113.9"),
            ),
            (
                &["1.1.1.1, 203.0.113.9", "", ",unknown,"],
                client("203.0.113.9"),
            ),
            (&["1.1.1.1, 10.0.0.8, 10.0.0.7"], client("10.0.0.8")),
            (&["1.1.1.1, unknown, 10.0.0.7"], unattributed("10.0.0.7")),
            (&["203.0.113.9"], unattributed("203.0.113.9")),
            (&["unknown"], unattributed(PROXY)),
            (&[], unattributed(PROXY)),
        ],
    );
    let one = (&["for=1.1.1.1, for=10.0.0.7"][..], client("10.0.0.7"));
    assert_rows(&forwarded().trusted_hops(1), "forwarded", &[one]);
}

#[test]
fn the_place_counts_entries_and_not_lines_or_commas() {
    let client = || client("203.0.113.9");
    assert_rows(
        &x_forwarded_for().trusted_hops(3),
        "x-forwarded-for",
        &[
            (&["203.0.113.9, a, b"], client()),
            (&["203.0.113.9", "a", "b"], client()),
            (&["1.1.1.1,203.0.113.9,,a, ,b,"], client()),
            (&["203.0.113.9:1, [::1]:2, 9.9.9.9"], client()),
            (&["203.0.113.9, 10.0.0.7, 10.0.0.8"], client()),
            (&["_x, 10.0.0.7, 10.0.0.8"], unattributed("10.0.0.7")),
            (&["1.1.1.1, a, 9.9.9.9, b"], unattributed("9.9.9.9")),
            (&["8.8.8.8, 9.9.9.9"], unattributed("8.8.8.8")),
            (&["a, b"], unattributed(PROXY)),
            (&["", ",,,"], unattributed(PROXY)),
        ],
    );
}

#[test]
fn the_last_place_is_the_sixty_fourth_entry() {
    let extractor = x_forwarded_for().trusted_hops(64);
    assert!(extractor.validate().is_ok());
    let read = |line: String| key(&extractor, &request(tcp(PROXY), "x-forwarded-for", &[line]));
    let nearer = vec!["9.9.9.9"; 63].join(",");
    assert!(read(format!("1.1.1.1,203.0.113.9,{nearer}")) == client("203.0.113.9"));
    // An empty entry is one of the 64 that are read.
    assert!(read(format!("203.0.113.9,{nearer},")) == unattributed("9.9.9.9"));
}

#[test]
fn forwarded_elements_without_an_address_are_hops_too() {
    assert_rows(
        &forwarded().trusted_hops(2),
        "forwarded",
        &[
            (
                &["for=1.1.1.1, for=203.0.113.9, for=unknown"],
                client("203.0.113.9"),
            ),
            (&["for=203.0.113.9, for=_hidden"], client("203.0.113.9")),
            (
                &["for=203.0.113.9, proto=https;by=_a"],
                client("203.0.113.9"),
            ),
            (
                &["for=203.0.113.9, for=1.1.1.1;for=2.2.2.2"],
                client("203.0.113.9"),
            ),
            (
                &["for=203.0.113.9;host=\"a,b\", for=10.0.0.7"],
                client("203.0.113.9"),
            ),
            (&["for=_hidden, for=10.0.0.7"], unattributed("10.0.0.7")),
            (&["for=10.0.0.7"], unattributed("10.0.0.7")),
        ],
    );
}

/// The client sends `for=6.6.6.6, x="`, and the two proxies append their elements.
#[test]
fn an_open_quote_never_selects_what_the_client_wrote() {
    let nobody = || unattributed(PROXY);
    for hops in 1..=4 {
        assert_rows(
            &forwarded().trusted_hops(hops),
            "forwarded",
            &[
                (
                    &["for=6.6.6.6, x=\", for=203.0.113.9, for=10.0.0.7"],
                    nobody(),
                ),
                (
                    &["for=6.6.6.6, \", for=203.0.113.9, for=10.0.0.7"],
                    nobody(),
                ),
                (&["for=6.6.6.6, for=\"1.1.1.1, for=203.0.113.9"], nobody()),
                (&["for=6.6.6.6", "x=\", for=203.0.113.9"], nobody()),
                (&["for=6.6.6.6, for=7.7.7.7, for 1.1.1.1"], nobody()),
            ],
        );
    }
}

#[test]
fn text_left_of_the_place_never_changes_the_key() {
    for left in [
        "6.6.6.6",
        "unknown",
        "\"",
        "for=\"",
        ",,,",
        "x=\"\\",
        "::1, \u{e9}",
    ] {
        for hops in [1, 2] {
            let extractor = x_forwarded_for().trusted_hops(hops);
            let line = format!("{left}, 203.0.113.9, 198.51.100.1");
            let found = key(&extractor, &request(tcp(PROXY), "x-forwarded-for", &[line]));
            assert!(
                found == client(["198.51.100.1", "203.0.113.9"][hops - 1]),
                "{left}"
            );
        }
    }
}
