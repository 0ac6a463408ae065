//! Holds: an upstream has answered that no request shall come before some time, and the whole fleet
//! obeys.
//!
//! One question raises the debt of the policy's first rate, so that later requests wait until the hold
//! is over and then go on at that rate's pace. Requests that wait already know their time from before
//! the hold. For them the question also stores the end of the hold, under a key of its own, and each
//! of them reads it when its time comes. The debt alone would not do: without a hold it may be as large.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::acquire::WaitingPolicy;
use super::{Limiter, decisions, failure};
use crate::algorithm::Action;
use crate::key::{Key, Subject};
use crate::mode::Mode;
use crate::observer::{HoldEvent, Observer as _};
use crate::policy::CompiledPolicy;
use crate::store::{Answer, Check, Store as _};
use crate::task::spawn_polled;
use crate::time::{DAY, Micros, SECOND};
use crate::trace;

/// Whose requests are held, and what each of them costs.
#[derive(Clone, Copy)]
pub(crate) struct Holding<'a> {
    pub(crate) policy: &'a WaitingPolicy,
    pub(crate) key: &'a Key,
    /// The policy's own by default.
    pub(crate) cost: Option<u64>,
}

/// The policy in force, and whose requests are held under it.
struct Holdable {
    policy: Arc<CompiledPolicy>,
    subject: Subject,
    cost: u64,
}

impl Limiter {
    /// Holds all requests for this time. One that has to wait longer still does. The question is sent
    /// before this returns; nothing waits for the answer. If the store fails, it is asked again in the
    /// background, and a flush counts the hold as lost.
    pub(crate) fn hold(&self, holding: Holding<'_>, time: Duration) {
        let Some(of) = self.holdable(holding) else {
            return;
        };
        trace::debug!(
            policy = of.policy.id.name(),
            hold_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            "held by the upstream"
        );
        self.0.observers.on_hold(&HoldEvent {
            policy: of.policy.id.name(),
            subject: of.subject,
            time,
        });
        let answer = self.ask_to_hold(&of, time);
        let end = Instant::now() + time.min(366 * DAY);
        let Some(runtime) = self.runtime_to_go_on(None) else {
            return;
        };
        let mut in_flight = self.in_flight_guard();
        let (limiter, cost) = (self.clone(), holding.cost);
        let (policy, key) = (holding.policy.clone(), holding.key.clone());
        spawn_polled(&runtime, async move {
            if failure(answer).await.is_none() {
                return in_flight.arrived();
            }
            // A flush does not wait for the store's return.
            drop(in_flight);
            let (policy, key) = (&policy, &key);
            let holding = Holding { policy, key, cost };
            limiter.hold_when_store_answers(holding, end).await;
        });
    }

    /// Asks every second, each time for what is left of the hold, which only ever tightens.
    async fn hold_when_store_answers(&self, holding: Holding<'_>, end: Instant) {
        let subject = self.subject(holding.key);
        let is_last = || {
            self.0
                .failed_holds
                .is_last(holding.policy.name(), subject, end)
        };
        while is_last() {
            sleep(SECOND).await;
            let left = end.saturating_duration_since(Instant::now());
            let answer = match self.holdable(holding) {
                Some(of) if !left.is_zero() && is_last() => self.ask_to_hold(&of, left),
                _ => return,
            };
            if failure(answer).await.is_none() {
                return;
            }
        }
    }

    fn ask_to_hold(&self, of: &Holdable, time: Duration) -> Answer {
        let time = Micros::from(time);
        let until = Action::Hold { time, permits: 1 };
        self.0.store.ask(&[
            of.pace_after(time),
            of.policy.check_of_hold(of.subject, until),
        ])
    }

    /// How long requests are still held.
    pub(crate) async fn held(&self, holding: Holding<'_>) -> Micros {
        loop {
            let answer = match self.holdable(holding) {
                Some(of) => {
                    let look = of.policy.check_of_hold(of.subject, Action::look());
                    self.0.store.ask(&[look])
                }
                None => return Micros::ZERO,
            };
            let decisions = decisions(answer).await;
            match decisions.iter().next() {
                Some(decision) if !decision.is_allowed() => {}
                decision => return decision.map_or(Micros::ZERO, |it| it.reset_after),
            }
            // The store gives no answer, and the policy denies what it does not know.
            self.delay(SECOND).await;
        }
    }

    /// Raises the debt once more: permits that were given back since may have lowered it, and then all
    /// held requests would go on together.
    pub(crate) async fn keep_pace_after(&self, holding: Holding<'_>, left: Micros) {
        let Some(of) = self.holdable(holding) else {
            return;
        };
        let answer = self.0.store.ask(&[of.pace_after(left)]);
        drop(of);
        let _ = decisions(answer).await;
    }

    /// `None` if requests do not wait under the policy as it is now.
    fn holdable(&self, holding: Holding<'_>) -> Option<Holdable> {
        let rules = holding.policy.rules(self);
        let policy = rules.named(holding.policy.name()).ok()?;
        let mode = policy.mode();
        let is_held = mode != Mode::Shadow
            && policy.can_be_held()
            && self
                .decided_without_store(&rules, holding.key, mode)
                .is_none();
        is_held.then(|| Holdable {
            policy: Arc::clone(policy),
            subject: self.subject(holding.key),
            cost: holding.cost.unwrap_or_else(|| policy.default_cost()),
        })
    }
}

impl Holdable {
    /// The check that lets the first request go on after this time, and others at the limit's pace. Of
    /// a limit of several rates the first one sets it. The others are budgets, which a hold does not
    /// use up.
    fn pace_after(&self, time: Micros) -> Check<'_> {
        // What costs more than there ever is waits for all that was taken before it, not for itself.
        let permits = match self.cost > self.policy.capacity() {
            true => 0,
            false => self.cost,
        };
        let action = Action::Hold { time, permits };
        let first = self.policy.algorithm().expect("it can be held");
        self.policy.check(0, self.subject, first, action, false)
    }
}
