//! States in Rust, and questions about several of them, asked one after the other.

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::{Action, Algorithm, Ask, State, committed, decide};
use tower_throttle::store::{Check, PolicyId};
use tower_throttle::{Clock as _, Decision, Limit, Micros, SECOND, StoreErrorKind};

use super::{Stage, assert_of_both_kinds};
use support::asking::{check_of, pending_answer_of};
use support::drawn::drawn;

pub(super) type Answered = Result<Vec<Decision>, StoreErrorKind>;

/// The key of a state.
#[derive(Clone)]
pub(super) struct Place {
    pub policy: PolicyId,
    pub subject: &'static str,
    pub limit: Limit,
}

#[derive(Clone)]
pub(super) struct States {
    places: Vec<Place>,
    states: Vec<State>,
}

/// A question: its states, whether each is in shadow, and what it takes of each.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub states: Vec<(usize, bool)>,
    pub cost: u64,
}

impl States {
    /// With nothing taken.
    pub(super) fn new(places: Vec<Place>) -> Self {
        let untouched = places
            .iter()
            .map(|place| algorithm(place.limit).untouched());
        Self {
            states: untouched.collect(),
            places,
        }
    }

    pub(super) fn checks(&self, question: &Question) -> Vec<Check<'_>> {
        let checks = question.states.iter().map(|&(state, is_shadow)| {
            let place = &self.places[state];
            let (policy, limit) = (&place.policy, place.limit);
            check(policy, place.subject, limit, question.cost, is_shadow)
        });
        checks.collect()
    }

    pub(super) fn ask(&mut self, question: &Question, now: Micros) -> Vec<Decision> {
        let Self { places, states } = self;
        let action = Action::consume(question.cost);
        let each = || question.states.iter();
        let algorithms: Vec<_> = each()
            .map(|(state, _)| algorithm(places[*state].limit))
            .collect();
        let asks = || {
            let asks = each().zip(&algorithms);
            asks.map(|((state, is_shadow), algorithm)| {
                let mut ask = Ask::enforced(algorithm, &action);
                ask.is_shadow = *is_shadow;
                ask.is_extra_rate = places[*state].policy.extra_rate().is_some();
                ask
            })
        };
        let readings = each().zip(&algorithms);
        let readings: Vec<_> = readings
            .map(|((state, _), algorithm)| algorithm.read(&states[*state], now, &action))
            .collect();
        let is_committed = committed(asks(), &readings);
        let takes = each().zip(&algorithms).zip(&readings).zip(is_committed);
        for ((((state, _), algorithm), reading), is_committed) in takes {
            if is_committed {
                algorithm.commit(&mut states[*state], now, &action, *reading);
            }
        }
        decide(asks(), &readings).to_vec()
    }
}

fn algorithm(limit: Limit) -> Algorithm {
    Algorithm::try_from(&limit).unwrap()
}

/// A take for good.
pub(super) fn check<'a>(
    policy: &'a PolicyId,
    subject: &str,
    limit: Limit,
    cost: u64,
    is_shadow: bool,
) -> Check<'a> {
    check_of(policy, subject, &limit, Action::consume(cost)).in_shadow(is_shadow)
}

