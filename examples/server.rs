//! A server behind the limits of a file, to try a configuration from the outside:
//!
//! ```sh
//! cargo run --all-features --example server -- --config limits.toml --listen 127.0.0.1:3000
//! ```
//!
//! The file is read again whenever it changes. The outcome and the log are written to standard error;
//! `RUST_LOG=info,tower_throttle=debug` adds a line for each denied request.
//!
//! The server answers every path and method with 200 and a small JSON echo, `GET /status/{code}` with
//! that code, and `GET /slow/{ms}` after that time. `GET /stream/{n}` streams n chunks and meters each of
//! them, for policies with `settle = "meter"`. It speaks HTTP/1.1 and cleartext HTTP/2, and prints the
//! address that it listens on (`--listen 127.0.0.1:0` picks a port). On SIGTERM it stops when the
//! requests in flight are answered, after 30 seconds at the latest: a client may never send the rest
//! of its request. On a second signal it does not wait for them any longer.

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::json;
use tokio::net::TcpListener;
use tower_throttle::{ConfigFile, FileError, Meter};

const USAGE: &str = "usage: server --config <file> --listen <address>:<port>";

/// How long requests may still take after the signal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {}", error);
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    #[cfg(feature = "tracing")]
    start_log();
    let arguments = Arguments::read(env::args_os().skip(1))?;
    let limits = ConfigFile::new(arguments.config)
        .on_reload(tell)
        .open()
        .await?;
    // One handler instead of routes, so that the routes of policies match the path that was sent.
    let app = Router::new()
        .fallback(answer)
        .layer(limits.layer())
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind(&arguments.listen).await;
    let listener = listener.map_err(|error| format!("--listen {}: {error}", arguments.listen))?;
    let stopped = stop_signal()?.shared();
    let too_long = stopped.clone().then(|()| end_of_patience());
    println!("listening on {}", listener.local_addr()?);
    let server = axum::serve(listener, app).with_graceful_shutdown(stopped);
    tokio::select! {
        served = server.into_future() => served?,
        () = too_long => eprintln!("server: what is still under way is cut off"),
    }
    // Gives back the permits of the last responses, and prefetched permits, on this runtime.
    if !limits.limiter().flush().await {
        eprintln!("server: the store has not got back all that was held");
    }
    Ok(())
}

/// Writes events to standard error: those of the levels in `RUST_LOG`, or from INFO on.
#[cfg(feature = "tracing")]
fn start_log() {
    use tracing_subscriber::EnvFilter;

    let levels = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(levels)
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
}

fn tell(outcome: Result<(), &FileError>) {
    match outcome {
        Ok(()) => eprintln!("server: the limits are reloaded"),
        Err(error) => {
            eprintln!("server: the limits stay as they were: {error}");
        }
    }
}

async fn answer(request: Request) -> Response {
    let echo = json!({ "method": request.method().as_str(), "path": request.uri().path() });
    let mut segments = request
        .uri()
        .path()
        .strip_prefix('/')
        .unwrap_or_default()
        .split('/');
    let (first, second) = (segments.next(), segments.next());
    match (request.method(), first, second, segments.next()) {
        (&Method::GET | &Method::HEAD, Some("status"), Some(code), None) => match status(code) {
            // Responses without a body.
            Some(
                code @ (StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::NOT_MODIFIED),
            ) => code.into_response(),
            Some(code) => (code, Json(echo)).into_response(),
            None => (
                StatusCode::BAD_REQUEST,
                "a status is a number from 200 to 599\n",
            )
                .into_response(),
        },
        (&Method::GET | &Method::HEAD, Some("slow"), Some(ms), None) => match ms.parse() {
            Ok(ms @ 0..=60_000) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Json(echo).into_response()
            }
            _ => (
                StatusCode::BAD_REQUEST,
                "a wait is 0 to 60000 milliseconds\n",
            )
                .into_response(),
        },
        (&Method::GET | &Method::HEAD, Some("stream"), Some(chunks), None) => {
            match chunks.parse() {
                Ok(chunks @ 0..=100_000) => stream(chunks, &request),
                _ => (StatusCode::BAD_REQUEST, "a stream has 0 to 100000 chunks\n").into_response(),
            }
        }
        _ => Json(echo).into_response(),
    }
}

fn stream(chunks: u32, request: &Request) -> Response {
    let meter: Meter = request.extensions().get().cloned().unwrap_or_default();
    let chunks = stream::iter(0..chunks).map(move |number| {
        meter.add(1);
        Ok::<_, Infallible>(format!("{number}\n"))
    });
    Body::from_stream(chunks).into_response()
}

/// A final status: one below 200 is not.
fn status(code: &str) -> Option<StatusCode> {
    let code = code.parse().ok().filter(|code| (200..600).contains(code))?;
    StatusCode::from_u16(code).ok()
}

struct Arguments {
    config: PathBuf,
    listen: String,
}

impl Arguments {
    fn read(mut given: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let (mut config, mut listen) = (None, None);
        while let Some(name) = given.next() {
            let name = name.to_string_lossy();
            let value = match &*name {
                "--config" => &mut config,
                "--listen" => &mut listen,
                _ => return Err(format!("{name:?} is no argument, {USAGE}")),
            };
            *value = Some(
                given
                    .next()
                    .ok_or_else(|| format!("{name} has no value, {USAGE}"))?,
            );
        }
        Ok(Self {
            config: config
                .ok_or_else(|| format!("--config is missing, {USAGE}"))?
                .into(),
            listen: listen
                .ok_or_else(|| format!("--listen is missing, {USAGE}"))?
                .to_string_lossy()
                .into_owned(),
        })
    }
}

/// Resolves on SIGTERM, and on Ctrl-C.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())?
    };
    Ok(async move {
        #[cfg(unix)]
        let terminate = terminate.recv();
        #[cfg(not(unix))]
        let terminate = std::future::pending::<()>();
        tokio::select! {
            _ = terminate => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    })
}

/// Resolves on a further signal, or after [`DRAIN_TIMEOUT`].
async fn end_of_patience() {
    let again = async {
        match stop_signal() {
            Ok(again) => again.await,
            Err(_) => std::future::pending().await,
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, again).await;
}
