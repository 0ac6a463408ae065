//! Quota headers: they show clients the policies that applied.

use http::{HeaderName, Response};

use super::rejection::{Rejection, prolong};
use super::seconds::renewal_secs;
use crate::decision::Decision;
use crate::limiter::Conclusion;
use crate::time::Clock;

mod draft_11;
mod single_value;
mod text;

/// The quota headers of responses: families of headers, each on every response or on denials only.
///
/// ```
/// use tower_throttle::QuotaHeaders;
///
/// // the newest draft; on denials also the older X-RateLimit headers, for a client that knows no
/// // other
/// let headers = QuotaHeaders::DRAFT_11.and(QuotaHeaders::X_RATELIMIT_EPOCH.on_denials());
/// ```
///
/// For a limit of [several rates](crate::Limit::and), they describe one rate: the one that denies
/// for longest or, if none denies, the one with the fewest permits remaining.
///
/// They show what remains after the request was charged. Refunds by
/// [`count_if`](crate::Policy::count_if) and [`settle`](crate::Policy::settle) come later and are
/// not included: with a limit of one failed login, even a successful login shows no remaining
/// permits.
///
/// They are omitted from redirects (status 3xx), and for policies whose store failed or that were
/// [not evaluated](crate::Outcome::NotAsked).
///
/// # Draft 11
///
/// [`DRAFT_11`](Self::DRAFT_11), the default, has the syntax of
/// [draft-ietf-httpapi-ratelimit-headers-11][11], with an item for each policy that applied to the
/// request:
///
/// ```http
/// RateLimit-Policy: "client";q=100;w=60, "everybody";q=10000;w=1
/// RateLimit: "client";r=50;t=30, "everybody";r=9998;t=1
/// ```
///
/// | parameter | meaning |
/// |---|---|
/// | `q` | the number of permits in each window |
/// | `w` | the window, in seconds, rounded up |
/// | `r` | the permits that remain after the request was charged |
/// | `t` | in seconds, at least 1. If `r` is above 0, a client that spreads the `r` permits over this time stays within the policy. If `r` is 0, the time until the next permit, even if the request was allowed. Never later than the `Retry-After` of the policy's denial. For a fixed window, the time to its end |
///
/// A [concurrency](crate::Limit::concurrency) limit has no window: it has the parameter
/// `qu="concurrent-requests"` instead of `w`, and no `t`. A limit that [admits
/// nothing](crate::Limit::nothing) has only `q=0` and `r=0`.
///
/// Each field takes at most 1 KiB: about thirty policies, or six with the longest names. If more
/// policies apply, those closest to exhaustion are listed, by the same rule as for headers of one
/// value.
///
/// The fields are appended, so each of several nested layers adds its own. If a handler denies a
/// request itself, as a [`Rejection`], the innermost layer adds the handler's policy too.
///
/// # Headers of one value
///
/// [`DRAFT_6`](Self::DRAFT_6), and [`X_RATELIMIT_DELTA`](Self::X_RATELIMIT_DELTA) or
/// [`X_RATELIMIT_EPOCH`](Self::X_RATELIMIT_EPOCH), are for clients that read the older headers:
///
/// ```http
/// X-RateLimit-Limit: 100
/// X-RateLimit-Remaining: 50
/// X-RateLimit-Reset: 30
/// ```
///
/// | header | meaning |
/// |---|---|
/// | `-Limit` | the number of permits in each window |
/// | `-Remaining` | the permits that remain after the request was charged, at most the limit |
/// | `-Reset` | when all permits are back, but not before the request would be allowed; rounded up. In seconds from now, or in seconds since the Unix epoch by this server's clock |
///
/// They show only one policy, the one closest to exhaustion. If policies deny, it is the one with
/// the longest wait. Otherwise it is the one with the fewest permits remaining; among equals, the
/// one with the latest reset. With a burst or a capacity, more permits than the limit may remain:
/// the comparison uses the full number, the header shows at most the limit.
///
/// A [concurrency](crate::Limit::concurrency) limit and one that [admits
/// nothing](crate::Limit::nothing) have no reset and are never shown. If no denying policy can be
/// shown, as on a denial by such a limit or after a store failure, the headers are omitted, because
/// another policy does not explain the denial.
///
/// If the service or an inner layer has written the same three headers as numbers, the tighter
/// values win, by the same rule. The headers of an inner denial, or of your own
/// [`OnRejection`](crate::OnRejection), always stay, and an outer layer adds none to such a
/// response. If a handler denies a request itself, as a [`Rejection`], they show the handler's
/// policy. Use the same reset format in nested layers.
///
/// # `Retry-After`
///
/// The longest wait of the policies that deny. If a handler or an inner layer denies a request that
/// has taken the last permit of an outer layer's policy, the outer layer raises `Retry-After` (and
/// the pushback over gRPC) to the time of that policy's next permit. The body is not changed.
///
/// # Browsers
///
/// Browser code sees neither these headers nor `Retry-After`, unless a CORS layer *outside* of this
/// layer exposes them:
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_http::cors::{Any, CorsLayer};
/// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy, QuotaHeaders, RateLimitLayer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let headers = QuotaHeaders::DRAFT_11;
/// let cors = CorsLayer::new().allow_origin(Any).expose_headers(headers.names());
/// let limiter = Limiter::new(MemoryStore::new(), [Policy::new("api", Limit::gcra(100, MINUTE))])?;
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(RateLimitLayer::new(limiter).headers(headers))
///     .layer(cors);
/// # Ok(())
/// # }
/// ```
///
/// An outer CORS layer also answers preflights, so that they are not counted, and lets browser code
/// see that a request was denied. If your service answers preflights itself, see
/// [`RateLimitLayer::skip_preflights`].
///
/// [11]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/
/// [`RateLimitLayer::skip_preflights`]: crate::RateLimitLayer::skip_preflights
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaHeaders {
    draft_11: Option<When>,
    draft_6: Option<When>,
    /// One field for both formats, since they use the same headers.
    x_ratelimit: Option<(ResetFormat, When)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    OnDenials,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResetFormat {
    Delta,
    Epoch,
}

impl QuotaHeaders {
    /// No quota headers; `Retry-After` stays.
    pub const NONE: Self = Self {
        draft_11: None,
        draft_6: None,
        x_ratelimit: None,
    };

    /// `RateLimit-Policy` and `RateLimit`, in the syntax of draft 11. The default.
    pub const DRAFT_11: Self = Self {
        draft_11: Some(When::Always),
        ..Self::NONE
    };

    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, in seconds from now: the
    /// common part of the drafts 3 to 6.
    pub const DRAFT_6: Self = Self {
        draft_6: Some(When::Always),
        ..Self::NONE
    };

    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, in seconds from now.
    pub const X_RATELIMIT_DELTA: Self = Self {
        x_ratelimit: Some((ResetFormat::Delta, When::Always)),
        ..Self::NONE
    };

    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, in seconds since the
    /// Unix epoch.
    pub const X_RATELIMIT_EPOCH: Self = Self {
        x_ratelimit: Some((ResetFormat::Epoch, When::Always)),
        ..Self::NONE
    };

    /// Combines two sets of headers. If both include the same header, `others` takes precedence:
    /// there is only one `X-RateLimit-Reset`, in one format.
    #[must_use]
    pub const fn and(mut self, others: Self) -> Self {
        if others.draft_11.is_some() {
            self.draft_11 = others.draft_11;
        }
        if others.draft_6.is_some() {
            self.draft_6 = others.draft_6;
        }
        if others.x_ratelimit.is_some() {
            self.x_ratelimit = others.x_ratelimit;
        }
        self
    }

    /// Sends these headers only on denials.
    #[must_use]
    pub const fn on_denials(mut self) -> Self {
        if self.draft_11.is_some() {
            self.draft_11 = Some(When::OnDenials);
        }
        if self.draft_6.is_some() {
            self.draft_6 = Some(When::OnDenials);
        }
        if let Some((format, _)) = self.x_ratelimit {
            self.x_ratelimit = Some((format, When::OnDenials));
        }
        self
    }

    /// The names of all these headers, including `Retry-After`: a CORS layer has to expose them.
    pub fn names(self) -> Vec<HeaderName> {
        let mut names = vec![http::header::RETRY_AFTER];
        if self.draft_11.is_some() {
            names.extend([draft_11::POLICY, draft_11::QUOTA]);
        }
        if self.draft_6.is_some() {
            names.extend_from_slice(&single_value::DRAFT_6);
        }
        if self.x_ratelimit.is_some() {
            names.extend_from_slice(&single_value::X_RATELIMIT);
        }
        names
    }

    /// The fields for the response to a request with this verdict.
    pub(crate) fn fields(self, conclusion: &Conclusion<'_>, clock: &impl Clock) -> QuotaFields {
        let is_admitted = conclusion.is_admitted();
        let mut fields = self.due(is_admitted).fields_of(conclusion.each(), clock);
        if is_admitted {
            fields.empty_for_secs = empty_for_secs(conclusion.each_for_good());
        }
        fields
    }

    /// Adds the fields of the policies by which a handler denied the request, unless an inner layer
    /// has done so. Handlers do not know which families to send.
    pub(crate) fn add_fields_of_handler<B>(self, response: &mut Response<B>, clock: &impl Clock) {
        if let Some(verdict) = Rejection::of_response(response).and_then(Rejection::by_handler)
            && response.extensions().get::<HasFieldsOfHandler>().is_none()
        {
            let mut fields = self.due(false).fields_of(verdict.iter(), clock);
            fields.add_to(response);
            response.extensions_mut().insert(HasFieldsOfHandler);
        }
    }

    /// The families that the response gets.
    fn due(self, is_allowed: bool) -> Self {
        let is_due = |when: &When| *when == When::Always || !is_allowed;
        Self {
            draft_11: self.draft_11.filter(is_due),
            draft_6: self.draft_6.filter(is_due),
            x_ratelimit: self.x_ratelimit.filter(|(_, when)| is_due(when)),
        }
    }

    fn fields_of<'a>(
        self,
        each: impl Iterator<Item = (&'a str, &'a Decision)> + Clone,
        clock: &impl Clock,
    ) -> QuotaFields {
        let mut fields = QuotaFields::default();
        if self.draft_11.is_some() {
            fields.lists = draft_11::Lists::of(each.clone());
        }
        if (self.draft_6.is_some() || self.x_ratelimit.is_some())
            && let Some(tightest) = single_value::tightest(each.map(|(_, decision)| decision))
        {
            fields.shows_denial = !tightest.is_allowed();
            let delta = || single_value::Values::with_delta(tightest);
            fields.draft_6 = self.draft_6.map(|_| delta());
            fields.x_ratelimit = self.x_ratelimit.map(|(format, _)| match format {
                ResetFormat::Delta => delta(),
                ResetFormat::Epoch => {
                    single_value::Values::with_epoch(tightest, clock.wall_clock())
                }
            });
        }
        fields
    }
}

