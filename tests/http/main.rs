//! The layer over real sockets: axum and plain hyper as servers, HTTP/1.1 and HTTP/2.

mod bodies;
mod browser_cors;
mod client_address;
mod curl;
mod exposed_decisions;
mod handlers;
mod headers;
mod key_reading;
mod missing_keys;
mod peer_addr;
mod routes;
mod service;
mod wide;

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::Router;
use axum::response::Redirect;
use axum::routing::{any, get};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use sfv::{BareItem, List, ListEntry, Parser};
use tokio::net::{TcpListener, TcpStream};
use tower::{ServiceBuilder, service_fn};
use tower_throttle::{
    Host, Key, Limit, Limiter, MINUTE, NoRequest, OnMissingKey, PlainText, Policy, QuotaHeaders,
    RateLimitLayer, Rejection, RequestHead, Route,
};

use support::http_store::{TRIPS, TestStore, Trip};

fn layer(trip: Trip, permits: u64) -> RateLimitLayer {
    RateLimitLayer::new(TestStore::new(trip).limiter(Limit::gcra(permits, MINUTE)))
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// Serves the application on its own port.
async fn serve(app: Router) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    url(address)
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// One client for each version of HTTP.
fn clients() -> [reqwest::Client; 2] {
    clients_of(|client| client)
}

/// The same, from this builder.
fn clients_of(
    make: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> [reqwest::Client; 2] {
    let client = || make(reqwest::Client::builder());
    [
        client().http1_only().build().expect("a client"),
        client().http2_prior_knowledge().build().expect("a client"),
    ]
}

async fn fetch(url: &str) -> reqwest::Response {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client");
    client.get(url).send().await.expect("a response")
}

async fn statuses<const N: usize>(client: &reqwest::Client, url: &str) -> [u16; N] {
    let mut statuses = [0; N];
    for status in &mut statuses {
        let response = client.get(url).send().await.expect("a response");
        *status = response.status().as_u16();
    }
    statuses
}

/// The items of all lines of a field: each name with the values of these two parameters.
fn items(response: &reqwest::Response, field: &str, keys: [&str; 2]) -> Vec<(String, i64, i64)> {
    let lines = response.headers().get_all(field).iter();
    let entries = lines.flat_map(|line| {
        let list: List = Parser::new(line.as_bytes()).parse().expect("a list");
        list
    });
    let item = |entry: ListEntry| {
        let ListEntry::Item(item) = entry else {
            panic!("{field} holds an inner list");
        };
        let BareItem::String(name) = &item.bare_item else {
            panic!("{field} holds no string");
        };
        let [a, b] = keys.map(|key| match item.params.get(key) {
            Some(BareItem::Integer(number)) => i64::from(*number),
            other => panic!("{key} of {field} is {other:?}"),
        });
        (name.as_str().to_owned(), a, b)
    };
    entries.map(item).collect()
}

#[tokio::test]
async fn axum_routers_are_limited_over_both_versions_of_http() {
    for trip in TRIPS {
        for client in clients() {
            let url = serve(hello().layer(layer(trip, 2))).await;
            assert_eq!(statuses(&client, &url).await, [200, 200, 429], "{trip:?}");
        }
    }
}

#[tokio::test]
async fn each_tenant_has_one_quota_for_both_versions_of_http() {
    let by_closure = |request: &RequestHead<'_>| request.host().map(|host| Key::from(&*host));
    let tenant = || {
        let policy = Policy::new("tenant", Limit::gcra(2, MINUTE));
        policy.on_missing_key(OnMissingKey::Reject)
    };
    for policy in [tenant().by(Host), tenant().by(by_closure)] {
        let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
        let url = serve(hello().layer(RateLimitLayer::new(limiter))).await;
        let url: reqwest::Url = url.parse().expect("a URL");
        for tenant in ["acme.example.com", "zenith.example.com"] {
            let mut of_tenant = url.clone();
            of_tenant.set_host(Some(tenant)).expect("a host");
            let address = SocketAddr::from(([127, 0, 0, 1], 0));
            let clients = clients_of(|client| client.resolve(tenant, address));
            let mut answered = Vec::new();
            for client in clients.iter().cycle().take(4) {
                answered.extend(statuses::<1>(client, of_tenant.as_str()).await);
            }
            assert_eq!(answered, [200, 200, 429, 429], "{tenant}");
        }
    }
}

#[tokio::test]
async fn a_route_layer_counts_only_what_a_route_matches() {
    let url = serve(hello().route_layer(layer(Trip::None, 1))).await;
    let client = reqwest::Client::new();
    let nowhere = format!("{url}nowhere");
    assert_eq!(statuses(&client, &nowhere).await, [404, 404]);
    assert_eq!(statuses(&client, &url).await, [200, 429]);
}

#[tokio::test]
async fn a_layer_is_about_the_routes_before_it_and_unmatched_paths() {
    let late = || get(async || "late");
    let client = reqwest::Client::new();
    for (path, expected) in [
        ("", [200, 429]),
        ("nowhere", [404, 429]),
        ("late", [200, 200]),
    ] {
        let app = hello().layer(layer(Trip::None, 1)).route("/late", late());
        let url = serve(app).await;
        assert_eq!(statuses(&client, &format!("{url}{path}")).await, expected);
    }
    for app in [
        hello().layer(layer(Trip::None, 1)),
        hello().route_layer(layer(Trip::None, 1)),
    ] {
        let url = serve(app).await;
        for expected in [405, 429] {
            let answer = client.post(&url).send().await.expect("a response");
            assert_eq!(answer.status(), expected);
        }
    }
}

#[tokio::test]
async fn one_method_router_can_be_limited_alone() {
    let limited = get(|| async { "limited" }).layer(layer(Trip::Short, 1));
    let url = serve(hello().route("/limited", limited)).await;
    let client = reqwest::Client::new();
    let limited = format!("{url}limited");
    assert_eq!(statuses(&client, &limited).await, [200, 429]);
    assert_eq!(statuses(&client, &url).await, [200, 200]);
}

#[tokio::test]
async fn plain_hyper_is_limited_over_both_versions_of_http() {
    for trip in TRIPS {
        for client in clients() {
            let url = serve_with_hyper(layer(trip, 2)).await;
            assert_eq!(statuses(&client, &url).await, [200, 200, 429], "{trip:?}");
        }
    }
}

async fn serve_with_hyper(layer: RateLimitLayer) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = ServiceBuilder::new()
        .layer(layer.wrap_body())
        .service(service_fn(|_: Request<hyper::body::Incoming>| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
        }));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let connection = auto::Builder::new(TokioExecutor::new());
                connection
                    .serve_connection(TokioIo::new(stream), service)
                    .await
            });
        }
    });
    url(address)
}

