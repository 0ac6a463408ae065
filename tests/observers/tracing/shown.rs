//! Policies that show whom they deny, beside others that do not.

use std::sync::{Arc, Mutex};

use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    DecisionEvent, Header, Key, Limit, Limiter, MINUTE, MemoryStore, Mode, Penalty, Policy,
    TopDenied,
};
use tracing::Level;

use crate::tracing::{from, send};
use support::log::Log;

/// Answers a moment later, or at once.
struct Late(MemoryStore, bool);

impl Store for Late {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match self.0.ask(checks) {
            Answer::Ready(answer) if self.1 => Answer::Pending(Box::pin(async { answer })),
            answer => answer,
        }
    }
}

fn policy(name: &str, header: &str) -> Policy {
    Policy::new(name, Limit::gcra(1, MINUTE)).by(Header::new(header))
}

/// Each kind of denial, and its event.
#[tokio::test]
async fn only_subjects_of_their_policy_are_shown() {
    let penalty = Penalty::after(100, MINUTE, MINUTE);
    for is_late in [false, true] {
        for shown in [
            policy("shown", "x-tenant").show_subject(),
            policy("shown", "x-tenant").show_subject().penalty(penalty),
            policy("shown", "x-tenant")
                .show_subject()
                .mode(Mode::Shadow),
        ] {
            let (log, _listening) = Log::listen();
            let (told, top) = (Arc::new(Mutex::new(Vec::new())), TopDenied::new(10));
            let note = Arc::clone(&told);
            let limiter = Limiter::builder(
                Late(MemoryStore::new(), is_late),
                [policy("secret", "x-key"), shown, policy("third", "x-key")],
            )
            .observe(top.clone())
            .on_decision(move |event: &DecisionEvent<'_>| {
                let shown = event.shown_subject.map(str::to_owned);
                note.lock().unwrap().push((event.policy.to_owned(), shown));
            });
            let limiter = limiter.build().unwrap();
            let headers = [("x-tenant", "acme"), ("x-key", "hunter2")];
            for _ in 0..2 {
                send(&limiter, from(None, &headers)).await;
            }
            let tenant = Key::header("x-tenant", b"acme");
            let denied = limiter.check("shown", &tenant).await.unwrap();
            let _ = limiter
                .check("secret", Key::header("x-key", b"hunter2"))
                .await
                .unwrap();
            let _permit = limiter.admit("shown", &tenant).await;

            let told = told.lock().unwrap();
            assert!(told.len() >= 6, "{told:?}");
            for (policy, shown) in &*told {
                let expected = (policy == "shown").then_some("x-tenant: acme");
                assert_eq!(shown.as_deref(), expected, "{policy}");
            }
            for entry in top.list() {
                let expected = (&*entry.policy == "shown").then_some("x-tenant: acme");
                assert_eq!(entry.shown_subject.as_deref(), expected, "{entry:?}");
                let key = match expected {
                    Some(_) => tenant.clone(),
                    None => Key::header("x-key", b"hunter2"),
                };
                assert_eq!(entry.subject, limiter.subject_of(key));
            }
            let mut of_shown = log.events();
            of_shown
                .retain(|event| event.level == Level::DEBUG && event.field("policy") == "shown");
            assert!(!of_shown.is_empty() || denied.is_allowed());
            for event in of_shown {
                assert_eq!(event.field("subject"), "x-tenant: acme");
            }
            assert!(!format!("{:?} {top:?}", log.entries()).contains("hunter2"));
        }
    }
}

/// It is what a client has sent.
#[tokio::test]
async fn a_subject_that_is_shown_forges_no_line_of_the_log() {
    let (log, _listening) = Log::listen();
    let policy = Policy::new("user", Limit::gcra(1, MINUTE)).show_subject();
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    for _ in 0..2 {
        let _ = limiter.check("user", "eve\nERROR\u{1b}[2K").await.unwrap();
    }
    let events = log.events();
    assert_eq!(events[0].field("subject"), "eve\\nERROR\\u{1b}[2K");
}
