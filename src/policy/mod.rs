//! `Policy`: a named limit for a key, on certain requests, with a cost and a failure mode.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Penalty;
use crate::key::Key;
use crate::limit::Limit;
use crate::mode::Mode;
use crate::request::{CostExtractor, KeyExtractor, LimitExtractor, RequestHead, RequestMatcher};
use crate::response::ResponseHead;
use crate::store::{FailureMode, QuotaLease};

mod atomic_mode;
mod rates;
mod read;
mod ready;
mod sound;

pub(crate) use self::rates::Judges;
pub(crate) use self::read::Unjudged;
pub(crate) use self::ready::ReadyPolicy;

/// A named limit for a key, on certain requests, with a cost and a failure mode.
///
/// The name appears in quota headers, rejections and stored keys. Renaming a policy, or changing
/// its algorithm, starts its counts anew; changing the numbers does not, but for the period of a
/// [further rate](Limit::and), which is known by it.
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
    on_missing_key: OnMissingKey,
    on_store_failure: Option<FailureMode>,
    limit_by: Option<Arc<dyn LimitExtractor>>,
    max_wait: Option<Duration>,
    penalty: Option<Penalty>,
    group: Option<String>,
    settle: Option<Settle>,
    quota_lease: Option<QuotaLease>,
    mode: Mode,
}

/// How the cost is settled when the response is there.
#[derive(Clone)]
struct Settle {
    /// The option that was set.
    option: &'static str,
    cost: Arc<SettledCost>,
}

/// The cost that a request turns out to have: by its response, and by what it was charged.
type SettledCost = dyn Fn(&ResponseHead<'_>, u32) -> u32 + Send + Sync;

#[derive(Clone)]
enum Cost {
    Fixed(u32),
    Read(Arc<dyn CostExtractor>),
}

/// What a policy does with a request that does not say whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one bucket. The default: leaving a header out is no way around the
    /// limit.
    #[default]
    Shared,
    /// Such a request is answered with 400, or INVALID_ARGUMENT over gRPC.
    Reject,
    /// Such a request is not this policy's business: it passes uncounted.
    Skip,
}

