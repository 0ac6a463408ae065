//! Several matchers as one, which matches if any of them does.

use super::{RequestHead, RequestMatcher};
use crate::error::ConfigError;

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
            "requests: got \"[]\": an empty list is about no request: leave it out, or say `NoRequest`"
        );
        assert!([NoRequest; 0].validate().is_err());
    }
}
