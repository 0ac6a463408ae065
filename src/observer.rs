//! `Observer`: learns what the limiter decides, and the state of its store.

use std::sync::Arc;
use std::time::Duration;

use crate::decision::{Decision, Outcome};
use crate::error::StoreErrorKind;
use crate::key::Subject;
use crate::labels::{labels, shown_as_labels};
use crate::mode::Mode;
use crate::task::catch_panic;

/// Learns what a limiter decides, and the state of its store: for metrics, logs, or whatever you
/// need.
///
/// The methods are called in the course of each request, on the thread that decides it. So they have
/// to be quick and must not block. They cannot change an answer: even a panic ends here, where it
/// unwinds, after the panic hook was told. Other observers are told as if there were none.
pub trait Observer: Send + Sync + 'static {
    /// A policy has decided about a request, or about a call of
    /// [`Limiter::check`](crate::Limiter::check) or a similar operation. Looking, charging and
    /// giving back are no decisions. If the caller goes away before the answer, there may be none,
    /// although the store has counted the request.
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let _ = event;
    }

    /// A policy could not be asked about a request, or about the key of a call of
    /// [`Limiter::check`](crate::Limiter::check) or a similar operation. The request was refused
    /// for that, unless the policy is in shadow mode, which the event tells.
    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        let _ = event;
    }

    /// The store has answered a question, or failed to, after this time. Many questions may share a
    /// round trip. Questions that were answered from memory, or that the store was not asked
    /// ([`BreakerOpen`](StoreErrorKind::BreakerOpen), [`Overloaded`](StoreErrorKind::Overloaded)),
    /// are not included.
    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        let _ = (elapsed, failure);
    }

    /// The circuit breaker in front of the store has changed its state. Called once for each
    /// change, in order.
    fn on_breaker(&self, state: BreakerState) {
        let _ = state;
    }

    /// The limiter itself has changed, by an operator or by a file that was read again. Called once
    /// for each change, in order. When the limiter is built, it is called for each of its policies.
    fn on_change(&self, event: &ChangeEvent) {
        let _ = event;
    }
}

macro_rules! observer_behind {
    ($($pointer:ident)+) => {$(
        impl<O: Observer + ?Sized> Observer for $pointer<O> {
            fn on_decision(&self, event: &DecisionEvent<'_>) {
                (**self).on_decision(event);
            }

            fn on_refusal(&self, event: &RefusalEvent<'_>) {
                (**self).on_refusal(event);
            }

            fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
                (**self).on_store_answer(elapsed, failure);
            }

            fn on_breaker(&self, state: BreakerState) {
                (**self).on_breaker(state);
            }

            fn on_change(&self, event: &ChangeEvent) {
                (**self).on_change(event);
            }
        }
    )+};
}
observer_behind!(Arc Box);

/// A closure that learns of decisions only.
pub(crate) struct OnDecision<F>(pub(crate) F);

impl<F> Observer for OnDecision<F>
where
    F: Fn(&DecisionEvent<'_>) + Send + Sync + 'static,
{
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        (self.0)(event);
    }
}

/// One policy's decision, as an [`Observer`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DecisionEvent<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The mode in which it was asked: [`Mode::Enforce`] or [`Mode::Shadow`].
    pub mode: Mode,
    /// The subject, hashed.
    pub subject: Subject,
    /// The subject in clear, if the policy [shows it](crate::Policy::show_subject): `alice`,
    /// `x-tenant: acme`, `203.0.113.9`. It is what the client has sent: escape it where you print it.
    pub shown_subject: Option<&'a str>,
    /// The policy's own decision: a request that this policy allows may be denied by another, and
    /// is then delayed by none.
    pub decision: &'a Decision,
}

impl DecisionEvent<'_> {
    /// The outcome, in one word.
    pub fn result(&self) -> DecisionResult {
        let decision = self.decision;
        match decision.outcome() {
            Outcome::FailedOpen(_) => DecisionResult::FailedOpen,
            Outcome::FailedClosed(_) => DecisionResult::FailedClosed,
            Outcome::ShadowDenied => DecisionResult::ShadowDenied,
            Outcome::NotAsked => DecisionResult::NotAsked,
            _ if !decision.is_allowed() && decision.is_remembered() => {
                DecisionResult::DeniedFromMemory
            }
            _ if !decision.is_allowed() => DecisionResult::Denied,
            _ if !decision.delay().is_zero() => DecisionResult::Waited,
            _ if decision.is_near_limit => DecisionResult::NearLimit,
            _ => DecisionResult::Allowed,
        }
    }
}

