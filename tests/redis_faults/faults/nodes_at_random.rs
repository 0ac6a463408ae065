//! A cluster whose nodes hang and resume at random: what is counted is what was decided, once.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tokio::time::timeout;
use tower_throttle::store::Action;
use tower_throttle::store::{PendingAnswer, PolicyId};
use tower_throttle::{DAY, FailureMode, Limit, MINUTE, RedisStore, SECOND};

use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;

const DEADLINE: Duration = Duration::from_millis(100);
/// For a question when all is well again.
const GENEROUS: Duration = Duration::from_secs(20);
const TASKS: usize = 16;
const SUBJECTS: usize = 12;
/// More than are asked for.
const PERMITS: u64 = 100_000;

/// One node after the other is stopped, or resumed if it is stopped; then this many milliseconds
/// pass.
type Signals = Vec<(usize, u64)>;

/// About one subject, or about two that may be on different nodes.
#[derive(Clone, Debug)]
struct Question {
    subjects: Vec<usize>,
    on_store_failure: FailureMode,
}

/// The permits of a subject.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Those that were allowed.
    least: u64,
    /// Including those that may have been counted without anybody knowing.
    most: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.least += other.least;
        self.most += other.most;
    }
}

type Counts = HashMap<usize, Count>;

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let subjects = prop::collection::btree_set(0..SUBJECTS, 1..=2);
    let subjects = subjects.prop_map(|subjects| subjects.into_iter().collect());
    let mode = prop::sample::select(vec![FailureMode::Allow, FailureMode::Deny]);
    let question = (subjects, mode).prop_map(|(subjects, on_store_failure)| Question {
        subjects,
        on_store_failure,
    });
    prop::collection::vec(question, 50)
}

fn signals() -> impl Strategy<Value = Signals> {
    prop::collection::vec((0..3_usize, 50..600_u64), 8)
}

fn ask(store: &RedisStore, limit: Limit, question: &Question, action: Action) -> PendingAnswer {
    let policy = PolicyId::new("api");
    let each = question.subjects.iter().map(|subject| {
        check_of(&policy, *subject as u64, &limit, action)
            .with_failure_mode(question.on_store_failure)
    });
    pending_answer_of(store, &each.collect::<Vec<_>>())
}

/// Asks one question after the other, again and again.
async fn ask_until(
    end: Instant,
    store: RedisStore,
    limit: Limit,
    questions: impl Iterator<Item = Question>,
) -> Counts {
    let mut counts = Counts::new();
    for question in questions {
        if Instant::now() > end {
            break;
        }
        let answer = timeout(DEADLINE, ask(&store, limit, &question, Action::consume(1))).await;
        for (position, subject) in question.subjects.iter().enumerate() {
            let is_allowed = match &answer {
                Ok(Ok(decisions)) => decisions[position].store_failure().is_none(),
                _ => false,
            };
            *counts.entry(*subject).or_default() += Count {
                least: u64::from(is_allowed),
                most: 1,
            };
        }
        if !matches!(answer, Ok(Ok(_))) {
            // Questions that fail at once must not be most of those asked.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    counts
}

/// Nobody asks any more, and all nodes run.
async fn used(store: &RedisStore, limit: Limit, subject: usize) -> u64 {
    let look = Question {
        subjects: vec![subject],
        on_store_failure: FailureMode::Deny,
    };
    let started = Instant::now();
    loop {
        match timeout(SECOND, ask(store, limit, &look, Action::look())).await {
            Ok(Ok(decisions)) => return PERMITS - decisions[0].remaining(),
            answer => assert!(started.elapsed() < GENEROUS, "{answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn come_and_go(limit: Limit, signals: Signals, questions: Vec<Question>) {
    let cluster = Cluster::without_full_coverage();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let length: u64 = signals.iter().map(|(_, pause)| pause).sum();
    let end = Instant::now() + Duration::from_millis(length);
    let questions = Arc::new(questions);
    let tasks = (0..TASKS).map(|task| {
        let questions = Arc::clone(&questions);
        let each = (task..).map(move |at| questions[at % questions.len()].clone());
        tokio::spawn(ask_until(end, store.clone(), limit, each))
    });
    let tasks: Vec<_> = tasks.collect();
    let mut is_stopped = [false; 3];
    for (node, pause) in signals {
        let signal = if is_stopped[node] { "CONT" } else { "STOP" };
        cluster.masters[node].signal(signal);
        is_stopped[node] = !is_stopped[node];
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    cluster.masters.iter().for_each(|node| node.signal("CONT"));
    let mut counts = Counts::new();
    for task in tasks {
        for (subject, count) in task.await.unwrap() {
            *counts.entry(subject).or_default() += count;
        }
    }
    for (subject, count) in counts {
        let taken = used(&store, limit, subject).await;
        let is_right = (count.least..=count.most).contains(&taken);
        assert!(is_right, "{subject}: {taken} taken of {count:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// With scripts of their own, and with those that share trips.
    #[test]
    fn the_server_counts_exactly_the_decisions_that_were_made(signals in signals(), questions in questions()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let by_window = Limit::fixed_window(PERMITS, DAY);
        // No permit comes back within a minute.
        let by_debt = Limit::gcra(1, MINUTE).burst(PERMITS);
        for limit in [by_window, by_debt] {
            let work = come_and_go(limit, signals.clone(), questions.clone());
            runtime.block_on(work);
        }
    }
}
