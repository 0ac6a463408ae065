//! A caller that gives up takes nothing from those who wait, and holds up nobody.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower_throttle::store::{PendingAnswer, PolicyId};
use tower_throttle::{DAY, Limit, RedisStore};

use super::model::check;
use super::{SLOW, Stage, allowed};
use support::asking::pending_answer_of;
use support::proxy::Way;

const LIMIT: Limit = Limit::gcra(100, DAY);

/// This many questions, asked in this order and not answered yet.
async fn asked(stage: &Stage, count: usize) -> Vec<PendingAnswer> {
    let mut asked = Vec::new();
    for _ in 0..count {
        let mut question = stage.question("api", LIMIT, 1);
        assert!(poll!(&mut question).is_pending());
        asked.push(question);
    }
    asked
}

async fn remaining(stage: &Stage) -> u64 {
    let decision = stage.take("api", LIMIT, 1).await.unwrap();
    decision.remaining() + 1
}

#[tokio::test]
async fn giving_up_while_waiting_for_a_trip_takes_nothing() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let mut asked = asked(&stage, 22).await;
    // The first is in flight.
    let given_up = asked.split_off(12);
    drop(given_up);
    let answers = join_all(asked).await;
    let decisions = answers.into_iter().map(|answer| answer.unwrap()[0]);
    assert_eq!(allowed(&decisions.collect::<Vec<_>>()), 12);
    assert_eq!(remaining(&stage).await, 88);
}

#[tokio::test]
async fn when_those_under_way_give_up_the_others_go() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let mut asked = asked(&stage, 22).await;
    let waiting = asked.split_off(1);
    drop(asked);
    let answers = join_all(waiting).await;
    let decisions = answers.into_iter().map(|answer| answer.unwrap()[0]);
    assert_eq!(allowed(&decisions.collect::<Vec<_>>()), 21);
    // Its callers will never know whether the one in flight was counted.
    assert!((78..=79).contains(&remaining(&stage).await));
}

#[tokio::test]
async fn when_all_give_up_the_key_is_asked_about_at_once_again() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    for _ in 0..20 {
        drop(asked(&stage, 22).await);
    }
    let scripts = stage.scripts();
    // Nothing that was abandoned keeps them waiting.
    let answers = join_all(asked(&stage, 3).await).await;
    assert!(answers.iter().all(Result::is_ok));
    assert!(stage.scripts() - scripts <= 40 + 3);
    assert!(remaining(&stage).await >= 97 - 40);
}

/// Nobody waits for ever for an abandoned trip.
#[tokio::test]
async fn a_trip_that_never_comes_back_ends_when_its_waiters_give_up() {
    let stage = Stage::start().await;
    stage.proxy.set(Way::Blackhole);
    let late = Duration::from_millis(50);
    for _ in 0..10 {
        let takes = (0..20).map(|_| timeout(late, stage.take("api", LIMIT, 1)));
        join_all(takes).await;
    }
    stage.proxy.set(Way::Pass);
    let answered =
        async { while !matches!(timeout(late, stage.take("api", LIMIT, 1)).await, Ok(Ok(_))) {} };
    let answered = timeout(Duration::from_secs(30), answered).await;
    assert!(answered.is_ok(), "the key was never answered again");
}

/// A proxy that swallows everything, and a store that lets a crowd wait for it.
async fn crowded() -> Stage {
    let stage = Stage::start().await;
    let store = RedisStore::builder(&stage.proxy.url()).max_in_flight(65_536);
    let store = store.connect().await.unwrap().without_deny_cache();
    stage.proxy.set(Way::Blackhole);
    Stage { store, ..stage }
}

/// Questions that wait for hundreds of trips, as few of them share one: each has many takes.
async fn crowd(stage: &Stage) -> Vec<PendingAnswer> {
    let names: Vec<_> = (0..16).map(|number| format!("policy-{number}")).collect();
    let policies: Vec<_> = names.iter().map(|name| PolicyId::new(name)).collect();
    let mut asked = Vec::new();
    for number in 0..20_000 {
        let subject = number.to_string();
        let checks = policies.iter();
        let checks = checks.map(|policy| check(policy, &subject, LIMIT, 1, false));
        let mut question = pending_answer_of(&stage.store, &checks.collect::<Vec<_>>());
        assert!(poll!(&mut question).is_pending());
        asked.push(question);
    }
    asked
}

