//! Debt: the arithmetic that GCRA, token bucket and leaky bucket share. Mirrors `lua/debt.lua`.
//!
//! One instant is stored: when everything that was acquired is paid back. The *debt* is the time until
//! then. A permit adds its emission interval to the debt. The interval has a fraction of 32 bits: it is
//! rounded down once, when the limit is made, and everything else is exact. At a frozen clock exactly
//! the capacity is admitted, as the tolerance is a multiple of the interval.
//!
//! - **GCRA** is the generic cell rate algorithm, ITU-T Recommendation I.371, Annex A. The stored
//!   instant is the theoretical arrival time. A cost fits if, with the cost added, that instant lies
//!   ahead of now by no more than the whole burst takes to come back. Mirrors `lua/gcra.lua`.
//! - **Token bucket:** `capacity` tokens, refilled continuously; a cost removes some of them. The
//!   missing tokens are stored as the time until the bucket is full again: a full bucket has no debt,
//!   and no fraction of a token is lost or invented. A caller that waits for tokens makes their number
//!   negative. Mirrors `lua/token_bucket.lua`.
//! - **Leaky bucket:** a cost is poured in, drains at a constant rate, and must not overflow. The
//!   water is stored as the time until the bucket is empty. As a queue, which is the original leaky
//!   bucket, each request is delayed until the water before it has drained; as a meter it passes at
//!   once. Mirrors `lua/leaky_bucket.lua`.

use super::action::{Acquire, Action, LONGEST_WAIT, MOST_COST, Wait};
#[cfg(feature = "memory")]
use super::arithmetic::ask;
use super::arithmetic::{Arithmetic, Left, decide};
use super::fixed_point::FixedMicros;
use super::reading::{Arguments, Reading, Share};
use crate::decision::{Decision, Receipt};
use crate::limit::{ValidLimit, most_capacity};
use crate::time::{DAY, Micros};

pub(super) mod fast_path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Debt {
    limit: u64,
    period: Micros,
    capacity: u64,
    // The interval of a permit and the tolerance, in pieces so that their fractions share a word:
    // there are many remembered denials, and each has its algorithm.
    interval_us: u64,
    tolerance_us: u64,
    interval_fraction: u32,
    tolerance_fraction: u32,
    /// Whether admitted requests are spaced evenly.
    queues: bool,
}

/// The instant at which the debt is paid back; the epoch for a key that was never used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State(FixedMicros);

/// The most debt of a key, however much is charged. Longer than the longest tolerance and the longest
/// wait together, and short enough for a script's numbers until 2135.
const MOST_DEBT: FixedMicros = FixedMicros::whole(120 * 366 * DAY.as_micros() as u64);

/// Functions are always inlined where they compute what their callers compute too, the debt and the
/// price: the compiler then does it once.
impl Debt {
    pub(super) fn new(limit: &ValidLimit) -> Self {
        Self::of(limit.permits, limit.period, limit.capacity)
    }

    /// As a queue, it delays admitted requests, so that they are spaced evenly.
    pub(super) fn leaky_bucket(limit: &ValidLimit) -> Self {
        Self {
            queues: limit.queues,
            ..Self::new(limit)
        }
    }

    fn of(limit: u64, period: Micros, capacity: u64) -> Self {
        let interval = FixedMicros::interval(limit, period);
        let tolerance = interval.times(capacity);
        Self {
            limit,
            period,
            capacity,
            interval_us: interval.us,
            tolerance_us: tolerance.us,
            interval_fraction: interval.fraction,
            tolerance_fraction: tolerance.fraction,
            queues: false,
        }
    }

    /// The time in which a permit comes back.
    #[inline]
    fn interval(&self) -> FixedMicros {
        FixedMicros {
            us: self.interval_us,
            fraction: self.interval_fraction,
        }
    }

    /// The time in which the whole capacity comes back: the most debt with which a cost fits.
    #[inline]
    fn tolerance(&self) -> FixedMicros {
        FixedMicros {
            us: self.tolerance_us,
            fraction: self.tolerance_fraction,
        }
    }

    #[inline]
    fn debt(&self, state: &State, now: Micros) -> FixedMicros {
        state.0.saturating_sub(FixedMicros::whole(now.get()))
    }

    #[inline]
    fn owe(&self, state: &mut State, now: Micros, debt: FixedMicros) {
        *state = State(FixedMicros::whole(now.get()).saturating_add(debt));
    }

    /// What this many permits cost in time.
    #[inline]
    fn price(&self, permits: u64) -> FixedMicros {
        let price = self.interval().times(permits.min(MOST_COST));
        if price.us < MOST_DEBT.us {
            return price;
        }
        MOST_DEBT
    }

    #[inline]
    fn with(&self, debt: FixedMicros, permits: u64) -> FixedMicros {
        let owed = debt.saturating_add(self.price(permits));
        if owed.us < MOST_DEBT.us {
            return owed;
        }
        // After the clock stepped back the debt may exceed the maximum.
        owed.min(MOST_DEBT.max(debt))
    }

