//! A load: a number of callers, each of which asks again as soon as it is answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::round::Round;

/// A limiter under measurement.
pub trait Decide: Send + Sync + 'static {
    /// Whether this key may pass.
    fn decide(&self, key: u64) -> impl Future<Output = bool> + Send;
}

#[derive(Clone, Copy)]
pub struct Load {
    pub at_once: usize,
    pub keys: Keys,
    pub lasting: Duration,
}

/// The keys that are asked about.
#[derive(Clone, Copy)]
pub enum Keys {
    /// One of this many, drawn at random.
    AnyOf(u64),
    One,
}

impl Keys {
    pub fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::AnyOf(keys) => random.below(keys),
            Self::One => 0,
        }
    }
}

/// How often it was asked, and how often it allowed.
#[derive(Clone, Copy, Default)]
pub struct Count {
    pub decisions: u64,
    pub allowed: u64,
}

impl From<Count> for Round {
    fn from(count: Count) -> Self {
        Self {
            decisions: count.decisions,
            allowed: count.allowed,
            ..Self::default()
        }
    }
}

impl Load {
    /// Puts the load on a decider; each caller is a task of its own.
    pub async fn on(self, decider: &Arc<impl Decide>) -> Count {
        self.on_from(0, decider).await
    }

    /// The same, where others ask at the same time: callers with other seeds draw other keys.
    pub async fn on_from(self, first_seed: u64, decider: &Arc<impl Decide>) -> Count {
        let started = Instant::now();
        let asking: Vec<_> = (0..self.at_once)
            .map(|seed| {
                let decider = Arc::clone(decider);
                tokio::spawn(
                    async move { self.ask(&*decider, first_seed + seed as u64, started).await },
                )
            })
            .collect();
        let mut count = Count::default();
        for asked in asking {
            let asked = asked.await.expect("a decision");
            count.decisions += asked.decisions;
            count.allowed += asked.allowed;
        }
        count
    }

    async fn ask(self, decider: &impl Decide, seed: u64, started: Instant) -> Count {
        let mut random = Random::new(seed);
        let mut count = Count::default();
        while started.elapsed() < self.lasting {
            let key = self.keys.draw(&mut random);
            count.allowed += u64::from(decider.decide(key).await);
            count.decisions += 1;
            // A decider that takes no round trip would never give other tasks a turn.
            if count.decisions % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        count
    }
}

/// Asks once about every key, so that none is new; for at most this long.
pub async fn warm_up(decider: &Arc<impl Decide>, keys: u64, at_most: Duration) {
    const AT_ONCE: u64 = 128;
    let started = Instant::now();
    let asking: Vec<_> = (0..AT_ONCE)
        .map(|first| {
            let decider = Arc::clone(decider);
            tokio::spawn(async move {
                let mut mine = (first..keys).step_by(AT_ONCE as usize);
                while let Some(key) = mine.next().filter(|_| started.elapsed() < at_most) {
                    decider.decide(key).await;
                }
            })
        })
        .collect();
    for asked in asking {
        asked.await.expect("a decision");
    }
}
