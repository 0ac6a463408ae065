//! `Mode`: whether a policy is enforced, only counts, or is off. `AtomicMode`: a mode that can
//! change while other threads read it.

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
    /// Requests are counted as if the policy were enforced, but none is denied or delayed. Use it
    /// to see what a limit would do. Observers see its decisions, clients do not.
    ///
    /// A request that would have to wait, in a queue or by
    /// [`Policy::max_wait`](crate::Policy::max_wait), is reported as
    /// [denied](crate::Outcome::ShadowDenied) and is not counted. It causes no ban either.
    Shadow,
    /// Nothing is counted and nothing is denied. The policy does not read keys either. So a key
    /// that is [on the deny list](crate::Rules::deny) is only refused if another policy reads such
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

/// A mode that can change while other threads read it. Each request reads it once.
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
