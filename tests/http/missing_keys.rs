//! Requests without a key, and servers that do not provide what the key needs.

use std::convert::Infallible;

use http::{HeaderMap, Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    ClientAddr, Extension, Header, KeyExtractor, Limit, Limiter, MINUTE, Mode, OnMissingKey,
    PeerAddr, Policy, RateLimitLayer, Wrapped,
};

use support::http_store::{TestStore, Trip};

/// The answers to requests with these lines of `x-user`, one after the other, when one request a
/// minute is allowed.
async fn answers<const N: usize>(
    policy: impl Fn(Policy) -> Policy,
    requests: [&[&str]; N],
) -> [(StatusCode, HeaderMap, String); N] {
    let policy = policy(Policy::new("user", Limit::gcra(1, MINUTE)).by(Header::new("x-user")));
    let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
    let mut service = RateLimitLayer::new(limiter)
        .wrap_body()
        .layer(service_fn(hello));
    let mut answers = Vec::new();
    for lines in requests {
        let mut request = Request::new(());
        for line in lines {
            let line = line.parse().expect("a value");
            request.headers_mut().append("x-user", line);
        }
        answers.push(answer(&mut service, request).await);
    }
    answers.try_into().expect("an answer to each")
}

async fn hello(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::new()))
}

async fn answer<S, B>(service: &mut S, request: Request<()>) -> (StatusCode, HeaderMap, String)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data: Send, Error: std::fmt::Debug>,
{
    use http_body_util::BodyExt;
    let response = service
        .ready()
        .await
        .expect("it is ready")
        .call(request)
        .await;
    let (head, body) = response.expect("a response").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let body = String::from_utf8(body.to_vec()).expect("a text");
    (head.status, head.headers, body)
}

const MISSING: [&[&str]; 4] = [&[], &[""], &["alice", "alice"], &["alice", ""]];

#[tokio::test]
async fn leaving_the_header_out_in_any_way_is_one_bucket() {
    for first in MISSING {
        for second in MISSING {
            let shared = answers(|policy| policy, [first, second, &["alice"], &["alice"]]).await;
            let statuses = shared.map(|(status, _, _)| status.as_u16());
            assert_eq!(statuses, [200, 429, 200, 429], "{first:?}, {second:?}");
        }
    }
}

