//! What a policy reads of a request: its head, through small traits that `http/` implements.

mod compose;
mod extract;
mod head;
mod host;

pub(crate) use self::extract::is_equal;
pub use self::extract::{
    AddressExtractor, CostError, CostExtractor, Everybody, KeyError, KeyExtractor, KeyKind,
    NoRequest, RequestMatcher, extractor,
};
pub use self::head::RequestHead;
#[cfg(feature = "config")]
pub(crate) use self::host::canonical as canonical_host;

#[cfg(test)]
mod tests;
