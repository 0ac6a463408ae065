//! A server, a proxy that can fail, and a limiter with a policy of each failure mode: what all
//! fault tests have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tower_throttle::{
    BreakerState, DAY, Decision, FailureMode, Limit, Limiter, Observer, Outcome, Policy,
    RedisStore, SECOND, StoreErrorKind,
};

use support::proxy::{Proxy, Way};
use support::redis::Server;

pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
/// Far longer than a decision takes past its deadline, far shorter than a hang.
const GENEROUS: Duration = Duration::from_secs(5);
/// Far longer than a decision takes that does not ask the store.
const AT_ONCE: Duration = Duration::from_millis(5);
/// Counted from the server's return. The circuit breaker alone would take up to 6 seconds after
/// outages of this length.
pub(crate) const PROMISED: Duration = SECOND;
/// The rest is for busy machines. [`Stage::is_soon_back`] notices what takes longer each time.
pub(crate) const SOON: Duration = Duration::from_secs(3);
/// So long that pauses of 250, 500 and 1000 ms are over, and one of 2 s has begun.
const OUTAGE: Duration = Duration::from_secs(2);
/// More than any test takes.
pub(crate) const PLENTY: u64 = 1_000_000;

pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) limiter: Limiter,
    openings: Openings,
}

/// How often the circuit breaker opened.
#[derive(Clone, Default)]
struct Openings(Arc<AtomicUsize>);

impl Observer for Openings {
    fn on_breaker(&self, state: BreakerState) {
        let opened = usize::from(state == BreakerState::Open);
        self.0.fetch_add(opened, Ordering::SeqCst);
    }
}

/// What happened in an outage.
#[derive(Default)]
pub(crate) struct Outage {
    /// How long each decision took, and why the store did not make it.
    decisions: Vec<(Duration, StoreErrorKind)>,
    length: Duration,
    /// When the circuit breaker was first seen open.
    found_open: Option<Instant>,
    /// How many connection attempts there were; `None` if they cannot be counted.
    connections: Option<usize>,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        Self::over(Server::start()).await
    }

    /// With this server.
    pub(crate) async fn over(server: Server) -> Self {
        let proxy = Proxy::to(server.port());
        let store = RedisStore::connect(&proxy.url()).await.unwrap();
        let openings = Openings::default();
        let limiter = observed(store, openings.clone());
        recovery(&limiter).await;
        Self {
            server,
            proxy,
            limiter,
            openings,
        }
    }

    /// Asks until the circuit breaker has just begun a pause of more than [`SOON`].
    async fn long_outage(&self) -> Outage {
        // 250, 500, 1000, 2000, 4000 ms.
        let long = self.openings.0.load(Ordering::SeqCst) + 5;
        let is_long = |_: &Outage| self.openings.0.load(Ordering::SeqCst) >= long;
        self.counting(outage_until(&self.limiter, is_long)).await
    }

    /// Breaks something, asks for a while, mends it, and waits for the store. Asserts that
    /// decisions were in time, followed the failure modes, and had one of these reasons; that there
    /// were few connection attempts; and that the store was soon asked again.
    pub(crate) async fn endures(
        &mut self,
        fault: &str,
        reasons: &[StoreErrorKind],
        break_it: impl FnOnce(&mut Server, &Proxy),
        mend_it: impl FnOnce(&mut Server, &Proxy),
    ) {
        let outage = self.outlives(fault, reasons, break_it, mend_it).await;
        outage.assert_few_connections();
    }

    /// The same without checking connections, where they cannot be counted.
    pub(crate) async fn outlives(
        &mut self,
        fault: &str,
        reasons: &[StoreErrorKind],
        break_it: impl FnOnce(&mut Server, &Proxy),
        mend_it: impl FnOnce(&mut Server, &Proxy),
    ) -> Outage {
        break_it(&mut self.server, &self.proxy);
        let outage = self.outage(OUTAGE).await;
        mend_it(&mut self.server, &self.proxy);
        let recovery = recovery(&self.limiter).await;
        outage.print(fault, recovery);
        outage.assert_reasons(reasons);
        assert!(recovery < SOON, "{fault}: {recovery:?} to recover");
        outage
    }

    /// Breaks something and mends it after a long outage, until the store was once asked again as
    /// soon as promised: a busy machine takes longer, but not each time.
    pub(crate) async fn is_soon_back(
        &mut self,
        fault: &str,
        break_it: impl Fn(&mut Server, &Proxy),
        mend_it: impl Fn(&mut Server, &Proxy),
    ) -> Outage {
        let mut slow = Vec::new();
        for _ in 0..5 {
            break_it(&mut self.server, &self.proxy);
            let outage = self.long_outage().await;
            mend_it(&mut self.server, &self.proxy);
            let recovery = recovery(&self.limiter).await;
            outage.print(fault, recovery);
            if recovery < PROMISED {
                return outage;
            }
            slow.push(recovery);
        }
        panic!("{fault}: {slow:?} to recover");
    }

    /// As [`outage`], counting connections.
    pub(crate) async fn outage(&self, length: Duration) -> Outage {
        self.counting(outage(&self.limiter, length)).await
    }

    async fn counting(&self, outage: impl Future<Output = Outage>) -> Outage {
        let before = self.proxy.accepted().len();
        let outage = outage.await;
        match self.proxy.way() {
            Way::Refuse => outage,
            _ => outage.with_connections(self.proxy.accepted().len() - before),
        }
    }
}

