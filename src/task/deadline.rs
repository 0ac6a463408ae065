//! `Deadline`: how long an answer is awaited by a process that may stand still meanwhile.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

/// Timers are late by less than this while the process runs.
const LATE: Duration = Duration::from_millis(3);
/// Enough to read what has arrived, and for one more round trip, which a question needs that waits
/// for another. Together with the lateness of both timers at most 10 ms.
const MOMENT: Duration = Duration::from_millis(5);

pin_project! {
    /// Ready when it is over. Tells whether this process stood still then.
    ///
    /// A process that stood still, because it lacked a processor or its threads were blocked, may
    /// notice that an answer is overdue before it has read what arrived meanwhile. So it waits for
    /// one more moment, once.
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

/// The answer, if it arrives within this time.
pub(crate) async fn within<A>(time: Duration, answer: impl Future<Output = A>) -> Option<A> {
    let mut answer = pin!(answer);
    let mut deadline = pin!(Deadline::at(Instant::now() + time));
    std::future::poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => deadline.as_mut().poll(cx).map(|_was_late| None),
    })
    .await
}
