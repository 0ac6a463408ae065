//! What a store needs to know of a policy: its `PolicyId`, what it decides without the store, and
//! how its permits may be taken in advance.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::key::Subject;
use crate::limit::Words;
use crate::time::Micros;

/// The version of all stored states, behind the name of the algorithm in each key.
#[cfg(feature = "redis")]
pub(crate) const LAYOUT: &str = "2";

/// Identifies a policy in a store: its name, its group, and a hash of the name. Clones share it.
#[derive(Clone)]
pub struct PolicyId(Arc<Identity>);

#[derive(Clone)]
struct Identity {
    name: Arc<str>,
    extra_rate: Option<Micros>,
    /// How stored keys name that rate.
    #[cfg(feature = "redis")]
    rate_in_keys: String,
    group: Option<Group>,
    fingerprint: u128,
    prefetch: Option<Prefetch>,
}

#[derive(Clone)]
struct Group {
    name: Arc<str>,
    fingerprint: u128,
    #[cfg(feature = "redis")]
    record_ids: [RecordId; 3],
}

/// Identifies the state of a policy in the record of its group.
#[cfg(feature = "redis")]
pub(crate) type RecordId = [u8; 4];

impl PolicyId {
    /// A policy of this name.
    pub fn new(name: &str) -> Self {
        let fingerprint = Subject::of_text(name).to_u128();
        Self(Arc::new(Identity {
            name: name.into(),
            extra_rate: None,
            #[cfg(feature = "redis")]
            rate_in_keys: String::new(),
            group: None,
            fingerprint,
            prefetch: None,
        }))
    }

    /// The same policy, whose permits may be taken in batches.
    pub(crate) fn with_prefetch(self, prefetch: Option<Prefetch>) -> Self {
        self.with(|identity| identity.prefetch = prefetch)
    }

    /// The same policy in a [group](crate::Policy::group).
    #[must_use]
    pub fn in_group(self, group: &str) -> Self {
        let group = Group {
            name: group.into(),
            // No policy's name contains a control character.
            fingerprint: Subject::of_text(&format!("\0{group}")).to_u128(),
            #[cfg(feature = "redis")]
            record_ids: record_ids(self.name(), &self.0.rate_in_keys),
        };
        self.with(|identity| identity.group = Some(group))
    }

    /// The same policy for the [further rate](crate::Limit::and) with this period. Each rate has a
    /// stored state of its own.
    #[must_use]
    pub fn with_extra_rate(&self, period: Micros) -> Self {
        // No policy's name contains a control character.
        let text = format!("{}\0{}", self.name(), period.get());
        self.clone().with(|identity| {
            identity.extra_rate = Some(period);
            // A single rate cannot tell how late its permits may be used.
            identity.prefetch = None;
            identity.fingerprint = Subject::of_text(&text).to_u128();
            #[cfg(feature = "redis")]
            {
                identity.rate_in_keys = match period.get() {
                    us if us.is_multiple_of(1_000_000) => format!("+{}s", us / 1_000_000),
                    us => format!("+{us}us"),
                };
                if let Some(group) = &mut identity.group {
                    group.record_ids = record_ids(&identity.name, &identity.rate_in_keys);
                }
            }
        })
    }

    /// The end of a [hold](crate::Feedback) of the same policy. It is stored apart, in no group: to
    /// stores as a further rate without a period, which no limit has.
    pub(crate) fn with_hold(&self) -> Self {
        self.with_extra_rate(Micros::ZERO).with(|identity| {
            identity.group = None;
            #[cfg(feature = "redis")]
            {
                identity.rate_in_keys = "+hold".to_owned();
            }
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Identity)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.0.name)
    }

    /// The period of the further rate; `None` for a policy's first or only rate.
    pub fn extra_rate(&self) -> Option<Micros> {
        self.0.extra_rate
    }

    /// The group whose policies share one stored record for each subject, in stores that have
    /// records.
    pub fn group(&self) -> Option<&str> {
        self.0.group.as_ref().map(|group| &*group.name)
    }

    /// 128 bits that stand for the group.
    pub(crate) fn group_fingerprint(&self) -> Option<u128> {
        self.0.group.as_ref().map(|group| group.fingerprint)
    }

    /// How stored keys name the further rate that this is about; empty for the first one.
    #[cfg(feature = "redis")]
    pub(crate) fn rate_in_keys(&self) -> &str {
        &self.0.rate_in_keys
    }

    /// Identifies its state in the record of its group, under each algorithm that counts in debt,
    /// by the number of the algorithm; `None` if it is in no group.
    #[cfg(feature = "redis")]
    pub(crate) fn record_ids(&self) -> Option<&[RecordId; 3]> {
        self.0.group.as_ref().map(|group| &group.record_ids)
    }

