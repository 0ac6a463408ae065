//! GCRA, token bucket and leaky bucket: modelled as a bucket of whole integers.

use super::*;
use crate::time::MINUTE;

/// One permit is `permit` units, and each microsecond adds `PER_US`, which makes the rate a
/// fixed-point number. A level below zero is owed.
struct ModelBucket {
    level: i128,
    full: i128,
    permit: i128,
    queues: bool,
}

/// The units of a microsecond.
pub(super) const PER_US: i128 = 1 << 32;

/// The debt never exceeds what is added in this time.
const MOST_OWED: Duration = Duration::from_secs(120 * 366 * 86_400);

/// Whether it is allowed, how long it is held up, and what is left.
type Answer = (bool, u64, u64);

impl ModelBucket {
    fn new(numbers: &Numbers) -> Self {
        let permit = permit(numbers);
        Self {
            level: i128::from(numbers.permits) * permit,
            full: i128::from(numbers.permits) * permit,
            permit,
            queues: numbers.kind == QUEUE,
        }
    }

    fn pass(&mut self, us: u64) {
        self.level = self.full.min(self.level + i128::from(us) * PER_US);
    }

    fn act(&mut self, action: &Action) -> Answer {
        let answer = match action {
            Action::Acquire(take) if take.cost > 0 => self.take(take.cost, take.wait),
            Action::Charge(permits) => {
                self.owe(*permits);
                Some(0)
            }
            Action::Credit { permits, .. } => {
                let back = i128::from(*permits) * self.permit;
                self.level = self.full.min(self.level + back);
                Some(0)
            }
            Action::Hold { time, permits } => {
                let then = match self.queues {
                    true => self.full,
                    false => self.full.min(i128::from(*permits) * self.permit),
                };
                self.level = self.level.min(then - i128::from(time.get()) * PER_US);
                Some(0)
            }
            Action::Reset => {
                self.level = self.full;
                Some(0)
            }
            _ => Some(0),
        };
        let left = self.level.max(0) / self.permit;
        let left = u64::try_from(left).unwrap();
        (answer.is_some(), answer.unwrap_or(0), left)
    }

    /// How long it is held up, or `None` if it is denied.
    fn take(&mut self, cost: u64, wait: Wait) -> Option<u64> {
        let price = i128::from(cost) * self.permit;
        let (fits, delay) = match (wait, self.queues) {
            // Those before it leave first, one after the other.
            (Wait::Burst(_), true) => (true, self.time_to(self.full)),
            (_, true) => (price <= self.level, self.time_to(self.full)),
            (Wait::Burst(_), false) => (true, self.time_to(0)),
            (Wait::Strict(_), false) => (price <= self.full, self.time_to(price)),
            (Wait::None, false) => (price <= self.level, 0),
        };
        let is_patient = match wait {
            Wait::None => true,
            Wait::Strict(longest) | Wait::Burst(longest) => delay <= longest.get(),
        };
        if !fits || !is_patient {
            return None;
        }
        self.owe(cost);
        Some(delay)
    }

    /// How long until the level is this high.
    fn time_to(&self, level: i128) -> u64 {
        let missing = (level - self.level).max(0) as u128;
        u64::try_from(missing.div_ceil(PER_US as u128)).unwrap_or(u64::MAX)
    }

    fn owe(&mut self, permits: u64) {
        let least = self.full - MOST_OWED.as_micros() as i128 * PER_US;
        self.level = least.max(self.level - i128::from(permits) * self.permit);
    }
}

/// The units of a permit, rounded down once.
pub(super) fn permit(numbers: &Numbers) -> i128 {
    numbers.period.as_micros() as i128 * PER_US / i128::from(numbers.rate)
}

