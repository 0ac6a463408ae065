use std::sync::mpsc;
use std::thread;

use tokio::runtime::Builder;

use super::*;

/// Where what is begun is ended at once.
fn gone() -> Handle {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.handle().clone()
}

/// What this says, which is to come without any wait.
fn in_time<T: Send + 'static>(waits: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || ended.send(waits()));
    let answer = has_ended.recv_timeout(Duration::from_secs(10));
    answer.expect("it waits for what never comes")
}

#[test]
fn who_asks_for_the_first_slot_map_on_a_runtime_that_is_gone_is_told_that_there_is_none() {
    let topology = Arc::new(Topology::new(Vec::new()));
    for _ in 0..2 {
        let topology = Arc::clone(&topology);
        let failure = in_time(move || gone().block_on(topology.slots()).map(drop).unwrap_err());
        assert_eq!(failure.kind(), StoreErrorKind::Unreachable);
    }
}

#[test]
fn who_asks_for_another_slot_map_on_a_runtime_that_is_gone_goes_on_without() {
    let topology = Arc::new(Topology::new(Vec::new()));
    in_time(move || gone().block_on(topology.refreshed()));
}