pub(crate) fn limiter(store: RedisStore) -> Limiter {
    observed(store, Openings::default())
}

fn observed(store: RedisStore, openings: Openings) -> Limiter {
    let limit = Limit::fixed_window(PLENTY, DAY);
    let policies = [
        ("open", FailureMode::Allow),
        ("closed", FailureMode::Deny),
        ("local", FailureMode::Local { share: 0.5 }),
    ];
    let policies = policies.map(|(name, mode)| Policy::new(name, limit).on_store_failure(mode));
    let builder = Limiter::builder(store, policies);
    let builder = builder.timeout(DEADLINE).observe(openings);
    builder.build().unwrap()
}

/// Asks for this long, each policy in turn; on a busy machine for longer, until the breaker was open.
pub(crate) async fn outage(limiter: &Limiter, length: Duration) -> Outage {
    outage_with(limiter, length, StoreErrorKind::BreakerOpen).await
}

/// The same until a decision has failed in this way.
pub(crate) async fn outage_with(
    limiter: &Limiter,
    length: Duration,
    reason: StoreErrorKind,
) -> Outage {
    let started = Instant::now();
    let is_over = |outage: &Outage| started.elapsed() >= length && outage.has_failed(reason);
    outage_until(limiter, is_over).await
}

async fn outage_until(limiter: &Limiter, is_over: impl Fn(&Outage) -> bool) -> Outage {
    let started = Instant::now();
    let mut outage = Outage::default();
    while !is_over(&outage) {
        assert!(started.elapsed() < 10 * GENEROUS, "the outage has no end");
        for policy in ["open", "closed", "local"] {
            let asked = Instant::now();
            let decision = limiter.check(policy, "alice").await.unwrap();
            let elapsed = asked.elapsed();
            assert!(elapsed < DEADLINE + GENEROUS, "{elapsed:?}: {decision:?}");
            if let Some(why) = decision.store_failure() {
                assert_follows_mode(policy, &decision, why);
                outage.decisions.push((elapsed, why));
                if why == StoreErrorKind::BreakerOpen {
                    outage.found_open.get_or_insert(asked);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    outage.length = started.elapsed();
    outage.assert_in_time();
    outage
}

fn assert_follows_mode(policy: &str, decision: &Decision, why: StoreErrorKind) {
    match policy {
        "open" => assert_eq!(decision.outcome(), Outcome::FailedOpen(why)),
        "closed" => {
            assert_eq!(decision.outcome(), Outcome::FailedClosed(why));
            assert_eq!(decision.retry_after(), Some(SECOND));
        }
        _ => assert!(decision.is_local() && decision.is_allowed(), "{decision:?}"),
    }
}

/// Asks until the store decides again. Returns how long that took.
pub(crate) async fn recovery(limiter: &Limiter) -> Duration {
    let started = Instant::now();
    loop {
        let decision = limiter.check("closed", "bob").await.unwrap();
        if decision.store_failure().is_none() {
            return started.elapsed();
        }
        assert!(
            started.elapsed() < 6 * GENEROUS,
            "no way back: {decision:?}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

impl Outage {
    pub(crate) fn with_connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// The median of decisions that waited for the store is near the deadline at most, and the
    /// median of those answered by an open breaker is no wait at all. A busy machine delays any of
    /// them, but not half.
    fn assert_in_time(&self) {
        let (at_once, waited): (Vec<_>, Vec<_>) =
            (self.decisions.iter()).partition(|(_, why)| *why == StoreErrorKind::BreakerOpen);
        for (decisions, longest) in [(waited, 2 * DEADLINE), (at_once, AT_ONCE)] {
            let median = median(decisions.iter().map(|(took, _)| *took));
            let is_in_time = median.is_none_or(|median| median < longest);
            assert!(is_in_time, "median {median:?} of {decisions:?}");
        }
    }

    pub(crate) fn found_open(&self) -> Instant {
        self.found_open.expect("the breaker was open")
    }

    /// Some failed in this way, and the others because the breaker was open by then.
    pub(crate) fn assert_reasons(&self, reasons: &[StoreErrorKind]) {
        self.assert_no_other_reasons(reasons);
        self.assert_failed(StoreErrorKind::BreakerOpen);
    }

    /// Some failed in this way, and the others in this way or because the breaker was open by then.
    pub(crate) fn assert_no_other_reasons(&self, reasons: &[StoreErrorKind]) {
        // On a busy machine any answer may be late.
        let is_expected = |why: &StoreErrorKind| {
            matches!(why, StoreErrorKind::BreakerOpen | StoreErrorKind::TimedOut)
                || reasons.contains(why)
        };
        let mut unexpected = self.decisions.iter().filter(|(_, why)| !is_expected(why));
        assert_eq!(unexpected.next(), None, "expected {reasons:?}");
        let is_seen = reasons.iter().any(|why| self.has_failed(*why));
        assert!(is_seen, "none of {reasons:?}");
    }

    /// Some failed in this way.
    pub(crate) fn assert_failed(&self, reason: StoreErrorKind) {
        assert!(self.has_failed(reason), "none is {reason:?}");
    }

    fn has_failed(&self, reason: StoreErrorKind) -> bool {
        self.decisions.iter().any(|(_, why)| *why == reason)
    }

    /// Two a second, the first at once.
    pub(crate) fn assert_few_connections(&self) {
        let most = 1 + self.length.as_millis() / 500;
        let made = self.connections.expect("somebody counted");
        assert!(
            made as u128 <= most,
            "{made} connections in {:?}",
            self.length
        );
    }

    /// Attempts were counted, and there were some.
    pub(crate) fn assert_tried(&self) {
        assert!(self.connections.is_some_and(|made| made > 0));
    }

    /// So often that a return is noticed within a second.
    pub(crate) fn assert_tried_each_second(&self) {
        let made = self.connections.expect("somebody counted");
        assert!(
            made as u128 * PROMISED.as_millis() > self.length.as_millis(),
            "{made} connections in {:?}",
            self.length
        );
    }

    /// How late the late decisions were, and how soon the store was asked again.
    pub(crate) fn print(&self, fault: &str, recovery: Duration) {
        let took = self.decisions.iter().map(|(took, _)| *took);
        let waited = took.clone().filter(|took| *took >= DEADLINE);
        let late = waited.map(|took| took - DEADLINE);
        println!(
            "{fault}: {} decisions, median {:?}; {} of them waited for the deadline, late by median \
             {:?} and {:?} at most; {} connections in {:?}; recovered after {recovery:?}",
            self.decisions.len(),
            median(took),
            late.clone().count(),
            median(late.clone()),
            late.max(),
            self.connections
                .map_or("uncounted".to_owned(), |made| made.to_string()),
            self.length,
        );
    }
}

fn median(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort();
    times.get(times.len() / 2).copied()
}
