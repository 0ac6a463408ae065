//! `Health`: the evidence that a connection works, or does not. A server that hangs, or a network
//! that swallows everything, does not break connections.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::client::RECONNECT_PAUSE;

/// If this many questions in a row were given up without an answer, the first of them asked
/// [`DOWN_AFTER`] ago, the connection is considered dead, and the server silent.
pub(super) const MOST_UNANSWERED: u32 = 3;
/// As long as the pause, so that callers who give up at once, for whatever reason, cause no more
/// new connections than failures do.
pub(super) const DOWN_AFTER: Duration = RECONNECT_PAUSE;
/// After this time without an answer, the server or a middlebox may have closed the connection,
/// unnoticed. A question is still sent over it at once, but the connection is considered dead as soon as
/// that caller gives up. That is no evidence about the server.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// For this time after an answer, the connection is not checked for being closed.
const QUIET: Duration = Duration::from_millis(10);
/// A caller that gives up sooner has not waited for an answer, but left: it counts as one of
/// [`MOST_UNANSWERED`]. No answer is late before this time.
pub(super) const HASTY: Duration = Duration::from_millis(10);

/// Stands for no time.
const NEVER: u64 = u64::MAX;

pub(super) struct Health {
    /// When the connection was made. All times are in milliseconds since then.
    since: Instant,
    /// How long the first answer took.
    trip: Duration,
    answered_ms: AtomicU64,
    /// When the first question was asked after the connection had become idle. If there was an
    /// answer since, it means nothing.
    roused_ms: AtomicU64,
    /// Questions given up since the last answer.
    unanswered: AtomicU32,
    /// When the first of them was asked; [`NEVER`] if there is none.
    silent_since_ms: AtomicU64,
    /// Whether it was idle, and a question over it was given up.
    was_roused_in_vain: AtomicBool,
    /// Notified when an idle connection has answered, or a question over it was given up.
    news: Notify,
}

impl Health {
    /// The health of a new connection, whose first answer took this time.
    pub(super) fn new(trip: Duration) -> Self {
        Self {
            since: Instant::now(),
            trip,
            answered_ms: AtomicU64::new(0),
            roused_ms: AtomicU64::new(0),
            unanswered: AtomicU32::new(0),
            silent_since_ms: AtomicU64::new(NEVER),
            was_roused_in_vain: AtomicBool::new(false),
            news: Notify::new(),
        }
    }

    /// How long the first answer took.
    pub(super) fn trip(&self) -> Duration {
        self.trip
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Records that a question is sent.
    pub(super) fn asked(&self) -> Asked<'_> {
        let (asked_ms, answered_ms) = (self.now_ms(), self.answered_ms());
        let was_idle = is_past(answered_ms, IDLE, asked_ms);
        if was_idle && self.roused_ms.load(Ordering::Relaxed) <= answered_ms {
            self.roused_ms.store(asked_ms, Ordering::Relaxed);
        }
        Asked {
            health: self,
            asked_ms,
            idle_since_ms: was_idle.then_some(answered_ms),
        }
    }

    pub(super) fn answered(&self) {
        let now_ms = self.now_ms();
        let was_idle = is_past(self.answered_ms(), IDLE, now_ms);
        self.answered_ms.store(now_ms, Ordering::Relaxed);
        self.unanswered.store(0, Ordering::Relaxed);
        self.silent_since_ms.store(NEVER, Ordering::Relaxed);
        self.was_roused_in_vain.store(false, Ordering::Relaxed);
        if was_idle {
            self.news.notify_waiters();
        }
    }

    /// Records that a question over a connection that was idle since this answer was given up.
    fn roused_in_vain(&self, asked_ms: u64, idle_since_ms: u64) {
        if self.answered_ms() != idle_since_ms {
            return;
        }
        let unanswered = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_past(asked_ms, HASTY) || unanswered >= MOST_UNANSWERED {
            self.was_roused_in_vain.store(true, Ordering::Relaxed);
            self.news.notify_waiters();
        }
    }

