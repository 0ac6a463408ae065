//! Combines extractors: lists, tuples, `Box` and `Arc`.

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

/// Matches if any element matches. An empty list is invalid: use [`NoRequest`](super::NoRequest) to
/// match nothing.
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

/// Matches if any element matches. An empty list is invalid. For matchers of different types, use
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
            "an empty list matches no request, leave it out or use `NoRequest`",
        ));
    }
    each.iter().try_for_each(M::validate)
}

/// Implements the traits for `Box<dyn Trait>` and `Arc<dyn Trait>`: extractors that are chosen at
/// run time or shared by policies. Not for every `Box<E>`, because the box of a closure is a
/// closure and already implements the trait.
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
// Boxes of zero-sized types share an address, so pointers cannot be compared.
traits_behind!(Box, |_, _| false);
// Clones of one `Arc` read the same key, even if it holds a closure.
traits_behind!(Arc, Arc::ptr_eq);

/// Joins the keys of all parts. If parts fail, the error is the first kind in this order:
/// misconfigured; malformed, which could hide a denied key; not provided by the server; missing
/// from the request.
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

/// The address of the parts that read addresses, if they agree.
fn agreed(parts: impl IntoIterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
    let mut known = parts.into_iter().flatten();
    let first = known.next()?;
    known.all(|other| other == first).then_some(first)
}

macro_rules! extractor_of_tuple {
    ($($part:ident $position:tt),+) => {
        /// One key of all parts. A request that lacks one part has no key.
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

/// Parts that are chosen at run time. Makes the same key as a tuple of the same parts. An empty
/// list is invalid.
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
