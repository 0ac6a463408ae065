//! What can be done with the permits of a key.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::Receipt;
use crate::limit::MOST_PERMITS;
use crate::random::random;
use crate::time::Micros;

/// What a check does with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Takes permits if they fit.
    Acquire(Acquire),
    /// Takes so many permits without asking: the limit may be passed.
    Charge(u64),
    /// Gives permits back, at most as many as are taken.
    Credit {
        /// How many.
        permits: u64,
        /// When they were taken, on the store's clock, so that a window that has ended since is not
        /// credited; not known when `None`.
        taken_at: Option<Micros>,
    },
    /// Gives back of what a decision took. What has come back by itself since is not given back
    /// once more; for a debt, what would have if nothing else had been given back.
    Refund {
        /// How many.
        permits: u64,
        /// The receipt of the decision that took them.
        receipt: Receipt,
    },
    /// Gives back what a decision took ahead of time, unless somebody has taken permits since. The
    /// same as a credit for an algorithm that lets nobody wait.
    Cancel {
        /// How many.
        permits: u64,
        /// The receipt of the decision that took them.
        receipt: Receipt,
    },
    /// Gives back what a decision took that may hold up others: as a refund, unless somebody has
    /// taken permits since and anybody may be waiting for theirs. The same as a credit for an
    /// algorithm that lets nobody wait.
    Withdraw {
        /// How many.
        permits: u64,
        /// The receipt of the decision that took them.
        receipt: Receipt,
    },
    /// Lets nothing go on for so long, and then at the limit's pace, without a burst. Never makes a wait
    /// shorter. Does nothing for an algorithm that [cannot wait](crate::store::Algorithm::can_wait).
    Hold {
        /// How long.
        time: Micros,
        /// How many permits there are then; a queue ignores it, and lets go on what comes first.
        permits: u64,
    },
    /// Forgets all that is known of the key.
    Reset,
    /// Lets a lease live on, if it still does.
    Renew(LeaseId),
    /// Ends a lease, if it still lives.
    Release(LeaseId),
}

/// Permits to be taken if they fit.
///
/// ```
/// use tower_throttle::SECOND;
/// use tower_throttle::store::{Action, LeaseId, Wait, Acquire};
///
/// let patient = Acquire::new(3).with_wait(Wait::Strict(SECOND.into()));
/// let held = Acquire::new(1).with_lease(LeaseId::new());
/// assert_eq!(Action::acquire(1), Action::Acquire(Acquire::new(1)));
/// assert_eq!(Action::consume(1), Action::Acquire(Acquire::new(1).consumed()));
/// # assert!(patient.lease.is_none() && held.lease.is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acquire {
    /// How many; 0 only looks.
    pub cost: u64,
    /// What to do when they do not fit yet.
    pub wait: Wait,
    /// The lease that holds them, for an algorithm that has leases. All permits without one are
    /// held together until they lapse, a whole life after the last was taken.
    pub lease: Option<LeaseId>,
    /// Whether nobody is going to give them back by their [`Receipt`], which then says
    /// [nothing](Receipt::taken_at): a store need not tell when they were taken, which is cheaper.
    pub is_final: bool,
}

/// What to do with a cost that does not fit yet. Only algorithms that
/// [can wait](crate::store::Algorithm::can_wait) heed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// It is denied.
    #[default]
    None,
    /// It is allowed with a delay of at most so long, after which it would have fitted: the limit
    /// holds at every instant.
    Strict(Micros),
    /// It is allowed with a delay of at most so long, after which no more is owed than the limit
    /// holds at once, and of a queue nothing; what it takes itself, the next caller waits for.
    Burst(Micros),
}

/// What tells one lease from all others of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(u64);

/// A cost that never fits, whatever the limit; a script's numbers are exact up to it.
pub(super) const MOST_COST: u64 = MOST_PERMITS + 1;

/// Nobody waits longer than this, which keeps all arithmetic exact in a script.
pub(super) const LONGEST_WAIT: Micros = Micros::new(10 * 366 * 86_400_000_000);

impl Action {
    /// Takes permits if they fit now.
    pub const fn acquire(cost: u64) -> Self {
        Self::Acquire(Acquire::new(cost))
    }

    /// Takes permits if they fit now, for good: [`Acquire::is_final`].
    pub const fn consume(cost: u64) -> Self {
        Self::Acquire(Acquire::new(cost).consumed())
    }

    /// Looks, and changes nothing.
    pub const fn look() -> Self {
        Self::acquire(0)
    }

