//! What can be done with the permits of a key.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::Receipt;
use crate::limit::MOST_PERMITS;
use crate::random::random;
use crate::time::Micros;

/// What a check does with the permits of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Acquires permits if they fit.
    Acquire(Acquire),
    /// Takes this many permits unconditionally, even beyond the limit.
    Charge(u64),
    /// Gives permits back, at most as many as are used.
    Credit {
        /// How many.
        permits: u64,
        /// When they were acquired, on the store's clock, so that a window that has ended since is
        /// not credited. `None` if not known.
        taken_at: Option<Micros>,
    },
    /// Gives back permits that a decision acquired. Permits that have come back with time are not
    /// given back again; a debt counts as paid back in the order in which it was made.
    Refund {
        /// How many.
        permits: u64,
        /// The receipt of the decision that acquired them.
        receipt: Receipt,
    },
    /// Gives back permits that a decision acquired ahead of time, unless others have acquired
    /// permits since. Under an algorithm without waiting it is a credit.
    Cancel {
        /// How many.
        permits: u64,
        /// The receipt of the decision that acquired them.
        receipt: Receipt,
    },
    /// Gives back permits that a decision acquired, like a refund, unless others have acquired
    /// permits since and may still wait for them. Under an algorithm without waiting it is a credit.
    Withdraw {
        /// How many.
        permits: u64,
        /// The receipt of the decision that acquired them.
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
    /// Forgets the state of the key.
    Reset,
    /// Renews a lease that has not lapsed.
    Renew(LeaseId),
    /// Ends a lease that has not lapsed.
    Release(LeaseId),
}

/// Permits to acquire if they fit.
///
/// ```
/// use tower_throttle::SECOND;
/// use tower_throttle::store::{Action, LeaseId, Wait, Acquire};
///
/// let patient = Acquire::new(3).with_wait(Wait::Strict(SECOND.into()));
/// let held = Acquire::new(1).with_lease(LeaseId::new());
/// assert_eq!(Action::acquire(1), Action::Acquire(Acquire::new(1)));
/// assert_eq!(Action::consume(1), Action::Acquire(Acquire::new(1).consumed()));
/// let most = Acquire::new(100).or_fewer();
/// assert!(most.takes_fewer);
/// # assert!(patient.lease.is_none() && held.lease.is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acquire {
    /// How many; 0 only looks.
    pub cost: u64,
    /// What to do if they do not fit yet.
    pub wait: Wait,
    /// The lease that holds them, for an algorithm with leases. All permits without a lease share
    /// one, which lapses a whole lease time after the last of them was acquired.
    pub lease: Option<LeaseId>,
    /// Whether they will never be given back by their [`Receipt`], which is then
    /// [empty](Receipt::taken_at). That makes the question cheaper.
    pub is_final: bool,
    /// Whether fewer will do: as many are taken as fit, from 1 to `cost`. It is denied if not even
    /// one fits, for as long as that takes. See [`granted`](super::granted); an algorithm with leases
    /// does not heed it, as its permits are places.
    ///
    /// A question that has such checks is about one limit: they are of its rates, and for the same
    /// cost.
    pub takes_fewer: bool,
}

/// What to do with a cost that does not fit yet. Algorithms that
/// [cannot wait](crate::store::Algorithm::can_wait) ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Deny it.
    #[default]
    None,
    /// Allow it with a delay of at most this long, after which it fits: the limit holds at every
    /// instant.
    Strict(Micros),
    /// Allow it with a delay of at most this long, until the permits that others acquired before it
    /// leave the debt within the limit's burst (or, in a queue, leave no debt). Its own cost delays
    /// the next caller.
    Burst(Micros),
}

/// Identifies a lease among all leases of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(u64);

/// A cost that never fits, whatever the limit; a script's numbers are exact up to it.
pub(super) const MOST_COST: u64 = MOST_PERMITS + 1;

/// Nobody waits longer than this, which keeps all arithmetic exact in a script.
pub(super) const LONGEST_WAIT: Micros = Micros::new(10 * 366 * 86_400_000_000);

impl Action {
    /// Acquires permits if they fit now.
    pub const fn acquire(cost: u64) -> Self {
        Self::Acquire(Acquire::new(cost))
    }

    /// Acquires permits if they fit now, and never gives them back: [`Acquire::is_final`].
    pub const fn consume(cost: u64) -> Self {
        Self::Acquire(Acquire::new(cost).consumed())
    }

    /// Reads the state, and changes nothing.
    pub const fn look() -> Self {
        Self::acquire(0)
    }

    /// The permits that the action acquires or charges. A number above every limit counts as one
    /// above the highest limit: it never fits, and a charge of it uses up everything.
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

    /// The same for so many permits, for an acquire that [takes fewer](Acquire::takes_fewer).
    #[must_use]
    pub(crate) fn granting(self, permits: u64) -> Self {
        match self {
            Self::Acquire(acquire) if acquire.takes_fewer => Self::Acquire(Acquire {
                cost: permits,
                ..acquire
            }),
            _ => self,
        }
    }

    /// The same for the fewest permits with which it would be carried out.
    #[must_use]
    pub(crate) fn least(self) -> Self {
        match self {
            Self::Acquire(acquire) => Self::Acquire(acquire.least()),
            _ => self,
        }
    }

    /// Whether fewer permits than it is for will do.
    #[inline]
    pub(crate) fn takes_fewer(&self) -> bool {
        matches!(
            self,
            Self::Acquire(Acquire {
                takes_fewer: true,
                ..
            })
        )
    }

    /// Whether it acquires permits that are never given back.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Acquire(Acquire { is_final: true, .. }))
    }

    /// Whether it changes its key unconditionally, other than by a lease.
    pub(crate) fn changes(&self) -> bool {
        !matches!(self, Self::Acquire(_) | Self::Renew(_) | Self::Release(_))
    }

    /// The permits that it acquires or gives back.
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

    /// When the permits that it gives back were acquired, if that is known.
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
    /// This many permits, if they fit now.
    pub const fn new(cost: u64) -> Self {
        Self {
            cost,
            wait: Wait::None,
            lease: None,
            is_final: false,
            takes_fewer: false,
        }
    }

    /// Reads, and acquires nothing.
    pub(super) const fn look() -> Self {
        Self::new(0)
    }

    /// The same with another [`wait`](Self::wait).
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

    /// The same, never to be given back: see [`is_final`](Self::is_final).
    #[must_use]
    pub const fn consumed(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// The same, or fewer if not all fit: see [`takes_fewer`](Self::takes_fewer).
    #[must_use]
    pub const fn or_fewer(mut self) -> Self {
        self.takes_fewer = true;
        self
    }

    /// The same for the fewest permits with which it would be carried out.
    #[must_use]
    #[inline]
    pub(crate) fn least(self) -> Self {
        match self.takes_fewer {
            true => Self {
                cost: self.cost.min(1),
                ..self
            },
            false => self,
        }
    }
}

impl Wait {
    /// The same for a caller that does not wait: what would have to wait does not fit, not even into
    /// a queue.
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
    /// A new, unique id: each process counts from a random number.
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
