//! `algorithm = "calendar"`: months, weeks and days, and their options.

use super::algorithms::with_limit;
use super::{read, refusal};

#[cfg(feature = "calendar")]
#[test]
fn a_calendar_in_a_file_is_the_one_that_a_program_makes() {
    use tower_throttle::{Calendar, Limit, Policy, Rules, Weekday};

    let berlin = |calendar: Calendar| calendar.zone("Europe/Berlin").unwrap();
    for (fields, calendar) in [
        ("limit = \"5/month\"", Calendar::month()),
        ("limit = \"5/week\"", Calendar::week()),
        (
            "limit = \"5/day\"\nzone = \"europe/berlin\"",
            berlin(Calendar::day()),
        ),
        (
            "limit = \"5/month\"\nanchor = 31\nzone = \"Europe/Berlin\"",
            berlin(Calendar::month().anchor(31)),
        ),
        (
            "limit = \"5/week\"\nfirst_day = \"sunday\"",
            Calendar::week().first_day(Weekday::Sunday),
        ),
    ] {
        let config = read(&with_limit("calendar", fields));
        let limit = Limit::calendar(5, calendar);
        let rules = Rules::new([Policy::new("client", limit)]);
        let expected = format!("Config {{ rules: {rules:?}, .. }}");
        assert_eq!(format!("{config:?}"), expected, "{fields}");
    }
}

#[cfg(feature = "calendar")]
#[tokio::test]
async fn a_tier_has_the_calendar_of_its_policy() {
    let text = "limit = \"2/month\"\nzone = \"Europe/Berlin\"\nanchor = 15\n\
                tiers = [{ key = \"header:x-plan\", values = \"gold\", limit = \"1000000/month\" }]";
    let config = read(&with_limit("calendar", text));
    let limiter = config.connect().await.unwrap();
    for allowed in [true, true, false] {
        let decision = limiter.check("client", "somebody").await.unwrap();
        assert_eq!(decision.is_allowed(), allowed);
    }
}

#[cfg(feature = "calendar")]
#[test]
fn a_calendars_mistakes_are_refused_in_their_lines() {
    let zone =
        "expected a name of the IANA time-zone database, such as \"Europe/Berlin\", or \"UTC\"";
    for (fields, refused) in [
        (
            "zone = \"Mars/Olympus\"\nlimit = \"2/day\"",
            format!("zone: got \"Mars/Olympus\", {zone}"),
        ),
        (
            "zone = 1\nlimit = \"2/day\"",
            format!("zone: got 1, {zone}"),
        ),
        (
            "anchor = 0\nlimit = \"2/month\"",
            "anchor: got 0, expected a day of the month, 1 to 31".to_owned(),
        ),
        (
            "anchor = 32\nlimit = \"2/month\"",
            "anchor: got 32, expected a day of the month, 1 to 31".to_owned(),
        ),
        (
            "anchor = 3\nlimit = \"2/day\"",
            "anchor: is an option of limits a month".to_owned(),
        ),
        (
            "first_day = \"sunday\"\nlimit = \"2/month\"",
            "first_day: is an option of limits a week".to_owned(),
        ),
        (
            "first_day = \"Sunday\"\nlimit = \"2/week\"",
            "first_day: got \"Sunday\", expected one of \"monday\", \"tuesday\", \"wednesday\", \
             \"thursday\", \"friday\", \"saturday\", \"sunday\""
                .to_owned(),
        ),
        (
            "aligned = true\nlimit = \"2/day\"",
            "aligned: is an option of fixed-window".to_owned(),
        ),
    ] {
        let text = with_limit("calendar", fields);
        assert_eq!(
            refusal(&text),
            format!("line 7: policy \"client\": {refused}")
        );
    }
    for limit in [
        "\"2/min\"",
        "\"2/2month\"",
        "\"2/7day\"",
        "\"/month\"",
        "[\"2/day\", \"9/month\"]",
        "2",
    ] {
        let found = refusal(&with_limit("calendar", &format!("limit = {limit}")));
        assert!(
            found.starts_with("line 7: policy \"client\": limit: got "),
            "{found}"
        );
        assert!(found.contains("such as \"1000000/month\""), "{found}");
    }
    let found = refusal(&with_limit("gcra", "limit = \"2/month\""));
    assert!(found.contains("expected permits in a period"), "{found}");
}

#[cfg(not(feature = "calendar"))]
#[test]
fn a_calendar_is_refused_with_the_feature_that_it_needs() {
    let found = refusal(&with_limit("calendar", "limit = \"2/month\""));
    let refused = "algorithm: needs the feature \"calendar\" of tower-throttle";
    assert_eq!(found, format!("line 6: policy \"client\": {refused}"));
    let _ = read(&with_limit("gcra", "limit = \"2/min\""));
}
