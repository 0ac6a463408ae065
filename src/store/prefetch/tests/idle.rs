//! What a runtime that is no longer driven has begun, seen by the other runtimes of its process.

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, sleep_until};

use super::fleet::{Fleet, ask, in_hand, settle};
use super::{DEADLINE, warm_up, windowed};
use crate::algorithm::Action;
use crate::time::SECOND;

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// Does some work on a runtime that is not driven afterwards, and starts the other one from that
/// instant.
fn left_by(idle: &Runtime, busy: &Runtime, work: impl Future<Output = ()>) {
    let left = idle.block_on(async {
        work.await;
        Instant::now()
    });
    busy.block_on(async { sleep_until(left).await });
}

#[test]
fn a_late_batch_of_a_stopped_runtime_is_given_back() {
    let (idle, busy) = (runtime(), runtime());
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = windowed();
    // The last of them asks for a batch and finishes before it has arrived.
    let mut used = 0;
    left_by(&idle, &busy, async {
        for _ in 0..20 {
            let _ = ask(&process, &subject, Action::acquire(1)).await.unwrap();
            used += 1;
        }
    });
    busy.block_on(async {
        sleep(2 * DEADLINE).await;
        warm_up(&process, &subject, 100).await;
        used += 100;
        assert!(in_hand(&process, &subject, 1).is_some());
        used += 1;
    });
    // The batch that was asked for first arrives and is given back.
    idle.block_on(settle());
    busy.block_on(async {
        sleep(SECOND).await;
        assert_eq!(fleet.look(&subject).remaining(), 10_000 - used);
    });
}

#[test]
fn batches_expire_on_each_runtime_they_arrive_on() {
    let (idle, busy) = (runtime(), runtime());
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = windowed();
    let others = subject.numbered(1);
    left_by(&idle, &busy, warm_up(&process, &others, 100));
    busy.block_on(async {
        warm_up(&process, &subject, 100).await;
        assert!(in_hand(&process, &subject, 1).is_some());
        sleep(SECOND).await;
        assert_eq!(fleet.look(&subject).remaining(), 10_000 - 101);
        assert_eq!(fleet.look(&others).remaining(), 10_000 - 100);
    });
}

/// Nobody tidies up here.
#[test]
fn permits_that_are_too_old_are_not_among_those_that_a_look_tells_of() {
    let (idle, busy) = (runtime(), runtime());
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = windowed();
    left_by(&idle, &busy, warm_up(&process, &subject, 100));
    busy.block_on(async {
        let look = async || ask(&process, &subject, Action::look()).await.unwrap();
        assert_eq!(look().await.remaining(), 10_000 - 100);
        let in_store = fleet.look(&subject).remaining();
        assert!(in_store < 10_000 - 100, "none held");
        sleep(SECOND).await;
        assert_eq!(look().await.remaining(), in_store);
    });
}

#[test]
fn a_batch_that_nobody_fetches_keeps_no_task_at_work() {
    let (idle, busy) = (runtime(), runtime());
    let (process, _) = Fleet::new().process();
    let subjects = [1, 2].map(|number| windowed().numbered(number));
    // The last of them asks for a batch and finishes before it has arrived.
    left_by(&idle, &busy, async {
        for _ in 0..20 {
            let _ = ask(&process, &subjects[0], Action::acquire(1))
                .await
                .unwrap();
        }
    });
    let maintained = || process.0.maintained_on.lock().unwrap().len();
    busy.block_on(async {
        warm_up(&process, &subjects[1], 100).await;
        assert_eq!(maintained(), 1);
        sleep(SECOND).await;
        assert_eq!(maintained(), 0);
    });
}

#[test]
fn a_runtime_is_looked_after_while_it_lives_and_any_permits_are_held() {
    let (first, second) = (runtime(), runtime());
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subjects = [1, 2].map(|number| windowed().numbered(number));
    let maintained = || process.0.maintained_on.lock().unwrap().len();
    left_by(&first, &second, warm_up(&process, &subjects[0], 100));
    assert_eq!(maintained(), 1);
    second.block_on(warm_up(&process, &subjects[1], 100));
    assert_eq!(maintained(), 2);
    drop(first);
    assert_eq!(maintained(), 1);
    for used in [100, 200] {
        second.block_on(async {
            sleep(SECOND).await;
            assert_eq!(maintained(), 0);
            assert_eq!(fleet.look(&subjects[1]).remaining(), 10_000 - used);
            warm_up(&process, &subjects[1], 100).await;
        });
        assert_eq!(maintained(), 1);
    }
}
