use super::*;
use crate::algorithm::{Acquire, Action, Algorithm, LeaseId, Penalty, Wait};
use crate::decision::Receipt;
use crate::limit::{Limit, per_second};
use crate::store::redis::question::TEXTS;
use crate::store::redis::self_test;
use crate::time::{Micros, SECOND};

mod dialect;
mod keys;

fn every_text() -> impl Iterator<Item = &'static str> {
    let sources = SOURCES.iter().map(|source| source.text);
    sources
        .chain([DEBT, BEFORE])
        .chain(BEHIND)
        .chain(TEXTS)
        .chain([self_test::TEXT])
}

fn is_header(line: &&str) -> bool {
    line.starts_with("--")
}

fn text_of(positions: &[usize]) -> &'static str {
    let bits = positions
        .iter()
        .fold(0, |bits, position| bits | 1 << position);
    &Parts(bits).script().script.text
}

/// The numbers `n` of every `ARGV[at + n]` in some lines, sorted and distinct.
fn arguments_in<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let mut numbers: Vec<usize> = lines
        .flat_map(|line| line.split("ARGV[at + ").skip(1))
        .filter_map(|rest| rest.split(']').next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The indices in every `ARGV[index]` in some lines, sorted and distinct.
fn indices_in<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut indices: Vec<_> = lines
        .flat_map(|line| line.split("ARGV[").skip(1))
        .filter_map(|rest| rest.split(']').next())
        .collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

fn every_limit() -> [Limit; 8] {
    [
        Limit::gcra(10, SECOND),
        Limit::token_bucket(10, per_second(1)),
        Limit::leaky_bucket(10, per_second(1)),
        Limit::fixed_window(10, SECOND),
        Limit::sliding_log(10, SECOND),
        Limit::sliding_window(10, SECOND),
        Limit::sliding_counter(10, SECOND),
        Limit::concurrency(10),
    ]
}

#[test]
fn a_question_about_one_algorithm_sends_the_smallest_script() {
    for (position, source) in SOURCES.iter().enumerate() {
        let text = text_of(&[position]);
        for other in &SOURCES {
            let function = format!("local function {}(", other.name);
            assert_eq!(text.contains(&function), other.name == source.name);
        }
        let all: Vec<_> = (0..SOURCES.len()).collect();
        assert!(text.len() < text_of(&all).len());
    }
}

#[test]
fn documented_arguments_are_those_that_the_script_uses_and_that_are_sent() {
    for source in &SOURCES {
        let documented = arguments_in(source.text.lines().filter(is_header));
        let lines = source.builds_on.lines().chain(source.text.lines());
        let used = arguments_in(lines.filter(|line| !is_header(line)));
        let all: Vec<_> = (1..=source.arguments).collect();
        assert_eq!(documented, all, "header of {}", source.name);
        assert_eq!(used, all, "body of {}", source.name);
    }
    let [documented, used] = [true, false].map(|wanted| {
        let lines = DEBT.lines();
        arguments_in(lines.filter(|line| is_header(line) == wanted))
    });
    assert_eq!(documented, used, "debt");
    // Rows have no fixed place.
    let texts = TEXTS.into_iter().filter(|text| !text.contains("ARGV[row"));
    for text in texts.chain([self_test::TEXT]) {
        let [documented, used] = [true, false].map(|wanted| {
            let lines = text.lines().filter(|line| is_header(line) == wanted);
            indices_in(lines)
        });
        assert_eq!(documented, used, "{text}");
    }
}

#[test]
fn documented_verbs_are_those_that_are_sent() {
    let (permits, receipt) = (1, Receipt::default());
    let borrowing = Action::Acquire(Acquire {
        cost: permits,
        wait: Wait::Burst(Micros::ZERO),
        lease: None,
        is_final: false,
        takes_fewer: false,
    });
    // All except a reset, which is carried out before an algorithm is asked.
    let counting = [
        Action::acquire(permits),
        borrowing,
        Action::Charge(permits),
        Action::Hold {
            time: Micros::ZERO,
            permits,
        },
        Action::Credit {
            permits,
            taken_at: None,
        },
        Action::Refund { permits, receipt },
        Action::Cancel { permits, receipt },
        Action::Withdraw { permits, receipt },
    ];
    let leasing = [Action::Renew, Action::Release].map(|action| action(LeaseId::new()));
    for limit in every_limit() {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        let source = &SOURCES[usize::from(algorithm.number())];
        let leasing = leasing.iter().filter(|_| algorithm.lease().is_some());
        let actions = counting.iter().chain(leasing);
        let mut sent: Vec<_> = actions.map(|action| algorithm.verb(action)).collect();
        sent.dedup();
        for text in [source.text, source.builds_on] {
            let documented = text.lines().find_map(|line| line.split_once(" verb "));
            if let Some((_, documented)) = documented {
                assert_eq!(documented.trim(), sent.join(" | "), "{}", source.name);
            }
        }
        assert!(source.text.contains(" verb "), "{}", source.name);
    }
}

#[test]
fn every_script_has_the_whole_header_and_mirrors_a_file_that_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for text in every_text() {
        // A text that calls no command has no keys.
        let own: &[&str] = match text.contains("call(\"") && text != BEFORE {
            true => &["-- KEYS[", "-- Writes ", "-- Returns "],
            false => &[],
        };
        for field in own {
            assert!(text.contains(field), "{field:?} is missing in:\n{text}");
        }
        if text == self_test::TEXT {
            // It decides nothing.
            continue;
        }
        if text == BEFORE {
            continue;
        }
        assert!(
            !text.contains("ARGV[") || text.contains("-- ARGV["),
            "no arguments are explained in:\n{text}"
        );
        assert!(text.contains("-- Mirrors "), "{text}");
        let mirrored = text.split("-- Mirrors ").nth(1).unwrap();
        let mirrored = mirrored.lines().next().unwrap().trim();
        assert!(root.join(mirrored).exists(), "{mirrored} does not exist");
    }
}

