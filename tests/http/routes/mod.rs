//! Which requests a policy applies to.

use http::{Method, Request};
use tower_throttle::{RequestHead, RequestMatcher, Route};

#[cfg(feature = "axum")]
mod decide;
#[cfg(feature = "axum")]
mod nested_at_random;

fn matches(route: &impl RequestMatcher, method: Method, target: &str) -> bool {
    let request = Request::builder().method(method).uri(target).body(());
    route.matches(&RequestHead::new(&request.unwrap()))
}

#[test]
fn a_pattern_is_matched_as_axums_router_does() {
    for (pattern, path, expected) in [
        ("/", "/", true),
        ("/login", "/login", true),
        ("/login", "/login?next=/", true),
        ("/login", "https://example.org/login", true),
        ("/login", "/", false),
        ("/login", "/logins", false),
        ("/login", "/login/x", false),
        ("/login", "/Login", false),
        ("/users/{id}", "/users/7", true),
        ("/users/{id}", "/users/", false),
        ("/users/{id}", "/users/7/posts", false),
        ("/users/{id}/posts", "/users/7/posts", true),
        ("/v{n}/x", "/v2/x", true),
        // A parameter may be empty, except the last one.
        ("/api/{version}/login", "/api//login", true),
        ("/v{n}/x", "/v/x", true),
        ("/{x}/{y}", "//y", true),
        ("/{x}/{y}", "/x/", false),
        ("/api/{*rest}", "/api/a", true),
        ("/api/{*rest}", "/api/a/b/c", true),
        ("/api/{*rest}", "/api/", false),
        ("/api/{*rest}", "/api", false),
        ("/{{id}}", "/{id}", true),
        ("/gr%C3%B6%C3%9Fe", "/gr%C3%B6%C3%9Fe", true),
        ("/gr%C3%B6%C3%9Fe", "/größe", true),
        ("/{größe}", "/7", true),
        ("/a\"^|\\b", "/a\"^|\\b", true),
        ("/", "*", false),
        ("/{*rest}", "example.org:443", false),
        ("/package.Service/Method", "/package.Service/Method", true),
    ] {
        let found = matches(&Route::any(pattern), Method::GET, path);
        assert_eq!(found, expected, "{pattern} {path}");
    }
}

#[test]
fn a_path_is_compared_as_it_came() {
    for path in ["/login/", "//login", "/log%69n", "/./login", "/login;x"] {
        assert!(!matches(&Route::any("/login"), Method::GET, path), "{path}");
    }
}

#[test]
fn a_route_is_about_its_method_and_get_about_head_too() {
    let methods = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
    ];
    for (route, expected) in [
        (
            Route::get("/x"),
            &[Method::GET, Method::HEAD, Method::CONNECT][..],
        ),
        (Route::new(Method::HEAD, "/x"), &[Method::HEAD]),
        (Route::new(Method::CONNECT, "/x"), &[Method::CONNECT]),
        (Route::post("/x"), &[Method::POST]),
        (Route::put("/x"), &[Method::PUT]),
        (Route::patch("/x"), &[Method::PATCH]),
        (Route::delete("/x"), &[Method::DELETE]),
        (Route::any("/x"), &methods),
    ] {
        for method in &methods {
            let found = matches(&route, method.clone(), "/x");
            assert_eq!(found, expected.contains(method), "{route}: {method}");
        }
    }
}

#[test]
fn a_tunnel_has_no_path() {
    for pattern in ["/", "/{*rest}"] {
        let route = Route::get(pattern);
        assert!(!matches(&route, Method::CONNECT, "example.org:443"));
    }
}

#[test]
fn a_list_is_about_what_any_of_its_routes_is_about() {
    let routes = [
        Route::post("/a/{x}"),
        Route::get("/a/b"),
        Route::get("/{*all}"),
    ];
    let as_vec = routes.to_vec();
    for (method, path, expected) in [
        (Method::POST, "/a/b", true),
        (Method::GET, "/a/b", true),
        (Method::GET, "/c", true),
        (Method::POST, "/c", false),
    ] {
        assert_eq!(matches(&routes, method.clone(), path), expected);
        assert_eq!(matches(&as_vec, method, path), expected);
    }
    assert!(routes.validate().is_ok());
    assert!([Route::get("/a"), Route::get("b")].validate().is_err());
    assert!(vec![Route::get("/a"), Route::get("b")].validate().is_err());
}