#[tokio::test]
async fn quota_headers_tell_the_policy_and_what_is_left() {
    let url = serve(hello().layer(layer(Trip::None, 6))).await;
    for (left, time) in [(5, 50), (4, 40), (3, 30), (2, 20), (1, 10), (0, 10)] {
        let response = fetch(&url).await;
        assert_eq!(response.status(), 200);
        let policy = items(&response, "ratelimit-policy", ["q", "w"]);
        assert_eq!(policy, [("api".to_owned(), 6, 60)]);
        let quota = items(&response, "ratelimit", ["r", "t"]);
        assert_eq!(quota, [("api".to_owned(), left, time)]);
        assert!(!response.headers().contains_key("retry-after"));
    }
    let denied = fetch(&url).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(
        items(&denied, "ratelimit", ["r", "t"]),
        [("api".to_owned(), 0, 10)]
    );
    assert_eq!(denied.headers()["retry-after"], "10");
}

#[tokio::test]
async fn every_policy_that_applied_is_in_the_headers() {
    let policies = [
        Policy::new(r#"a "quoted" \name"#, Limit::gcra(10, MINUTE)),
        Policy::new("elsewhere", Limit::gcra(10, MINUTE)).on(NoRequest),
        Policy::new("window", Limit::fixed_window(5, 2 * MINUTE)),
    ];
    let limiter = Limiter::new(TestStore::new(Trip::Short), policies).expect("sound policies");
    let url = serve(hello().layer(RateLimitLayer::new(limiter))).await;
    let response = fetch(&url).await;
    let quoted = r#"a "quoted" \name"#.to_owned();
    assert_eq!(
        items(&response, "ratelimit-policy", ["q", "w"]),
        [(quoted.clone(), 10, 60), ("window".to_owned(), 5, 120)]
    );
    assert_eq!(
        items(&response, "ratelimit", ["r", "t"]),
        [(quoted, 9, 54), ("window".to_owned(), 4, 120)]
    );
}

#[tokio::test]
async fn a_request_that_no_policy_is_about_gets_no_quota_headers() {
    let policy = Policy::new("api", Limit::gcra(1, MINUTE)).on(NoRequest);
    let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
    let url = serve(hello().layer(RateLimitLayer::new(limiter))).await;
    for _ in 0..2 {
        let response = fetch(&url).await;
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("ratelimit"));
        assert!(!response.headers().contains_key("ratelimit-policy"));
    }
}

