//! An open loop: questions arrive at a fixed rate, whether or not earlier ones were answered. So
//! a question that waits shows in its own time, and not in how few are asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::clock::{sleep_until, wake_on_time};
use crate::load::{Decide, Keys};
use crate::random::Random;
use crate::round::{Round, percentile};

#[derive(Clone, Copy)]
pub struct OpenLoop {
    pub per_second: u32,
    pub keys: Keys,
    /// The part at the start, in which as much comes to be in flight as later, is not timed.
    pub lead_in: Duration,
    pub lasting: Duration,
}

/// Whether it was allowed, and how long that took.
type Answer = (bool, Duration);

impl OpenLoop {
    /// Asks, and waits for all answers.
    pub async fn on(self, decider: &Arc<impl Decide>) -> Round {
        let decider = Arc::clone(decider);
        // On a thread of its own: timers of tokio have a granularity of a millisecond.
        let asked = spawn_blocking(move || self.ask(&decider));
        let mut round = Round::default();
        let mut times = Vec::new();
        for (position, answer) in asked.await.expect("questions").into_iter().enumerate() {
            round.decisions += 1;
            match answer.await {
                Ok((is_allowed, time)) => {
                    round.allowed += u64::from(is_allowed);
                    if position >= self.within(self.lead_in) {
                        times.push(time.as_secs_f64());
                    }
                }
                // It has said why.
                Err(_) => round.failed += 1,
            }
        }
        round.p50 = percentile(&mut times, 0.5);
        round.p90 = percentile(&mut times, 0.9);
        round
    }

    fn ask(self, decider: &Arc<impl Decide>) -> Vec<JoinHandle<Answer>> {
        wake_on_time();
        let mut random = Random::new(u64::from(self.per_second));
        let started = Instant::now();
        let arrivals = 0..self.within(self.lead_in + self.lasting);
        let asked = arrivals.map(|position| {
            let key = self.keys.draw(&mut random);
            let decider = Arc::clone(decider);
            sleep_until(started + Duration::from_secs(1) * position as u32 / self.per_second);
            let arrived = Instant::now();
            tokio::spawn(async move { (decider.decide(key).await, arrived.elapsed()) })
        });
        asked.collect()
    }

    /// How many arrive.
    fn within(self, time: Duration) -> usize {
        (time.as_secs_f64() * f64::from(self.per_second)) as usize
    }
}
