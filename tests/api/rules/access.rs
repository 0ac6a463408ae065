//! Clients that are refused, and clients that are let through.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::{Method, Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    AccessList, ClientAddr, Header, HeaderCost, Host, Key, Limit, Limiter, MINUTE, MemoryStore,
    Mode, OnMissingKey, Outcome, PeerAddr, Policy, RateLimitLayer, RequestHead, Route, Rules,
};

use super::{App, one_a_minute};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::FORBIDDEN;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const UNREADABLE: StatusCode = StatusCode::BAD_REQUEST;

const PROXY: &str = "10.0.0.5:443";

fn rules() -> Rules {
    Rules::new([one_a_minute("api")])
}

fn limiter(rules: impl Into<Rules>) -> Limiter {
    Limiter::new(MemoryStore::new(), rules).unwrap()
}

/// A list of addresses behind proxies in 10.0.0.0/8.
fn forwarded(ranges: &[&str]) -> AccessList {
    let client = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    AccessList::new().addresses(client, ranges).unwrap()
}

fn users(names: &[&str]) -> AccessList {
    let key = |name: &&str| Key::header("x-user", name.as_bytes());
    AccessList::new().keys(names.iter().map(key))
}

async fn status_from(app: &App, address: &str) -> StatusCode {
    let headers = [("x-user", "alice"), ("x-forwarded-for", address)];
    app.get("/", &headers).await.status()
}

/// A gateway or a service that reads only the first of them would still see mallory.
const TWICE: [[(&str, &str); 2]; 2] = [
    [("x-user", "mallory"), ("x-user", "mallory")],
    [("x-user", "mallory"), ("x-user", "bob")],
];

#[tokio::test]
async fn a_listed_key_cannot_be_hidden_by_repeating_its_header() {
    for on_missing_key in [OnMissingKey::Shared, OnMissingKey::Skip] {
        for mode in [Mode::Enforce, Mode::Shadow] {
            let policy = one_a_minute("user").on_missing_key(on_missing_key);
            let rules = Rules::new([policy.mode(mode)]);
            let limiter = limiter(rules.deny(users(&["mallory"])));
            let app = App::behind(&limiter).await;
            for headers in TWICE {
                assert_eq!(app.get("/", &headers).await.status(), UNREADABLE);
            }
            assert_eq!(
                app.get("/", &[]).await.status(),
                OK,
                "who says nothing is in no list"
            );
        }
    }
}

/// What reads only the first line, or less strictly, would still see mallory's host.
const HIDDEN_HOSTS: [&[(&str, &str)]; 4] = [
    &[("host", "mallory.example"), ("host", "mallory.example")],
    &[("host", "mallory.example"), ("host", "bob.example")],
    &[("host", "mallory.example..")],
    &[("host", "mallory.example:http")],
];

fn denying_a_host() -> Limiter {
    let policy = Policy::new("tenant", Limit::gcra(100, MINUTE)).by(Host);
    let denied = AccessList::new().keys([Key::from("mallory.example")]);
    limiter(Rules::new([policy]).deny(denied))
}

#[tokio::test]
async fn a_listed_host_cannot_be_hidden_by_a_host_that_cannot_be_read() {
    let app = App::behind(&denying_a_host()).await;
    for headers in HIDDEN_HOSTS {
        let status = app.get("/", headers).await.status();
        assert_eq!(status, UNREADABLE, "{headers:?}");
    }
    for (host, status) in [("mallory.example", REFUSED), ("bob.example", OK)] {
        let found = app.get("/", &[("host", host)]).await.status();
        assert_eq!(found, status, "{host}");
    }
}

/// Many services read the header, whatever the target.
#[tokio::test]
async fn a_listed_host_cannot_be_hidden_by_another_one_in_the_target() {
    let mut app = App::behind(&denying_a_host()).await;
    let client = reqwest::Client::builder().http2_prior_knowledge();
    app.client = client.build().unwrap();
    let hidden = [("host", "mallory.example")];
    assert_eq!(app.get("/", &hidden).await.status(), UNREADABLE);
    assert_eq!(app.get("/", &[]).await.status(), OK);
}