    /// How its permits may be taken in batches, if they may.
    pub(crate) fn prefetch(&self) -> Option<Prefetch> {
        self.0.prefetch
    }

    /// A 128-bit hash of the name and the period of a further rate, uniformly distributed.
    pub fn fingerprint(&self) -> u128 {
        self.0.fingerprint
    }
}

/// Each text is what a separate key would contain besides the prefix and the subject.
#[cfg(feature = "redis")]
fn record_ids(policy: &str, rate_in_keys: &str) -> [RecordId; 3] {
    ["gcra", "token_bucket", "leaky_bucket"].map(|algorithm| {
        let text = format!("{algorithm}{LAYOUT}{rate_in_keys}:{policy}");
        let [a, b, c, d, ..] = *blake3::hash(text.as_bytes()).as_bytes();
        [a, b, c, d]
    })
}

impl fmt::Debug for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)?;
        match self.extra_rate() {
            Some(period) => write!(f, "+{period:?}"),
            None => Ok(()),
        }
    }
}

/// Takes permits of busy subjects from the store in batches, and hands them out from memory. For
/// [`Policy::prefetch`](crate::Policy::prefetch).
///
/// The limit still holds for the whole fleet at every instant: no permit is handed out twice, or
/// after it has come back in the store. What changes is which process gets a permit, and when:
///
/// - **Unevenly.** A process holds at most a [`share`](Self::share) of the limit. So `n` processes may
///   hold `n * share` of it while another one is denied, for at most [`max_age`](Self::max_age).
/// - **Late.** Unused permits are given back when the subject was not requested for 0.2 s, at the
///   maximum age, and when the limiter is dropped. That happens in the background, at most 0.1 s
///   later. Await [`flush`](crate::Limiter::flush) before a process ends, which gives them back at
///   once. Permits that cannot be given back come back with time, as if they had been used: after a
///   crash or a failed round trip, and for [`gcra`](crate::Limit::gcra) and the buckets also if
///   others have taken permits since.
///
/// # When batches are taken
///
/// A batch is taken only if it is expected to save at least eight round trips. So only subjects that
/// this process asks about often have batches, and never where the share is less than eight times the
/// cost of a request. A batch lasts for about 0.1 s and is taken in the background, before the last
/// one is used up. The store decides all other requests, also those that need more than is left of the
/// batch. So every denial comes from the store.
///
/// For `gcra` and the buckets, a batch is useful only until its permits have come back. A process that
/// uses a small part of a high limit gains little; the more it uses, the more it gains.
///
/// # Several policies on a request
///
/// The store then decides all of them, all or nothing, and no batch is used. The same holds for
/// policies in [shadow](crate::Mode::Shadow), and for callers that may wait.
///
/// # Several limits of a subject
///
/// [`Policy::limit_by`](crate::Policy::limit_by) may choose different limits for requests of one
/// subject. Batches are taken for one frequent limit at a time, until its batch is used up or was not
/// used for 0.2 s. The store decides requests with the other limits.
///
/// # Reset, credit and new rules
///
/// [`reset`](crate::Limiter::reset) and [`credit`](crate::Limiter::credit) discard the permits that
/// this process holds. Other processes hand out theirs until the maximum age, so until then a subject
/// may get more than its limit, by the amount that was reset or credited. When rules are replaced, a
/// batch of the old limit is given back and not used for the new one.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limit, Policy, Prefetch, SECOND};
///
/// // Twenty processes, each of which holds at most 2 % of the limit.
/// let prefetch = Prefetch::new().share(0.02).max_age(Duration::from_millis(500));
/// let everybody = Policy::new("everybody", Limit::gcra(100_000, SECOND)).prefetch(prefetch);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Prefetch {
    share: f64,
    max_age: Duration,
}

impl Prefetch {
    /// A share of 0.1 and a maximum age of 1 s.
    pub const fn new() -> Self {
        Self {
            share: 0.1,
            max_age: Duration::from_secs(1),
        }
    }

    /// Sets how much a process holds at most, as a fraction of the limit, its burst or its capacity:
    /// above 0, at most 1, by default 0.1. Rounded down to whole permits, but at least 1.
    pub const fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// Sets how long permits may be handed out after they were taken: 10 ms to 60 s, by default 1 s.
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Itself, if it makes sense.
    pub(crate) fn valid(self) -> Result<Self, ConfigError> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Err(ConfigError::out_of_range(
                "prefetch.share",
                self.share,
                "a share of the limit, above 0 and at most 1",
            ));
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&self.max_age) {
            return Err(ConfigError::out_of_range(
                "prefetch.max_age",
                format_args!("{:?}", self.max_age),
                "10 ms to 60 s",
            ));
        }
        Ok(self)
    }

    /// The most permits of this limit to hold.
    pub(super) fn most_permits(&self, algorithm: &Algorithm) -> u64 {
        algorithm.share_of_capacity(self.share)
    }

    pub(super) fn most_age(&self) -> Micros {
        self.max_age.into()
    }

    /// How long a batch should last.
    pub(super) fn horizon(&self) -> Micros {
        const LONGEST: u64 = 100_000;
        Micros::new((self.most_age().get() / 2).min(LONGEST))
    }
}

