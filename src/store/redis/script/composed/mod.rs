//! The composed scripts: the parts of the algorithms involved, and the parts that combine their
//! answers.

use std::fmt::Write;
use std::sync::OnceLock;

use super::Script;
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
    source!("gcra", DEBT, 8),
    source!("token_bucket", DEBT, 8),
    source!("leaky_bucket", DEBT, 9),
    source!("fixed_window", "", 7),
    source!("sliding_log", "", 5),
    source!("sliding_window", "", 6),
    source!("sliding_counter", "", 5),
    source!("concurrency", "", 5),
    source!("penalty", "", 6),
];

/// Reads and writes states.
const STATES: &str = text!("states");
const DECIDE: &str = text!("decide");
/// Checks in shadow, apart so that questions without them cost no more.
const SHADOW: &str = text!("shadow");
/// One or several questions, by either of these.
const QUESTIONS: &str = text!("questions");
/// Replaces all three for takes that share a trip.
const QUEUE: &str = text!("queue");

/// The parts of a script: one bit for each of [`SOURCES`], one for [`SHADOW`] and one for
/// [`QUEUE`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts(usize);

impl Parts {
    const IN_SHADOW: usize = 1 << SOURCES.len();
    const IN_A_QUEUE: usize = 2 << SOURCES.len();

    pub(super) fn of(checks: &[Check<'_>]) -> Self {
        let bits = |check: &Check<'_>| {
            let algorithm = 1 << check.algorithm.number();
            algorithm | if check.is_shadow { Self::IN_SHADOW } else { 0 }
        };
        Self(checks.iter().fold(0, |all, check| all | bits(check)))
    }

    /// The parts that combine the checks.
    fn deciding(self) -> &'static [&'static str] {
        if self.0 & Self::IN_A_QUEUE != 0 {
            &[QUEUE]
        } else if self.0 & Self::IN_SHADOW != 0 {
            &[SHADOW, QUESTIONS]
        } else {
            &[DECIDE, QUESTIONS]
        }
    }

    /// Whether the script has to know which checks are about the same limit.
    pub(super) fn tell_rates_apart(self) -> bool {
        let has_penalty = self.sources().any(|source| source.name == "penalty");
        has_penalty || self.0 & Self::IN_SHADOW != 0
    }

    pub(super) fn number(self) -> u16 {
        self.0 as u16
    }

    fn sources(self) -> impl Iterator<Item = &'static Source> {
        let used = move |position: usize| self.0 & (1 << position) != 0;
        let positions = (0..SOURCES.len()).filter(move |&position| used(position));
        positions.map(|position| &SOURCES[position])
    }

    /// The script for these questions, composed once in a process.
    pub(super) fn script(self) -> &'static Composed {
        static SCRIPTS: [OnceLock<Composed>; 4 << SOURCES.len()] =
            [const { OnceLock::new() }; 4 << SOURCES.len()];
        SCRIPTS[self.0].get_or_init(|| Composed::of(self))
    }
}

/// The script for takes of one key that share a trip.
pub(in crate::store::redis) fn queue_script(check: &Check<'_>) -> &'static Composed {
    Parts(Parts::of(&[*check]).0 | Parts::IN_A_QUEUE).script()
}

/// A composed script.
pub(in crate::store::redis) struct Composed {
    pub(in crate::store::redis) script: Script,
    /// The number of arguments of each check, including the algorithm's name and the field.
    pub(in crate::store::redis) stride: usize,
}

impl Composed {
    fn of(parts: Parts) -> Self {
        let stride = 2 + parts
            .sources()
            .map(|source| source.arguments)
            .max()
            .unwrap_or(0);
        let mut text = format!("local stride = {stride}\n");
        for source in parts.sources() {
            if !text.contains(source.builds_on) {
                text.push_str(source.builds_on);
            }
            text.push_str(source.text);
        }
        let judges: Vec<_> = parts
            .sources()
            .map(|source| format!("{0} = {0}", source.name))
            .collect();
        // Writing to a string never fails.
        let _ = writeln!(text, "local judges = {{{}}}", judges.join(", "));
        text.push_str(STATES);
        for source in parts.sources().filter(|_| parts.tell_rates_apart()) {
            let further = format!("[\"+{}\"]", source.name);
            let name = source.name;
            let _ = writeln!(
                text,
                "judges{further}, own_type{further} = {name}, own_type.{name}"
            );
        }
        text.extend(parts.deciding().iter().copied());
        Self {
            script: Script::new(text),
            stride,
        }
    }
}

/// All commands that the scripts call, sorted, without duplicates.
#[cfg(test)]
pub(in crate::store::redis) fn commands() -> Vec<String> {
    use crate::store::redis::takes;

    let texts = SOURCES
        .iter()
        .flat_map(|source| [source.builds_on, source.text]);
    let calls = texts
        .chain([STATES, DECIDE, SHADOW, QUESTIONS, QUEUE])
        .chain(takes::TEXTS)
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