#[tokio::test]
async fn nested_layers_each_tell_theirs() {
    let named = |name: &str| {
        let policy = Policy::new(name, Limit::gcra(10, MINUTE));
        let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
        RateLimitLayer::new(limiter)
    };
    let url = serve(hello().layer(named("inner")).layer(named("outer"))).await;
    let response = fetch(&url).await;
    let names: Vec<_> = items(&response, "ratelimit", ["r", "t"])
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(names, ["inner", "outer"]);
}

#[tokio::test]
async fn a_redirect_tells_no_quota() {
    let app = Router::new().route("/", get(|| async { Redirect::to("/there") }));
    let url = serve(app.layer(layer(Trip::None, 1))).await;
    let response = fetch(&url).await;
    assert_eq!(response.status(), 303);
    assert!(!response.headers().contains_key("ratelimit"));
    let denied = fetch(&url).await;
    assert_eq!(denied.status(), 429);
    assert!(denied.headers().contains_key("ratelimit"));
}

#[tokio::test]
async fn quota_headers_can_be_kept_to_denials_or_left_out() {
    for (headers, on_success, on_denial) in [
        (QuotaHeaders::DRAFT_11, true, true),
        (QuotaHeaders::DRAFT_11.on_denials(), false, true),
        (QuotaHeaders::NONE, false, false),
    ] {
        let url = serve(hello().layer(layer(Trip::None, 1).headers(headers))).await;
        for (status, expected) in [(200, on_success), (429, on_denial)] {
            let response = fetch(&url).await;
            assert_eq!(response.status(), status);
            for field in ["ratelimit", "ratelimit-policy"] {
                let present = response.headers().contains_key(field);
                assert_eq!(present, expected, "{headers:?} {status}");
            }
        }
    }
}

#[tokio::test]
async fn a_denial_is_a_problem_that_is_not_stored() {
    let url = serve(hello().layer(layer(Trip::Short, 1))).await;
    fetch(&url).await;
    let denied = fetch(&url).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["content-type"], "application/problem+json");
    assert_eq!(denied.headers()["cache-control"], "no-store");
    assert_eq!(denied.headers()["retry-after"], "60");
    let length = denied.content_length();
    let body = denied.bytes().await.expect("a body");
    assert_eq!(length, Some(body.len() as u64));
    assert_eq!(
        serde_json::from_slice::<Value>(&body).expect("JSON"),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "policy \"api\": the quota is used up, retry after 60 s",
            "violated-policies": ["api"],
            "retry-after-secs": 60,
        })
    );
}

