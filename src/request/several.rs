//! Several matchers as one, which matches if any of them does.

use super::{RequestHead, RequestMatcher};
use crate::error::ConfigError;

/// Matches if any of them does.
impl<M: RequestMatcher, const N: usize> RequestMatcher for [M; N] {
    fn matches(&self, request: &RequestHead<'_>) -> bool {
        self.iter().any(|each| each.matches(request))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.iter().try_for_each(M::validate)
    }
}

/// Any of them. Those of different kinds are put into boxes: `Vec<Box<dyn RequestMatcher>>`.
impl<M: RequestMatcher> RequestMatcher for Vec<M> {
    fn matches(&self, request: &RequestHead<'_>) -> bool {
        self.iter().any(|each| each.matches(request))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.iter().try_for_each(M::validate)
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};

    use super::*;
    use crate::request::NoRequest;

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
        assert!(!list.matches(&RequestHead::of(&request)));
        *request.method_mut() = Method::POST;
        assert!(list.matches(&RequestHead::of(&request)));
        assert!(!Vec::<NoRequest>::new().matches(&RequestHead::of(&request)));
    }

    #[test]
    fn each_item_of_a_list_is_validated() {
        assert!([NoRequest, NoRequest].validate().is_ok());
        let list: Vec<Box<dyn RequestMatcher>> = vec![Box::new(NoRequest), Box::new(Wrong)];
        assert!(list.validate().is_err());
        assert!([Wrong].validate().is_err());
    }
}
