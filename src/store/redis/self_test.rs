//! The self-test at start-up: a script that calls every command that the scripts call.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::keys::Prefix;
use super::script::{Script, Scripted};
use crate::error::{StoreError, StoreErrorKind};
use crate::one_line::OneLine;

pub(super) const TEXT: &str = include_str!("../../../lua/self_test.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// The keys of the test's script call.
pub(super) struct SelfTest(Vec<String>);

impl SelfTest {
    /// For a single server. A node of a cluster refuses a question about two slots, whichever of
    /// them it serves.
    pub(super) fn of_server(prefix: &Prefix) -> Self {
        Self(["a", "b"].map(|tag| prefix.own_key(tag)).into())
    }

    /// For the node of a cluster that has the slot of this tag.
    pub(super) fn of_node(prefix: &Prefix, tag: &str) -> Self {
        Self(vec![prefix.own_key(tag)])
    }

    /// # Errors
    ///
    /// Names the commands that are denied.
    pub(super) fn read(reply: &Value) -> Result<(), StoreError> {
        let denied: Vec<String> = redis::from_redis_value_ref(reply)
            .map_err(|error| StoreError::with_source(StoreErrorKind::BadReply, OneLine(error)))?;
        if denied.is_empty() {
            return Ok(());
        }
        let rights: Vec<_> = denied.iter().map(|command| format!("+{command}")).collect();
        Err(StoreError::with_source(
            StoreErrorKind::Configuration,
            format!(
                "the server's user may not call {}: grant it {} and the other permissions that \
                the documentation of RedisStore lists",
                OneLine(denied.join(", ")),
                OneLine(rights.join(" "))
            ),
        ))
    }
}

impl Scripted for SelfTest {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.0.len()).arg(&self.0);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::script::commands;

    #[test]
    fn the_self_test_tries_every_command_that_the_scripts_call() {
        let calls = TEXT.split("try(\"").skip(1);
        let mut tried: Vec<_> = calls
            .filter_map(|call| Some(call.split_once('"')?.0.to_lowercase()))
            .collect();
        tried.sort_unstable();
        assert_eq!(tried, commands());
    }
}
