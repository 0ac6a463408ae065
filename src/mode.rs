//! `Mode`: whether a policy is enforced, only counts, or is off. `AtomicMode`: one that can be
//! changed while others read it.

use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::ConfigError;
use crate::labels::{labels, shown_as_labels};

/// Whether a policy is enforced, only counts, or is off.
///
/// [`Limiter::set_mode`](crate::Limiter::set_mode) changes it at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Requests beyond the limit are denied.
    #[default]
    Enforce,
    /// Requests are counted as if the policy were enforced, but none is denied or delayed: it shows
    /// what a limit would do. Observers are told, clients are not.
    ///
    /// A request that would have to wait, in a queue or by
    /// [`Policy::max_wait`](crate::Policy::max_wait), is reported as
    /// [denied](crate::Outcome::ShadowDenied), and not counted: nobody waits for it when the policy
    /// is enforced, and it causes no ban.
    Shadow,
    /// Nothing is counted and nothing is denied. The key is not read, either: a client that is
    /// [refused](crate::Rules::deny) by its key passes if only policies that are off have such
    /// keys.
    Off,
}

labels! {
    /// Its name in configuration files, metrics and logs.
    Mode {
        Enforce = "enforce",
        Shadow = "shadow",
        Off = "off",
    }
}

shown_as_labels!(Mode);

/// From the name that [`as_str`](Mode::as_str) returns.
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

/// A mode that can be changed while others read it. Each request reads it once.
pub(crate) struct AtomicMode(AtomicU8);

impl AtomicMode {
    pub(crate) fn new(mode: Mode) -> Self {
        Self(AtomicU8::new(mode as u8))
    }

    pub(crate) fn get(&self) -> Mode {
        Mode::EACH[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }
}