#[test]
fn documented_rights_are_those_that_the_scripts_need() {
    let of_the_type = include_str!("../../../mod.rs")
        .split_once("the store's user needs\n///\n/// ```text\n/// ~{prefix}:* +eval +evalsha ");
    let of_the_guide = include_str!("../../../../../../docs/redis.md")
        .split_once("ACL SETUSER limiter on >secret ~throttle:* +eval +evalsha ");
    for documented in [of_the_type, of_the_guide] {
        let (_, rights) = documented.unwrap();
        let (rights, _) = rights.split_once("```").unwrap();
        let mut documented: Vec<_> = rights
            .split_whitespace()
            .filter_map(|right| right.strip_prefix('+'))
            .collect();
        documented.sort_unstable();
        assert_eq!(documented, commands());
    }
}

/// A crash between two commands would leave out an expiry set by the second. A key whose expiry
/// does not change keeps it.
#[test]
fn every_set_says_when_the_key_expires() {
    let sets = |text: &'static str| text.lines().filter(|line| line.contains("(\"SET\""));
    let sets: Vec<_> = every_text().flat_map(sets).collect();
    assert!(sets.len() >= 5, "found only {}", sets.len());
    let says = |line: &&str| line.contains("\"PXAT\"") || line.contains("\"KEEPTTL\"");
    assert!(sets.iter().all(says), "{sets:#?}");
}

#[test]
fn every_algorithm_has_a_script_at_its_number() {
    let penalty = Penalty::after(1, SECOND, SECOND);
    let algorithms: Vec<_> = every_limit()
        .iter()
        .map(|limit| Algorithm::try_from(limit).unwrap())
        .chain([Algorithm::try_from(&penalty).unwrap()])
        .collect();
    assert_eq!(algorithms.len(), SOURCES.len());
    for algorithm in algorithms {
        let source = &SOURCES[usize::from(algorithm.number())];
        assert_eq!(algorithm.name(), source.name);
    }
}
