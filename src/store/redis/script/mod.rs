//! Scripts, which are sent by their digest; and those of questions, composed of the parts of
//! algorithms.

use std::borrow::Cow;

use redis::Cmd;

mod composed;

#[cfg(test)]
pub(super) use self::composed::commands;
pub(super) use self::composed::{Composed, Parts};

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
}
