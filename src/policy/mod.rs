//! `Policy`: a named limit with its key, its requests, its cost and its failure mode.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Penalty;
use crate::key::Key;
use crate::limit::Limit;
use crate::mode::{Mode, Percent};
use crate::request::{CostExtractor, Everybody, KeyExtractor, RequestHead, RequestMatcher};
use crate::response::{BodyEnd, Ending, ResponseHead};
use crate::store::{FailureMode, Prefetch};

mod compile;
mod compiled;
mod mistakes;
mod rates;
mod resolve;

pub(crate) use self::compiled::CompiledPolicy;
pub(crate) use self::rates::RateSet;
pub(crate) use self::resolve::RejectReason;

/// A named limit: what it is counted by, which requests it applies to, what they cost, and what
/// happens when the store fails.
///
/// The name appears in quota headers, rejections and stored keys. Renaming a policy or changing its
/// algorithm resets its counts. Changing its numbers does not, except for the period of a [further
/// rate](Limit::and), which identifies that rate.
///
/// ```
/// use tower_throttle::{FailureMode, Header, Limit, MINUTE, Policy, Route};
///
/// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
///     .by(Header::new("x-user"))
///     .on(Route::post("/login"))
///     .on_store_failure(FailureMode::Deny);
/// ```
#[derive(Clone)]
pub struct Policy {
    name: String,
    limit: Limit,
    key: Arc<dyn KeyExtractor>,
    on: Vec<Arc<dyn RequestMatcher>>,
    cost: Cost,
    on_missing_key: Option<OnMissingKey>,
    on_store_failure: Option<FailureMode>,
    limit_by: Option<Arc<LimitBy>>,
    max_wait: Option<Duration>,
    penalty: Option<Penalty>,
    group: Option<String>,
    settle: Option<Settle>,
    prefetch: Option<Prefetch>,
    mode: Mode,
    enforce_for: Percent,
    shows_subject: bool,
}

/// The names of the options after which a request may cost anything.
const SETTLE: &str = "settle";
const SETTLE_AT_END: &str = "settle_at_end";

/// How the response settles the cost.
#[derive(Clone)]
struct Settle {
    /// The name of the option that was set.
    option: &'static str,
    cost: SettledCost,
}

/// Computes the final cost.
#[derive(Clone)]
enum SettledCost {
    /// From the head of the response, and from what was charged.
    AtHead(Arc<CostAtHead>),
    /// From the end of its body.
    AtEnd(Arc<CostAtEnd>),
}

