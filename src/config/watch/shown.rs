//! What layers show to clients. A reload changes it for all layers at once.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Response;

use crate::config::Config;
use crate::config::rejection::RejectionChoice;
use crate::http::{OnRejection, QuotaHeaders, Rejection};
use crate::limiter::Limiter;
use crate::request::RequestHead;
use crate::tower::RateLimitLayer;

/// The quota headers and the rejection responses; clones share them.
#[derive(Clone)]
pub(super) struct Shown {
    headers: Arc<ArcSwap<QuotaHeaders>>,
    rejection: Arc<ArcSwap<RejectionChoice>>,
}

impl Shown {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            headers: Arc::new(ArcSwap::from_pointee(config.headers)),
            rejection: Arc::new(ArcSwap::from_pointee(config.rejection)),
        }
    }

    pub(super) fn show(&self, config: &Config) {
        self.headers.store(Arc::new(config.headers));
        self.rejection.store(Arc::new(config.rejection));
    }

    /// A layer that shows what is in force.
    pub(super) fn layer(&self, limiter: Limiter) -> RateLimitLayer {
        RateLimitLayer::new(limiter)
            .headers_in_force(Arc::clone(&self.headers))
            .on_rejection(InForce(Arc::clone(&self.rejection)))
    }
}

/// Responds as the file currently says.
struct InForce(Arc<ArcSwap<RejectionChoice>>);

impl OnRejection for InForce {
    fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        self.0.load().respond(request, rejection)
    }
}