/// The numbers in words: `at most 10 % for 1 s`.
impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 0.07 is 7 %, not the 7.000000000000001 % that the product is.
        let percent = (self.share * 1e8).round() / 1e6;
        write!(f, "at most {percent} % for {}", Words(self.max_age))
    }
}

impl Default for Prefetch {
    fn default() -> Self {
        Self::new()
    }
}

/// What a policy decides when the store gives no answer.
///
/// A request may have policies with different modes. If one of them [denies](Self::Deny), the request
/// is refused, and nothing is taken from the [local](Self::Local) shares. Otherwise all local shares
/// must allow the request; then each is charged, or else none.
///
/// A denial that the [deny cache](crate::store::DenyCache) remembers holds in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request passes, uncounted. This is the default: the service works on when the store is
    /// down.
    #[default]
    Allow,
    /// The request is refused with 503, or UNAVAILABLE over gRPC. For requests that must never pass
    /// without a limit.
    Deny,
    /// The process decides with a share of the limit, counted in its own memory. For requests that
    /// must stay possible, but limited. With a share of `1/n`, `n` processes together keep the limit.
    ///
    /// ```
    /// use tower_throttle::{FailureMode, Limit, Policy, SECOND};
    ///
    /// // Ten processes, each with a little more than a tenth.
    /// let everybody = Policy::new("everybody", Limit::gcra(10_000, SECOND))
    ///     .on_store_failure(FailureMode::Local { share: 0.15 });
    /// ```
    ///
    /// The share applies to the limit, its burst and its capacity; under [`concurrency`], to the
    /// places. Each is rounded down, but at least 1. Times stay the same. A
    /// [`Penalty`](crate::Penalty) stays the same, too, and counts denials by the share. A request
    /// that costs more than the whole share is refused as under [`Deny`](Self::Deny), and no penalty
    /// counts that.
    ///
    /// Local counts and those of the store never mix. Local usage comes back with time, so a second
    /// outage continues with what is left of the first. A request gives permits back where it took
    /// them, even if the store is back. But [`charge`](crate::Limiter::charge) and
    /// [`credit`](crate::Limiter::credit) do not know where permits were taken: they change the local
    /// count while the store gives no answer, and the store otherwise.
    /// [`is_local`](crate::Decision::is_local) marks local decisions, whose quota headers show the
    /// share. A subject for which the local table has no room is refused.
    ///
    /// Callers that wait in [`acquire`](crate::Limiter::acquire) or in a
    /// [`ThrottleLayer`](crate::ThrottleLayer) check every second whether the store is back, and then
    /// ask it for the permits, within the rest of their [timeout](crate::Limiter::try_acquire).
    /// Requests that a [`RateLimitLayer`](crate::RateLimitLayer) delays wait for the delay that was
    /// decided.
    ///
    /// [`concurrency`]: crate::Limit::concurrency
    #[cfg(feature = "memory")]
    Local {
        /// The fraction of the limit that this process may hand out: above 0, at most 1.
        share: f64,
    },
}

/// In words: `allow`, `deny`, or `local, 50 %` for a share of the limit in this process.
impl fmt::Display for FailureMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Deny => f.write_str("deny"),
            #[cfg(feature = "memory")]
            Self::Local { share } => write!(f, "local, {} %", share * 100.0),
        }
    }
}

impl FailureMode {
    /// The mode, if its share is valid.
    pub(crate) fn valid(self) -> Result<Self, ConfigError> {
        match self {
            Self::Allow | Self::Deny => Ok(self),
            #[cfg(feature = "memory")]
            Self::Local { share } if share > 0.0 && share <= 1.0 => Ok(self),
            #[cfg(feature = "memory")]
            Self::Local { share } => Err(ConfigError::out_of_range(
                "on_store_failure.share",
                share,
                "a share of the limit, above 0 and at most 1",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_output_names_every_number() {
        let half_a_second = Duration::from_millis(500);
        for (prefetch, words) in [
            (Prefetch::new(), "at most 10 % for 1 s"),
            (Prefetch::new().share(0.07), "at most 7 % for 1 s"),
            (
                Prefetch::new().share(0.000_5).max_age(half_a_second),
                "at most 0.05 % for 500 ms",
            ),
        ] {
            assert_eq!(prefetch.to_string(), words);
        }
    }
}
