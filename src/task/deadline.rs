//! `Deadline`: a timeout that tolerates a process that was suspended.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

/// While the process runs, timers are late by less than this.
const LATE: Duration = Duration::from_millis(3);
/// Enough to read what has arrived and for one more round trip, which a call behind another one
/// needs. With the lateness of both timers, at most 10 ms.
const MOMENT: Duration = Duration::from_millis(5);

pin_project! {
    /// Ready at the deadline. Returns whether this process was suspended at that time.
    ///
    /// A process without CPU time, or with blocked threads, may see the deadline pass before it has
    /// read an answer that arrived in time. So the deadline is extended once, by a moment.
    pub(crate) struct Deadline {
        #[pin]
        sleep: Sleep,
        was_late: bool,
    }
}

impl Deadline {
    pub(crate) fn at(end: Instant) -> Self {
        Self {
            sleep: sleep_until(end),
            was_late: false,
        }
    }
}

impl Future for Deadline {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        ready!(this.sleep.as_mut().poll(cx));
        let now = Instant::now();
        if !*this.was_late && now >= this.sleep.deadline() + LATE {
            *this.was_late = true;
            this.sleep.as_mut().reset(now + MOMENT);
            ready!(this.sleep.poll(cx));
        }
        Poll::Ready(*this.was_late)
    }
}

/// The answer, or `None` if it does not arrive within this time.
pub(crate) async fn within<A>(time: Duration, answer: impl Future<Output = A>) -> Option<A> {
    let mut answer = pin!(answer);
    let mut deadline = pin!(Deadline::at(Instant::now() + time));
    std::future::poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => deadline.as_mut().poll(cx).map(|_was_late| None),
    })
    .await
}
