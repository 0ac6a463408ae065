//! Mistakes that requests show although they go on: the log names the policy and the remedy, once a
//! minute.

use std::sync::Arc;

use tower_throttle::{
    ClientAddr, Extension, Key, KeyExtractor, MemoryStore, NoRequest, OnMissingKey, PeerAddr,
    RequestHead, Route, SECOND,
};

use super::*;

/// The warnings so far, each with the policy's name and what it explains.
fn warnings(log: &Log) -> Vec<(String, String)> {
    let mut events = log.events();
    events.retain(|event| event.level == Level::WARN);
    let warning = |event: &Entry| {
        let fields = ["policy", "explanation"].map(|name| event.field(name).to_owned());
        let [policy, explanation] = fields;
        (policy, format!("{}: {explanation}", event.name))
    };
    events.iter().map(warning).collect()
}

fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("client", Limit::gcra(1_000, MINUTE)).by(key)
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    Limiter::new(MemoryStore::new(), policies).unwrap()
}

fn behind(proxies: &[&str]) -> ClientAddr {
    ClientAddr::x_forwarded_for(proxies).unwrap()
}

const FORWARDED_FOR: (&str, &str) = ("x-forwarded-for", "203.0.113.9");

#[tokio::test(start_paused = true)]
async fn an_untrusted_proxy_is_warned_of_once_a_minute() {
    let (log, _listening) = Log::listen();
    let limiter = limiter([by(PeerAddr)]);
    for minute in 1..4 {
        for _ in 0..5 {
            let request = from(Some("127.0.0.1"), &[FORWARDED_FOR]);
            assert_eq!(send(&limiter, request).await, 200);
        }
        // Rules that are read again start no new minute.
        limiter.replace([by(PeerAddr)]).unwrap();
        let request = from(Some("127.0.0.1"), &[FORWARDED_FOR]);
        assert_eq!(send(&limiter, request).await, 200);
        assert_eq!(warnings(&log).len(), minute, "{:#?}", log.events());
        tokio::time::sleep(MINUTE + SECOND).await;
    }
    for (policy, text) in warnings(&log) {
        assert_eq!(policy, "client");
        for advice in ["`ClientAddr`", "client-addr", "trusted_proxies"] {
            assert!(text.contains(advice), "{text}");
        }
        assert!(!text.contains("203.0.113.9"), "{text}");
    }
}

#[tokio::test]
async fn an_unknown_proxy_is_warned_of_however_its_address_is_read() {
    let forwarded = ("forwarded", "for=203.0.113.9");
    let cases: [(Box<dyn KeyExtractor>, _, _); 9] = [
        (Box::new(PeerAddr), "10.0.0.5", forwarded),
        (Box::new(PeerAddr), "fd00::7", FORWARDED_FOR),
        (Box::new(PeerAddr), "::ffff:192.168.1.1", FORWARDED_FOR),
        (Box::new(PeerAddr.ipv6_prefix(56)), "::1", FORWARDED_FOR),
        (
            Box::new((Extension::optional(|id: &u64| Some(*id)), PeerAddr)),
            "127.0.0.1",
            FORWARDED_FOR,
        ),
        (Box::new(vec![PeerAddr]), "127.0.0.1", FORWARDED_FOR),
        // As a file without `trusted_proxies` reads it.
        (Box::new(behind(&[])), "127.0.0.1", FORWARDED_FOR),
        (
            Box::new(behind(&["10.0.0.0/8"])),
            "172.17.0.1",
            FORWARDED_FOR,
        ),
        (
            Box::new(ClientAddr::forwarded(["10.0.0.0/8"]).unwrap()),
            "172.17.0.1",
            FORWARDED_FOR,
        ),
    ];
    for (position, (key, peer, header)) in cases.into_iter().enumerate() {
        let (log, _listening) = Log::listen();
        let limiter = limiter([by(key)]);
        for _ in 0..3 {
            let mut request = from(Some(peer), &[header]);
            request.extensions_mut().insert(7_u64);
            assert_eq!(send(&limiter, request).await, 200);
        }
        let [(policy, text)] = &warnings(&log)[..] else {
            panic!("not one, at {position}: {:#?}", log.events());
        };
        assert_eq!(policy, "client");
        assert!(text.contains("trusted_proxies"), "{text}");
    }
}

