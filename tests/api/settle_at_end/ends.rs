//! Each way in which a body can end, for each estimate and each use.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Mutex;

use futures_util::future::select;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use support::bench::Bench;
use support::on_every_store;
use support::web::eventually;
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Ending, Meter, RateLimitLayer, ResponseBody};

use super::*;

on_every_store! {
    the_cost_is_what_was_used_however_the_body_ends
    without_a_response_the_cost_is_at_least_the_estimate
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Read to its end.
    Read(Last),
    /// As many chunks are read, and then it is dropped.
    Dropped(usize),
    /// The same, of a body whose length is known.
    DroppedKnown(usize),
    /// Never read, as nobody expects a body.
    NoBody(&'static str, u16),
}

const CHUNKS: usize = 2;

const WAYS: [Way; 14] = [
    Way::Read(Last::Chunk),
    Way::Read(Last::Trailers),
    Way::Read(Last::Error),
    Way::Dropped(0),
    Way::Dropped(1),
    Way::Dropped(2),
    Way::DroppedKnown(0),
    Way::DroppedKnown(1),
    Way::DroppedKnown(2),
    Way::NoBody("HEAD", 200),
    Way::NoBody("GET", 204),
    Way::NoBody("GET", 304),
    Way::NoBody("GET", 101),
    Way::NoBody("CONNECT", 200),
];

impl Way {
    /// How it ends, and how many of its chunks are metered.
    fn ends(self) -> (Ending, usize) {
        match self {
            Self::Read(Last::Error) => (Ending::Failed, CHUNKS),
            Self::Read(_) | Self::DroppedKnown(CHUNKS) => (Ending::Complete, CHUNKS),
            Self::Dropped(read) | Self::DroppedKnown(read) => (Ending::Dropped, read),
            Self::NoBody(..) => (Ending::Complete, 0),
        }
    }

    fn request(self, key: &str) -> Request<()> {
        let method = match self {
            Self::NoBody(method, _) => method.parse().expect("a method"),
            _ => Method::GET,
        };
        let request = Request::builder().method(method).header(KEY, key);
        request.body(()).expect("a request")
    }

    fn response(self, meter: &Meter, used: Option<u64>) -> Response<Metered> {
        let status = match self {
            Self::NoBody(_, status) => status,
            _ => 200,
        };
        let chunks = match used {
            // The meter of somebody else's unit is no use of this one.
            None => [meter.named("cents"), meter.named("cents")],
            Some(_) => [meter.clone(), meter.clone()],
        };
        let body = Metered {
            meter: chunks[0].clone(),
            chunks: [used.unwrap_or(700); CHUNKS].into(),
            ending: Some(match self {
                Self::Read(last) => last,
                // It would go on, if it were asked.
                Self::Dropped(_) => Last::Trailers,
                Self::DroppedKnown(_) | Self::NoBody(..) => Last::Trailers,
            }),
            is_exact: matches!(self, Self::DroppedKnown(_)),
        };
        let status = StatusCode::from_u16(status).expect("a status");
        let response = Response::builder().status(status);
        response.body(body).expect("a response")
    }

    async fn read(self, mut body: ResponseBody<Metered>) {
        match self {
            Self::Read(_) => while let Some(Ok(_)) = body.frame().await {},
            Self::Dropped(frames) | Self::DroppedKnown(frames) => {
                for _ in 0..frames {
                    body.frame().await.expect("a frame").expect("a chunk");
                }
            }
            Self::NoBody(..) => {}
        }
    }
}

async fn the_cost_is_what_was_used_however_the_body_ends(bench: &Bench) {
    for (estimate, used, way) in cases() {
        let limiter = bench.limiter([tokens(estimate)]);
        let service = service_fn(move |request: Request<()>| async move {
            let meter: &Meter = request.extensions().get().expect("a meter");
            Ok::<_, Infallible>(way.response(meter, used))
        });
        let service = RateLimitLayer::new(limiter.clone())
            .wrap_body()
            .layer(service);
        let name = format!("{estimate} {used:?} {way:?}");
        let response = service
            .oneshot(way.request(&name))
            .await
            .expect("an answer");
        way.read(response.into_body()).await;

        let (how, chunks) = way.ends();
        let metered = used.filter(|_| chunks > 0).map(|used| used * chunks as u64);
        let cost = match (metered, how) {
            (None, _) => estimate,
            (Some(metered), Ending::Complete) => metered,
            (Some(metered), _) => metered.max(estimate),
        };
        let is_settled = |remaining: u64| remaining == 1_000 - cost;
        let looked = eventually(&limiter, "tokens", key(&name), |looked| {
            is_settled(looked.remaining())
        });
        let looked = looked.await;
        assert!(is_settled(looked.remaining()), "{name}");
        // What comes later finds it settled once.
        assert!(limiter.flush().await);
        let looked = limiter.peek("tokens", key(&name)).await.expect("a policy");
        assert_eq!(looked.remaining(), 1_000 - cost, "{name}");
    }
}

/// Every estimate with every use of each chunk and every end.
fn cases() -> impl Iterator<Item = (u64, Option<u64>, Way)> {
    let estimates = [1, 6, 40].into_iter();
    let used = [None, Some(0), Some(3), Some(200)];
    let pairs = estimates.flat_map(move |estimate| used.map(|used| (estimate, used)));
    pairs.flat_map(|(estimate, used)| WAYS.map(|way| (estimate, used, way)))
}

/// The service fails, or the client hangs up while the handler runs.
async fn without_a_response_the_cost_is_at_least_the_estimate(bench: &Bench) {
    let (used_later, cases) = ([None, Some(3), Some(200)], [true, false]);
    for (used, hangs_up) in used_later
        .into_iter()
        .flat_map(|used| cases.map(|it| (used, it)))
    {
        let counted_if_it_fails = Policy::new("failures", Limit::fixed_window(1_000, MINUTE))
            .by(Header::new(KEY))
            .count_if_at_end(|_| false);
        let limiter = bench.limiter([tokens(40), counted_if_it_fails]);
        let (start, started) = oneshot::channel();
        let start = Mutex::new(Some(start));
        let service = service_fn(async |request: Request<()>| {
            let meter: &Meter = request.extensions().get().expect("a meter");
            if let Some(used) = used {
                meter.add(used);
            }
            let start = start.lock().unwrap().take().expect("one request");
            start.send(()).expect("a client");
            if hangs_up {
                pending::<()>().await;
            }
            Err::<Response<Metered>, _>("it broke")
        });
        let name = format!("{used:?} {hangs_up}");
        let service = RateLimitLayer::new(limiter.clone())
            .wrap_body()
            .layer(service);
        let request = Request::builder().header(KEY, &name);
        let answer = service.oneshot(request.body(()).expect("a request"));
        // If the first is never done, the second is.
        let _ = select(pin!(answer), pin!(started)).await;
        assert!(limiter.flush().await);
        let cost = used.unwrap_or_default().max(40);
        for (policy, remaining) in [("tokens", 1_000 - cost), ("failures", 999)] {
            let looked = limiter.peek(policy, key(&name)).await.expect("a policy");
            assert_eq!(looked.remaining(), remaining, "{policy}: {name}");
        }
    }
}
