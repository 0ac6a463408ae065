//! The names of stored keys: `{prefix}:{layout}:{<hash>}:{policy}`, and of a further rate of a limit
//! `{prefix}:{layout}+{period}:{<hash>}:{policy}`.
//!
//! Only this file writes braces, so that all policies of one subject share a Cluster slot. The
//! layout names the algorithm and the version of its state: another algorithm under the same
//! policy name is another key, never a value that cannot be read.

use std::fmt;

use crate::error::ConfigError;
use crate::store::Check;
use crate::time::Micros;

/// What all keys of one application begin with.
#[derive(Clone, Debug)]
pub(super) struct Prefix(String);

impl Default for Prefix {
    fn default() -> Self {
        Self("throttle".to_owned())
    }
}

impl Prefix {
    /// # Errors
    ///
    /// Braces would move the hash tag, blanks and control characters are asking for trouble.
    pub(super) fn new(prefix: &str) -> Result<Self, ConfigError> {
        let fine = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(fine) {
            return Err(ConfigError::out_of_range(
                "prefix",
                format_args!("{prefix:?}"),
                "1 to 64 printable ASCII characters without blanks and braces",
            ));
        }
        Ok(Self(prefix.to_owned()))
    }

    /// A key for trying things out, in the Cluster slot of this tag.
    pub(super) fn own_key(&self, tag: &str) -> String {
        format!("{}:self-test:{{{tag}}}", self.0)
    }

    pub(super) fn key<'a>(&'a self, check: &'a Check<'_>) -> impl fmt::Display + 'a {
        Name {
            prefix: &self.0,
            check,
        }
    }
}

struct Name<'a> {
    prefix: &'a str,
    check: &'a Check<'a>,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, check } = self;
        let (algorithm, subject) = (check.algorithm.name(), check.subject);
        write!(f, "{prefix}:{algorithm}1")?;
        match check.policy.further_rate().map(Micros::get) {
            Some(us) if us.is_multiple_of(1_000_000) => write!(f, "+{}s", us / 1_000_000)?,
            Some(us) => write!(f, "+{us}us")?,
            None => {}
        }
        write!(f, ":{{{subject}}}:{}", check.policy.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Action, Algorithm};
    use crate::key::{Key, Subject};
    use crate::limit::Limit;
    use crate::store::{FailureMode, PolicyId};
    use crate::time::SECOND;

    /// A fleet mixes versions during a roll-out: these names may never change.
    #[test]
    fn a_key_names_prefix_layout_subject_and_policy() {
        let policy = PolicyId::new("login");
        let check = Check {
            policy: &policy,
            subject: Subject::from(&Key::from("alice")),
            algorithm: Algorithm::try_from(&Limit::gcra(1, SECOND)).unwrap(),
            action: Action::take(1),
            is_shadow: false,
            on_store_failure: FailureMode::Allow,
        };
        assert_eq!(
            Prefix::default().key(&check).to_string(),
            "throttle:gcra1:{163f98975bceebf5cf65f87d866b0917}:login"
        );
        for (period, layout) in [
            (3_600_000_000, "gcra1+3600s"),
            (1_500_000, "gcra1+1500000us"),
        ] {
            let check = Check {
                policy: &policy.with_further_rate(Micros::new(period)),
                ..check
            };
            assert_eq!(
                Prefix::default().key(&check).to_string(),
                format!("throttle:{layout}:{{163f98975bceebf5cf65f87d866b0917}}:login")
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
