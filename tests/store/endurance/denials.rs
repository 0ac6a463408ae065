//! The memory of denials, and the list of them.

use std::convert::Infallible;

use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::store::DenyCache;
use tower_throttle::{
    DAY, Header, Limit, Limiter, MemoryStore, Policy, RateLimitLayer, SECOND, TopDenied,
};

use super::flood::{Grown, keys};
use support::memory::alone;
use support::same_for_all::SameForAll;

/// On the list, each with about 100 bytes.
const LISTED: usize = 1_000;

/// The table is 14 MB when it is full.
const DOCUMENTED: u64 = (14 << 20) + LISTED as u64 * 100;

#[test]
fn denied_subjects_take_no_more_than_the_table_and_the_list() {
    alone(
        denied_subjects_take_no_more_than_the_table_and_the_list,
        async || {
            let (cache, top) = (
                DenyCache::new(SameForAll(MemoryStore::new())),
                TopDenied::new(LISTED),
            );
            let policy = Policy::new("api", Limit::gcra(1, DAY)).by(Header::new("x-user"));
            let limiter = Limiter::builder(cache.max_age(DAY), [policy]);
            let limiter = limiter.observe(top.clone()).timeout(60 * SECOND).build();
            let layer = RateLimitLayer::new(limiter.unwrap()).wrap_body();
            let answers = service_fn(async |_| Ok::<_, Infallible>(Response::new(())));
            let mut service = layer.layer(answers);
            let mut send = async |user: u64| {
                let mut request = Request::new(());
                request.headers_mut().insert("x-user", user.into());
                let service = service.ready().await.unwrap();
                service.call(request).await.unwrap().status()
            };
            assert_eq!(send(0).await, 200);

            // The first fifth of them fills the table.
            let grown = Grown::under("denied", keys(500_000), async |users| {
                for user in users {
                    assert_eq!(send(user).await, 429);
                }
            });
            let grown = grown.await;
            assert_eq!(top.list().len(), LISTED);
            grown.assert_flat();
            grown.assert_at_most(DOCUMENTED);
        },
    );
}
