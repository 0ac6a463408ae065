//! `timeout`: how long a decision waits for the store.

use std::net::TcpListener;
use std::time::Duration;

use tower_throttle::StoreErrorKind;

use super::{read, with_policy};
use support::virtual_time::{ms, timed};

/// How long a decision takes with this line in the file, over a server that never answers.
async fn decided_after(line: &str) -> Duration {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let policy = "name = \"client\"\nalgorithm = \"gcra\"\nlimit = \"100/min\"\nkey = \"user\"";
    let file = with_policy(policy).replacen("\"memory\"", &format!("{url:?}\n{line}"), 1);
    let limiter = read(&file).connect_lazy().unwrap();
    let (decision, elapsed) = timed(limiter.check("client", "alice")).await;
    let failure = decision.unwrap().store_failure();
    assert_eq!(failure, Some(StoreErrorKind::TimedOut));
    elapsed
}

#[tokio::test(start_paused = true)]
async fn a_decision_has_the_time_that_the_file_says_or_else_50_ms() {
    assert_eq!(decided_after("").await, ms(50));
    assert_eq!(decided_after("timeout = \"1ms\"").await, ms(1));
    assert_eq!(decided_after("timeout = \"300ms\"").await, ms(300));
}
