//! Which requests are gRPC: those that get an answer that gRPC clients understand.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, Method, Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{AlwaysDeny, Everybody, Limit, Limiter, Policy, RateLimitLayer};

/// A longer content type of gRPC-Web is not what the answer has.
const LONGEST_ANSWERED: usize = 128;

/// The bytes are the content type of requests that are denied.
pub fn run(data: &[u8]) {
    let Ok(content_type) = HeaderValue::from_bytes(data) else {
        return;
    };
    assert_is_plain_http(&denied(Method::GET, &content_type));
    let response = denied(Method::POST, &content_type);
    let headers = response.headers();
    match family(&data.to_ascii_lowercase()) {
        Some(family) => {
            assert_eq!(response.status(), 200);
            assert_eq!(headers["grpc-status"], "8");
            assert_eq!(headers["cache-control"], "no-store");
            let answered = &headers["content-type"];
            match family {
                Family::Native => assert_eq!(answered, "application/grpc"),
                Family::Web if data.len() <= LONGEST_ANSWERED => assert_eq!(answered, content_type),
                Family::Web => assert!(answered.len() < LONGEST_ANSWERED),
            }
        }
        None => assert_is_plain_http(&response),
    }
}

fn denied(method: Method, content_type: &HeaderValue) -> Response<impl Sized> {
    let policy = Policy::new("a 50% \"tide\"", Limit::gcra(1, Duration::from_secs(1)));
    let store = AlwaysDeny::new(Duration::from_secs(7));
    let limiter = Limiter::new(store, [policy.by(Everybody)]).expect("a sound policy");
    let hello = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
    let service = RateLimitLayer::new(limiter).wrap_body().layer(hello);
    let request = Request::builder().method(method);
    let request = request.header("content-type", content_type);
    let request = request.body(()).expect("a sound request");
    let answer = service.oneshot(request).now_or_never();
    let Ok(response) = answer.expect("the store answers at once");
    response
}

fn assert_is_plain_http<B>(response: &Response<B>) {
    let headers = response.headers();
    assert_eq!(response.status(), 429);
    assert_eq!(headers["retry-after"], "7");
    assert_eq!(headers["cache-control"], "no-store");
    assert!(!headers.contains_key("grpc-status"));
}

#[derive(Clone, Copy, PartialEq)]
enum Family {
    Native,
    Web,
}

/// By a list of all the media types there are.
fn family(content_type: &[u8]) -> Option<Family> {
    let is_end = |byte: &u8| b"+; \t".contains(byte);
    match content_type.split(is_end).next()? {
        b"application/grpc" => Some(Family::Native),
        b"application/grpc-web" | b"application/grpc-web-text" => Some(Family::Web),
        _ => None,
    }
}
