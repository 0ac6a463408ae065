//! The span of a round trip to the store, and what is logged within it.

use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{Limit, Limiter, MINUTE, Policy};
use tracing::Level;

use crate::tracing::{from, one_a_minute, send};
use support::http_store::{TestStore, Trip};
use support::log::Log;

#[tokio::test]
async fn a_trip_to_the_store_is_a_span_that_says_how_it_came_out() {
    let (log, _listening) = Log::listen();
    let policies = [
        one_a_minute("user"),
        Policy::new("all", Limit::gcra(10, MINUTE)),
    ];
    let limiter = Limiter::new(TestStore::new(Trip::Short), policies).unwrap();
    for (status, allowed) in [(200, "true"), (429, "false")] {
        assert_eq!(
            send(&limiter, from(None, &[("x-user", "alice")])).await,
            status
        );
        let spans = log.entries();
        let mut spans = spans.iter().rev().filter(|entry| !entry.is_event);
        let (answer, question) = (spans.next().unwrap(), spans.next().unwrap());
        assert_eq!(
            (question.level, &*question.name),
            (Level::DEBUG, "rate_limit")
        );
        assert_eq!(question.names(), ["policies"]);
        assert_eq!(question.field("policies"), "2");
        assert_eq!(answer.names(), ["allowed"]);
        assert_eq!(answer.field("allowed"), allowed);
    }
}

#[tokio::test]
async fn events_of_the_store_are_within_the_span() {
    #[derive(Clone)]
    struct Talkative(TestStore);

    impl Store for Talkative {
        fn ask(&self, checks: &[Check<'_>]) -> Answer {
            let answer = self.0.ask(checks);
            Answer::Pending(Box::pin(async move {
                tracing::info!("on the way");
                match answer {
                    Answer::Ready(answer) => answer,
                    Answer::Pending(answer) => answer.await,
                }
            }))
        }
    }

    let (log, _listening) = Log::listen();
    let store = Talkative(TestStore::new(Trip::Short));
    let limiter = Limiter::new(store, [one_a_minute("user")]).unwrap();
    assert_eq!(
        send(&limiter, from(None, &[("x-user", "alice")])).await,
        200
    );
    let events = log.events();
    assert_eq!(events[0].name, "on the way");
    assert_eq!(events[0].within, ["rate_limit"]);
}
