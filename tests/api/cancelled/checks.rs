//! Outside HTTP: futures that are dropped at any point.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_throttle::{Key, Limiter};

use super::left::{Before, limiter, looked_at, pause, unpause};
use support::redis::Server;

const ROUNDS: usize = 10;
/// Fewer than may be in flight at once, so that each is sent.
const EACH: usize = 1_000;

/// After a silence of this length, a connection on which questions were given up is taken for dead.
const LONG: Duration = Duration::from_millis(600);

/// One question, dropped sooner or later.
async fn ask(limiter: Limiter, number: usize) -> bool {
    let (key, times) = (number as u64, number * 31 % 97);
    match number % 3 {
        0 => looked_at(times, limiter.check("rate", key)).await,
        1 => looked_at(times, limiter.admit("places", key)).await,
        _ => looked_at(times, limiter.acquire("waiting", Key::everybody(), 1)).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_questions_dropped_anywhere_leave_nothing() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let before = Before::now(&server, &limiter).await;
    let mut done = 0;
    for round in 0..ROUNDS {
        let is_paused = round % 2 == 0;
        if is_paused {
            pause(&server);
        }
        let mut asked = JoinSet::new();
        for number in round * EACH..(round + 1) * EACH {
            asked.spawn(ask(limiter.clone(), number));
        }
        let are_done = asked.join_all().await;
        done += are_done.into_iter().filter(|is_done| *is_done).count();
        if round == 0 {
            tokio::time::sleep(LONG).await;
        }
        if is_paused {
            unpause(&server);
        }
    }
    assert!(0 < done && done < ROUNDS * EACH, "{done} had an answer");
    before.comes_back(&server, &limiter).await;
}
