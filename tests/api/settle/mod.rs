//! Costs that the response decides: over real sockets, on every store.

use tower_throttle::{Key, Limit, Policy, RequestHead, ResponseHead};

mod costs;
mod crowd;
mod held_up;
mod in_turn;
mod late;
mod replaced;
mod unsettled;

fn alice(_: &RequestHead<'_>) -> Option<Key> {
    Some(Key::from("alice"))
}

fn is_unauthorized(response: &ResponseHead<'_>) -> bool {
    response.status == 401
}

/// The cost that the service reports.
fn stated(response: &ResponseHead<'_>) -> u64 {
    let cost = response.headers["x-cost"].to_str().expect("a text");
    cost.parse().expect("a number")
}

/// One policy, `rows`, that estimates a cost of five and settles it by the service's report.
fn rows(limit: Limit) -> Policy {
    rows_named("rows", limit)
}

fn rows_named(name: &str, limit: Limit) -> Policy {
    Policy::new(name, limit).by(alice).cost(5).settle(stated)
}

async fn status(url: String) -> u16 {
    let response = reqwest::get(url).await.expect("a response");
    response.status().as_u16()
}
