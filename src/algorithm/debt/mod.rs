//! Debt: the arithmetic that GCRA, token bucket and leaky bucket share. Mirrors `lua/debt.lua`.
//!
//! One instant is stored: when everything that was taken is paid back. It lies ahead of now by the
//! *debt*. A permit adds its emission interval to the debt. An interval that is not a whole number
//! of microseconds keeps its fraction as an integer ratio, so no rate is ever rounded.

use super::action::{Action, Patience, Take};
use super::span::{Interval, Span};
use super::{Arguments, Arithmetic, Left, Reading, Share, decide};
use crate::decision::{Decision, Receipt};
use crate::limit::{SoundLimit, most_capacity};
use crate::time::{DAY, Micros};

mod plain;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Debt {
    limit: u32,
    period: Micros,
    capacity: u32,
    interval: Interval,
    /// The time in which the whole capacity comes back: the most debt with which a cost fits.
    tolerance: Span,
    /// Whether admitted requests leave one after the other.
    queues: bool,
}

/// The instant `us + part / scale`; the epoch for a key that was never used.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    us: u64,
    part: u32,
    scale: u32,
}

impl State {
    #[inline]
    fn paid_at(&self) -> Span {
        Span {
            us: self.us,
            part: self.part,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            us: 0,
            part: 0,
            scale: 1,
        }
    }
}

/// The most debt of a key, however much is charged without asking. Longer than the longest
/// tolerance and the longest wait together, and short enough for a script's numbers until 2135.
const MOST_DEBT: Span = Span::whole(120 * 366 * DAY.as_micros() as u64);

/// Functions are always inlined where they compute what their callers compute too, the debt and the
/// price: the compiler then does it once.
impl Debt {
    pub(super) fn new(limit: &SoundLimit) -> Self {
        Self::of(limit.permits, limit.period, limit.capacity)
    }

    fn of(limit: u32, period: Micros, capacity: u32) -> Self {
        let interval = Interval::new(limit, period);
        Self {
            limit,
            period,
            capacity,
            interval,
            tolerance: interval.times(capacity.into()),
            queues: false,
        }
    }

    /// Holds admitted requests up, so that they leave one after the other.
    pub(super) fn queueing(self) -> Self {
        Self {
            queues: true,
            ..self
        }
    }

    #[inline]
    fn debt(&self, state: &State, now: Micros) -> Span {
        let paid_at = if state.part == 0 || state.scale == self.interval.scale() {
            state.paid_at()
        } else {
            // The rate was changed: the old fraction is rounded up, so that nothing is forgiven.
            Span::whole(state.us.saturating_add(1))
        };
        let now = Span::whole(now.get());
        self.interval.difference(paid_at, now)
    }

    #[inline]
    fn owe(&self, state: &mut State, now: Micros, debt: Span) {
        *state = State {
            us: now.get().saturating_add(debt.us),
            part: debt.part,
            scale: self.interval.scale(),
        };
    }

    /// What this many permits cost in time.
    #[inline]
    fn price(&self, permits: u32) -> Span {
        let price = self.interval.times(permits.into());
        if price.us < MOST_DEBT.us {
            return price;
        }
        MOST_DEBT
    }

    #[inline]
    fn with(&self, debt: Span, permits: u32) -> Span {
        let owed = self.interval.sum(debt, self.price(permits));
        if owed.us < MOST_DEBT.us {
            return owed;
        }
        // After the clock stepped back the debt may exceed the maximum.
        owed.min(MOST_DEBT.max(debt))
    }

    /// How long until this many more permits fit.
    #[inline]
    fn over(&self, debt: Span, permits: u32) -> Span {
        // Not bounded by the maximum debt: that would make the wait too short.
        let wanted = self.interval.sum(debt, self.price(permits));
        self.interval.difference(wanted, self.tolerance)
    }

    /// The debt that was read, after this many more permits were taken.
    #[inline]
    fn debt_read(&self, reading: &Reading, taken: u32) -> Span {
        let [us, part] = reading.level;
        let debt = Span {
            us,
            part: self.part(part),
        };
        match taken {
            0 => debt,
            _ => self.with(debt, taken),
        }
    }

    /// What is still owed of everything taken up to this receipt. No more can be given back: the
    /// rest has come back by itself.
    fn unpaid(&self, receipt: &Receipt, now: Micros) -> Span {
        let now = Span::whole(now.get());
        self.interval.difference(self.paid_at(receipt), now)
    }

    /// How many whole permits are still owed of everything taken up to this receipt.
    pub(super) fn permits_unpaid(&self, receipt: &Receipt, now: Micros) -> u32 {
        self.interval.fit_into(self.unpaid(receipt, now))
    }

    /// How many whole permits come back in this time.
    pub(super) fn permits_in(&self, time: Micros) -> u32 {
        self.interval.fit_into(Span::whole(time.get()))
    }

    /// Whether somebody may be waiting for permits that are taken already. In a queue everybody
    /// waits; otherwise nobody does while the debt is within the tolerance.
    fn may_hold_up_somebody(&self, state: &State, now: Micros) -> bool {
        self.queues || self.tolerance < self.debt(state, now)
    }

    /// The instant at which everything taken up to this receipt is paid back.
    fn paid_at(&self, receipt: &Receipt) -> Span {
        let [us, part] = receipt.mark;
        Span {
            us,
            part: self.part(part),
        }
    }

    /// A fraction from outside: an invalid one must not panic.
    #[inline]
    fn part(&self, part: u64) -> u32 {
        let is_part = |part: &u32| *part < self.interval.scale();
        u32::try_from(part).ok().filter(is_part).unwrap_or(0)
    }

