//! What docs/migrating.md promises: a limit here and the rule of the other system admit the same
//! requests of random histories, or differ as the page says.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prop_oneof;
use proptest::strategy::{Just, Strategy};
use tower_throttle::store::{Acquire, Action, Wait};
use tower_throttle::{Clock, Decision, Limit, Micros, Policy};

use support::bench::Bench;
use support::drawn::drawn;

mod buckets;
mod nginx;
mod theirs;
mod windows;

/// Whether a request passes that arrives at this millisecond since the epoch.
type Rule = Box<dyn FnMut(u64) -> bool>;

const TENTH: Duration = Duration::from_millis(100);

/// The milliseconds before each request: bursts, trickles, and pauses in which much comes back.
fn pauses() -> impl Strategy<Value = Vec<u64>> {
    let pause = prop_oneof![40 => Just(0), 20 => 1..=300_u64, 1 => 1_000..=70_000_u64];
    let first = 0..=3_600_000_u64;
    (first, vec(pause, 1_000)).prop_map(|(first, others)| [vec![first], others].concat())
}

fn histories() -> impl Iterator<Item = Vec<u64>> {
    drawn(pauses()).take(20)
}

/// Lets time pass. Returns the millisecond since the epoch.
fn after(pause_ms: u64, bench: &Bench) -> u64 {
    bench.advance(Duration::from_millis(pause_ms));
    bench.clock.now().get() / 1_000
}

/// Both see the same requests and decide the same, and neither always the same.
async fn admit_the_same(limit: Limit, cost: u64, rule: impl Fn() -> Rule) {
    let (mut admitted, mut denied) = (0, 0);
    for history in histories() {
        let (bench, mut theirs) = (Bench::memory(), rule());
        let limiter = bench.limiter([Policy::new("api", limit).cost(cost)]);
        for pause in history {
            let now = after(pause, &bench);
            let passes = limiter.check("api", "alice").await.unwrap().is_allowed();
            assert_eq!(passes, theirs(now), "{limit} at {now}");
            *(if passes { &mut admitted } else { &mut denied }) += 1;
        }
    }
    assert!(admitted.min(denied) > 100, "{limit}: {admitted}, {denied}");
}

/// A decision about a request that may wait this long.
async fn waiting(bench: &Bench, limit: Limit, longest: Duration) -> Decision {
    let take = Acquire::new(1).with_wait(Wait::Strict(Micros::from(longest)));
    bench.act(limit, Action::Acquire(take)).await
}