#[tokio::test]
async fn a_policy_can_reject_whoever_leaves_the_header_out() {
    let reject = |policy: Policy| policy.on_missing_key(OnMissingKey::Reject);
    for missing in MISSING {
        let [rejected, again, told] = answers(reject, [missing, missing, &["alice"]]).await;
        assert_eq!(
            (rejected.0, again.0),
            (StatusCode::BAD_REQUEST, StatusCode::BAD_REQUEST)
        );
        assert!(
            rejected.2.contains("does not identify its sender"),
            "{}",
            rejected.2
        );
        assert_eq!(told.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_policy_can_be_skipped_by_whoever_leaves_the_header_out() {
    let skip = |policy: Policy| policy.on_missing_key(OnMissingKey::Skip);
    for missing in MISSING {
        let skipped = answers(skip, [missing, missing, missing, &["alice"], &["alice"]]).await;
        assert!(
            skipped[..3]
                .iter()
                .all(|(_, headers, _)| !headers.contains_key("ratelimit"))
        );
        let statuses = skipped.map(|(status, _, _)| status.as_u16());
        assert_eq!(statuses, [200, 200, 200, 200, 429]);
    }
}

#[tokio::test]
async fn a_missing_peer_is_explained_with_the_first_request() {
    fn under(policy: Policy, key: impl KeyExtractor) -> RateLimitLayer<Wrapped> {
        let limiter = Limiter::new(TestStore::new(Trip::None), [policy.by(key)]);
        RateLimitLayer::new(limiter.expect("a valid policy")).wrap_body()
    }
    for rule in [
        OnMissingKey::Shared,
        OnMissingKey::Reject,
        OnMissingKey::Skip,
    ] {
        let policy = || Policy::new("client", Limit::gcra(5, MINUTE)).on_missing_key(rule);
        let behind_proxies = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).expect("a valid range");
        for layer in [under(policy(), PeerAddr), under(policy(), behind_proxies)] {
            let mut service = layer.layer(service_fn(hello));
            let request = Request::builder().header("x-forwarded-for", "203.0.113.9");
            let (status, headers, body) =
                answer(&mut service, request.body(()).expect("a request")).await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
            assert!(
                body.contains("into_make_service_with_connect_info"),
                "{body}"
            );
            assert!(!headers.contains_key("ratelimit"));
            assert!(!body.contains("203.0.113.9"), "{body}");
        }
    }
}

/// What an authentication leaves in a request that passes it.
#[derive(Clone)]
struct User(u64);

/// The answers to two requests that have not passed the authentication, and to two of user 7, when
/// one request a minute is allowed.
async fn around_authentication(
    key: impl KeyExtractor,
    policy: impl Fn(Policy) -> Policy,
) -> [(StatusCode, String); 4] {
    let policy = policy(Policy::new("user", Limit::gcra(1, MINUTE)).by(key));
    let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
    let mut service = RateLimitLayer::new(limiter)
        .wrap_body()
        .layer(service_fn(hello));
    let mut answers = Vec::new();
    for user in [None, None, Some(User(7)), Some(User(7))] {
        let mut request = Request::builder()
            .header("x-app", "ios")
            .body(())
            .expect("a request");
        if let Some(user) = user {
            request.extensions_mut().insert(user);
        }
        let (status, _, body) = answer(&mut service, request).await;
        answers.push((status, body));
    }
    answers.try_into().expect("an answer to each")
}

fn by_user() -> Extension<User> {
    Extension::with(|user: &User| user.0)
}

#[tokio::test]
async fn a_limit_outside_of_the_authentication_is_explained() {
    let keys: [Box<dyn KeyExtractor>; 4] = [
        Box::new(by_user()),
        Box::new(Extension::optional(|user: &User| Some(user.0))),
        Box::new((by_user(), Header::new("x-app"))),
        Box::new((Header::new("x-left-out"), by_user())),
    ];
    for (position, key) in keys.into_iter().enumerate() {
        let answers = around_authentication(key, |policy| policy).await;
        for (status, text) in &answers[..2] {
            assert_eq!(*status, StatusCode::INTERNAL_SERVER_ERROR, "{position}");
            assert!(text.contains("inside of the authentication"), "{text}");
            assert!(text.contains("User"), "{text}");
        }
        let [_, _, first, second] = answers;
        assert_eq!(
            (first.0.as_u16(), second.0.as_u16()),
            (200, 429),
            "{position}"
        );
    }
}

#[tokio::test]
async fn a_policy_can_say_what_becomes_of_requests_without_a_user() {
    for (rule, expected) in [
        (OnMissingKey::Shared, [200, 429, 200, 429]),
        (OnMissingKey::Reject, [400, 400, 200, 429]),
        (OnMissingKey::Skip, [200, 200, 200, 429]),
    ] {
        let answers = around_authentication(by_user(), |policy| policy.on_missing_key(rule)).await;
        let statuses = answers.map(|(status, _)| status.as_u16());
        assert_eq!(statuses, expected, "{rule:?}");
    }
}

#[tokio::test]
async fn in_shadow_a_policy_without_a_user_refuses_nobody() {
    let answers = around_authentication(by_user(), |policy| policy.mode(Mode::Shadow)).await;
    let statuses = answers.map(|(status, _)| status.as_u16());
    assert_eq!(statuses, [200, 200, 200, 200]);
}

/// The authentication has run: the server did what it had to.
#[tokio::test]
async fn a_user_who_is_not_logged_in_is_a_missing_key() {
    #[derive(Clone)]
    struct Session {
        user: Option<u64>,
    }
    let key = || Extension::optional(|session: &Session| session.user);
    for (rule, expected) in [
        (None, [200, 429]),
        (Some(OnMissingKey::Reject), [400, 400]),
        (Some(OnMissingKey::Skip), [200, 200]),
    ] {
        let mut policy = Policy::new("user", Limit::gcra(1, MINUTE)).by(key());
        if let Some(rule) = rule {
            policy = policy.on_missing_key(rule);
        }
        let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
        let mut service = RateLimitLayer::new(limiter)
            .wrap_body()
            .layer(service_fn(hello));
        for status in expected {
            let mut request = Request::new(());
            request.extensions_mut().insert(Session { user: None });
            let (answered, _, _) = answer(&mut service, request).await;
            assert_eq!(answered.as_u16(), status, "{rule:?}");
        }
    }
}
