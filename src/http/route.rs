//! `Route`: matches requests by method and path.

use std::fmt;
use std::str::FromStr;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use crate::error::ConfigError;
use crate::one_line::OneLine;
use crate::request::{RequestHead, RequestMatcher};

/// Matches requests by method and path, in the syntax of axum's router: `/users/{id}` matches one
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
/// are not `/login`, and `/files/{*rest}` does not match `/files/` itself. As in axum, a parameter
/// can be empty, except for the last one: `/api/{version}/login` matches `/api//login`.
///
/// No pattern matches every request: `/{*rest}` matches neither `/` nor a target that is not a path
/// (`OPTIONS *`, `CONNECT host:80` and, over HTTP/1.1, `GET host`). Axum passes these to the
/// router's fallback. A policy without a route applies to all of them.
///
/// If the server routes other spellings of a path to the same handler, they bypass the policy. With
/// axum this cannot happen if the pattern is the text of an axum route, the layer is added by
/// `Router::layer` or `Router::route_layer`, and the crate's feature `axum` is on: the pattern then
/// matches the text of the matched route (`MatchedPath`) or the path. It can happen if the pattern
/// is narrower than the route: `/users/me` does not match `/users/m%65` of the route `/users/{id}`,
/// and `/acme/login` does not match the path `/acme//login` of a service nested at `/{tenant}`.
///
/// A route for `GET` also matches `HEAD`, which axum answers with the same handler, and a `CONNECT`
/// with a path, which opens a WebSocket over HTTP/2 ([RFC
/// 8441](https://www.rfc-editor.org/rfc/rfc8441)) as `GET` does over HTTP/1.1. Otherwise these
/// methods would bypass the limit.
///
/// For a gRPC method, use `Route::any("/package.Service/Method")`. Clients send `POST`, but tonic
/// serves a call by any HTTP method, so a route for `POST` could be bypassed.
///
/// Write text that is not ASCII percent-encoded, as most clients send it: `/gr%C3%B6%C3%9Fe`, with
/// capital digits, as browsers do; `%c3%b6` is another path. Text that arrives unencoded, as from
/// curl, is encoded before it is compared.
///
/// [`Limiter::new`](crate::Limiter::new) rejects a pattern that is invalid or not encoded so.
///
/// # Nested services
///
/// A layer on a service or router that axum nests at `/files` (`Router::nest`,
/// `Router::nest_service`) sees the path `/files/a` as `/a`. With the feature `axum`, patterns for
/// the whole path, such as `/files/{*rest}`, match there too: they are compared with the original
/// path (`OriginalUri`) and with the nesting prefix (`NestedPath`) followed by the inner path. They
/// are also compared with the part of the matched route that follows the prefix, which is the
/// nested router's own name of the route.
///
/// So a service can use its own paths wherever it is nested: a layer inside that
/// [exempts](crate::Rules::exempt) `/health` also exempts `/files/health`. If you do not want that,
/// as for a proxy to other servers' paths, put the layer on the outer router, which sees only the
/// whole path.
///
/// A nested service (`Router::nest_service`) and a fallback see `/a` for `/files//a` too, and `/`
/// for both `/files` and `/files/`, so patterns for one match the other there. A layer on the outer
/// router does not know about the service, so `/files//a` bypasses its policies for `/files/a`: put
/// these on the service, or use `/files/{*rest}`.
///
/// Without the feature, or if something other than axum has shortened the path, only the path that
/// the layer sees is compared.
#[derive(Clone)]
pub struct Route {
    method: Option<Method>,
    pattern: String,
    // One router for each route: in a shared one, overlapping patterns would hide each other.
    router: Result<matchit::Router<()>, ConfigError>,
}

impl Route {
    /// Matches requests with this method and a path that matches the pattern.
    pub fn new(method: Method, pattern: impl Into<String>) -> Self {
        Self::of(Some(method), pattern.into())
    }

    /// Matches requests of any method whose path matches the pattern.
    pub fn any(pattern: impl Into<String>) -> Self {
        Self::of(None, pattern.into())
    }