#[test]
fn a_route_is_read_from_text_and_written_as_the_same() {
    for text in [
        "POST /login",
        "GET /users/{id}",
        "/api/{*rest}",
        "OPTIONS /",
    ] {
        assert_eq!(text.parse::<Route>().unwrap().to_string(), text);
    }
    assert_eq!("GET /users/{id}".parse(), Ok(Route::get("/users/{id}")));
    assert_ne!(Route::get("/users/{id}"), Route::any("/users/{id}"));
    assert_ne!(Route::get("/users/{id}"), Route::get("/users/{name}"));
    let login: Route = "POST /login".parse().unwrap();
    assert!(matches(&login, Method::POST, "/login"));
    assert!(!matches(&login, Method::GET, "/login"));
    assert_eq!("POST   /login".parse(), Ok(login));
    let api: Route = "/api/{*rest}".parse().unwrap();
    assert!(matches(&api, Method::DELETE, "/api/x"));
}

#[test]
fn text_that_is_no_route_is_refused_with_what_would_be_right() {
    for (text, right) in [
        ("", "starts with a slash"),
        ("login", "starts with a slash"),
        ("POST login", "starts with a slash"),
        ("POST", "starts with a slash"),
        ("post /login", "POST /login"),
        ("PSOT /login", "POST /login"),
        (" /login", "POST /login"),
        ("POST /log in", "without a query"),
        ("/login?x=1", "without a query"),
        ("/login#x", "without a query"),
        ("/login\0", "without a query"),
        ("/users/:id", "{name}"),
        ("/files/*rest", "{*name}"),
        ("/größe", "expected /gr%C3%B6%C3%9Fe"),
        (
            "PUT /größe/{größe}/{{ö",
            "expected /gr%C3%B6%C3%9Fe/{größe}/{{%C3%B6",
        ),
        ("/a<b>`c", "expected /a%3Cb%3E%60c"),
        ("/files/{*rest}/x", "end of a route"),
        ("/users/{id", "valid name"),
        ("/users/{}", "valid name"),
        ("/{a}{b}", "one parameter"),
    ] {
        let refusal = text.parse::<Route>().unwrap_err().to_string();
        assert!(refusal.starts_with("route: got "), "{refusal}");
        assert!(refusal.contains(right), "{text:?}: {refusal}");
    }
}

#[test]
fn a_pattern_no_router_could_have_is_refused() {
    let route = Route::post("/users/{id");
    assert_eq!(
        route.validate().unwrap_err().to_string(),
        "route: got \"/users/{id\": Parameters must be registered with a valid name"
    );
    assert!(!matches(&route, Method::POST, "/users/7"));
}

/// Another version would read paths differently from the router that serves them.
#[test]
fn paths_are_read_by_the_version_that_axum_has() {
    let locked = include_str!("../../../Cargo.lock");
    assert_eq!(locked.matches("name = \"matchit\"").count(), 1);
}

#[cfg(feature = "axum")]
mod behind_axums_router {
    use axum::Router;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::{Layer as _, ServiceExt as _};

    use super::decide::{Decide, ask};
    use super::*;

    /// Whether the route matches a request, where `Router::layer` puts the layer.
    async fn matches(route: Route, router: Router, target: &str) -> bool {
        let decide = Decide::of([route]);
        serve(
            router.layer(from_fn_with_state(decide.clone(), ask)),
            target,
        )
        .await;
        decide.seen().matches[0]
    }

    async fn serve(router: Router, target: &str) {
        let request = Request::get(target).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{target}");
    }

    fn app() -> Router {
        let ok = || get(async || "ok");
        Router::new()
            .route("/users/{id}", ok())
            .route("/files/{*path}", ok())
            .route("/login", ok())
    }

    #[tokio::test]
    async fn the_text_of_the_matched_route_matches() {
        assert!(matches(Route::get("/users/{id}"), app(), "/users/7").await);
        assert!(matches(Route::get("/users/{name}"), app(), "/users/7").await);
        assert!(matches(Route::get("/{*rest}"), app(), "/users/7").await);
        assert!(matches(Route::get("/files/{*rest}"), app(), "/files/a/b").await);
        assert!(!matches(Route::get("/login"), app(), "/users/login").await);
        assert!(!matches(Route::post("/users/{id}"), app(), "/users/7").await);
    }

    #[tokio::test]
    async fn a_path_still_matches_where_a_wider_route_did() {
        assert!(matches(Route::get("/users/7"), app(), "/users/7").await);
        assert!(!matches(Route::get("/users/8"), app(), "/users/7").await);
        // As documented: the route's text does not help a pattern that is narrower.
        assert!(!matches(Route::get("/users/7"), app(), "/users/%37").await);
    }

