//! What is never logged: whose request it is, and the store's password.

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tower_throttle::{
    AccessList, ClientAddr, DecisionEvent, FailureMode, Header, HeaderCost, Key, Limit, Limiter,
    MINUTE, MemoryStore, Mode, Policy, RedisStore, Rules,
};
use tracing::Level;

use crate::tracing::{answer, check, from, one_a_minute, only};
use support::http_store::{TestStore, Trip};
use support::log::Log;

/// Everything that is logged about requests of this user and this peer, and everything that can be
/// formatted.
async fn everything_said(user: &str, peer: IpAddr) -> String {
    let (log, _listening) = Log::listen();
    let shown = Arc::new(Mutex::new(String::new()));
    for trip in [Trip::None, Trip::Short, Trip::Fails, Trip::FailsLate] {
        let by_address = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).unwrap();
        let policies = [
            one_a_minute("enforced"),
            one_a_minute("trial").mode(Mode::Shadow),
            one_a_minute("closed").on_store_failure(FailureMode::Deny),
            Policy::new("listed", Limit::gcra(1_000, MINUTE)).by(Header::new("x-listed")),
            Policy::new("client", Limit::gcra(2, MINUTE)).by(by_address),
            Policy::new("cost", Limit::gcra(1_000, MINUTE)).cost_by(HeaderCost::new("x-cost")),
        ];
        let denied = AccessList::new().keys([Key::header("x-listed", user.as_bytes())]);
        let told = Arc::clone(&shown);
        let limiter = Limiter::builder(
            TestStore::new(trip),
            Rules::new(policies.clone()).deny(denied.clone()),
        )
        .on_decision(move |event: &DecisionEvent<'_>| {
            told.lock().unwrap().push_str(&format!("{event:?}\n"));
        })
        .build()
        .unwrap();
        let mut rejections = String::new();
        for headers in [
            &[("x-user", user)][..],
            &[("x-user", user)],
            &[("x-listed", user)],
            &[("x-cost", user)],
            &[],
            &[],
        ] {
            let request = from(Some(&peer.to_string()), headers);
            rejections.push_str(&format!("{:?}\n", answer(&limiter, request).await));
        }
        for policy in ["enforced", "trial", "closed"] {
            for key in [Key::from(user), Key::from(user), Key::address(peer)] {
                rejections.push_str(&format!("{:?}\n", limiter.check(policy, &key).await));
                rejections.push_str(&format!("{key:?} {:?}\n", limiter.subject_of(&key)));
            }
        }
        let shapes = format!("{limiter:?} {policies:?} {denied:?}\n");
        shown.lock().unwrap().push_str(&(rejections + &shapes));
    }
    let events = log.events();
    for text in ["denied", "would have been denied", "let through uncounted"] {
        assert!(
            events.iter().any(|event| event.name == text),
            "{text}: {events:#?}"
        );
    }
    let shown = shown.lock().unwrap();
    format!("{shown}\n{:#?}", log.entries())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_event_shows_the_subject(
        user in "[a-zA-Z0-9@._-]{7,30}",
        peer in any::<[u8; 16]>().prop_map(IpAddr::from),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = runtime.block_on(everything_said(&user, peer));
        prop_assert!(!said.contains(&user), "{user}: {said}");
        prop_assert!(!said.contains(&peer.to_string()), "{peer}: {said}");
    }
}

#[test]
fn an_ipv4_address_is_not_logged() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let peer = "203.0.113.77".parse().unwrap();
    let said = runtime
        .unwrap()
        .block_on(everything_said("mallory@example.com", peer));
    assert!(!said.contains("203.0.113"), "{said}");
}

#[tokio::test]
async fn junk_in_place_of_an_address_is_not_logged() {
    let client = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    let policy = Policy::new("client", Limit::gcra(1, MINUTE)).by(client.clone());
    let limiter = Limiter::new(
        MemoryStore::new(),
        Rules::new([policy]).deny(
            AccessList::new()
                .addresses(client, ["203.0.113.9"])
                .unwrap(),
        ),
    )
    .unwrap();
    let (log, _listening) = Log::listen();
    for status in [200, 429] {
        let junk = &[("x-forwarded-for", "junk-of-mallory\t level=ERROR")];
        let response = answer(&limiter, from(Some("10.0.0.5"), junk)).await;
        assert_eq!(response.status(), status);
        assert!(!format!("{response:?}").contains("mallory"), "{response:?}");
    }
    only(&log, Level::DEBUG, "denied");
    assert!(!format!("{:?}", log.entries()).contains("mallory"));
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_keeps_its_password_to_itself() {
    let (log, _listening) = Log::listen();
    // Nobody listens there: the port was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("redis://operator:open-sesame@127.0.0.1:{port}");
    let failed = RedisStore::connect(&url).await.unwrap_err();
    let mut said = format!("{failed:?} {failed}");
    let mut beneath = failed.inner().map(|inner| inner as &dyn Error);
    while let Some(error) = beneath {
        said.push_str(&format!(" {error:?} {error}"));
        beneath = error.source();
    }
    let store = RedisStore::builder(&url).connect_lazy().unwrap();
    said.push_str(&format!("{store:?}"));
    let limiter = Limiter::new(store, [one_a_minute("api")]).unwrap();
    check(&limiter, "api", 10).await;
    let mut events = log.events();
    assert_eq!(events.len(), 11, "{events:#?}");
    events.retain(|event| event.level == Level::WARN);
    let warning = events.first().expect("the breaker has opened");
    let why = warning.field("error");
    assert!(why.contains("Connection refused"), "{why}");
    let place = format!("Redis at 127.0.0.1:{port}");
    assert!(warning.name.contains(&place), "{}", warning.name);
    assert_eq!(limiter.store_name(), place);
    said.push_str(&format!("{:#?}", log.entries()));
    assert!(!said.contains("open-sesame"), "{said}");
}
