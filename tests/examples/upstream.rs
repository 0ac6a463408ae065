//! The example `upstream` from outside: five processes over one Redis server.
#![cfg(feature = "redis")]

use std::process::Command;

use support::redis::Server;

/// How many orders the workers send together.
const ORDERS: usize = 60;
const WORKERS: usize = 4;
const RATE: u128 = 20;
const HOLD_US: u128 = 1_000_000;

/// When a line was printed, in microseconds, and what it tells.
fn told(line: &str) -> (u128, &str) {
    let (instant, told) = line.split_once(" s: ").unwrap();
    let (seconds, micros) = instant.split_once('.').unwrap();
    assert_eq!(micros.len(), 6, "{line}");
    (format!("{seconds}{micros}").parse().unwrap(), told)
}

#[test]
fn one_refusal_holds_all_four_processes_and_the_order_is_sent_again() {
    let redis = Server::start();
    let output = Command::new(support::example::program("upstream"))
        .env("REDIS_URL", redis.url())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let orders: Vec<_> = printed.lines().map(told).collect();
    // All of them, and the refused one once more.
    assert_eq!(orders.len(), ORDERS + 1, "{printed}");
    let is_refusal = |(_, told): &(u128, &str)| told.starts_with("refused");
    let refused = orders.iter().position(is_refusal).unwrap();
    assert_eq!(orders.iter().filter(|order| is_refusal(order)).count(), 1);

    let later: Vec<_> = orders[refused + 1..]
        .iter()
        .map(|(came, _)| came - orders[refused].0)
        .collect();
    let early = later.iter().filter(|after| **after < HOLD_US).count();
    // Of each other worker one, which it had sent already or sent within a round trip. In a second
    // without a hold there would be twenty.
    assert!(early < WORKERS, "{printed}");
    // Then no faster than the rate, although there are four at once otherwise. One more than that, as
    // Redis and the example use different clocks.
    for (count, after) in (1..).zip(&later[early..]) {
        let most = 2 + (after - HOLD_US) * RATE / 1_000_000;
        assert!(count <= most, "order {count} came too early\n{printed}");
    }
}
