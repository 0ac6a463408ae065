//! A question about several subjects in a cluster, where no script can use the keys of two of them.
//! There is one script for each subject, in the order of the checks. If a later one denies, the permits
//! of the earlier ones are given back.
//!
//! A node that fails affects only its own subjects: if their policies let requests pass, the others are
//! asked nevertheless. Actions that acquire nothing are carried out wherever a node answers. A decision
//! waits a limited time for the other nodes.

use smallvec::SmallVec;
use tokio::time::Instant;

use self::giving_back::GivingBack;
use self::part::{Answer, AtOnce, SlotPart};
use super::batch::Batcher;
use super::connection::RESPONSE_TIMEOUT;
use crate::decision::{Decision, Decisions};
use crate::error::StoreError;
use crate::store::deny_cache::ticket::Invalidation;

mod giving_back;
mod part;

pub(super) use self::part::parts;

pub(super) async fn ask(
    batcher: Batcher,
    invalidation: Option<Invalidation>,
    parts: Vec<SlotPart>,
) -> Answer {
    if parts.iter().any(SlotPart::may_deny) {
        take(batcher, invalidation, parts).await
    } else {
        do_each(&batcher, parts).await
    }
}

/// Asks the enforced parts one after the other, and then the shadow parts concurrently.
async fn take(
    batcher: Batcher,
    invalidation: Option<Invalidation>,
    parts: Vec<SlotPart>,
) -> Answer {
    let start = Instant::now();
    let mut acquired = Acquired {
        batcher: batcher.clone(),
        invalidation,
        answers: Answers::default(),
    };
    let (shadows, enforced): (Vec<_>, Vec<_>) = parts.into_iter().partition(SlotPart::is_shadow);
    // The wait is about as long as an answer takes. Without this, a node that is asked so seldom that
    // its connection is always idle would never answer in time.
    for later in enforced.iter().skip(1).chain(&shadows) {
        later.warm_up(&batcher);
    }
    let mut enforced = enforced.into_iter();
    while let Some(part) = enforced.next() {
        match part.ask(&batcher).await {
            Err(error) if !part.may_fail() => {
                let error = acquired.answers.failure_beside(error);
                return Err(match acquired.answers.is_any_good {
                    true => error.of_part(),
                    false => error,
                });
            }
            Ok(answer) if part.denies(&answer) => {
                let others = ask_denied(&mut acquired, enforced.chain(shadows));
                let mut answers = vec![(part, answer)];
                let record = |part: SlotPart, answer: Answer| {
                    // The denial holds, whatever they answer.
                    let answer = answer.unwrap_or_else(|_| part.not_asked());
                    answers.push((part, answer));
                };
                others
                    .answers_until(end_of_wait(&batcher, start), record)
                    .await;
                return Ok(in_order(&answers));
            }
            answer => acquired.answers.note(part, answer),
        }
    }
    if !acquired.answers.have_failed() {
        let shadows = ask_at_once(&batcher, shadows);
        let record = |part: SlotPart, answer: Answer| acquired.answers.note_shadow(part, answer);
        shadows
            .answers_until(end_of_wait(&batcher, start), record)
            .await;
    }
    acquired.keep().in_order()
}

/// When decisions stop waiting for the rest, whose nodes are about as far away.
fn end_of_wait(batcher: &Batcher, start: Instant) -> Instant {
    let now = Instant::now();
    now + (now - start) + batcher.waits.for_other_nodes
}

/// Gives back what was acquired before a denial, and asks all others about the denied request: if they
/// deny it, too, the longest wait is reported, and their penalties count.
fn ask_denied(acquired: &mut Acquired, not_asked: impl Iterator<Item = SlotPart>) -> AtOnce {
    let mut others = AtOnce::new(&acquired.batcher);
    for (part, answer) in acquired.keep().each {
        let given_back = acquired.given_back(&part, &answer).begin();
        others.ask(part.after(&answer), |part, batcher| async move {
            if let Some(given_back) = given_back {
                let _ = given_back.await;
            }
            part.ask_denied(&batcher).await
        });
    }
    for part in not_asked {
        others.ask(part, |part, batcher| async move {
            part.ask_denied(&batcher).await
        });
    }
    others
}

fn ask_at_once(batcher: &Batcher, parts: Vec<SlotPart>) -> AtOnce {
    let mut at_once = AtOnce::new(batcher);
    for part in parts {
        at_once.ask(
            part,
            |part, batcher| async move { part.ask(&batcher).await },
        );
    }
    at_once
}

/// Carries out actions that acquire nothing, on all nodes concurrently.
async fn do_each(batcher: &Batcher, parts: Vec<SlotPart>) -> Answer {
    let mut answers = Answers::default();
    let record = |part: SlotPart, answer: Answer| answers.note(part, answer);
    // The caller has a deadline.
    let end = Instant::now() + RESPONSE_TIMEOUT;
    ask_at_once(batcher, parts).answers_until(end, record).await;
    answers.in_order()
}

/// The answers so far.
#[derive(Default)]
struct Answers {
    each: Vec<(SlotPart, Decisions)>,
    is_any_good: bool,
    /// The error of a part, if any failed: preferably of one that may have counted, as the caller
    /// then releases leases.
    failure: Option<StoreError>,
}

impl Answers {
    fn note(&mut self, part: SlotPart, answer: Answer) {
        let answer = match answer {
            Ok(answer) => {
                self.is_any_good = true;
                answer
            }
            Err(error) => {
                let answer = part.failed(error.kind());
                self.failure = Some(self.failure_beside(error));
                answer
            }
        };
        self.each.push((part, answer));
    }

    /// The error to report.
    fn failure_beside(&mut self, error: StoreError) -> StoreError {
        match self.failure.take() {
            Some(before) if before.kind().may_have_counted() => before,
            _ => error,
        }
    }

    /// Records the answer of a part whose failure affects no other.
    fn note_shadow(&mut self, part: SlotPart, answer: Answer) {
        let answer = answer.unwrap_or_else(|error| part.failed(error.kind()));
        self.each.push((part, answer));
    }

    /// Whether there is no decision about anything.
    fn have_failed(&self) -> bool {
        self.failure.is_some() && !self.is_any_good
    }

    fn in_order(self) -> Answer {
        match self.failure {
            Some(error) if !self.is_any_good => Err(error),
            _ => Ok(in_order(&self.each)),
        }
    }
}

/// What earlier parts have acquired. Dropping it gives that back: the question was dropped, or a later
/// part failed.
struct Acquired {
    batcher: Batcher,
    invalidation: Option<Invalidation>,
    answers: Answers,
}

impl Acquired {
    fn keep(&mut self) -> Answers {
        std::mem::take(&mut self.answers)
    }

    fn given_back(&self, part: &SlotPart, answer: &Decisions) -> GivingBack {
        GivingBack::new(&self.batcher, self.invalidation.clone(), part, answer)
    }
}

impl Drop for Acquired {
    fn drop(&mut self) {
        for (part, answer) in self.keep().each {
            self.given_back(&part, &answer).begin();
        }
    }
}

/// The decisions in the order of the checks.
fn in_order(answers: &[(SlotPart, Decisions)]) -> Decisions {
    let mut all: SmallVec<[(usize, Decision); 4]> = SmallVec::new();
    for (part, answer) in answers {
        all.extend(part.positions.iter().copied().zip(answer.iter().copied()));
    }
    all.sort_unstable_by_key(|(position, _)| *position);
    all.into_iter().map(|(_, decision)| decision).collect()
}