#[tokio::test]
async fn a_listed_key_cannot_be_hidden_by_an_allowed_address() {
    let policy = Policy::new("user", Limit::gcra(100, MINUTE));
    let policy = policy.by((Header::new("x-tenant"), Header::new("x-user")));
    let rules = Rules::new([policy])
        .deny(users(&["mallory"]))
        .allow(forwarded(&["203.0.113.9"]));
    let app = App::with_peer(&limiter(rules), PROXY).await;
    for headers in TWICE {
        let headers = [headers[0], headers[1], ("x-forwarded-for", "203.0.113.9")];
        assert_eq!(app.get("/", &headers).await.status(), UNREADABLE);
    }
}

#[tokio::test]
async fn a_repeated_header_is_a_missing_key_if_no_key_is_denied() {
    let limiter = limiter(rules().deny(forwarded(&["203.0.113.9"])));
    let app = App::with_peer(&limiter, PROXY).await;
    assert_eq!(app.get("/", &TWICE[0]).await.status(), OK);
    assert_eq!(
        app.get("/", &[]).await.status(),
        DENIED,
        "they share one quota"
    );
}

#[tokio::test]
async fn an_address_on_the_deny_list_is_refused_before_counting() {
    for range in [
        "203.0.113.0/24",
        "203.0.113.9",
        "::ffff:203.0.113.0/120",
        "64:ff9b::203.0.113.9",
        "64:ff9b::cb00:7100/120",
        "64:ff9b::cb00:0/112",
    ] {
        let denied = forwarded(&[range, "2001:db8:bad::/48"]);
        let limiter = limiter(rules().deny(denied));
        let app = App::with_peer(&limiter, PROXY).await;
        for address in [
            "203.0.113.9",
            "::ffff:203.0.113.9",
            "64:ff9b::203.0.113.9",
            "2001:db8:bad:7::1",
            "198.51.100.1, 203.0.113.9",
        ] {
            let status = status_from(&app, address).await;
            assert_eq!(status, REFUSED, "{address} of {range}");
        }
        for (address, status) in [("203.1.113.9", OK), ("203.0.113.9, 198.51.100.1", DENIED)] {
            let found = status_from(&app, address).await;
            assert_eq!(found, status, "{address} of {range}");
        }
    }
}

/// Otherwise `::/0` would be everybody.
#[tokio::test]
async fn mixed_ranges_do_not_match_ipv4() {
    for range in ["::/0", "64:ff9b::/64"] {
        let limiter = limiter(rules().deny(forwarded(&[range])));
        let app = App::with_peer(&limiter, PROXY).await;
        assert_eq!(status_from(&app, "64:ff9b::1:0:0").await, REFUSED);
        for address in ["203.0.113.9", "::ffff:203.0.113.8", "64:ff9b::203.0.113.7"] {
            let status = status_from(&app, address).await;
            assert_ne!(status, REFUSED, "{address} of {range}");
        }
    }
}

/// Whoever has read it.
#[tokio::test]
async fn addresses_from_closures_are_looked_up_in_the_same_form() {
    for range in ["203.0.113.0/24", "64:ff9b::cb00:7100/120"] {
        for address in ["203.0.113.9", "::ffff:203.0.113.9", "64:ff9b::203.0.113.9"] {
            let address: IpAddr = address.parse().unwrap();
            let read = move |_: &RequestHead<'_>| Some(address);
            let denied = AccessList::new().addresses(read, [range]).unwrap();
            let limiter = limiter(rules().deny(denied));
            let app = App::behind(&limiter).await;
            assert_eq!(app.status("alice").await, REFUSED, "{address} of {range}");
        }
    }
}

/// Clients come through NAT64; an IPv4 address like a proxy's does not make one a proxy.
#[tokio::test]
async fn a_listed_nat64_address_may_embed_one_of_a_proxy() {
    let denied = forwarded(&["64:ff9b::10.0.0.7"]);
    let limiter = limiter(rules().deny(denied));
    let app = App::with_peer(&limiter, PROXY).await;
    assert_eq!(status_from(&app, "64:ff9b::10.0.0.7").await, REFUSED);
    assert_eq!(
        status_from(&app, "198.51.100.1, 64:ff9b::10.0.0.7").await,
        REFUSED
    );
    assert_eq!(status_from(&app, "198.51.100.1, 10.0.0.7").await, OK);
}

