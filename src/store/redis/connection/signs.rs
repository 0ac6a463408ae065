//! `Signs`: the evidence that a connection works, or does not. A server that hangs, or a network
//! that swallows everything, does not break connections.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::connect::RECONNECT_PAUSE;

/// If this many questions in a row were given up without an answer, the first of them asked
/// [`LONGEST_SILENCE`] ago, the connection is considered dead, and the server silent.
pub(super) const MOST_UNANSWERED: u32 = 3;
/// As long as the pause, so that callers who give up at once, for whatever reason, cause no more
/// new connections than failures do.
pub(super) const LONGEST_SILENCE: Duration = RECONNECT_PAUSE;
/// After this time without an answer, the connection may have been closed by the server or
/// something in between, unnoticed. It is then woken before a question, and considered dead as soon
/// as the caller gives up, as there is no evidence for it and no question was sent over it. That
/// says nothing about the server.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// For this time after an answer, nobody checks whether the connection was closed.
const QUIET: Duration = Duration::from_millis(10);
/// A caller who gives up sooner has not waited for an answer, but gone away: it counts as one of
/// [`MOST_UNANSWERED`].
pub(super) const HASTY: Duration = Duration::from_millis(10);

/// Stands for no time.
const NEVER: u64 = u64::MAX;

pub(super) struct Signs {
    /// When the connection was made. All times are in milliseconds since then.
    since: Instant,
    answered_ms: AtomicU64,
    /// Questions given up since the last answer.
    unanswered: AtomicU32,
    /// When the first of them was asked; [`NEVER`] if there is none.
    silent_since_ms: AtomicU64,
    /// Whether it was idle and could not be woken.
    was_woken_in_vain: AtomicBool,
}

impl Signs {
    /// The signs of a new connection.
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            answered_ms: AtomicU64::new(0),
            unanswered: AtomicU32::new(0),
            silent_since_ms: AtomicU64::new(NEVER),
            was_woken_in_vain: AtomicBool::new(false),
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Records that a question is sent.
    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
            signs: self,
            asked_ms: self.now_ms(),
        }
    }

    pub(super) fn answered(&self) {
        self.answered_ms.store(self.now_ms(), Ordering::Relaxed);
        self.unanswered.store(0, Ordering::Relaxed);
        self.silent_since_ms.store(NEVER, Ordering::Relaxed);
        self.was_woken_in_vain.store(false, Ordering::Relaxed);
    }

    /// Records that the connection is being woken.
    pub(super) fn waking(&self) -> Waking {
        Waking {
            since: Instant::now(),
            answered_ms: self.answered_ms(),
        }
    }

    /// Records that nobody waits for that any more. Returns whether the connection is now
    /// considered dead.
    pub(super) fn not_waited_for(&self, waking: &Waking) -> bool {
        if self.answered_ms() != waking.answered_ms {
            return false;
        }
        let unanswered = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        let is_in_vain = waking.since.elapsed() >= HASTY || unanswered >= MOST_UNANSWERED;
        if is_in_vain {
            self.was_woken_in_vain.store(true, Ordering::Relaxed);
        }
        is_in_vain
    }

    pub(super) fn is_dead(&self) -> bool {
        self.was_woken_in_vain.load(Ordering::Relaxed) || self.has_gone_silent()
    }

    /// Whether the server has not answered for as long as it is waited for.
    pub(super) fn has_gone_silent(&self) -> bool {
        // A question from before the last answer may have been given up after it.
        let asked_ms = self.silent_since_ms.load(Ordering::Relaxed);
        self.unanswered.load(Ordering::Relaxed) >= MOST_UNANSWERED
            && self.is_past(asked_ms.max(self.answered_ms()), LONGEST_SILENCE)
    }

    /// Whether questions were given up since the last answer.
    pub(super) fn has_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_past(self.answered_ms(), IDLE)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_past(self.answered_ms(), QUIET)
    }

    /// Whether this time has passed since then.
    fn is_past(&self, then_ms: u64, time: Duration) -> bool {
        u128::from(self.now_ms().saturating_sub(then_ms)) >= time.as_millis()
    }

    fn answered_ms(&self) -> u64 {
        self.answered_ms.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A question in flight. If dropped before the answer, it counts against the connection.
pub(super) struct Asked<'a> {
    signs: &'a Signs,
    asked_ms: u64,
}

impl Asked<'_> {
    pub(super) fn answered(self) {
        self.signs.answered();
        std::mem::forget(self);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Self { signs, asked_ms } = self;
        signs
            .silent_since_ms
            .fetch_min(*asked_ms, Ordering::Relaxed);
        signs.unanswered.fetch_add(1, Ordering::Relaxed);
    }
}

/// When waking a connection began, and when the last answer was then.
pub(super) struct Waking {
    since: Instant,
    answered_ms: u64,
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const INSTANT: Duration = Duration::from_millis(1);

    /// A connection that has just answered.
    fn heard() -> Signs {
        let signs = Signs::new();
        signs.asked().answered();
        signs
    }

    #[tokio::test(start_paused = true)]
    async fn three_unanswered_questions_over_half_a_second_make_a_server_silent() {
        let signs = heard();
        let [first, second, third] = [(); 3].map(|()| signs.asked());
        advance(LONGEST_SILENCE).await;
        drop((first, second));
        assert!(!signs.has_gone_silent());
        drop(third);
        assert!(signs.has_gone_silent() && signs.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_begins_with_the_first_question_that_was_given_up() {
        let signs = heard();
        advance(LONGEST_SILENCE).await;
        for _ in 0..MOST_UNANSWERED {
            drop(signs.asked());
        }
        advance(LONGEST_SILENCE - INSTANT).await;
        assert!(!signs.is_dead(), "nobody had asked for half of that time");
        advance(INSTANT).await;
        assert!(signs.has_gone_silent());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_also_for_questions_given_up_that_were_asked_before() {
        let signs = heard();
        let earlier = [(); MOST_UNANSWERED as usize].map(|()| signs.asked());
        advance(LONGEST_SILENCE).await;
        signs.asked().answered();
        drop(earlier);
        assert!(!signs.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_dead_after_one_unanswered_question_if_its_server_is_not_silent()
    {
        let signs = heard();
        advance(IDLE).await;
        assert!(signs.is_idle());
        let waking = signs.waking();
        advance(HASTY).await;
        assert!(signs.not_waited_for(&waking));
        assert!(signs.is_dead() && !signs.has_gone_silent());
        signs.answered();
        assert!(!signs.is_dead(), "although it has answered");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_one_is_dead_once_three_have_gone_away() {
        let signs = heard();
        advance(IDLE).await;
        let gone = [(); MOST_UNANSWERED as usize].map(|()| signs.not_waited_for(&signs.waking()));
        assert_eq!(gone, [false, false, true]);
        assert!(signs.is_dead() && !signs.has_gone_silent());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_woken_meanwhile_is_alive() {
        let signs = heard();
        advance(IDLE).await;
        let waking = signs.waking();
        advance(HASTY).await;
        signs.answered();
        assert!(!signs.not_waited_for(&waking));
        assert!(!signs.is_dead() && !signs.is_idle());
    }
}
