//! A web server whose clients choose the answer, and which answers when the test lets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tower_throttle::{Decision, Key, Limiter, RateLimitLayer};

/// Far longer than anything takes here.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// The service behind the layer. `GET /{status}/{cost}` is answered with this status, and this cost
/// in the header `x-cost`.
#[derive(Clone)]
pub struct Service(Arc<Shared>);

struct Shared {
    door: Semaphore,
    inside: watch::Sender<usize>,
    calls: AtomicUsize,
}

impl Service {
    /// Answers at once.
    pub fn open() -> Self {
        Self::with_door(Semaphore::MAX_PERMITS)
    }

    /// Answers as many requests as are let out.
    pub fn closed() -> Self {
        Self::with_door(0)
    }

    fn with_door(permits: usize) -> Self {
        Self(Arc::new(Shared {
            door: Semaphore::new(permits),
            inside: watch::Sender::new(0),
            calls: AtomicUsize::new(0),
        }))
    }

    /// Lets this many requests out.
    pub fn let_out(&self, requests: usize) {
        self.0.door.add_permits(requests);
    }

    /// Waits until this many requests are inside.
    pub async fn inside(&self, requests: usize) {
        let mut inside = self.0.inside.subscribe();
        let there = inside.wait_for(|inside| *inside == requests);
        tokio::time::timeout(GENEROUS, there)
            .await
            .unwrap()
            .unwrap();
    }

    /// How many requests have arrived so far.
    pub fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// Serves it behind a limiter. Returns the address without a trailing slash.
    pub async fn behind(&self, limiter: Limiter) -> String {
        let app = Router::new()
            .route("/{status}/{cost}", get(answer))
            .with_state(self.clone());
        serve(app.layer(RateLimitLayer::new(limiter))).await
    }
}

/// A request that is inside, until it is answered or cancelled.
struct Inside(Service);

impl Inside {
    fn enter(service: Service) -> Self {
        service.0.calls.fetch_add(1, Ordering::SeqCst);
        service.0.inside.send_modify(|inside| *inside += 1);
        Self(service)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.inside.send_modify(|inside| *inside -= 1);
    }
}

async fn answer(
    State(service): State<Service>,
    Path((status, cost)): Path<(u16, u64)>,
) -> Response {
    let inside = Inside::enter(service);
    let door = inside.0.0.door.acquire().await;
    door.expect("nobody closes it for ever").forget();
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [("x-cost", cost.to_string())]).into_response()
}

/// Serves an application on its own port. Returns its address without a trailing slash.
pub async fn serve(app: Router) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// The number after a parameter such as `;r=`, in the first quota of a `RateLimit` line that has it.
pub fn quota_number(line: &str, parameter: &str) -> u64 {
    let (_, value) = line.split_once(parameter).expect(line);
    let digits = value.split(';').next().expect("a value");
    digits.parse().expect("a number")
}

/// Looks at a key until it is so: what is sent without waiting for the answer takes a while.
pub async fn eventually(
    limiter: &Limiter,
    policy: &str,
    key: impl Into<Key>,
    is_so: impl Fn(&Decision) -> bool,
) -> Decision {
    let (key, started) = (key.into(), Instant::now());
    loop {
        let looked = limiter.peek(policy, key.clone()).await.unwrap();
        if is_so(&looked) {
            return looked;
        }
        assert!(started.elapsed() < GENEROUS, "never so: {looked:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
