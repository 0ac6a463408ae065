use std::collections::HashSet;

use http::{HeaderMap, Request};
use proptest::prelude::*;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::*;
use crate::error::StoreErrorKind;
use crate::http::RejectionKind;

fn rejection(kind: RejectionKind, retry_after: Option<Duration>) -> Rejection {
    Rejection {
        kind,
        policies: vec!["client".to_owned(), "everybody".to_owned()],
        retry_after,
        retry_after_secs: retry_after.map(|wait| wait.as_secs() + 1),
        has_unasked_policies: false,
        explanation: "it is too much".into(),
        by_handler: None,
    }
}

fn headers(rejection: &Rejection) -> HeaderMap {
    response(Dialect::Grpc, rejection).headers().clone()
}

/// What a tonic client makes of it. It panics on invalid base64.
fn received(rejection: &Rejection) -> Status {
    Status::from_header_map(&headers(rejection)).expect("there is a status")
}

fn quota_ids(status: &Status) -> Option<Vec<String>> {
    let failure = status.get_details_quota_failure()?;
    let ids = failure.violations.into_iter().map(|each| each.quota_id);
    Some(ids.collect())
}

#[test]
fn every_kind_has_its_code_its_details_and_its_pushback() {
    let names = || Some(vec!["client".to_owned(), "everybody".to_owned()]);
    let failed = RejectionKind::StoreFailed(StoreErrorKind::TimedOut);
    let second = Some(Duration::from_secs(1));
    for (kind, wait, code, expected_quota_ids) in [
        (
            RejectionKind::QuotaExceeded,
            second,
            Code::ResourceExhausted,
            names(),
        ),
        (
            RejectionKind::Banned,
            second,
            Code::ResourceExhausted,
            names(),
        ),
        (
            RejectionKind::NeverFits,
            None,
            Code::ResourceExhausted,
            names(),
        ),
        (failed, second, Code::Unavailable, None),
        (RejectionKind::Refused, None, Code::PermissionDenied, None),
        (RejectionKind::BadAddress, None, Code::InvalidArgument, None),
        (RejectionKind::MissingKey, None, Code::InvalidArgument, None),
        (RejectionKind::BadCost, None, Code::InvalidArgument, None),
        (RejectionKind::Misconfigured, None, Code::Internal, None),
    ] {
        let status = received(&rejection(kind, wait));
        assert_eq!(status.code(), code, "{kind:?}");
        let info = status.get_details_retry_info();
        assert_eq!(
            info.map(|info| info.retry_delay),
            wait.map(Some),
            "{kind:?}"
        );
        assert_eq!(quota_ids(&status), expected_quota_ids, "{kind:?}");
        let has_details = wait.is_some() || expected_quota_ids.is_some();
        assert_eq!(!status.details().is_empty(), has_details, "{kind:?}");
        let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
        let pushback: i32 = pushback.to_str().unwrap().parse().unwrap();
        match wait {
            Some(_) => assert!((1_000..=1_100).contains(&pushback), "{pushback}"),
            None => assert_eq!(pushback, -1),
        }
    }
}

#[test]
fn nobody_waits_for_leases_to_lapse() {
    let mut rejection = rejection(RejectionKind::QuotaExceeded, Some(Duration::from_secs(60)));
    rejection.retry_after_secs = Some(1);
    let info = received(&rejection).get_details_retry_info();
    assert_eq!(info.unwrap().retry_delay, Some(Duration::from_secs(1)));
    assert_ne!(headers(&rejection)["grpc-retry-pushback-ms"], "-1");
}

#[test]
fn a_violation_names_the_policy_and_nobody() {
    let status = received(&rejection(RejectionKind::QuotaExceeded, None));
    let failure = status.get_details_quota_failure().unwrap();
    for violation in failure.violations {
        assert_eq!(violation.subject, "");
        assert_eq!(violation.description, "");
        assert!(violation.quota_dimensions.is_empty());
    }
}

fn kinds() -> impl Strategy<Value = RejectionKind> {
    prop::sample::select(vec![
        RejectionKind::QuotaExceeded,
        RejectionKind::NeverFits,
        RejectionKind::Banned,
        RejectionKind::StoreFailed(StoreErrorKind::Full),
        RejectionKind::BadCost,
    ])
}

proptest! {
    #[test]
    fn the_details_are_small_and_readable_whatever_they_hold(
        kind in kinds(),
        // Longer names than a policy can have, and more policies than anybody has.
        policies in prop::collection::vec("[ -~]{1,200}", 0..100),
        explanation in ".{0,400}",
        micros in prop::option::of(any::<u64>()),
    ) {
        let retry_after = micros.map(Duration::from_micros);
        let rejection = Rejection {
            kind,
            policies: policies.clone(),
            retry_after,
            retry_after_secs: retry_after.map(|wait| wait.as_secs() + 1),
            has_unasked_policies: false,
            explanation: explanation.into(),
            by_handler: None,
        };
        let headers = headers(&rejection);
        let encoded = headers.get("grpc-status-details-bin");
        if let Some(encoded) = encoded {
            prop_assert!(encoded.len() < 1024, "{}", encoded.len());
            prop_assert!(!encoded.as_bytes().contains(&b'='));
        }
        let status = received(&rejection);
        // Percent-encoding makes it at most three times as long.
        prop_assert!(status.message().len() <= LONGEST_MESSAGE);
        let sentence = rejection.to_string();
        match status.message().strip_suffix("...") {
            Some(start) => prop_assert!(sentence.starts_with(start)),
            None => prop_assert_eq!(status.message(), sentence),
        }

        let details = status.check_error_details().unwrap();
        let shown = details.retry_info().and_then(|info| info.retry_delay);
        prop_assert_eq!(shown, retry_after);
        if let Some(shown) = quota_ids(&status) {
            prop_assert!(policies.starts_with(&shown));
            if let Some(next) = policies.get(shown.len()) {
                // With its tags and lengths, it would have been too large.
                prop_assert!(status.details().len() + next.len() + 8 > 767);
            }
        }
    }
}

