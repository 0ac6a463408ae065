//! Nothing depends on what is in shadow, and in shadow everything is counted as otherwise.

use std::time::Duration;

use tower_throttle::store::{Decisions, Store};
use tower_throttle::{Clock as _, HOUR, Key, ManualClock, MemoryStore, Micros, SECOND};

use super::histories::histories;
use super::{Timed, answer, wanted};
use support::drawn::drawn;
use support::history::{Course, History, POLICIES, policy_of, receipts};

/// How a history is run: which policies are asked, and which of them in shadow.
#[derive(Clone, Copy, Debug)]
struct Variant {
    asked: [bool; POLICIES],
    shadows: [bool; POLICIES],
}

impl Variant {
    fn of(self, history: &History) -> History {
        let mut told = history.clone();
        for step in &mut told.steps {
            step.shadows = self.shadows;
            for (act, is_asked) in step.acts.iter_mut().zip(self.asked) {
                act.take_if(|_| !is_asked);
            }
        }
        told
    }
}

/// Runs a history twice, with different subjects: about a policy that is asked both times the
/// answers must be the same. Returns how often they were compared.
async fn tell_twice(
    history: &History,
    variants: [Variant; 2],
    number: u64,
    store: &impl Store,
    clock: &ManualClock,
    remembers: Duration,
) -> Result<usize, String> {
    clock.set(ManualClock::new().now());
    let mut latest = clock.now();
    let told = variants.map(|telling| telling.of(history));
    let mut courses = told.each_ref().map(Course::of);
    let mut last: Option<Decisions> = None;
    let mut compared = 0;
    for (position, step) in history.steps.iter().enumerate() {
        step.time.pass(clock, last.as_ref());
        latest = latest.max(clock.now());
        if latest.saturating_sub(clock.now()) > Micros::from(remembers) {
            // No clock brings back what has long expired.
            break;
        }
        let mut answers = Vec::new();
        for (time, course) in courses.iter_mut().enumerate() {
            let step = &told[time].steps[position];
            course.change(step);
            let checks = course.checks(step, Key::all([number, time as u64].map(Key::from)));
            let mut each = Vec::new();
            if !checks.is_empty() {
                let decisions = answer(store, &checks).await;
                let policies = checks.iter().map(policy_of);
                each.extend(policies.zip(decisions.iter().copied()));
                let taken = receipts(&checks, &decisions);
                course.answered(&taken);
                if time == 0 {
                    last = Some(decisions);
                }
            }
            answers.push(each);
        }
        let [first, second] = [0, 1].map(|time| {
            let other = variants[1 - time].asked;
            let both = answers[time].iter().filter(|(policy, _)| other[*policy]);
            both.collect::<Vec<_>>()
        });
        if first != second {
            return Err(format!(
                "step {position} of {variants:?}:\n{first:?}\n{second:?}\n{history:#?}"
            ));
        }
        compared += first.len();
    }
    Ok(compared)
}

/// Runs histories twice on each store; `variants` says how.
fn compare_twice(variants: impl Fn(&History, u64) -> [Variant; 2]) {
    let (runtime, _server, Timed { store, clock }) = Timed::alone();
    let mut compared = 0;
    for (number, history) in (0..wanted().div_ceil(20)).zip(drawn(histories())) {
        let variants = variants(&history, number);
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        // In a key of several states, an expired state is kept for an hour beside the others.
        let remembers = if history.shares_keys() {
            HOUR
        } else {
            Duration::MAX
        };
        let told = runtime.block_on(async {
            Ok::<_, String>([
                tell_twice(&history, variants, number, &memory, &clock, SECOND).await?,
                tell_twice(&history, variants, number, &store, &clock, remembers).await?,
            ])
        });
        compared += told.unwrap_or_else(|how| panic!("history {number}, {how}"))[1];
    }
    let least = 10 * wanted().div_ceil(20) as usize;
    assert!(compared > least, "only {compared} answers were compared");
}

#[test]
fn without_what_is_in_shadow_all_else_is_answered_alike() {
    compare_twice(|history, number| {
        // At least one, and each of them in turn.
        let mut shadows = history.steps[0].shadows;
        shadows[number as usize % POLICIES] = true;
        // All of them are left out, or one: those that stay depend on it no more than the others
        // do.
        let asked = if number.is_multiple_of(2) {
            shadows.map(|is_shadow| !is_shadow)
        } else {
            std::array::from_fn(|policy| policy != number as usize % POLICIES)
        };
        let all = [true; POLICIES];
        [all, asked].map(|asked| Variant { asked, shadows })
    });
}

#[test]
fn one_policy_in_shadow_counts_and_answers_as_if_it_were_not() {
    compare_twice(|_, number| {
        let asked = std::array::from_fn(|policy| policy == number as usize % POLICIES);
        [false, true].map(|is_shadow| Variant {
            asked,
            shadows: [is_shadow; POLICIES],
        })
    });
}
