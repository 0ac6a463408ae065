//! The file format: what it accepts, and how it refuses errors.
#![cfg(feature = "config")]

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::{Config, RateLimitLayer, ResponseBody};

mod algorithms;
mod calendar;
mod fields;
mod formats;
mod headers;
mod hostile;
mod in_code;
mod policies;
mod quantities;
mod refusals;
mod reload;
mod requests;
mod rules;
mod schema;
mod stores;
mod tiers;
mod timeout;
mod tls;
mod variables;
mod whole;

/// What a service behind the file's layer answers, with an empty 200 of its own.
async fn answers(
    layer: &RateLimitLayer,
    request: Request<()>,
) -> Response<ResponseBody<Empty<Bytes>>> {
    let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(Empty::new())));
    layer
        .clone()
        .wrap_body()
        .layer(service)
        .oneshot(request)
        .await
        .unwrap()
}

/// Reads a valid text; the schema allows it too.
fn read(text: &str) -> Config {
    assert!(schema::allows(text), "{text}");
    Config::from_toml(text).unwrap()
}

/// The file's layer, over a store that connects lazily.
fn layer(text: &str) -> RateLimitLayer {
    let config = read(text);
    config.layer(config.connect_lazy().unwrap())
}

/// A file with this policy, which begins in line 3.
fn with_policy(fields: &str) -> String {
    format!("store = \"memory\"\n\n[[policy]]\n{fields}\n")
}

fn refusal(text: &str) -> String {
    Config::from_toml(text).unwrap_err().to_string()
}

/// One policy with one field replaced or added.
fn with_field(field: &str) -> String {
    let name = field.split_once(" =").unwrap().0;
    let sound = [
        "name = \"client\"",
        "algorithm = \"gcra\"",
        "limit = \"100/min\"",
        "key = \"peer\"",
    ];
    let kept = sound
        .iter()
        .copied()
        .filter(|line| line.split_once(" =").unwrap().0 != name);
    with_policy(
        &[field]
            .into_iter()
            .chain(kept)
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

fn refusal_of(field: &str) -> String {
    refusal(&with_field(field))
}