#[tokio::test]
async fn a_crowd_that_gives_up_at_once_has_the_stack_of_one() {
    let stage = crowded().await;
    drop(crowd(&stage).await);
    stage.proxy.set(Way::Pass);
    assert!(answered_in_time(&stage, "api", LIMIT).await);
}

#[test]
fn a_crowd_whose_runtime_is_gone_has_the_stack_of_one() {
    let lasting = Runtime::new().unwrap();
    let stage = lasting.block_on(crowded());
    let ending = Runtime::new().unwrap();
    let mut waiting = ending.block_on(crowd(&stage));
    drop(ending);
    let in_flight_work = waiting.drain(..2);
    drop(in_flight_work);
    stage.proxy.set(Way::Pass);
    assert!(lasting.block_on(answered_in_time(&stage, "api", LIMIT)));
}

/// As in a `select!` or a stream: nobody sees that its trip is back.
#[tokio::test]
async fn a_question_that_is_not_polled_any_more_holds_up_nobody() {
    let stage = Stage::impatient().await;
    // As many trips as may be in flight, of one key and of several, plain and others.
    for (policy, limit) in [
        ("plain", LIMIT),
        ("any", Limit::fixed_window(100, DAY)),
        ("fraction", Limit::gcra(70_000, DAY).burst(100)),
    ] {
        let mut kept = Vec::new();
        for number in 0..3 {
            let mut question = stage.question(&format!("{policy}{number}"), limit, 1);
            assert!(poll!(&mut question).is_pending());
            kept.push(question);
        }
        for number in 0..3 {
            let policy = format!("{policy}{number}");
            let takes = (0..3).map(|_| stage.take(&policy, limit, 1));
            let answers = timeout(Duration::from_secs(30), join_all(takes)).await;
            let answers = answers.unwrap_or_else(|_| panic!("{policy}: waits for who is not back"));
            let decisions: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
            assert_eq!(allowed(&decisions), 3);
        }
        for question in kept {
            assert_eq!(allowed(&[question.await.unwrap()[0]]), 1);
        }
        for number in 0..3 {
            let policy = format!("{policy}{number}");
            let decision = stage.take(&policy, limit, 1).await.unwrap();
            assert_eq!(decision.remaining(), 95);
        }
    }
}

/// Asks one question after the other until one is answered in time.
async fn answered_in_time(stage: &Stage, policy: &str, limit: Limit) -> bool {
    let late = Duration::from_millis(50);
    let answered =
        async { while !matches!(timeout(late, stage.take(policy, limit, 1)).await, Ok(Ok(_))) {} };
    timeout(Duration::from_secs(30), answered).await.is_ok()
}

/// The reply is lost, and one of those who share the trip waits for it all the same.
#[tokio::test]
async fn longer_deadlines_in_a_batch_do_not_delay_others() {
    for (policy, limit) in [("plain", LIMIT), ("any", Limit::fixed_window(100, DAY))] {
        let stage = Stage::impatient().await;
        stage.proxy.set(Way::DropReplies);
        let commands = stage.proxy.commands();
        let ask = |policy| stage.question(policy, limit, 1);
        let mut in_flight_work = ["one", "two", policy].map(ask);
        for question in &mut in_flight_work {
            assert!(poll!(question).is_pending());
        }
        let patient = ["one", "two", policy].map(|policy| tokio::spawn(ask(policy)));
        // They go together once those who went alone are left behind.
        while stage.proxy.commands() < commands + 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(in_flight_work);
        stage.proxy.set(Way::Pass);
        assert!(answered_in_time(&stage, policy, limit).await, "{policy}");
        patient.iter().for_each(JoinHandle::abort);
    }
}

