use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use http::{Method, Request};

use super::*;
use crate::error::ConfigError;
use crate::http::extract::{Header, PeerAddr};
use crate::key::Key;

/// Never valid.
struct Wrong;

impl RequestMatcher for Wrong {
    fn matches(&self, _: &RequestHead<'_>) -> bool {
        false
    }

    fn validate(&self) -> Result<(), ConfigError> {
        Err(ConfigError::malformed("route", "it", "is wrong"))
    }
}

#[test]
fn a_list_of_different_kinds_matches_what_any_of_them_does() {
    let posts = |request: &RequestHead<'_>| request.method == Method::POST;
    let list: Vec<Box<dyn RequestMatcher>> = vec![Box::new(NoRequest), Box::new(posts)];
    let mut request = Request::new(());
    assert!(!list.matches(&RequestHead::new(&request)));
    *request.method_mut() = Method::POST;
    assert!(list.matches(&RequestHead::new(&request)));
    assert!(!Vec::<NoRequest>::new().matches(&RequestHead::new(&request)));
}

#[test]
fn each_item_of_a_list_is_validated() {
    assert!([NoRequest, NoRequest].validate().is_ok());
    let list: Vec<Box<dyn RequestMatcher>> = vec![Box::new(NoRequest), Box::new(Wrong)];
    assert!(list.validate().is_err());
    assert!([Wrong].validate().is_err());
}

/// A list that turned out empty would leave a policy without effect.
#[test]
fn an_empty_list_is_refused() {
    let refusal = Vec::<NoRequest>::new().validate().unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "requests: got \"[]\": an empty list matches no request, leave it out or use `NoRequest`"
    );
    assert!([NoRequest; 0].validate().is_err());
}

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
fn a_request_matches_if_the_inner_matcher_does() {
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

struct Fixed(Result<Key, KeyError>);

impl KeyExtractor for Fixed {
    fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
        self.0.clone()
    }
}

fn extract(extractor: impl KeyExtractor) -> Result<Key, KeyError> {
    extractor.extract(&RequestHead::new(&Request::new(())))
}

fn part(text: &str) -> Fixed {
    Fixed(Ok(Key::from(text)))
}

fn missing() -> Fixed {
    Fixed(Err(KeyError::Missing))
}

#[test]
fn a_tuple_and_a_list_of_the_same_parts_are_the_same_key() {
    let both = Ok(Key::all([Key::from("a"), Key::from("b")]));
    assert_eq!(extract((part("a"), part("b"))), both);
    assert_eq!(extract(vec![part("a"), part("b")]), both);
    let boxed: Vec<Box<dyn KeyExtractor>> = vec![Box::new(part("a")), Box::new(part("b"))];
    assert_eq!(extract(boxed), both);
    assert_ne!(extract((part("b"), part("a"))), both);
    assert_ne!(extract((part("a"), part("b"), part(""))), both);
}

#[test]
fn a_missing_part_leaves_the_whole_missing() {
    assert_eq!(extract((part("a"), missing())), Err(KeyError::Missing));
    assert_eq!(
        extract((part("a"), missing(), part("c"), part("d"))),
        Err(KeyError::Missing)
    );
    let malformed = || Fixed(Err(KeyError::Malformed));
    assert_eq!(extract((malformed(), part("b"))), Err(KeyError::Malformed));
    assert_eq!(extract((malformed(), missing())), Err(KeyError::Malformed));
}

#[test]
fn a_misconfiguration_takes_precedence_over_a_missing_key() {
    let misconfigured = KeyError::Misconfigured(Cow::Borrowed("no peer"));
    let found = extract((missing(), Fixed(Err(misconfigured.clone())), part("c")));
    assert_eq!(found, Err(misconfigured.clone()));
    let malformed = Fixed(Err(KeyError::Malformed));
    let found = extract((malformed, Fixed(Err(misconfigured.clone()))));
    assert_eq!(found, Err(misconfigured));
}

#[test]
fn what_the_server_lacks_comes_before_what_a_client_leaves_out() {
    let not_provided = || KeyError::NotProvided(Cow::Borrowed("no user"));
    let part = || Fixed(Err(not_provided()));
    let malformed = || Fixed(Err(KeyError::Malformed));
    assert_eq!(extract((missing(), part())), Err(not_provided()));
    assert_eq!(extract((part(), missing())), Err(not_provided()));
    assert_eq!(extract((part(), malformed())), Err(KeyError::Malformed));
    assert_eq!(extract((malformed(), part())), Err(KeyError::Malformed));
}

#[test]
fn parts_that_read_an_address_differently_have_none() {
    let by = |bits| PeerAddr.ipv6_prefix(bits);
    let canonical = |extractor: &dyn KeyExtractor, address: &str| {
        let canonical = extractor.canonical_address(address.parse().unwrap());
        canonical.map(|address| address.to_string())
    };
    let subscriber = "2001:db8:0:7::7";
    let network = Some("2001:db8::".to_owned());
    assert_eq!(canonical(&(Everybody, by(56)), subscriber), network);
    assert_eq!(canonical(&(by(56), by(56), Everybody), subscriber), network);
    assert_eq!(canonical(&vec![by(56), by(48)], subscriber), network);
    let boxed: Vec<Box<dyn KeyExtractor>> = vec![Box::new(Everybody), Box::new(by(56))];
    assert_eq!(canonical(&boxed, subscriber), network);
    assert_eq!(canonical(&(PeerAddr, by(56)), subscriber), None);
    assert_eq!(canonical(&(Everybody, part("a")), subscriber), None);
    // There is only one way to read an IPv4 address.
    let client = Some("203.0.113.9".to_owned());
    assert_eq!(canonical(&(PeerAddr, by(56)), "203.0.113.9"), client);
}

#[test]
fn every_part_is_validated_and_an_empty_list_refused() {
    let wrong = || Header::new("");
    assert!((Everybody, wrong()).validate().is_err());
    assert!(
        (Everybody, Everybody, Everybody, wrong())
            .validate()
            .is_err()
    );
    assert!(vec![wrong()].validate().is_err());
    assert!((Everybody, Everybody).validate().is_ok());
    let refusal = Vec::<Everybody>::new().validate().unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "key: got an empty list, expected at least one part"
    );
}
