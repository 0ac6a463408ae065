//! Where a layer fits: the body of axum's responses stays axum's.

use axum::ServiceExt as _;
use axum::body::Body;
use axum::extract::Request;
use tower::util::option_layer;
use tower::{Layer as _, Service};

use super::*;

/// The statuses of three requests to a server with this service, each of whose answers has a body
/// of known length.
async fn served<S>(app: S) -> [u16; 3]
where
    S: Service<Request, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = url(listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app.into_make_service()).await });
    let mut statuses = [0; 3];
    for status in &mut statuses {
        let response = fetch(&url).await;
        *status = response.status().as_u16();
        let length = response.headers()["content-length"].clone();
        let body = response.text().await.expect("a body");
        assert_eq!(body == "hello", *status == 200, "{body}");
        assert_eq!(length, body.len().to_string());
    }
    statuses
}

#[tokio::test]
async fn a_layer_fits_around_a_whole_router() {
    for trip in TRIPS {
        let app = layer(trip, 2).layer(hello());
        assert_eq!(served(app).await, [200, 200, 429], "{trip:?}");
    }
}

#[tokio::test]
async fn a_layer_that_may_be_absent_fits_wherever_one_does() {
    for (is_there, third) in [(true, 429), (false, 200)] {
        let limits = || {
            let limiter = || TestStore::new(Trip::None).limiter(Limit::gcra(2, MINUTE));
            option_layer(is_there.then(limiter).map(RateLimitLayer::new))
        };
        let expected = [200, 200, third];
        assert_eq!(served(limits().layer(hello())).await, expected);
        assert_eq!(served(hello().layer(limits())).await, expected);
        assert_eq!(served(hello().route_layer(limits())).await, expected);
        let route = get(|| async { "hello" }).layer(limits());
        assert_eq!(served(Router::new().route("/", route)).await, expected);
        let within = Router::new().fallback_service(limits().layer(hello()));
        assert_eq!(served(within).await, expected);
        let built = ServiceBuilder::new().layer(limits()).service(hello());
        assert_eq!(served(built).await, expected);
        let nested = limits().layer(limits().layer(hello()));
        assert_eq!(served(nested).await, expected);
    }
}

#[tokio::test]
async fn a_layer_that_wraps_bodies_fits_into_a_router_too() {
    let app = hello().layer(layer(Trip::None, 2).wrap_body());
    assert_eq!(served(app).await, [200, 200, 429]);
    let layers = || layer(Trip::None, 2).wrap_body();
    let nested = hello().layer((layers(), layers()));
    assert_eq!(served(nested).await, [200, 200, 429]);
}
