//! `SlotPart`: the checks of a question about one subject, which one script can answer. `AtOnce`: parts
//! that are asked concurrently.

use smallvec::SmallVec;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::super::question::Question;
use crate::algorithm::{Acquire, Action, Reading, Wait, committed};
use crate::decision::{Decision, Decisions, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::store::check::{OwnedCheck, question};
use crate::store::redis::batch::Batcher;
use crate::store::{Check, FailureMode};
use crate::task::poll_once;
use crate::time::Micros;

pub(super) type Answer = Result<Decisions, StoreError>;

/// The checks of one subject, and their positions in the question.
#[derive(Clone)]
pub(in crate::store::redis) struct SlotPart {
    subject: Subject,
    pub(super) positions: SmallVec<[usize; 2]>,
    checks: SmallVec<[OwnedCheck; 2]>,
    /// Earlier decisions about some of the checks, which remain valid, by their positions here.
    decided: Vec<(usize, Decision)>,
}

/// The parts of a question, in the order of its checks.
pub(in crate::store::redis) fn parts(checks: &[Check<'_>]) -> Vec<SlotPart> {
    let mut parts: Vec<SlotPart> = Vec::new();
    for (position, check) in checks.iter().enumerate() {
        let known = parts.iter().position(|part| part.subject == check.subject);
        let at = known.unwrap_or_else(|| {
            parts.push(SlotPart {
                subject: check.subject,
                positions: SmallVec::new(),
                checks: SmallVec::new(),
                decided: Vec::new(),
            });
            parts.len() - 1
        });
        parts[at].positions.push(position);
        parts[at].checks.push(with_receipt(check));
    }
    parts
}

/// The check with a receipt in its decision, even if its permits are final: a later part may deny, and
/// they are given back.
fn with_receipt(check: &Check<'_>) -> OwnedCheck {
    let check = OwnedCheck::of(check);
    match check.action {
        Action::Acquire(acquire) => check.with_action(Action::Acquire(Acquire {
            is_final: false,
            ..acquire
        })),
        _ => check,
    }
}

impl SlotPart {
    /// Whether all its checks are in shadow: they are carried out only if all others fit.
    pub(super) fn is_shadow(&self) -> bool {
        self.checks.iter().all(|check| check.is_shadow)
    }

    /// Whether an enforced check asks for permits, or looks.
    pub(super) fn may_deny(&self) -> bool {
        let mut enforced = self.checks.iter().filter(|check| !check.is_shadow);
        enforced.any(|check| matches!(check.action, Action::Acquire(_)))
    }

    /// Whether an enforced check does not fit.
    pub(super) fn denies(&self, answer: &Decisions) -> bool {
        let mut each = self.checks.iter().zip(&**answer);
        each.any(|(check, decision)| !check.is_shadow && !decision.is_allowed())
    }

    /// Whether the request may pass by these policies if they cannot be asked.
    pub(super) fn may_fail(&self) -> bool {
        let mut each = self.checks.iter().map(OwnedCheck::check);
        each.all(|check| check.is_shadow || check.on_store_failure == FailureMode::Allow)
    }

    /// The decisions if the part has no answer.
    pub(super) fn failed(&self, why: StoreErrorKind) -> Decisions {
        let each = self.checks.iter().map(OwnedCheck::check);
        each.map(|check| check.failed(why)).collect()
    }

    /// The decisions of a part without an answer, in a denied question.
    pub(super) fn not_asked(&self) -> Decisions {
        let quotas = self.checks.iter().map(|check| check.algorithm.quota());
        let each = quotas.map(|quota| Decision::unasked(Outcome::NotAsked, quota));
        self.with_decided(each)
    }

    /// Prepares its node's connection for when it is asked.
    pub(super) fn warm_up(&self, batcher: &Batcher) {
        batcher.backend.warm_up(self.subject);
    }

    pub(super) async fn ask(&self, batcher: &Batcher) -> Result<Decisions, StoreError> {
        let checks = question(&self.checks);
        let question = Question::new(&checks, batcher.backend.now(), None);
        let answer = batcher.ask(Box::new(question)).await.decisions()?;
        if answer.len() == checks.len() {
            Ok(answer)
        } else {
            Err(StoreError::new(StoreErrorKind::BadReply))
        }
    }

    /// Asks about a request that another part denies: nothing is acquired, but its penalties count
    /// its own denials.
    pub(super) async fn ask_denied(&self, batcher: &Batcher) -> Result<Decisions, StoreError> {
        let checks = question(&self.checks);
        let denied = Question::denied_elsewhere(&checks, batcher.backend.now());
        let answer = batcher.ask(Box::new(denied)).await.decisions()?;
        Ok(self.with_decided(answer.iter().copied()))
    }

    /// The same part after this answer, when a later part has denied.
    ///
    /// Its penalties have counted, so their decisions remain valid. So does a failure that leaves it
    /// unknown whether a lease was acquired: the caller then releases it.
    pub(super) fn after(mut self, answer: &Decisions) -> Self {
        let each = self.checks.iter_mut().zip(&**answer).enumerate();
        for (position, (check, decision)) in each {
            let failure = decision.store_failure();
            let stands = if check.algorithm.is_penalty() {
                check.action = Action::look();
                decision.is_evaluated()
            } else {
                let is_in_doubt = failure.is_some_and(StoreErrorKind::may_have_counted);
                is_in_doubt && check.action.lease().is_some()
            };
            if stands {
                self.decided.push((position, *decision));
            }
        }
        self
    }

    /// These decisions, except where earlier ones remain valid.
    fn with_decided(&self, each: impl Iterator<Item = Decision>) -> Decisions {
        let each = each.enumerate().map(|(position, decision)| {
            let mut decided = self.decided.iter();
            let stands = decided.find(|(decided, _)| *decided == position);
            stands.map_or(decision, |(_, stands)| *stands)
        });
        each.collect()
    }

    /// The checks that give back what was acquired.
    pub(super) fn given_back(&self, answer: &Decisions) -> SmallVec<[OwnedCheck; 2]> {
        let each = self.checks.iter().zip(&**answer);
        let each = each.zip(self.carried_out(answer));
        let acquired = each.filter_map(|(each, is_carried_out)| is_carried_out.then_some(each));
        let back = acquired.filter_map(|(check, decision)| {
            let action = undo(check, decision)?;
            Some(check.with_action(action))
        });
        back.collect()
    }

    /// Which checks were carried out. Not every check that fits was: a shadow limit is not carried out
    /// if one of its rates is denied, or its subject is banned.
    fn carried_out(&self, answer: &Decisions) -> SmallVec<[bool; 4]> {
        let checks = question(&self.checks);
        let readings = answer.iter().map(|decision| Reading {
            fits: decision.outcome == Outcome::Allowed,
            wait: Micros::ZERO,
            level: [0; 2],
            next: Micros::ZERO,
            at: Micros::ZERO,
        });
        let readings: SmallVec<[Reading; 4]> = readings.collect();
        committed(checks.iter().map(Check::ask), &readings).collect()
    }
}

/// The action that gives back what a check has acquired.
fn undo(check: &OwnedCheck, decision: &Decision) -> Option<Action> {
    let Action::Acquire(acquire) = check.action else {
        return None;
    };
    if check.algorithm.is_penalty() {
        return None;
    }
    if let Some(lease) = acquire.lease {
        return Some(Action::Release(lease));
    }
    let (permits, receipt) = (acquire.cost, decision.receipt);
    // Others that have acquired permits since hold them for later, or wait until a given time:
    // giving back permits before theirs would create permits.
    let has_prefetch = check.check().policy.prefetch().is_some();
    let may_be_late = check.algorithm.queues() || acquire.wait != Wait::None;
    match permits {
        0 => None,
        _ if has_prefetch => Some(Action::Cancel { permits, receipt }),
        _ if may_be_late => Some(Action::Withdraw { permits, receipt }),
        _ => Some(Action::Refund { permits, receipt }),
    }
}

/// Parts that are asked concurrently, each by its own task. Dropping it drops the pending ones, which
/// counts as unanswered for their nodes.
pub(super) struct AtOnce {
    batcher: Batcher,
    /// The parts without an answer so far.
    parts: Vec<Option<SlotPart>>,
    in_flight_work: JoinSet<(usize, Answer)>,
}

impl AtOnce {
    pub(super) fn new(batcher: &Batcher) -> Self {
        Self {
            batcher: batcher.clone(),
            parts: Vec::new(),
            in_flight_work: JoinSet::new(),
        }
    }

    /// Asks a part, immediately.
    pub(super) fn ask<F>(&mut self, part: SlotPart, ask: impl FnOnce(SlotPart, Batcher) -> F)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let position = self.parts.len();
        let answer = poll_once(ask(part.clone(), self.batcher.clone()));
        self.parts.push(Some(part));
        self.in_flight_work
            .spawn(async move { (position, answer.await) });
    }

    /// Reports each answer as it comes, and at last the parts without an answer by then.
    pub(super) async fn answers_until(
        mut self,
        end: Instant,
        mut report: impl FnMut(SlotPart, Answer),
    ) {
        let all = async {
            while let Some(one) = self.in_flight_work.join_next().await {
                let Ok((position, answer)) = one else {
                    continue;
                };
                if let Some(part) = self.parts[position].take() {
                    report(part, answer);
                }
            }
        };
        let why = match timeout_at(end, all).await {
            // Its task is gone, as its runtime is shutting down.
            Ok(()) => StoreErrorKind::Interrupted,
            Err(_elapsed) => StoreErrorKind::TimedOut,
        };
        for part in self.parts.into_iter().flatten() {
            report(part, Err(StoreError::new(why)));
        }
    }
}
