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

/// What of a policy a store needs: its name, and a number that stands for it. Clones share it.
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

    /// The same policy, of whose limit a [further rate](crate::Limit::and) has this period. What is
    /// used under it is stored apart.
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

    /// The period of the further rate that this is about; `None` for a policy's first or only rate.
    pub fn extra_rate(&self) -> Option<Micros> {
        self.0.extra_rate
    }

    /// The group of policies that keep what they know of a subject in one place, where a store has
    /// such places.
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

    /// 128 bits that stand for the name and the period of a further rate, uniformly distributed.
    pub fn fingerprint(&self) -> u128 {
        self.0.fingerprint
    }
}

/// Each text is what a key of its own would have around the prefix and the subject.
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

/// A process that often decides about the same subject takes a batch of permits in one round trip,
/// and hands them out from memory. For [`Policy::prefetch`](crate::Policy::prefetch).
///
/// The limit holds over the whole fleet, to the permit and at every instant: a permit is handed out
/// at most once, and only as long as it would count if it had been handed out when it was taken.
/// What changes is who gets a permit, and when:
///
/// - **Unevenly.** A process holds at most a [`share`](Self::share) of what the limit ever has at
///   once. So `n` processes may hold `n * share` of it while another one is denied, for at most
///   [`max_age`](Self::max_age).
/// - **Late.** The rest of a batch is given back when the subject was not asked for during a fifth
///   of a second, at the maximum age, and when the limiter is dropped; in the background, at most a
///   tenth of a second later. Before a process ends, await
///   [`flush`](crate::Limiter::flush), which does it at once. What cannot be given back
///   comes back with time, as if it had been used: if the process was killed or the round trip
///   fails; for [`gcra`](crate::Limit::gcra) and the buckets also if somebody else has taken
///   permits since, so that none is handed out twice.
///
/// # When batches are taken
///
/// Only for subjects that are asked for often enough in this process that a batch saves round
/// trips, at least eight each; so never where the share is less than eight times the cost of a
/// request. A batch is about a tenth of a second's worth, taken in the background before the last
/// one is used up. The store decides about other subjects, and about requests that need more than
/// is left of the batch. So every denial is the store's.
///
/// For `gcra` and the buckets, a batch lasts no longer than its permits take to come back. A
/// process that uses a small part of a high limit gains little; the more of it is used, the greater
/// the gain.
///
/// # Several policies on a request
///
/// All of them are then decided in the store, all or nothing, and no batch is used, as a round trip
/// is made anyway. The same holds for policies in [shadow](crate::Mode::Shadow), and for callers
/// who are ready to wait.
///
/// # Several limits of a subject
///
/// [`Policy::limit_by`](crate::Policy::limit_by) may choose different limits for the requests of a
/// subject. Batches are taken under one of them at a time, one that is often used, until none of a
/// batch is left or it was not used during a fifth of a second. The store decides about requests
/// under the others.
///
/// # Changes by hand
///
/// [`reset`](crate::Limiter::reset) and [`credit`](crate::Limiter::credit) discard what this
/// process holds. Other processes hand out what they hold until its maximum age: until then a
/// subject can get more than its limit, by as much as was forgotten or credited. When rules are
/// replaced, a batch of the old limit is not used for the new one, and is given back like one that
/// nobody asks for any more.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limit, Policy, Prefetch, SECOND};
///
/// // Twenty processes, none of which is to hold more than 2 %.
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
    /// At most a tenth of what the limit ever has at once, for at most a second.
    pub const fn new() -> Self {
        Self {
            share: 0.1,
            max_age: Duration::from_secs(1),
        }
    }

    /// Sets the most that a process holds at a time, as a part of the limit, its burst or its
    /// capacity: above 0, at most 1, by default a tenth. Rounded down, but at least 1.
    pub const fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// Sets how long permits may be handed out after they were taken: 10 ms to 60 s, by default a
    /// second.
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
/// If the policies of a request have different modes, one that [denies](Self::Deny) refuses the
/// request, and nothing is taken from the [local](Self::Local) shares of the others. If none
/// denies, either all local shares together allow the request, and each is charged, or none is.
///
/// A [remembered](crate::store::DenyCache) denial holds in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request passes, uncounted. This is the default: an outage of the store is not one of the
    /// service.
    #[default]
    Allow,
    /// The request is refused with 503, or UNAVAILABLE over gRPC. For what must not be reached
    /// without a limit.
    Deny,
    /// This process decides by itself, with a share of the limit, in a memory store of its own. For
    /// what must stay reachable, but not without a limit. With a share of `1/n`, `n` processes
    /// together keep to the limit.
    ///
    /// ```
    /// use tower_throttle::{FailureMode, Limit, Policy, SECOND};
    ///
    /// // Ten processes, each of which may get a little more than its part.
    /// let everybody = Policy::new("everybody", Limit::gcra(10_000, SECOND))
    ///     .on_store_failure(FailureMode::Local { share: 0.15 });
    /// ```
    ///
    /// The share applies to the limit, its burst and its capacity; under [`concurrency`], to the
    /// places. Each is rounded down, but at least 1. Times stay the same, and so does a
    /// [`Penalty`](crate::Penalty), which counts the denials of the share. A request that costs
    /// more than the share ever holds is refused as by [`Deny`](Self::Deny), and no penalty counts
    /// that.
    ///
    /// Every outage begins where the last one ended: what was used of the share comes back with
    /// time, and what was used in the store does not count here. What a request has taken here it gives
    /// back here, even if the store is back. But [`charge`](crate::Limiter::charge) and
    /// [`credit`](crate::Limiter::credit) do not know where permits were taken: they change this share
    /// while the store gives no answer, and the store otherwise. [`is_local`](crate::Decision::is_local) tells that a
    /// decision was made so, and its quota headers show the share. A subject for which the memory
    /// store has no room is refused.
    ///
    /// Callers who [acquire](crate::Limiter::acquire) permits and wait for those of the share check
    /// every second whether the store is back, as does a [`ThrottleLayer`](crate::ThrottleLayer).
    /// When it is, it is asked for the permits, within what is left of a
    /// [timeout](crate::Limiter::try_acquire). Requests that the layer delays wait for as long as
    /// they were told.
    ///
    /// [`concurrency`]: crate::Limit::concurrency
    #[cfg(feature = "memory")]
    Local {
        /// The part of the limit that this process may hand out: more than 0, at most 1.
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