#[tokio::test]
async fn a_refusal_says_what_it_is_and_nothing_about_quotas() {
    let limiter = limiter(rules().deny(users(&["mallory"])));
    let app = App::behind(&limiter).await;
    let response = app.get("/", &[("x-user", "mallory")]).await;
    assert_eq!(response.status(), REFUSED);
    let headers = response.headers();
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["content-type"], "application/problem+json");
    assert!(!headers.contains_key("retry-after"));
    assert!(!headers.contains_key("ratelimit"));
    let problem: serde_json::Value = response.json().await.unwrap();
    assert_eq!(
        problem,
        serde_json::json!({
            "type": "about:blank",
            "title": "Forbidden",
            "status": 403,
            "detail": "policy \"api\": requests of this client are refused",
        })
    );
}

#[tokio::test]
async fn an_address_on_the_allow_list_is_let_through_uncounted() {
    let allowed = forwarded(&["203.0.113.9"]);
    let limiter = limiter(rules().allow(allowed));
    let app = App::with_peer(&limiter, PROXY).await;
    for _ in 0..3 {
        assert_eq!(status_from(&app, "203.0.113.9").await, OK);
    }
    assert_eq!(status_from(&app, "203.0.113.10").await, OK);
    assert_eq!(status_from(&app, "203.0.113.10").await, DENIED);
}

#[tokio::test]
async fn keys_are_refused_and_let_through_as_the_policies_read_them() {
    let limiter = limiter(rules().deny(users(&["mallory"])).allow(users(&["prober"])));
    let app = App::behind(&limiter).await;
    for _ in 0..3 {
        assert_eq!(app.status("mallory").await, REFUSED);
        assert_eq!(app.status("prober").await, OK);
    }
    assert_eq!(app.status("alice").await, OK);
    assert_eq!(app.status("alice").await, DENIED);

    let outcome = async |user: &str| {
        let key = Key::header("x-user", user.as_bytes());
        limiter.check("api", key).await.unwrap().outcome()
    };
    assert_eq!(outcome("mallory").await, Outcome::Refused);
    assert_eq!(outcome("prober").await, Outcome::Unlimited);
    assert_eq!(outcome("bob").await, Outcome::Allowed);
}

#[tokio::test]
async fn a_client_on_both_lists_is_refused() {
    let limiter = limiter(
        rules()
            .deny(forwarded(&["203.0.113.9"]))
            .allow(forwarded(&["203.0.113.0/24"])),
    );
    let app = App::with_peer(&limiter, PROXY).await;
    assert_eq!(status_from(&app, "203.0.113.9").await, REFUSED);
    for _ in 0..2 {
        assert_eq!(status_from(&app, "203.0.113.8").await, OK);
    }
}

#[tokio::test]
async fn a_denied_key_is_refused_also_at_an_allowed_address() {
    let limiter = limiter(
        rules()
            .deny(users(&["mallory"]))
            .allow(forwarded(&["203.0.113.9"])),
    );
    let app = App::with_peer(&limiter, PROXY).await;
    let from_the_office = async |user: &str| {
        let headers = [("x-user", user), ("x-forwarded-for", "203.0.113.9")];
        app.get("/", &headers).await.status()
    };
    for _ in 0..2 {
        assert_eq!(from_the_office("mallory").await, REFUSED);
        assert_eq!(from_the_office("alice").await, OK);
    }
}

#[tokio::test]
async fn a_listed_address_comes_before_any_other_fault() {
    let insists = Policy::new("insists", Limit::gcra(1, MINUTE))
        .by(Header::new("x-key"))
        .on_missing_key(OnMissingKey::Reject);
    let limiter = limiter(
        Rules::new([one_a_minute("api"), insists])
            .deny(users(&["mallory"]))
            .allow(forwarded(&["203.0.113.9"])),
    );
    let app = App::with_peer(&limiter, PROXY).await;
    assert_eq!(status_from(&app, "203.0.113.9").await, OK);
}

