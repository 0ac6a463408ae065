//! `Feedback`: what the responses of an upstream say about when to send the next request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Response, StatusCode, header};

use crate::response::ResponseHead;
use crate::time::MINUTE;

mod grpc;
mod rate_limit;
mod structured;
mod wait;
mod x_rate_limit;

/// How long a response asks all clients to wait.
type Announced = dyn Fn(&ResponseHead<'_>) -> Option<Duration> + Send + Sync;

/// Reads from the responses of an upstream how long a
/// [`ThrottleLayer`](crate::ThrottleLayer::feedback) should send it no requests.
///
/// [`http`](Self::http) reads the usual headers, and [`by`](Self::by) is for all others. Responses are
/// those of hyper and tonic, [`http::Response`], unless [`head`](Self::head) sets how to read another
/// type.
///
/// ```
/// use std::time::{Duration, Instant};
/// use http::{Request, Response};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_throttle::{Feedback, Limit, Limiter, MemoryStore, Policy, ThrottleLayer, per_second};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = Policy::new("partner", Limit::token_bucket(5, per_second(50)));
/// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
/// let feedback = Feedback::http().max_hold(Duration::from_secs(10));
/// let mut client = ServiceBuilder::new()
///     .layer(ThrottleLayer::new(limiter, "partner")?.feedback(feedback))
///     .service(service_fn(async |_: Request<()>| {
///         Response::builder().status(429).header("retry-after", "1").body(())
///     }));
///
/// let start = Instant::now();
/// client.ready().await?.call(Request::new(())).await?;
/// // For a second no process of the fleet sends another request.
/// client.ready().await?;
/// assert!(start.elapsed() > Duration::from_millis(990));
/// # Ok(())
/// # }
/// ```
pub struct Feedback<H = HttpHead> {
    announced: Arc<Announced>,
    longest: Duration,
    head: H,
}

/// Reads the head of any [`http::Response`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct HttpHead;

/// Reads the head of a response. Implemented by [`HttpHead`], and by functions for
/// [`Feedback::head`].
pub trait ReadHead<R> {
    /// The head of this response.
    fn head<'r>(&self, response: &'r R) -> ResponseHead<'r>;
}

impl<B> ReadHead<Response<B>> for HttpHead {
    fn head<'r>(&self, response: &'r Response<B>) -> ResponseHead<'r> {
        ResponseHead::new(response)
    }
}

impl<R, F> ReadHead<R> for F
where
    F: for<'r> Fn(&'r R) -> ResponseHead<'r>,
{
    fn head<'r>(&self, response: &'r R) -> ResponseHead<'r> {
        self(response)
    }
}

impl Feedback {
    /// Obeys the usual headers of a denial: see [`announced`](Self::announced).
    pub fn http() -> Self {
        Self::by(Self::announced)
    }

    /// Obeys what this function returns: how long no request is to be sent, or `None` if the response
    /// does not hold any.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::Feedback;
    ///
    /// // This upstream has a header of its own. A 429 that says nothing holds for a second.
    /// let feedback = Feedback::by(|response| {
    ///     let backoff = response.headers.get("x-backoff-ms");
    ///     let backoff = backoff.and_then(|ms| ms.to_str().ok()?.parse().ok());
    ///     let backoff = backoff.map(Duration::from_millis);
    ///     let backoff = backoff.or_else(|| Feedback::announced(response));
    ///     backoff.or((response.status == 429).then_some(Duration::from_secs(1)))
    /// });
    /// ```
    pub fn by(
        announced: impl Fn(&ResponseHead<'_>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        Self {
            announced: Arc::new(announced),
            longest: MINUTE,
            head: HttpHead,
        }
    }

    /// How long a denial asks to wait, by the usual headers. `None` for any other response, and for a
    /// denial without such a header.
    ///
    /// A denial is a 429 or a 503, or over gRPC `RESOURCE_EXHAUSTED` or `UNAVAILABLE`. The first of
    /// these headers that it has counts:
    ///
    /// | header | is read as |
    /// |---|---|
    /// | `Retry-After` | seconds or a date |
    /// | `RateLimit`, with `RateLimit-Policy` | drafts 7 to 11 of the IETF: the longest time of a quota of which nothing remains; without a time, its window |
    /// | `RateLimit-Reset`, with `RateLimit-Remaining` | drafts 3 to 6 |
    /// | `X-RateLimit-Reset`, `-Reset-After`, with `X-RateLimit-Remaining` | seconds from now or since 1970, milliseconds since 1970, a date, or a duration such as `6m0s`; also as `X-Rate-Limit-`, and for several quotas such as `X-RateLimit-Reset-Tokens` |
    ///
    /// In the last three, a quota with permits left is ignored. Over gRPC the longer of
    /// `grpc-retry-pushback-ms` and the `RetryInfo` in `grpc-status-details-bin` counts. They are read
    /// from the head of the response, where a server puts them when it denies a call before the first
    /// message (*trailers-only*). Trailers after a message are not read.
    ///
    /// A date is compared with the response's own `Date`, if there is one, so that the clocks need not
    /// agree. A date in the past means no wait.
    pub fn announced(response: &ResponseHead<'_>) -> Option<Duration> {
        announced(response, SystemTime::now())
    }
}

impl<H> Feedback<H> {
    /// Reads the head of other responses than [`http::Response`], such as those of reqwest:
    ///
    /// ```
    /// use tower_throttle::{Feedback, ResponseHead};
    ///
    /// let feedback = Feedback::http().head(|response: &reqwest::Response| {
    ///     ResponseHead::from_parts(response.status(), response.headers(), response.extensions())
    /// });
    /// ```
    pub fn head<R, F>(self, head: F) -> Feedback<F>
    where
        F: for<'r> Fn(&'r R) -> ResponseHead<'r>,
    {
        Feedback {
            announced: self.announced,
            longest: self.longest,
            head,
        }
    }

    /// Sets the longest hold: a minute by default. After it, requests go on, and the upstream may hold
    /// them again. So a mistake of the upstream does not stop the fleet for days.
    #[must_use]
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// How long a response asks to hold, at most the longest hold.
    pub(crate) fn read<R>(&self, response: &R) -> Option<Duration>
    where
        H: ReadHead<R>,
    {
        let announced = (self.announced)(&self.head.head(response))?.min(self.longest);
        (!announced.is_zero()).then_some(announced)
    }
}

impl<H: Clone> Clone for Feedback<H> {
    fn clone(&self) -> Self {
        Self {
            announced: Arc::clone(&self.announced),
            longest: self.longest,
            head: self.head.clone(),
        }
    }
}

impl<H> fmt::Debug for Feedback<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feedback")
            .field("max_hold", &self.longest)
            .finish_non_exhaustive()
    }
}

fn announced(response: &ResponseHead<'_>, here: SystemTime) -> Option<Duration> {
    if let Some(code) = response.grpc_status() {
        return grpc::wait(code, response.headers);
    }
    let refusals = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    if !refusals.contains(&response.status) {
        return None;
    }
    let headers = response.headers;
    let now = text(headers, header::DATE.as_str())
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or(here);
    wait::retry_after(headers, now)
        .or_else(|| rate_limit::wait(headers))
        .or_else(|| x_rate_limit::wait(headers, now))
}

/// The value of a header that is there once or more, of which the first counts.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests;
