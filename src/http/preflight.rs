//! CORS preflights.

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use crate::request::RequestHead;

/// Whether a browser asks if code from another origin may send some other request: Fetch standard,
/// section "CORS-preflight request".
pub(crate) fn is_preflight(request: &RequestHead<'_>) -> bool {
    let has = |name| request.headers.contains_key(name);
    *request.method == Method::OPTIONS && has(ORIGIN) && has(ACCESS_CONTROL_REQUEST_METHOD)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_preflight_has_the_method_and_both_headers() {
        let origin = "origin";
        let method = "access-control-request-method";
        for (verb, names, expected) in [
            ("OPTIONS", &[origin, method][..], true),
            ("OPTIONS", &[origin], false),
            ("OPTIONS", &[method], false),
            ("OPTIONS", &[], false),
            ("GET", &[origin, method], false),
        ] {
            let mut request = Request::builder().method(verb);
            for name in names {
                request = request.header(*name, "x");
            }
            let request = request.body(()).unwrap();
            assert_eq!(
                is_preflight(&RequestHead::new(&request)),
                expected,
                "{verb} {names:?}"
            );
        }
    }
}
