//! Several policies of one request: those whose extractors read the same share one reading, and no
//! policy uses another one's subject.

use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    AccessList, ClientAddr, Everybody, Extension, Header, Host, Key, KeyError, KeyExtractor, Limit,
    Limiter, MINUTE, OnMissingKey, PeerAddr, Policy, RateLimitLayer, RequestHead,
};

use support::http_store::{TestStore, Trip};

/// The statuses of requests with these headers, one after the other.
async fn statuses<const N: usize>(
    policies: impl IntoIterator<Item = Policy>,
    requests: [&[(&'static str, &'static str)]; N],
) -> [u16; N] {
    let limiter = Limiter::new(TestStore::new(Trip::None), policies).expect("sound policies");
    let mut statuses = [0; N];
    for (headers, status) in requests.into_iter().zip(&mut statuses) {
        let request = headers
            .iter()
            .fold(Request::get("/"), |request, (name, value)| {
                request.header(*name, *value)
            });
        *status = status_of(&limiter, request.body(()).expect("a request")).await;
    }
    statuses
}

/// The status from a service behind the limiter.
async fn status_of(limiter: &Limiter, request: Request<()>) -> u16 {
    let hello =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(hello);
    let Ok(response) = service.oneshot(request).await;
    response.status().as_u16()
}

/// A header's value, counting how often it was read.
#[derive(Clone)]
struct Counted {
    header: &'static str,
    reads: Arc<AtomicU32>,
}

impl Counted {
    fn new(header: &'static str) -> Self {
        Self {
            header,
            reads: Arc::default(),
        }
    }

    fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl KeyExtractor for Counted {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let value = request.headers.get(self.header).ok_or(KeyError::Missing)?;
        Ok(Key::header(self.header, value.as_bytes()))
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| other.header == self.header)
    }
}

fn policy(name: &str, permits: u64, key: impl KeyExtractor) -> Policy {
    Policy::new(name, Limit::gcra(permits, MINUTE)).by(key)
}

#[tokio::test]
async fn policies_whose_extractors_read_the_same_share_one_reading() {
    let (user, team) = (Counted::new("x-user"), Counted::new("x-team"));
    let policies = [
        policy("short", 10, user.clone()),
        policy("long", 100, user.clone()),
        policy("longest", 1_000, user.clone()),
        policy("team", 100, team.clone()),
    ];
    let request: &[_] = &[("x-user", "alice"), ("x-team", "red")];
    assert_eq!(statuses(policies, [request; 3]).await, [200; 3]);
    assert_eq!((user.reads(), team.reads()), (3, 3));
}

