//! Scripts, which are sent by their digest; and those of questions, composed of the parts of
//! algorithms.

use std::borrow::Cow;

use redis::Cmd;

mod composed;
mod question;

#[cfg(test)]
pub(super) use self::composed::commands;
pub(super) use self::composed::{Composed, queue_script};
pub(super) use self::question::{Question, Row};

/// A script and its digest.
pub(super) struct Script {
    text: Cow<'static, str>,
    digest: String,
}

impl Script {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self {
            digest: redis::Script::new(&text).get_hash().to_owned(),
            text,
        }
    }
}

/// A question that is asked by running a script.
pub(super) trait Scripted: Send + Sync {
    fn script(&self) -> &Script;

    /// The command that runs the script, given by its digest or its text.
    fn command(&self, verb: &str, script: &str) -> Cmd;

    /// Runs the script if the server remembers it.
    fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script().digest)
    }

    /// Runs the script and makes the server remember it, in one round trip.
    fn with_text(&self) -> Cmd {
        self.command("EVAL", &self.script().text)
    }

    /// What follows the script in the command: the number of keys, the keys, the arguments.
    #[cfg(test)]
    fn arguments(&self) -> Vec<Vec<u8>> {
        let command = self.by_digest();
        let arguments = command.args_iter().map(|argument| match argument {
            redis::Arg::Simple(bytes) => bytes.to_vec(),
            _ => panic!("no cursors"),
        });
        arguments.skip(2).collect()
    }

    /// The same as texts, if all of them are.
    #[cfg(test)]
    fn texts(&self) -> Vec<String> {
        let arguments = self.arguments().into_iter();
        arguments
            .map(|text| String::from_utf8(text).unwrap())
            .collect()
    }
}
