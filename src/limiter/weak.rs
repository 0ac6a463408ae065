//! `WeakLimiter`: a limiter that others keep alive.

use std::sync::{Arc, Weak};

use super::{Limiter, Shared};

/// A limiter for as long as there is a clone of it.
pub(crate) struct WeakLimiter(Weak<Shared>);

impl Limiter {
    pub(crate) fn downgrade(&self) -> WeakLimiter {
        WeakLimiter(Arc::downgrade(&self.0))
    }
}

impl WeakLimiter {
    pub(crate) fn upgrade(&self) -> Option<Limiter> {
        self.0.upgrade().map(Limiter)
    }
}
