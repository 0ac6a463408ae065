//! Implements the traits for `Box<dyn Trait>`, for extractors chosen at run time. Not for every
//! `Box<E>`: the box of a closure is a closure itself and has the trait already.

use std::any::Any;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::{
    AddressExtractor, CostError, CostExtractor, KeyError, KeyExtractor, LimitExtractor,
    RequestHead, RequestMatcher,
};
use crate::error::ConfigError;
use crate::key::Key;
use crate::limit::Limit;

impl KeyExtractor for Box<dyn KeyExtractor> {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        (**self).extract(request)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        let boxed = (other as &dyn Any).downcast_ref::<Self>();
        (**self).reads_the_same(boxed.map_or(other, |other| &**other))
    }

    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        (**self).canonical_address(address)
    }
}

impl AddressExtractor for Box<dyn AddressExtractor> {
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

impl RequestMatcher for Box<dyn RequestMatcher> {
    fn matches(&self, request: &RequestHead<'_>) -> bool {
        (**self).matches(request)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }
}

impl CostExtractor for Box<dyn CostExtractor> {
    fn cost(&self, request: &RequestHead<'_>) -> Result<u32, CostError> {
        (**self).cost(request)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }
}

impl LimitExtractor for Box<dyn LimitExtractor> {
    fn limit(&self, request: &RequestHead<'_>, key: &Key) -> Option<Limit> {
        (**self).limit(request, key)
    }
}

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

        fn canonical_address(&self, _: IpAddr) -> Option<IpAddr> {
            Some(CLIENT)
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

        fn validate(&self) -> Result<(), ConfigError> {
            Err(refusal())
        }
    }

    impl CostExtractor for Chosen {
        fn cost(&self, _: &RequestHead<'_>) -> Result<u32, CostError> {
            Ok(7)
        }

        fn validate(&self) -> Result<(), ConfigError> {
            Err(refusal())
        }
    }

    impl LimitExtractor for Chosen {
        fn limit(&self, _: &RequestHead<'_>, _: &Key) -> Option<Limit> {
            Some(Limit::concurrency(7))
        }
    }

    fn about_a_request<T>(ask: impl Fn(&RequestHead<'_>) -> T) -> T {
        ask(&RequestHead::of(&Request::new(())))
    }

    #[test]
    fn a_key_is_read_as_what_is_in_the_box_reads_it() {
        fn ask(by: impl KeyExtractor) {
            assert_eq!(
                about_a_request(|head| by.extract(head)),
                Ok(Key::from("alice"))
            );
            assert_eq!(by.validate(), Err(refusal()));
            assert_eq!(by.canonical_address([203, 0, 113, 9].into()), Some(CLIENT));
            let boxed: Box<dyn KeyExtractor> = Box::new(Chosen);
            assert!(boxed.reads_the_same(&by));
        }
        ask(Box::new(Chosen) as Box<dyn KeyExtractor>);
        ask(Chosen);
    }

    #[test]
    fn a_boxed_extractor_reads_addresses_as_the_one_within() {
        fn ask(by: impl AddressExtractor) {
            assert_eq!(about_a_request(|head| by.address(head)), Ok(CLIENT));
            assert!(by.are_proxies(&(CLIENT..=CLIENT)));
            assert_eq!(by.validate(), Err(refusal()));
        }
        ask(Box::new(Chosen) as Box<dyn AddressExtractor>);
    }

    #[test]
    fn a_boxed_matcher_matches_as_the_one_within() {
        fn ask(by: impl RequestMatcher) {
            assert!(about_a_request(|head| by.matches(head)));
            assert_eq!(by.validate(), Err(refusal()));
        }
        ask(Box::new(Chosen) as Box<dyn RequestMatcher>);
    }

    #[test]
    fn a_boxed_cost_and_limit_are_those_within() {
        fn ask(by: impl CostExtractor, limit_by: impl LimitExtractor) {
            assert_eq!(about_a_request(|head| by.cost(head)), Ok(7));
            assert_eq!(by.validate(), Err(refusal()));
            let limit = about_a_request(|head| limit_by.limit(head, &Key::everybody()));
            assert_eq!(limit, Some(Limit::concurrency(7)));
        }
        let limit: Box<dyn LimitExtractor> = Box::new(Chosen);
        ask(Box::new(Chosen) as Box<dyn CostExtractor>, limit);
    }
}
