//! `SameForAll`: a store for which everybody is the same subject, and whose answers take a round
//! trip.

use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{Key, MemoryStore, Subject};

pub struct SameForAll(pub MemoryStore);

impl Store for SameForAll {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let subject = Subject::from(&Key::everybody());
        let mut checks = checks.to_vec();
        checks.iter_mut().for_each(|check| check.subject = subject);
        let Answer::Ready(answer) = self.0.ask(&checks) else {
            panic!("a memory store answers at once");
        };
        Answer::Pending(Box::pin(std::future::ready(answer)))
    }
}
