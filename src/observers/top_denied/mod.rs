//! `TopDenied`: the keys that are denied most, in bounded memory.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::sketch::{Denial, Sketch, Slot};
use super::per_policy::PerPolicy;
use crate::key::Subject;
use crate::mode::Mode;
use crate::observer::{DecisionEvent, DecisionResult, Observer};
use crate::time::{Clock, MINUTE, Micros, SinceStart, SystemClock};

mod sketch;

/// The time after which a denial counts half.
const DEFAULT_HALF_LIFE: Duration = MINUTE.saturating_mul(10);

/// An [`Observer`] that lists the keys that are denied most. Clones share the list.
///
/// ```
/// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy, TopDenied};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let top = TopDenied::new(100);
/// let policy = Policy::new("sms", Limit::sliding_log(3, MINUTE));
/// let limiter = Limiter::builder(MemoryStore::new(), [policy])
///     .observe(top.clone())
///     .build()?;
/// for _ in 0..10 {
///     let _ = limiter.check("sms", "mallory").await?;
/// }
/// let worst = &top.list()[0];
/// assert_eq!((&*worst.policy, worst.denials), ("sms", 7));
/// assert_eq!(worst.subject, limiter.subject_of("mallory"));
/// # Ok(())
/// # }
/// ```
///
/// # Who is behind a hash?
///
/// Keys are hashed, unless their policy [shows them](crate::Policy::show_subject), and a hash does
/// not reveal its key. To check a suspect, compare the hash with
/// [`Limiter::subject_of`](crate::Limiter::subject_of) of its key. Logs and stored keys contain the
/// same hash.
///
/// # How exact is it?
///
/// It keeps `capacity` keys of each policy, at about 100 bytes each. As long as no more keys are
/// denied, counts are exact. After that, a new key replaces the one with the smallest count and
/// continues from that count. Every key with more than one in `capacity` of its policy's denials is
/// on the list. Counts are never too low, and too high by at most that share;
/// [`TopEntry::overestimate`] is the bound for each entry. (The algorithm is Space-Saving:
/// Metwally, Agrawal, El Abbadi, 2005.)
///
/// Old denials count less, so that yesterday's attack does not hide today's: after each
/// [half-life](TopDeniedBuilder::half_life) since the list was created, all counts are halved,
/// however the system clock is set. Counts below one half are not listed.
///
/// A denial locks its policy's list for about ten nanoseconds, or a hundred if a new key replaces
/// one of a thousand. The time grows only with the logarithm of the capacity. Allowed requests cost
/// nothing.
#[derive(Clone)]
pub struct TopDenied(Arc<Shared>);

struct Shared {
    capacity: usize,
    half_life: Micros,
    /// For the time of denials.
    wall_clock: Arc<dyn Clock>,
    /// For elapsed time. Not the wall clock: if that were set back by a month, no count would be
    /// halved for a month.
    stopwatch: Arc<dyn Clock>,
    /// The stopwatch's time when the list was created.
    since: Micros,
    policies: PerPolicy<Mutex<Sketch>>,
}

impl TopDenied {
    /// Keeps `capacity` keys of each policy (at least one), with a half-life of 10 minutes.
    pub fn new(capacity: usize) -> Self {
        Self::builder(capacity).build()
    }

    /// A builder, to set the half-life or the clock.
    pub fn builder(capacity: usize) -> TopDeniedBuilder {
        TopDeniedBuilder {
            capacity,
            half_life: DEFAULT_HALF_LIFE,
            clock: None,
        }
    }

    /// The keys that are denied most, of all policies, the highest count first.
    pub fn list(&self) -> Vec<TopEntry> {
        let span = self.0.span();
        let mut entries = Vec::new();
        for (policy, sketch) in self.0.policies.all().iter() {
            let sketch = up_to_date(sketch, span);
            let slots = sketch.slots().iter();
            entries.extend(slots.map(|slot| TopEntry::of(policy, slot)));
        }
        entries.retain(|entry| entry.denials > 0);
        entries.sort_by_key(|entry| std::cmp::Reverse((entry.denials, entry.last_denied)));
        entries
    }
}

