use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response};
use serde_json::{Value, json};

use super::*;
use crate::request::RequestHead;

fn rejection(kind: RejectionKind, secs: Option<u64>) -> Rejection {
    Rejection {
        kind,
        policies: vec!["client".to_owned(), "a \"b\" \\c".to_owned()],
        retry_after: secs.map(Duration::from_secs),
        retry_after_secs: secs,
        has_unasked_policies: false,
        explanation: "too\tmuch".to_owned().into(),
        by_handler: None,
    }
}

fn answered(rejection: Rejection, builder: &dyn OnRejection) -> Response<Bytes> {
    rejection.response(&RequestHead::new(&Request::new(())), builder)
}

const FAILED: RejectionKind = RejectionKind::StoreFailed(StoreErrorKind::TimedOut);

/// Each kind with its status and the end of its type.
const KINDS: [(RejectionKind, u16, &str); 9] = [
    (RejectionKind::QuotaExceeded, 429, "#quota-exceeded"),
    (RejectionKind::NeverFits, 429, "#quota-exceeded"),
    (RejectionKind::Banned, 429, "#quota-exceeded"),
    (FAILED, 503, "#temporary-reduced-capacity"),
    (RejectionKind::Refused, 403, "about:blank"),
    (RejectionKind::BadAddress, 400, "about:blank"),
    (RejectionKind::MissingKey, 400, "about:blank"),
    (RejectionKind::BadCost, 400, "about:blank"),
    (RejectionKind::Misconfigured, 500, "about:blank"),
];

fn problem(rejection: Rejection) -> Value {
    let response = answered(rejection, &ProblemJson);
    serde_json::from_slice(response.body()).expect("well-formed JSON")
}

#[test]
fn a_problem_survives_every_name_and_text() {
    assert_eq!(
        problem(rejection(RejectionKind::QuotaExceeded, Some(7))),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "policies \"client\", \"a \\\"b\\\" \\\\c\": too\tmuch, retry after 7 s",
            "violated-policies": ["client", "a \"b\" \\c"],
            "retry-after-secs": 7,
        })
    );
}

#[test]
fn every_kind_has_its_status_and_type() {
    for (kind, status, fragment) in KINDS {
        let problem = problem(rejection(kind, None));
        assert_eq!(problem["status"], status);
        assert!(problem["type"].as_str().unwrap().ends_with(fragment));
        assert_eq!(
            problem.get("violated-policies").is_some(),
            fragment.starts_with('#'),
            "{kind:?}"
        );
        assert_eq!(problem.get("retry-after-secs"), None);
    }
}

/// The answer to a request with this method and content type.
fn answered_to(method: Method, content_type: &str, rejection: Rejection) -> Response<Bytes> {
    let request = Request::builder()
        .method(method)
        .header(CONTENT_TYPE, content_type)
        .body(())
        .expect("a content type");
    rejection.response(&RequestHead::new(&request), &ProblemJson)
}

const GRPC: [&str; 4] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc-web",
    "application/grpc-web-text;charset=utf-8",
];

#[test]
fn no_content_type_alone_turns_a_rejection_into_a_success() {
    for (kind, status, _) in KINDS {
        for content_type in GRPC {
            for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
                let asked = format!("{kind:?} {method} {content_type}");
                let rejection = rejection(kind, Some(7));
                let response = answered_to(method, content_type, rejection);
                assert_eq!(response.status(), status, "{asked}");
                assert_eq!(response.headers()[RETRY_AFTER], "7", "{asked}");
                assert_eq!(response.headers()[CACHE_CONTROL], "no-store", "{asked}");
                assert!(!response.headers().contains_key("grpc-status"), "{asked}");
            }
        }
    }
}

#[test]
fn calls_over_grpc_are_answered_with_200_which_is_not_stored_either() {
    for (kind, ..) in KINDS {
        for content_type in GRPC {
            let response = answered_to(Method::POST, content_type, rejection(kind, Some(7)));
            assert_eq!(response.status(), 200, "{kind:?} {content_type}");
            assert!(response.headers().contains_key("grpc-status"));
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store", "{kind:?}");
        }
    }
}

#[test]
fn any_response_of_a_builder_gets_no_store_and_retry_after() {
    let teapot = |_: &RequestHead<'_>, _: &Rejection| {
        let mut response = Response::new("short and stout");
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let rejection = rejection(RejectionKind::QuotaExceeded, Some(7));
    let response = answered(rejection.clone(), &teapot);
    assert_eq!(response.status(), 418);
    assert_eq!(response.body(), "short and stout");
    assert_eq!(response.headers()[RETRY_AFTER], "7");
    assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    assert_eq!(response.extensions().get(), Some(&rejection));
}

