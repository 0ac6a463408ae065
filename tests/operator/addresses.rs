//! Subjects that are addresses: the key has as much of an address as the policy uses.

use serde_json::json;
use tower_throttle::{
    ClientAddr, Everybody, Extension, HOUR, KeyExtractor, Limit, Peer, PeerAddr, Policy,
    RequestHead,
};

use crate::{Site, status_from, ten};

#[tokio::test]
async fn an_address_is_the_client_that_the_extractors_see() {
    let policies = [
        ten("by 64 bits").by(PeerAddr),
        ten("by 56 bits").by(PeerAddr.ipv6_prefix(56)),
        ten("all").by((PeerAddr, Everybody)),
        ten("user").by(Extension::with(|user: &u64| *user)),
    ];
    let site = Site::of(policies).await;
    for (from, written, by_56) in [
        ("203.0.113.9", "::ffff:203.0.113.9", "203.0.113.9"),
        ("64:ff9b::203.0.113.8", "203.0.113.8", "203.0.113.8"),
        (
            "2001:db8:1:2::7",
            "2001:db8:1:2:ffff::",
            "2001:db8:1:3::/56",
        ),
        ("fe80::1", "fe80::1", "fe80::1/56"),
    ] {
        assert_eq!(status_from(&site.limiter, from).await, 200);
        let written = json!({ "address": written });
        assert_eq!(site.left("by 64 bits", written.clone()).await, 9, "{from}");
        let by_56 = json!({ "address": by_56 });
        assert_eq!(site.left("by 56 bits", by_56).await, 9, "{from}");
        assert_eq!(site.left("all", json!([written, "everybody"])).await, 9);
    }
    assert_eq!(site.left("user", json!({ "user": 7 })).await, 6);
    assert_eq!(site.left("user", json!({ "user": "7" })).await, 6);
    // By itself, a number is no user.
    let number = json!({ "policy": "user", "subject": { "number": 7 } });
    assert_eq!(site.refused("peek", number).await.0, 400);
}

#[tokio::test]
async fn a_client_is_reset_by_any_of_its_addresses_in_the_prefix() {
    let behind = |proxies: [&str; 1]| ClientAddr::x_forwarded_for(proxies).unwrap();
    let keys: [Box<dyn KeyExtractor>; 4] = [
        Box::new(PeerAddr),
        Box::new(PeerAddr.ipv6_prefix(56)),
        Box::new(behind(["10.0.0.0/8"]).ipv6_prefix(48)),
        Box::new(PeerAddr.ipv6_prefix(128)),
    ];
    for key in keys {
        let site = Site::of([Policy::new("client", Limit::sliding_log(1, HOUR)).by(key)]).await;
        let client = "2001:db8:0:7::7";
        assert_eq!(status_from(&site.limiter, client).await, 200);
        assert_eq!(status_from(&site.limiter, client).await, 429);
        assert_eq!(site.left("client", json!({ "address": client })).await, 0);
        let body = json!({ "policy": "client", "subject": { "address": client } });
        site.post_ok("reset", body).await;
        assert_eq!(status_from(&site.limiter, client).await, 200);

        // In code.
        let address = site
            .limiter
            .canonical_address("client", client.parse().unwrap());
        let address = address.unwrap().unwrap();
        let _ = site.limiter.reset("client", address).await.unwrap();
        assert_eq!(status_from(&site.limiter, client).await, 200);
    }
}

#[tokio::test]
async fn the_address_part_of_a_key_is_read_as_the_policy_reads_it() {
    let by_56 = || {
        ClientAddr::x_forwarded_for(["2001:db8:f::/48"])
            .unwrap()
            .ipv6_prefix(56)
    };
    let site = Site::of([
        ten("both").by((Everybody, by_56())),
        ten("client").by(by_56()),
    ])
    .await;
    assert_eq!(status_from(&site.limiter, "2001:db8:0:7::7").await, 200);
    let both = json!(["everybody", { "address": "2001:db8:0:7::7" }]);
    assert_eq!(site.left("both", both).await, 9);
    // A trusted proxy that does not say for whom.
    assert_eq!(status_from(&site.limiter, "2001:db8:f:7::7").await, 200);
    let unattributed = json!({ "unattributed": "2001:db8:f:7::7" });
    assert_eq!(site.left("client", unattributed).await, 9);
}

#[tokio::test]
async fn an_address_is_refused_if_its_key_part_is_unknown() {
    let whole = |request: &RequestHead<'_>| match request.extensions.get::<Peer>() {
        Some(Peer::Address(address)) => Some(address.ip()),
        _ => None,
    };
    let site = Site::of([ten("client").by(whole)]).await;
    assert_eq!(status_from(&site.limiter, "2001:db8::7").await, 200);
    for path in ["peek", "reset"] {
        let body = json!({ "policy": "client", "subject": { "address": "2001:db8::7" } });
        let (status, detail) = site.refused(path, body).await;
        assert_eq!(status, 400);
        assert!(
            detail.contains("2001:db8::7/128 for the whole address"),
            "{detail}"
        );
    }
    assert_eq!(
        site.left("client", json!({ "address": "2001:db8::7/128" }))
            .await,
        9
    );
    // It is one client with any prefix.
    for client in ["203.0.113.9", "fe80::7"] {
        assert_eq!(status_from(&site.limiter, client).await, 200);
        assert_eq!(site.left("client", json!({ "address": client })).await, 9);
    }
    let asked = "2001:db8::7".parse().unwrap();
    assert_eq!(site.limiter.canonical_address("client", asked), Ok(None));
    assert!(site.limiter.canonical_address("clients", asked).is_err());
}