type CostAtHead = dyn Fn(&ResponseHead<'_>, u64) -> u64 + Send + Sync;
type CostAtEnd = dyn Fn(&BodyEnd<'_>) -> u64 + Send + Sync;

/// Chooses the limit for a request with this key; `None` for the policy's own.
type LimitBy = dyn Fn(&RequestHead<'_>, &Key) -> Option<Limit> + Send + Sync;

#[derive(Clone)]
enum Cost {
    Fixed(u64),
    Read(Arc<dyn CostExtractor>),
}

/// What a policy does with a request that has no key. Set by
/// [`Policy::on_missing_key`](crate::Policy::on_missing_key).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one key, so that omitting a header does not bypass the limit. The
    /// default for keys that clients send.
    #[default]
    Shared,
    /// Such a request is answered with 400, or INVALID_ARGUMENT over gRPC.
    Reject,
    /// The policy ignores such a request: it passes uncounted.
    Skip,
}

impl Policy {
    /// Creates a policy that applies to every request, counts all clients together, costs 1 and
    /// allows requests when the store fails.
    ///
    /// `name` is 1 to 64 printable ASCII characters.
    pub fn new(name: impl Into<String>, limit: Limit) -> Self {
        Self {
            name: name.into(),
            limit,
            key: Arc::new(Everybody),
            on: Vec::new(),
            cost: Cost::Fixed(1),
            on_missing_key: None,
            on_store_failure: None,
            limit_by: None,
            max_wait: None,
            penalty: None,
            group: None,
            settle: None,
            prefetch: None,
            mode: Mode::default(),
            enforce_for: Percent::ALL,
            shows_subject: false,
        }
    }

    /// Sets what requests are counted by. A tuple of extractors makes one key of all its parts.
    /// Write a closure as `extractor(|request| ..)`; see [`extractor`](crate::extractor).
    #[must_use]
    pub fn by(mut self, key: impl KeyExtractor) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets the requests that the policy applies to. If it is called several times, the policy
    /// applies to requests that any of the matchers matches. Write a closure as
    /// `extractor(|request| ..)`; see [`extractor`](crate::extractor).
    #[must_use]
    pub fn on(mut self, requests: impl RequestMatcher) -> Self {
        self.on.push(Arc::new(requests));
        self
    }

    /// Sets how many permits each request costs: 1 by default, at least 1, and at most the limit's
    /// capacity. [`cost_by`](Self::cost_by) reads the cost from each request.
    #[must_use]
    pub fn cost(mut self, permits: u64) -> Self {
        self.cost = Cost::Fixed(permits);
        self
    }

    /// Reads the cost in permits from the head of each request. Write a closure as
    /// `extractor(|request| ..)`; see [`extractor`](crate::extractor).
    ///
    /// Clients control the head: a chunked upload, for example, has no `content-length`. If the
    /// cost is known only after the body was read, [`settle`](Self::settle) it.
    #[must_use]
    pub fn cost_by(mut self, cost: impl CostExtractor) -> Self {
        self.cost = Cost::Read(Arc::new(cost));
        self
    }

    /// Chooses the limit for each request, for example by the user's tier. `None` means the
    /// policy's own limit. An invalid limit, or one of another algorithm than the policy's own,
    /// answers the request with 500.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Policy};
    ///
    /// #[derive(Clone)]
    /// struct Premium;
    ///
    /// let policy = Policy::new("user", Limit::gcra(60, MINUTE))
    ///     .by(Header::new("x-user"))
    ///     .limit_by(|request, _key| {
    ///         request.extensions.get::<Premium>().map(|_| Limit::gcra(600, MINUTE))
    ///     });
    /// ```
    ///
    /// The closure is synchronous. If the tier needs a query, let middleware outside of the layer
    /// run it and store the result in the request's extensions.
    ///
    /// A different limit does not reset usage. Windows keep the number of permits taken.
    /// [`gcra`](Limit::gcra), [`token_bucket`](Limit::token_bucket) and
    /// [`leaky_bucket`](Limit::leaky_bucket) keep the time until all permits are back, so a key
    /// that has used all of 100 a minute has also used all of 200 a minute. Let tiers differ in
    /// permits, not in the window: permits taken earlier count only for the length of a shorter
    /// window. If the policy has several rates, choose limits with the same number of rates; each
    /// replaces the rate at its position. Use [`Limit::nothing`] for a key that should get nothing.
    ///
    /// A request whose [`cost`](Self::cost) exceeds the capacity of the chosen limit is denied
    /// without a time to retry. Methods outside HTTP, including [`peek`](crate::Limiter::peek), use
    /// the policy's own limit, since there is no request.
    #[must_use]
    pub fn limit_by<F>(mut self, limit: F) -> Self
    where
        F: Fn(&RequestHead<'_>, &Key) -> Option<Limit> + Send + Sync + 'static,
    {
        self.limit_by = Some(Arc::new(limit));
        self
    }

    /// Delays a request that exceeds the limit, instead of denying it, for at most `longest` (1 ms
    /// to 24 h). A request that would have to wait longer is denied immediately.
    ///
    /// **Keep it shorter than the timeouts of clients and proxies.** A client that times out gets
    /// its permits back only if nobody has queued behind it. Under overload, every place in the
    /// queue then belongs to a client that has already left. Example: 40 clients under a limit of
    /// 20 a second, each of which times out after half a second and retries. With a `max_wait` of
    /// 400 ms, all 20 a second are answered. With a second or more, none are after the first
    /// second.
    ///
    /// A gRPC call with a deadline (`grpc-timeout`) never waits longer than that: it is denied
    /// immediately instead and takes nothing. This also applies to a [leaky
    /// bucket](Limit::leaky_bucket) without this option.
    ///
    /// While a request waits, it holds the permits of the other policies, such as a permit of a
    /// [concurrency](Limit::concurrency) limit. It does not occupy the inner service: the layer
    /// polls the service for readiness after the wait. Quota headers show what remained when the
    /// request arrived.
    ///
    /// The other policies count a request when it arrives, not when it goes on. Delayed requests go
    /// on together with later arrivals, so the inner service may receive more at once than the
    /// other policies allow. To limit what reaches the service, put that limit in a separate inner
    /// layer. If the inner layer denies a request, the permits of the outer layer stay taken.
    /// [Leaky buckets](Limit::leaky_bucket) delay requests even without this option.
    ///
    /// A client that disconnects while its request waits is refunded by the other policies of the
    /// same layer, even if its place in the queue stays taken. So a per-client limit in the same
    /// layer does not stop one client from filling a shared queue: the client can drop each request
    /// once its next one has queued behind it. Put per-client limits in a separate *outer* layer,
    /// which does not refund.
    ///
    /// Under a limit of [several rates](Limit::and), the place of a client that disconnects may
    /// stay taken under one rate only. Requests that wait for that rate may then exceed the other
    /// rates, each by at most what the other rate gives during the wait.
    ///
    /// For [`gcra`](Limit::gcra), [`token_bucket`](Limit::token_bucket) and
    /// [`leaky_bucket`](Limit::leaky_bucket).
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.max_wait = Some(longest);
        self
    }

    /// Stores the policy's state in one key together with the other policies of this group. Redis
    /// then decides about all of them for little more than the price of one.
    ///
    /// Use it for policies with the same key that mostly apply to the same requests. If a policy
    /// joins or leaves a group, only its own counts are reset. Stores without grouped keys, like
    /// [`MemoryStore`](crate::MemoryStore), keep all counts.
    ///
    /// Only [`gcra`](Limit::gcra), [`token_bucket`](Limit::token_bucket) and
    /// [`leaky_bucket`](Limit::leaky_bucket) limits share the key, each with all its rates. Limits
    /// of other algorithms keep separate keys.
    ///
    /// `name` is 1 to 64 printable ASCII characters.
    ///
    /// ```
    /// use tower_throttle::{Limit, MINUTE, Policy, Route, SECOND};
    ///
    /// let policies = [
    ///     Policy::new("requests", Limit::gcra(100, MINUTE)).group("client"),
    ///     Policy::new("searches", Limit::gcra(1, SECOND)).on(Route::get("/search")).group("client"),
    /// ];
    /// ```
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Bans a key that this policy denies too often. The denial that causes the ban also starts it,
    /// atomically.
    ///
    /// [`Decision::banned_for`](crate::Decision::banned_for) returns how long a ban lasts;
    /// [`Limiter::reset`](crate::Limiter::reset) lifts it.
    #[must_use]
    pub fn penalty(mut self, penalty: Penalty) -> Self {
        self.penalty = Some(penalty);
        self
    }

    /// Counts only requests with a certain response, such as failed logins. Over gRPC the HTTP
    /// status is always 200: use [`ResponseHead::grpc_status`] there, or
    /// [`count_if_at_end`](Self::count_if_at_end) for calls that fail in the stream of their answer.
    ///
    /// The cost is charged when the request arrives and refunded if the response does not count, so
    /// parallel requests cannot exceed the limit. It stays charged if there is no response, because
    /// the service failed or the client disconnected. The notes on refunds in
    /// [`settle`](Self::settle) apply: policies that delay requests, and quota headers, which still
    /// include the cost. `count_if` and `settle` replace each other; the last call wins.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Policy};
    ///
    /// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
    ///     .by(Header::new("x-user"))
    ///     .count_if(|response| response.status == 401);
    /// ```
    #[must_use]
    pub fn count_if<F>(mut self, counts: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.settle = Some(Settle {
            option: "count_if",
            cost: SettledCost::AtHead(Arc::new(move |response, charged| match counts(response) {
                true => charged,
                false => 0,
            })),
        });
        self
    }

    /// Like [`count_if`](Self::count_if), decided when the body of the response has ended. So it also
    /// sees the trailers, where a gRPC call has its status when it fails in the stream of its answer.
    ///
    /// A request whose body does not end [complete](Ending::Complete) counts without asking:
    /// otherwise a client could leave before the end, and try again for free.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Policy};
    ///
    /// const UNAUTHENTICATED: u32 = 16;
    ///
    /// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
    ///     .by(Header::new("x-user"))
    ///     .count_if_at_end(|end| end.grpc_status() == Some(UNAUTHENTICATED));
    /// ```
    #[must_use]
    pub fn count_if_at_end<F>(mut self, counts: F) -> Self
    where
        F: Fn(&BodyEnd<'_>) -> bool + Send + Sync + 'static,
    {
        self.settle = Some(Settle {
            option: "count_if_at_end",
            cost: SettledCost::AtEnd(Arc::new(move |end| {
                match end.how != Ending::Complete || counts(end) {
                    true => end.charged,
                    false => 0,
                }
            })),
        });
        self
    }

    /// Corrects the cost of a request once its response is known. The policy's [`cost`](Self::cost)
    /// is an estimate that is charged when the request arrives. The response decides whether the
    /// difference is charged or refunded. Without a response, the estimate stays.
    ///
    /// A charge may exceed the limit; later requests are then limited until the excess has come
    /// back. Permits that have already come back are not refunded again. The response does not wait
    /// for this, so its quota headers show what remained after the estimate. If the store fails at
    /// that time, the estimate stays.
    ///
    /// [`gcra`](Limit::gcra) and the buckets estimate what has already come back from the key's
    /// state when the request arrived, as if there had been no other refunds since. A client can
    /// exploit that: it keeps requests open and sends others that cost nothing in the end. It can
    /// then use up to one permit less than twice the burst or capacity at once; over time it gets
    /// no more than the rate. If that is too much, as for logins, use a
    /// [`sliding_log`](Limit::sliding_log) or [`sliding_window`](Limit::sliding_window).
    ///
    /// A cost that is known only when the body has ended, as that of a stream, comes too late for
    /// this: see [`settle_at_end`](Self::settle_at_end).
    ///
    /// A policy that delays requests, by [`max_wait`](Self::max_wait) or as a
    /// [`leaky_bucket`](Limit::leaky_bucket) queue, refunds only if nobody has taken permits since:
    /// queued requests already know when to go on, and a new request must not go on next to them.
    /// So the estimate stays if another request arrived before the response.
    ///
    /// Not for [`concurrency`](Limit::concurrency): its permits come back when the request ends.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, Policy, per_minute};
    ///
    /// /// What a handler leaves in the response's extensions.
    /// #[derive(Clone)]
    /// struct RowsRead(u64);
    ///
    /// let rows = Policy::new("rows", Limit::token_bucket(10_000, per_minute(10_000)))
    ///     .by(Header::new("x-user"))
    ///     .cost(500)
    ///     .settle(|response| response.extensions.get().map_or(500, |RowsRead(rows)| *rows));
    /// ```
    #[must_use]
    pub fn settle<F>(mut self, cost: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> u64 + Send + Sync + 'static,
    {
        self.settle = Some(Settle {
            option: SETTLE,
            cost: SettledCost::AtHead(Arc::new(move |response, _| cost(response))),
        });
        self
    }

    /// Corrects the cost of a request when the body of its response has ended, as
    /// [`settle`](Self::settle) does when the response begins. For what is known only then: the
    /// tokens of an answer that was streamed, the rows of an export.
    ///
    /// Whatever produces the body counts what it uses with the request's
    /// [`Meter`](crate::Meter); [`BodyEnd::used`] is then the cost. The
    /// policy's [`cost`](Self::cost) is an estimate. It is taken when the request arrives, so streams
    /// that run at the same time never exceed the limit together if their estimates cover their cost.
    ///
    /// The closure runs once, at the latest when the body is dropped; while a request is
    /// [charged](crate::Meter::charging) as it goes, also at each call, as if the body were dropped
    /// then. If it panics, the estimate stays. The estimate also stays if the process ends. A body that
    /// is dropped early has not ended [complete](Ending::Complete): a closure of your own should not
    /// make such a request free. If the service fails, or the client hangs up, before there is a
    /// response, the request costs at least the estimate; the closure runs only if the meter was used,
    /// with [`Dropped`](Ending::Dropped) and status 200. A response without a body (to `HEAD`, 204,
    /// 304), and one that becomes another protocol (101, or 2xx to `CONNECT`), settles when it begins.
    ///
    /// `count_if`, `count_if_at_end`, `settle` and `settle_at_end` replace each other; the last one
    /// called holds.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, Policy, per_minute};
    ///
    /// let tokens = Policy::new("tokens", Limit::token_bucket(10_000, per_minute(10_000)))
    ///     .by(Header::new("x-api-key"))
    ///     .cost(500)
    ///     .settle_at_end(|end| end.used());
    /// let cents = Policy::new("cents", Limit::token_bucket(1_000, per_minute(10)))
    ///     .by(Header::new("x-api-key"))
    ///     .cost(5)
    ///     .settle_at_end(|end| end.used_of("cents"));
    /// ```
    #[must_use]
    pub fn settle_at_end<F>(mut self, cost: F) -> Self
    where
        F: Fn(&BodyEnd<'_>) -> u64 + Send + Sync + 'static,
    {
        self.settle = Some(Settle {
            option: SETTLE_AT_END,
            cost: SettledCost::AtEnd(Arc::new(cost)),
        });
        self
    }

    /// Takes permits of busy keys in batches and hands them out from memory, for a hot policy over
    /// a [`RedisStore`](crate::RedisStore). [`Prefetch`] describes what changes.
    ///
    /// For [`gcra`](Limit::gcra), [`token_bucket`](Limit::token_bucket),
    /// [`fixed_window`](Limit::fixed_window) and a [`leaky_bucket`](Limit::leaky_bucket) that is no
    /// queue. Permits of sliding windows and logs cannot be handed out later than they were taken
    /// without breaking the limit in some window. Not together with [several rates](Limit::and),
    /// [`max_wait`](Self::max_wait), [`penalty`](Self::penalty), [`count_if`](Self::count_if),
    /// [`settle`](Self::settle) and their kin, which need the store for each request.
    ///
    /// ```
    /// use tower_throttle::{Limit, Policy, Prefetch, SECOND};
    ///
    /// let everybody = Policy::new("everybody", Limit::gcra(50_000, SECOND))
    ///     .prefetch(Prefetch::new());
    /// ```
    #[must_use]
    pub fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// Sets what to do with a request that has no key.
    ///
    /// By default, requests that lack what clients send, such as a header or a host, share one key.
    /// Requests that lack what the server must provide, such as the user of an
    /// [`Extension`](crate::Extension), are answered with 500 and an explanation: most likely the
    /// layer is outside of the authentication. Set this option if some requests need no
    /// authentication.
    #[must_use]
    pub fn on_missing_key(mut self, what: OnMissingKey) -> Self {
        self.on_missing_key = Some(what);
        self
    }

    /// Sets whether the policy is enforced, only counts, or is off: by default [`Mode::Enforce`].
    /// [`Limiter::set_mode`](crate::Limiter::set_mode) changes it at run time.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Enforces the policy for a share of the subjects only, while all others are in
    /// [shadow](Mode::Shadow): a limit can be introduced step by step.
    /// [`Limiter::set_enforced_for`](crate::Limiter::set_enforced_for) changes the share at run time.
    ///
    /// The hash of a subject decides. So it is the same subjects in every process, and a larger share
    /// has those of a smaller one and others. All subjects are counted. The share applies as long as
    /// the policy's [`mode`](Self::mode) is [`Mode::Enforce`].
    ///
    /// Requests with the same key are enforced together: a policy without a key of its own, for
    /// everybody, is enforced for all or for nobody.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Percent, Policy};
    ///
    /// let trial = Policy::new("trial", Limit::gcra(100, MINUTE))
    ///     .by(Header::new("x-api-key"))
    ///     .enforce_for(Percent::new(5)?);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    #[must_use]
    pub fn enforce_for(mut self, share: Percent) -> Self {
        self.enforce_for = share;
        self
    }

    /// Sets what to decide when the store gives no answer. By default it is the limiter's choice,
    /// which by default is to let requests pass.
    #[must_use]
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = Some(mode);
        self
    }

    /// Shows keys in clear text: in the log, to [observers](crate::DecisionEvent) and in
    /// [`TopDenied`](crate::TopDenied). By default they see only a hash, so that logs and metrics
    /// collect no personal data.
    ///
    /// Use it for keys that are neither secret nor personal, such as tenants or internal services.
    /// Never use it for API keys. Stored keys are hashed in any case.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Policy};
    ///
    /// let tenants = Policy::new("tenant", Limit::gcra(600, MINUTE))
    ///     .by(Header::new("x-tenant"))
    ///     .show_subject();
    /// ```
    #[must_use]
    pub fn show_subject(mut self) -> Self {
        self.shows_subject = true;
        self
    }

    #[cfg(feature = "config")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The limit as the user gave it.
    #[cfg(feature = "config")]
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The same policy with another limit.
    #[cfg(feature = "config")]
    pub(crate) fn with_limit(self, limit: Limit) -> Self {
        Self { limit, ..self }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
