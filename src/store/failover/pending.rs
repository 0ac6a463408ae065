//! `PendingDecisions`: a question in flight, until it is answered or its deadline passes.

use std::future::{Future, pending, poll_fn};
use std::mem;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::breaker::AnswerGuard;
use super::fallback::Fallback;
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::sharded::ShardedRef;
use crate::store::PendingAnswer;
use crate::store::check::{OwnedCheck, question};
use crate::task::Deadline;

pin_project! {
    /// A question in flight. It never fails: an error becomes each check's own failure mode.
    #[project = Projected]
    pub(crate) enum PendingDecisions {
        /// Its caller waits for the answer and the deadline.
        Here { #[pin] asked: Asked },
        /// Both are to be awaited on the store's runtime: the caller's may stand still, or have a paused
        /// clock that jumps to the deadline.
        NotSent { runtime: Handle, asked: Option<Asked> },
        /// Both are awaited there, even if the caller goes away.
        Sent { sent: Sent, is_over: bool },
    }
}

pub(crate) struct Sent {
    decisions: JoinHandle<Decisions>,
    // Kept in case the runtime ends.
    checks: SmallVec<[OwnedCheck; 1]>,
    fallback: ShardedRef<Fallback>,
}

pin_project! {
    /// The answer, or what is decided without one.
    pub(crate) struct Asked {
        pub(super) answer: PendingAnswer,
        // Kept in case there is no answer.
        pub(super) checks: SmallVec<[OwnedCheck; 1]>,
        pub(super) fallback: ShardedRef<Fallback>,
        pub(super) ticket: AnswerGuard,
        pub(super) timeout: Duration,
        // When it was first polled: before that there may be no runtime.
        pub(super) asked: Option<Instant>,
        #[pin]
        pub(super) deadline: Option<Deadline>,
        // Whether the answer was there, or has panicked: then it must not be polled again.
        pub(super) is_over: bool,
    }

    impl PinnedDrop for Asked {
        /// A question continues after its caller has left. Otherwise such callers could send the store
        /// questions without bound, keep denials from being remembered, and keep the breaker open.
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // A question that was not polled was not asked.
            if this.asked.is_some()
                && !*this.is_over
                && let Some(ticket) = this.ticket.handed_on()
                && let Ok(runtime) = Handle::try_current()
            {
                let left = Asked {
                    answer: mem::replace(this.answer, Box::pin(pending())),
                    checks: mem::take(this.checks),
                    fallback: this.fallback.clone(),
                    ticket,
                    timeout: *this.timeout,
                    asked: *this.asked,
                    deadline: None,
                    is_over: false,
                };
                runtime.spawn(left.decisions());
            }
        }
    }
}

impl PendingDecisions {
    /// `runtime`: that of the store, if it has one of its own.
    #[inline]
    pub(super) fn new(asked: Asked, runtime: Option<Handle>) -> Self {
        match runtime {
            None => Self::Here { asked },
            Some(runtime) => Self::NotSent {
                runtime,
                asked: Some(asked),
            },
        }
    }

    /// Whether there is nothing more to wait for.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Here { asked } => asked.is_over,
            Self::NotSent { .. } => false,
            Self::Sent { is_over, .. } => *is_over,
        }
    }

    fn send(asked: Asked, runtime: &Handle) -> Self {
        if Handle::try_current().is_ok_and(|here| here.id() == runtime.id()) {
            return Self::Here { asked };
        }
        let (checks, fallback) = (asked.checks.clone(), asked.fallback.clone());
        Self::Sent {
            sent: Sent {
                decisions: runtime.spawn(asked.decisions()),
                checks,
                fallback,
            },
            is_over: false,
        }
    }
}

impl Asked {
    async fn decisions(self) -> Decisions {
        let mut asked = pin!(self);
        poll_fn(|cx| asked.as_mut().poll_decided(cx)).await
    }

    fn poll_decided(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decisions> {
        let mut this = self.project();
        let asked = *this.asked.get_or_insert_with(Instant::now);
        // If the poll panics, the answer must not be polled again.
        *this.is_over = true;
        let answer = this.answer.as_mut().poll(cx);
        *this.is_over = answer.is_ready();
        let mut is_in_standstill = false;
        let error = match answer {
            Poll::Ready(Ok(decisions)) if decisions.len() == this.checks.len() => {
                this.ticket.decided(asked, &decisions);
                return Poll::Ready(decisions);
            }
            Poll::Ready(Ok(_)) => StoreError::new(StoreErrorKind::BadReply),
            Poll::Ready(Err(error)) => error,
            Poll::Pending => {
                if this.deadline.is_none() {
                    let end = asked + *this.timeout;
                    this.deadline.set(Some(Deadline::at(end)));
                }
                if let Some(deadline) = this.deadline.as_pin_mut() {
                    is_in_standstill = ready!(deadline.poll(cx));
                }
                StoreError::new(StoreErrorKind::TimedOut)
            }
        };
        match is_in_standstill {
            true => this.ticket.missed_in_standstill(asked),
            false => this.ticket.failed(asked, &error),
        }
        let checks = question(this.checks);
        let decisions = this.fallback.decide(&checks, error.kind());
        this.ticket.decided_without(&checks, &decisions);
        Poll::Ready(decisions)
    }
}

impl Future for PendingDecisions {
    type Output = Result<Decisions, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Projected::NotSent { runtime, asked } = self.as_mut().project()
            && let Some(asked) = asked.take()
        {
            let sent = Self::send(asked, runtime);
            self.set(sent);
        }
        match self.project() {
            Projected::Here { asked } => asked.poll_decided(cx).map(Ok),
            Projected::NotSent { .. } => Poll::Pending,
            Projected::Sent { sent, is_over } => {
                let decisions = ready!(Pin::new(&mut sent.decisions).poll(cx));
                *is_over = true;
                Poll::Ready(match decisions {
                    Ok(decisions) => Ok(decisions),
                    Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
                    Err(_) => {
                        let (checks, why) = (question(&sent.checks), StoreErrorKind::Interrupted);
                        Ok(sent.fallback.decide(&checks, why))
                    }
                })
            }
        }
    }
}