impl Policy {
    /// A policy about everybody together, on every request, at a cost of 1, that lets requests
    /// pass when the store gives no answer.
    ///
    /// The name is 1 to 64 printable ASCII characters.
    pub fn new(name: impl Into<String>, limit: Limit) -> Self {
        Self {
            name: name.into(),
            limit,
            key: Arc::new(|_: &RequestHead<'_>| Some(Key::everybody())),
            on: Vec::new(),
            cost: Cost::Fixed(1),
            on_missing_key: OnMissingKey::default(),
            on_store_failure: None,
            limit_by: None,
            max_wait: None,
            penalty: None,
            group: None,
            settle: None,
            quota_lease: None,
            mode: Mode::default(),
        }
    }

    /// Whose quota a request uses. A tuple of extractors makes one key of all they read.
    #[must_use]
    pub fn by(mut self, key: impl KeyExtractor) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// The requests that the policy is about; called several times, any of them.
    #[must_use]
    pub fn on(mut self, requests: impl RequestMatcher) -> Self {
        self.on.push(Arc::new(requests));
        self
    }

    /// How many permits each request costs; 1 unless said, at least 1, and no more than the limit
    /// ever holds.
    #[must_use]
    pub fn cost(mut self, permits: u32) -> Self {
        self.cost = Cost::Fixed(permits);
        self
    }

    /// How many permits a request costs, read from the request.
    ///
    /// Of its head, which says what the client wants it to: an upload in chunks has no `content-length`. Where the
    /// cost is known only when the body has been read, [`settle`](Self::settle) it.
    #[must_use]
    pub fn cost_by(mut self, cost: impl CostExtractor) -> Self {
        self.cost = Cost::Read(Arc::new(cost));
        self
    }

    /// Chooses the limit of each request, as the tier of its user has it.
    ///
    /// What was used of a key stays used when its limit changes: as the permits taken within the
    /// window, or, where permits come back one by one ([`gcra`](Limit::gcra),
    /// [`token_bucket`](Limit::token_bucket), [`leaky_bucket`](Limit::leaky_bucket)), as the time
    /// until all of them are back: who has used all of 100 a minute has used all of 200 a minute, too.
    /// So let tiers differ in permits; under a shorter window, what was
    /// taken before it is over at once. A limit of several rates stands for one of as many, each for
    /// the one in its place.
    ///
    /// A request whose [`cost`](Self::cost) is above all that the chosen limit ever holds is
    /// denied, and is not told to come back. Outside of HTTP, where there is no request, the
    /// policy's own limit holds, by which [`peek`](crate::Limiter::peek) tells what is left, too.
    #[must_use]
    pub fn limit_by(mut self, limit: impl LimitExtractor) -> Self {
        self.limit_by = Some(Arc::new(limit));
        self
    }

    /// Holds up a request that does not fit yet instead of denying it, for at most so long (1 ms to
    /// 24 h): until it would have been allowed. One that would wait for longer is denied at once.
    ///
    /// Let it be shorter than clients wait, by their own timeout, a proxy's, or the deadline of a call over
    /// gRPC. Who gives up gives back what was taken only where nobody has queued behind, so that while more is
    /// asked for than the limit gives all come to wait for places that nobody uses: of 40 clients under a limit of
    /// 20 a second, who each give up after half a second and come again, all 20 a second are answered where the
    /// longest wait is 400 ms, and none is after the first second where it is a second or more.
    ///
    /// A call over gRPC that states its deadline (`grpc-timeout`) waits for no longer than that: if it would
    /// have to, it is denied at once and takes nothing. So it is under a [leaky bucket](Limit::leaky_bucket)
    /// without this option, too.
    ///
    /// Meanwhile it holds what the other policies have given it, as a place under a
    /// [concurrency](Limit::concurrency) limit, but no place in the service behind the layer: for
    /// that to be ready it waits when its time has come. Its quota headers tell what was left when it
    /// came.
    ///
    /// The other policies have counted it when it came. Those whom this one holds up go on when it lets them,
    /// beside those who come then: so the service may get more at once than the other policies let through
    /// at a time. What is to hold for what reaches the service belongs in a layer of its own inside of the one
    /// that waits: it judges each request when that goes on. What the outer one has taken stays taken where
    /// the inner one denies. [Leaky buckets](Limit::leaky_bucket) hold requests up without being told to.
    ///
    /// For [`gcra`](Limit::gcra), [`token_bucket`](Limit::token_bucket) and
    /// [`leaky_bucket`](Limit::leaky_bucket).
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.max_wait = Some(longest);
        self
    }

    /// Keeps what is known of a subject in one place with the other policies of this group: a store
    /// that has such places, as Redis, then decides about all of them for little more than about one.
    ///
    /// For policies about the same subject that mostly judge the same requests. Policies can join a
    /// group and leave it, and the others forget nothing; one that joins or leaves starts its own counts
    /// anew in such a store, and keeps them in one that has no such places, as
    /// [`MemoryStore`](crate::MemoryStore). Several rates of one limit, [`Limit::and`], are kept so anyway.
    ///
    /// 1 to 64 printable ASCII characters. For all limits but [`sliding_log`](Limit::sliding_log) and
    /// [`concurrency`](Limit::concurrency).
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

    /// Bans a subject that this policy denies too often, in the same step in which it is denied.
    ///
    /// [`Decision::banned_for`](crate::Decision::banned_for) tells of a ban;
    /// [`Limiter::reset`](crate::Limiter::reset) lifts it.
    #[must_use]
    pub fn penalty(mut self, penalty: Penalty) -> Self {
        self.penalty = Some(penalty);
        self
    }

    /// Counts only requests whose response is of this kind, as failed logins. Over gRPC every status
    /// is 200: ask for [`ResponseHead::grpc_status`] there.
    ///
    /// The cost is taken when the request comes, so that no more than the limit can be under way at
    /// once, and given back when the response says that it does not count. It stays taken when
    /// there is no response: when the service fails, or the client goes away before. It is settled
    /// as in [`settle`](Self::settle), with what that says of policies that hold requests up and of
    /// quota headers: those of a response that does not count tell of the cost as taken. Of the two,
    /// that which is said last holds.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Policy, ResponseHead};
    ///
    /// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
    ///     .by(Header::new("x-user"))
    ///     .count_if(|response: &ResponseHead<'_>| response.status == 401);
    /// ```
    #[must_use]
    pub fn count_if<F>(mut self, counts: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.settle = Some(Settle {
            option: "count_if",
            cost: Arc::new(
                move |response, charged| {
                    if counts(response) { charged } else { 0 }
                },
            ),
        });
        self
    }

