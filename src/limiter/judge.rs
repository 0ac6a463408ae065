//! How a request is judged: all policies that apply, in one question.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use super::Limiter;
use super::judged::{Asked, AskedPolicy, Judged};
use super::leases::lease_for;
use super::refusal::{Refusal, Unjudged};
use super::taken::{Taken, TakenByRequest};
use crate::access::{AccessList, Found};
use crate::algorithm::{Action, Take};
use crate::decision::Decisions;
use crate::mode::Mode;
use crate::request::RequestHead;
use crate::store::{Check, PendingDecisions};
use crate::trace::Span;

impl Limiter {
    /// Asks all policies that apply to this request at once. Returns what `read` makes of the
    /// verdict, or the pending verdict if it takes a round trip. The verdict is read in place:
    /// moving it would move room for several decisions.
    ///
    /// `is_exempt`: whether the caller exempts the request, besides the rules.
    #[inline]
    pub(crate) fn judge<T>(
        &self,
        request: &RequestHead<'_>,
        is_exempt: bool,
        read: impl FnOnce(&mut Judged<'_>) -> T,
    ) -> Result<Judging<T>, Refusal> {
        let judging = self.ask_about(request, is_exempt, read);
        if let Err(refusal) = &judging {
            self.report_refusal(refusal);
        }
        judging
    }

    fn ask_about<T>(
        &self,
        request: &RequestHead<'_>,
        is_exempt: bool,
        read: impl FnOnce(&mut Judged<'_>) -> T,
    ) -> Result<Judging<T>, Refusal> {
        if !self.is_on() {
            return Ok(Judging::by_nobody(read));
        }
        let rules = self.0.rules.load();
        let find_in = |list: &AccessList| {
            let found = list.find_address_of(request);
            found.map_err(|text| Refusal::of_nobody(Unjudged::Misconfigured(text)))
        };
        match find_in(&rules.denied)? {
            Found::Listed => return Err(Refusal::of_nobody(Unjudged::Listed)),
            // Otherwise a listed client would only have to send an unreadable address.
            Found::Unreadable => return Err(Refusal::of_nobody(Unjudged::BadAddress)),
            Found::NotListed => {}
        }
        if is_exempt || rules.is_exempt(request) {
            return Ok(Judging::by_nobody(read));
        }
        if find_in(&rules.allowed)? == Found::Listed {
            return match rules.refuses_key_of(request) {
                Some(refusal) => Err(refusal),
                None => Ok(Judging::by_nobody(read)),
            };
        }
        let mut asked = Asked::under(rules);
        let rules = &asked.rules;
        let mut checks: SmallVec<[Check<'_>; 8]> = SmallVec::new();
        let mut whose = None;
        for (position, policy) in rules.policies.iter().enumerate() {
            let mode = policy.mode();
            if mode == Mode::Off || !policy.applies(request) {
                continue;
            }
            let asks = match rules.read(position, request, &self.0.subjects, &mut whose) {
                Ok(Some(asks)) => asks,
                Ok(None) => continue,
                // In shadow a policy refuses nobody. But the list is not the policy's.
                Err(reason) if mode == Mode::Shadow && !reason.is_by_list() => {
                    self.report_shadow_refusal(&Refusal::by(policy, reason));
                    continue;
                }
                Err(reason) => return Err(Refusal::by(policy, reason)),
            };
            let subject = asks.subject;
            if let Some(shown) = asks.shown {
                asked.shown.push((asked.each.len(), shown));
            }
            asked.each.push(AskedPolicy {
                position,
                subject,
                mode,
                admits_nothing: asks.judges.is_none(),
            });
            asked.has_shadows |= mode == Mode::Shadow;
            let Some(judges) = &asks.judges else {
                asked.is_denied |= mode != Mode::Shadow;
                continue;
            };
            let take = Take {
                cost: asks.cost,
                patience: policy.patience(request, &judges.first),
                lease: lease_for(&judges.first, asks.cost),
                is_final: true,
            };
            let action = Action::Take(take);
            if policy.count_checks() == 1 {
                let is_shadow = mode == Mode::Shadow;
                checks.push(policy.check(0, subject, judges.first, action, is_shadow));
            } else {
                checks.extend(policy.checks(subject, judges, action, mode));
            }
            asked.has_several_checks |= policy.count_checks() > 1;
            asked.may_give_back |= policy.may_give_back(&judges.first);
        }
        if asked.each.is_empty() {
            return Ok(Judging::by_nobody(read));
        }
        if asked.is_denied || checks.is_empty() {
            let answers = checks.iter().map(Check::not_asked).collect();
            return Ok(Judging::Done(asked.judged(self, None, &answers, read)));
        }
        // Made before asking, so that permits are given back even if the caller is gone by then.
        let may_give_back = asked.may_give_back;
        let mut taken = may_give_back.then(|| self.taken_by(&asked, &mut checks));
        let read = |answers: &Decisions| asked.judged(self, taken.take(), answers, read);
        let answered = self.0.store.ask_and_read(&checks, read);
        drop(checks);
        Ok(match answered {
            Ok(read) => Judging::Done(read),
            Err(decisions) => Judging::Asked(self.pending(asked, taken, decisions)),
        })
    }

    // Out of line: most requests never give anything back.
    #[inline(never)]
    fn taken_by(&self, asked: &Asked, checks: &mut [Check<'_>]) -> Box<Taken> {
        // A request dropped while one policy holds it up gives back what all of them have granted.
        for check in &mut *checks {
            if let Action::Take(take) = &mut check.action {
                take.is_final = false;
            }
        }
        let mut taken = Box::new(Taken::asking(self.clone()));
        let is_policys_own = |check: &&Check<'_>| !check.algorithm.is_penalty();
        let mut own = checks.iter().filter(is_policys_own);
        for policy in asked.each.iter().filter(|policy| !policy.admits_nothing) {
            let policy = asked.policy(policy);
            taken.add(policy, own.by_ref().take(policy.count_rates()));
        }
        taken
    }

    // Out of line: a store that answers from memory never needs it.
    #[inline(never)]
    fn pending(
        &self,
        asked: Asked,
        taken: TakenByRequest,
        decisions: Pin<Box<PendingDecisions>>,
    ) -> PendingVerdict {
        PendingVerdict {
            limiter: self.clone(),
            asking: Some(Asking {
                span: Span::asking(asked.each.len()),
                asked: asked.kept(),
                taken,
                decisions,
                is_sent: false,
            }),
        }
    }
}

/// A request that is being judged.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
pub(crate) enum Judging<T> {
    /// What `read` made of the verdict.
    Done(T),
    Asked(PendingVerdict),
}

impl<T> Judging<T> {
    fn by_nobody(read: impl FnOnce(&mut Judged<'_>) -> T) -> Self {
        Self::Done(Judged::by_nobody(read))
    }
}

/// A verdict that takes a round trip to the store.
pub(crate) struct PendingVerdict {
    limiter: Limiter,
    /// `None` once the answer is there.
    asking: Option<Asking>,
}

struct Asking {
    span: Span,
    asked: Asked,
    taken: TakenByRequest,
    decisions: Pin<Box<PendingDecisions>>,
    /// Whether the store may have been asked.
    is_sent: bool,
}

impl Asking {
    fn poll_judged<T>(
        &mut self,
        limiter: &Limiter,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Judged<'_>) -> T,
    ) -> Poll<T> {
        self.is_sent = true;
        let (span, asked, taken) = (&self.span, &self.asked, &mut self.taken);
        let read = |judged: &mut Judged<'_>| {
            span.answered(judged.is_allowed());
            read(judged)
        };
        let read = |answers: &Decisions| asked.judged(limiter, taken.take(), answers, read);
        span.in_scope(|| self.decisions.as_mut().poll_and_read(cx, read))
    }
}

impl PendingVerdict {
    /// What `read` makes of the verdict, once the answer is there.
    pub(crate) fn poll_verdict<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Judged<'_>) -> T,
    ) -> Poll<T> {
        let asking = self.asking.as_mut().expect("polled after it was done");
        let read = ready!(asking.poll_judged(&self.limiter, cx, read));
        self.asking = None;
        Poll::Ready(read)
    }
}

impl Drop for PendingVerdict {
    /// Only the answer says what is to be given back. So it is awaited even now.
    fn drop(&mut self) {
        let Some(asking) = self.asking.take() else {
            return;
        };
        if !asking.is_sent {
            if let Some(taken) = asking.taken {
                taken.was_not_asked();
            }
            return;
        }
        if asking.decisions.is_over() {
            return;
        }
        let taken = asking.taken.as_ref();
        let Some(runtime) = taken.and_then(|taken| taken.runtime_to_go_on()) else {
            return;
        };
        let limiter = self.limiter.clone();
        self.limiter.see_through(&runtime, async move {
            let mut asking = asking;
            let take_taken = |judged: &mut Judged<'_>| judged.take_taken();
            let taken = poll_fn(|cx| asking.poll_judged(&limiter, cx, take_taken));
            if let Some(taken) = taken.await {
                taken.leave();
            }
        });
    }
}
