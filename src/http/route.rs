//! `Route`: the requests of a method and a path.

use std::fmt;
use std::str::FromStr;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use crate::error::ConfigError;
use crate::one_line::OneLine;
use crate::request::{RequestHead, RequestMatcher};

/// The requests of a method and a path, in the syntax of axum's router: `/users/{id}` takes one
/// segment for `{id}`, `/files/{*rest}` everything below `/files/`.
///
/// ```
/// use tower_throttle::{Header, Limit, MINUTE, Policy, Route};
///
/// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
///     .by(Header::new("x-user"))
///     .on([Route::post("/login"), Route::post("/api/{version}/login")]);
///
/// let same: Route = "POST /login".parse()?;
/// assert_eq!(same, Route::post("/login"));
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # What is compared
///
/// The path is compared as it arrives, without normalisation: `/login/`, `//login` and `/log%69n`
/// are other paths than `/login`, and `/files/{*rest}` does not match `/files/` itself. As in axum,
/// a parameter can be empty, except for the last one: `/api/{version}/login` matches `/api//login`.
///
/// No pattern matches every request: `/{*rest}` does not match `/`, nor a target that is no path
/// (`OPTIONS *`, `CONNECT host:80` and, over HTTP/1.1, `GET host`). Axum passes these to the
/// router's fallback. A policy without a route applies to all of them.
///
/// If the server treats other paths alike, they are a way around the policy. With axum this cannot
/// happen to a pattern that is the text of a route there, if the layer is where the router has
/// already matched (`Router::layer`, `Router::route_layer`) and the crate's feature `axum` is on:
/// the pattern is then compared with the text of the matched route (`MatchedPath`) as well as with
/// the path, and either may match. It can happen to a pattern that is narrower than the route:
/// `/users/me` does not match `/users/m%65` of the route `/users/{id}`, nor `/acme/login` the path
/// `/acme//login` of a service nested at `/{tenant}`.
///
/// A route for `GET` also matches `HEAD`, which axum answers with the same handler, and a `CONNECT`
/// with a path, which opens a WebSocket over HTTP/2
/// ([RFC 8441](https://www.rfc-editor.org/rfc/rfc8441)) as a `GET` does over HTTP/1.1. Either would
/// be a way around the limit otherwise.
///
/// A gRPC method is `Route::any("/package.Service/Method")`. Clients send `POST`, but tonic serves
/// a call by any HTTP method: a route for `POST` could be bypassed.
///
/// Most clients percent-encode text that is not ASCII, and a pattern has to be written so:
/// `/gr%C3%B6%C3%9Fe`, with capital digits, as browsers do; `%c3%b6` is another path. Text that
/// arrives unencoded, as from curl, is encoded before it is compared.
///
/// [`Limiter::new`](crate::Limiter::new) refuses a pattern that no router could have, or that is
/// not encoded so.
///
/// # Nested services
///
/// A layer on a service or router that axum nests at `/files` (`Router::nest`,
/// `Router::nest_service`) sees `/a` of the path `/files/a`. With the feature `axum`, patterns of the
/// whole match there as well, so `/files/{*rest}` does: they are compared with the whole path
/// (`OriginalUri`), and the path that the layer sees is also compared with the text of where it is
/// nested (`NestedPath`) before it. Of the matched route's text, what stands after that text is
/// compared, too: what the nested router itself calls the route.
///
/// So a service can name its own paths wherever it is nested: a layer inside that
/// [exempts](crate::Rules::exempt) `/health` leaves `/files/health` alone. If that is too
/// much, as in front of a proxy to paths of others, put the layer on the outer router, which has only
/// the whole path.
///
/// To a service (`Router::nest_service`) and to a fallback, axum also shows `/a` for `/files//a`,
/// and `/` for both `/files` and `/files/`, so patterns for the one match the other there. A layer on
/// the outer router does not know that there is a service, so `/files//a` is a way around its policies
/// for `/files/a`: put these on the service, or use `/files/{*rest}`.
///
/// Without the feature, and if something other than axum has shortened the path, only the path that
/// the layer sees is compared.
#[derive(Clone)]
pub struct Route {
    method: Option<Method>,
    pattern: String,
    // One router for each route: in a common one, overlapping patterns would shadow each other.
    router: Result<matchit::Router<()>, ConfigError>,
}

impl Route {
    /// Requests of this method whose path fits the pattern.
    pub fn new(method: Method, pattern: impl Into<String>) -> Self {
        Self::of(Some(method), pattern.into())
    }

    /// Requests of any method whose path fits the pattern.
    pub fn any(pattern: impl Into<String>) -> Self {
        Self::of(None, pattern.into())
    }

