//! `Observer`: callbacks for decisions, store calls and changes.

use std::sync::Arc;
use std::time::Duration;

use crate::decision::{Decision, Outcome};
use crate::error::StoreErrorKind;
use crate::key::Subject;
use crate::labels::{labels, shown_as_labels};
use crate::mode::{Mode, Percent};
use crate::task::catch_panic;

/// Callbacks for the decisions of a limiter, its store calls and its changes: for metrics, logs or
/// your own use.
///
/// The methods run during each request, on the thread that decides it. They must be quick and must
/// not block. They cannot change a decision. A panic that unwinds is caught after the panic hook
/// ran, and the other observers are still called.
pub trait Observer: Send + Sync + 'static {
    /// A policy decided a request, or a call of [`Limiter::check`](crate::Limiter::check) or a
    /// similar method. Peeking, charging and crediting are no decisions. A caller that is cancelled
    /// before the answer may cause no event, although the store counted its request.
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let _ = event;
    }

    /// A request, or a key given to [`Limiter::check`](crate::Limiter::check) or a similar method,
    /// was rejected before a policy decided it. In shadow mode, which the event shows, the request
    /// was not rejected.
    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        let _ = event;
    }

    /// A store call succeeded or failed after this time. Many calls may share a round trip.
    /// Decisions from memory are not included, and neither are calls that never reached the store
    /// ([`BreakerOpen`](StoreErrorKind::BreakerOpen), [`Overloaded`](StoreErrorKind::Overloaded)).
    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        let _ = (elapsed, failure);
    }

    /// The circuit breaker of the store changed its state. Called once for each change, in order.
    fn on_breaker(&self, state: BreakerState) {
        let _ = state;
    }

    /// An upstream asked to wait, and [`Feedback`](crate::Feedback) held the requests of a policy.
    /// Called in the process that got the response, not in the others that obey.
    fn on_hold(&self, event: &HoldEvent<'_>) {
        let _ = event;
    }

    /// The limiter changed, because of an operator or because its configuration file was reloaded.
    /// Called once for each change, in order, and once for each policy when the limiter is built.
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

            fn on_hold(&self, event: &HoldEvent<'_>) {
                (**self).on_hold(event);
            }

            fn on_change(&self, event: &ChangeEvent) {
                (**self).on_change(event);
            }
        }
    )+};
}
observer_behind!(Arc Box);

/// An observer that only sees decisions: a closure.
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
    /// The mode at the time of the decision: [`Mode::Enforce`] or [`Mode::Shadow`].
    pub mode: Mode,
    /// The hash of the key.
    pub subject: Subject,
    /// The key in clear text, if the policy [shows it](crate::Policy::show_subject): `alice`,
    /// `x-tenant: acme`, `203.0.113.9`. Clients choose this text, so escape it wherever you print
    /// it.
    pub shown_subject: Option<&'a str>,
    /// The decision of this policy alone. A request that it allows may be denied by another policy.
    pub decision: &'a Decision,
}

impl DecisionEvent<'_> {
    /// The outcome as a label.
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

/// The outcome of a decision as a label, with a bounded number of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionResult {
    /// Allowed; more than a tenth of the limit (or of its burst or capacity) remains.
    Allowed,
    /// Allowed; at most a tenth remains.
    NearLimit,
    /// Allowed after a delay.
    Waited,
    /// Denied by the store. While the store fails: denied by this process's
    /// [share](Decision::is_local) of the limit.
    Denied,
    /// Denied from the deny cache after an earlier denial, without a store call.
    DeniedFromMemory,
    /// Not evaluated, because a cached denial of another policy already denies the request.
    NotAsked,
    /// Would have been denied or delayed if the policy were enforced.
    ShadowDenied,
    /// Allowed without being counted, because the store failed.
    FailedOpen,
    /// Denied, because the store failed.
    FailedClosed,
}

labels! {
    /// The label in metrics.
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

/// A request that was rejected before a policy decided it, as an [`Observer`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RefusalEvent<'a> {
    /// The policy's name. `None` if no single policy caused the rejection.
    pub policy: Option<&'a str>,
    /// [`Mode::Shadow`] if the policy is in shadow mode, so that the request goes on to the other
    /// policies. Otherwise [`Mode::Enforce`]. That includes rejections by a deny list whose keys a
    /// policy in shadow mode reads.
    pub mode: Mode,
    /// Why it was rejected, or would have been.
    pub reason: RefusalReason,
}

/// Why a request was rejected before any policy decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The client is on the deny list.
    Listed,
    /// The client's address cannot be parsed, and the deny list contains addresses.
    BadAddress,
    /// The request has no key and the policy requires one. Or the deny list contains keys, and the
    /// request's key is malformed, such as a header that is sent twice.
    MissingKey,
    /// The request's cost cannot be parsed.
    BadCost,
    /// The server does not provide what the policy needs, such as the extension that holds the
    /// user.
    Misconfigured,
}