    #[tokio::test]
    async fn a_layer_outside_of_a_router_matches_the_routers_paths() {
        for (pattern, target) in [
            ("/api/{version}/login", "/api//login"),
            ("/v{n}/x", "/v/x"),
            ("/x/{a}/{*rest}", "/x//y"),
            ("/größe", "/größe"),
        ] {
            let router = Router::new().route(pattern, get(async || "ok"));
            let request = Request::get(target).body(Body::empty()).unwrap();
            let encoded = pattern.replace("ö", "%C3%B6").replace("ß", "%C3%9F");
            let found = Route::get(encoded).matches(&RequestHead::new(&request));
            let served = router.oneshot(request).await.unwrap();
            assert_eq!((served.status().as_u16(), found), (200, true), "{target}");
        }
    }

    #[tokio::test]
    async fn the_text_of_a_catch_all_is_not_one_segment() {
        assert!(!matches(Route::get("/files/{one}"), app(), "/files/a/b").await);
        assert!(matches(Route::get("/files/{one}"), app(), "/files/a").await);
    }

    #[tokio::test]
    async fn a_literal_brace_is_not_one_around_a_parameter() {
        let literal = || Route::get("/users/{{id}}");
        assert!(!matches(literal(), app(), "/users/7").await);
        assert!(matches(literal(), app(), "/users/{id}").await);
        let exact = Router::new().route("/users/{{id}}", get(async || "ok"));
        assert!(matches(literal(), exact, "/users/{id}").await);
        let before_a_parameter = || Route::get("/users/{{{id}");
        assert!(!matches(before_a_parameter(), app(), "/users/7").await);
        assert!(matches(before_a_parameter(), app(), "/users/{7").await);
    }

    fn nested_router(decide: Decide) -> Router {
        let inner = app().fallback(async || "nothing else");
        Router::new().nest("/api", inner.layer(from_fn_with_state(decide, ask)))
    }

    fn nested_service(decide: Decide) -> Router {
        let inner = app().fallback(async || "nothing else");
        Router::new().nest_service("/api", from_fn_with_state(decide, ask).layer(inner))
    }

    fn nested_twice(decide: Decide) -> Router {
        Router::new().nest("/api", nested_service(decide))
    }

    /// Whether the pattern matches where the path has lost its nested prefix.
    async fn matches_inside(nested: fn(Decide) -> Router, pattern: &str, target: &str) -> bool {
        let decide = Decide::of([Route::get(pattern)]);
        serve(nested(decide.clone()), target).await;
        let seen = decide.seen();
        assert!(!seen.own_path.starts_with("/api"));
        seen.matches[0]
    }

    #[tokio::test]
    async fn a_nested_route_matches_by_its_whole_path_and_by_its_own() {
        for (pattern, expected) in [
            ("/api/users/{id}", true),
            ("/api/users/7", true),
            ("/api/{*rest}", true),
            ("/{*rest}", true),
            ("/users/{id}", true),
            ("/users/7", true),
            ("/api/login", false),
            ("/login", false),
            ("/api", false),
        ] {
            for nested in [nested_router, nested_service] {
                let found = matches_inside(nested, pattern, "/api/users/7").await;
                assert_eq!(found, expected, "{pattern}");
            }
        }
        let twice = async |pattern| matches_inside(nested_twice, pattern, "/api/api/login").await;
        assert!(twice("/api/api/{*rest}").await);
        assert!(twice("/login").await);
        assert!(!twice("/api/login").await, "neither the whole nor its own");
    }

    #[tokio::test]
    async fn a_slash_that_axum_leaves_out_is_no_way_around() {
        for pattern in ["/api/login", "/api/{*rest}", "/login"] {
            let found = matches_inside(nested_service, pattern, "/api//login").await;
            assert!(found, "{pattern}");
        }
        let found = matches_inside(nested_service, "/api/users/7", "/api//login").await;
        assert!(!found);
        let in_service = |decide| Router::new().nest_service("/api", nested_service(decide));
        for target in ["/api//api/login", "/api/api//login", "/api//api//login"] {
            assert!(
                matches_inside(in_service, "/api/api/login", target).await,
                "{target}"
            );
        }
    }