#[tokio::test]
async fn a_closure_that_policies_share_reads_once_for_all_of_them() {
    let reads = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reads);
    let user: Arc<dyn KeyExtractor> = Arc::new(move |request: &RequestHead<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        request
            .headers
            .get("x-user")
            .map(|user| Key::from(user.as_bytes()))
    });
    let policies = [policy("short", 2, user.clone()), policy("long", 100, user)];
    let (alice, bob): (&[_], &[_]) = (&[("x-user", "alice")], &[("x-user", "bob")]);
    assert_eq!(
        statuses(policies, [alice, alice, alice, bob]).await,
        [200, 200, 429, 200]
    );
    assert_eq!(reads.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn no_policy_uses_the_subject_that_another_has_read() {
    let policies = || {
        [
            policy("first", 2, Header::new("x-user")),
            policy("second", 9, Header::new("X-User")),
            policy("team", 2, Header::new("x-team")),
            policy("last", 9, Header::new("x-user")),
        ]
    };
    let of = |user, team| [("x-user", user), ("x-team", team)];
    let requests = [
        of("alice", "red"),
        of("alice", "blue"),
        // Alice has had two.
        of("alice", "green"),
        of("bob", "red"),
        // Red has had two.
        of("carol", "red"),
        of("carol", "blue"),
    ];
    let answers = statuses(policies(), requests.each_ref().map(|headers| &headers[..])).await;
    assert_eq!(answers, [200, 200, 429, 200, 429, 200]);
    // In every order.
    let [first, second, team, last] = policies();
    let reordered = [last, team, second, first];
    let answers = statuses(reordered, requests.each_ref().map(|headers| &headers[..])).await;
    assert_eq!(answers, [200, 200, 429, 200, 429, 200]);
}

#[tokio::test]
async fn each_policy_decides_by_itself_about_a_missing_key() {
    let lenient = || policy("lenient", 9, Header::new("x-user"));
    let strict = || {
        let strict = policy("strict", 9, Header::new("x-user"));
        strict.on_missing_key(OnMissingKey::Reject)
    };
    let (with, without): (&[_], &[_]) = (&[("x-user", "alice")], &[]);
    for policies in [[lenient(), strict()], [strict(), lenient()]] {
        assert_eq!(statuses(policies, [with, without]).await, [200, 400]);
    }
}

/// Each of them reads something else.
fn extractors() -> Vec<Box<dyn KeyExtractor>> {
    let behind = |ranges: &[&str]| ClientAddr::x_forwarded_for(ranges).expect("sound ranges");
    let forwarded = ClientAddr::forwarded(["10.0.0.0/8"]).expect("sound ranges");
    let by_header = |name| ClientAddr::header(name, ["10.0.0.0/8"]).expect("sound ranges");
    vec![
        Box::new(Everybody),
        Box::new(Host),
        Box::new(PeerAddr),
        Box::new(PeerAddr.ipv6_prefix(48)),
        Box::new(PeerAddr.ipv6_prefix(56)),
        Box::new(Header::new("x-user")),
        Box::new(Header::new("x-team")),
        Box::new(behind(&["10.0.0.0/8"])),
        Box::new(behind(&["10.0.0.0/9"])),
        Box::new(behind(&["10.0.0.0/8", "::1"])),
        Box::new(behind(&["10.0.0.0/8"]).trusted_hops(2)),
        Box::new(behind(&["10.0.0.0/8"]).ipv6_prefix(48)),
        Box::new(forwarded),
        Box::new(by_header("x-real-ip")),
        Box::new(by_header("cf-connecting-ip")),
        Box::new((Header::new("x-user"), PeerAddr)),
        Box::new((Header::new("x-team"), PeerAddr)),
        Box::new((PeerAddr, Header::new("x-user"))),
        Box::new((Header::new("x-user"), PeerAddr, Everybody)),
        Box::new(vec![Header::new("x-user")]),
        Box::new(vec![Header::new("x-user"), Header::new("x-team")]),
        Box::new(vec![Header::new("x-team"), Header::new("x-user")]),
    ]
}

#[test]
fn equal_extractors_read_the_same_and_different_ones_do_not() {
    let (ours, others) = (extractors(), extractors());
    for (position, one) in ours.iter().enumerate() {
        for (other_position, other) in others.iter().enumerate() {
            assert_eq!(
                one.reads_the_same(&**other),
                position == other_position,
                "{position} beside {other_position}"
            );
            // Each in its own box, as in a list made at run time.
            let boxed = one as &dyn KeyExtractor;
            assert_eq!(boxed.reads_the_same(other), position == other_position);
        }
    }
}

#[test]
fn clones_of_an_extension_read_the_same() {
    let by = Extension::with(|id: &u64| *id);
    assert!(by.clone().reads_the_same(&by));
}

#[test]
fn nobody_knows_what_two_closures_read() {
    let closure = |request: &RequestHead<'_>| request.uri.host().map(Key::from);
    let (one, other): (Box<dyn KeyExtractor>, Box<dyn KeyExtractor>) =
        (Box::new(closure), Box::new(closure));
    assert!(!one.reads_the_same(&*other));
    let [one, other]: [Arc<dyn KeyExtractor>; 2] = [one, other].map(Arc::from);
    assert!(!(&one as &dyn KeyExtractor).reads_the_same(&other));
    assert!(!Extension::with(|id: &u64| *id).reads_the_same(&Extension::with(|id: &u64| *id + 1)));
}

/// A user of the application, who is a key wherever one is needed.
#[derive(Clone, Copy)]
struct UserId(u64);

impl From<UserId> for Key {
    fn from(user: UserId) -> Self {
        Self::user(user.0)
    }
}

#[tokio::test]
async fn extension_keys_equal_their_values_outside_of_requests() {
    let extractors: [fn() -> Box<dyn KeyExtractor>; 3] = [
        || Box::new(Extension::<UserId>::new()),
        || Box::new(Extension::with(|user: &UserId| *user)),
        || Box::new(Extension::with(|user: &UserId| Key::user(user.0))),
    ];
    for extractor in extractors {
        let limiter = limiter_of(policy("user", 2, extractor()));
        assert_eq!(status_of_user(&limiter, UserId(7)).await, 200);
        let left = limiter.peek("user", UserId(7)).await.unwrap().remaining();
        assert_eq!(left, 1);
        let _ = limiter.charge("user", UserId(7), 1).await.unwrap();
        assert_eq!(status_of_user(&limiter, UserId(7)).await, 429);
        let _ = limiter.reset("user", UserId(7)).await.unwrap();
        assert_eq!(status_of_user(&limiter, UserId(7)).await, 200);

        limiter.set_denied(AccessList::new().keys([UserId(7)]));
        assert_eq!(status_of_user(&limiter, UserId(7)).await, 403);
        assert_eq!(status_of_user(&limiter, UserId(8)).await, 200);
        limiter.set_denied(AccessList::new());
        limiter.set_allowed(AccessList::new().keys([UserId(7)]));
        for _ in 0..3 {
            assert_eq!(status_of_user(&limiter, UserId(7)).await, 200);
        }
    }
}

#[tokio::test]
async fn an_extension_reads_a_user_as_number_or_as_digits() {
    let extractors: [fn() -> Extension<UserId>; 2] = [
        || Extension::with(|user: &UserId| user.0),
        || Extension::with(|user: &UserId| user.0.to_string()),
    ];
    for extractor in extractors {
        let limiter = limiter_of(policy("user", 1, extractor()));
        for user in [Key::user(7), Key::user("7"), UserId(7).into()] {
            assert_eq!(status_of_user(&limiter, UserId(7)).await, 200);
            assert_eq!(status_of_user(&limiter, UserId(7)).await, 429);
            let _ = limiter.reset("user", &user).await.unwrap();
            limiter.set_denied(AccessList::new().keys([user]));
            assert_eq!(status_of_user(&limiter, UserId(7)).await, 403);
            limiter.set_denied(AccessList::new());
        }
    }
}

/// The id alone may be that of an order.
#[tokio::test]
async fn an_id_by_itself_is_not_that_user() {
    let limiter = limiter_of(policy("user", 1, Extension::with(|user: &UserId| user.0)));
    assert!(limiter.check("user", 7).await.unwrap().is_allowed());
    assert_eq!(status_of_user(&limiter, UserId(7)).await, 200);
    let _ = limiter.reset("user", 7).await.unwrap();
    assert_eq!(status_of_user(&limiter, UserId(7)).await, 429);
}

fn limiter_of(policy: Policy) -> Limiter {
    Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy")
}

/// The status of a request that was authenticated as this user.
async fn status_of_user(limiter: &Limiter, user: UserId) -> u16 {
    let mut request = Request::new(());
    request.extensions_mut().insert(user);
    status_of(limiter, request).await
}
