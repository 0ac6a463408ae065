//! `GivingBack`: refunds, releases and settlements in the background, repeated if necessary.

use std::borrow::Cow;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::quota::Quota;
use super::{Limiter, answered, decisions};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Origin};
use crate::store::{Answer, Check, Store as _};
use crate::task::{InFlightGuard, Tries, catch_panic, spawn_polled};

/// An action on the permits of a request.
pub(super) struct Step<'a> {
    pub(super) quota: Cow<'a, Quota>,
    pub(super) action: Action,
    /// Whether the store may have counted the permits.
    pub(super) is_in_store: bool,
}

pub(super) type Steps<'a> = SmallVec<[Step<'a>; 2]>;

/// The state of a step after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Done,
    /// It may be retried.
    Again,
    Lost,
}

impl Step<'_> {
    fn check(&self) -> Check<'_> {
        self.quota.check(self.action)
    }

    fn is_release(&self) -> bool {
        matches!(self.action, Action::Release(_))
    }

    fn into_owned(self) -> Step<'static> {
        Step {
            quota: Cow::Owned(self.quota.into_owned()),
            ..self
        }
    }

    fn next(&self, decision: &Decision) -> Next {
        let Some(failure) = decision.store_failure() else {
            return Next::Done;
        };
        let is_done_here = match self.action {
            Action::Release(_) if self.is_in_store => return Next::Again,
            Action::Release(_) => true,
            Action::Charge(_) | Action::Hold { .. } => decision.is_local(),
            action => action
                .receipt()
                .is_some_and(|receipt| receipt.taken_of != Origin::Store),
        };
        match is_done_here {
            true => Next::Done,
            false if failure.may_have_counted() => Next::Lost,
            false => Next::Again,
        }
    }
}

impl Limiter {
    /// Performs these steps in one store call. Continues in a task if that takes a round trip or
    /// has to be repeated.
    ///
    /// `is_in_doubt`: whether the call that acquired the leases may still reach the store after the
    /// first release, over a connection that was dropped meanwhile.
    pub(super) fn carry_out_later(
        &self,
        mut steps: Steps<'_>,
        is_in_doubt: bool,
        began: Option<&Handle>,
    ) {
        if steps.is_empty() {
            return;
        }
        // A store that panics has done nothing. If this runs because it panicked before, a second
        // panic would abort the process.
        let Some(answer) = catch_panic(|| self.ask_to_carry_out(&steps)) else {
            return self.0.in_flight_work.lose();
        };
        let (first, has_lost_any) = match answer {
            Answer::Ready(decided) => {
                let decided = answered(decided);
                (None, self.keep_what_is_left(&mut steps, &decided, true))
            }
            pending @ Answer::Pending(_) => (Some(pending), false),
        };
        let runtime = self.runtime_to_go_on(began);
        let Some(runtime) = runtime.filter(|_| !steps.is_empty()) else {
            if has_lost_any || !steps.is_empty() {
                self.0.in_flight_work.lose();
            }
            return;
        };
        let giving_back = GivingBack {
            limiter: self.clone(),
            steps: steps.into_iter().map(Step::into_owned).collect(),
            is_in_doubt,
            elsewhere: began.filter(|began| began.id() != runtime.id()).cloned(),
            has_lost_any,
            in_flight_guard: Some(self.in_flight_guard()),
        };
        spawn_polled(&runtime, giving_back.finish(first));
    }

    /// The store's own runtime if it has one. Otherwise the current one, because the runtime on
    /// which the request `began` may be gone.
    pub(super) fn runtime_to_go_on(&self, began: Option<&Handle>) -> Option<Handle> {
        let home = self.0.store.home();
        home.or_else(|| Handle::try_current().ok())
            .or_else(|| began.cloned())
    }

    /// Calls the store. During a flush, even while the circuit breaker is open.
    fn ask_to_carry_out(&self, steps: &[Step<'_>]) -> Answer {
        let checks: SmallVec<[Check<'_>; 4]> = steps.iter().map(Step::check).collect();
        match self.0.in_flight_work.is_flushed() {
            true => self.0.store.ask_regardless(&checks),
            false => self.0.store.ask(&checks),
        }
    }

    /// Keeps the steps that should be retried. Returns whether any is lost.
    ///
    /// Releases are retried always: releasing a lease twice is harmless, and its permits would stay
    /// taken for the rest of its life. Everything else comes back over time and is retried only
    /// during a flush.
    fn keep_what_is_left(
        &self,
        steps: &mut Steps<'_>,
        decisions: &Decisions,
        is_certain: bool,
    ) -> bool {
        let is_flushed = self.0.in_flight_work.is_flushed();
        let mut decisions = decisions.iter();
        let mut has_lost_any = false;
        steps.retain(|step| {
            let decision = decisions.next();
            match decision.map_or(Next::Lost, |decision| step.next(decision)) {
                Next::Done => !is_certain && step.is_release() && step.is_in_store,
                Next::Again if step.is_release() || is_flushed => true,
                Next::Again | Next::Lost => {
                    has_lost_any = true;
                    false
                }
            }
        });
        has_lost_any
    }
}

/// Steps that are not done yet.
struct GivingBack {
    limiter: Limiter,
    steps: Steps<'static>,
    is_in_doubt: bool,
    /// Another runtime, where the leases were acquired. If this task's runtime shuts down, the
    /// leases are released there.
    elsewhere: Option<Handle>,
    has_lost_any: bool,
    in_flight_guard: Option<InFlightGuard>,
}

impl GivingBack {
    /// Awaits the first answer, if there is none yet, and retries as long as that is useful.
    async fn finish(mut self, first: Option<Answer>) {
        let releases = self.steps.iter().filter(|step| step.is_release());
        let lives = releases.filter_map(|step| step.quota.algorithm.lease());
        let mut tries = match lives.max() {
            Some(life) => Tries::to_end_leases(life.to_duration()),
            None => Tries::while_flushed(),
        };
        if let Some(first) = first {
            let decided = decisions(first).await;
            self.note(&decided, !self.is_in_doubt);
        }
        let certain_at = self.is_in_doubt.then(|| Instant::now() + tries.pause());
        while !self.steps.is_empty() && tries.next(&self.limiter.0.in_flight_work).await {
            let is_certain = certain_at.is_none_or(|at| Instant::now() >= at);
            let decided = decisions(self.limiter.ask_to_carry_out(&self.steps)).await;
            self.note(&decided, is_certain);
        }
        // The leases have expired by now.
        self.has_lost_any |= self.steps.iter().any(|step| !step.is_release());
        self.steps.clear();
        if let Some(in_flight_guard) = &mut self.in_flight_guard
            && !self.has_lost_any
        {
            in_flight_guard.arrived();
        }
    }

    fn note(&mut self, decided: &Decisions, is_certain: bool) {
        let steps = &mut self.steps;
        self.has_lost_any |= self.limiter.keep_what_is_left(steps, decided, is_certain);
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        self.has_lost_any |= steps.iter().any(|step| !step.is_release());
        steps.retain(|step| step.is_release());
        let Some(runtime) = self.elsewhere.take().filter(|_| !steps.is_empty()) else {
            return;
        };
        let again = Self {
            limiter: self.limiter.clone(),
            steps,
            is_in_doubt: self.is_in_doubt,
            elsewhere: None,
            has_lost_any: self.has_lost_any,
            in_flight_guard: self.in_flight_guard.take(),
        };
        runtime.spawn(async move {
            let first = again.limiter.ask_to_carry_out(&again.steps);
            again.finish(Some(first)).await;
        });
    }
}
