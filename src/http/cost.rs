//! `HeaderCost`: the cost that a request states in a header.

use http::HeaderMap;

use crate::error::ConfigError;
use crate::limit::{ANY_COST, MOST_PERMITS};
use crate::request::{CostError, CostExtractor, RequestHead};

use super::field::{Field, FieldValue};

/// Reads a request's cost from a header; 1 when the header is absent.
///
/// The value is a whole number from 1 to 999999999999999, in decimal digits. Anything else is answered
/// with 400, naming the header: a misread cost would be worse than a refused one.
///
/// Whoever sets the header sets the price. Have a gateway set it, and remove it from client
/// requests: a client that can choose the cost chooses 1.
///
/// ```
/// use tower_throttle::{HeaderCost, Limit, MINUTE, Policy};
///
/// let policy = Policy::new("tokens", Limit::gcra(10_000, MINUTE))
///     .cost_by(HeaderCost::new("x-cost"));
/// ```
#[derive(Clone, Debug)]
pub struct HeaderCost(Field);

impl HeaderCost {
    /// Reads the header of this name, in any case.
    ///
    /// [`Limiter::new`](crate::Limiter::new) refuses a name that no header can have.
    pub fn new(name: impl AsRef<str>) -> Self {
        Self(Field::new(name.as_ref()))
    }

    fn refusal(&self, what: &str) -> CostError {
        CostError::new(format!(
            "the header {} {what}; expected one whole number from {ANY_COST}",
            self.0.name()
        ))
    }

    fn read(&self, headers: &HeaderMap) -> Result<u64, CostError> {
        let digits = match self.0.read(headers) {
            FieldValue::Absent => return Ok(1),
            FieldValue::Once(b"") => return Err(self.refusal("is empty")),
            FieldValue::Once(value) => value,
            FieldValue::Repeated => return Err(self.refusal("was sent more than once")),
        };
        // Checked by hand because the standard parser accepts a plus sign too.
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(self.refusal("is not a number in decimal digits"));
        }
        match std::str::from_utf8(digits).map(str::parse) {
            Ok(Ok(0)) => Err(self.refusal("is 0")),
            Ok(Ok(cost @ 1..=MOST_PERMITS)) => Ok(cost),
            _ => Err(self.refusal("is too large")),
        }
    }
}

impl CostExtractor for HeaderCost {
    fn cost(&self, request: &RequestHead<'_>) -> Result<u64, CostError> {
        self.read(request.headers)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn cost(values: &[&[u8]]) -> Result<u64, String> {
        let mut request = Request::new(());
        for value in values {
            let value = http::HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append("x-cost", value);
        }
        HeaderCost::new("X-Cost")
            .cost(&RequestHead::new(&request))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_absent_header_costs_1() {
        assert_eq!(cost(&[]), Ok(1));
    }

    #[test]
    fn the_whole_documented_range_is_read() {
        for (value, expected) in [
            ("1", 1),
            ("250", 250),
            (" 7\t", 7),
            ("007", 7),
            ("999999999999999", MOST_PERMITS),
        ] {
            assert_eq!(cost(&[value.as_bytes()]), Ok(expected), "{value:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_header_and_says_what_is_wrong_and_what_is_right() {
        assert_eq!(
            cost(&[b"-1"]),
            Err(
                "the header x-cost is not a number in decimal digits; expected one whole number \
                 from 1 to 999999999999999"
                    .to_owned()
            )
        );
        for (values, wrong) in [
            (&[&b""[..]][..], "is empty"),
            (&[b"  "], "is empty"),
            (&[b"1", b"1"], "was sent more than once"),
            (&[b"0"], "is 0"),
            (&[b"000"], "is 0"),
            (&[b"1000000000000000"], "is too large"),
            (&[b"99999999999999999999999999999999"], "is too large"),
            (&[b"+1"], "decimal digits"),
            (&[b"1.0"], "decimal digits"),
            (&[b"1e3"], "decimal digits"),
            (&[b"0x10"], "decimal digits"),
            (&[b"1, 1"], "decimal digits"),
            (&[b"1 2"], "decimal digits"),
            (&[b"\xd9\xa1"], "decimal digits"),
            (&[b"\xff"], "decimal digits"),
        ] {
            let refusal = cost(values).unwrap_err();
            assert!(refusal.contains(wrong), "{values:?}: {refusal}");
        }
    }

    #[test]
    fn a_name_that_no_header_can_have_is_refused() {
        let refusal = HeaderCost::new("x cost").validate().unwrap_err();
        assert!(refusal.to_string().starts_with("header: got \"x cost\": "));
        assert!(HeaderCost::new("x-cost").validate().is_ok());
    }
}
