//! tower_governor: governor as a layer.

use axum::body::Body;
use governor::middleware::StateInformationMiddleware;
use http::Request;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};

use super::Allowance;
use super::layered::WHO;

/// A header names the caller.
#[derive(Clone)]
pub struct ByHeader;

impl KeyExtractor for ByHeader {
    type Key = String;

    fn extract<B>(&self, request: &Request<B>) -> Result<String, GovernorError> {
        let who = request.headers().get(WHO);
        let who = who.and_then(|value| value.to_str().ok());
        who.map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

/// With headers that say what is left.
pub fn layer(allowance: Allowance) -> GovernorLayer<ByHeader, StateInformationMiddleware, Body> {
    let config = GovernorConfigBuilder::default()
        .key_extractor(ByHeader)
        .period(allowance.interval())
        .burst_size(allowance.burst)
        .use_headers()
        .finish();
    GovernorLayer::new(config.expect("a sound quota"))
}
