//! A fleet whose processes together keep the limit of an API that they call:
//! `cargo run --example fleet`, with a Redis server at `REDIS_URL` or on its usual port.
//!
//! This process is the server of that API. It starts four workers, which send orders as fast as they
//! may, and prints when each order arrives.

use std::env;
use std::error::Error;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use reqwest::{Client, Method, Request};
use tokio::net::TcpListener;
use tokio::process::Command;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_throttle::{FailureMode, Limit, Limiter, Policy, RedisStore, ThrottleLayer, per_second};

/// How many orders the workers together may send per second.
const RATE: u64 = 20;
const TIME: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match &env::args().skip(1).collect::<Vec<_>>()[..] {
        [api, worker] => work(api, worker).await,
        _ => serve().await,
    }
}

/// A process of the fleet.
async fn work(api: &str, worker: &str) -> Result<(), Box<dyn Error>> {
    let redis = env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".to_owned());
    // Without Redis no order is sent, as together the workers could exceed the API's limit.
    let policy = Policy::new("orders", Limit::token_bucket(1, per_second(RATE)))
        .on_store_failure(FailureMode::Deny);
    let limiter = Limiter::new(RedisStore::connect(&redis).await?, [policy])?;
    let throttle = ThrottleLayer::new(limiter, "orders")?;

    Client::new().get(format!("{api}/hello")).send().await?;
    let mut client = ServiceBuilder::new().layer(throttle).service(Client::new());
    let start = Instant::now();
    while start.elapsed() < TIME {
        let order = Request::new(Method::POST, format!("{api}/orders/{worker}").parse()?);
        client
            .ready()
            .await?
            .call(order)
            .await?
            .error_for_status()?;
    }
    Ok(())
}

/// The API, and the processes that call it.
async fn serve() -> Result<(), Box<dyn Error>> {
    static START: OnceLock<Instant> = OnceLock::new();
    static ORDERS: Mutex<Vec<Duration>> = Mutex::new(Vec::new());
    let hello = async || _ = START.get_or_init(Instant::now);
    let order = async |Path(worker): Path<String>| {
        let came = START.get_or_init(Instant::now).elapsed();
        println!("{:.6} s: an order from worker {worker}", came.as_secs_f64());
        ORDERS.lock().unwrap().push(came);
    };
    let api = Router::new()
        .route("/hello", get(hello))
        .route("/orders/{worker}", post(order));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, api).into_future());

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
    let orders = ORDERS.lock().unwrap();
    for second in 0..=orders.last().map_or(0, Duration::as_secs) {
        let count = orders.iter().filter(|came| came.as_secs() == second);
        println!("second {}: {} orders", second + 1, count.count());
    }
    println!(
        "{} orders, by a fleet that may send {RATE} a second",
        orders.len()
    );
    Ok(())
}
