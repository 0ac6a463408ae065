//! How a question is asked: by one script, or in a cluster by one for each subject.

use super::batch::Batcher;
use super::question::Question;
use super::split;
use crate::decision::Decisions;
use crate::store::check::{OwnedCheck, of_each};
use crate::store::deny_cache::ticket::CacheTicket;
use crate::store::{Check, PendingAnswer};

/// Answers these checks, and updates the deny cache. The future owns all it needs, and may be dropped
/// at any time.
pub(super) fn ask(
    batcher: Batcher,
    checks: &[Check<'_>],
    ticket: Option<CacheTicket>,
) -> PendingAnswer {
    if checks.is_empty() {
        return Box::pin(async { Ok(Decisions::default()) });
    }
    if is_split(&batcher, checks) {
        let parts = split::parts(checks);
        let checks = of_each(checks, OwnedCheck::of);
        return Box::pin(async move {
            let _in_flight = batcher.in_flight.begin()?;
            let invalidation = ticket.as_ref().map(CacheTicket::invalidation);
            let answer = split::ask(batcher.clone(), invalidation, parts).await;
            if let Some(ticket) = ticket {
                ticket.answered(&checks, &answer);
            }
            answer
        });
    }
    let question = Box::new(Question::new(checks, batcher.backend.now(), ticket));
    Box::pin(async move {
        let _in_flight = batcher.in_flight.begin()?;
        let answer = batcher.ask(question).await;
        match answer.decisions() {
            Ok(decisions) => Ok(decisions),
            Err(error) => Err(batcher.backend.naming(error)),
        }
    })
}

/// Whether no single script can use the keys of all checks.
fn is_split(batcher: &Batcher, checks: &[Check<'_>]) -> bool {
    let mut subjects = checks.iter().map(|check| check.subject);
    let first = subjects.next();
    batcher.backend.is_cluster() && subjects.any(|subject| Some(subject) != first)
}