#[tokio::test]
async fn the_lists_go_before_what_a_request_says_of_its_cost() {
    let limiter = Limiter::new(
        MemoryStore::new(),
        Rules::new([one_a_minute("api").cost_by(HeaderCost::new("x-cost"))])
            .deny(users(&["mallory"]))
            .allow(users(&["prober"])),
    )
    .unwrap();
    let app = App::behind(&limiter).await;
    let with_bad_cost = async |user: &str| {
        let headers = [("x-user", user), ("x-cost", "much")];
        app.get("/", &headers).await.status()
    };
    assert_eq!(with_bad_cost("alice").await, StatusCode::BAD_REQUEST);
    assert_eq!(with_bad_cost("mallory").await, REFUSED);
    assert_eq!(with_bad_cost("prober").await, OK);
}

#[tokio::test]
async fn a_refused_address_is_refused_also_where_others_are_exempt() {
    let limiter = limiter(
        rules()
            .exempt(Route::get("/health"))
            .deny(forwarded(&["203.0.113.9"])),
    );
    let app = App::with_peer(&limiter, PROXY).await;
    let from = |address| [("x-forwarded-for", address)];
    let refused = app.get("/health", &from("203.0.113.9")).await;
    assert_eq!(refused.status(), REFUSED);
    let exempt = app.get("/health", &from("203.0.113.8")).await;
    assert_eq!(exempt.status(), OK);
}

#[tokio::test]
async fn preflights_of_a_refused_address_are_refused_even_if_skipped() {
    let refused = forwarded(&["203.0.113.9"]);
    let limiter = limiter(rules().deny(refused));
    let layer = RateLimitLayer::new(limiter).skip_preflights().wrap_body();
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = layer.layer(inner);
    let status_from = async |address: &str| {
        let mut preflight = Request::builder()
            .method(Method::OPTIONS)
            .header("origin", "https://example.com")
            .header("access-control-request-method", "GET")
            .header("x-forwarded-for", address)
            .body(())
            .unwrap();
        let peer: SocketAddr = PROXY.parse().unwrap();
        preflight.extensions_mut().insert(ConnectInfo(peer));
        service.clone().oneshot(preflight).await.unwrap().status()
    };
    for _ in 0..3 {
        assert_eq!(status_from("203.0.113.9").await, REFUSED);
        assert_eq!(status_from("203.0.113.8").await, OK);
    }
}

#[tokio::test]
async fn addresses_of_proxies_are_refused_in_lists() {
    let client = ClientAddr::x_forwarded_for(["10.0.0.0/8", "2001:db8:7::/48"]).unwrap();
    for range in [
        "10.1.2.3",
        "10.3.0.0/16",
        "::ffff:10.1.2.3",
        "10.0.0.0/8",
        "2001:db8:7::1",
    ] {
        let refused = AccessList::new().addresses(client.clone(), ["203.0.113.9", range]);
        assert_eq!(
            refused.unwrap_err().to_string(),
            format!(
                "addresses: got {range:?}: lies within the trusted proxies, so no client can have it"
            )
        );
    }
    for range in ["10.0.0.0/7", "0.0.0.0/0", "2001:db8::/32", "203.0.113.9"] {
        let accepted = AccessList::new().addresses(client.clone(), [range]);
        assert!(accepted.is_ok(), "{range}");
    }
    // Nobody is behind these.
    assert!(AccessList::new().addresses(PeerAddr, ["10.1.2.3"]).is_ok());

    let counted = AccessList::new().addresses(client.trusted_hops(1), ["10.1.2.3"]);
    let limiter = limiter(rules().deny(counted.unwrap()));
    let app = App::with_peer(&limiter, PROXY).await;
    assert_eq!(status_from(&app, "10.1.2.3").await, REFUSED);
    assert_eq!(status_from(&app, "10.1.2.4").await, OK);
}

#[tokio::test]
async fn an_address_that_nobody_knows_is_on_no_list() {
    let everywhere = forwarded(&["0.0.0.0/0", "::/0"]);
    let limiter = limiter(rules().allow(everywhere));
    let app = App::with_peer(&limiter, PROXY).await;
    assert_eq!(status_from(&app, "203.0.113.9").await, OK);
    assert_eq!(status_from(&app, "unknown").await, OK);
    assert_eq!(status_from(&app, "unknown").await, DENIED);
}