#[test]
fn a_builder_that_sets_no_status_answers_with_that_of_the_rejection() {
    let silent = |_: &RequestHead<'_>, _: &Rejection| Response::new("go away");
    let with = |status: u16| {
        move |_: &RequestHead<'_>, _: &Rejection| {
            let response = Response::builder().status(status);
            response.body("go away").expect("a status")
        }
    };
    for (kind, status, _) in KINDS {
        let answer = |builder: &dyn OnRejection| answered(rejection(kind, None), builder);
        assert_eq!(answer(&silent).status(), status, "{kind:?}");
        assert_eq!(answer(&with(200)).status(), status, "{kind:?}");
        for own in [202, 204, 303, 418, 429, 500, 503] {
            assert_eq!(answer(&with(own)).status(), own, "{kind:?}");
        }
        for content_type in GRPC {
            let request = Request::post("/").header(CONTENT_TYPE, content_type);
            let request = request.body(()).expect("a content type");
            let head = RequestHead::new(&request);
            let response = rejection(kind, None).response(&head, &silent);
            assert_eq!(response.status(), 200, "{kind:?} {content_type}");
        }
    }
}

#[test]
fn headers_of_the_builder_stay() {
    let own = |_: &RequestHead<'_>, _: &Rejection| {
        let response = Response::builder()
            .header(RETRY_AFTER, "60")
            .header(CACHE_CONTROL, "private, no-store");
        response.body("").expect("valid headers")
    };
    let response = answered(rejection(RejectionKind::QuotaExceeded, Some(7)), &own);
    assert_eq!(response.headers()[RETRY_AFTER], "60");
    assert_eq!(response.headers()[CACHE_CONTROL], "private, no-store");
}

#[test]
fn a_redirect_is_not_delayed_and_stored_as_its_builder_says() {
    let elsewhere = |_: &RequestHead<'_>, _: &Rejection| {
        let response = Response::builder().status(303).header("location", "/slow");
        response.body("").expect("valid headers")
    };
    let response = answered(rejection(RejectionKind::QuotaExceeded, Some(7)), &elsewhere);
    assert_eq!(response.headers().get(RETRY_AFTER), None);
    assert_eq!(response.headers().get(CACHE_CONTROL), None);
}

#[test]
fn a_content_length_of_the_builder_stays_also_for_head() {
    // As a builder does that skips the page that nobody will see.
    let own = |_: &RequestHead<'_>, _: &Rejection| {
        let response = Response::builder().header(CONTENT_LENGTH, "1000");
        response.body("").expect("valid headers")
    };
    let request = Request::head("/").body(()).expect("a valid path");
    let rejection = rejection(RejectionKind::QuotaExceeded, Some(7));
    let response = rejection.response(&RequestHead::new(&request), &own);
    assert_eq!(response.headers()[CONTENT_LENGTH], "1000");
    assert!(response.body().is_empty());
}

#[test]
fn an_answer_without_a_body_gets_no_length_for_head() {
    let empty = |_: &RequestHead<'_>, _: &Rejection| {
        let response = Response::builder().status(StatusCode::NO_CONTENT);
        response.body("").expect("a valid status")
    };
    let request = Request::head("/").body(()).expect("a valid path");
    let rejection = rejection(RejectionKind::QuotaExceeded, Some(7));
    let response = rejection.response(&RequestHead::new(&request), &empty);
    assert_eq!(response.headers().get(CONTENT_LENGTH), None);
}

#[test]
fn plain_text_is_one_line() {
    let response = answered(rejection(RejectionKind::NeverFits, None), &PlainText);
    assert_eq!(
        response.body(),
        "policies \"client\", \"a \\\"b\\\" \\\\c\": too\\tmuch\n"
    );
}

#[test]
fn a_boxed_or_shared_builder_answers_as_the_one_within() {
    fn answered_by(builder: impl OnRejection) -> Response<Bytes> {
        answered(rejection(RejectionKind::Banned, Some(7)), &builder)
    }
    let plain = answered_by(PlainText);
    let chosen: Box<dyn OnRejection> = Box::new(PlainText);
    let shared: Arc<dyn OnRejection> = Arc::new(PlainText);
    for answer in [answered_by(chosen), answered_by(shared)] {
        assert_eq!(answer.headers(), plain.headers());
        assert_eq!(answer.body(), plain.body());
    }
}