    /// How long until this many more permits fit.
    #[inline]
    fn over(&self, debt: FixedMicros, permits: u64) -> FixedMicros {
        // Not bounded by the maximum debt: that would make the wait too short.
        let wanted = debt.saturating_add(self.price(permits));
        wanted.saturating_sub(self.tolerance())
    }

    /// The debt that was read, after this many more permits were acquired.
    #[inline]
    fn debt_read(&self, reading: &Reading, taken: u64) -> FixedMicros {
        let debt = fixed(reading.level);
        match taken {
            0 => debt,
            _ => self.with(debt, taken),
        }
    }

    /// The rest of the debt up to this receipt. No more can be given back, since the other part has
    /// come back with time.
    fn unpaid(&self, receipt: &Receipt, now: Micros) -> FixedMicros {
        let now = FixedMicros::whole(now.get());
        self.paid_at(receipt).saturating_sub(now)
    }

    /// The rest of the debt up to this receipt, in whole permits.
    pub(super) fn permits_unpaid(&self, receipt: &Receipt, now: Micros) -> u64 {
        self.permits_of(self.unpaid(receipt, now))
    }

    /// How many whole permits come back in this time.
    pub(super) fn permits_in(&self, time: Micros) -> u64 {
        self.permits_of(FixedMicros::whole(time.get()))
    }

    /// The debt with which nothing goes on for so long, and after which so many permits are there.
    fn held(&self, time: Micros, permits: u64) -> FixedMicros {
        let time = FixedMicros::whole(time.min(LONGEST_WAIT).get());
        // A queue waits until all before is paid back, others until what they cost is.
        match self.queues {
            true => time,
            false => time.saturating_add(self.tolerance().saturating_sub(self.price(permits))),
        }
    }

    /// Whether callers may be waiting for permits that they have acquired. In a queue all callers
    /// wait; otherwise none does while the debt is within the tolerance.
    fn may_hold_up_somebody(&self, state: &State, now: Micros) -> bool {
        self.queues || self.tolerance() < self.debt(state, now)
    }

    /// The instant at which the debt up to this receipt is paid back.
    fn paid_at(&self, receipt: &Receipt) -> FixedMicros {
        fixed(receipt.mark)
    }

    /// The receipt after `actual` permits are charged instead of `charged`. If debts were paid back in
    /// between, it covers less than is owed, never more.
    pub(super) fn settled(&self, receipt: &Receipt, charged: u64, actual: u64) -> Receipt {
        let paid_at = self
            .paid_at(receipt)
            .saturating_add(self.price(actual.saturating_sub(charged)))
            .saturating_sub(self.price(charged.saturating_sub(actual)));
        Receipt {
            mark: [paid_at.us, paid_at.fraction.into()],
            ..*receipt
        }
    }

    /// How many whole permits are given in this time.
    #[inline]
    fn permits_of(&self, time: FixedMicros) -> u64 {
        time.divided_by(self.interval())
    }

    /// Whether a cost fits, and the wait: the delay if it fits, otherwise the time until it does.
    #[inline(always)]
    fn decide(&self, debt: FixedMicros, acquire: &Acquire) -> (bool, Micros) {
        if acquire.cost == 0 {
            return (true, Micros::ZERO);
        }
        let over = self.over(debt, acquire.cost);
        if acquire.wait == Wait::None && !self.queues {
            let wait = over.ceil();
            return (wait.is_zero(), wait);
        }
        self.decide_waiting(debt, over, acquire)
    }

    // Out of line: most policies do not let requests wait.
    #[inline(never)]
    fn decide_waiting(
        &self,
        debt: FixedMicros,
        over: FixedMicros,
        acquire: &Acquire,
    ) -> (bool, Micros) {
        let (held, delay) = match acquire.wait {
            Wait::Burst(_) if self.queues => (FixedMicros::ZERO, debt),
            Wait::Burst(_) => (FixedMicros::ZERO, debt.saturating_sub(self.tolerance())),
            // What fits into the capacity may enter, and then waits for those before it.
            _ if self.queues => (over, debt),
            _ => (FixedMicros::ZERO, over),
        };
        let longest = match acquire.wait {
            Wait::None if self.queues => Micros::new(u64::MAX),
            wait => wait.longest(),
        };
        let never = acquire.cost > self.capacity && !matches!(acquire.wait, Wait::Burst(_));
        let (held, delay) = (held.ceil(), delay.ceil());
        let fits = !never && held.is_zero() && delay <= longest;
        let wait = if fits {
            delay
        } else {
            held.max(delay.saturating_sub(longest))
        };
        (fits, wait)
    }
}

impl Arithmetic for Debt {
    type State = State;
    const CAN_WAIT: bool = true;

    #[inline]
    fn read(&self, state: &State, now: Micros, acquire: &Acquire) -> Reading {
        let debt = self.debt(state, now);
        let (fits, wait) = self.decide(debt, acquire);
        Reading {
            fits,
            wait,
            level: [debt.us, debt.fraction.into()],
            next: Micros::ZERO,
            at: now,
        }
    }

    #[cfg(feature = "memory")]
    #[inline]
    fn ask(&self, state: &mut State, now: Micros, action: &Action) -> Decision {
        match self.fast_path(action) {
            Some(path) => self.ask_fast(state, now, path),
            None => ask(self, state, now, action),
        }
    }

