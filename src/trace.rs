//! Logs and spans with the feature `tracing`; without it, nothing, at no cost.
//!
//! No event and no span shows a subject: at most its hash.

#[cfg(all(feature = "tracing", feature = "config"))]
pub(crate) use tracing::error;
#[cfg(feature = "tracing")]
pub(crate) use tracing::{debug, info, warn};

/// Accepts an event in `tracing`'s syntax and does nothing.
#[cfg(not(feature = "tracing"))]
macro_rules! silent {
    ($($field:ident = $(%)? $value:expr,)* $text:literal) => {{
        $(let _ = &$value;)*
    }};
}

#[cfg(all(not(feature = "tracing"), feature = "config"))]
pub(crate) use silent as error;
#[cfg(not(feature = "tracing"))]
pub(crate) use {silent as debug, silent as info, silent as warn};

/// The time in which a store is asked about a request, until its answer is read.
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

#[cfg(feature = "tracing")]
impl Span {
    pub(crate) fn asking(policies: usize) -> Self {
        let allowed = tracing::field::Empty;
        Self {
            span: tracing::debug_span!("rate_limit", policies, allowed),
        }
    }

    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        self.span.in_scope(work)
    }

    pub(crate) fn answered(&self, is_allowed: bool) {
        self.span.record("allowed", is_allowed);
    }
}

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn asking(_policies: usize) -> Self {
        Self {}
    }

    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    pub(crate) fn answered(&self, _is_allowed: bool) {}
}