#[tokio::test]
async fn direct_clients_and_trusted_proxies_are_no_mistake() {
    let itself = |request: &RequestHead<'_>| PeerAddr.extract(request).ok();
    let cases: [(Box<dyn KeyExtractor>, _, &[_]); 7] = [
        (Box::new(PeerAddr), "127.0.0.1", &[]),
        (Box::new(PeerAddr), "10.0.0.5", &[("x-user", "alice")]),
        // A client can send the header.
        (Box::new(PeerAddr), "198.51.100.1", &[FORWARDED_FOR]),
        (Box::new(itself), "127.0.0.1", &[FORWARDED_FOR]),
        (
            Box::new(behind(&["10.0.0.0/8"])),
            "10.0.0.5",
            &[FORWARDED_FOR],
        ),
        (
            Box::new(behind(&["10.0.0.0/8"])),
            "198.51.100.1",
            &[FORWARDED_FOR],
        ),
        (Box::new(behind(&[])), "127.0.0.1", &[]),
    ];
    let (log, _listening) = Log::listen();
    for (key, peer, headers) in cases {
        assert_eq!(
            send(&limiter([by(key)]), from(Some(peer), headers)).await,
            200
        );
    }
    assert_eq!(warnings(&log), []);
}

#[cfg(feature = "config")]
#[tokio::test]
async fn the_log_shows_what_to_write_to_trust_a_proxy() {
    let text = "store = \"memory\"\n[[policy]]\nname = \"client\"\nalgorithm = \"gcra\"\n\
                limit = \"100/min\"\nkey = ";
    for (key, trusted, is_mistake) in [
        ("client-addr", "", true),
        ("peer", "", true),
        ("peer", "trusted_proxies = [\"10.0.0.0/8\"]\n", true),
        ("client-addr", "trusted_proxies = [\"10.0.0.0/8\"]\n", false),
    ] {
        let (log, _listening) = Log::listen();
        let config = tower_throttle::Config::from_toml(&format!("{trusted}{text}{key:?}")).unwrap();
        let limiter = config.connect().await.unwrap();
        for _ in 0..3 {
            let request = from(Some("10.0.0.5"), &[FORWARDED_FOR]);
            assert_eq!(send(&limiter, request).await, 200);
        }
        let told = warnings(&log);
        assert_eq!(
            told.len(),
            usize::from(is_mistake),
            "{key} {trusted}: {told:?}"
        );
        let names = |(_, text): &(_, String)| text.contains("trusted_proxies");
        assert!(told.iter().all(names), "{told:?}");
    }
}