/// What a proxy makes of the `Forwarded` that 203.0.113.9 has sent.
fn appended(client: &str) -> String {
    format!("{client}, for=203.0.113.9")
}

#[tokio::test]
async fn a_quote_left_open_is_no_way_past_the_deny_list() {
    let client = ClientAddr::forwarded(["10.0.0.0/8"]).unwrap();
    let list = |range| AccessList::new().addresses(client.clone(), [range]);
    let denying = |range| limiter(rules().deny(list(range).unwrap()));
    let open = appended("for=\"x");
    for (limiter, header, status) in [
        (denying("203.0.113.0/24"), "for=203.0.113.9", REFUSED),
        (denying("203.0.113.0/24"), &open, UNREADABLE),
        // The client is unknown, so it may be a denied one.
        (denying("198.51.100.7"), &open, UNREADABLE),
        (denying("203.0.113.0/24"), &appended("for=\"x\""), REFUSED),
        (denying("203.0.113.0/24"), "for=unknown", OK),
        (denying("203.0.113.0/24"), "for=10.0.0.7", OK),
        (denying("203.0.113.0/24"), "", OK),
        // Nobody is denied by address.
        (limiter(rules()), &open, OK),
        (limiter(rules().deny(users(&["mallory"]))), &open, OK),
    ] {
        let app = App::with_peer(&limiter, PROXY).await;
        let response = app
            .get("/", &[("x-user", "alice"), ("forwarded", header)])
            .await;
        assert_eq!(response.status(), status, "{header}");
    }
    let app = App::with_peer(&denying("203.0.113.0/24"), PROXY).await;
    assert_eq!(app.status("alice").await, OK, "the header is absent");
}

#[tokio::test]
async fn an_address_that_cannot_be_read_is_not_on_the_allow_list() {
    let client = ClientAddr::forwarded(["10.0.0.0/8"]).unwrap();
    let everywhere = AccessList::new().addresses(client, ["0.0.0.0/0", "::/0"]);
    let limiter = limiter(rules().allow(everywhere.unwrap()));
    let app = App::with_peer(&limiter, PROXY).await;
    let headers = [
        ("x-user", "alice"),
        ("forwarded", "for=\"x, for=203.0.113.9"),
    ];
    for status in [OK, DENIED] {
        assert_eq!(app.get("/", &headers).await.status(), status);
    }
}

#[tokio::test]
async fn a_listed_caller_is_refused_even_if_a_header_is_unreadable() {
    let quoted = ClientAddr::forwarded(["10.0.0.0/8"]).unwrap();
    let listed = AccessList::new().addresses(quoted, ["203.0.113.9"]);
    let listed = listed.unwrap().addresses(PeerAddr, ["10.0.0.5"]).unwrap();
    let limiter = limiter(rules().deny(listed));
    let app = App::with_peer(&limiter, PROXY).await;
    let response = app.get("/", &[("forwarded", "for=\"x")]).await;
    assert_eq!(response.status(), REFUSED);
}

#[tokio::test]
async fn repeated_address_headers_do_not_bypass_the_deny_list() {
    let client = ClientAddr::header("x-real-ip", ["10.0.0.0/8"]).unwrap();
    let denied = AccessList::new().addresses(client, ["203.0.113.9"]);
    let limiter = limiter(rules().deny(denied.unwrap()));
    let app = App::with_peer(&limiter, PROXY).await;
    let proxys = ("x-real-ip", "203.0.113.9");
    let twice = [("x-user", "alice"), ("x-real-ip", "198.51.100.7"), proxys];
    assert_eq!(app.get("/", &twice).await.status(), UNREADABLE);
    // What a proxy in between may make of it.
    for folded in [
        "198.51.100.7, 203.0.113.9",
        "x,203.0.113.9",
        ", 203.0.113.9",
    ] {
        let once = [("x-user", "alice"), ("x-real-ip", folded)];
        assert_eq!(app.get("/", &once).await.status(), UNREADABLE, "{folded}");
    }
    assert_eq!(app.get("/", &[proxys]).await.status(), REFUSED);
}