    /// `GET` and `HEAD` requests, and WebSockets over HTTP/2, whose path fits the pattern.
    pub fn get(pattern: impl Into<String>) -> Self {
        Self::new(Method::GET, pattern)
    }

    /// `POST` requests whose path fits the pattern.
    pub fn post(pattern: impl Into<String>) -> Self {
        Self::new(Method::POST, pattern)
    }

    /// `PUT` requests whose path fits the pattern.
    pub fn put(pattern: impl Into<String>) -> Self {
        Self::new(Method::PUT, pattern)
    }

    /// `PATCH` requests whose path fits the pattern.
    pub fn patch(pattern: impl Into<String>) -> Self {
        Self::new(Method::PATCH, pattern)
    }

    /// `DELETE` requests whose path fits the pattern.
    pub fn delete(pattern: impl Into<String>) -> Self {
        Self::new(Method::DELETE, pattern)
    }

    fn of(method: Option<Method>, pattern: String) -> Self {
        Self {
            method,
            router: router(&pattern),
            pattern,
        }
    }

    fn matches_method(&self, method: &Method) -> bool {
        match &self.method {
            None => true,
            Some(own) => own == method || (own == Method::GET && is_like_get(method)),
        }
    }

    fn matches_path(&self, path: &str) -> bool {
        let matches = |path: &str| {
            let router = self.router.as_ref();
            router.is_ok_and(|router| router.at(path).is_ok())
        };
        matches(path) || (!path.is_ascii() && matches(&percent_encoded(path)))
    }

    /// Whether it matches what axum's routers have noted in the request.
    #[cfg(feature = "axum")]
    fn matches_noted(&self, request: &RequestHead<'_>) -> bool {
        let extensions = request.extensions;
        let nested = extensions.get::<axum::extract::NestedPath>();
        let nested = nested.map(|nested| nested.as_str().trim_end_matches('/'));
        let matched = extensions.get::<axum::extract::MatchedPath>();
        let own = request.uri.path();
        let whole = extensions.get::<axum::extract::OriginalUri>();
        // If nothing is nested, the path has been tried already.
        let whole = whole
            .map(|whole| whole.path())
            .filter(|whole| *whole != own);
        matched.is_some_and(|matched| self.matches_route(matched.as_str(), nested))
            || whole.is_some_and(|whole| self.matches_path(whole))
            || nested.is_some_and(|nested| self.matches_nested(nested, own))
    }

    #[cfg(not(feature = "axum"))]
    fn matches_noted(&self, _: &RequestHead<'_>) -> bool {
        false
    }

    /// The text of the matched route, and what is left of it where its router is nested.
    #[cfg(feature = "axum")]
    fn matches_route(&self, matched: &str, nested: Option<&str>) -> bool {
        // In the text of a route, `{*rest}` looks like one segment but stands for many, so only a
        // catch-all may match it.
        let is_catch_all = |text: &str| text.contains("{*");
        if is_catch_all(matched) && !is_catch_all(&self.pattern) {
            return false;
        }
        let own = nested.and_then(|nested| matched.strip_prefix(nested));
        self.matches_text(matched)
            || own.is_some_and(|own| self.matches_text(if own.is_empty() { "/" } else { own }))
    }

    /// The text where a service is nested, before the path that it is shown: that is the same path
    /// for several whole ones, as axum drops a slash after the nested path.
    #[cfg(feature = "axum")]
    fn matches_nested(&self, nested: &str, own: &str) -> bool {
        self.matches_text(&format!("{nested}{own}"))
            // Such a service answers to its own path with and without a slash at the end.
            || own == "/" && self.matches_text(nested)
    }

    /// Whether it matches the text of a route, in which parameters stand for themselves.
    #[cfg(feature = "axum")]
    fn matches_text(&self, text: &str) -> bool {
        // A literal brace of the pattern would match one that encloses a parameter's name.
        match self.pattern.contains("{{") || self.pattern.contains("}}") {
            true => self.pattern == text,
            false => self.matches_path(text),
        }
    }
}

/// An ordinary `CONNECT` has an authority, and no path that a pattern could match.
fn is_like_get(method: &Method) -> bool {
    matches!(*method, Method::HEAD | Method::CONNECT)
}

