//! Keys of your own, as a closure and as a type, and a key of two parts:
//! `cargo run --example custom_key`.

use std::error::Error;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use tower::ServiceExt;
use tower_throttle::{
    Header, Key, KeyError, KeyExtractor, Limit, Limiter, MINUTE, MemoryStore, OnMissingKey, Policy,
    RateLimitLayer, RequestHead, extractor,
};

/// The tenant is the first label of the host: `acme` in `acme.example.com`. A client can send any
/// host, so a proxy in front has to check it.
#[derive(Clone)]
struct Tenant {
    domain: &'static str,
}

impl KeyExtractor for Tenant {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        let host = request.host().ok_or(KeyError::Missing)?;
        let tenant = host.strip_suffix(self.domain);
        let tenant = tenant.and_then(|tenant| tenant.strip_suffix('.'));
        tenant.map(Key::from).ok_or(KeyError::Missing)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tenant = Tenant {
        domain: "example.com",
    };
    let limiter = Limiter::new(
        MemoryStore::new(),
        [
            Policy::new("tenant", Limit::gcra(4, MINUTE))
                .by(tenant.clone())
                .on_missing_key(OnMissingKey::Reject),
            // Two parts: user 7 of one tenant is not user 7 of another.
            Policy::new("user", Limit::gcra(2, MINUTE)).by((tenant, Header::new("x-user"))),
            // A closure: `None` means that the request has no key.
            Policy::new("language", Limit::gcra(1_000, MINUTE)).by(extractor(|request| {
                let language = request.headers.get("accept-language")?;
                language.to_str().ok().map(str::to_ascii_lowercase)
            })),
        ],
    )?;
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(limiter));

    for (host, user) in [
        ("acme.example.com", "7"),
        ("acme.example.com", "7"),
        ("acme.example.com", "7"),
        ("zenith.example.com", "7"),
        ("elsewhere.org", "7"),
    ] {
        let request = Request::get("/")
            .header("host", host)
            .header("x-user", user);
        let response = app.clone().oneshot(request.body(Body::empty())?).await?;
        println!("user {user} of {host}: {}", response.status());
    }
    Ok(())
}