/// Limits that are buckets, with few permits so that they are often empty.
fn buckets() -> impl Strategy<Value = Numbers> {
    let few = prop_oneof![3 => 1_u64..20, 1 => 1_u64..2_000];
    (numbers(BUCKETS), few)
        .prop_map(|(numbers, permits)| Numbers { permits, ..numbers })
        .prop_filter("centuries to fill", |numbers| {
            numbers.limit().valid().is_ok()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_bucket_does_what_a_bucket_of_exact_integers_does(
        numbers in buckets(),
        history in prop::collection::vec((pauses(), actions()), 1..80),
    ) {
        let mut subject = Subject::of(numbers.limit());
        let mut model = ModelBucket::new(&numbers);
        for (pause, action) in history {
            // The level does not tell whether and when somebody has taken permits since.
            if action.receipt().is_some() {
                continue;
            }
            subject.now += pause;
            model.pass(pause);
            let decision = subject.act(action);
            let is_allowed = decision.is_allowed();
            let delay = if is_allowed { us(decision.delay()) } else { 0 };
            let answer = (is_allowed, delay, decision.remaining());
            prop_assert_eq!(answer, model.act(&action), "{:?}", action);
        }
    }

    /// A caller that waits goes on at the first instant at which its permits are there.
    #[test]
    fn a_delay_ends_when_the_cost_would_have_fitted_and_not_before(
        numbers in buckets(), history in histories(), cost in 1_u64..12,
    ) {
        prop_assume!(cost <= numbers.permits && numbers.kind != QUEUE);
        let mut subject = Subject::of(numbers.limit());
        for (pause, cost) in history {
            subject.now += pause;
            let _ = subject.ask(cost);
        }
        let before = subject.clone();
        let wait = Wait::Strict(Micros::from(DAY));
        let decision = subject.act(Action::Acquire(take(cost, wait)));
        let (now, delay) = (subject.now, us(decision.delay()));
        prop_assert!(before.would(now + delay, cost));
        prop_assert!(delay == 0 || !before.would(now + delay - 1, cost));
        prop_assert_eq!(decision.is_allowed(), delay <= us(DAY));
        // A caller that would wait for longer is told how much longer, and takes nothing.
        if let Some(longer) = decision.retry_after() {
            prop_assert_eq!(us(longer), delay - us(DAY));
            prop_assert_eq!(subject.remembered(), before.remembered());
        }
    }

    /// Each request leaves when what entered before it has run out: exactly at the rate.
    #[test]
    fn a_queue_lets_its_requests_leave_at_its_rate(
        numbers in buckets(), history in histories(),
    ) {
        let mut subject = Subject::of(Numbers { kind: QUEUE, ..numbers }.limit());
        // When everything before it has run out, in units.
        let (permit, per_us) = (permit(&numbers) as u128, PER_US as u128);
        let mut dry = 0;
        for (pause, cost) in history {
            subject.now += pause;
            let decision = subject.ask(cost);
            if cost == 0 || !decision.is_allowed() {
                continue;
            }
            let leaves = u128::from(subject.now + us(decision.delay()));
            dry = dry.max(u128::from(subject.now) * per_us);
            prop_assert_eq!(leaves, dry.div_ceil(per_us));
            dry += u128::from(cost) * permit;
        }
    }
}

/// Every permit of a burst of a million, at rates that divide nothing evenly.
#[test]
fn large_bursts_are_exact_to_the_permit() {
    for (limit, period) in [
        (3, SECOND),
        (999_983, DAY),
        (300_000, SECOND),
        (10_000_000, SECOND),
    ] {
        let mut subject = Subject::of(Limit::gcra(limit, period).burst(100_000));
        for left in (0..100_000).rev() {
            assert_eq!(subject.ask(1).remaining(), left);
        }
        assert!(!subject.ask(1).is_allowed());
    }
}

#[test]
fn a_denial_by_a_full_queue_tells_how_long_the_queue_is() {
    let mut subject = Subject::of(Limit::leaky_bucket(2, Rate::new(1, SECOND)));
    let _ = subject.ask(2);
    let patient = Action::Acquire(Acquire {
        cost: 1,
        wait: Wait::Strict(Micros::from(MINUTE)),
        lease: None,
        is_final: false,
        takes_fewer: false,
    });
    let denied = subject.act(patient);
    assert_eq!(denied.outcome(), Outcome::Denied);
    assert_eq!(denied.retry_after(), Some(SECOND));
    assert_eq!(denied.delay(), 2 * SECOND);
}

#[test]
fn in_shadow_a_decision_tells_its_wait_unless_none_would_help() {
    let mut subject = Subject::of(Limit::gcra(1, SECOND));
    let told = [1, 1, 2].map(|cost| subject.ask(cost).in_shadow().retry_after());
    assert_eq!(told, [None, Some(SECOND), None]);
}
