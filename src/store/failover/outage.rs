//! `Outage`: a period in which the store is not asked. `Consequences`: what the policies decide then, in
//! words for the log.

use std::fmt;
use std::time::Duration;

use crate::error::StoreErrorKind;
use crate::store::FailureMode;

/// A period in which the store is not asked, because it failed too often: the
/// [circuit breaker](crate::BreakerState) is not closed, and the [failure modes](FailureMode) of the
/// policies decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outage {
    /// How long it has lasted.
    pub duration: Duration,
    /// The failure that last opened the circuit breaker.
    pub reason: StoreErrorKind,
    /// The number of requests that passed uncounted since it began: requests that at least one
    /// enforced policy could not count and let pass, because its failure mode is
    /// [`Allow`](FailureMode::Allow).
    pub uncounted: u64,
}

/// The policies in force, as far as an outage concerns them.
pub(crate) trait Enforced: Send + Sync {
    /// The names of those that are enforced, and what each decides without the store.
    fn failure_modes(&self) -> Vec<(String, FailureMode)>;
}

/// What the policies decide without the store:
/// `policies "a", "b" are NOT enforced, policy "c" denies all requests`.
pub(crate) struct Consequences(pub(crate) Vec<(String, FailureMode)>);

/// As many as fit on a line that is read.
const MOST_NAMES: usize = 10;

impl Consequences {
    /// The names of those under which everything passes, of those that deny everything, and of those
    /// that count in this process alone.
    pub(crate) fn groups(&self) -> [Vec<&str>; 3] {
        [
            self.of(|mode| mode == FailureMode::Allow),
            self.of(|mode| mode == FailureMode::Deny),
            self.of(|mode| !matches!(mode, FailureMode::Allow | FailureMode::Deny)),
        ]
    }

    fn of(&self, is_meant: fn(FailureMode) -> bool) -> Vec<&str> {
        let policies = self.0.iter().filter(|(_, mode)| is_meant(*mode));
        policies.map(|(name, _)| &**name).collect()
    }
}

impl fmt::Display for Consequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [open, closed, local] = self.groups();
        let groups = [
            (open, ["is NOT enforced", "are NOT enforced"]),
            (closed, ["denies all requests", "deny all requests"]),
            (
                local,
                [
                    "counts in this process alone",
                    "count in this process alone",
                ],
            ),
        ];
        let mut is_first = true;
        for (names, [one, several]) in groups {
            let (noun, verb) = match names.len() {
                0 => continue,
                1 => ("policy", one),
                _ => ("policies", several),
            };
            write!(f, "{}{noun} ", if is_first { "" } else { ", " })?;
            is_first = false;
            for (position, name) in names.iter().take(MOST_NAMES).enumerate() {
                write!(f, "{}{name:?}", if position == 0 { "" } else { ", " })?;
            }
            if let Some(more @ 1..) = names.len().checked_sub(MOST_NAMES) {
                write!(f, " and {more} more")?;
            }
            write!(f, " {verb}")?;
        }
        match is_first {
            true => f.write_str("no policy is enforced anyway"),
            false => Ok(()),
        }
    }
}

/// No policies.
#[cfg(test)]
impl Enforced for () {
    fn failure_modes(&self) -> Vec<(String, FailureMode)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consequences(modes: &[FailureMode]) -> String {
        let names = modes.iter().enumerate();
        let named = names.map(|(number, mode)| (format!("p{number}"), *mode));
        Consequences(named.collect()).to_string()
    }

    #[test]
    fn each_policy_is_named_with_what_it_decides() {
        use FailureMode::{Allow, Deny};
        let said = consequences(&[Allow, Deny, Allow]);
        assert_eq!(
            said,
            "policies \"p0\", \"p2\" are NOT enforced, policy \"p1\" denies all requests"
        );
        #[cfg(feature = "memory")]
        assert_eq!(
            consequences(&[FailureMode::Local { share: 0.5 }]),
            "policy \"p0\" counts in this process alone"
        );
        assert!(consequences(&[]).contains("no policy"));
    }

    #[test]
    fn a_line_names_no_more_policies_than_can_be_read() {
        let said = consequences(&[FailureMode::Allow; 1_000]);
        assert!(said.len() < 200 && said.contains("and 990 more"), "{said}");
    }
}
