//! A fleet that obeys its upstream: `cargo run --example upstream`, with a Redis server at `REDIS_URL`
//! or on its usual port.
//!
//! This process is the upstream. It refuses one order with a 429 and `Retry-After: 1`, and prints when
//! each order arrives. Four workers send them; for that second none of them does. The refused one is
//! sent again, by a retry layer whose budget all workers share.

use std::env;
use std::error::Error;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response as Answer};
use axum::routing::post;
use reqwest::{Client, Method, Request, Response};
use tokio::net::TcpListener;
use tokio::process::Command;
use tower::{Service, ServiceBuilder, ServiceExt, retry};
use tower_throttle::{
    FailureMode, Feedback, Limit, Limiter, Policy, RedisStore, ResponseHead, ThrottleLayer,
    per_minute, per_second,
};

/// How many orders each worker sends.
const ORDERS: usize = 15;
/// Which order is refused.
const REFUSED: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match &env::args().skip(1).collect::<Vec<_>>()[..] {
        [upstream, worker] => work(upstream, worker).await,
        _ => serve().await,
    }
}

/// A process of the fleet.
async fn work(upstream: &str, worker: &str) -> Result<(), Box<dyn Error>> {
    let redis = env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".to_owned());
    let policies = [
        Policy::new("orders", Limit::token_bucket(4, per_second(20))),
        // Of all orders of the fleet, no more than these are sent again.
        Policy::new("retries", Limit::token_bucket(5, per_minute(30))),
    ];
    let policies = policies.map(|policy| policy.on_store_failure(FailureMode::Deny));
    let limiter = Limiter::new(RedisStore::connect(&redis).await?, policies)?;

    // reqwest has a response of its own. For hyper and tonic, `Feedback::http()` is all.
    let feedback = Feedback::http().head(|response: &Response| {
        ResponseHead::from_parts(response.status(), response.headers(), response.extensions())
    });
    let mut client = ServiceBuilder::new()
        .layer(retry::RetryLayer::new(Retries::of(&limiter)))
        .layer(ThrottleLayer::new(limiter, "orders")?.feedback(feedback))
        .service(Client::new());
    for _ in 0..ORDERS {
        let order = Request::new(Method::POST, format!("{upstream}/orders/{worker}").parse()?);
        let answer = client.ready().await?.call(order).await?;
        answer.error_for_status()?;
    }
    Ok(())
}

/// Sends again what was refused, up to three times. Each time it waits for a permit of the fleet's
/// budget, and then, as the layer inside of it is not ready before, until the upstream's time has come.
#[derive(Clone)]
struct Retries {
    limiter: Limiter,
    left: u32,
}

impl Retries {
    fn of(limiter: &Limiter) -> Self {
        Self {
            limiter: limiter.clone(),
            left: 3,
        }
    }
}

impl retry::Policy<Request, Response, reqwest::Error> for Retries {
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(
        &mut self,
        _: &mut Request,
        result: &mut Result<Response, reqwest::Error>,
    ) -> Option<Self::Future> {
        let is_refused = matches!(result, Ok(response) if is_refusal(response.status()));
        self.left = self.left.checked_sub(1).filter(|_| is_refused)?;
        let limiter = self.limiter.clone();
        Some(Box::pin(async move {
            if let Err(denied) = limiter.acquire("retries", "everybody", 1).await {
                eprintln!("sent again without a budget: {denied}");
            }
        }))
    }

    fn clone_request(&mut self, order: &Request) -> Option<Request> {
        order.try_clone()
    }
}

fn is_refusal(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE
}

/// The upstream, and the processes that call it.
async fn serve() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let upstream = Router::new().route(
        "/orders/{worker}",
        post(async move |Path(worker): Path<String>| order(&worker, start.elapsed())),
    );
    tokio::spawn(axum::serve(listener, upstream).into_future());

    let mut workers = Vec::new();
    for number in ["1", "2", "3", "4"] {
        let mut worker = Command::new(env::current_exe()?);
        workers.push(worker.args([&url, number]).spawn()?);
    }
    for mut worker in workers {
        if !worker.wait().await?.success() {
            return Err("a worker could not go on".into());
        }
    }
    Ok(())
}

fn order(worker: &str, came: Duration) -> Answer {
    static ARRIVED: Mutex<usize> = Mutex::new(0);
    let mut arrived = ARRIVED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    *arrived += 1;
    let came = came.as_secs_f64();
    if *arrived == REFUSED {
        println!("{came:.6} s: refused an order from worker {worker}");
        return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response();
    }
    println!("{came:.6} s: an order from worker {worker}");
    StatusCode::OK.into_response()
}