/// The outcome of a decision, in one word: a label with a bounded number of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionResult {
    /// Allowed, with more than a tenth of the limit, or of its burst or capacity, left.
    Allowed,
    /// Allowed, with at most a tenth left.
    NearLimit,
    /// Allowed after a delay.
    Waited,
    /// Denied by the store, or by this process's [share](Decision::is_local) of the limit while the
    /// store gives no answer.
    Denied,
    /// Denied from memory because of an earlier denial, without asking the store.
    DeniedFromMemory,
    /// Not asked, since another policy is known to deny the request.
    NotAsked,
    /// Would have been denied or delayed if the policy were enforced.
    ShadowDenied,
    /// Let through uncounted, since the store gave no answer.
    FailedOpen,
    /// Refused, since the store gave no answer.
    FailedClosed,
}

labels! {
    /// The word for it, as a label of metrics.
    DecisionResult {
        Allowed = "allowed",
        NearLimit = "near_limit",
        Waited = "waited",
        Denied = "denied",
        DeniedFromMemory = "denied_from_memory",
        NotAsked = "not_asked",
        ShadowDenied = "shadow_denied",
        FailedOpen = "failed_open",
        FailedClosed = "failed_closed",
    }
}

/// A request that could not be decided, as an [`Observer`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RefusalEvent<'a> {
    /// The policy's name; `None` if the request is refused regardless of policies.
    pub policy: Option<&'a str>,
    /// [`Mode::Shadow`] if the policy would only have refused the request: it goes on to the other
    /// policies. Otherwise [`Mode::Enforce`], even for a refusal by a list whose keys a policy in
    /// shadow mode reads.
    pub mode: Mode,
    /// Why it was refused, or would have been.
    pub reason: RefusalReason,
}

/// Why a request was refused without asking any policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The client is on the deny list.
    Listed,
    /// The address of the client cannot be read, and addresses are denied.
    BadAddress,
    /// The request has no key, and the policy requires one; or keys are denied, and the request's
    /// cannot be read, such as a header that is sent twice.
    MissingKey,
    /// The request states a cost that cannot be read.
    BadCost,
    /// The server does not provide what the policy needs.
    Misconfigured,
}

labels! {
    /// The word for it, as a label of metrics.
    RefusalReason {
        Listed = "listed",
        BadAddress = "bad_address",
        MissingKey = "missing_key",
        BadCost = "bad_cost",
        Misconfigured = "misconfigured",
    }
}

/// A change of a limiter while it is in use, as an [`Observer`] sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeEvent {
    /// Limiting was [turned on](crate::Limiter::turn_on) or [off](crate::Limiter::turn_off).
    #[non_exhaustive]
    Switched {
        /// Whether requests are limited now.
        is_on: bool,
    },
    /// A policy has another mode, is new, or is gone.
    #[non_exhaustive]
    PolicyMode {
        /// The policy's name.
        policy: String,
        /// The mode before; `None` for a new policy.
        from: Option<Mode>,
        /// The mode now; `None` if the policy is gone.
        to: Option<Mode>,
    },
    /// A list of clients was replaced by [`Limiter::set_denied`](crate::Limiter::set_denied) or
    /// [`Limiter::set_allowed`](crate::Limiter::set_allowed); or an operator blocked a client for a
    /// time, or such a block ended.
    #[non_exhaustive]
    AccessList {
        /// `"denied"` or `"allowed"`.
        list: &'static str,
        /// How many ranges of addresses and keys were listed before.
        from: usize,
        /// How many are listed now.
        to: usize,
    },
    /// The configuration file was read, at the start or again.
    #[non_exhaustive]
    ConfigRead {
        /// Why it was refused; the limits before stay in force.
        error: Option<String>,
    },
}

/// The state of the circuit breaker in front of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store is asked.
    #[default]
    Closed,
    /// The store failed too often and is left alone for a while: the failure modes decide at once.
    Open,
    /// One question is on its way to find out whether the store is back; the failure modes decide
    /// all others.
    HalfOpen,
}

labels! {
    /// The word for it, as a label of metrics.
    BreakerState {
        Closed = "closed",
        Open = "open",
        HalfOpen = "half_open",
    }
}