fn router(pattern: &str) -> Result<matchit::Router<()>, ConfigError> {
    let refusal = |reason: String| ConfigError::malformed("route", pattern, reason);
    if !pattern.starts_with('/') {
        return Err(refusal("a pattern starts with a slash".to_owned()));
    }
    // No path contains these, and a colon or star meant a parameter in older routers: such a
    // pattern would never match.
    if pattern.contains(|c: char| matches!(c, '?' | '#') || c.is_whitespace() || c.is_control()) {
        return Err(refusal(
            "a pattern is a path, without a query, a fragment or spaces".to_owned(),
        ));
    }
    if pattern.contains("/:") || pattern.contains("/*") {
        return Err(refusal(
            "a parameter is written {name}, the rest of a path {*name}".to_owned(),
        ));
    }
    let sent = as_sent(pattern);
    if sent != pattern {
        return Err(refusal(format!(
            "a path arrives percent-encoded, expected {sent}"
        )));
    }
    let mut router = matchit::Router::new();
    router
        .insert(pattern, ())
        .map_err(|error| refusal(error.to_string()))?;
    Ok(router)
}

/// The pattern, apart from parameter names, as most clients send it: percent-encoded where it is
/// not ASCII, and where `http` refuses the raw character in a path. Characters that should be
/// encoded but that some clients send raw stay.
fn as_sent(pattern: &str) -> String {
    let mut sent = String::with_capacity(pattern.len());
    let mut is_name = false;
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        let is_brace = matches!(char, '{' | '}');
        if is_brace && !is_name && chars.next_if_eq(&char).is_some() {
            // A literal brace of the path.
            sent.extend([char, char]);
            continue;
        }
        if is_brace {
            is_name = char == '{';
        }
        if !is_name && (!char.is_ascii() || matches!(char, '<' | '>' | '`')) {
            push_encoded(char, &mut sent);
        } else {
            sent.push(char);
        }
    }
    sent
}

/// The path as most clients would send it, if this one has characters beyond ASCII.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(2 * path.len());
    for char in path.chars() {
        match char.is_ascii() {
            true => encoded.push(char),
            false => push_encoded(char, &mut encoded),
        }
    }
    encoded
}

fn push_encoded(char: char, text: &mut String) {
    let bytes = String::from(char).into_bytes();
    text.extend(bytes.iter().map(|byte| format!("%{byte:02X}")));
}

impl RequestMatcher for Route {
    fn describe(&self) -> String {
        match &self.method {
            Some(_) => self.to_string(),
            None => format!("any {self}"),
        }
    }

    fn matches(&self, request: &RequestHead<'_>) -> bool {
        self.matches_method(request.method)
            && (self.matches_path(request.uri.path()) || self.matches_noted(request))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.router.as_ref().map(drop).map_err(Clone::clone)
    }
}

/// `POST /login`, or a pattern alone for every method.
impl FromStr for Route {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (method, pattern) = match text.split_once(' ') {
            Some((method, pattern)) => (Some(named_method(text, method)?), pattern.trim_start()),
            None => (None, text),
        };
        let route = Self::of(method, pattern.to_owned());
        route.validate()?;
        Ok(route)
    }
}

/// Only well-known methods: a misspelt one would never match.
fn named_method(text: &str, name: &str) -> Result<Method, ConfigError> {
    [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
    ]
    .into_iter()
    .find(|method| method.as_str() == name)
    .ok_or_else(|| {
        ConfigError::malformed(
            "route",
            text,
            "expected a method in capitals, a space and a pattern, as in \"POST /login\", \
             or a pattern alone",
        )
    })
}

/// Compares methods, and patterns as they are written: `/users/{id}` and `/users/{name}` match the
/// same paths, but differ.
impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        (&self.method, &self.pattern) == (&other.method, &other.pattern)
    }
}

impl Eq for Route {}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.method {
            Some(method) => write!(f, "{method} {}", OneLine(&self.pattern)),
            None => OneLine(&self.pattern).fmt(f),
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({self})")
    }
}

/// Whether a browser asks if code from another origin may send some other request: Fetch standard,
/// section "CORS-preflight request".
pub(crate) fn is_preflight(request: &RequestHead<'_>) -> bool {
    let has = |name| request.headers.contains_key(name);
    *request.method == Method::OPTIONS && has(ORIGIN) && has(ACCESS_CONTROL_REQUEST_METHOD)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_preflight_has_the_method_and_both_headers() {
        let origin = "origin";
        let method = "access-control-request-method";
        for (verb, names, expected) in [
            ("OPTIONS", &[origin, method][..], true),
            ("OPTIONS", &[origin], false),
            ("OPTIONS", &[method], false),
            ("OPTIONS", &[], false),
            ("GET", &[origin, method], false),
        ] {
            let mut request = Request::builder().method(verb);
            for name in names {
                request = request.header(*name, "x");
            }
            let request = request.body(()).unwrap();
            assert_eq!(
                is_preflight(&RequestHead::new(&request)),
                expected,
                "{verb} {names:?}"
            );
        }
    }
}
