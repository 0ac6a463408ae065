//! A question about several subjects in a cluster, where no script reaches two of them: each
//! subject's checks are one script, in the order of the checks, and what was taken is given back
//! when a later one denies.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::server::Server;
use crate::algorithm::{Action, Patience, Take};
use crate::decision::{Decision, Decisions, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::store::Check;
use crate::store::owned::OwnedCheck;

/// How long a part that only counts may take: what is enforced is decided by then, and waits for it.
const SHADOW_PATIENCE: Duration = Duration::from_millis(10);

/// The checks of one subject, and where they stand in the question.
#[derive(Clone)]
pub(super) struct Part {
    subject: Subject,
    positions: SmallVec<[usize; 2]>,
    checks: SmallVec<[OwnedCheck; 2]>,
}

/// The parts of a question, in the order in which they are asked: those that only count come last,
/// as they are carried out only when all others fit.
pub(super) fn parts(checks: &[Check<'_>]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (position, check) in checks.iter().enumerate() {
        let known = parts.iter().position(|part| part.subject == check.subject);
        let at = known.unwrap_or_else(|| {
            parts.push(Part {
                subject: check.subject,
                positions: SmallVec::new(),
                checks: SmallVec::new(),
            });
            parts.len() - 1
        });
        parts[at].positions.push(position);
        parts[at].checks.push(with_receipt(check));
    }
    parts.sort_by_key(Part::is_shadow);
    parts
}

/// The check, whose decision tells by what is given back what it takes, also when it takes that for good: a
/// later part may deny.
fn with_receipt(check: &Check<'_>) -> OwnedCheck {
    let check = OwnedCheck::of(check);
    match check.action {
        Action::Take(take) => check.with_action(Action::Take(Take {
            is_final: false,
            ..take
        })),
        _ => check,
    }
}

/// Asks one part after the other.
pub(super) async fn ask(server: Server, parts: Vec<Part>) -> Result<Decisions, StoreError> {
    let mut taken = Taken {
        server: server.clone(),
        parts: Vec::with_capacity(parts.len()),
    };
    let mut parts = parts.into_iter();
    let denied = loop {
        let Some(part) = parts.next() else {
            return Ok(in_order(&taken.keep()));
        };
        let answer = if part.is_shadow() {
            part.ask_in_shadow(&server).await
        } else {
            part.ask(&server).await?
        };
        let denies = part.denies(&answer);
        taken.parts.push((part, answer));
        if denies {
            break taken.parts.pop();
        }
    };
    // The others are looked at, so that each policy says what is left after this denial.
    let given_back = taken.keep().into_iter().map(|(part, answer)| {
        let server = server.clone();
        tokio::spawn(async move {
            part.give_back(&server, &answer).await;
            (part.look(&server).await, part)
        })
    });
    let mut others: Vec<_> = given_back.collect();
    others.extend(parts.map(|part| {
        let server = server.clone();
        tokio::spawn(async move { (part.look(&server).await, part) })
    }));
    let mut answers: Vec<_> = denied.into_iter().collect();
    for other in others {
        let (answer, part) = other
            .await
            .map_err(|error| StoreError::with_source(StoreErrorKind::Interrupted, error))?;
        answers.push((part, answer?));
    }
    Ok(in_order(&answers))
}

/// What earlier parts have taken. Dropped, it gives that back: the question was given up, or a
/// later part failed.
struct Taken {
    server: Server,
    parts: Vec<(Part, Decisions)>,
}

impl Taken {
    fn keep(&mut self) -> Vec<(Part, Decisions)> {
        std::mem::take(&mut self.parts)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Without a runtime it lapses.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        for (part, answer) in self.keep() {
            let server = self.server.clone();
            runtime.spawn(async move { part.give_back(&server, &answer).await });
        }
    }
}

impl Part {
    fn is_shadow(&self) -> bool {
        self.checks.iter().all(|check| check.is_shadow)
    }

    /// Whether something enforced was asked for and does not fit. A lease that cannot be renewed
    /// is no reason to let the others lapse.
    fn denies(&self, answer: &Decisions) -> bool {
        let mut each = self.checks.iter().zip(&**answer);
        each.any(|(check, decision)| {
            matches!(check.action, Action::Take(_)) && !check.is_shadow && !decision.is_allowed()
        })
    }

    async fn ask(&self, server: &Server) -> Result<Decisions, StoreError> {
        let checks: SmallVec<[Check<'_>; 4]> = self.checks.iter().map(OwnedCheck::check).collect();
        let answer = server.ask(&checks).await?;
        if answer.len() == checks.len() {
            Ok(answer)
        } else {
            Err(StoreError::new(StoreErrorKind::BadReply))
        }
    }

    /// The same, while nothing that goes wrong concerns anybody else.
    async fn ask_in_shadow(&self, server: &Server) -> Decisions {
        let why = match tokio::time::timeout(SHADOW_PATIENCE, self.ask(server)).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(error)) => error.kind(),
            Err(_elapsed) => StoreErrorKind::TimedOut,
        };
        let failed = |check: &OwnedCheck| {
            Decision::unasked(Outcome::FailedOpen(why), check.algorithm.quota())
        };
        self.checks.iter().map(failed).collect()
    }

    /// What there is, taking nothing.
    async fn look(&self, server: &Server) -> Result<Decisions, StoreError> {
        let mut look = self.clone();
        for check in &mut look.checks {
            check.action = Action::look();
        }
        if self.is_shadow() {
            return Ok(look.ask_in_shadow(server).await);
        }
        look.ask(server).await
    }

    /// Gives back what was taken. What cannot be given back lapses.
    async fn give_back(&self, server: &Server, answer: &Decisions) {
        let each = self.checks.iter().zip(&**answer);
        let checks = each.filter_map(|(check, decision)| {
            let action = undo(check, decision)?;
            Some(Check {
                action,
                ..check.check()
            })
        });
        let checks: SmallVec<[Check<'_>; 4]> = checks.collect();
        if !checks.is_empty() {
            let _ = server.ask_any(&checks).await;
        }
    }
}

/// By what a check's permits are given back that were not used.
fn undo(check: &OwnedCheck, decision: &Decision) -> Option<Action> {
    let Action::Take(take) = check.action else {
        return None;
    };
    if check.algorithm.is_penalty() || decision.outcome != Outcome::Allowed {
        return None;
    }
    if let Some(lease) = take.lease {
        return Some(Action::Release(lease));
    }
    let (permits, receipt) = (take.cost, decision.receipt);
    // Others who wait behind it have been told when to go on.
    let is_queued = check.algorithm.delays() || take.patience != Patience::None;
    match permits {
        0 => None,
        _ if is_queued => Some(Action::Cancel { permits, receipt }),
        _ => Some(Action::Refund { permits, receipt }),
    }
}

/// The decisions in the order of the checks.
fn in_order(answers: &[(Part, Decisions)]) -> Decisions {
    let mut all: SmallVec<[(usize, Decision); 4]> = SmallVec::new();
    for (part, answer) in answers {
        all.extend(part.positions.iter().copied().zip(answer.iter().copied()));
    }
    all.sort_unstable_by_key(|(position, _)| *position);
    all.into_iter().map(|(_, decision)| decision).collect()
}
