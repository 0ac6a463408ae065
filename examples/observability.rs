//! What an operator sees: `cargo run --features metrics --example observability`.
//!
//! `/metrics` is for Prometheus, `/top` lists the most denied subjects, and the log contains the reasons.
//! It counts in this process, or in Redis with `REDIS_URL=redis://127.0.0.1:6379`.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::net::TcpListener;
use tower_throttle::store::Store;
use tower_throttle::{
    FailureMode, HOUR, Header, Limit, Limiter, MINUTE, MemoryStore, Metrics, Mode, PeerAddr,
    Policy, RateLimitLayer, RedisStore, Route, TopDenied,
};

/// The interval of the exporter's own listener.
const UPKEEP: Duration = Duration::from_secs(5);

fn policies() -> [Policy; 4] {
    [
        Policy::new("client", Limit::sliding_log(10, HOUR)).by(PeerAddr),
        // Half of that limit in shadow: it is counted and shown, and denies no request.
        Policy::new("client-half", Limit::sliding_log(5, HOUR))
            .by(PeerAddr)
            .mode(Mode::Shadow),
        Policy::new("login", Limit::sliding_log(3, HOUR))
            .by(Header::new("x-user"))
            .on(Route::post("/login"))
            .on_store_failure(FailureMode::Deny),
        // One every two seconds; requests that come sooner are delayed.
        Policy::new("report", Limit::gcra(30, MINUTE).burst(1))
            .on(Route::get("/report"))
            .max_wait(MINUTE),
    ]
}

/// The most denied subjects, one a line.
fn lines(top: &TopDenied) -> String {
    top.list().iter().fold(String::new(), |mut lines, entry| {
        let (subject, policy) = (entry.subject, &entry.policy);
        let _ = writeln!(lines, "{} {policy} {subject} {}", entry.denials, entry.mode);
        lines
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(std::io::stderr)
        .init();
    // Installed first: a metric that is created before the recorder is lost.
    let seconds = Matcher::Suffix("_seconds".into());
    let buckets = [
        0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0, 10.0,
    ];
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &buckets)?
        .install_recorder()?;
    // It keeps every recorded duration until this runs.
    let upkeep = prometheus.clone();
    tokio::spawn(async move {
        let mut every = tokio::time::interval(UPKEEP);
        loop {
            every.tick().await;
            upkeep.run_upkeep();
        }
    });

    let top = TopDenied::new(100);
    let (store, metrics): (Arc<dyn Store>, _) = match env::var("REDIS_URL") {
        Ok(url) => (Arc::new(RedisStore::connect(&url).await?), Metrics::new()),
        Err(_) => {
            let store = MemoryStore::new();
            let metrics = Metrics::new().watch_memory(store.clone());
            (Arc::new(store), metrics)
        }
    };
    let limiter = Limiter::builder(store, policies())
        .observe(metrics.clone())
        .observe(top.clone())
        .build()?;

    let scrape = move || {
        metrics.collect();
        std::future::ready(prometheus.render())
    };
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/login", post(async || "welcome\n"))
        .route("/report", get(async || "42\n"))
        .layer(RateLimitLayer::new(limiter))
        // Added after the layer, so that they are not limited. Do not expose them to the public.
        .route("/metrics", get(scrape))
        .route("/top", get(move || std::future::ready(lines(&top))))
        .into_make_service_with_connect_info::<SocketAddr>();

    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on {}, try", listener.local_addr()?);
    println!("  curl http://{}/", listener.local_addr()?);
    println!("  curl http://{}/metrics", listener.local_addr()?);
    println!("  curl http://{}/top", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
