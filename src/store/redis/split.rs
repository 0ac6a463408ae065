//! A question about several subjects in a cluster, where no script reaches two of them: each
//! subject's checks are one script, in the order of the checks, and what was taken is given back
//! when a later one denies.
//!
//! A node that fails concerns its own subjects: where their policies let requests pass then, the others
//! are asked all the same. What takes nothing is done wherever there is a node to do it.

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::server::Server;
use crate::decision::{Decision, Decisions};
use crate::error::{StoreError, StoreErrorKind};

mod part;

pub(super) use self::part::{Part, parts};

type Answer = Result<Decisions, StoreError>;

pub(super) async fn ask(server: Server, parts: Vec<Part>) -> Answer {
    if parts.iter().any(Part::takes) {
        take(server, parts).await
    } else {
        do_each(&server, parts).await
    }
}

/// Asks one part after the other, those that only count last.
async fn take(server: Server, parts: Vec<Part>) -> Answer {
    let mut taken = Taken {
        server: server.clone(),
        answers: Answers::default(),
    };
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        if part.is_shadow() {
            if taken.answers.have_failed() {
                break;
            }
            let answer = part.ask_in_shadow(&server).await;
            taken.answers.each.push((part, answer));
            continue;
        }
        match part.ask(&server).await {
            Err(error) if !part.may_fail() => return Err(error),
            Ok(answer) if part.denies(&answer) => {
                let denied = (part, answer);
                return Ok(ask_others(&server, denied, taken.keep(), parts).await);
            }
            answer => taken.answers.note(part, answer),
        }
    }
    taken.keep().in_order()
}

/// Gives back what was taken before the denial, and asks all others what they say to a request that is
/// denied: of those that deny it, too, the longest wait counts, and so do their penalties.
async fn ask_others(
    server: &Server,
    denied: (Part, Decisions),
    taken: Answers,
    not_asked: impl Iterator<Item = Part>,
) -> Decisions {
    let given_back = taken.each.into_iter().map(|(part, answer)| {
        Begun::new(part, server, |part, server| async move {
            part.give_back(&server, &answer).await;
            part.ask_denied_again(&server, &answer).await
        })
    });
    let not_asked = not_asked.map(|part| {
        Begun::new(part, server, |part, server| async move {
            part.ask_denied(&server).await
        })
    });
    let others: Vec<_> = given_back.chain(not_asked).collect();
    let mut answers = vec![denied];
    for Begun { part, answer } in others {
        let answer = match answer.await {
            Ok(Ok(answer)) => answer,
            // The denial stands, whatever is left of theirs.
            _ => part.not_asked(),
        };
        answers.push((part, answer));
    }
    in_order(&answers)
}

/// Does what holds up nothing, everywhere at once.
async fn do_each(server: &Server, parts: Vec<Part>) -> Answer {
    let begun = parts.into_iter().map(|part| {
        Begun::new(part, server, |part, server| async move {
            part.ask(&server).await
        })
    });
    let begun: Vec<_> = begun.collect();
    let mut answers = Answers::default();
    for Begun { part, answer } in begun {
        // Its runtime is being shut down.
        let gone = |error| Err(StoreError::with_source(StoreErrorKind::Interrupted, error));
        answers.note(part, answer.await.unwrap_or_else(gone));
    }
    answers.in_order()
}

/// A part that is asked, whether its answer is waited for or not.
struct Begun {
    part: Part,
    answer: JoinHandle<Answer>,
}

impl Begun {
    fn new<F>(part: Part, server: &Server, ask: impl FnOnce(Part, Server) -> F) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let answer = tokio::spawn(ask(part.clone(), server.clone()));
        Self { part, answer }
    }
}

/// What has been answered so far.
#[derive(Default)]
struct Answers {
    each: Vec<(Part, Decisions)>,
    is_any_good: bool,
    /// Why the first failed that did.
    failure: Option<StoreError>,
}

impl Answers {
    fn note(&mut self, part: Part, answer: Answer) {
        let answer = match answer {
            Ok(answer) => {
                self.is_any_good = true;
                answer
            }
            Err(error) => {
                let answer = part.failed(error.kind());
                self.failure.get_or_insert(error);
                answer
            }
        };
        self.each.push((part, answer));
    }

    /// Whether nobody has decided about anything.
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

/// What earlier parts have taken. Dropped, it gives that back: the question was given up, or a
/// later part failed.
struct Taken {
    server: Server,
    answers: Answers,
}

impl Taken {
    fn keep(&mut self) -> Answers {
        std::mem::take(&mut self.answers)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Without a runtime it lapses.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        for (part, answer) in self.keep().each {
            let server = self.server.clone();
            runtime.spawn(async move { part.give_back(&server, &answer).await });
        }
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
