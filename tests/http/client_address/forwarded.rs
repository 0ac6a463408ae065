//! `Forwarded` (RFC 7239): pairs, quotes, and quotes left open.

use super::*;

#[test]
fn forwarded_is_read_with_its_quotes() {
    let network = || client("2001:db8:1::");
    assert_rows(
        &forwarded(),
        "forwarded",
        &[
            (&["for=203.0.113.9"], client("203.0.113.9")),
            (&["For=1.1.1.1, FOR=203.0.113.9"], client("203.0.113.9")),
            (&["for=1.1.1.1", "for=203.0.113.9"], client("203.0.113.9")),
            (&["for=203.0.113.9, for=10.0.0.7"], client("203.0.113.9")),
            (&[r#"for=1.1.1.1, For="[2001:db8:1::7]:4711""#], network()),
            (&[r#"for="[2001:db8:1::7]""#], network()),
            (&[r#"for="203.0.113.9:80""#], client("203.0.113.9")),
            (&[r#"for="203.0.113.9:_web""#], client("203.0.113.9")),
            (&[r#"for="[2001:db8:1::7]:_web.1""#], network()),
            (&[r#"for="203.0.113\.9""#], client("203.0.113.9")),
            (&[r#"for="\[2001:db8:1::7\]""#], network()),
            (
                &["for=203.0.113.9;proto=https;by=10.0.0.5"],
                client("203.0.113.9"),
            ),
            (
                &["proto=https; by=10.0.0.5 ;\tfor=203.0.113.9"],
                client("203.0.113.9"),
            ),
            (&[";for=203.0.113.9;;"], client("203.0.113.9")),
            (
                &["for=203.0.113.9;host=example.org:8080"],
                client("203.0.113.9"),
            ),
            (
                &[r#"for=203.0.113.9;host="a, for=1.1.1.1;for=2.2.2.2""#],
                client("203.0.113.9"),
            ),
            (
                &[r#"host="a\", for=1.1.1.1, b=\"";for=203.0.113.9"#],
                client("203.0.113.9"),
            ),
            (&[r#"host="a\\";for=203.0.113.9"#], client("203.0.113.9")),
            (
                &[r#"for=203.0.113.9;x="", for=10.0.0.7;y="\"""#],
                client("203.0.113.9"),
            ),
            (&[", for=203.0.113.9, ,"], client("203.0.113.9")),
            (&["junk \\, for=203.0.113.9"], client("203.0.113.9")),
        ],
    );
}

#[test]
fn an_empty_or_malformed_forwarded_element_is_unattributed() {
    let nobody = || unattributed(PROXY);
    for element in [
        "for=unknown",
        "for=_hidden",
        "for=\"_hidden:80\"",
        "proto=https",
        "by=203.0.113.9",
        ";",
        "for",
        "for=",
        "for=\"\"",
        "for =203.0.113.9",
        "for= 203.0.113.9",
        "=203.0.113.9",
        "203.0.113.9",
        "xfor=203.0.113.9",
        "for=203.0.113.9 proto=https",
        "for==203.0.113.9",
        "for=203.0.113.9;for=203.0.113.9",
        "for=unknown;For=203.0.113.9",
        "for=203.0.113.9;FOR=\"unknown\"",
        "for=203.0.113.9;x",
        "for=203.0.113.9;x y=1",
        // RFC 7239, section 4: colons and brackets only in quotes.
        "for=203.0.113.9:80",
        "for=[2001:db8:1::7]",
        "for=2001:db8:1::7",
        "for=\"203.0.113.9",
        "for=203.0.113.9\"",
        "for=\"203.0.113.9\"x",
        "for=x\"203.0.113.9\"",
        "for=\"203.0.113.9\\\"",
        "for=\"203.0.113.9\"\"\"",
        "for=\" 203.0.113.9\"",
        "for='203.0.113.9'",
        "for=\"203.0.113.9:99999\"",
        "for=\"203.0.113.9:_\"",
        "for=\"203.0.113.9:80:_x\"",
        "for=\"0.0.0.0\"",
        "for=\"[::]\"",
        "for=\\203.0.113.9",
    ] {
        let lines = ["for=1.1.1.1", element];
        assert_rows(&forwarded(), "forwarded", &[(&lines, nobody())]);
        let line = format!("for=1.1.1.1, {element}");
        assert_rows(&forwarded(), "forwarded", &[(&[&line], nobody())]);
    }
}

#[test]
fn a_quote_left_open_is_unattributed_and_never_what_is_quoted() {
    let nobody = || unattributed(PROXY);
    assert_rows(
        &forwarded(),
        "forwarded",
        &[
            (&[r#"for="1.1.1.1, for=203.0.113.9"#], nobody()),
            (&[r#"x=", for=203.0.113.9"#], nobody()),
            (&[r#"", for=203.0.113.9"#], nobody()),
            (
                &[r#"for=1.1.1.1, x=", for="[2001:db8:1::7]:4711""#],
                nobody(),
            ),
            (
                &[r#"for=1.1.1.1;x=", for="203.0.113.9";host="a""#],
                nobody(),
            ),
            // The host that the client chose ends up outside of the quotes.
            (
                &[r#"x=", for="203.0.113.9";host=",for=1.1.1.1,y=""#],
                nobody(),
            ),
            (
                &[r#"x=", for="203.0.113.9";host=";for=1.1.1.1;y=\"""#],
                nobody(),
            ),
            (
                &[r#"x=", host=",y=\",for=1.1.1.1,z=\"";for=203.0.113.9"#],
                nobody(),
            ),
            (&[r#"x="\", for=203.0.113.9"#], nobody()),
            // A quote ends with its line.
            (
                &[r#"for="1.1.1.1"#, "for=203.0.113.9"],
                client("203.0.113.9"),
            ),
            (&["for=203.0.113.9", r#"for="10.0.0.7"#], nobody()),
            (&[r#"for="1.1.1.1"#, r#"for=203.0.113.9""#], nobody()),
            // What a later proxy has written on a line of its own still counts.
            (
                &[r#"x=", for=203.0.113.9"#, "for=10.0.0.7"],
                unattributed("10.0.0.7"),
            ),
        ],
    );
}