/// It would describe the whole response.
#[cfg(feature = "tonic")]
#[test]
fn a_status_that_a_method_returns_has_the_pushback_and_no_content_type() {
    let second = Some(Duration::from_secs(1));
    let status = Status::from(rejection(RejectionKind::QuotaExceeded, second));
    let shown = status.metadata();
    assert!(shown.contains_key("grpc-retry-pushback-ms"));
    assert!(!shown.contains_key("content-type"));
}

#[test]
fn the_status_inside_is_the_one_outside() {
    use tonic_types::pb;
    let rejection = rejection(
        RejectionKind::QuotaExceeded,
        Some(Duration::from_millis(1_500)),
    );
    let status = received(&rejection);
    let inside: pb::Status = tonic_prost::prost::Message::decode(status.details()).unwrap();
    assert_eq!(inside.code, i32::from(status.code()));
    assert_eq!(inside.message, status.message());
}

fn dialect(content_type: &str) -> Option<Dialect> {
    let request = Request::post("/").header(CONTENT_TYPE, content_type);
    Dialect::of(&RequestHead::new(&request.body(()).unwrap()))
}

#[test]
fn grpc_is_known_by_its_content_type() {
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;charset=utf-8",
        "application/grpc ; charset=utf-8",
        "application/grpc\t; charset=utf-8",
        "Application/GRPC",
    ] {
        assert_eq!(dialect(content_type), Some(Dialect::Grpc), "{content_type}");
    }
    for content_type in [
        "application/json",
        "application/grpcx",
        "application/grpc-webby",
        "application",
        "",
    ] {
        assert_eq!(dialect(content_type), None, "{content_type}");
    }
    let without = Request::post("/").body(()).unwrap();
    assert_eq!(Dialect::of(&RequestHead::new(&without)), None);
}

#[test]
fn grpc_web_is_answered_in_its_own_content_type() {
    for content_type in [
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text;charset=utf-8",
    ] {
        let own = HeaderValue::from_static(content_type);
        assert_eq!(dialect(content_type), Some(Dialect::GrpcWeb(own)));
    }
}

#[test]
fn a_long_content_type_makes_no_long_answer() {
    for plain in ["application/grpc-web", "application/grpc-web-text"] {
        let longest = format!("{plain}+{}", "x".repeat(127 - plain.len()));
        for (content_type, answered) in [
            (longest.clone(), &*longest),
            (format!("{longest}x"), plain),
            (format!("{plain};{}", "a=b;".repeat(2_000)), plain),
        ] {
            let answered = HeaderValue::try_from(answered).unwrap();
            let expected = Some(Dialect::GrpcWeb(answered));
            assert_eq!(dialect(&content_type), expected, "{content_type}");
        }
    }
}

#[test]
fn messages_are_percent_encoded_outside_of_printable_ascii() {
    assert_eq!(percent_encoded("50% \"a\"\n ü"), "50%25 \"a\"%0A %C3%BC");
}

#[test]
fn the_shortest_and_the_longest_pushback_of_a_wait() {
    for (wait, shortest, longest) in [
        (Duration::ZERO, 0, 10),
        (Duration::from_nanos(1), 1, 11),
        (Duration::from_millis(20), 20, 30),
        (Duration::from_micros(20_001), 21, 31),
        (Duration::from_secs(1), 1_000, 1_100),
        (LONGEST_PUSHBACK, 10_000, 11_000),
    ] {
        let jitters = longest - shortest;
        assert_eq!(millis(wait, 0), shortest);
        assert_eq!(millis(wait, jitters), longest);
        assert_eq!(millis(wait, jitters + 1), shortest);
    }
}

#[test]
fn a_long_wait_and_one_that_does_not_help_are_not_to_be_retried() {
    let longer = LONGEST_PUSHBACK + Duration::from_micros(1);
    for wait in [None, Some(longer), Some(Duration::MAX)] {
        assert_eq!(pushback(wait), "-1", "{wait:?}");
    }
    assert_ne!(pushback(Some(LONGEST_PUSHBACK)), "-1");
}

#[test]
fn clients_denied_together_get_different_pushbacks() {
    let shown: HashSet<_> = (0..100).map(|_| pushback(Some(LONGEST_PUSHBACK))).collect();
    assert!(shown.len() > 50, "{shown:?}");
}

proptest! {
    #[test]
    fn no_pushback_is_too_short(micros in 0..=10_000_000_u64) {
        let wait = Duration::from_micros(micros);
        let shown = pushback(Some(wait));
        let shown = Duration::from_millis(shown.to_str().unwrap().parse().unwrap());
        prop_assert!(shown >= wait);
        // The tenth is taken of the whole milliseconds.
        let rounded = wait + Duration::from_millis(1);
        prop_assert!(shown <= rounded + (rounded / 10).max(Duration::from_millis(10)));
    }
}
