//! The names of stored keys: `{prefix}:{layout}:{<hash>}:{policy}`, and the fields within them.
//!
//! The rates of a limit share one key, and so do the policies of a group,
//! `{prefix}:group1:{<hash>}:{group}`: the state of each is in a field of its own. Sliding logs do
//! not share keys: their further rates have keys of their own,
//! `{prefix}:{layout}+{period}:{<hash>}:{policy}`.
//!
//! Only this file writes braces, so that all policies of a subject are in the same Cluster slot.
//! The layout names the algorithm and the version of its state: another algorithm under the same
//! policy name has another key, never a value that cannot be read.

use crate::error::ConfigError;
use crate::store::Check;
use crate::time::Micros;

/// Longer than most keys, so that a key takes one allocation.
pub(super) const USUAL_LENGTH: usize = 80;

/// The default prefix of all keys.
pub(crate) const DEFAULT_PREFIX: &str = "throttle";

/// The prefix of all keys of an application.
#[derive(Clone, Debug)]
pub(super) struct Prefix(String);

impl Default for Prefix {
    fn default() -> Self {
        Self(DEFAULT_PREFIX.to_owned())
    }
}

impl Prefix {
    /// # Errors
    ///
    /// Refuses braces, which would move the hash tag, and spaces and control characters.
    pub(super) fn new(prefix: &str) -> Result<Self, ConfigError> {
        let fine = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(fine) {
            return Err(ConfigError::out_of_range(
                "prefix",
                format_args!("{prefix:?}"),
                "1 to 64 printable ASCII characters without spaces and braces",
            ));
        }
        Ok(Self(prefix.to_owned()))
    }

    /// A key for the self-test and the probe, in the Cluster slot of this tag.
    pub(super) fn own_key(&self, tag: &str) -> String {
        format!("{}:self-test:{{{tag}}}", self.0)
    }

    /// The key that contains a check's state.
    pub(super) fn key(&self, check: &Check<'_>) -> Vec<u8> {
        let mut key = Vec::with_capacity(USUAL_LENGTH);
        self.write_key(check, &mut key);
        key
    }

    /// Appends that key.
    pub(super) fn write_key(&self, check: &Check<'_>, to: &mut Vec<u8>) {
        let mut write = |text: &str| to.extend_from_slice(text.as_bytes());
        write(&self.0);
        let name = match shared_by(check) {
            Some(group) => {
                write(":group1:{");
                group
            }
            None => {
                write(":");
                write(check.algorithm.name());
                write("1");
                if !check.algorithm.packs() {
                    write(&further_rate(check));
                }
                write(":{");
                check.policy.name()
            }
        };
        to.extend_from_slice(&check.subject.digits());
        to.extend_from_slice(b"}:");
        to.extend_from_slice(name.as_bytes());
    }
}

/// The field of the key that contains a check's state; empty if the state is the whole value.
pub(super) fn field(check: &Check<'_>) -> String {
    if !check.algorithm.packs() {
        return String::new();
    }
    let rate = further_rate(check);
    match shared_by(check) {
        Some(_) => format!("{}1{rate}:{}", check.algorithm.name(), check.policy.name()),
        None => rate,
    }
}

/// Identifies the key of a check that packs, in this process. Uniformly distributed, as the subject
/// is.
pub(super) fn fingerprint_of_key(check: &Check<'_>) -> u128 {
    let within_subject = shared_by(check).and_then(|_| check.policy.group_fingerprint());
    let within_subject = within_subject
        .unwrap_or_else(|| check.policy.name_fingerprint() ^ u128::from(check.algorithm.number()));
    check.subject.to_u128() ^ within_subject
}

/// Identifies the state of a check in this process, whether its key is its own or a group's.
/// Uniformly distributed, as the subject is.
pub(super) fn fingerprint_of_state(check: &Check<'_>) -> u128 {
    let group = shared_by(check).and_then(|_| check.policy.group_fingerprint());
    check.fingerprint() ^ group.unwrap_or(0)
}

/// Whether its key can contain other states, too.
pub(super) fn shares_its_key(check: &Check<'_>) -> bool {
    let is_of_several = check.policy.further_rate().is_some() || shared_by(check).is_some();
    check.algorithm.packs() && is_of_several
}

/// Whether both states are in the same key.
pub(super) fn are_together(one: &Check<'_>, other: &Check<'_>) -> bool {
    let group = shared_by(one);
    one.subject == other.subject
        && group == shared_by(other)
        && (group.is_some() || is_same_limit(one, other))
}

/// Whether both are rates of one limit, in one key.
pub(super) fn is_same_limit(one: &Check<'_>, other: &Check<'_>) -> bool {
    one.policy.name() == other.policy.name()
        && one.algorithm.name() == other.algorithm.name()
        && one.algorithm.packs()
}

/// The group that its key belongs to.
fn shared_by<'a>(check: &Check<'a>) -> Option<&'a str> {
    // A ban is not part of the limit.
    let packs = check.algorithm.packs() && !check.algorithm.is_penalty();
    check.policy.group().filter(|_| packs)
}

fn further_rate(check: &Check<'_>) -> String {
    match check.policy.further_rate().map(Micros::get) {
        Some(us) if us.is_multiple_of(1_000_000) => format!("+{}s", us / 1_000_000),
        Some(us) => format!("+{us}us"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Action, Algorithm};
    use crate::limit::Limit;
    use crate::store::PolicyId;
    use crate::time::SECOND;

    /// A fleet mixes versions during a roll-out, so these names must never change.
    #[test]
    fn a_key_names_prefix_layout_and_subject_and_policy_or_group() {
        let policy = PolicyId::new("login");
        let check = Check::of(&policy, "alice", &Limit::gcra(1, SECOND), Action::take(1));
        let places = |check: &Check<'_>| {
            let key = String::from_utf8(Prefix::default().key(check));
            (key.unwrap(), field(check))
        };
        let key = "throttle:gcra1:{163f98975bceebf5cf65f87d866b0917}:login";
        assert_eq!(places(&check), (key.to_owned(), String::new()));
        for (period, rate) in [(3_600_000_000, "+3600s"), (1_500_000, "+1500000us")] {
            let policy = policy.with_further_rate(Micros::new(period));
            let check = Check {
                policy: &policy,
                ..check
            };
            assert_eq!(places(&check), (key.to_owned(), rate.to_owned()));
            let log = Check {
                algorithm: Algorithm::try_from(&Limit::sliding_log(1, SECOND)).unwrap(),
                ..check
            };
            let key =
                format!("throttle:sliding_log1{rate}:{{163f98975bceebf5cf65f87d866b0917}}:login");
            assert_eq!(places(&log), (key, String::new()));
        }
        let policy = PolicyId::new("login").in_group("client");
        let hour = policy.with_further_rate(Micros::new(3_600_000_000));
        for (policy, field) in [(&policy, "gcra1:login"), (&hour, "gcra1+3600s:login")] {
            let key = "throttle:group1:{163f98975bceebf5cf65f87d866b0917}:client";
            assert_eq!(
                places(&Check { policy, ..check }),
                (key.to_owned(), field.to_owned())
            );
        }
    }

    #[test]
    fn a_prefix_that_would_move_the_hash_tag_is_refused() {
        assert!(Prefix::new("shop:eu").is_ok());
        for bad in ["", "a{b", "a}b", "a b", "ä", &"x".repeat(65)] {
            let error = Prefix::new(bad).unwrap_err().to_string();
            assert!(error.starts_with("prefix: got "), "{error}");
        }
    }
}