    /// Whether a cost fits, and the wait: how long to hold it up, or how long until it fits.
    #[inline(always)]
    fn judge(&self, debt: Span, take: &Take) -> (bool, Micros) {
        if take.cost == 0 {
            return (true, Micros::ZERO);
        }
        let over = self.over(debt, take.cost);
        if take.patience == Patience::None && !self.queues {
            let wait = over.ceil();
            return (wait.is_zero(), wait);
        }
        self.judge_waiting(debt, over, take)
    }

    // Out of line: most policies let nobody wait.
    #[inline(never)]
    fn judge_waiting(&self, debt: Span, over: Span, take: &Take) -> (bool, Micros) {
        let (held, delay) = match take.patience {
            Patience::UntilPaid(_) if self.queues => (Span::ZERO, debt),
            Patience::UntilPaid(_) => (Span::ZERO, self.interval.difference(debt, self.tolerance)),
            // What fits into the capacity may enter, and then waits for those before it.
            _ if self.queues => (over, debt),
            _ => (Span::ZERO, over),
        };
        let longest = match take.patience {
            Patience::None if self.queues => Micros::new(u64::MAX),
            patience => patience.longest(),
        };
        let never = take.cost > self.capacity && !matches!(take.patience, Patience::UntilPaid(_));
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
    fn read(&self, state: &State, now: Micros, take: &Take) -> Reading {
        let debt = self.debt(state, now);
        let (fits, wait) = self.judge(debt, take);
        Reading {
            fits,
            wait,
            level: [debt.us, debt.part.into()],
            next: Micros::ZERO,
            at: now,
        }
    }

    #[cfg(feature = "memory")]
    #[inline]
    fn ask(&self, state: &mut State, now: Micros, action: &Action) -> Decision {
        match self.plain_take(action) {
            Some(take) => self.ask_plainly(state, now, take),
            None => decide::ask(self, state, now, action),
        }
    }

    #[cfg(feature = "redis")]
    fn behind(&self, reading: &Reading, permits: u32) -> Reading {
        let debt = self.debt_read(reading, permits);
        Reading {
            level: [debt.us, debt.part.into()],
            ..*reading
        }
    }

    #[inline]
    fn decide(&self, reading: &Reading, action: &Action, committed: bool) -> Decision {
        match self.plain_take(action) {
            Some(take) => self.decide_plainly(reading, take, committed),
            None => decide::decide(self, reading, action, committed),
        }
    }

    #[inline(always)]
    fn charge(&self, state: &mut State, now: Micros, permits: u32) {
        let debt = self.with(self.debt(state, now), permits);
        self.owe(state, now, debt);
    }

    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        if let Action::Cancel { receipt, .. } = action
            && receipt.mark != [state.us, state.part.into()]
        {
            return;
        }
        if let Action::Withdraw { receipt, .. } = action
            && self.paid_at(receipt) != state.paid_at()
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
            let left = self.interval.difference(debt, back);
            if left == debt {
                return;
            }
            if left == Span::ZERO {
                *state = State::default();
            } else {
                self.owe(state, now, left);
            }
        }
    }

    fn expires_at(state: &State) -> Micros {
        state.paid_at().ceil()
    }

    fn capacity(&self) -> u32 {
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

    fn quota(&self) -> (u32, Micros) {
        (self.limit, self.period)
    }

    #[inline(always)]
    fn left(&self, reading: &Reading, charged: u32) -> Left {
        let debt = self.debt_read(reading, charged);
        let slack = self.interval.difference(self.tolerance, debt);
        let remaining = self.interval.fit_into(slack);
        Left {
            remaining,
            reset_after: debt.ceil(),
            renews_after: match remaining {
                0 => self.over(debt, 1).ceil(),
                _ => Micros::ZERO,
            },
            renews_whole: false,
            mark: [reading.at.get().saturating_add(debt.us), debt.part.into()],
        }
    }

    fn arguments(&self, action: &Action) -> Arguments {
        let price = self.price(action.permits());
        let [us, part] = match action {
            Action::Cancel { receipt, .. } => receipt.mark,
            Action::Refund { receipt, .. } | Action::Withdraw { receipt, .. } => {
                let paid_at = self.paid_at(receipt);
                [paid_at.us.max(1), paid_at.part.into()]
            }
            Action::Take(Take {
                patience: Patience::None,
                ..
            }) if self.queues => [MOST_DEBT.us, 0],
            action => [action.patience().longest().get(), 0],
        };
        [
            price.us,
            price.part.into(),
            self.tolerance.us,
            self.tolerance.part.into(),
            self.interval.scale().into(),
            us,
            part,
            self.queues.into(),
        ]
    }

    fn level(&self, decision: &Decision) -> [u64; 2] {
        let Receipt { at, mark, .. } = decision.receipt;
        [mark[0].saturating_sub(at.get()), mark[1]]
    }

    /// The debt says everything about a key, so any cost can be judged.
    fn later(&self, reading: &Reading, _: u32, elapsed: Micros, take: &Take) -> Option<Reading> {
        let gone = Span::whole(elapsed.get());
        let debt = self.interval.difference(self.debt_read(reading, 0), gone);
        let (fits, wait) = self.judge(debt, take);
        Some(Reading {
            fits,
            wait,
            level: [debt.us, debt.part.into()],
            next: Micros::ZERO,
            at: reading.at.saturating_add(elapsed),
        })
    }
}