#[tokio::test]
async fn a_denial_can_be_plain_text() {
    let url = serve(hello().layer(layer(Trip::None, 1).on_rejection(PlainText))).await;
    fetch(&url).await;
    let denied = fetch(&url).await;
    assert_eq!(
        denied.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    assert_eq!(
        denied.text().await.expect("a text"),
        "policy \"api\": the quota is used up, retry after 60 s\n"
    );
}

#[tokio::test]
async fn a_closure_builds_the_denial_from_the_request_and_the_reason() {
    let page = |request: &RequestHead<'_>, rejection: &Rejection| {
        let path = request.uri.path();
        let agent = request.headers["x-agent"].to_str().unwrap_or_default();
        let policies = rejection.policies().join(", ");
        let mut response = Response::new(format!("{agent} {path} {policies}"));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    for trip in TRIPS {
        let url = serve(hello().layer(layer(trip, 1).on_rejection(page))).await;
        let client = reqwest::Client::new();
        let ask = || client.get(&url).header("x-agent", "curl").send();
        assert_eq!(ask().await.expect("a response").status(), 200);
        let denied = ask().await.expect("a response");
        assert_eq!(denied.status(), 418);
        assert_eq!(denied.headers()["retry-after"], "60");
        assert!(denied.headers().contains_key("ratelimit"));
        assert_eq!(denied.text().await.expect("a text"), "curl / api");
    }
}

#[tokio::test]
async fn the_layers_outside_see_the_reason() {
    let tell = |response: Response<axum::body::Body>| async {
        let mut response = response;
        if let Some(rejection) = response.extensions().get::<Rejection>() {
            let kind = format!("{:?}", rejection.kind());
            let value = kind.parse().expect("a header value");
            response.headers_mut().insert("x-reason", value);
        }
        response
    };
    let app = hello()
        .layer(layer(Trip::None, 1))
        .layer(axum::middleware::map_response(tell));
    let url = serve(app).await;
    assert!(!fetch(&url).await.headers().contains_key("x-reason"));
    assert_eq!(fetch(&url).await.headers()["x-reason"], "QuotaExceeded");
}

#[tokio::test]
async fn a_denied_head_request_has_no_body_but_its_length() {
    let page = |_: &RequestHead<'_>, rejection: &Rejection| {
        let mut response = Response::new("a page of your own");
        *response.status_mut() = rejection.status();
        response
    };
    for trip in TRIPS {
        for layer in [
            layer(trip, 1),
            layer(trip, 1).on_rejection(PlainText),
            layer(trip, 1).on_rejection(page),
        ] {
            let on_hyper = serve_with_hyper(layer.clone()).await;
            let on_axum = serve(hello().layer(layer)).await;
            assert_eq!(fetch(&on_hyper).await.status(), 200);
            for url in [on_hyper, on_axum] {
                for client in clients() {
                    let page = client.get(&url).send().await.expect("a response");
                    let page = page.bytes().await.expect("a body");
                    assert!(!page.is_empty());

                    let denied = client.head(&url).send().await.expect("a response");
                    assert_eq!(denied.status(), 429);
                    assert_eq!(denied.headers()["retry-after"], "60");
                    let length = denied.headers()["content-length"].to_str();
                    assert_eq!(length.expect("a number"), page.len().to_string());
                    assert_eq!(denied.bytes().await.expect("no body"), "");
                }
            }
        }
    }
}

/// Over HTTP/2 a WebSocket is a `CONNECT` with a path: RFC 8441, section 4.
#[tokio::test]
async fn web_sockets_over_http2_are_not_a_way_around_a_route_for_get() {
    let policy = Policy::new("ws", Limit::gcra(2, MINUTE)).on(Route::get("/ws"));
    let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
    let app = Router::new().route("/ws", any(async || StatusCode::OK));
    let url = serve(app.layer(RateLimitLayer::new(limiter))).await + "ws";

    let uri: http::Uri = url.parse().expect("a URL");
    let stream = TcpStream::connect(uri.authority().expect("an address").as_str());
    let stream = TokioIo::new(stream.await.expect("a connection"));
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
    let (mut sender, connection) = handshake.await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut ask = async |method: Method| {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = uri.clone();
        if method == Method::CONNECT {
            let protocol = Protocol::from_static("websocket");
            request.extensions_mut().insert(protocol);
        }
        *request.method_mut() = method;
        let response = sender.send_request(request).await;
        response.expect("a response").status().as_u16()
    };
    // With the first answer the client gets the settings that allow the rest.
    assert_eq!(ask(Method::GET).await, 200);
    assert_eq!(ask(Method::CONNECT).await, 200);
    assert_eq!(ask(Method::CONNECT).await, 429);
    assert_eq!(ask(Method::GET).await, 429);
}
