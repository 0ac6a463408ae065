//! `Mode`: whether a policy is enforced, only counts, or is off. `Percent`: for which share of the
//! subjects it is enforced. `AtomicMode`: both, to be changed while others read them.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::ConfigError;
use crate::key::Subject;
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

/// A share of the subjects, in whole percent: see [`Policy::enforce_for`](crate::Policy::enforce_for).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u8);

impl Percent {
    /// All subjects.
    pub const ALL: Self = Self(100);

    /// This share: 0 to 100.
    ///
    /// # Errors
    ///
    /// If it is more than 100.
    pub fn new(percent: u8) -> Result<Self, ConfigError> {
        match percent {
            0..=100 => Ok(Self(percent)),
            _ => Err(ConfigError::out_of_range(
                "enforce",
                percent,
                "0 to 100 percent",
            )),
        }
    }

    /// The number: 0 to 100.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Whether a subject is in the share: the same subjects in every process, and the same ones and
    /// others in every larger share.
    fn includes(self, subject: Subject) -> bool {
        // The hash is uniform. Its upper half as a fraction of all percent.
        let place = ((subject.to_u128() >> 64) * 100) >> 64;
        place < u128::from(self.0)
    }
}

/// As it is written in files: `5%`.
impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// From the form that `Display` shows.
impl FromStr for Percent {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let number = text
            .strip_suffix('%')
            .filter(|digits| !digits.starts_with('+'));
        let number = number.and_then(|digits| digits.parse().ok());
        let percent = number.and_then(|number| Self::new(number).ok());
        percent.ok_or_else(|| {
            ConfigError::out_of_range("enforce", format_args!("{text:?}"), "\"0%\" to \"100%\"")
        })
    }
}

/// A mode and a share that can be changed while others read them. Each request reads them once.
pub(crate) struct AtomicMode {
    mode: AtomicU8,
    enforced_for: AtomicU8,
}

impl AtomicMode {
    pub(crate) fn new(mode: Mode, enforced_for: Percent) -> Self {
        Self {
            mode: AtomicU8::new(mode as u8),
            enforced_for: AtomicU8::new(enforced_for.0),
        }
    }

    pub(crate) fn get(&self) -> Mode {
        Mode::EACH[usize::from(self.mode.load(Ordering::Relaxed))]
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    pub(crate) fn enforced_for(&self) -> Percent {
        Percent(self.enforced_for.load(Ordering::Relaxed))
    }

    pub(crate) fn enforce_for(&self, share: Percent) {
        self.enforced_for.store(share.0, Ordering::Relaxed);
    }

    /// In place of `mode`, the mode for this subject.
    #[inline]
    pub(crate) fn of(&self, mode: Mode, subject: Subject) -> Mode {
        match mode {
            Mode::Enforce if !self.enforced_for().includes(subject) => Mode::Shadow,
            mode => mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn a_share_grows_by_subjects_and_has_as_many_as_it_says() {
        let subjects: Vec<_> = (0..10_000_u64)
            .map(|number| Key::from(number).subject(None))
            .collect();
        let mut before = 0;
        for percent in 0..=100 {
            let share = Percent::new(percent).unwrap();
            let is_in = |subject: &&Subject| share.includes(**subject);
            let count = subjects.iter().filter(is_in).count();
            let expected = 100 * usize::from(percent);
            assert!(count.abs_diff(expected) < 300, "{share}: {count}");
            let smaller = Percent(percent.saturating_sub(1));
            let lost = subjects
                .iter()
                .filter(|subject| smaller.includes(**subject));
            assert!(
                lost.clone().all(|subject| share.includes(*subject)),
                "{share}"
            );
            assert!(count >= before);
            before = count;
        }
        assert_eq!(before, subjects.len());
    }

    #[test]
    fn a_share_is_read_as_it_is_shown() {
        for percent in 0..=100 {
            let share = Percent::new(percent).unwrap();
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        for text in ["", "%", "5", "5 %", "-1%", "+5%", "101%", "0.5%", "5%%"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
        assert!(Percent::new(101).is_err());
    }
}