impl Shared {
    /// The number of half-lives since the list was created.
    fn span(&self) -> u64 {
        let passed = self.stopwatch.now().saturating_sub(self.since);
        passed.get() / self.half_life.get()
    }
}

fn up_to_date(sketch: &Mutex<Sketch>, span: u64) -> MutexGuard<'_, Sketch> {
    // A panic under the lock cannot leave inconsistent data.
    let mut sketch = sketch.lock().unwrap_or_else(PoisonError::into_inner);
    sketch.fade(span);
    sketch
}

/// Counts denials by the store, the deny cache and the local share, and those of policies in
/// [shadow mode](Mode::Shadow). Does not count denials because the store failed.
impl Observer for TopDenied {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        if !matches!(
            event.result(),
            DecisionResult::Denied
                | DecisionResult::DeniedFromMemory
                | DecisionResult::ShadowDenied
        ) {
            return;
        }
        let denial = Denial {
            at: self.0.wall_clock.wall_clock(),
            mode: event.mode,
            shown_subject: event.shown_subject.map(Arc::from),
        };
        let span = self.0.span();
        let make = || Mutex::new(Sketch::new(self.0.capacity));
        self.0.policies.with(event.policy, make, |sketch| {
            up_to_date(sketch, span).count(event.subject, denial);
        });
    }
}

impl fmt::Debug for TopDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopDenied")
            .field("capacity", &self.0.capacity)
            .field("half_life", &self.0.half_life)
            .finish_non_exhaustive()
    }
}

/// Builds a [`TopDenied`].
#[must_use]
pub struct TopDeniedBuilder {
    capacity: usize,
    half_life: Duration,
    clock: Option<Arc<dyn Clock>>,
}

impl TopDeniedBuilder {
    /// Sets the time after which a denial counts half: at least a second, by default 10 minutes.
    pub fn half_life(mut self, half_life: Duration) -> Self {
        self.half_life = half_life;
        self
    }

    /// Sets another clock than the system's, for tests. It also drives the half-life.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Builds an empty list.
    pub fn build(mut self) -> TopDenied {
        match self.clock.take() {
            Some(clock) => self.on_clocks(Arc::clone(&clock), clock),
            None => self.on_clocks(Arc::new(SystemClock), Arc::new(SinceStart::new())),
        }
    }

    fn on_clocks(self, wall_clock: Arc<dyn Clock>, stopwatch: Arc<dyn Clock>) -> TopDenied {
        TopDenied(Arc::new(Shared {
            capacity: self.capacity,
            half_life: self.half_life.max(Duration::from_secs(1)).into(),
            since: stopwatch.now(),
            wall_clock,
            stopwatch,
            policies: PerPolicy::new(),
        }))
    }
}

impl fmt::Debug for TopDeniedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopDeniedBuilder")
            .field("capacity", &self.capacity)
            .field("half_life", &self.half_life)
            .finish_non_exhaustive()
    }
}

/// A key that is denied often: an entry of [`TopDenied::list`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopEntry {
    /// The policy that denies the key.
    pub policy: Arc<str>,
    /// The hash of the key.
    pub subject: Subject,
    /// The key in clear text, if the policy [shows it](crate::Policy::show_subject).
    pub shown_subject: Option<Arc<str>>,
    /// The number of recent denials: each counts half after every half-life.
    pub denials: u64,
    /// The most of these denials that may belong to other keys; 0 while all keys fit.
    pub overestimate: u64,
    /// When the key was last denied, in microseconds since the Unix epoch.
    pub last_denied: Micros,
    /// The policy's mode at that time: in [`Mode::Shadow`] the request only would have been denied.
    pub mode: Mode,
}

impl TopEntry {
    fn of(policy: &Arc<str>, slot: &Slot) -> Self {
        let denials = slot.count.round() as u64;
        // Rounded like the count: an old denial that counts almost nothing is not a whole denial.
        let certain = (slot.count - slot.inherited).round() as u64;
        Self {
            policy: Arc::clone(policy),
            subject: slot.subject,
            shown_subject: slot.latest.shown_subject.clone(),
            denials,
            overestimate: denials.saturating_sub(certain),
            last_denied: slot.latest.at,
            mode: slot.latest.mode,
        }
    }
}

#[cfg(test)]
mod tests;
