//! Policies that are enforced for a share of the subjects.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use support::bench::Bench;
use support::on_every_store;
use tower_throttle::{
    ChangeEvent, HOUR, Limit, Limiter, MemoryStore, Mode, Observer, Outcome, Percent, Policy,
};

on_every_store! {
    a_share_is_denied_and_the_others_are_counted_alike
}

const KEYS: u64 = 300;

fn percent(share: u8) -> Percent {
    Percent::new(share).expect("a share")
}

fn trial(share: u8) -> Policy {
    Policy::new("trial", Limit::fixed_window(1, HOUR)).enforce_for(percent(share))
}

/// The keys that a second request of theirs finds denied.
async fn denied(limiter: &Limiter) -> BTreeSet<u64> {
    let mut denied = BTreeSet::new();
    for key in 0..KEYS {
        let _ = limiter.check("trial", key).await.expect("a policy");
        let decision = limiter.check("trial", key).await.expect("a policy");
        match decision.outcome() {
            Outcome::Denied => assert!(denied.insert(key)),
            outcome => assert_eq!(outcome, Outcome::ShadowDenied, "{key}"),
        }
    }
    denied
}

async fn a_share_is_denied_and_the_others_are_counted_alike(bench: &Bench) {
    let limiter = bench.limiter([trial(30)]);
    let first = denied(&limiter).await;
    assert!((60..120).contains(&first.len()), "{}", first.len());
    for key in 0..KEYS {
        let looked = limiter.peek("trial", key).await.expect("a policy");
        assert_eq!(looked.remaining(), 0, "{key}");
    }
    // Another process has the same subjects, and a larger share has them, too.
    let other = Limiter::new(MemoryStore::new(), [trial(30)]).expect("sound rules");
    assert_eq!(denied(&other).await, first);
    other
        .set_enforced_for("trial", percent(60))
        .expect("a policy");
    let more = denied(&other).await;
    assert!(more.is_superset(&first) && more.len() > first.len());
    for (share, count) in [(100, KEYS as usize), (0, 0)] {
        other
            .set_enforced_for("trial", percent(share))
            .expect("a policy");
        assert_eq!(denied(&other).await.len(), count);
    }
}

#[derive(Clone, Default)]
struct Changes(Arc<Mutex<Vec<(Percent, Percent)>>>);

impl Observer for Changes {
    fn on_change(&self, event: &ChangeEvent) {
        if let ChangeEvent::EnforcedFor { from, to, .. } = event {
            self.0.lock().expect("no panic").push((*from, *to));
        }
    }
}

#[test]
fn a_share_set_at_run_time_stays_until_the_policys_own_changes() {
    let changes = Changes::default();
    let limiter = Limiter::builder(MemoryStore::new(), [trial(5)]).observe(changes.clone());
    let limiter = limiter.build().expect("sound rules");
    let share = || {
        limiter
            .summary("trial")
            .expect("a policy")
            .enforced_for
            .get()
    };
    limiter
        .set_enforced_for("trial", percent(20))
        .expect("a policy");
    limiter.replace([trial(5)]).expect("sound rules");
    assert_eq!(share(), 20);
    limiter.replace([trial(50)]).expect("sound rules");
    assert_eq!(share(), 50);
    assert!(limiter.set_enforced_for("other", percent(20)).is_err());
    let seen = changes.0.lock().expect("no panic").clone();
    let seen: Vec<_> = seen
        .iter()
        .map(|(from, to)| (from.get(), to.get()))
        .collect();
    assert_eq!(seen, [(100, 5), (5, 20), (20, 50)]);
}

#[tokio::test]
async fn a_share_says_nothing_while_the_mode_is_another() {
    let limiter = Limiter::new(MemoryStore::new(), [trial(100).mode(Mode::Shadow)]);
    let limiter = limiter.expect("sound rules");
    assert_eq!(denied(&limiter).await.len(), 0);
}
