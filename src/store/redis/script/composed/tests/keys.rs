//! Scripts touch no undeclared key, and read the clock once.

use super::*;

/// What stands for one key or several: `missing` are some of KEYS.
const KEYS: [&str; 5] = [
    "key",
    "KEYS[1]",
    "KEYS[at]",
    "unpack(KEYS)",
    "unpack(missing)",
];

/// Each command that a text calls, and the text after its name, from the first argument on.
fn calls(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let calls = ["call(\"", "try(\""].map(|begin| text.split(begin).skip(1));
    calls.into_iter().flatten().map(|call| {
        let (command, rest) = call.split_once('"').unwrap();
        (command, rest.strip_prefix(", "))
    })
}

#[test]
fn scripts_touch_no_key_that_is_not_declared() {
    let mut touched = 0;
    for text in every_text() {
        for (command, arguments) in calls(text).filter(|(command, _)| *command != "TIME") {
            let arguments = arguments.unwrap();
            let is_key = |key: &&str| {
                let rest = arguments.strip_prefix(*key);
                rest.is_some_and(|rest| rest.starts_with([',', ')']))
            };
            assert!(KEYS.iter().any(is_key), "{command}, {arguments}");
            touched += 1;
        }
    }
    assert!(touched > 50, "found only {touched}");
}

/// What a line declares `key` to be, if it does.
fn declared_as_key(line: &str) -> Option<&str> {
    let (names, values) = line.trim().strip_prefix("local ")?.split_once(" = ")?;
    let position = names.split(", ").position(|name| name == "key")?;
    values.split(", ").nth(position)
}

/// A parameter is passed on, and `keep` returns one of KEYS.
#[test]
fn every_key_that_a_script_calls_is_declared() {
    let mut declared = 0;
    for line in every_text().flat_map(str::lines) {
        if let Some(value) = declared_as_key(line) {
            let is_key = value.starts_with("KEYS[") || value.starts_with("keep(");
            assert!(is_key, "{line}");
            declared += 1;
        }
        if line.contains("missing[") {
            assert!(line.ends_with(", KEYS[at]"), "{line}");
        }
    }
    assert!(declared >= 5, "found only {declared}");
}

#[test]
fn scripts_read_the_clock_once() {
    for source in &SOURCES {
        assert_eq!(readings_in(source.text), 0, "{}", source.name);
        assert_eq!(readings_in(source.builds_on), 0, "{}", source.name);
    }
    for text in [DECIDE, SHADOW, QUESTIONS, QUEUE] {
        assert_eq!(readings_in(text), 0, "{text}");
    }
    for text in [self_test::TEXT].into_iter().chain(takes::TEXTS) {
        assert_eq!(readings_in(text), 1, "{text}");
    }
}

/// A question's instant may be that of a test's clock, but PTTL counts from the server's. The
/// command that returns the instant itself needs Redis 7.
#[test]
fn states_read_the_clock_again_for_the_expiry_of_a_key_and_nothing_else() {
    let (before, rest) = STATES
        .split_once("local function expiry_of_key(key)")
        .unwrap();
    let (of_key, behind) = rest.split_once("\nend\n").unwrap();
    assert_eq!([before, of_key, behind].map(readings_in), [1, 1, 0]);
    assert!(of_key.contains("\"PTTL\""));
}

fn readings_in(text: &str) -> usize {
    calls(text)
        .filter(|(command, _)| *command == "TIME")
        .count()
}
