//! Scripts touch no undeclared key, and read the clock once.

use super::*;

/// What stands for one key or several: `missing` are some of KEYS, `s` is a number of one.
const KEYS: [&str; 6] = [
    "key",
    "KEYS[1]",
    "KEYS[at]",
    "KEYS[s]",
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
    assert!(touched > 40, "found only {touched}");
}

#[test]
fn scripts_read_the_clock_once() {
    for source in &SOURCES {
        assert_eq!(readings_in(source.text), 0, "{}", source.name);
        assert_eq!(readings_in(source.builds_on), 0, "{}", source.name);
    }
    assert_eq!(readings_in(BEFORE), 1);
    for text in BEHIND {
        assert_eq!(readings_in(text), 0, "{text}");
    }
    for text in [self_test::TEXT].into_iter().chain(TEXTS) {
        assert_eq!(readings_in(text), 1, "{text}");
    }
}

fn readings_in(text: &str) -> usize {
    calls(text)
        .filter(|(command, _)| *command == "TIME")
        .count()
}
