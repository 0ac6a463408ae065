use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use redis::{IntoConnectionInfo, Value};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::*;

/// A runtime on which everything that starts ends at once.
fn gone() -> Handle {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.handle().clone()
}

/// The result, which must come without a wait.
fn in_time<T: Send + 'static>(waits: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || ended.send(waits()));
    let answer = has_ended.recv_timeout(Duration::from_secs(10));
    answer.expect("it waits for what never comes")
}

#[test]
fn asking_for_the_first_slot_map_on_a_runtime_that_is_gone_fails() {
    let topology = Arc::new(Topology::new(Vec::new()));
    for _ in 0..2 {
        let topology = Arc::clone(&topology);
        let failure = in_time(move || gone().block_on(topology.slots()).map(drop).unwrap_err());
        assert_eq!(failure.kind(), StoreErrorKind::Unreachable);
    }
}

#[test]
fn asking_for_another_slot_map_on_a_runtime_that_is_gone_returns() {
    let topology = Arc::new(Topology::new(Vec::new()));
    in_time(move || gone().block_on(topology.refreshed()));
}

#[tokio::test(start_paused = true)]
async fn the_slot_map_is_read_again_once_the_pause_after_a_failed_attempt_is_over() {
    let topology = Arc::new(Topology::new(Vec::new()));
    for attempts in [1, 2] {
        for _ in 0..3 {
            assert!(topology.slots().await.is_err());
            assert_eq!(topology.attempts.load(Ordering::Relaxed), attempts);
        }
        tokio::time::advance(REFRESH_PAUSE).await;
    }
}

/// Ends an attempt in which this node says that these masters have a slot each.
fn learn(topology: &Arc<Topology>, masters: &[&Node], teller: &Node) {
    let text = |text: &str| Value::BulkString(text.into());
    let ranges = masters.iter().zip(0..).map(|(master, slot)| {
        let port = master.port.into();
        let master = Value::Array(vec![text(&master.host), Value::Int(port), text("its id")]);
        Value::Array(vec![Value::Int(slot), Value::Int(slot), master])
    });
    let slots = SlotMap::read(&Value::Array(ranges.collect()), teller).unwrap();
    let claim = Claim::until(Instant::now() + TURN);
    topology.view.send_modify(|view| view.attempt = Some(claim));
    let attempt = Attempt {
        topology: Arc::clone(topology),
        number: claim.number(),
    };
    attempt.learn(Ok((slots, teller.clone())));
}

/// Otherwise all nodes that a cluster ever had would keep their lanes.
#[test]
fn a_node_that_a_master_knows_of_no_more_has_no_lane_once_nobody_is_redirected_to_it() {
    let [a, b, c, seed] = [1, 2, 3, 4].map(|port| Node::new("127.0.0.1", port));
    let login = "redis://127.0.0.1:4".into_connection_info().unwrap();
    let topology = Arc::new(Topology::new(vec![login]));
    let has_lanes = |nodes: [&Node; 4]| {
        let lanes = topology.lanes.lock().unwrap();
        nodes.map(|node| lanes.contains_key(node))
    };
    learn(&topology, &[&a, &b], &a);
    for node in [&a, &b, &seed] {
        topology.lane(node).unwrap();
    }
    learn(&topology, &[&a, &c], &seed);
    assert_eq!(has_lanes([&a, &b, &c, &seed]), [true, true, false, true]);
    // A question may have been redirected to any of them.
    learn(&topology, &[&b, &c], &c);
    assert_eq!(has_lanes([&a, &b, &c, &seed]), [true, true, false, true]);
    learn(&topology, &[&b, &c], &c);
    assert_eq!(has_lanes([&a, &b, &c, &seed]), [false, true, false, false]);
}

/// As after all nodes of a large cluster were moved to other addresses, which their names tell.
#[tokio::test]
async fn the_nodes_of_the_url_are_asked_soon_however_many_masters_hang() {
    let listener = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let node_at =
        |at: &std::net::TcpListener| Node::new("127.0.0.1", at.local_addr().unwrap().port());
    // They accept connections, and never answer.
    let hung: Vec<_> = (0..32).map(|_| listener()).collect();
    let masters: Vec<_> = hung.iter().map(node_at).collect();
    let seed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let login = format!("redis://{}", seed.local_addr().unwrap());
    let login = login.as_str().into_connection_info().unwrap();
    let topology = Arc::new(Topology::new(vec![login]));
    learn(&topology, &masters.iter().collect::<Vec<_>>(), &masters[0]);
    topology.view.send_modify(|view| view.last = None);
    assert!(topology.refresh());
    let asked = timeout(Duration::from_secs(8), seed.accept()).await;
    assert!(asked.is_ok(), "the masters have all the time");
}
