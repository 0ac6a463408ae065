//! A million states after random histories, each written into fields that are parsed back.

use super::*;
use crate::algorithm::{Ask, committed};
use crate::limit::Rate;

/// How many decisions are written, over all policies.
const STATES: usize = 1_000_000;

#[test]
fn a_million_states_promise_no_more_than_the_quota() {
    let mut random = Random(0x5eed_0011);
    let (mut states, mut denials, mut windows) = (0, 0, 0);
    while states < STATES {
        let mut histories = Histories::random(&mut random);
        for _ in 0..40 {
            let each = histories.ask(&mut random);
            let policies: Vec<_> = each
                .iter()
                .map(|(name, decision)| (&**name, *decision))
                .collect();
            check(&policies);
            let denied = policies
                .iter()
                .filter(|(_, decision)| !decision.is_allowed());
            denials += denied.count();
            let fixed = policies
                .iter()
                .filter(|(_, decision)| decision.renews_whole);
            windows += fixed.count();
            states += policies.len();
        }
    }
    // Histories with only one kind of outcome would show little.
    assert!(
        (STATES / 5..STATES * 4 / 5).contains(&denials),
        "{denials} of {states} are denied"
    );
    assert!(
        windows < STATES / 4,
        "{windows} of {states} are fixed windows"
    );
}

fn check(policies: &[(&str, Decision)]) {
    let fields = lists(policies);
    let (announced, shown) = (list(&fields.policy), list(&fields.quota));
    assert_eq!(
        (announced.len(), shown.len()),
        (policies.len(), policies.len())
    );
    for ((name, decision), (policy, quota)) in policies.iter().zip(announced.iter().zip(&shown)) {
        let [policy, quota] = [policy, quota].map(|entry| match entry {
            ListEntry::Item(item) => item,
            ListEntry::InnerList(_) => panic!("an inner list in {fields:?}"),
        });
        for item in [policy, quota] {
            let BareItem::String(shown) = &item.bare_item else {
                panic!("no string in {fields:?}");
            };
            assert_eq!(shown.as_str(), *name);
        }
        let (q, r) = (number(policy, "q"), number(quota, "r"));
        if decision.window.is_zero() {
            assert!(policy.params.get("w").is_none() && quota.params.get("t").is_none());
            assert!(r <= q);
            continue;
        }
        let (w, t) = (number(policy, "w"), number(quota, "t"));
        assert!(q >= 1 && w >= 1 && r >= 0 && t >= 1, "{fields:?}");
        // A fixed window tells the time to its end, however near that is; a client denied for a
        // high cost learns when that cost fits.
        let is_exact = decision.renews_whole || decision.retry_after().is_some();
        assert!(is_exact || r * w <= q * t, "{fields:?}");
        if decision.retry_after().is_some() {
            let secs = retry_after_secs(decision).map(i128::from);
            assert!(secs.is_some_and(|secs| secs >= t), "{secs:?} {fields:?}");
        }
    }
}

fn number(item: &sfv::Item, key: &str) -> i128 {
    match item.params.get(key) {
        Some(BareItem::Integer(number)) => i64::from(*number).into(),
        other => panic!("{key} is {other:?}"),
    }
}

/// Several policies about the same requests.
struct Histories {
    each: Vec<(String, History)>,
    at: Micros,
    /// The approximate time between two requests, in microseconds.
    pace: u64,
}

impl Histories {
    fn random(random: &mut Random) -> Self {
        let each = (0..=random.below(4)).map(|_| (name(random), History::of(limit(random))));
        Self {
            each: each.collect(),
            at: START,
            pace: 1 << random.below(27),
        }
    }

    /// All or nothing, as a store decides.
    fn ask(&mut self, random: &mut Random) -> Vec<(String, Decision)> {
        self.at = self
            .at
            .saturating_add(Micros::new(random.below(2 * self.pace)));
        let digits = random.below(8);
        let cost = random.below(1 << digits);
        let action = Action::acquire(cost);
        let read = |(_, history): &(String, History)| {
            history.algorithm.read(&history.state, self.at, &action)
        };
        let mut readings: Vec<_> = self.each.iter().map(read).collect();
        let algorithms: Vec<_> = self
            .each
            .iter()
            .map(|(_, history)| history.algorithm)
            .collect();
        let asked = algorithms
            .iter()
            .map(|algorithm| Ask::enforced(algorithm, &action));
        let is_committed = committed(asked.clone(), &readings);
        for (((_, history), reading), is) in
            self.each.iter_mut().zip(&mut readings).zip(is_committed)
        {
            if is {
                *reading = history
                    .algorithm
                    .commit(&mut history.state, self.at, &action, *reading);
            }
        }
        let decisions = decide(asked, &readings);
        let banned_at_times = |decision: &Decision| match decision.retry_after() {
            Some(_) if cost % 16 == 1 => banned(*decision, self.pace * 50),
            _ => *decision,
        };
        let names = self.each.iter().map(|(name, _)| name.clone());
        names.zip(decisions.iter().map(banned_at_times)).collect()
    }
}

/// Printable ASCII, with more than a fair share of characters that are escaped.
fn name(random: &mut Random) -> String {
    let char = |random: &mut Random| match random.below(6) {
        0 => '"',
        1 => '\\',
        _ => char::from(b' ' + random.below(95) as u8),
    };
    let length = 1 + random.below(12);
    (0..length).map(|_| char(random)).collect()
}

fn limit(random: &mut Random) -> Limit {
    let digits = 1 + random.below(12);
    let permits = 1 + random.below(1 << digits);
    let us = match random.below(2) {
        0 => 1_000 + random.below(90_000_000),
        _ => 1_000_000 * (1 + random.below(400)),
    };
    let time = std::time::Duration::from_micros(us);
    let rate = Rate::new(1 + random.below(200), time);
    match random.below(9) {
        0 => Limit::gcra(permits, time),
        1 => Limit::gcra(permits, time).burst(1 + random.below(300)),
        2 => Limit::token_bucket(permits, rate),
        3 => Limit::leaky_bucket(permits, rate),
        4 => Limit::fixed_window(permits, time),
        5 => Limit::sliding_window(permits, time),
        6 => Limit::sliding_counter(permits, time),
        7 => Limit::sliding_log(permits, time),
        _ => Limit::concurrency(permits),
    }
}

/// Marsaglia's xorshift: the same states every time, at almost no cost.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