pub(super) async fn answer(stage: &Stage, checks: &[Check<'_>]) -> Answered {
    let answer = pending_answer_of(&stage.store, checks);
    let answer = answer.await.map(|decisions| decisions.to_vec());
    answer.map_err(|error| error.kind())
}

pub(super) fn is_allowed(decisions: &[Decision]) -> bool {
    decisions.iter().all(Decision::is_allowed)
}

/// Four times 500 clients come together, and three takes of each are allowed. Returns the number of
/// scripts.
pub(super) async fn scripts_of_four_rounds(
    stage: &Stage,
    take_one_each: impl AsyncFn(&Stage, usize) -> Vec<Answered>,
) -> u64 {
    let scripts = stage.scripts();
    for round in 0..4 {
        for answer in take_one_each(stage, 500).await {
            assert_eq!(is_allowed(&answer.unwrap()), round < 3);
        }
    }
    stage.scripts() - scripts
}

/// The answers to some clients that may take three times each. On a server out of memory, the first
/// twenty have done so; once it has room again, the twenty others have taken nothing meanwhile.
pub(super) async fn answers_without_memory(
    stage: &Stage,
    take_one_each: impl AsyncFn(&Stage, usize) -> Vec<Answered>,
    meanwhile: impl AsyncFn(),
) -> [Vec<Vec<Decision>>; 2] {
    for _ in 0..3 {
        take_one_each(stage, 20).await;
    }
    stage.server.set_full(true);
    let scripts = stage.scripts();
    let mut denied = take_one_each(stage, 40).await;
    // As many as elsewhere: nobody is asked again for lack of memory.
    let scripts = stage.scripts() - scripts;
    assert!(scripts <= 20, "{scripts} scripts");
    for (position, answer) in denied.split_off(20).into_iter().enumerate() {
        assert_eq!(answer, Err(StoreErrorKind::Full), "{position}");
    }
    meanwhile().await;
    stage.server.set_full(false);
    let later = take_one_each(stage, 40).await.split_off(20);
    [denied, later].map(|answers| answers.into_iter().map(Result::unwrap).collect())
}

/// The answers to forty clients, one of whom asks about a key that holds something else: that one
/// fails alone, and the key is left as it is. Returns the answers to the others. On failure, the
/// message names what the key holds.
pub(super) async fn replies_beside_a_corrupt_key<T>(
    stage: &Stage,
    corrupt: &str,
    answers: impl Future<Output = Vec<Result<T, StoreErrorKind>>>,
    known_by: &str,
) -> Vec<T> {
    let held = || stage.server.query::<Vec<u8>>(("DUMP", corrupt));
    let before = held();
    let mut answers = answers.await;
    let failed = answers.remove(20).err();
    assert_eq!(failed, Some(StoreErrorKind::CorruptValue), "{known_by}");
    assert_eq!(held(), before, "{known_by}");
    let others = answers.into_iter();
    others
        .map(|answer| answer.unwrap_or_else(|kind| panic!("{known_by}: {kind:?}")))
        .collect()
}

/// Some of them, and whole runs of the same one.
pub(super) fn in_runs(
    question: impl Strategy<Value = Question>,
) -> impl Strategy<Value = Vec<Question>> {
    let runs = (question, prop_oneof![3 => Just(1_usize), 1 => 2..8_usize]);
    prop::collection::vec(runs, 1..80).prop_map(|runs| {
        let each = runs.into_iter();
        each.flat_map(|(question, times)| vec![question; times])
            .collect()
    })
}

/// At one instant those who come first are decided first, for all states that they share; and they
/// share scripts. Each case has its own states, with these limits of this many permits at once.
pub(super) async fn assert_in_order(
    stage: &Stage,
    limits: &[fn(u64) -> Limit],
    states: impl Fn(usize, &[Limit]) -> States,
    questions: impl Strategy<Value = Vec<Question>>,
) -> Asked {
    let scripts = stage.scripts();
    let (mut asked, mut denied, mut only_in_shadow) = (0, 0, 0);
    let bursts = prop::collection::vec(5_u64..60, limits.len());
    let rounds = prop::collection::vec(questions, 2);
    for (case, (bursts, rounds)) in drawn((bursts, rounds)).take(60).enumerate() {
        let limits = limits.iter().zip(bursts);
        let limits: Vec<_> = limits.map(|(limit, burst)| limit(burst)).collect();
        let mut states = states(case, &limits);
        for questions in rounds {
            // Tokio resumes a task that has done much later, and what it has begun in another
            // order.
            tokio::task::yield_now().await;
            let answers = questions.iter().map(|question| {
                let checks = states.checks(question);
                async move { answer(stage, &checks).await.unwrap() }
            });
            let answers = join_all(answers).await;
            for (question, answer) in questions.iter().zip(&answers) {
                let expected = states.ask(question, stage.clock.now());
                assert_eq!(*answer, expected, "{question:?}");
                let each = || question.states.iter().zip(answer);
                let mut of_enforced = each().filter(|((_, is_shadow), _)| !is_shadow);
                let is_let_in = of_enforced.all(|(_, decision)| decision.is_allowed());
                asked += 1;
                denied += usize::from(!is_let_in);
                only_in_shadow += usize::from(is_let_in && !is_allowed(answer));
            }
            stage.clock.advance(SECOND * 7 / 2);
        }
    }
    assert_of_both_kinds(asked, denied);
    let scripts = stage.scripts() - scripts;
    assert!(scripts < asked as u64 / 4, "{scripts} of {asked}");
    Asked {
        asked,
        only_in_shadow,
    }
}

/// How many questions were asked, and how many of them were allowed although something in shadow
/// denied them.
pub(super) struct Asked {
    asked: usize,
    only_in_shadow: usize,
}

impl Asked {
    pub(super) fn assert_some_denied_in_shadow_only(self) {
        assert!(
            self.only_in_shadow * 50 > self.asked,
            "{} of {}",
            self.only_in_shadow,
            self.asked
        );
    }
}

/// A limit whose whole state is one integer.
pub(super) const PLAIN: fn(u64) -> Limit = |burst| Limit::gcra(1, SECOND).burst(burst);