    #[tokio::test]
    async fn an_empty_parameter_within_a_nested_router_is_no_way_around() {
        let login = |decide: Decide| {
            let inner = Router::new().route("/{version}/login", get(async || "login"));
            let inner = inner.layer(from_fn_with_state(decide, ask));
            Router::new().nest("/api/public", inner)
        };
        for (pattern, expected) in [
            ("/{version}/login", true),
            ("/api/public/{version}/login", true),
            ("/{version}/users", false),
            ("/public/{version}/login", false),
        ] {
            let found = matches_inside(login, pattern, "/api/public//login").await;
            assert_eq!(found, expected, "{pattern}");
        }
        let of_version = |decide| {
            let inner = app().layer(from_fn_with_state(decide, ask));
            Router::new().nest("/api", Router::new().nest("/{version}", inner))
        };
        for (target, pattern, expected) in [
            ("/api//login", "/login", true),
            ("/api//login", "/users/{id}", false),
            ("/api//users/7", "/users/{id}", true),
            ("/api//users/7", "/login", false),
            ("/api/1/users/7", "/1/users/{id}", false),
            // A pattern that is narrower than the text of the route.
            ("/api/1/users/7", "/api/1/users/7", true),
        ] {
            let found = matches_inside(of_version, pattern, target).await;
            assert_eq!(found, expected, "{pattern} {target}");
        }
        let of_users = |decide| {
            let inner = Router::new().route("/", get(async || "all"));
            let inner = inner.layer(from_fn_with_state(decide, ask));
            Router::new().nest("/api", Router::new().nest("/{version}/users", inner))
        };
        for pattern in ["/", "/api/{version}/users"] {
            // Axum shows it `/users`, as it takes the empty segment for the version only here.
            let found = matches_inside(of_users, pattern, "/api//users").await;
            assert!(found, "{pattern}");
        }
    }

    #[tokio::test]
    async fn a_slash_after_a_nested_path_is_no_bypass() {
        for target in ["/api", "/api/", "/api//"] {
            for pattern in ["/api", "/api/", "/"] {
                let found = matches_inside(nested_service, pattern, target).await;
                assert!(found, "{pattern} {target}");
            }
            let found = matches_inside(nested_service, "/api/login", target).await;
            assert!(!found, "{target}");
        }
        let in_service = |decide| Router::new().nest_service("/api", nested_service(decide));
        for target in ["/api/api", "/api/api/", "/api//api"] {
            for pattern in ["/api/api", "/api/api/"] {
                let found = matches_inside(in_service, pattern, target).await;
                assert!(found, "{pattern} {target}");
            }
        }
    }

    #[tokio::test]
    async fn an_empty_last_path_parameter_is_no_way_around() {
        fn nested_at(path: &str, decide: Decide) -> Router {
            let inner = Router::new().fallback(async || "of a tenant");
            Router::new().nest_service(path, from_fn_with_state(decide, ask).layer(inner))
        }
        let service: fn(Decide) -> Router = |decide| nested_at("/files/{tenant}", decide);
        let fallback: fn(Decide) -> Router = |decide| {
            let inner = Router::new().fallback(async || "of a tenant");
            let inner = inner.layer(from_fn_with_state(decide, ask));
            Router::new().nest("/files/{tenant}", inner)
        };
        for (nested, target) in [
            (service, "/files//"),
            (service, "/files///"),
            (fallback, "/files///"),
        ] {
            for (pattern, expected) in [
                ("/files/{tenant}", true),
                ("/files/{tenant}/", true),
                ("/files/ours", false),
            ] {
                let found = matches_inside(nested, pattern, target).await;
                assert_eq!(found, expected, "{pattern} {target}");
            }
        }
        let of_two = |decide| nested_at("/{tenant}/{user}", decide);
        for target in ["/files//", "///", "////"] {
            let found = matches_inside(of_two, "/{tenant}/{user}", target).await;
            assert!(found, "{target}");
        }
        let in_router = |decide| Router::new().nest("/{tenant}", nested_at("/{user}", decide));
        for (pattern, expected) in [("/{tenant}/{user}", true), ("/acme/alice", false)] {
            let found = matches_inside(in_router, pattern, "/acme//").await;
            assert_eq!(found, expected, "{pattern}");
        }
        let at_the_beginning = |decide| nested_at("/{tenant}", decide);
        for (pattern, expected) in [("/{tenant}", true), ("/acme", false)] {
            let found = matches_inside(at_the_beginning, pattern, "//").await;
            assert_eq!(found, expected, "{pattern}");
        }
    }

    #[tokio::test]
    async fn a_nested_path_without_route_matches_by_its_whole_path() {
        for (pattern, expected) in [
            ("/api/{*rest}", true),
            ("/api/nope", true),
            ("/nope", true),
            ("/api/users/{id}", false),
        ] {
            for nested in [nested_router, nested_service] {
                let found = matches_inside(nested, pattern, "/api/nope").await;
                assert_eq!(found, expected, "{pattern}");
            }
        }
    }
}
