//! Several extractors as one, with a composite key.

use std::any::Any;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::error::ConfigError;
use crate::key::Key;
use crate::request::{KeyError, KeyExtractor, KeyKind, RequestHead};

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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use http::Request;

    use super::*;
    use crate::http::extract::{Header, PeerAddr};
    use crate::request::Everybody;

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
    fn what_the_server_does_not_provide_comes_before_what_the_client_leaves_out() {
        let not_provided = || KeyError::NotProvided(Cow::Borrowed("no user"));
        let part = || Fixed(Err(not_provided()));
        let malformed = || Fixed(Err(KeyError::Malformed));
        assert_eq!(extract((missing(), part())), Err(not_provided()));
        assert_eq!(extract((part(), missing())), Err(not_provided()));
        assert_eq!(extract((part(), malformed())), Err(KeyError::Malformed));
        assert_eq!(extract((malformed(), part())), Err(KeyError::Malformed));
    }

    #[test]
    fn parts_that_read_an_address_differently_tell_none() {
        let by = |bits| PeerAddr.ipv6_prefix(bits);
        let told = |extractor: &dyn KeyExtractor, address: &str| {
            let told = extractor.canonical_address(address.parse().unwrap());
            told.map(|address| address.to_string())
        };
        let subscriber = "2001:db8:0:7::7";
        let network = Some("2001:db8::".to_owned());
        assert_eq!(told(&(Everybody, by(56)), subscriber), network);
        assert_eq!(told(&(by(56), by(56), Everybody), subscriber), network);
        assert_eq!(told(&vec![by(56), by(48)], subscriber), network);
        let boxed: Vec<Box<dyn KeyExtractor>> = vec![Box::new(Everybody), Box::new(by(56))];
        assert_eq!(told(&boxed, subscriber), network);
        assert_eq!(told(&(PeerAddr, by(56)), subscriber), None);
        assert_eq!(told(&(Everybody, part("a")), subscriber), None);
        // There is only one way to read an IPv4 address.
        let client = Some("203.0.113.9".to_owned());
        assert_eq!(told(&(PeerAddr, by(56)), "203.0.113.9"), client);
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
}
