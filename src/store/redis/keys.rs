//! The names of stored keys: `{prefix}:{layout}:{<hash>}:{policy}`.
//!
//! Each further rate of a limit has a key of its own,
//! `{prefix}:{layout}+{period}:{<hash>}:{policy}`, and so has the end of a hold, with `+hold`. The policies of a group whose algorithms count
//! in debt share one, `{prefix}:group2:{<hash>}:{group}`: a record with an entry for each. Where a
//! state stands never depends on the numbers of a limit, as these may change for each request.
//!
//! Only this file writes braces, so that all policies of a subject are in the same Cluster slot.
//! The layout names the algorithm and the version of its state: another algorithm under the same
//! policy name has another key, never a value that cannot be read.

use redis::Cmd;

use crate::error::ConfigError;
use crate::store::{Check, LAYOUT, RecordId};

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
    #[cfg(test)]
    pub(super) fn key(&self, check: &Check<'_>) -> Vec<u8> {
        let mut key = Vec::with_capacity(USUAL_LENGTH);
        self.write_key(check, &mut key);
        key
    }

    /// Appends the key that contains a check's state.
    pub(super) fn write_key(&self, check: &Check<'_>, to: &mut Vec<u8>) {
        let mut write = |text: &str| to.extend_from_slice(text.as_bytes());
        write(&self.0);
        write(":");
        let name = match record_of(check) {
            Some(group) => {
                write("group");
                write(LAYOUT);
                group
            }
            None => {
                write(check.algorithm.name());
                write(LAYOUT);
                write(check.policy.rate_in_keys());
                check.policy.name()
            }
        };
        write(":{");
        to.extend_from_slice(&check.subject.digits());
        to.extend_from_slice(b"}:");
        to.extend_from_slice(name.as_bytes());
    }
}

/// The group whose record contains a check's state.
fn record_of<'a>(check: &Check<'a>) -> Option<&'a str> {
    check.policy.group().filter(|_| check.algorithm.is_debt())
}

/// Whether its state is in the record of a group.
pub(super) fn is_in_record(check: &Check<'_>) -> bool {
    record_of(check).is_some()
}

/// Identifies its state in that record; zero if it is in none.
pub(super) fn record_id(check: &Check<'_>) -> RecordId {
    let ids = check.policy.record_ids();
    let id = ids.and_then(|ids| ids.get(usize::from(check.algorithm.number())));
    id.copied().unwrap_or_default()
}

/// Identifies the key of a check in this process. Uniformly distributed, as the subject is.
pub(super) fn fingerprint_of_key(check: &Check<'_>) -> u128 {
    let group = check.policy.group_fingerprint();
    match group.filter(|_| check.algorithm.is_debt()) {
        Some(group) => check.subject.to_u128() ^ group,
        None => check.fingerprint(),
    }
}

/// Identifies the state of a check in this process, whether its key is its own or a group's.
/// Uniformly distributed, as the subject is.
pub(super) fn fingerprint_of_state(check: &Check<'_>) -> u128 {
    let group = check.policy.group_fingerprint();
    let group = group.filter(|_| check.algorithm.is_debt());
    check.fingerprint() ^ group.unwrap_or(0)
}

pub(super) struct KeyNames {
    bytes: Vec<u8>,
    /// The end of each name.
    ends: Vec<usize>,
}

impl KeyNames {
    /// With capacity for this many.
    pub(super) fn with_capacity(keys: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(keys * USUAL_LENGTH),
            ends: Vec::with_capacity(keys),
        }
    }

    /// Adds the name of a check's key.
    pub(super) fn push(&mut self, check: &Check<'_>, prefix: &Prefix) {
        prefix.write_key(check, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = &self.bytes[start..*end];
            start = *end;
            name
        })
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The command that runs a script on these keys, without the arguments, for which it has
    /// capacity: how many there are, and how long they are together.
    pub(super) fn command(
        &self,
        verb: &str,
        script: &str,
        (arguments, bytes): (usize, usize),
    ) -> Cmd {
        let bytes = script.len() + self.bytes.len() + USUAL_LENGTH + bytes;
        let mut command = Cmd::with_capacity(3 + self.ends.len() + arguments, bytes);
        command.arg(verb).arg(script).arg(self.ends.len());
        for name in self.iter() {
            command.arg(name);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Action;
    use crate::limit::{Limit, per_second};
    use crate::store::PolicyId;
    use crate::time::{Micros, SECOND};

    /// A fleet mixes versions during a roll-out, so these names must never change.
    #[test]
    fn a_key_names_prefix_layout_and_subject_and_policy_or_group() {
        let debt = Limit::gcra(1, SECOND);
        let window = Limit::fixed_window(1, SECOND);
        let alone = PolicyId::new("login");
        let hour = Micros::new(3_600_000_000);
        let odd = Micros::new(1_500_000);
        let grouped = alone.clone().in_group("client");
        for (policy, limit, layout, name) in [
            (alone.clone(), debt, "gcra2", "login"),
            (alone.with_extra_rate(hour), debt, "gcra2+3600s", "login"),
            (alone.with_extra_rate(odd), debt, "gcra2+1500000us", "login"),
            (
                alone.with_extra_rate(hour),
                window,
                "fixed_window2+3600s",
                "login",
            ),
            (grouped.clone(), debt, "group2", "client"),
            (grouped.with_extra_rate(hour), debt, "group2", "client"),
            (grouped, window, "fixed_window2", "login"),
        ] {
            let check = Check::of(&policy, "alice", &limit, Action::acquire(1));
            let key = String::from_utf8(Prefix::default().key(&check)).unwrap();
            let subject = "163f98975bceebf5cf65f87d866b0917";
            assert_eq!(key, format!("throttle:{layout}:{{{subject}}}:{name}"));
            assert_eq!(is_in_record(&check), layout == "group2");
        }
    }

    /// Nor must these.
    #[test]
    fn an_id_in_a_record_tells_policies_rates_and_algorithms_apart() {
        let policy = PolicyId::new("login").in_group("client");
        let hour = policy.with_extra_rate(Micros::new(3_600_000_000));
        let (gcra, bucket) = (
            Limit::gcra(1, SECOND),
            Limit::token_bucket(1, per_second(1)),
        );
        let id = |policy, limit| record_id(&Check::of(policy, "alice", limit, Action::acquire(1)));
        let ids = [
            (id(&policy, &gcra), "gcra2:login"),
            (id(&hour, &gcra), "gcra2+3600s:login"),
            (id(&policy, &bucket), "token_bucket2:login"),
        ];
        for (id, text) in ids {
            assert_eq!(id, blake3::hash(text.as_bytes()).as_bytes()[..4]);
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
