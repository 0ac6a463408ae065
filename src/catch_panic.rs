//! `catch_panic`: ends panics of the user's own code where they would cost more than a request.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the user's own, such as an observer or a store. Returns `None` if it panics, which
/// the panic hook has then reported.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}