#[tokio::test]
async fn a_list_of_no_addresses_asks_for_none() {
    let client = ClientAddr::forwarded(["10.0.0.0/8"]).unwrap();
    let nobody = AccessList::new().addresses(client, [""; 0]).unwrap();
    let limiter = limiter(rules().deny(nobody));
    let app = App::with_peer(&limiter, PROXY).await;
    let response = app.get("/", &[("forwarded", "for=\"x")]).await;
    assert_eq!(response.status(), OK);
}

#[tokio::test]
async fn a_refusal_for_an_address_that_cannot_be_read_says_so() {
    let client = ClientAddr::forwarded(["10.0.0.0/8"]).unwrap();
    let denied = AccessList::new().addresses(client, ["203.0.113.9"]);
    let limiter = limiter(rules().deny(denied.unwrap()));
    let app = App::with_peer(&limiter, PROXY).await;
    let response = app.get("/", &[("forwarded", "for=\"mallory")]).await;
    let problem: serde_json::Value = response.json().await.unwrap();
    assert_eq!(
        problem,
        serde_json::json!({
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "detail": "the address of the client cannot be read",
        })
    );
}

#[tokio::test]
async fn a_list_that_cannot_be_looked_up_in_is_a_loud_error() {
    let denied = AccessList::new().addresses(PeerAddr, ["203.0.113.9"]);
    let limiter = limiter(rules().deny(denied.unwrap()));
    // The server does not provide the address at the other end of the socket.
    let app = App::behind(&limiter).await;
    let response = app.get("/", &[("x-user", "alice")]).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let text = response.text().await.unwrap();
    assert!(
        text.contains("into_make_service_with_connect_info"),
        "{text}"
    );
}

#[tokio::test]
async fn a_listed_key_is_looked_up_only_where_policies_use_it() {
    let policy = |name| one_a_minute(name).on(Route::any("/api/{*rest}"));
    let other = Policy::new("other", Limit::fixed_window(1, MINUTE)).by(Header::new("x-tenant"));
    let rules = Rules::new([policy("api"), other.on(Route::any("/api/b"))])
        .exempt(Route::get("/api/health"))
        .deny(users(&["mallory"]))
        .allow(users(&["bob"]));
    let limiter = limiter(rules);
    let app = App::behind(&limiter).await;
    let status = async |user, path| app.get(path, &[("x-user", user)]).await.status();
    for (path, answered) in [("/api/x", REFUSED), ("/elsewhere", OK), ("/api/health", OK)] {
        assert_eq!(status("mallory", path).await, answered, "{path}");
    }
    for mode in [Mode::Shadow, Mode::Off] {
        limiter.set_mode("api", mode).unwrap();
        let answered = if mode == Mode::Off { OK } else { REFUSED };
        assert_eq!(status("mallory", "/api/x").await, answered, "{mode}");
    }
    limiter.set_mode("api", Mode::Enforce).unwrap();
    for (path, answered) in [
        ("/api/a", OK),
        ("/api/a", OK),
        ("/api/b", OK),
        ("/api/b", DENIED),
    ] {
        assert_eq!(status("bob", path).await, answered, "{path}");
    }
}

#[tokio::test]
async fn lists_change_while_the_limiter_is_at_work() {
    let limiter = limiter(rules());
    let app = App::behind(&limiter).await;
    assert_eq!(app.status("mallory").await, OK);
    limiter.set_denied(users(&["mallory"]));
    assert_eq!(app.status("mallory").await, REFUSED);
    limiter.set_mode("api", Mode::Shadow).unwrap();
    assert_eq!(
        app.status("mallory").await,
        REFUSED,
        "the list is no policy"
    );
    limiter.set_mode("api", Mode::Enforce).unwrap();
    limiter.set_denied(AccessList::new());
    assert_eq!(app.status("mallory").await, DENIED);
    limiter.set_allowed(users(&["mallory"]));
    assert_eq!(app.status("mallory").await, OK);
}

#[test]
fn a_list_shows_nobody() {
    let list = users(&["mallory"]);
    assert_eq!(format!("{list:?}"), "AccessList { .. }");
}