    /// Matches `GET` and `HEAD` requests, and WebSockets over HTTP/2.
    pub fn get(pattern: impl Into<String>) -> Self {
        Self::new(Method::GET, pattern)
    }

    /// Matches `POST` requests.
    pub fn post(pattern: impl Into<String>) -> Self {
        Self::new(Method::POST, pattern)
    }

    /// Matches `PUT` requests.
    pub fn put(pattern: impl Into<String>) -> Self {
        Self::new(Method::PUT, pattern)
    }

    /// Matches `PATCH` requests.
    pub fn patch(pattern: impl Into<String>) -> Self {
        Self::new(Method::PATCH, pattern)
    }

    /// Matches `DELETE` requests.
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

    /// Whether it matches what axum's routers have recorded in the request.
    #[cfg(feature = "axum")]
    fn matches_noted(&self, request: &RequestHead<'_>) -> bool {
        let extensions = request.extensions;
        let nested = extensions.get::<axum::extract::NestedPath>();
        let nested = nested.map(|nested| nested.as_str().trim_end_matches('/'));
        let matched = extensions.get::<axum::extract::MatchedPath>();
        let own = request.uri.path();
        let whole = extensions.get::<axum::extract::OriginalUri>();
        // Without nesting, the path has been compared already.
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

    /// Compares the text of the matched route, and the part of it inside of the nested router.
    #[cfg(feature = "axum")]
    fn matches_route(&self, matched: &str, nested: Option<&str>) -> bool {
        // In the text of a route, `{*rest}` looks like one segment but matches many, so only a
        // catch-all may match it.
        let is_catch_all = |text: &str| text.contains("{*");
        if is_catch_all(matched) && !is_catch_all(&self.pattern) {
            return false;
        }
        let own = nested.and_then(|nested| matched.strip_prefix(nested));
        self.matches_text(matched)
            || own.is_some_and(|own| self.matches_text(if own.is_empty() { "/" } else { own }))
    }

    /// Compares the nesting prefix followed by the inner path. Several whole paths have the same
    /// inner path, since axum drops a slash after the prefix.
    #[cfg(feature = "axum")]
    fn matches_nested(&self, nested: &str, own: &str) -> bool {
        self.matches_text(&format!("{nested}{own}"))
            // Such a service serves its own path with and without a trailing slash.
            || own == "/" && self.matches_text(nested)
    }

    /// Whether it matches the text of a route, where parameters are literal text.
    #[cfg(feature = "axum")]
    fn matches_text(&self, text: &str) -> bool {
        // A literal brace of the pattern would match one that encloses a parameter's name.
        match self.pattern.contains("{{") || self.pattern.contains("}}") {
            true => self.pattern == text,
            false => self.matches_path(text),
        }
    }
}

/// `HEAD`, and `CONNECT` with a path. An ordinary `CONNECT` has no path that a pattern could match.
fn is_like_get(method: &Method) -> bool {
    matches!(*method, Method::HEAD | Method::CONNECT)
}

fn router(pattern: &str) -> Result<matchit::Router<()>, ConfigError> {
    let refusal = |reason: String| ConfigError::malformed("route", pattern, reason);
    if !pattern.starts_with('/') {
        return Err(refusal("a pattern starts with a slash".to_owned()));
    }
    // No path contains these. A colon or star meant a parameter in older routers. Such a pattern
    // would never match.
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

/// The pattern as most clients send it, apart from parameter names: percent-encoded where it is not
/// ASCII, and where `http` rejects the raw character in a path. Characters that should be encoded
/// but that some clients send raw stay.
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

/// The path as most clients would send it, if it contains characters beyond ASCII.
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

/// Parses `POST /login`, or a pattern alone for every method.
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

/// Compares methods, and patterns as text: `/users/{id}` and `/users/{name}` match the same paths,
/// but are not equal.
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

/// Whether the request is a CORS preflight: Fetch standard, section "CORS-preflight request".
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