    #[cfg(feature = "redis")]
    fn behind(&self, reading: &Reading, permits: u64) -> Reading {
        let debt = self.debt_read(reading, permits);
        Reading {
            level: [debt.us, debt.fraction.into()],
            ..*reading
        }
    }

    #[inline]
    fn decide(&self, reading: &Reading, action: &Action, committed: bool) -> Decision {
        match self.fast_path(action) {
            Some(path) => self.decide_fast(reading, path, committed),
            None => decide(self, reading, action, committed),
        }
    }

    #[inline(always)]
    fn charge(&self, state: &mut State, now: Micros, permits: u64) {
        let debt = self.with(self.debt(state, now), permits);
        self.owe(state, now, debt);
    }

    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        if let Action::Hold { time, permits } = action {
            let held = self.held(*time, *permits);
            if self.debt(state, now) < held {
                self.owe(state, now, held);
            }
            return;
        }
        if let Action::Cancel { receipt, .. } = action
            && self.paid_at(receipt) != state.0
        {
            return;
        }
        if let Action::Withdraw { receipt, .. } = action
            && self.paid_at(receipt) != state.0
            && self.may_hold_up_somebody(state, now)
        {
            return;
        }
        if let Action::Credit { .. }
        | Action::Refund { .. }
        | Action::Cancel { .. }
        | Action::Withdraw { .. } = action
        {
            let debt = self.debt(state, now);
            let mut back = self.price(action.permits());
            if let Action::Refund { receipt, .. } | Action::Withdraw { receipt, .. } = action {
                back = back.min(self.unpaid(receipt, now));
            }
            let left = debt.saturating_sub(back);
            if left == debt {
                return;
            }
            if left == FixedMicros::ZERO {
                *state = State::default();
            } else {
                self.owe(state, now, left);
            }
        }
    }

    fn expires_at(state: &State) -> Micros {
        state.0.ceil()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn queues(&self) -> bool {
        self.queues
    }

    fn scale(&mut self, share: Share) {
        let limit = share.of(self.limit);
        // Rounding may have lowered the rate's share more than the capacity's.
        let capacity = share
            .of(self.capacity)
            .min(most_capacity(limit, self.period));
        *self = Self {
            queues: self.queues,
            ..Self::of(limit, self.period, capacity)
        };
    }

    fn quota(&self) -> (u64, Micros) {
        (self.limit, self.period)
    }

    #[inline(always)]
    fn left(&self, reading: &Reading, charged: u64) -> Left {
        let debt = self.debt_read(reading, charged);
        let slack = self.tolerance().saturating_sub(debt);
        let remaining = self.permits_of(slack);
        Left {
            remaining,
            reset_after: debt.ceil(),
            renews_after: match remaining {
                0 => self.over(debt, 1).ceil(),
                _ => Micros::ZERO,
            },
            renews_whole: false,
            mark: [
                reading.at.get().saturating_add(debt.us),
                debt.fraction.into(),
            ],
        }
    }

    fn arguments(&self, action: &Action) -> Arguments {
        let price = self.price(match action {
            Action::Hold { permits, .. } => *permits,
            action => action.permits(),
        });
        let [us, fraction] = match action {
            Action::Hold { time, .. } => [time.min(&LONGEST_WAIT).get(), 0],
            Action::Cancel { receipt, .. } => receipt.mark,
            Action::Refund { receipt, .. } | Action::Withdraw { receipt, .. } => {
                let paid_at = self.paid_at(receipt);
                [paid_at.us.max(1), paid_at.fraction.into()]
            }
            Action::Acquire(Acquire {
                wait: Wait::None, ..
            }) if self.queues => [MOST_DEBT.us, 0],
            action => [action.wait().longest().get(), 0],
        };
        [
            price.us,
            price.fraction.into(),
            self.tolerance_us,
            self.tolerance_fraction.into(),
            us,
            fraction,
            self.queues.into(),
            0,
        ]
    }

    fn level(&self, decision: &Decision) -> [u64; 2] {
        let Receipt { at, mark, .. } = decision.receipt;
        [mark[0].saturating_sub(at.get()), mark[1]]
    }

    /// The debt is the whole state, so any cost can be decided.
    #[inline]
    fn later(
        &self,
        reading: &Reading,
        _: u64,
        elapsed: Micros,
        acquire: &Acquire,
    ) -> Option<Reading> {
        let gone = FixedMicros::whole(elapsed.get());
        let debt = self.debt_read(reading, 0).saturating_sub(gone);
        let (fits, wait) = self.decide(debt, acquire);
        Some(Reading {
            fits,
            wait,
            level: [debt.us, debt.fraction.into()],
            next: Micros::ZERO,
            at: reading.at.saturating_add(elapsed),
        })
    }
}

/// A number from outside: an impossible fraction must not panic.
#[inline]
fn fixed([us, fraction]: [u64; 2]) -> FixedMicros {
    let fraction = u32::try_from(fraction).unwrap_or(0);
    FixedMicros { us, fraction }
}
