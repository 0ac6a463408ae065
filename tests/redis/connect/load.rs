//! A load that asks without a pause and keeps track of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tower_throttle::{Limiter, Outcome, StoreErrorKind};

use crate::connect::{GENEROUS, PLENTY};
use support::sentinel::until;

pub(crate) struct Load {
    seen: Arc<Seen>,
    tasks: Vec<JoinHandle<()>>,
}

/// How many permits were asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Those that were allowed.
    pub(crate) least: u64,
    /// Including those that may have been counted without anybody knowing.
    pub(crate) most: u64,
}

#[derive(Default)]
struct Seen {
    allowed: AtomicU64,
    doubtful: AtomicU64,
    failed: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    pub(crate) fn start(limiter: &Limiter, key: &'static str) -> Self {
        let seen = Arc::new(Seen::default());
        let tasks = (0..4).map(|_| tokio::spawn(ask(limiter.clone(), key, Arc::clone(&seen))));
        let tasks = tasks.collect();
        Self { seen, tasks }
    }

    fn allowed(&self) -> u64 {
        self.seen.allowed.load(Ordering::Relaxed)
    }

    /// How many were neither allowed nor denied.
    pub(crate) fn failed(&self) -> u64 {
        self.seen.failed.load(Ordering::Relaxed)
    }

    /// Blocks until a hundred more are allowed.
    pub(crate) fn wait_for_more(&self) {
        let before = self.allowed();
        until("decisions go on", || self.allowed() >= before + 100);
    }

    pub(crate) async fn stop(self) -> Asked {
        self.seen.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let least = self.seen.allowed.load(Ordering::Relaxed);
        let most = least + self.seen.doubtful.load(Ordering::Relaxed);
        Asked { least, most }
    }
}

async fn ask(limiter: Limiter, key: &str, seen: Arc<Seen>) {
    while !seen.stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let decision = limiter.check("api", key).await.unwrap();
        assert!(started.elapsed() < GENEROUS, "a failure must be quick");
        match decision.outcome() {
            Outcome::Allowed => seen.allowed.fetch_add(1, Ordering::Relaxed),
            Outcome::FailedClosed(kind) => {
                let may_have_counted = matches!(
                    kind,
                    StoreErrorKind::Interrupted
                        | StoreErrorKind::TimedOut
                        | StoreErrorKind::BadReply
                );
                let doubtful = u64::from(may_have_counted);
                seen.doubtful.fetch_add(doubtful, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
                seen.failed.fetch_add(1, Ordering::Relaxed)
            }
            other => panic!("{other:?}"),
        };
    }
}

/// The permits that are used, as soon as the store answers.
pub(crate) async fn used(limiter: &Limiter, key: &str) -> u64 {
    let started = Instant::now();
    loop {
        let decision = limiter.peek("api", key).await.unwrap();
        let Some(failure) = decision.store_failure() else {
            return PLENTY - decision.remaining();
        };
        assert!(started.elapsed() < GENEROUS, "{failure:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