    /// The cost that a request turns out to have, read from the head of its response. The policy's
    /// [`cost`](Self::cost) is an estimate, taken when the request comes; the difference is charged
    /// or given back when the response is there. The estimate stays when there is no response.
    ///
    /// What is charged may pass the limit; later requests wait until it has come back. What has
    /// come back by itself in the meantime is not given back once more. The response does not wait
    /// for any of this, and its quota headers tell what was left once the request had taken the
    /// estimate: what the response settles is not in them yet. When the store gives no answer then,
    /// the estimate stays.
    ///
    /// A policy that holds requests up, by [`max_wait`](Self::max_wait) or as a
    /// [`leaky_bucket`](Limit::leaky_bucket) that is a queue, gives back only while nobody has taken
    /// permits since: those who wait behind a request have been told when to go on, and who comes
    /// next must not go on beside them. So the estimate stays of a request that another one has
    /// followed by the time of its response.
    ///
    /// Not for [`concurrency`](Limit::concurrency), whose permits come back when a request ends.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, Policy, ResponseHead, per_minute};
    ///
    /// /// What a handler leaves in the response's extensions.
    /// #[derive(Clone)]
    /// struct RowsRead(u32);
    ///
    /// let rows = Policy::new("rows", Limit::token_bucket(10_000, per_minute(10_000)))
    ///     .by(Header::new("x-user"))
    ///     .cost(500)
    ///     .settle(|response: &ResponseHead<'_>| {
    ///         response.extensions.get().map_or(500, |RowsRead(rows)| *rows)
    ///     });
    /// ```
    #[must_use]
    pub fn settle<F>(mut self, cost: F) -> Self
    where
        F: Fn(&ResponseHead<'_>) -> u32 + Send + Sync + 'static,
    {
        self.settle = Some(Settle {
            option: "settle",
            cost: Arc::new(move |response, _| cost(response)),
        });
        self
    }

    /// Takes permits of subjects that are often asked for in batches, and hands them out from memory:
    /// for a hot policy over a [`RedisStore`](crate::RedisStore). [`QuotaLease`] says what that changes.
    ///
    /// For [`gcra`](Limit::gcra), [`token_bucket`](Limit::token_bucket),
    /// [`fixed_window`](Limit::fixed_window) and a [`leaky_bucket`](Limit::leaky_bucket) that is no
    /// queue: permits of what slides cannot be handed out later than they were taken, and the limit
    /// hold in every window. Not together with [several rates](Limit::and),
    /// [`max_wait`](Self::max_wait), [`penalty`](Self::penalty), [`count_if`](Self::count_if) and
    /// [`settle`](Self::settle), which need the store for each request.
    ///
    /// ```
    /// use tower_throttle::{Limit, Policy, QuotaLease, SECOND};
    ///
    /// let everybody = Policy::new("everybody", Limit::gcra(50_000, SECOND))
    ///     .quota_lease(QuotaLease::new());
    /// ```
    #[must_use]
    pub fn quota_lease(mut self, lease: QuotaLease) -> Self {
        self.quota_lease = Some(lease);
        self
    }

    /// What to do with a request that does not say whose it is.
    #[must_use]
    pub fn on_missing_key(mut self, what: OnMissingKey) -> Self {
        self.on_missing_key = what;
        self
    }

    /// Whether the policy limits, only counts, or is off; [`Mode::Enforce`] unless said.
    /// [`Limiter::set_mode`](crate::Limiter::set_mode) changes it at run time.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What to decide when the store gives no answer; the limiter's choice unless said, which is
    /// to let requests pass.
    #[must_use]
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = Some(mode);
        self
    }

    /// Its own limit, as it was said.
    #[cfg(feature = "config")]
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The same with another limit.
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
