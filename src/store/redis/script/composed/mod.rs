//! The composed scripts: the parts of the algorithms involved, and the parts that combine their
//! readings.

use std::fmt::Write;
use std::sync::OnceLock;

use super::Script;
use crate::algorithm::MOST_ARGUMENTS;
use crate::store::Check;

/// An algorithm's script: its function's name, its text and the text that it is built on, and the
/// number of its arguments, including the verb.
struct Source {
    name: &'static str,
    text: &'static str,
    builds_on: &'static str,
    arguments: usize,
}

/// The text of a file in `lua/`.
macro_rules! text {
    ($stem:literal) => {
        include_str!(concat!("../../../../../lua/", $stem, ".lua"))
    };
}

/// The source of the algorithm of this name.
macro_rules! source {
    ($name:literal, $builds_on:expr, $arguments:literal) => {
        Source {
            name: $name,
            text: text!($name),
            builds_on: $builds_on,
            arguments: $arguments,
        }
    };
}

const DEBT: &str = text!("debt");

/// Indexed by the number of the algorithm.
const SOURCES: [Source; 9] = [
    source!("gcra", DEBT, 7),
    source!("token_bucket", DEBT, 7),
    source!("leaky_bucket", DEBT, 8),
    source!("fixed_window", "", 8),
    source!("sliding_log", "", 5),
    source!("sliding_window", "", 6),
    source!("sliding_counter", "", 5),
    source!("concurrency", "", 5),
    source!("penalty", "", 6),
];

/// Before the algorithms: the time of the call.
const BEFORE: &str = text!("clock");
/// After the algorithms: the states, and the questions with one check. Then what a call defines only for other
/// questions: the records of groups, permits that are granted in part, one question, and all that are left.
const BEHIND: [&str; 6] = [
    text!("states"),
    text!("singles"),
    text!("record"),
    text!("up_to"),
    text!("decide"),
    text!("questions"),
];

/// The parts of a script: one bit for each of [`SOURCES`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) struct Parts(usize);

impl Parts {
    pub(in crate::store::redis) fn of(checks: &[Check<'_>]) -> Self {
        let bits = checks.iter().map(|check| 1 << check.algorithm.number());
        Self(bits.fold(0, |all, bit| all | bit))
    }

    pub(in crate::store::redis) fn number(self) -> u16 {
        self.0 as u16
    }

    fn sources(self) -> impl Iterator<Item = &'static Source> {
        let positions = (0..SOURCES.len()).filter(move |position| self.0 & (1 << position) != 0);
        positions.map(|position| &SOURCES[position])
    }

    /// The script for these questions, composed once in a process.
    pub(in crate::store::redis) fn script(self) -> &'static Composed {
        static SCRIPTS: [OnceLock<Composed>; 1 << SOURCES.len()] =
            [const { OnceLock::new() }; 1 << SOURCES.len()];
        SCRIPTS[self.0].get_or_init(|| Composed::of(self))
    }
}

/// A composed script.
pub(in crate::store::redis) struct Composed {
    pub(in crate::store::redis) script: Script,
    /// The number of arguments of each check, including the algorithm's name and the id.
    pub(in crate::store::redis) stride: usize,
}

impl Composed {
    fn of(parts: Parts) -> Self {
        let arguments = parts.sources().map(|source| source.arguments);
        let stride = 2 + arguments.max().unwrap_or(0);
        let mut text = BEFORE.to_owned();
        // Writing to a string never fails.
        let _ = writeln!(text, "local stride, question = {stride}, 0");
        for source in parts.sources() {
            if !text.contains(source.builds_on) {
                text.push_str(source.builds_on);
            }
            text.push_str(source.text);
        }
        let algorithms: Vec<_> = parts
            .sources()
            .map(|source| format!("{0} = {0}", source.name))
            .collect();
        let _ = writeln!(text, "local algorithms = {{{}}}", algorithms.join(", "));
        text.extend(BEHIND);
        Self {
            script: Script::new(text),
            stride,
        }
    }

    /// How many numbers a check has among its arguments: the algorithm's name and the verb precede
    /// them, the id follows.
    pub(in crate::store::redis) fn numbers(&self) -> usize {
        (self.stride - 3).min(MOST_ARGUMENTS)
    }
}

/// All commands that the scripts call, sorted, without duplicates.
#[cfg(test)]
pub(in crate::store::redis) fn commands() -> Vec<String> {
    use crate::store::redis::question::TEXTS;

    let texts = SOURCES
        .iter()
        .flat_map(|source| [source.builds_on, source.text]);
    let calls = texts
        .chain([BEFORE])
        .chain(BEHIND)
        .chain(TEXTS)
        .flat_map(|text| text.split("call(\"").skip(1));
    let mut commands: Vec<_> = calls
        .filter_map(|call| Some(call.split_once('"')?.0.to_lowercase()))
        .collect();
    commands.sort_unstable();
    commands.dedup();
    commands
}

#[cfg(test)]
mod tests;
