//! The example `fleet` from outside: five processes over one Redis server.
#![cfg(feature = "redis")]

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use support::redis::Server;

/// What all workers together may send: this many at once, and this many each second.
const CAPACITY: u128 = 1;
const RATE: u128 = 20;

/// The example's output. It runs once for all tests.
fn printed() -> &'static str {
    static PRINTED: OnceLock<String> = OnceLock::new();
    PRINTED.get_or_init(run)
}

fn run() -> String {
    let redis = Server::start();
    let output = Command::new(support::example::program("fleet"))
        .env("REDIS_URL", redis.url())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    printed
}

/// When an order arrived, in microseconds since the fleet began to send, and from which worker.
fn order(line: &str) -> Option<(u128, &str)> {
    let (instant, worker) = line.split_once(" s: an order from worker ")?;
    let (seconds, micros) = instant.split_once('.')?;
    assert_eq!(micros.len(), 6, "{line}");
    Some((format!("{seconds}{micros}").parse().unwrap(), worker))
}

#[test]
fn the_fleet_sends_at_its_rate_however_many_processes_it_has() {
    let printed = printed();
    let orders: Vec<_> = printed.lines().filter_map(order).collect();
    let workers: BTreeSet<_> = orders.iter().map(|(_, worker)| *worker).collect();
    assert_eq!(workers, BTreeSet::from(["1", "2", "3", "4"]), "{printed}");
    // An order may be late, but never arrives before it was allowed. One more than that, as Redis
    // and the example use different clocks.
    for (count, (came, _)) in (1..).zip(&orders) {
        assert!(
            count * 1_000_000 <= (CAPACITY + 1) * 1_000_000 + RATE * came,
            "order {count} came too early\n{printed}"
        );
    }
}

#[test]
fn it_ends_with_how_many_came_in_each_second() {
    let printed = printed();
    let orders: Vec<_> = printed.lines().filter_map(order).collect();
    let told: Vec<_> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("second ")?.strip_suffix(" orders"))
        .map(|line| line.split_once(": ").unwrap())
        .collect();
    for (second, (number, count)) in (0..).zip(&told) {
        let came = orders.iter().filter(|(came, _)| came / 1_000_000 == second);
        assert_eq!(*number, (second + 1).to_string());
        assert_eq!(*count, came.count().to_string(), "{printed}");
    }
    let all = format!(
        "{} orders, by a fleet that may send {RATE} a second",
        orders.len()
    );
    assert_eq!(printed.lines().last(), Some(&*all));
}
