//! `Mode`: whether a policy limits, only counts, or is switched off.

use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;
use crate::labels::labels;

/// Whether a policy limits, only counts, or does nothing.
///
/// [`Limiter::set_mode`](crate::Limiter::set_mode) changes it while the limiter is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Requests that do not fit are denied.
    #[default]
    Enforce,
    /// Requests are counted as if they were limited, and none is ever denied or held up: to see
    /// what a limit would do before it does. Observers are told, clients are not.
    ///
    /// What would have to wait, in a queue or by [`Policy::max_wait`](crate::Policy::max_wait), is
    /// told as what would be [denied](crate::Outcome::ShadowDenied), and not counted: nobody waits for
    /// it when the policy is enforced, and it brings no ban.
    Shadow,
    /// Nothing is counted and nothing is denied. Nor is the key read: who is
    /// [refused](crate::Rules::deny) by a key passes where only policies that are off have such keys.
    Off,
}

labels! {
    /// The word for it in configuration files, metrics and logs.
    Mode {
        Enforce = "enforce",
        Shadow = "shadow",
        Off = "off",
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Of the word that [`as_str`](Mode::as_str) gives.
impl FromStr for Mode {
    type Err = ConfigError;

    fn from_str(word: &str) -> Result<Self, ConfigError> {
        let mut modes = Self::ALL.iter().copied();
        modes.find(|mode| mode.as_str() == word).ok_or_else(|| {
            ConfigError::out_of_range(
                "mode",
                format_args!("{word:?}"),
                "\"enforce\", \"shadow\" or \"off\"",
            )
        })
    }
}
