//! Implements the traits for `Box<dyn Trait>` and `Arc<dyn Trait>`, for extractors that are chosen at
//! run time or shared by policies. Not for every `Box<E>`: the box of a closure is a closure itself
//! and has the trait already.

use std::any::Any;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{
    AddressExtractor, CostError, CostExtractor, KeyError, KeyExtractor, KeyKind, RequestHead,
    RequestMatcher,
};
use crate::error::ConfigError;
use crate::key::Key;

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

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    /// Overrides every default of the traits.
    #[derive(PartialEq)]
    struct Chosen;

    fn refusal() -> ConfigError {
        ConfigError::malformed("chosen", "it", "is wrong")
    }

    impl KeyExtractor for Chosen {
        fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
            Ok(Key::from("alice"))
        }

        fn validate(&self) -> Result<(), ConfigError> {
            Err(refusal())
        }

        fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
            crate::request::is_equal(self, other)
        }

        fn diagnose(&self, _: &RequestHead<'_>) -> Option<&'static str> {
            Some("chosen wrongly")
        }

        fn canonical_address(&self, _: IpAddr) -> Option<IpAddr> {
            Some(CLIENT)
        }

        fn kind(&self) -> KeyKind {
            KeyKind::Host
        }
    }

    impl AddressExtractor for Chosen {
        fn address(&self, _: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
            Ok(CLIENT)
        }

        fn are_proxies(&self, _: &RangeInclusive<IpAddr>) -> bool {
            true
        }

        fn validate(&self) -> Result<(), ConfigError> {
            Err(refusal())
        }
    }

    impl RequestMatcher for Chosen {
        fn matches(&self, _: &RequestHead<'_>) -> bool {
            true
        }

        fn describe(&self) -> String {
            "all".to_owned()
        }

        fn validate(&self) -> Result<(), ConfigError> {
            Err(refusal())
        }
    }

    impl CostExtractor for Chosen {
        fn cost(&self, _: &RequestHead<'_>) -> Result<u64, CostError> {
            Ok(7)
        }

        fn validate(&self) -> Result<(), ConfigError> {
            Err(refusal())
        }
    }

    fn about_a_request<T>(ask: impl Fn(&RequestHead<'_>) -> T) -> T {
        ask(&RequestHead::new(&Request::new(())))
    }

    #[test]
    fn a_key_is_read_as_the_extractor_within_reads_it() {
        fn ask(by: impl KeyExtractor) {
            assert_eq!(
                about_a_request(|head| by.extract(head)),
                Ok(Key::from("alice"))
            );
            assert_eq!(by.validate(), Err(refusal()));
            assert_eq!(
                about_a_request(|head| by.diagnose(head)),
                Some("chosen wrongly")
            );
            assert_eq!(by.canonical_address([203, 0, 113, 9].into()), Some(CLIENT));
            assert!(by.reads_the_same(&Chosen));
            assert_eq!(by.kind(), KeyKind::Host);
        }
        ask(Box::new(Chosen) as Box<dyn KeyExtractor>);
        ask(Arc::new(Chosen) as Arc<dyn KeyExtractor>);
        ask(Chosen);
    }

    #[test]
    fn an_address_is_read_as_the_extractor_within_reads_it() {
        fn ask(by: impl AddressExtractor) {
            assert_eq!(about_a_request(|head| by.address(head)), Ok(CLIENT));
            assert!(by.are_proxies(&(CLIENT..=CLIENT)));
            assert_eq!(by.validate(), Err(refusal()));
        }
        ask(Box::new(Chosen) as Box<dyn AddressExtractor>);
        ask(Arc::new(Chosen) as Arc<dyn AddressExtractor>);
    }

    #[test]
    fn a_request_matches_if_the_matcher_within_says_so() {
        fn ask(by: impl RequestMatcher) {
            assert!(about_a_request(|head| by.matches(head)));
            assert_eq!(by.describe(), "all");
            assert_eq!(by.validate(), Err(refusal()));
        }
        ask(Box::new(Chosen) as Box<dyn RequestMatcher>);
        ask(Arc::new(Chosen) as Arc<dyn RequestMatcher>);
    }

    #[test]
    fn a_cost_is_read_as_the_extractor_within_reads_it() {
        fn ask(by: impl CostExtractor) {
            assert_eq!(about_a_request(|head| by.cost(head)), Ok(7));
            assert_eq!(by.validate(), Err(refusal()));
        }
        ask(Box::new(Chosen) as Box<dyn CostExtractor>);
        ask(Arc::new(Chosen) as Arc<dyn CostExtractor>);
    }
}
