//! `Policy`: a named limit for a key, on certain requests, with a cost and a failure mode.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Penalty;
use crate::key::Key;
use crate::limit::Limit;
use crate::mode::Mode;
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

/// A named limit for a key, on certain requests, with a cost and a failure mode.
///
/// The name appears in quota headers, rejections and stored keys. Renaming a policy or changing its
/// algorithm starts its counts anew; changing its numbers does not, except for the period of a
/// [further rate](Limit::and), which identifies that rate.
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
    shows_subject: bool,
}

/// The names of the options after which a request may cost anything.
const SETTLE: &str = "settle";
const SETTLE_AT_END: &str = "settle_at_end";

/// How the cost is settled once the response is known.
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

/// Chooses the limit of a request with this key; `None` for the policy's own.
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
    /// All such requests share one bucket, so that leaving a header out is no way around the limit.
    /// This is the default for what clients send.
    #[default]
    Shared,
    /// Such a request is answered with 400, or INVALID_ARGUMENT over gRPC.
    Reject,
    /// The policy ignores such a request: it passes uncounted.
    Skip,
}

impl Policy {
    /// A policy for all clients together, on every request, at a cost of 1, that lets requests pass
    /// when the store gives no answer.
    ///
    /// The name is 1 to 64 printable ASCII characters.
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
            shows_subject: false,
        }
    }

    /// Sets what a request is counted by. A tuple of extractors makes one key of all they read; a
    /// closure is an extractor as `extractor(|request| ..)`, see [`extractor`](crate::extractor).
    #[must_use]
    pub fn by(mut self, key: impl KeyExtractor) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets the requests that the policy applies to. Called several times, it applies to what
    /// any of them matches. A closure is a matcher as `extractor(|request| ..)`, see
    /// [`extractor`](crate::extractor).
    #[must_use]
    pub fn on(mut self, requests: impl RequestMatcher) -> Self {
        self.on.push(Arc::new(requests));
        self
    }

    /// Sets how many permits each request costs: 1 by default, at least 1, and at most what the
    /// limit ever holds. [`cost_by`](Self::cost_by) reads it from each request.
    #[must_use]
    pub fn cost(mut self, permits: u64) -> Self {
        self.cost = Cost::Fixed(permits);
        self
    }

    /// Reads from the head of each request how many permits it costs. A closure reads it as
    /// `extractor(|request| ..)`, see [`extractor`](crate::extractor).
    ///
    /// The client writes the head: an upload in chunks has no `content-length`, for example. If the
    /// cost is known only once the body has been read, [`settle`](Self::settle) it.
    #[must_use]
    pub fn cost_by(mut self, cost: impl CostExtractor) -> Self {
        self.cost = Cost::Read(Arc::new(cost));
        self
    }

    /// Chooses the limit of each request, for example by the tier of its user. `None` means the
    /// policy's own limit. A limit that makes no sense, or is of another algorithm than the policy's
    /// own, answers the request with 500.
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
    /// The closure is asked in the course of the request and cannot wait. If it takes a query to know the
    /// tier, middleware outside of the layer asks, and leaves the answer in the request's
    /// extensions.
    ///
    /// What a key has used stays used when its limit changes: as the number of permits taken within
    /// the window or, if permits come back one by one ([`gcra`](Limit::gcra),
    /// [`token_bucket`](Limit::token_bucket), [`leaky_bucket`](Limit::leaky_bucket)), as the time
    /// until all of them are back. A key that has used all of 100 a minute has used all of 200 a
    /// minute, too. So let tiers differ in permits, not in the window: permits taken before count
    /// no longer than a shorter window lasts. For a policy with several rates, choose limits with
    /// the same number of rates; each replaces the rate in its place. A key that should get nothing
    /// gets [`Limit::nothing`].
    ///
    /// A request whose [`cost`](Self::cost) is more than the chosen limit ever holds is denied
    /// without a time to retry. Outside HTTP, where there is no request, the policy's own limit
    /// holds; [`peek`](crate::Limiter::peek) goes by that as well.
    #[must_use]
    pub fn limit_by<F>(mut self, limit: F) -> Self
    where
        F: Fn(&RequestHead<'_>, &Key) -> Option<Limit> + Send + Sync + 'static,
    {
        self.limit_by = Some(Arc::new(limit));
        self
    }

    /// Delays a request that exceeds the limit until it is within the limit, instead of denying it,
    /// for at most this long (1 ms to 24 h). A request that would have to wait longer is denied at
    /// once.
    ///
    /// **Keep it shorter than clients wait**, by their own timeout or that of a proxy. A client
    /// that gives up returns its permits only if nobody has queued behind it. So while demand
    /// exceeds the limit, all clients come to wait for places that nobody uses. Take 40 clients
    /// under a limit of 20 a second, each of which gives up after half a second and tries again:
    /// with a longest wait of 400 ms all 20 a second are answered; with a second or more, none are
    /// after the first second.
    ///
    /// A gRPC call that states its deadline (`grpc-timeout`) never waits longer than that: if it
    /// would have to, it is denied at once and takes nothing. The same holds under a
    /// [leaky bucket](Limit::leaky_bucket) without this option.
    ///
    /// While a request waits, it holds what the other policies have granted, such as a place under
    /// a [concurrency](Limit::concurrency) limit. It does not occupy the service behind the layer:
    /// only when its time has come does it wait for the service to be ready. Its quota headers tell
    /// what was left when it arrived.
    ///
    /// The other policies count a request when it arrives. Delayed requests go on together with
    /// those that arrive later, so the service may receive more at once than the other policies
    /// allow. A limit on what reaches the service belongs in a layer of its own inside this one,
    /// which decides each request when it goes on. What the outer layer has taken stays taken if the
    /// inner one denies. [Leaky buckets](Limit::leaky_bucket) delay requests even without this
    /// option.
    ///
    /// A client that gives up while its request waits gets back what the other policies have taken,
    /// even if its place stays taken. So a limit for each client, in the same layer, does not bound
    /// how much of a common queue one client can fill: it gives up each request when its next one
    /// has queued behind, and is never denied. Such a limit belongs in a layer of its own *outside*
    /// of this one, which keeps what it has taken.
    ///
    /// Under a limit of [several rates](Limit::and), what a client leaves behind that gives up may
    /// stay taken under one rate alone, and come back under the others. Those who then wait for the
    /// one may pass the others, each by at most as much as it gives during their wait.
    ///
    /// For [`gcra`](Limit::gcra), [`token_bucket`](Limit::token_bucket) and
    /// [`leaky_bucket`](Limit::leaky_bucket).
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.max_wait = Some(longest);
        self
    }

    /// Stores the state of a subject in one key together with the other policies of this group. A
    /// store that has such keys, like Redis, then decides about all of them for little more than
    /// the price of one.
    ///
    /// Use it for policies about the same subject that mostly apply to the same requests. Policies
    /// can join and leave a group without the others losing their counts. A policy that joins or
    /// leaves starts its own counts anew in such a store, and keeps them in one that has no such
    /// keys, like [`MemoryStore`](crate::MemoryStore).
    ///
    /// What shares the key are the limits of [`gcra`](Limit::gcra),
    /// [`token_bucket`](Limit::token_bucket) and [`leaky_bucket`](Limit::leaky_bucket), each with all
    /// its rates. Those of other algorithms keep keys of their own, as they would in no group.
    ///
    /// 1 to 64 printable ASCII characters.
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

    /// Bans a subject that this policy denies too often. The ban starts in the same step as the
    /// denial that causes it.
    ///
    /// [`Decision::banned_for`](crate::Decision::banned_for) tells how long a ban lasts;
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
    /// The cost is taken when the request arrives, so that no more requests than the limit allows
    /// can be in flight, and given back if the response does not count. It stays taken if there is
    /// no response, because the service failed or the client went away. Giving back works as in
    /// [`settle`](Self::settle), including what is said there about policies that delay requests
    /// and about quota headers: those of a response that does not count still include the cost.
    /// `count_if` and `settle` replace each other; the last one called holds.
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
    /// is an estimate, taken when the request arrives; when the response is there, the difference
    /// is charged or given back. The estimate stays if there is no response.
    ///
    /// A charge may exceed the limit; later requests then wait until it has come back. Permits that
    /// have come back by themselves in the meantime are not given back again. The response does not
    /// wait for any of this, so its quota headers tell what was left after the estimate. If the
    /// store gives no answer at that time, the estimate stays.
    ///
    /// With [`gcra`](Limit::gcra) and the buckets, what has come back is told by what the key owed
    /// when the request arrived, as if nobody else had been given anything back since. A client
    /// that leaves requests open, while it sends others that cost nothing in the end, can so use up
    /// to one permit less than twice the burst or capacity at once; over time it gets no more than
    /// the rate brings. If that is too much, as for logins, use a
    /// [`sliding_log`](Limit::sliding_log) or [`sliding_window`](Limit::sliding_window).
    ///
    /// A cost that is known only when the body has ended, as that of a stream, comes too late for
    /// this: see [`settle_at_end`](Self::settle_at_end).
    ///
    /// A policy that delays requests, by [`max_wait`](Self::max_wait) or as a
    /// [`leaky_bucket`](Limit::leaky_bucket) that is a queue, gives back only while nobody has
    /// taken permits since: the requests queued behind have been told when to go on, and a new one
    /// must not go on beside them. So the estimate stays if another request has followed by the
    /// time of the response.
    ///
    /// Not for [`concurrency`](Limit::concurrency), whose permits come back when a request ends.
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
    /// The closure runs once, at the latest when the body is dropped. If it panics, the estimate
    /// stays. The estimate also stays if there is no response, or the process ends. A body that
    /// is dropped early has not ended [complete](Ending::Complete): a closure of your own should not
    /// make such a request free. A response without a body (to `HEAD`, 204, 304), and one that becomes
    /// another protocol (101, or 2xx to `CONNECT`), settles when it begins.
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

    /// Takes permits of busy subjects in batches and hands them out from memory, for a hot policy
    /// over a [`RedisStore`](crate::RedisStore). [`Prefetch`] describes what changes.
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
    /// By default, requests without what clients send, such as a header or a host, share one
    /// bucket. A request without what the server itself was to provide, such as the user of an
    /// [`Extension`](crate::Extension), is answered with 500 and an explanation, since the limit
    /// most likely stands outside of the authentication. If it is no mistake, because some requests
    /// need no authentication, say here what becomes of them.
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

    /// Sets what to decide when the store gives no answer. By default it is the limiter's choice,
    /// which by default is to let requests pass.
    #[must_use]
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = Some(mode);
        self
    }

    /// Shows whom the policy denies in clear: in the log, to [observers](crate::DecisionEvent) and in
    /// the list of who is [denied most](crate::TopDenied). Without this they see only a hash, so that
    /// neither logs nor metrics collect what identifies people.
    ///
    /// For keys that are no secret and identify nobody, such as tenants or internal services. Never
    /// for API keys. Stored keys are hashed all the same.
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
