//! Concurrency: modelled as a map of leases.

use std::collections::HashMap;

use super::*;

/// Each lease's permits and when it lapses. Lease 0 holds permits that were taken without one.
struct ModelLeases {
    life: u64,
    leases: HashMap<u64, (u64, u64)>,
}

impl ModelLeases {
    fn held(&self) -> u64 {
        self.leases.values().map(|(permits, _)| permits).sum()
    }

    fn pass_to(&mut self, now: u64) {
        self.leases.retain(|_, (_, lapses)| *lapses > now);
    }

    fn take(&mut self, now: u64, number: u64, cost: u64) {
        let room = MOST_PERMITS - self.held();
        let (permits, lapses) = self.leases.entry(number).or_insert((0, 0));
        *permits += room.min(cost);
        *lapses = now + self.life;
    }

    /// Whether it is allowed.
    fn act(&mut self, limit: u64, now: u64, action: &Action) -> bool {
        let number = action.lease().map_or(0, LeaseId::get);
        match action {
            Action::Acquire(Acquire { cost: 0, .. }) | Action::Charge(0) | Action::Hold { .. } => {}
            Action::Acquire(Acquire { cost, .. }) => {
                if self.held() + (*cost) > limit {
                    return false;
                }
                self.take(now, number, *cost);
            }
            Action::Charge(cost) => self.take(now, 0, *cost),
            Action::Credit { permits, .. }
            | Action::Refund { permits, .. }
            | Action::Cancel { permits, .. }
            | Action::Withdraw { permits, .. } => {
                if let Some((held, _)) = self.leases.get_mut(&0) {
                    *held = held.saturating_sub(*permits);
                }
            }
            Action::Reset => self.leases.clear(),
            Action::Renew(_) => {
                if let Some((_, lapses)) = self.leases.get_mut(&number) {
                    *lapses = now + self.life;
                }
            }
            Action::Release(_) => {
                self.leases.remove(&number);
            }
        }
        self.leases.retain(|_, (permits, _)| *permits > 0);
        true
    }
}

/// Steps of `(pause, action)`; leases live 1 s.
fn leased() -> impl Strategy<Value = Vec<(u64, Action)>> {
    let pause = prop_oneof![2 => Just(0), 2 => 1_u64..300_000, 1 => 1_u64..2_000_000];
    prop::collection::vec((pause, actions()), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn concurrency_does_what_a_map_of_leases_does(
        limit in permits(), history in leased(),
    ) {
        let mut subject = Subject::of(Limit::concurrency(limit).lease(SECOND));
        let mut model = ModelLeases { life: us(SECOND), leases: HashMap::new() };
        for (pause, action) in history {
            subject.now += pause;
            let now = subject.now;
            model.pass_to(now);
            let decision = subject.act(action);
            let is_allowed = model.act(limit, now, &action);
            prop_assert_eq!(decision.is_allowed(), is_allowed, "{:?}", action);
            let left = limit.saturating_sub(model.held());
            prop_assert_eq!(decision.remaining(), left, "{:?}", action);
            let last = model.leases.values().map(|(_, lapses)| lapses - now).max();
            prop_assert_eq!(us(decision.reset_after()), last.unwrap_or(0), "{:?}", action);
        }
    }

    /// Requests start, are renewed, end and crash in any order: never more run than the limit.
    #[test]
    fn no_more_run_at_the_same_time_than_the_limit(
        limit in 1_u64..6,
        history in prop::collection::vec((0_u64..400_000, 0_u64..12, 0_u8..4), 1..200),
    ) {
        let life = us(SECOND);
        let mut subject = Subject::of(Limit::concurrency(limit).lease(SECOND));
        // Those that run, and when they lapse without a renewal.
        let mut running = HashMap::<u64, u64>::new();
        for (pause, number, what) in history {
            subject.now += pause;
            let now = subject.now;
            // Not renewed in time: as if its server had crashed.
            running.retain(|_, lapses| *lapses > now);
            match (running.contains_key(&number), what) {
                (false, _) => {
                    let started = Acquire { lease: Some(lease(number + 1)), ..take(1, Wait::None) };
                    let fits = running.len() < limit as usize;
                    prop_assert_eq!(subject.act(Action::Acquire(started)).is_allowed(), fits);
                    if fits {
                        running.insert(number, now + life);
                    }
                }
                (true, 0) => {
                    let _ = subject.act(Action::Release(lease(number + 1)));
                    running.remove(&number);
                }
                (true, _) => {
                    let _ = subject.act(Action::Renew(lease(number + 1)));
                    running.insert(number, now + life);
                }
            }
            prop_assert!(running.len() <= limit as usize);
            prop_assert_eq!(subject.look(now).remaining(), limit - running.len() as u64);
        }
    }

    #[test]
    fn a_lease_is_ended_once_and_never_comes_back(
        limit in 1_u64..6, history in leased(), number in 1_u64..6,
    ) {
        let mut subject = Subject::of(Limit::concurrency(limit).lease(SECOND));
        for (pause, action) in history {
            subject.now += pause;
            let _ = subject.act(action);
        }
        let lapsed = {
            let mut subject = subject.clone();
            subject.now += us(SECOND);
            subject
        };
        let _ = subject.act(Action::Release(lease(number)));
        for mut ended in [subject, lapsed] {
            let before = ended.remembered();
            for action in [Action::Release(lease(number)), Action::Renew(lease(number))] {
                let _ = ended.act(action);
                prop_assert_eq!(ended.remembered(), before.clone());
            }
        }
    }
}
