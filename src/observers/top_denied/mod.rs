//! `TopDenied`: who is denied most, in bounded memory.

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

/// After this time a denial counts half.
const DEFAULT_HALF_LIFE: Duration = MINUTE.saturating_mul(10);

/// An [`Observer`] that keeps a list of the subjects that are denied most, for an operator who asks
/// "who is it?". Clones share the list.
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
/// Subjects are hashed, unless their policy [shows them](crate::Policy::show_subject), and the hash does not tell whom it is of. Whoever is suspected can be
/// hashed in the same way, by [`Limiter::subject_of`](crate::Limiter::subject_of), and compared;
/// the same hash stands in logs and in the keys of the store.
///
/// # How exact is it?
///
/// It has room for `capacity` subjects of each policy, about 100 bytes for each. As long as no more
/// are denied, it counts exactly. Beyond that, who comes new takes the place, and the count, of
/// whoever has the smallest. Then every subject that makes up more than one in `capacity` of its
/// policy's denials is on the list, and no count is too low, nor too high by more than that share;
/// [`TopEntry::overestimate`] tells by how much each may be. (It is the algorithm Space-Saving.)
///
/// Denials count less as time passes, so that yesterday's attack does not hide today's: all counts
/// are halved each time another [half-life](TopDeniedBuilder::half_life) is over since the list was
/// made, however the system's clock is set meanwhile. What has faded to less than one half is not on
/// the list.
///
/// A denial takes a lock that is the policy's own: for some ten nanoseconds, and for about a hundred
/// where who comes new takes another's place among a thousand. That grows with the logarithm of the
/// capacity alone, whoever is denied. Whatever is allowed takes nothing.
#[derive(Clone)]
pub struct TopDenied(Arc<Shared>);

struct Shared {
    capacity: usize,
    half_life: Micros,
    /// For the time of a denial.
    wall_clock: Arc<dyn Clock>,
    /// For how much time has passed. Not the wall clock: if it were set back by a month, no count
    /// would fade for a month.
    stopwatch: Arc<dyn Clock>,
    /// The stopwatch's time when the list was made.
    since: Micros,
    policies: PerPolicy<Mutex<Sketch>>,
}

impl TopDenied {
    /// Room for so many subjects of each policy (at least one), with a half-life of 10 minutes.
    pub fn new(capacity: usize) -> Self {
        Self::builder(capacity).build()
    }

    /// For another half-life, or another clock.
    pub fn builder(capacity: usize) -> TopDeniedBuilder {
        TopDeniedBuilder {
            capacity,
            half_life: DEFAULT_HALF_LIFE,
            clock: None,
        }
    }

    /// Those that are denied most, of all policies, the worst first.
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
    /// How many half-lives are over.
    fn span(&self) -> u64 {
        let passed = self.stopwatch.now().saturating_sub(self.since);
        passed.get() / self.half_life.get()
    }
}

fn up_to_date(sketch: &Mutex<Sketch>, span: u64) -> MutexGuard<'_, Sketch> {
    // Nothing under the lock panics half way.
    let mut sketch = sketch.lock().unwrap_or_else(PoisonError::into_inner);
    sketch.fade(span);
    sketch
}

/// Counts denials by the store, by what is remembered of it, by this process's share of a limit, and
/// those of policies that are in [shadow mode](Mode::Shadow); not refusals for want of an answer from
/// the store.
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

/// Builds a [`TopDenied`] with more than the defaults.
#[must_use]
pub struct TopDeniedBuilder {
    capacity: usize,
    half_life: Duration,
    clock: Option<Arc<dyn Clock>>,
}

impl TopDeniedBuilder {
    /// The time after which a denial counts half; at least a second, and 10 minutes unless said.
    pub fn half_life(mut self, half_life: Duration) -> Self {
        self.half_life = half_life;
        self
    }

    /// Another clock than the system's, as tests need it: counts fade by it too.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// An empty list.
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

/// A subject that is denied often: one line of [`TopDenied::list`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopEntry {
    /// The policy that denies it.
    pub policy: Arc<str>,
    /// Who it is, hashed.
    pub subject: Subject,
    /// Who it is in clear, if the policy [shows it](crate::Policy::show_subject).
    pub shown_subject: Option<Arc<str>>,
    /// Its denials of late: each counts half after every half-life.
    pub denials: u64,
    /// How many of them may be others' at most; 0 as long as there is room for all.
    pub overestimate: u64,
    /// When it was last denied, in microseconds since the Unix epoch.
    pub last_denied: Micros,
    /// The policy's mode at that time: in [`Mode::Shadow`] it only would have been denied.
    pub mode: Mode,
}

impl TopEntry {
    fn of(policy: &Arc<str>, slot: &Slot) -> Self {
        let denials = slot.count.round() as u64;
        // Rounded like the count: what has faded to next to nothing is not a whole denial.
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
