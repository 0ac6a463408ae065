//! `Everybody`: one quota for all requests together.

use super::{KeyError, KeyExtractor, KeyKind, RequestHead, is_equal};
use crate::key::Key;

/// One quota for all requests together: the default of a [`Policy`](crate::Policy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Everybody;

impl KeyExtractor for Everybody {
    fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(Key::everybody())
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        is_equal(self, other)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Everybody
    }
}