/// A runtime that runs only while somebody blocks on it, as one beside a service for other work.
#[tokio::test]
async fn a_runtime_that_nobody_drives_any_more_holds_up_nobody() {
    for (policy, limit) in [("plain", LIMIT), ("any", Limit::fixed_window(100, DAY))] {
        let stage = Stage::impatient().await;
        stage.proxy.set(SLOW);
        let idle = Builder::new_current_thread().enable_all().build().unwrap();
        // One of them is about the same key.
        let mut in_flight_work = ["one", policy].map(|policy| stage.question(policy, limit, 1));
        for question in &mut in_flight_work {
            assert!(poll!(question).is_pending());
        }
        let mut waiting = stage.question(policy, limit, 1);
        assert!(poll!(&mut waiting).is_pending());
        // This runtime notices that they are over.
        let blocking = idle.enter();
        drop(in_flight_work);
        drop(blocking);
        let answer = timeout(Duration::from_secs(5), waiting).await;
        let answer = answer.expect("waits for the runtime").unwrap();
        assert_eq!(allowed(&[answer[0]]), 1, "{policy}");
        idle.shutdown_background();
    }
}

/// Also if a shared trip ran there, whatever becomes of the first waiter.
#[test]
fn a_runtime_that_nobody_drives_holds_up_no_waiter_on_another() {
    let driven = || Builder::new_current_thread().enable_all().build().unwrap();
    for (policy, limit, gives_up) in [
        ("plain", LIMIT, true),
        ("plain", LIMIT, false),
        ("any", Limit::fixed_window(100, DAY), true),
        ("any", Limit::fixed_window(100, DAY), false),
    ] {
        let lasting = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let stage = lasting.block_on(Stage::impatient());
        stage.proxy.set(SLOW);
        let (idle, busy) = (driven(), driven());
        let ask = |policy| stage.question(policy, limit, 1);
        // One of them waits for another about its key, and leaves both behind.
        let mut in_flight_work = ["one", policy, policy].map(ask);
        idle.block_on(async {
            for question in &mut in_flight_work {
                assert!(poll!(&mut *question).is_pending());
            }
            let waiting = in_flight_work.last_mut().unwrap();
            let given_up = timeout(Duration::from_millis(50), waiting).await;
            assert!(given_up.is_err(), "{policy}");
        });
        busy.block_on(async {
            let mut first = ask(policy);
            assert!(poll!(&mut first).is_pending());
            let mut second = ask(policy);
            assert!(poll!(&mut second).is_pending());
            // Otherwise it exists but is no longer polled.
            let kept = (!gives_up).then_some(first);
            let answer = timeout(Duration::from_secs(5), second).await;
            let answer = answer.unwrap_or_else(|_| panic!("{policy}: nobody sees to it"));
            assert_eq!(allowed(&[answer.unwrap()[0]]), 1);
            drop(kept);
        });
    }
}

/// Those who wait on another one go on.
#[test]
fn a_runtime_that_ends_leaves_no_key_busy() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let lasting = runtime();
    let stage = lasting.block_on(Stage::start());
    stage.proxy.set(SLOW);
    let ending = runtime();
    let asked = ending.block_on(asked(&stage, 10));
    ending.spawn(join_all(asked));
    ending.shutdown_background();
    let decisions = lasting.block_on(stage.take_all("api", LIMIT, &[1; 10]));
    assert_eq!(allowed(&decisions), 10);
}

#[test]
fn giving_up_outside_of_any_runtime_leaves_no_key_busy() {
    let runtime = Runtime::new().unwrap();
    let stage = runtime.block_on(Stage::start());
    stage.proxy.set(SLOW);
    let mut waiting = runtime.block_on(asked(&stage, 10));
    let in_flight_work = waiting.remove(0);
    drop(in_flight_work);
    let answers = async { timeout(Duration::from_secs(30), join_all(waiting)).await };
    let answers = runtime.block_on(answers).expect("the key is still busy");
    assert!(answers.iter().all(Result::is_ok));
}