impl Default for QuotaHeaders {
    fn default() -> Self {
        Self::DRAFT_11
    }
}

/// The seconds until all policies that allowed the request have a permit again; 0 if they have one.
fn empty_for_secs<'a>(each: impl Iterator<Item = &'a Decision>) -> u64 {
    let empty = each.filter(|decision| {
        decision.remaining == 0 && decision.is_evaluated() && decision.counts_in_time()
    });
    empty.map(renewal_secs).max().unwrap_or(0)
}

/// Marks a response whose headers already include the policies by which a handler denied it.
#[derive(Clone, Copy)]
struct HasFieldsOfHandler;

/// The fields of one response; empty if there is nothing to show.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct QuotaFields {
    lists: Option<draft_11::Lists>,
    draft_6: Option<single_value::Values>,
    x_ratelimit: Option<single_value::Values>,
    /// Whether the headers of one value describe a policy that denies.
    shows_denial: bool,
    /// The seconds for which policies that allowed the request would deny the next one; 0 if they
    /// would not.
    empty_for_secs: u64,
}

impl QuotaFields {
    /// Adds the fields to those of inner layers. Redirects get none, since their target has its
    /// own. Called once. Takes the fields by reference, because a move would copy the buffers of
    /// all families.
    pub(crate) fn add_to<B>(&mut self, response: &mut Response<B>) {
        if response.status().is_redirection() {
            return;
        }
        let is_rejection = Rejection::of_response(response).is_some();
        let headers = response.headers_mut();
        if is_rejection {
            prolong(headers, self.empty_for_secs);
        }
        if let Some(lists) = self.lists.take() {
            lists.append_to(headers);
        }
        if is_rejection && !self.shows_denial {
            // An inner layer denies the request.
            return;
        }
        if let Some(values) = self.draft_6 {
            values.put(&single_value::DRAFT_6, headers, is_rejection);
        }
        if let Some(values) = self.x_ratelimit {
            values.put(&single_value::X_RATELIMIT, headers, is_rejection);
        }
    }
}

#[cfg(test)]
mod tests;
