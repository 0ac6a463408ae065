//! The traffic through one limit, on a memory store whose clock is moved by hand.

use std::collections::VecDeque;
use std::time::Duration;

use tower_throttle::store::{Acquire, Action, Algorithm, LeaseId};
use tower_throttle::store::{Answer, Check, PolicyId, Store};
use tower_throttle::{
    Clock, Decision, FailureMode, Key, ManualClock, MemoryStore, Micros, SECOND, StoreError,
    Subject,
};

use crate::limits::{Named, UNDER_WAY};

/// The outcome of each request, by time since the start, in ascending order.
pub(crate) struct Run {
    /// When requests were let through: delayed ones after their delay.
    pub(crate) admitted: Vec<Duration>,
    pub(crate) denied: Vec<Duration>,
}

/// The interval of one second that holds the most of these sorted instants: its start, and their
/// number.
pub(crate) fn busiest_second(instants: &[Duration]) -> (Duration, usize) {
    let within = |(position, &start): (usize, &Duration)| {
        let end = instants.partition_point(|&instant| instant < start + SECOND);
        (start, end - position)
    };
    let seconds = instants.iter().enumerate().map(within);
    // Among equals `max_by_key` takes the last.
    seconds
        .rev()
        .max_by_key(|(_, most)| *most)
        .unwrap_or_default()
}

pub(crate) async fn through(
    limit: &Named,
    offered: &[Duration],
) -> Result<Run, Box<dyn std::error::Error>> {
    let client = Client::new(limit)?;
    let mut in_flight_work = VecDeque::new();
    let (mut admitted, mut denied) = (Vec::new(), Vec::new());
    for &at in offered {
        while let Some((ends, lease)) = in_flight_work.front().copied()
            && ends <= at
        {
            let _ = client.act(ends, Action::Release(lease)).await?;
            in_flight_work.pop_front();
        }
        let lease = LeaseId::new();
        let take = Acquire::new(1).with_lease(lease);
        let decision = client.act(at, Action::Acquire(take)).await?;
        if decision.is_allowed() {
            admitted.push(at + decision.delay());
            if client.algorithm.lease().is_some() {
                in_flight_work.push_back((at + UNDER_WAY, lease));
            }
        } else {
            denied.push(at);
        }
    }
    Ok(Run { admitted, denied })
}

/// The client of all requests.
struct Client {
    store: MemoryStore,
    clock: ManualClock,
    start: Micros,
    policy: PolicyId,
    algorithm: Algorithm,
}

impl Client {
    fn new(limit: &Named) -> Result<Self, tower_throttle::ConfigError> {
        // A new clock is at a full second, where aligned windows begin.
        let clock = ManualClock::new();
        Ok(Self {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            start: clock.now(),
            clock,
            policy: PolicyId::new(limit.name),
            algorithm: Algorithm::try_from(&limit.limit)?,
        })
    }

    async fn act(&self, at: Duration, action: Action) -> Result<Decision, StoreError> {
        self.clock.set(self.start.saturating_add(at.into()));
        let check = Check::new(
            &self.policy,
            Subject::from(&Key::everybody()),
            self.algorithm,
            action,
        )
        .with_failure_mode(FailureMode::Deny);
        let decisions = match self.store.ask(&[check]) {
            Answer::Ready(decisions) => decisions?,
            Answer::Pending(decisions) => decisions.await?,
        };
        Ok(decisions[0])
    }
}
