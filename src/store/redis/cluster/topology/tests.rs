use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use redis::{IntoConnectionInfo, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::super::{Cluster, RECOVERY_ROUND};
use super::*;

fn topology_of(seeds: Vec<ConnectionInfo>) -> Topology {
    topology_on(&Handle::current(), seeds)
}

fn topology_on(home: &Handle, seeds: Vec<ConnectionInfo>) -> Topology {
    Topology::new(seeds, Handshake::default(), Prefix::default(), home)
}

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
fn asking_for_a_slot_map_on_a_runtime_that_is_gone_ends() {
    let gone = gone();
    let topology = Arc::new(topology_on(&gone, Vec::new()));
    for _ in 0..2 {
        let (topology, gone) = (Arc::clone(&topology), gone.clone());
        let failure = in_time(move || gone.block_on(topology.slots()).map(drop).unwrap_err());
        assert_eq!(failure.kind(), StoreErrorKind::Unreachable);
    }
    in_time(move || gone.block_on(topology.refreshed()));
}

#[tokio::test(start_paused = true)]
async fn the_slot_map_is_read_again_after_the_pause_of_a_failure() {
    let topology = Arc::new(topology_of(Vec::new()));
    for attempts in [1, 2] {
        for _ in 0..3 {
            assert!(topology.slots().await.is_err());
            assert_eq!(topology.attempts.load(Ordering::Relaxed), attempts);
        }
        tokio::time::advance(REFRESH_PAUSE).await;
    }
}

/// Ends an attempt in which this node says that these masters have a slot each.
fn learn(topology: &Arc<Topology>, masters: &[&Node], answered_by: &Node) {
    let text = |text: &str| Value::BulkString(text.into());
    let ranges = masters.iter().zip(0..).map(|(master, slot)| {
        let port = master.port.into();
        let master = Value::Array(vec![text(&master.host), Value::Int(port), text("its id")]);
        Value::Array(vec![Value::Int(slot), Value::Int(slot), master])
    });
    let slots = SlotMap::read(&Value::Array(ranges.collect()), answered_by).unwrap();
    attempt::Attempt(Arc::clone(topology)).learn(Ok((slots, answered_by.clone())));
}

/// Otherwise all nodes that a cluster ever had would keep their connections.
#[tokio::test]
async fn a_node_that_left_is_dropped_once_nobody_is_redirected_to_it() {
    let [a, b, c, seed] = [1, 2, 3, 4].map(|port| Node::new("127.0.0.1", port));
    let login = "redis://127.0.0.1:4".into_connection_info().unwrap();
    let topology = Arc::new(topology_of(vec![login]));
    let has_connections = |nodes: [&Node; 4]| {
        let connections = topology.connections.lock().unwrap();
        nodes.map(|node| connections.known.contains_key(node))
    };
    // The first node that is asked is not kept unless it is a master.
    topology.connection_for(&seed, false).unwrap();
    learn(&topology, &[&a, &b], &seed);
    assert_eq!(has_connections([&a, &b, &c, &seed]), [false; 4]);
    for node in [&a, &b, &seed] {
        topology.connection(node).unwrap();
    }
    learn(&topology, &[&a, &c], &seed);
    assert_eq!(
        has_connections([&a, &b, &c, &seed]),
        [true, true, false, true]
    );
    // A question may have been redirected to any of them.
    learn(&topology, &[&b, &c], &c);
    assert_eq!(
        has_connections([&a, &b, &c, &seed]),
        [true, true, false, true]
    );
    topology.connection(&a).unwrap();
    learn(&topology, &[&b, &c], &c);
    assert_eq!(
        has_connections([&a, &b, &c, &seed]),
        [true, true, false, false]
    );
    learn(&topology, &[&b, &c], &c);
    assert_eq!(
        has_connections([&a, &b, &c, &seed]),
        [false, true, false, false]
    );
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
    let topology = Arc::new(topology_of(vec![login]));
    learn(&topology, &masters.iter().collect::<Vec<_>>(), &masters[0]);
    topology.view.send_modify(|view| view.last = None);
    topology.refresh();
    let asked = timeout(Duration::from_secs(8), seed.accept()).await;
    assert!(asked.is_ok(), "the masters have all the time");
}

/// A listener that accepts nothing by itself, and the node at its address.
async fn listening() -> (TcpListener, Node) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, Node::new("127.0.0.1", port))
}

/// A cluster of these masters, with this node in the URL.
fn cluster_of(masters: &[&Node], seed: &Node) -> Cluster {
    let login = format!("redis://{seed}");
    let login = login.as_str().into_connection_info().unwrap();
    let topology = Arc::new(topology_of(vec![login]));
    learn(&topology, masters, masters[0]);
    topology.view.send_modify(|view| view.last = None);
    Cluster(topology)
}

/// They may be at other addresses by then.
#[tokio::test]
async fn whoever_waits_for_masters_that_are_gone_asks_who_they_are_now() {
    let (listener, gone) = listening().await;
    drop(listener);
    let (listener, seed) = listening().await;
    tokio::spawn(cluster_of(&[&gone], &seed).recovered(REFRESH_PAUSE));
    let asked = timeout(Duration::from_secs(8), listener.accept()).await;
    assert!(asked.is_ok(), "nobody asks");
}

#[tokio::test]
async fn the_other_masters_are_waited_for_once_one_has_recovered() {
    let (listener, answers) = listening().await;
    let (_kept, hangs) = listening().await;
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut read = vec![0; 1 << 16];
        while let Ok(length @ 1..) = connection.read(&mut read).await {
            let commands = read[..length].iter().filter(|&&byte| byte == b'*');
            let oks = b"+OK\r\n".repeat(commands.count());
            connection.write_all(&oks).await.unwrap();
        }
    });
    let cluster = cluster_of(&[&answers, &hangs], &hangs);
    let waits = Instant::now();
    let recovered = cluster.recovered(Duration::from_secs(60));
    let recovered = timeout(Duration::from_secs(60), recovered).await;
    assert!(recovered.is_ok(), "one of them has");
    assert!(waits.elapsed() >= RECOVERY_ROUND);
}
