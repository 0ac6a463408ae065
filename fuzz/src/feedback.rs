//! What an upstream's refusal asks for: nothing it sends fails, and lists of quotas are read as a
//! parser of Structured Fields reads them.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Response};
use sfv::{BareItem, List, ListEntry, Parser};
use tower_throttle::{Feedback, ResponseHead};

/// The bytes are headers, one a line.
pub fn run(data: &[u8]) {
    let mut response = Response::new(());
    *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    for line in data.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            response.headers_mut().append(name, value);
        }
    }
    let announced = Feedback::announced(&ResponseHead::new(&response));
    if response.headers().len() == 1
        && let Some(value) = response.headers().get("ratelimit")
        && let Some(expected) = expected(value.as_bytes())
    {
        assert_eq!(announced, expected.map(Duration::from_secs));
    }
}

/// The longest time of a quota of which nothing remains, if there is one. `None` if that cannot be
/// known so: it is no list, or has what no quota has.
fn expected(value: &[u8]) -> Option<Option<u64>> {
    if value.iter().any(|byte| b"-%(".contains(byte)) {
        return None;
    }
    let list = Parser::new(value).parse::<List>().ok()?;
    let integer = |entry: &ListEntry, key: &str| {
        let ListEntry::Item(item) = entry else {
            return None;
        };
        match item.params.get(key) {
            Some(BareItem::Integer(integer)) => u64::try_from(i64::from(*integer)).ok(),
            _ => None,
        }
    };
    let used_up = list.iter().filter(|entry| integer(entry, "r") == Some(0));
    Some(used_up.filter_map(|entry| integer(entry, "t")).max())
}
