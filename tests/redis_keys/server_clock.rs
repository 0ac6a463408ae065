//! The clock of the server, which is the whole fleet's: every script reads it, alone and for those who come together.

use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use tower_throttle::algorithm::Action;

use crate::support::asking::{GO_ALONE, answer_of, check_of};
use crate::support::redis::Server;
use crate::{LIMITS, shapes};

/// By another clock, or one that is wrong by more than it takes to look, what was taken would be paid earlier or later.
#[tokio::test]
async fn whichever_script_judges_goes_by_the_servers_clock_to_the_microsecond() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    for (name, _, limit) in LIMITS {
        for policies in shapes(name) {
            let act = |subject: usize, action: Action| {
                let (store, policies) = (&store, &policies);
                async move {
                    let checks = policies.iter();
                    let checks =
                        checks.map(|policy| check_of(policy, subject as u64, &limit, action));
                    answer_of(store, &checks.collect::<Vec<_>>()).await
                }
            };
            // Those of the last ones share a trip.
            let subjects = 0..GO_ALONE + 4;
            let started = Instant::now();
            let takes = subjects
                .clone()
                .map(|subject| act(subject, Action::spend(1)));
            let taken = try_join_all(takes).await.unwrap();
            let looks = join_all(subjects.map(|subject| act(subject, Action::look()))).await;
            let elapsed = started.elapsed();
            for (taken, looked) in taken.iter().zip(looks) {
                for (taken, looked) in taken.iter().zip(looked.unwrap().iter()) {
                    let (at_first, left) = (taken.reset_after(), looked.reset_after());
                    let case = || format!("{policies:?}: {at_first:?} {left:?} {elapsed:?}");
                    assert!(left <= at_first, "{}", case());
                    assert!(left + elapsed >= at_first, "{}", case());
                    assert!(at_first > Duration::ZERO, "{}", case());
                }
            }
        }
    }
}