    /// The permits that it takes when it is carried out. More than any limit has count as one more
    /// than that: they never fit, and take all that can be taken.
    pub fn acquires(&self) -> u64 {
        match self {
            Self::Acquire(acquire) => acquire.cost.min(MOST_COST),
            Self::Charge(permits) => (*permits).min(MOST_COST),
            _ => 0,
        }
    }

    /// Whether there may be something to remember of a key that was never used.
    #[cfg(feature = "memory")]
    pub(crate) fn leaves_state(&self) -> bool {
        self.acquires() > 0 || matches!(self, Self::Hold { .. })
    }

    /// Whether it takes permits that are not given back.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Acquire(Acquire { is_final: true, .. }))
    }

    /// Whether it changes its key without asking, outside of a lease of its own.
    pub(crate) fn changes(&self) -> bool {
        !matches!(self, Self::Acquire(_) | Self::Renew(_) | Self::Release(_))
    }

    /// The permits that it concerns, taken or given back.
    pub(crate) fn permits(&self) -> u64 {
        match self {
            Self::Credit { permits, .. }
            | Self::Refund { permits, .. }
            | Self::Cancel { permits, .. }
            | Self::Withdraw { permits, .. } => (*permits).min(MOST_COST),
            _ => self.acquires(),
        }
    }

    /// The lease that it concerns.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Acquire(acquire) => acquire.lease,
            Self::Renew(lease) | Self::Release(lease) => Some(*lease),
            _ => None,
        }
    }

    /// What to do if its permits are not there yet.
    pub(super) fn wait(&self) -> Wait {
        match self {
            Self::Acquire(acquire) => acquire.wait,
            _ => Wait::None,
        }
    }

    /// Whether it gives back permits that are not held by a lease.
    #[inline]
    pub(super) fn gives_back(&self) -> bool {
        matches!(
            self,
            Self::Credit { .. } | Self::Refund { .. } | Self::Cancel { .. } | Self::Withdraw { .. }
        )
    }

    /// The receipt of what it gives back, if it has one.
    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::Refund { receipt, .. }
            | Self::Cancel { receipt, .. }
            | Self::Withdraw { receipt, .. } => Some(receipt),
            _ => None,
        }
    }

    /// When the permits that it gives back were taken, if that is known.
    pub(super) fn taken_at(&self) -> Option<Micros> {
        match self {
            Self::Credit { taken_at, .. } => *taken_at,
            _ => self.receipt().map(|receipt| receipt.at),
        }
    }

    /// The same for scripts. Zero if it is not known; the epoch itself is passed as 1.
    pub(super) fn taken_us(&self) -> u64 {
        self.taken_at().map_or(0, |at| at.get().max(1))
    }
}

impl Acquire {
    /// So many permits, if they fit now.
    pub const fn new(cost: u64) -> Self {
        Self {
            cost,
            wait: Wait::None,
            lease: None,
            is_final: false,
        }
    }

    /// Looks, and takes nothing.
    pub(super) const fn look() -> Self {
        Self::new(0)
    }

    /// The same, where something else is to be done when they do not fit yet.
    #[must_use]
    pub const fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// The same, held by this lease.
    #[must_use]
    pub const fn with_lease(mut self, lease: LeaseId) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The same, which nobody is going to give back: see [`is_final`](Self::is_final).
    #[must_use]
    pub const fn consumed(mut self) -> Self {
        self.is_final = true;
        self
    }
}

impl Wait {
    /// The same for a caller that does not wait: a take that would have to wait does not fit, not
    /// even into a queue.
    pub(super) fn without_waiting(self) -> Self {
        match self {
            Self::None | Self::Strict(_) => Self::Strict(Micros::ZERO),
            Self::Burst(_) => Self::Burst(Micros::ZERO),
        }
    }

    /// The longest delay.
    pub(super) fn longest(self) -> Micros {
        match self {
            Self::None => Micros::ZERO,
            Self::Strict(longest) | Self::Burst(longest) => longest.min(LONGEST_WAIT),
        }
    }
}

impl LeaseId {
    /// One that nobody else has: processes begin at random, and count.
    pub fn new() -> Self {
        static START: OnceLock<u64> = OnceLock::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let start = START.get_or_init(random);
        let next = || start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        // Zero stands for no lease.
        match next() {
            0 => Self(next()),
            id => Self(id),
        }
    }

    /// The number; never zero.
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

impl Default for LeaseId {
    fn default() -> Self {
        Self::new()
    }
}

/// A lease with a given number, for histories that are replayed.
impl From<std::num::NonZeroU64> for LeaseId {
    fn from(number: std::num::NonZeroU64) -> Self {
        Self(number.get())
    }
}
