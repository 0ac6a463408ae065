//! What is logged of what operators change: from what to what.

use tower_throttle::{AccessList, AlwaysAllow, Key, Limiter, Mode, Percent};
use tracing::Level;

use crate::tracing::one_a_minute;
use support::log::Log;

/// The events, each as its level and what it says of `from` and `to`.
fn changes(log: &Log) -> Vec<(Level, String, String)> {
    let events = log.events().into_iter();
    let change = |event: support::log::Entry| {
        let [from, to] = ["from", "to"].map(|name| event.field(name).to_owned());
        (event.level, from, to)
    };
    events.map(change).collect()
}

fn info(from: &str, to: &str) -> (Level, String, String) {
    (Level::INFO, from.to_owned(), to.to_owned())
}

#[test]
fn a_change_is_logged_once_with_what_was_before() {
    let (log, _listening) = Log::listen();
    let limiter = Limiter::new(AlwaysAllow, [one_a_minute("api")]).unwrap();
    assert_eq!(changes(&log), []);
    for _ in 0..2 {
        limiter.set_mode("api", Mode::Shadow).unwrap();
        limiter.turn_off();
    }
    limiter.turn_on();
    for _ in 0..2 {
        let half = Percent::new(50).unwrap();
        limiter.set_enforced_for("api", half).unwrap();
    }
    let keys = |users: &[&str]| AccessList::new().keys(users.iter().map(|user| Key::user(*user)));
    limiter.set_denied(keys(&["mallory", "trudy"]));
    limiter.set_denied(keys(&["mallory"]));
    limiter.set_allowed(AccessList::new());
    assert_eq!(
        changes(&log),
        [
            info("enforce", "shadow"),
            info("on", "off"),
            info("off", "on"),
            info("100%", "50%"),
            info("0", "2"),
            info("2", "1"),
            info("0", "0"),
        ]
    );
    for (nth, message) in [(0, "policy mode changed"), (3, "share of a policy changed")] {
        let event = &log.events()[nth];
        assert_eq!(event.name, message);
        assert_eq!(event.field("policy"), "api");
    }
}