    /// Ends when an idle connection has answered, or is considered dead.
    pub(super) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.was_roused_in_vain.load(Ordering::Relaxed) || self.has_gone_silent()
    }

    /// Whether the server has not answered for as long as it is waited for.
    pub(super) fn has_gone_silent(&self) -> bool {
        // A question from before the last answer may have been given up after it.
        let asked_ms = self.silent_since_ms.load(Ordering::Relaxed);
        self.unanswered.load(Ordering::Relaxed) >= MOST_UNANSWERED
            && self.is_past(asked_ms.max(self.answered_ms()), DOWN_AFTER)
    }

    /// Whether questions were given up since the last answer.
    pub(super) fn has_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_past(self.answered_ms(), IDLE)
    }

    /// Whether it is idle, and a question was asked over it so long ago that there should be an
    /// answer.
    pub(super) fn is_late(&self) -> bool {
        let roused_ms = self.roused_ms.load(Ordering::Relaxed);
        self.is_idle() && roused_ms > self.answered_ms() && self.is_past(roused_ms, self.patience())
    }

    /// After this time an answer is late.
    pub(super) fn patience(&self) -> Duration {
        HASTY + 2 * self.trip
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_past(self.answered_ms(), QUIET)
    }

    /// Whether this time has passed since then.
    fn is_past(&self, then_ms: u64, time: Duration) -> bool {
        is_past(then_ms, time, self.now_ms())
    }

    fn answered_ms(&self) -> u64 {
        self.answered_ms.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX)
    }
}

fn is_past(then_ms: u64, time: Duration, now_ms: u64) -> bool {
    u128::from(now_ms.saturating_sub(then_ms)) >= time.as_millis()
}

/// A question in flight. If dropped before the answer, it counts as unanswered.
pub(super) struct Asked<'a> {
    health: &'a Health,
    asked_ms: u64,
    /// When the last answer before it was, if the connection was idle since.
    idle_since_ms: Option<u64>,
}

impl Asked<'_> {
    pub(super) fn answered(self) {
        self.health.answered();
        std::mem::forget(self);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let (health, asked_ms) = (self.health, self.asked_ms);
        if let Some(idle_since_ms) = self.idle_since_ms {
            return health.roused_in_vain(asked_ms, idle_since_ms);
        }
        health
            .silent_since_ms
            .fetch_min(asked_ms, Ordering::Relaxed);
        health.unanswered.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const INSTANT: Duration = Duration::from_millis(1);

    /// A connection that has just answered.
    fn answered() -> Health {
        let health = Health::new(INSTANT);
        health.asked().answered();
        health
    }

    #[tokio::test(start_paused = true)]
    async fn three_unanswered_questions_over_half_a_second_make_a_server_silent() {
        let health = answered();
        let [first, second, third] = [(); 3].map(|()| health.asked());
        advance(DOWN_AFTER).await;
        drop((first, second));
        assert!(!health.has_gone_silent());
        drop(third);
        assert!(health.has_gone_silent() && health.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_begins_with_the_first_question_that_was_given_up() {
        let health = answered();
        advance(DOWN_AFTER).await;
        for _ in 0..MOST_UNANSWERED {
            drop(health.asked());
        }
        advance(DOWN_AFTER - INSTANT).await;
        assert!(!health.is_dead(), "nobody had asked for half of that time");
        advance(INSTANT).await;
        assert!(health.has_gone_silent());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_also_for_questions_given_up_that_were_asked_before() {
        let health = answered();
        let earlier = [(); MOST_UNANSWERED as usize].map(|()| health.asked());
        advance(DOWN_AFTER).await;
        health.asked().answered();
        drop(earlier);
        assert!(!health.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_dead_after_one_question_without_answer() {
        let health = answered();
        advance(IDLE).await;
        assert!(health.is_idle());
        let asked = health.asked();
        advance(HASTY).await;
        assert!(!health.is_dead());
        drop(asked);
        assert!(health.is_dead() && !health.has_gone_silent());
        health.answered();
        assert!(!health.is_dead(), "although it has answered");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_one_is_dead_once_three_have_gone_away() {
        let health = answered();
        advance(IDLE).await;
        let is_dead = [(); MOST_UNANSWERED as usize].map(|()| {
            drop(health.asked());
            health.is_dead()
        });
        assert_eq!(is_dead, [false, false, true]);
        assert!(!health.has_gone_silent());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_answered_somebody_else_meanwhile_is_alive() {
        let health = answered();
        advance(IDLE).await;
        let asked = health.asked();
        advance(HASTY).await;
        health.answered();
        drop(asked);
        assert!(!health.is_dead() && !health.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_late_once_two_trips_have_brought_no_answer() {
        let health = answered();
        advance(IDLE).await;
        assert!(!health.is_late(), "nobody has asked");
        let asked = health.asked();
        advance(HASTY + INSTANT).await;
        assert!(!health.is_late());
        advance(INSTANT).await;
        assert!(health.is_late());
        asked.answered();
        assert!(!health.is_late());
        advance(IDLE).await;
        assert!(!health.is_late(), "for the question of another time");
    }
}
