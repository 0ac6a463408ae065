//! Many at once on one key: processes, tasks, and a server that forgets its scripts meanwhile.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use support::redis::{Process, Server};
use tower_throttle::{
    DAY, Limit, Limiter, ManualClock, Outcome, Policy, RedisStore, RedisStoreBuilder, SECOND,
};

const PROCESSES: usize = 4;
const TASKS: usize = 64;
const ATTEMPTS: usize = 10;
/// Fewer than all attempts, and unrelated to the number of processes or tasks.
const LIMIT: u64 = 997;
const WORKER_URL: &str = "TOWER_THROTTLE_TEST_WORKER_URL";

/// No permit comes back while the test runs, however slow the machine is.
fn policies() -> [Policy; 3] {
    [
        Policy::new("gcra", Limit::gcra(10, 366 * DAY).burst(LIMIT)),
        Policy::new("fixed_window", Limit::fixed_window(LIMIT, 366 * DAY)),
        Policy::new("sliding_log", Limit::sliding_log(LIMIT, 366 * DAY)),
    ]
}

fn limiter(store: RedisStore) -> Limiter {
    let builder = Limiter::builder(store, policies());
    builder.timeout(60 * SECOND).build().unwrap()
}

#[test]
fn four_processes_with_64_tasks_each_admit_exactly_the_limit() {
    let server = Server::start();
    let workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "load::worker", "--ignored", "--nocapture"])
                .env(WORKER_URL, server.url());
            Process::spawn(command.stdout(Stdio::piped()))
        })
        .collect();
    let mut admitted = [0; 3];
    for mut worker in workers {
        let mut output = String::new();
        let mut stdout = worker.stdout.take().unwrap();
        stdout.read_to_string(&mut output).unwrap();
        assert!(worker.wait().unwrap().success(), "{output}");
        let line = output
            .lines()
            .find_map(|line| line.split("admitted ").nth(1));
        for (sum, count) in admitted.iter_mut().zip(line.unwrap().split(' ')) {
            *sum += count.parse::<u64>().unwrap();
        }
    }
    assert_eq!(admitted, [LIMIT; 3]);
}

/// One of the processes of the test above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of four_processes_with_64_tasks_each_admit_exactly_the_limit"]
async fn worker() {
    let url = std::env::var(WORKER_URL).expect("started by the test above");
    let limiter = limiter(RedisStore::connect(&url).await.unwrap());
    let mut admitted = Vec::new();
    for name in ["gcra", "fixed_window", "sliding_log"] {
        admitted.push(admitted_by_tasks(&limiter, name).await.to_string());
    }
    println!("admitted {}", admitted.join(" "));
}

async fn admitted_by_tasks(limiter: &Limiter, policy: &'static str) -> usize {
    let tasks = (0..TASKS).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..ATTEMPTS {
                let decision = limiter.check(policy, "one key").await.unwrap();
                assert_eq!(decision.store_failure(), None);
                admitted += usize::from(decision.is_allowed());
            }
            admitted
        })
    });
    let admitted = join_all(tasks).await;
    admitted.into_iter().map(|task| task.unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_flush_under_load_makes_no_error_and_no_double_count() {
    let server = Server::start();
    let store = server.builder().clock_for_tests(ManualClock::new());
    let limiter = limiter(store.connect().await.unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let flusher = {
        let (over, url) = (Arc::clone(&over), server.url());
        std::thread::spawn(move || {
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            let mut flushes = 0;
            while !over.load(Ordering::Relaxed) {
                let mut flush = redis::cmd("SCRIPT");
                flush.arg("FLUSH");
                flush.query::<()>(&mut connection).unwrap();
                flushes += 1;
            }
            flushes
        })
    };
    for name in ["gcra", "fixed_window", "sliding_log"] {
        let admitted = admitted_by_tasks(&limiter, name).await;
        assert_eq!(admitted, TASKS * ATTEMPTS, "{name}");
        let left = limiter.peek(name, "one key").await.unwrap().remaining();
        assert_eq!(left as usize, LIMIT as usize - TASKS * ATTEMPTS, "{name}");
    }
    over.store(true, Ordering::Relaxed);
    assert!(flusher.join().unwrap() > 0);
    assert!(
        server.calls("eval") > 3,
        "scripts were forgotten and sent again"
    );
}

/// With the default number of places, and with a given one.
#[tokio::test]
async fn beyond_the_places_for_questions_one_more_fails_at_once() {
    for (places, builder) in [
        (
            1_024,
            (|builder| builder) as fn(RedisStoreBuilder) -> RedisStoreBuilder,
        ),
        (100, |builder| builder.max_in_flight(100)),
    ] {
        let server = Server::start();
        let store = builder(server.builder()).connect().await.unwrap();
        let limiter = limiter(store);
        let _ = limiter.check("gcra", "warm").await.unwrap();
        server.signal("STOP");
        let asked: Vec<_> = (0..1_500)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check("gcra", "key").await.unwrap() })
            })
            .collect();
        // Each task runs until it waits; those without a place are done by then.
        while asked.iter().filter(|task| task.is_finished()).count() < 1_500 - places {
            tokio::task::yield_now().await;
        }
        server.signal("CONT");
        let decisions = join_all(asked).await.into_iter().map(Result::unwrap);
        let outcomes: Vec<_> = decisions.map(|decision| decision.outcome()).collect();
        let count = |outcome| outcomes.iter().filter(|found| **found == outcome).count();
        let overloaded = Outcome::FailedOpen(tower_throttle::StoreErrorKind::Overloaded);
        assert_eq!(count(overloaded), 1_500 - places);
        assert_eq!(count(Outcome::Allowed), places.min(LIMIT as usize));
        let again = limiter.check("fixed_window", "key").await.unwrap();
        assert_eq!(again.outcome(), Outcome::Allowed, "places are given back");
    }
}