/// Sends so many requests, of which none has a key.
async fn send_without_key(limiter: &Limiter, times: usize) {
    for _ in 0..times {
        send(limiter, from(None, &[])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_without_a_key_in_100_requests_is_warned_of() {
    let by_user = || by(Extension::optional(|id: &u64| Some(*id)));
    for policy in [
        by(Header::new("x-usre")),
        by(Header::new("x-usre")).on_missing_key(OnMissingKey::Skip),
        by(Header::new("x-usre")).on_missing_key(OnMissingKey::Reject),
        // The authentication is inside of the limit.
        by_user().on_missing_key(OnMissingKey::Skip),
        by(|request: &RequestHead<'_>| request.uri.host().map(Key::from)),
    ] {
        let (log, _listening) = Log::listen();
        let limiter = limiter([policy]);
        send_without_key(&limiter, 99).await;
        assert_eq!(warnings(&log), []);
        send_without_key(&limiter, 50).await;
        let told = warnings(&log);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, "client");
        assert!(told[0].1.contains("on_missing_key"), "{told:?}");
        tokio::time::sleep(MINUTE + SECOND).await;
        send_without_key(&limiter, 50).await;
        assert_eq!(warnings(&log).len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_has_found_a_key_is_not_warned_of() {
    let (log, _listening) = Log::listen();
    let limiter = limiter([by(Header::new("x-user"))]);
    send_without_key(&limiter, 98).await;
    send(&limiter, from(None, &[("x-user", "alice")])).await;
    send_without_key(&limiter, 300).await;
    assert_eq!(warnings(&log), []);
}

/// The status from a service behind two layers.
async fn send_through(outer: &Limiter, inner: &Limiter, request: Request<Body>) -> u16 {
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, ()>(Response::new(Body::new())) });
    let inner = RateLimitLayer::new(inner.clone()).wrap_body().layer(ok);
    let outer = RateLimitLayer::new(outer.clone()).wrap_body().layer(inner);
    outer.oneshot(request).await.unwrap().status().as_u16()
}

fn get(path: &str) -> Request<Body> {
    let mut request = from(None, &[("x-user", "alice")]);
    *request.uri_mut() = path.parse().unwrap();
    request
}

#[tokio::test(start_paused = true)]
async fn double_counting_is_warned_of_once_a_minute() {
    let (log, _listening) = Log::listen();
    let twice = limiter([by(Header::new("x-user"))]);
    for minute in 1..3 {
        for _ in 0..5 {
            assert_eq!(send_through(&twice, &twice, get("/")).await, 200);
        }
        let told = warnings(&log);
        assert_eq!(told.len(), minute, "{told:?}");
        assert_eq!(told[0].0, "client");
        assert!(
            told[0].1.contains("two layers of the same limiter"),
            "{told:?}"
        );
        tokio::time::sleep(MINUTE + SECOND).await;
    }
}

#[tokio::test]
async fn a_request_counted_twice_is_found_whatever_lies_between() {
    let (log, _listening) = Log::listen();
    let twice = limiter([by(Header::new("x-user"))]);
    let between = limiter([by(Header::new("x-user"))]);
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, ()>(Response::new(Body::new())) });
    let layer = RateLimitLayer::new(twice).wrap_body();
    let service = layer.layer(ok);
    let service = RateLimitLayer::new(between).wrap_body().layer(service);
    let service = layer.layer(service);
    service.oneshot(get("/")).await.unwrap();
    assert_eq!(warnings(&log).len(), 1);
}

#[tokio::test]
async fn each_policy_that_counts_a_request_once_is_no_mistake() {
    let (log, _listening) = Log::listen();
    // Two limiters, also with policies of the same name.
    let [outer, inner] = [(), ()].map(|()| limiter([by(Header::new("x-user"))]));
    send_through(&outer, &inner, get("/")).await;
    // A policy that is about other requests, about none, or off, is not asked.
    let policy = |name| Policy::new(name, Limit::gcra(1_000, MINUTE));
    let others = limiter([
        policy("login").on(Route::post("/login")),
        policy("sms").on(NoRequest),
        policy("off").mode(tower_throttle::Mode::Off),
    ]);
    send_through(&others, &others, get("/")).await;
    // Several requests, one after the other.
    for _ in 0..10 {
        send(&outer, get("/")).await;
    }
    assert_eq!(warnings(&log), []);
}

#[tokio::test]
async fn shared_extractors_are_diagnosed_too() {
    let (log, _listening) = Log::listen();
    let peer: Arc<dyn KeyExtractor> = Arc::new(PeerAddr);
    let policies = [
        by(peer.clone()),
        Policy::new("other", Limit::gcra(9, MINUTE)).by(peer),
    ];
    let limiter = limiter(policies);
    send(&limiter, from(Some("127.0.0.1"), &[FORWARDED_FOR])).await;
    // One reading serves both.
    let told = warnings(&log);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, "client");
}
