//! The cost of the layer over a service that does nothing, compared with that service in the same run;
//! for denials, with a service that answers every request with a bare 429.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Bytes;
use tower::{Layer, Service, ServiceExt};
use tower_throttle::store::Store;
use tower_throttle::{
    Limit, Limiter, MemoryStore, Policy, QuotaHeaders, RateLimitLayer, RequestHead, SECOND, Wrapped,
};

use support::http_store::{TestStore, Trip};

type Body = Empty<Bytes>;

/// Answers with this status and no more.
#[derive(Clone)]
struct Nothing(StatusCode);

impl Service<Request<Body>> for Nothing {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let mut response = Response::default();
        *response.status_mut() = self.0;
        ready(Ok(response))
    }
}

fn request() -> Request<Body> {
    Request::new(Body::default())
}

fn layer(store: impl Store, limit: Limit) -> RateLimitLayer<Wrapped> {
    let policies = [Policy::new("client", limit).by(|_: &RequestHead<'_>| Some("alice"))];
    RateLimitLayer::new(Limiter::new(store, policies).expect("a sound policy")).wrap_body()
}

fn bench<S>(criterion: &mut Criterion, name: &str, mut service: S)
where
    S: Service<Request<Body>, Error = Infallible>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    criterion
        .benchmark_group("layer")
        .bench_function(name, |b| {
            b.iter_batched(
                request,
                |request| {
                    runtime.block_on(async {
                        let service = service.ready().await.expect("infallible");
                        black_box(service.call(request).await)
                    })
                },
                BatchSize::SmallInput,
            );
        });
}

fn layer_overhead(criterion: &mut Criterion) {
    let ample = Limit::gcra(1_000_000_000, SECOND);
    let scarce = Limit::gcra(1, 366 * 86_400 * SECOND);
    let silent = QuotaHeaders::NONE;

    let service = Nothing(StatusCode::OK);
    bench(criterion, "bare", service.clone());
    let allowed = layer(MemoryStore::new(), ample);
    bench(criterion, "allowed", allowed.layer(service.clone()));
    let allowed = allowed.headers(silent);
    bench(
        criterion,
        "allowed, no headers",
        allowed.layer(service.clone()),
    );
    let by_trip = layer(TestStore::new(Trip::Short), ample).headers(silent);
    bench(
        criterion,
        "allowed by a trip",
        by_trip.layer(service.clone()),
    );
    let denying = Nothing(StatusCode::TOO_MANY_REQUESTS);
    bench(criterion, "bare 429", denying);
    let denied = layer(MemoryStore::new(), scarce);
    bench(criterion, "denied", denied.layer(service));
}

criterion_group!(benches, layer_overhead);
criterion_main!(benches);
