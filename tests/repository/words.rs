//! The words of the field stand in the code, and none of a language of its own: a reader who knows tower, tokio and
//! redis needs no glossary. The names of tests are short.

use std::fs;
use std::path::Path;

use support::sources::files_in;

/// Where code stands.
const CODE: [&str; 8] = [
    "src",
    "lua",
    "tests",
    "examples",
    "benches",
    "fuzz/src",
    "fuzz/fuzz_targets",
    "comparison/src",
];

/// What each was called before it got the field's word.
const GONE: [(&str, &str); 44] = [
    ("Take", "Acquire"),
    ("Taken", "Charges"),
    ("Patience", "Wait"),
    ("UntilItFits", "Strict"),
    ("UntilPaid", "Burst"),
    ("Judged", "Conclusion"),
    ("Judging", "Evaluation"),
    ("Judges", "RateSet"),
    ("Unjudged", "RejectReason"),
    ("judge", "evaluate or decide"),
    ("judged", "evaluated or decided"),
    ("Refusal", "EarlyRejection"),
    ("Sentence", "Disposition"),
    ("ReadyPolicy", "CompiledPolicy"),
    ("ReadyRules", "CompiledRules"),
    ("ReadRequest", "ResolvedRequest"),
    ("Whose", "ResolvedKey"),
    ("Waitable", "WaitingPolicy"),
    ("Reserving", "PendingEvaluation"),
    ("Held", "Permit or LiveConnection"),
    ("SoundLimit", "ValidLimit"),
    ("unsound", "invalid"),
    ("FurtherRate", "ExtraRate"),
    ("Noted", "CacheTicket"),
    ("Forgetting", "Invalidation"),
    ("Known", "LaterVerdict"),
    ("Claim", "LeaderClaim"),
    ("Duty", "LeaderLock"),
    ("Lane", "ReconnectingConnection"),
    ("lane", "connection"),
    ("Signs", "Health"),
    ("signs", "health"),
    ("Silence", "NodeDown"),
    ("Listening", "HealthCheck"),
    ("Scatter", "KeyedHash"),
    ("Spread", "ShardedArc"),
    ("Warned", "LogThrottle"),
    ("UnderWay", "InFlightWork"),
    ("OnItsWay", "InFlightGuard"),
    ("go_on", "spawn_polled"),
    ("begun", "poll_once"),
    ("caught", "catch_panic"),
    ("ForeignValue", "CorruptValue"),
    ("by_policy", "per_policy"),
];

#[test]
fn the_fields_words_stand_in_the_code() {
    let left = in_all_code(words_left);
    assert!(left.is_empty(), "\n{}\n", left.join("\n"));
}

#[test]
fn no_name_of_a_test_is_longer_than_70_characters() {
    let too_long = in_all_code(long_names);
    assert!(too_long.is_empty(), "\n{}\n", too_long.join("\n"));
}

#[test]
fn a_word_is_found_in_code_but_not_in_a_sentence() {
    let found = |text: &str| words_left(text).len();
    assert_eq!(found("let lane = 1;"), 1);
    assert_eq!(found("struct Lane(Signs);\n"), 2);
    assert_eq!(found("// Who is in the left lane.\nlet lanes = 2;"), 0);
    let quoting = |text: &str| found(&text.replace('\'', "\""));
    assert_eq!(quoting("say('has begun'); // and go_on"), 0);
    assert_eq!(quoting("say('has begun') -- and go_on"), 0);
}

/// The words that are left in a text's code, each with its line and the field's word for it.
fn words_left(text: &str) -> Vec<(usize, String)> {
    let mut left = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let code = code.split("--").next().unwrap_or_default();
        // Every other piece is in quotes.
        let code = code.split('"').step_by(2);
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let words = code.flat_map(|piece| piece.split(move |letter| !is_word(letter)));
        for word in words {
            if let Some((gone, now)) = GONE.iter().find(|(gone, _)| *gone == word) {
                left.push((nth + 1, format!("{gone} is now {now}")));
            }
        }
    }
    left
}

/// The names of functions that are too long, each with its line.
fn long_names(text: &str) -> Vec<(usize, String)> {
    let lines = (1..).zip(text.lines());
    let names = lines.filter_map(|(number, line)| {
        let (_, name) = line.split_once("fn ")?;
        let end = name.find(['(', '<']).unwrap_or(name.len());
        Some((number, name[..end].to_owned()))
    });
    names
        .filter(|(_, name)| name.len() > 70 && !name.contains(' '))
        .collect()
}

/// What is found in all files of code, each with its place.
fn in_all_code(find: impl Fn(&str) -> Vec<(usize, String)>) -> Vec<String> {
    let mut all = Vec::new();
    for directory in CODE {
        let files = files_in(&Path::new(support::ROOT).join(directory));
        assert!(!files.is_empty(), "{directory}");
        for file in files {
            for (line, found) in find(&fs::read_to_string(&file).unwrap()) {
                all.push(format!("{}:{line}: {found}", file.display()));
            }
        }
    }
    all
}