shown_as_labels!(DecisionResult RefusalReason BreakerState);

/// All observers; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self(observers.into())
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// A panic may come amidst a task for all requests, or before an answer is passed on.
    fn tell(&self, tell: impl Fn(&dyn Observer)) {
        for each in &*self.0 {
            catch_panic(|| tell(&**each));
        }
    }
}

impl Observer for Observers {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self.tell(|each| each.on_decision(event));
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        self.tell(|each| each.on_refusal(event));
    }

    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        self.tell(|each| each.on_store_answer(elapsed, failure));
    }

    fn on_breaker(&self, state: BreakerState) {
        self.tell(|each| each.on_breaker(state));
    }

    fn on_change(&self, event: &ChangeEvent) {
        self.tell(|each| each.on_change(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn result(mode: Mode, decision: Decision) -> DecisionResult {
        let subject = Subject::from(&Key::from("alice"));
        let event = DecisionEvent {
            policy: "api",
            mode,
            subject,
            shown_subject: None,
            decision: &decision,
        };
        event.result()
    }

    fn decided(outcome: Outcome) -> Decision {
        Decision::unasked(outcome, (100, crate::time::Micros::new(1)))
    }

    #[test]
    fn what_comes_from_memory_is_told_apart() {
        let denied = decided(Outcome::Denied);
        let remembered = Decision {
            is_remembered: true,
            ..denied
        };
        let not_asked = decided(Outcome::NotAsked);
        for (mode, decision, expected) in [
            (Mode::Enforce, denied, DecisionResult::Denied),
            (Mode::Enforce, remembered, DecisionResult::DeniedFromMemory),
            (
                Mode::Shadow,
                remembered.in_shadow(),
                DecisionResult::ShadowDenied,
            ),
            (Mode::Enforce, not_asked, DecisionResult::NotAsked),
            (Mode::Shadow, not_asked, DecisionResult::NotAsked),
        ] {
            assert_eq!(result(mode, decision), expected);
        }
    }

    /// Counts the events.
    #[derive(Default)]
    struct Told(std::sync::atomic::AtomicU32);

    impl Told {
        fn note(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    impl Observer for Told {
        fn on_decision(&self, _: &DecisionEvent<'_>) {
            self.note();
        }

        fn on_refusal(&self, _: &RefusalEvent<'_>) {
            self.note();
        }

        fn on_store_answer(&self, _: Duration, _: Option<StoreErrorKind>) {
            self.note();
        }

        fn on_breaker(&self, _: BreakerState) {
            self.note();
        }

        fn on_change(&self, _: &ChangeEvent) {
            self.note();
        }
    }

    /// Tells it of everything, once each.
    fn tell(observer: impl Observer) {
        let decision = decided(Outcome::Allowed);
        observer.on_decision(&DecisionEvent {
            policy: "api",
            mode: Mode::Enforce,
            subject: Subject::from(&Key::from("alice")),
            shown_subject: None,
            decision: &decision,
        });
        observer.on_refusal(&RefusalEvent {
            policy: None,
            mode: Mode::Enforce,
            reason: RefusalReason::Listed,
        });
        observer.on_store_answer(Duration::ZERO, None);
        observer.on_breaker(BreakerState::Open);
        observer.on_change(&ChangeEvent::Switched { is_on: false });
    }

    #[test]
    fn an_observer_that_is_chosen_at_run_time_is_told_of_everything() {
        let told = Arc::new(Told::default());
        tell(Arc::clone(&told) as Arc<dyn Observer>);
        tell(Box::new(Arc::clone(&told)) as Box<dyn Observer>);
        assert_eq!(told.0.load(std::sync::atomic::Ordering::Relaxed), 10);
    }

    #[test]
    fn each_of_several_observers_is_told_of_everything() {
        let told = [(); 2].map(|()| Arc::new(Told::default()));
        let each = told
            .iter()
            .map(|each| Arc::clone(each) as Arc<dyn Observer>);
        tell(Observers::new(each.collect()));
        for told in told {
            assert_eq!(told.0.load(std::sync::atomic::Ordering::Relaxed), 5);
        }
    }

    #[test]
    fn every_result_has_a_word_of_its_own() {
        let mut words = DecisionResult::EACH.map(DecisionResult::as_str).to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), DecisionResult::EACH.len());
    }
}