labels! {
    /// The label in metrics.
    RefusalReason {
        Listed = "listed",
        BadAddress = "bad_address",
        MissingKey = "missing_key",
        BadCost = "bad_cost",
        Misconfigured = "misconfigured",
    }
}

/// A hold that an upstream asked for, as an [`Observer`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HoldEvent<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The hash of the key.
    pub subject: Subject,
    /// How long nothing is to be sent, from now on.
    pub time: Duration,
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
    /// A policy changed its mode, was added or was removed.
    #[non_exhaustive]
    PolicyMode {
        /// The policy's name.
        policy: String,
        /// The mode before; `None` for a new policy.
        from: Option<Mode>,
        /// The mode now; `None` if the policy was removed.
        to: Option<Mode>,
    },
    /// A policy is enforced for another [share](crate::Policy::enforce_for) of the subjects.
    #[non_exhaustive]
    EnforcedFor {
        /// The policy's name.
        policy: String,
        /// The share before.
        from: Percent,
        /// The share now.
        to: Percent,
    },
    /// A list of clients was replaced by [`Limiter::set_denied`](crate::Limiter::set_denied) or
    /// [`Limiter::set_allowed`](crate::Limiter::set_allowed); or an operator blocked a client for a
    /// time, or such a block ended.
    #[non_exhaustive]
    AccessList {
        /// `"denied"` or `"allowed"`.
        list: &'static str,
        /// How many address ranges and keys were listed before.
        from: usize,
        /// How many are listed now.
        to: usize,
    },
    /// The configuration file was read, at the start or in a reload.
    #[non_exhaustive]
    ConfigRead {
        /// The error that rejected the file; the previous limits stay in force.
        error: Option<String>,
    },
}

/// The state of the circuit breaker in front of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store is called.
    #[default]
    Closed,
    /// The store failed repeatedly and is not called for a while. The failure modes decide
    /// immediately.
    Open,
    /// One call probes whether the store is back. The failure modes decide all other requests.
    HalfOpen,
}

labels! {
    /// The label in metrics.
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

    /// Catches panics: the caller may be a shared task, or may still have to return an answer.
    fn notify(&self, notify: impl Fn(&dyn Observer)) {
        for each in &*self.0 {
            catch_panic(|| notify(&**each));
        }
    }
}

impl Observer for Observers {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self.notify(|each| each.on_decision(event));
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        self.notify(|each| each.on_refusal(event));
    }

    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        self.notify(|each| each.on_store_answer(elapsed, failure));
    }

    fn on_breaker(&self, state: BreakerState) {
        self.notify(|each| each.on_breaker(state));
    }

    fn on_hold(&self, event: &HoldEvent<'_>) {
        self.notify(|each| each.on_hold(event));
    }

    fn on_change(&self, event: &ChangeEvent) {
        self.notify(|each| each.on_change(event));
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
    fn decisions_from_memory_have_their_own_results() {
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
    struct Counter(std::sync::atomic::AtomicU32);

    impl Counter {
        fn count(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    impl Observer for Counter {
        fn on_decision(&self, _: &DecisionEvent<'_>) {
            self.count();
        }

        fn on_refusal(&self, _: &RefusalEvent<'_>) {
            self.count();
        }

        fn on_store_answer(&self, _: Duration, _: Option<StoreErrorKind>) {
            self.count();
        }

        fn on_breaker(&self, _: BreakerState) {
            self.count();
        }

        fn on_hold(&self, _: &HoldEvent<'_>) {
            self.count();
        }

        fn on_change(&self, _: &ChangeEvent) {
            self.count();
        }
    }

    /// Sends each event once.
    fn send_all(observer: impl Observer) {
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
        observer.on_hold(&HoldEvent {
            policy: "api",
            subject: Subject::from(&Key::from("alice")),
            time: Duration::ZERO,
        });
        observer.on_change(&ChangeEvent::Switched { is_on: false });
    }

    #[test]
    fn an_observer_that_is_chosen_at_run_time_sees_every_event() {
        let counter = Arc::new(Counter::default());
        send_all(Arc::clone(&counter) as Arc<dyn Observer>);
        send_all(Box::new(Arc::clone(&counter)) as Box<dyn Observer>);
        assert_eq!(counter.0.load(std::sync::atomic::Ordering::Relaxed), 12);
    }

    #[test]
    fn each_of_several_observers_sees_every_event() {
        let counters = [(); 2].map(|()| Arc::new(Counter::default()));
        let each = counters
            .iter()
            .map(|each| Arc::clone(each) as Arc<dyn Observer>);
        send_all(Observers::new(each.collect()));
        for counter in counters {
            assert_eq!(counter.0.load(std::sync::atomic::Ordering::Relaxed), 6);
        }
    }

    #[test]
    fn every_result_has_its_own_label() {
        let mut words = DecisionResult::EACH.map(DecisionResult::as_str).to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), DecisionResult::EACH.len());
    }
}
