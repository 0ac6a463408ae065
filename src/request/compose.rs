//! Several extractors as one: lists and tuples of them, and those behind a `Box` or an `Arc`.

use std::any::Any;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use smallvec::SmallVec;

use super::extract::{
    AddressExtractor, CostError, CostExtractor, KeyError, KeyExtractor, KeyKind, RequestMatcher,
};
use super::head::RequestHead;
use crate::error::ConfigError;
use crate::key::Key;

/// Matches if any of them does. An empty list is refused: it would be about no request, which
/// [`NoRequest`](super::NoRequest) says.
impl<M: RequestMatcher, const N: usize> RequestMatcher for [M; N] {
    fn matches(&self, request: &RequestHead<'_>) -> bool {
        self.iter().any(|each| each.matches(request))
    }

    fn describe(&self) -> String {
        describe(self)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        validate(self)
    }
}

/// Any of them, of which there has to be one. Those of different kinds are put into boxes:
/// `Vec<Box<dyn RequestMatcher>>`.
impl<M: RequestMatcher> RequestMatcher for Vec<M> {
    fn matches(&self, request: &RequestHead<'_>) -> bool {
        self.iter().any(|each| each.matches(request))
    }

    fn describe(&self) -> String {
        describe(self)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        validate(self)
    }
}

fn describe<M: RequestMatcher>(each: &[M]) -> String {
    each.iter().map(M::describe).collect::<Vec<_>>().join(", ")
}

fn validate<M: RequestMatcher>(each: &[M]) -> Result<(), ConfigError> {
    if each.is_empty() {
        return Err(ConfigError::malformed(
            "requests",
            "[]",
            "an empty list is about no request: leave it out, or say `NoRequest`",
        ));
    }
    each.iter().try_for_each(M::validate)
}

/// Implements the traits for `Box<dyn Trait>` and `Arc<dyn Trait>`, for extractors that are chosen at
/// run time or shared by policies. Not for every `Box<E>`: the box of a closure is a closure itself
/// and has the trait already.
macro_rules! traits_behind {
    ($pointer:ident, $are_one:expr) => {
        impl KeyExtractor for $pointer<dyn KeyExtractor> {
            fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
                (**self).extract(request)
            }

            fn validate(&self) -> Result<(), ConfigError> {
                (**self).validate()
            }

            fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
                let are_one: fn(&Self, &Self) -> bool = $are_one;
                match (other as &dyn Any).downcast_ref::<Self>() {
                    Some(other) => are_one(self, other) || (**self).reads_the_same(&**other),
                    None => (**self).reads_the_same(other),
                }
            }

            fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
                (**self).diagnose(request)
            }

            fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
                (**self).canonical_address(address)
            }

            fn kind(&self) -> KeyKind {
                (**self).kind()
            }
        }

        impl AddressExtractor for $pointer<dyn AddressExtractor> {
            fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
                (**self).address(request)
            }

            fn are_proxies(&self, addresses: &RangeInclusive<IpAddr>) -> bool {
                (**self).are_proxies(addresses)
            }

            fn validate(&self) -> Result<(), ConfigError> {
                (**self).validate()
            }
        }

        impl RequestMatcher for $pointer<dyn RequestMatcher> {
            fn matches(&self, request: &RequestHead<'_>) -> bool {
                (**self).matches(request)
            }

            fn describe(&self) -> String {
                (**self).describe()
            }

            fn validate(&self) -> Result<(), ConfigError> {
                (**self).validate()
            }
        }

        impl CostExtractor for $pointer<dyn CostExtractor> {
            fn cost(&self, request: &RequestHead<'_>) -> Result<u64, CostError> {
                (**self).cost(request)
            }

            fn validate(&self) -> Result<(), ConfigError> {
                (**self).validate()
            }
        }
    };
}
// Where boxes of nothing lie tells nothing.
traits_behind!(Box, |_, _| false);
// One that is shared reads the same, also if it is a closure.
traits_behind!(Arc, Arc::ptr_eq);

/// Makes one key of all parts. If a part is missing or malformed, so is the whole; a part that the
/// server misconfigures takes precedence, whatever the request contains. One that the server does
/// not provide comes before one that the client leaves out, and behind one that is malformed, which
/// could hide a denied key.
fn joined(parts: impl IntoIterator<Item = Result<Key, KeyError>>) -> Result<Key, KeyError> {
    let mut keys = SmallVec::<[Key; 4]>::new();
    let mut failure = None;
    for part in parts {
        match part {
            Ok(key) => keys.push(key),
            Err(misconfigured @ KeyError::Misconfigured(_)) => return Err(misconfigured),
            Err(KeyError::Malformed) => failure = Some(KeyError::Malformed),
            Err(_) if failure == Some(KeyError::Malformed) => {}
            Err(not_provided @ KeyError::NotProvided(_)) => failure = Some(not_provided),
            Err(KeyError::Missing) => failure = failure.or(Some(KeyError::Missing)),
        }
    }
    failure.map_or_else(|| Ok(Key::all(keys)), Err)
}

/// The address on which all parts that read addresses agree. If they differ, nobody can tell which
/// one is meant.
fn agreed(parts: impl IntoIterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
    let mut told = parts.into_iter().flatten();
    let first = told.next()?;
    told.all(|other| other == first).then_some(first)
}

macro_rules! extractor_of_tuple {
    ($($part:ident $position:tt),+) => {
        /// One key of all parts; a request without one of them has no key.
        impl<$($part: KeyExtractor),+> KeyExtractor for ($($part,)+) {
            fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
                joined([$(self.$position.extract(request)),+])
            }

            fn validate(&self) -> Result<(), ConfigError> {
                $(self.$position.validate()?;)+
                Ok(())
            }

            fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
                let other: &dyn Any = other;
                other.downcast_ref::<Self>().is_some_and(|other| {
                    $(self.$position.reads_the_same(&other.$position))&&+
                })
            }

            fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
                None$(.or_else(|| self.$position.diagnose(request)))+
            }

            fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
                agreed([$(self.$position.canonical_address(address)),+])
            }

            fn kind(&self) -> KeyKind {
                KeyKind::All(vec![$(self.$position.kind()),+])
            }
        }
    };
}
extractor_of_tuple!(A 0, B 1);
extractor_of_tuple!(A 0, B 1, C 2);
extractor_of_tuple!(A 0, B 1, C 2, D 3);

/// For parts that are known only at run time. Equal to a tuple of the same parts; at least one
/// part.
impl<E: KeyExtractor> KeyExtractor for Vec<E> {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        joined(self.iter().map(|part| part.extract(request)))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if self.is_empty() {
            return Err(ConfigError::out_of_range(
                "key",
                "an empty list",
                "at least one part",
            ));
        }
        self.iter().try_for_each(E::validate)
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().is_some_and(|other| {
            let mut pairs = self.iter().zip(other);
            self.len() == other.len() && pairs.all(|(one, other)| one.reads_the_same(other))
        })
    }

    fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
        self.iter().find_map(|part| part.diagnose(request))
    }

    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        agreed(self.iter().map(|part| part.canonical_address(address)))
    }

    fn kind(&self) -> KeyKind {
        KeyKind::All(self.iter().map(E::kind).collect())
    }
}
